//! How many tasks ended over the last hours, as a small picture and in words; pure.

use std::time::Duration;

use jiff::Timestamp;
use steward_core::model::time::{earlier, later};
use steward_runtime::history::{Counts, minute_of};

use super::HISTORY;
use crate::{
    history::Minutes,
    page::{Span, clock},
};

/// How much of the time a bar stands for.
const EACH: Duration = Duration::from_secs(120);

/// Units of the picture: how high it is, how wide a bar with its gap is.
const HEIGHT: u64 = 60;
const WIDTH: usize = 6;

/// A picture of bars, earliest first.
#[derive(Debug)]
pub(super) struct Bars {
    pub(super) title: &'static str,
    /// The same in words.
    pub(super) says: String,
    /// Its place among the classes of the stylesheet.
    pub(super) class: &'static str,
    pub(super) bars: Vec<Bar>,
}

/// One of them.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Bar {
    pub(super) x: usize,
    pub(super) y: u64,
    pub(super) height: u64,
    pub(super) says: String,
}

impl Bars {
    /// All that ended.
    pub(super) fn ended(minutes: &Minutes, now: Timestamp) -> Self {
        Self::of("Ended", "ended", minutes, now, |counts| counts.all())
    }

    /// What did not end well.
    pub(super) fn failed(minutes: &Minutes, now: Timestamp) -> Self {
        let failed = |counts: &Counts| counts.error + counts.undone;
        Self::of("In Error or Undone", "failed", minutes, now, failed)
    }

    fn of(
        title: &'static str,
        class: &'static str,
        minutes: &Minutes,
        now: Timestamp,
        count: impl Fn(&Counts) -> u64,
    ) -> Self {
        let end = later(minute_of(now), Duration::from_secs(60));
        let starts =
            std::iter::successors(Some(earlier(end, HISTORY)), |at| Some(later(*at, EACH)));
        let counts = starts.take_while(|at| *at < end).map(|at| {
            let within = minutes.range(at..later(at, EACH));
            (at, within.map(|(_, minute)| count(&minute.all())).sum::<u64>())
        });
        let counts: Vec<_> = counts.collect();
        let highest = counts.iter().copied().max_by_key(|(_, count)| *count);
        let (busiest, most) = highest.unwrap_or((end, 0));
        let all: u64 = counts.iter().map(|(_, count)| count).sum();
        let (hours, each) = (in_words(HISTORY), in_words(EACH));
        let says = match all {
            0 => format!("none in the last {hours}"),
            _ => format!(
                "{all} in the last {hours}; most in {each}: {most}, from {}",
                clock(&busiest, &now)
            ),
        };
        let bars = counts.into_iter().enumerate().map(|(n, (at, count))| {
            // What there is can be seen, however little it is.
            let height = (count * HEIGHT).div_ceil(most.max(1));
            let says = format!("{}: {count}", clock(&at, &now));
            Bar { x: n * WIDTH, y: HEIGHT - height, height, says }
        });
        Self { title, says, class, bars: bars.filter(|bar| bar.height > 0).collect() }
    }

    pub(super) fn width(&self) -> u64 {
        HISTORY.as_secs() / EACH.as_secs() * WIDTH as u64
    }

    pub(super) fn height(&self) -> u64 {
        HEIGHT
    }
}

fn in_words(time: Duration) -> Span {
    Span(time.try_into().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use steward_core::model::task::ProcessState;
    use steward_runtime::history::Minute;

    fn at(time: &str) -> Timestamp {
        format!("2026-06-01T{time}Z").parse().unwrap()
    }

    fn minutes(ended: &[(&str, ProcessState, u64)]) -> Minutes {
        let mut minutes = Minutes::new();
        for (time, state, count) in ended {
            let minute: &mut Minute = minutes.entry(at(time)).or_default();
            (0..*count).for_each(|_| minute.add(&"order".parse().unwrap(), *state));
        }
        minutes
    }

    #[test]
    fn bars_are_as_high_as_their_share_of_the_busiest() {
        let minutes = minutes(&[
            ("09:00:00", ProcessState::Processed, 7),
            ("09:01:00", ProcessState::Processed, 1),
            ("11:58:00", ProcessState::Processed, 3),
            ("11:59:00", ProcessState::Error, 1),
            ("12:00:00", ProcessState::Undone, 2),
        ]);
        let ended = Bars::ended(&minutes, at("12:00:30"));
        assert_eq!(ended.says, "7 in the last 3 h; most in 2 min: 3, from 11:59:00 UTC");
        let bars: Vec<_> = ended.bars.iter().map(|bar| (bar.x, bar.y, bar.height)).collect();
        assert_eq!(bars, [(0, 40, 20), (88 * 6, 0, 60), (89 * 6, 0, 60)]);
        let failed = Bars::failed(&minutes, at("12:00:30"));
        assert_eq!(failed.says, "3 in the last 3 h; most in 2 min: 3, from 11:59:00 UTC");
        assert_eq!(failed.bars.len(), 1);
    }

    #[test]
    fn nothing_that_ended_has_no_bars_and_says_so() {
        let none = Bars::ended(&Minutes::new(), at("12:00:30"));
        assert_eq!((none.bars.len(), none.says.as_str()), (0, "none in the last 3 h"));
    }
}
