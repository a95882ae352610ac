//! History for people: how many tasks ended in which minute, by workflow and by how. The supervisor
//! counts it from the index of ended tasks, a minute at a time.
//!
//! A minute is counted once, some time after it is over: `ended_at` is when a scheduler decided, and the
//! save and the index come after it. What comes later still is not counted; the tasks themselves are the
//! truth. A task that an operator takes up again ends more than once, and is counted as often.
//!
//! ```text
//! counted_until ─┐                    now − SETTLES_WITHIN ─┐   ┌─ now
//!     ───┬───────┴┬────────┬────────┬────────┬────────┬─────┴───┴──►
//!     counted     │ these are counted now             │ not over yet
//! ```

use std::{
    collections::BTreeMap,
    ops::{AddAssign, Range},
    time::Duration,
};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::ports::{Shared, SharedKey, SharedKind};
use steward_core::model::{
    names::WorkflowName,
    task::ProcessState,
    time::{earlier, later},
};

/// How long after its end a minute is counted: a scheduler's invocation, a lagging index, clocks.
pub const SETTLES_WITHIN: Duration = Duration::from_secs(30);

/// How long a minute is kept.
pub const KEPT_FOR: Duration = Duration::from_secs(14 * 24 * 3_600);

/// Minutes counted in one run, at most: what a supervisor that was away catches up on.
pub const MINUTES_MAX: usize = 60;

/// Workflows that a minute tells apart, at most.
pub const WORKFLOWS_MAX: usize = 500;

const MINUTE: Duration = Duration::from_secs(60);

/// How many tasks ended, by how.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Processed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub processed: u64,
    /// In Error.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub error: u64,
    /// Undone.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub undone: u64,
}

impl Counts {
    /// One task.
    #[must_use]
    pub fn of(state: ProcessState) -> Self {
        let none = Self::default();
        match state {
            ProcessState::Processed => Self { processed: 1, ..none },
            ProcessState::Error => Self { error: 1, ..none },
            ProcessState::Undone => Self { undone: 1, ..none },
            ProcessState::Pending | ProcessState::Processing | ProcessState::Undoing => none,
        }
    }

    /// However they ended.
    #[must_use]
    pub fn all(&self) -> u64 {
        self.processed + self.error + self.undone
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.processed += other.processed;
        self.error += other.error;
        self.undone += other.undone;
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// What ended in one minute.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Minute {
    /// By workflow; those beyond [`WORKFLOWS_MAX`] are in `others`.
    #[serde(default)]
    pub workflows: BTreeMap<WorkflowName, Counts>,
    /// All other workflows together.
    #[serde(default)]
    pub others: Counts,
}

impl Minute {
    /// Counts a task that ended so.
    pub fn add(&mut self, workflow: &WorkflowName, state: ProcessState) {
        self.add_counts(workflow, Counts::of(state));
    }

    /// Adds what another has counted.
    pub fn merge(&mut self, other: &Self) {
        self.others += other.others;
        for (workflow, counts) in &other.workflows {
            self.add_counts(workflow, *counts);
        }
    }

    fn add_counts(&mut self, workflow: &WorkflowName, more: Counts) {
        if let Some(counts) = self.workflows.get_mut(workflow) {
            *counts += more;
        } else if self.workflows.len() < WORKFLOWS_MAX {
            self.workflows.insert(workflow.clone(), more);
        } else {
            self.others += more;
        }
    }

    /// All workflows together.
    #[must_use]
    pub fn all(&self) -> Counts {
        let mut all = self.others;
        self.workflows.values().for_each(|counts| all += *counts);
        all
    }

    /// Its record: made once, so two supervisors do not count a minute twice.
    #[must_use]
    pub fn record(&self, start: Timestamp) -> Shared {
        Shared {
            key: SharedKey { kind: SharedKind::History, name: name(start) },
            revision: 1,
            // Names and numbers always serialise.
            body: serde_json::to_value(self).unwrap_or_default(),
            expires_at: Some(later(start, KEPT_FOR)),
        }
    }

