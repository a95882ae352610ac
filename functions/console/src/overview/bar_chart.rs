//! Bar charts of the tasks that ended in the last hours, with text descriptions. Pure.

use std::time::Duration;

use jiff::Timestamp;
use steward_core::model::time::{earlier, later};
use steward_runtime::history::{EndedCounts, minute_of};

use crate::{
    history::Minutes,
    page::{DurationText, time_text},
};

/// The period of the charts.
pub(super) const HISTORY: Duration = Duration::from_secs(3 * 3_600);

/// The period of a bar.
const BAR_PERIOD: Duration = Duration::from_secs(120);

/// The height of the chart, in SVG units.
const HEIGHT: u64 = 60;
/// The width of a bar and its gap, in SVG units.
const BAR_WIDTH: usize = 6;

/// A bar chart; the earliest bar is first.
#[derive(Debug)]
pub(super) struct BarChart {
    pub(super) title: &'static str,
    /// The chart as text.
    pub(super) description: String,
    /// The CSS class.
    pub(super) class: &'static str,
    pub(super) bars: Vec<ChartBar>,
}

/// A bar, in SVG units.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ChartBar {
    pub(super) x: usize,
    pub(super) y: u64,
    pub(super) height: u64,
    /// The tooltip.
    pub(super) description: String,
}

impl BarChart {
    /// The chart of all ended tasks.
    pub(super) fn ended(minutes: &Minutes, now: Timestamp) -> Self {
        Self::of("Ended", "ended", minutes, now, |counts| counts.all())
    }

    /// The chart of the tasks that ended in Error or Undone.
    pub(super) fn failed(minutes: &Minutes, now: Timestamp) -> Self {
        let failed = |counts: &EndedCounts| counts.error + counts.undone;
        Self::of("In Error or Undone", "failed", minutes, now, failed)
    }

    fn of(
        title: &'static str,
        class: &'static str,
        minutes: &Minutes,
        now: Timestamp,
        count: impl Fn(&EndedCounts) -> u64,
    ) -> Self {
        let end = later(minute_of(now), Duration::from_secs(60));
        let starts =
            std::iter::successors(Some(earlier(end, HISTORY)), |at| Some(later(*at, BAR_PERIOD)));
        let counts = starts.take_while(|at| *at < end).map(|at| {
            let within = minutes.range(at..later(at, BAR_PERIOD));
            (at, within.map(|(_, minute)| count(&minute.all())).sum::<u64>())
        });
        let counts: Vec<_> = counts.collect();
        let highest = counts.iter().copied().max_by_key(|(_, count)| *count);
        let (busiest, most) = highest.unwrap_or((end, 0));
        let all: u64 = counts.iter().map(|(_, count)| count).sum();
        let (hours, period) = (duration_text(HISTORY), duration_text(BAR_PERIOD));
        let description = match all {
            0 => format!("none in the last {hours}"),
            _ => format!(
                "{all} in the last {hours}; maximum in {period}: {most}, from {}",
                time_text(&busiest, &now)
            ),
        };
        let bars = counts.into_iter().enumerate().map(|(n, (at, count))| {
            // Rounded up, so that every count above zero has a visible bar.
            let height = (count * HEIGHT).div_ceil(most.max(1));
            let description = format!("{}: {count}", time_text(&at, &now));
            ChartBar { x: n * BAR_WIDTH, y: HEIGHT - height, height, description }
        });
        Self { title, description, class, bars: bars.filter(|bar| bar.height > 0).collect() }
    }

    pub(super) fn width(&self) -> u64 {
        HISTORY.as_secs() / BAR_PERIOD.as_secs() * BAR_WIDTH as u64
    }

    pub(super) fn height(&self) -> u64 {
        HEIGHT
    }
}

fn duration_text(time: Duration) -> DurationText {
    DurationText(time.try_into().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use steward_core::model::task::ProcessState;
    use steward_runtime::history::EndedInMinute;

    fn at(time: &str) -> Timestamp {
        format!("2026-06-01T{time}Z").parse().unwrap()
    }

    fn minutes(ended: &[(&str, ProcessState, u64)]) -> Minutes {
        let mut minutes = Minutes::new();
        for (time, state, count) in ended {
            let minute: &mut EndedInMinute = minutes.entry(at(time)).or_default();
            (0..*count).for_each(|_| minute.add(&"order".parse().unwrap(), *state));
        }
        minutes
    }

    #[test]
    fn the_height_of_a_bar_is_relative_to_the_highest() {
        let minutes = minutes(&[
            ("09:00:00", ProcessState::Processed, 7),
            ("09:01:00", ProcessState::Processed, 1),
            ("11:58:00", ProcessState::Processed, 3),
            ("11:59:00", ProcessState::Error, 1),
            ("12:00:00", ProcessState::Undone, 2),
        ]);
        let ended = BarChart::ended(&minutes, at("12:00:30"));
        assert_eq!(ended.description, "7 in the last 3 h; maximum in 2 min: 3, from 11:59:00 UTC");
        let bars: Vec<_> = ended.bars.iter().map(|bar| (bar.x, bar.y, bar.height)).collect();
        assert_eq!(bars, [(0, 40, 20), (88 * 6, 0, 60), (89 * 6, 0, 60)]);
        let failed = BarChart::failed(&minutes, at("12:00:30"));
        assert_eq!(failed.description, "3 in the last 3 h; maximum in 2 min: 3, from 11:59:00 UTC");
        assert_eq!(failed.bars.len(), 1);
    }

    #[test]
    fn without_ended_tasks_there_are_no_bars() {
        let none = BarChart::ended(&Minutes::new(), at("12:00:30"));
        assert_eq!((none.bars.len(), none.description.as_str()), (0, "none in the last 3 h"));
    }
}
