//! History for the console: the number of tasks that ended in each minute, by workflow and final state. The supervisor
//! counts them from the index `ended`, minute by minute.
//!
//! Each minute is counted once, some time after it is over. The delay is needed because `ended_at` is the time of the
//! decision, and the task appears in the index only after its save. Tasks that appear even later are not counted. The
//! tasks themselves are authoritative. A task that ends again after an operator's command is counted each time.
//!
//! ```text
//! counted_until ─┐                       now − COUNT_DELAY ─┐   ┌─ now
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

use crate::ports::{SharedRecord, SharedRecordKey, SharedRecordKind};
use steward_core::model::{
    json_text::to_json_value,
    names::WorkflowName,
    task::ProcessState,
    time::{earlier, later},
};

/// The delay between the end of a minute and its count. It covers the time of a scheduler's invocation, the lag of the
/// index and the difference between clocks.
pub const COUNT_DELAY: Duration = Duration::from_secs(30);

/// The retention time of the record of a minute.
pub const RETENTION: Duration = Duration::from_secs(14 * 24 * 3_600);

/// The maximum number of minutes that the supervisor counts in one run. There are several after an outage of the
/// supervisor.
pub const MINUTES_MAX: usize = 60;

/// The maximum number of workflows that a minute counts separately.
pub const WORKFLOWS_MAX: usize = 500;

const MINUTE: Duration = Duration::from_secs(60);

/// The number of tasks that ended, by final state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedCounts {
    /// Tasks that ended Processed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub processed: u64,
    /// Tasks that stopped in Error.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub error: u64,
    /// Tasks that ended Undone.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub undone: u64,
}

impl EndedCounts {
    /// The count of one task in this state. It is zero for a state that is not final.
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

    /// The sum over all final states.
    #[must_use]
    pub fn all(&self) -> u64 {
        self.processed + self.error + self.undone
    }
}

impl AddAssign for EndedCounts {
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

/// The number of tasks that ended in one minute, by workflow.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedInMinute {
    /// The counts of the first [`WORKFLOWS_MAX`] workflows.
    #[serde(default)]
    pub workflows: BTreeMap<WorkflowName, EndedCounts>,
    /// The sum of all other workflows.
    #[serde(default)]
    pub others: EndedCounts,
}

impl EndedInMinute {
    /// Counts a task that ended in this state.
    pub fn add(&mut self, workflow: &WorkflowName, state: ProcessState) {
        self.add_counts(workflow, EndedCounts::of(state));
    }

    /// Adds the counts of another minute.
    pub fn merge(&mut self, other: &Self) {
        self.others += other.others;
        for (workflow, counts) in &other.workflows {
            self.add_counts(workflow, *counts);
        }
    }

    fn add_counts(&mut self, workflow: &WorkflowName, more: EndedCounts) {
        if let Some(counts) = self.workflows.get_mut(workflow) {
            *counts += more;
        } else if self.workflows.len() < WORKFLOWS_MAX {
            self.workflows.insert(workflow.clone(), more);
        } else {
            self.others += more;
        }
    }

    /// The sum over all workflows.
    #[must_use]
    pub fn all(&self) -> EndedCounts {
        let mut all = self.others;
        self.workflows.values().for_each(|counts| all += *counts);
        all
    }

    /// The shared record of this minute. It has revision 1, so it can be saved only once, and two supervisors cannot
    /// count the same minute.
    #[must_use]
    pub fn record(&self, start: Timestamp) -> SharedRecord {
        SharedRecord {
            key: SharedRecordKey { kind: SharedRecordKind::History, name: name(start) },
            revision: 1,
            body: to_json_value(self),
            expires_at: Some(later(start, RETENTION)),
        }
    }

    /// Parses a shared record into the start of its minute and the counts. Returns nothing if it is unreadable.
    #[must_use]
    pub fn read(record: &SharedRecord) -> Option<(Timestamp, Self)> {
        let start = record.key.name.parse().ok()?;
        Some((start, serde_json::from_value(record.body.clone()).ok()?))
    }
}

/// The name of the record of a minute: its start as text. The order of the names is the order of the minutes.
#[must_use]
pub fn name(start: Timestamp) -> String {
    start.to_string()
}

/// The start of the minute that contains `time`.
#[must_use]
pub fn minute_of(time: Timestamp) -> Timestamp {
    let seconds = time.as_second().div_euclid(60) * 60;
    Timestamp::from_second(seconds).unwrap_or(time)
}

/// The minutes to count now, earliest first. If none was counted before, only the newest minute that is complete.
pub fn uncounted_minutes(
    counted_until: Option<Timestamp>,
    now: Timestamp,
) -> impl Iterator<Item = Range<Timestamp>> {
    let until = minute_of(earlier(now, COUNT_DELAY));
    let oldest = minute_of(earlier(now, RETENTION));
    let from = counted_until.unwrap_or(earlier(until, MINUTE)).max(oldest);
    std::iter::successors(Some(from), |start| Some(later(*start, MINUTE)))
        .take(MINUTES_MAX)
        .take_while(move |start| *start < until)
        .map(|start| start..later(start, MINUTE))
}

