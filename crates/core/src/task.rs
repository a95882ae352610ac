//! A task: one run of a workflow, as it lies in the state store.
//!
//! The item is small and hot, so it keeps decisions and no payloads: what was submitted and what
//! steps returned are [documents](crate::ports::Document) beside it. In a step's record the stored
//! field names are one letter each (`s` state, `a` attempt, `b` complete-by, `u` until, `f` failures,
//! `e` error), and so are the states (`r` running, `w` waiting, `c` completed, `f` failed): DynamoDB
//! charges for names too, and twenty steps must fit in 1 KB, all running at once.
//!
//! ```text
//! Pending ──► Processing ──► Processed
//!                 └────────► Error (alerted)
//! ```

use std::{collections::BTreeMap, fmt, time::Duration};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::names::{StepName, TaskId, WorkflowName};

mod millis {
    pub(super) use jiff::fmt::serde::timestamp::millisecond::{optional, required};
}

/// Where the task as a whole stands (the pattern's `ProcessState`).
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    schemars::JsonSchema,
)]
pub enum ProcessState {
    /// Recorded; no scheduler has taken it in hand yet.
    Pending,
    /// A scheduler has sent its first steps.
    Processing,
    /// Every step completed.
    Processed,
    /// It can go no further by itself; the operator has been, or will be, alerted.
    Error,
}

impl ProcessState {
    /// Whether the task has ended: nothing more will happen by itself.
    #[must_use]
    pub fn is_final(self) -> bool {
        match self {
            Self::Pending | Self::Processing => false,
            Self::Processed | Self::Error => true,
        }
    }
}

impl fmt::Display for ProcessState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pending => "Pending",
            Self::Processing => "Processing",
            Self::Processed => "Processed",
            Self::Error => "Error",
        })
    }
}

/// Where one step stands. A step that has no record has not started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "s")]
pub enum StepState {
    /// Sent to its agent.
    #[serde(rename = "r")]
    Running {
        /// Grows with each dispatch and fences replies.
        #[serde(rename = "a")]
        attempt: u32,
        /// After it nobody may act on this attempt.
        #[serde(rename = "b", with = "millis::required")]
        complete_by: Timestamp,
    },
    /// To be sent again, at `until` or after.
    #[serde(rename = "w")]
    Waiting {
        /// The attempt that failed.
        #[serde(rename = "a")]
        attempt: u32,
        /// When the next attempt may start.
        #[serde(rename = "u", with = "millis::required")]
        until: Timestamp,
    },
    /// Done; its output is the document of this attempt.
    #[serde(rename = "c")]
    Completed {
        /// The attempt that completed.
        #[serde(rename = "a")]
        attempt: u32,
    },
    /// It will not be tried again by itself.
    #[serde(rename = "f")]
    Failed {
        /// The last attempt.
        #[serde(rename = "a")]
        attempt: u32,
    },
}

impl StepState {
    /// The newest attempt.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        match self {
            Self::Running { attempt, .. }
            | Self::Waiting { attempt, .. }
            | Self::Completed { attempt }
            | Self::Failed { attempt } => *attempt,
        }
    }

    /// The state's name, as logs and people say it.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Running { .. } => "running",
            Self::Waiting { .. } => "waiting",
            Self::Completed { .. } => "completed",
            Self::Failed { .. } => "failed",
        }
    }
}

/// One step's record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepRecord {
    /// Where it stands.
    #[serde(flatten)]
    pub state: StepState,
    /// How many attempts failed (the pattern's `FailureCount`, per step).
    #[serde(rename = "f", default, skip_serializing_if = "is_zero")]
    pub failure_count: u32,
    /// The last failure, shortened; the whole reason is in the attempt's failure document.
    #[serde(rename = "e", default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// One run of a workflow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// Chosen by the client.
    pub task_id: TaskId,
    /// The definition it runs, by name...
    pub workflow: WorkflowName,
    /// ...and version: pinned for the task's whole life.
    pub version: u32,
    /// Where it stands as a whole.
    pub process_state: ProcessState,
    /// Grows with every save; a save is conditional on the one before. This is the lock.
    pub revision: u64,
    /// The scheduler that last took the task in hand; cleared by the supervisor and at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub locked_by: Option<String>,
    /// The instance that made the last save. A writer that loses a race to itself has lost only the
    /// answer to its own save, and carries out the effects again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub saved_by: Option<String>,
    /// By when the task as a whole must be done.
    #[serde(with = "millis::required")]
    pub complete_by: Timestamp,
    /// Failed attempts over all steps.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub failure_count: u32,
    /// When it was recorded.
    #[serde(with = "millis::required")]
    pub submitted_at: Timestamp,
    /// When it ended.
    #[serde(default, with = "millis::optional", skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    /// When the supervisor should look at it; absent when nothing is left to look after. It may be
    /// earlier than the real complete-by, never later.
    #[serde(default, with = "millis::optional", skip_serializing_if = "Option::is_none")]
    pub due: Option<Timestamp>,
    /// The client's own queue for notices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<String>,
    /// W3C `traceparent` of the submission.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
    /// Why the task is in Error, shortened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// One record per step that has started.
    #[serde(default)]
    pub steps: BTreeMap<StepName, StepRecord>,
}

impl Task {
    /// The earliest time at which this unfinished task needs looking after: the first complete-by
    /// of a running step, the latest pick-up of a waiting one, the task's own complete-by.
    /// `pickup_within` is how long a wake may take to be acted on.
    #[must_use]
    pub fn earliest_deadline(&self, now: Timestamp, pickup_within: Duration) -> Timestamp {
        let steps = self.steps.values().filter_map(|step| match &step.state {
            StepState::Running { complete_by, .. } => Some(*complete_by),
            StepState::Waiting { until, .. } => Some(later((*until).max(now), pickup_within)),
            StepState::Completed { .. } | StepState::Failed { .. } => None,
        });
        steps.fold(self.complete_by, Timestamp::min)
    }

    /// Whether `step` has completed.
    #[must_use]
    pub fn has_completed(&self, step: &StepName) -> bool {
        self.steps
            .get(step)
            .is_some_and(|record| matches!(record.state, StepState::Completed { .. }))
    }

    /// The steps that are with an agent, with their attempt and complete-by.
    pub fn running(&self) -> impl Iterator<Item = (&StepName, u32, Timestamp)> {
        self.steps.iter().filter_map(|(name, record)| match record.state {
            StepState::Running { attempt, complete_by } => Some((name, attempt, complete_by)),
            StepState::Waiting { .. } | StepState::Completed { .. } | StepState::Failed { .. } => {
                None
            }
        })
    }
}

/// `time` plus `duration`, or the end of time: limits on durations make that unreachable.
#[must_use]
pub fn later(time: Timestamp, duration: Duration) -> Timestamp {
    time.saturating_add(duration).unwrap_or(Timestamp::MAX)
}

/// `time` less `duration`, or the beginning of time.
#[must_use]
pub fn earlier(time: Timestamp, duration: Duration) -> Timestamp {
    time.saturating_sub(duration).unwrap_or(Timestamp::MIN)
}