    /// When the minute of a record began, and what it says; nothing if it cannot be read.
    #[must_use]
    pub fn read(record: &Shared) -> Option<(Timestamp, Self)> {
        let start = record.key.name.parse().ok()?;
        Some((start, serde_json::from_value(record.body.clone()).ok()?))
    }
}

/// What the record of a minute is called: its start, so that names are in the order of time.
#[must_use]
pub fn name(start: Timestamp) -> String {
    start.to_string()
}

/// The minute in which a time is.
#[must_use]
pub fn minute_of(time: Timestamp) -> Timestamp {
    let seconds = time.as_second().div_euclid(60) * 60;
    Timestamp::from_second(seconds).unwrap_or(time)
}

/// The minutes to count now, earliest first; with nothing counted before, the newest alone.
pub fn uncounted(
    counted_until: Option<Timestamp>,
    now: Timestamp,
) -> impl Iterator<Item = Range<Timestamp>> {
    let until = minute_of(earlier(now, SETTLES_WITHIN));
    let oldest = minute_of(earlier(now, KEPT_FOR));
    let from = counted_until.unwrap_or(earlier(until, MINUTE)).max(oldest);
    std::iter::successors(Some(from), |start| Some(later(*start, MINUTE)))
        .take(MINUTES_MAX)
        .take_while(move |start| *start < until)
        .map(|start| start..later(start, MINUTE))
}

/// The supervisor's last run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastRun {
    /// When it began.
    pub at: Timestamp,
    /// How long the sweep took, in milliseconds.
    pub took_ms: u64,
    /// Tasks found due.
    pub due: u64,
    /// Of these, the ones that could not be driven.
    pub failed: u64,
    /// Shards that were not read to their end.
    pub shards_left: u32,
    /// Up to when ended tasks have been counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counted_until: Option<Timestamp>,
}

impl LastRun {
    /// What its record goes by.
    #[must_use]
    pub fn key() -> SharedKey {
        SharedKey { kind: SharedKind::Supervisor, name: "last-run".to_owned() }
    }

    /// What a record says; nothing if it cannot be read.
    #[must_use]
    pub fn read(record: &Shared) -> Option<Self> {
        serde_json::from_value(record.body.clone()).ok()
    }

    /// The record that follows one of this revision, zero if there was none.
    #[must_use]
    pub fn record(&self, before: u64) -> Shared {
        let (key, revision) = (Self::key(), before + 1);
        // Times and numbers always serialise.
        let body = serde_json::to_value(self).unwrap_or_default();
        Shared { key, revision, body, expires_at: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(time: &str) -> Timestamp {
        format!("2026-06-01T{time}Z").parse().unwrap()
    }

    fn starts(counted_until: Option<&str>, now: &str) -> Vec<Timestamp> {
        let minutes: Vec<_> = uncounted(counted_until.map(at), at(now)).collect();
        assert!(minutes.iter().all(|minute| minute.end == minute.start + MINUTE));
        minutes.into_iter().map(|minute| minute.start).collect()
    }

    #[test]
    fn a_minute_is_counted_once_it_has_settled() {
        assert_eq!(starts(None, "12:05:29"), [at("12:03:00")]);
        assert_eq!(starts(None, "12:05:30"), [at("12:04:00")]);
        assert_eq!(starts(Some("12:05:00"), "12:06:29"), []);
        assert_eq!(starts(Some("12:05:00"), "12:06:30"), [at("12:05:00")]);
        assert_eq!(starts(Some("12:03:00"), "12:05:31"), [at("12:03:00"), at("12:04:00")]);
        // Another's clock is ahead.
        assert_eq!(starts(Some("12:09:00"), "12:05:31"), []);
    }

    #[test]
    fn a_supervisor_that_was_away_catches_up_by_and_by() {
        let minutes = starts(Some("06:00:00"), "12:05:31");
        assert_eq!((minutes.len(), minutes[0]), (MINUTES_MAX, at("06:00:00")));
        let long_ago = earlier(at("12:05:31"), 2 * KEPT_FOR);
        let first = uncounted(Some(long_ago), at("12:05:31")).next().unwrap();
        assert_eq!(first.start, earlier(at("12:05:00"), KEPT_FOR));
    }

    #[test]
    fn a_minute_reads_as_it_was_recorded_and_goes_after_its_time() {
        let mut minute = Minute::default();
        for (workflow, state) in [
            ("order", ProcessState::Processed),
            ("order", ProcessState::Processed),
            ("order", ProcessState::Error),
            ("return", ProcessState::Undone),
            ("return", ProcessState::Pending),
        ] {
            minute.add(&workflow.parse().unwrap(), state);
        }
        assert_eq!(minute.all(), Counts { processed: 2, error: 1, undone: 1 });
        let record = minute.record(at("12:05:00"));
        assert_eq!(record.key.name, "2026-06-01T12:05:00Z");
        assert_eq!(record.expires_at, Some(at("12:05:00") + KEPT_FOR));
        assert_eq!(Minute::read(&record), Some((at("12:05:00"), minute)));
    }

    #[test]
    fn more_workflows_than_a_minute_tells_apart_are_counted_together() {
        let mut minute = Minute::default();
        for n in 0..=WORKFLOWS_MAX {
            let workflow = format!("w-{n}").parse().unwrap();
            minute.add(&workflow, ProcessState::Error);
            minute.add(&workflow, ProcessState::Error);
        }
        assert_eq!(minute.workflows.len(), WORKFLOWS_MAX);
        assert_eq!(minute.others, Counts { error: 2, ..Counts::default() });
        assert_eq!(minute.all().error, 2 * (WORKFLOWS_MAX as u64 + 1));
    }
}