/// The supervisor's last run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SupervisorRun {
    /// The start of the run.
    pub at: Timestamp,
    /// The duration of the sweep in milliseconds.
    pub took_ms: u64,
    /// The number of tasks that were due.
    pub due: u64,
    /// The number of due tasks that could not be recovered.
    pub failed: u64,
    /// The number of shards that were not read completely.
    pub shards_left: u32,
    /// The time up to which ended tasks are counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counted_until: Option<Timestamp>,
    /// What was done about tasks in Error.
    #[serde(default)]
    pub errors: ErrorsPass,
}

/// When the supervisor last did something about the tasks in Error.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorsPass {
    /// When it read all of them, and kept those that are not settled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_at: Option<Timestamp>,
    /// When it reported those that are not settled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reported_at: Option<Timestamp>,
}

impl SupervisorRun {
    /// The key of the shared record.
    #[must_use]
    pub fn key() -> SharedRecordKey {
        SharedRecordKey { kind: SharedRecordKind::Supervisor, name: "last-run".to_owned() }
    }

    /// Parses a shared record. Returns nothing if it is unreadable.
    #[must_use]
    pub fn read(record: &SharedRecord) -> Option<Self> {
        serde_json::from_value(record.body.clone()).ok()
    }

    /// The shared record that replaces one with the revision `before`, which is zero if there was none.
    #[must_use]
    pub fn record(&self, before: u64) -> SharedRecord {
        let (key, revision) = (Self::key(), before + 1);
        let body = to_json_value(self);
        SharedRecord { key, revision, body, expires_at: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(time: &str) -> Timestamp {
        format!("2026-06-01T{time}Z").parse().unwrap()
    }

    fn starts(counted_until: Option<&str>, now: &str) -> Vec<Timestamp> {
        let minutes: Vec<_> = uncounted_minutes(counted_until.map(at), at(now)).collect();
        assert!(minutes.iter().all(|minute| minute.end == minute.start + MINUTE));
        minutes.into_iter().map(|minute| minute.start).collect()
    }

    #[test]
    fn a_minute_is_counted_after_the_delay() {
        assert_eq!(starts(None, "12:05:29"), [at("12:03:00")]);
        assert_eq!(starts(None, "12:05:30"), [at("12:04:00")]);
        assert_eq!(starts(Some("12:05:00"), "12:06:29"), []);
        assert_eq!(starts(Some("12:05:00"), "12:06:30"), [at("12:05:00")]);
        assert_eq!(starts(Some("12:03:00"), "12:05:31"), [at("12:03:00"), at("12:04:00")]);
        // The clock of another supervisor is ahead.
        assert_eq!(starts(Some("12:09:00"), "12:05:31"), []);
    }

    #[test]
    fn a_supervisor_catches_up_over_several_runs_after_an_outage() {
        let minutes = starts(Some("06:00:00"), "12:05:31");
        assert_eq!((minutes.len(), minutes[0]), (MINUTES_MAX, at("06:00:00")));
        let long_ago = earlier(at("12:05:31"), 2 * RETENTION);
        let first = uncounted_minutes(Some(long_ago), at("12:05:31")).next().unwrap();
        assert_eq!(first.start, earlier(at("12:05:00"), RETENTION));
    }

    #[test]
    fn the_record_of_a_minute_can_be_parsed_and_expires() {
        let mut minute = EndedInMinute::default();
        for (workflow, state) in [
            ("order", ProcessState::Processed),
            ("order", ProcessState::Processed),
            ("order", ProcessState::Error),
            ("return", ProcessState::Undone),
            ("return", ProcessState::Pending),
        ] {
            minute.add(&workflow.parse().unwrap(), state);
        }
        assert_eq!(minute.all(), EndedCounts { processed: 2, error: 1, undone: 1 });
        let record = minute.record(at("12:05:00"));
        assert_eq!(record.key.name, "2026-06-01T12:05:00Z");
        assert_eq!(record.expires_at, Some(at("12:05:00") + RETENTION));
        assert_eq!(EndedInMinute::read(&record), Some((at("12:05:00"), minute)));
    }

    #[test]
    fn workflows_over_the_limit_are_counted_together() {
        let mut minute = EndedInMinute::default();
        for n in 0..=WORKFLOWS_MAX {
            let workflow = format!("w-{n}").parse().unwrap();
            minute.add(&workflow, ProcessState::Error);
            minute.add(&workflow, ProcessState::Error);
        }
        assert_eq!(minute.workflows.len(), WORKFLOWS_MAX);
        assert_eq!(minute.others, EndedCounts { error: 2, ..EndedCounts::default() });
        assert_eq!(minute.all().error, 2 * (WORKFLOWS_MAX as u64 + 1));
    }
}
