//! Durations in the human-readable format of definitions: `90s`, `15m`, `1d 12h`.

use std::{sync::LazyLock, time::Duration};

use regex::Regex;

use serde::{Deserialize, Deserializer, Serializer};

use crate::limits;

/// The grammar of a duration in a definition, for the parser and for the published schema. A number has as many decimals
/// as its unit can express exactly.
const PATTERN: &str = concat!(
    "^([0-9]{1,9} ?(ns|nsec|nanos|M|months?) ?",
    "|[0-9]{1,9}(\\.[0-9]{1,3})? ?(us|usec) ?",
    "|[0-9]{1,9}(\\.[0-9]{1,6})? ?(ms|msec|millis|s|secs?|seconds?|m|mins?|minutes?) ?",
    "|[0-9]{1,9}(\\.[0-9]{1,2})? ?(h|hrs?|hours?|d|days?|w|wks?|weeks?|y|yrs?|years?) ?)+$",
);

static GRAMMAR: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(PATTERN).ok());

/// A duration in another file than a definition, in the same format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct WrittenDuration(pub Duration);

impl<'de> Deserialize<'de> for WrittenDuration {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        deserialize(from).map(Self)
    }
}

impl schemars::JsonSchema for WrittenDuration {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        Text::schema_name()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        Text::json_schema(generator)
    }
}

/// The JSON Schema of a duration in definitions.
pub struct Text;

impl schemars::JsonSchema for Text {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Duration".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "string",
            "description": "A duration, such as `90s`, `15m` or `1d 12h`",
            "pattern": PATTERN,
            "maxLength": limits::DURATION_CHARS_MAX,
        })
    }
}

pub(crate) fn serialize<S: Serializer>(duration: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(&humantime::format_duration(*duration))
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    parse_in_definition(&String::deserialize(from)?).map_err(serde::de::Error::custom)
}

/// Parses a duration of a definition. A published definition contains the text of `serialize`.
fn parse_in_definition(text: &str) -> Result<Duration, String> {
    let duration = parse(text)?;
    let is_valid = text.len() <= limits::DURATION_CHARS_MAX
        && GRAMMAR.as_ref().is_some_and(|grammar| grammar.is_match(text));
    match is_valid {
        true => Ok(duration),
        false => Err(format!("duration `{text}`: numbers with units, such as `90s` or `1d 12h`")),
    }
}

/// The most digits of a number. The library panics for some sums near the largest duration.
const DIGITS_MAX: usize = 10;

/// Parses a duration that an expression returned.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let mut numbers = text.split(|c: char| !c.is_ascii_digit());
    if text.len() > limits::DURATION_CHARS_MAX || numbers.any(|number| number.len() > DIGITS_MAX) {
        return Err(format!(
            "a duration has at most {} characters, and numbers of at most {DIGITS_MAX} digits",
            limits::DURATION_CHARS_MAX
        ));
    }
    humantime::parse_duration(text).map_err(|error| format!("duration `{text}`: {error}"))
}

/// Serialisation of an optional duration.
pub(crate) mod optional {
    use super::{Deserialize, Deserializer, Duration, Serializer};

    pub(crate) fn serialize<S: Serializer>(
        duration: &Option<Duration>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        match duration {
            Some(duration) => super::serialize(duration, to),
            None => to.serialize_none(),
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Duration>, D::Error> {
        let text = Option::<String>::deserialize(from)?;
        text.map(|text| super::parse_in_definition(&text))
            .transpose()
            .map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unit_is_accepted() {
        let units = [
            "nanos", "nsec", "ns", "usec", "us", "millis", "msec", "ms", "seconds", "second",
            "secs", "sec", "s", "minutes", "minute", "min", "mins", "m", "hours", "hour", "hr",
            "hrs", "h", "days", "day", "d", "weeks", "week", "wk", "wks", "w", "months", "month",
            "M", "years", "year", "yr", "yrs", "y",
        ];
        for unit in units {
            for text in [format!("5{unit}"), format!("5 {unit}"), format!("5{unit} 7 {unit}")] {
                assert!(parse_in_definition(&text).is_ok(), "{text}");
            }
        }
        assert_eq!(parse_in_definition("1.5h"), parse_in_definition("90 minutes"));
    }

    #[test]
    fn what_only_the_library_accepts_is_refused() {
        for text in ["1 0s", "\t5s", "5  s", "5\ns", "0.1234567s", "1234567890s"] {
            assert!(parse(text).is_ok(), "{text}");
            assert!(parse_in_definition(text).is_err(), "{text}");
        }
        assert!(parse_in_definition(&"1s".repeat(limits::DURATION_CHARS_MAX)).is_err());
    }

    #[test]
    fn the_largest_numbers_that_the_grammar_accepts_are_parsed() {
        for (decimals, units) in [
            ("", ["ns", "M", "months"]),
            (".999", ["us", "usec", "us"]),
            (".999999", ["ms", "s", "m"]),
            (".99", ["h", "d", "w"]),
            (".99", ["y", "yr", "years"]),
        ] {
            for unit in units {
                let text = format!("999999999{decimals}{unit}");
                assert!(parse_in_definition(&text).is_ok(), "{text}");
                let text = format!("9.{}9{unit}", decimals.trim_start_matches('.'));
                assert!(parse_in_definition(&text).is_err(), "{text}");
            }
        }
    }

    #[test]
    fn serialised_durations_are_in_the_grammar() {
        for millis in [1, 999, 1_000, 61_001, 86_400_000, 2_678_400_000, 400 * 86_400_000] {
            let duration = Duration::from_millis(millis);
            let text = humantime::format_duration(duration).to_string();
            assert_eq!(parse_in_definition(&text), Ok(duration), "{text}");
        }
    }
}
