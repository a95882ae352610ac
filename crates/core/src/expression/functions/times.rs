//! Times: texts in the form of RFC 3339, and formats of `strftime`. Time zones are those of the IANA database that is
//! compiled in, so that a result does not depend on the machine. There is no current time.

use std::sync::LazyLock;

use cel::{ExecutionError, common::value::CowVal};
use jiff::{
    Timestamp,
    fmt::strtime::{self, BrokenDownTime},
    tz::{TimeZone, TimeZoneDatabase},
};

use super::arguments::{Evaluated, arguments, ordering, owned_text, refuse, text};
use crate::definition::duration;

static ZONES: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);

const NO_TIME: &str =
    "an operand of `time` is no time in the form of RFC 3339, such as \"2026-01-31T12:00:00Z\"";
const NO_DURATION: &str = "the duration of `time.add` is none, such as \"90m\" or \"-1d 12h\"";
const NO_ZONE: &str = "the time zone is neither \"UTC\" nor a name such as \"Europe/Berlin\"";
const NO_FORMAT: &str = "the format of `time.format` is not one of strftime, such as \"%Y-%m-%d\"";
const NO_MATCH: &str =
    "the text of `time.parse` does not have the given format, such as \"%Y-%m-%d\", or is no time";
const OUT_OF_RANGE: &str = "the result of `time.add` is not between the years -9999 and 9999";

fn time(value: &CowVal<'_, '_>) -> Result<Timestamp, ExecutionError> {
    text(value)?.parse().map_err(|_| refuse(NO_TIME))
}

fn zone(value: &CowVal<'_, '_>) -> Result<TimeZone, ExecutionError> {
    ZONES.get(text(value)?).map_err(|_| refuse(NO_ZONE))
}

/// The time that a text in a format stands for, in UTC. A text without an offset or a zone is in the given zone, and one without a time of
/// day means midnight. Of a time that a change of the clocks skips or repeats, it takes the one with the offset before the
/// change.
pub(super) fn parse<'b, 'v>(values: Vec<CowVal<'b, 'v>>) -> Evaluated<'b, 'v> {
    let [of, format, in_zone] = arguments(values)?;
    let (of, format, zone) = (text(&of)?, text(&format)?, zone(&in_zone)?);
    let read = || {
        let parts = BrokenDownTime::parse(format, of).ok()?;
        if parts.offset().is_some() || parts.timestamp().is_some() {
            return parts.to_timestamp().ok();
        }
        let own_zone = parts.iana_time_zone().map(|name| ZONES.get(name));
        let zone = own_zone.unwrap_or(Ok(zone)).ok()?;
        zone.to_timestamp(parts.to_datetime().ok()?).ok()
    };
    owned_text(read().ok_or_else(|| refuse(NO_MATCH))?.to_string())
}

pub(super) fn format<'b, 'v>(values: Vec<CowVal<'b, 'v>>) -> Evaluated<'b, 'v> {
    let [of, format, in_zone] = arguments(values)?;
    let zoned = time(&of)?.to_zoned(zone(&in_zone)?);
    owned_text(strtime::format(text(&format)?, &zoned).map_err(|_| refuse(NO_FORMAT))?)
}

pub(super) fn add<'b, 'v>(values: Vec<CowVal<'b, 'v>>) -> Evaluated<'b, 'v> {
    let [of, by] = arguments(values)?;
    let (time, by) = (time(&of)?, text(&by)?);
    let (is_negative, span) = by.strip_prefix('-').map_or((false, by), |span| (true, span));
    let span = duration::parse(span).map_err(|_| refuse(NO_DURATION))?;
    let sum = if is_negative { time.checked_sub(span) } else { time.checked_add(span) };
    owned_text(sum.map_err(|_| refuse(OUT_OF_RANGE))?.to_string())
}

pub(super) fn compare<'b, 'v>(values: Vec<CowVal<'b, 'v>>) -> Evaluated<'b, 'v> {
    let [left, right] = arguments(values)?;
    ordering(time(&left)?.cmp(&time(&right)?))
}
