//! A step's record in a task's item.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::model::{
    attempt::{Action, Attempt},
    command::CommandId,
    document::DocumentKey,
    names::{Part, StepName},
};

mod millis {
    pub(super) use jiff::fmt::serde::timestamp::millisecond::{optional, required};
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
    /// The call is done, and someone else is to answer.
    #[serde(rename = "h")]
    HandedOut {
        /// The attempt.
        #[serde(rename = "a")]
        attempt: u32,
        /// By when there must be an answer, or the next heartbeat.
        #[serde(rename = "b", with = "millis::required")]
        complete_by: Timestamp,
        /// By when there must be an answer, whatever heartbeats come.
        #[serde(rename = "u", with = "millis::required")]
        answer_by: Timestamp,
    },
    /// Under way, each item by itself.
    #[serde(rename = "e")]
    Each,
    /// To be sent again, at `until` or after.
    #[serde(rename = "w")]
    Waiting {
        /// The attempt that failed.
        #[serde(rename = "a")]
        attempt: u32,
        /// When the next attempt may start.
        #[serde(rename = "u", with = "millis::required")]
        until: Timestamp,
        /// The complete-by of an attempt that was deferred: its request may have been delivered twice,
        /// so until then another agent may act on it.
        #[serde(
            rename = "b",
            default,
            with = "millis::optional",
            skip_serializing_if = "Option::is_none"
        )]
        complete_by: Option<Timestamp>,
    },
    /// Done; its output is the document of this attempt.
    #[serde(rename = "c")]
    Completed {
        /// The attempt that completed; zero if it has no document of its own: a wait returns nothing,
        /// a step with items what they returned.
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
    /// Its `when` was false, or an operator decided to go on without it.
    #[serde(rename = "k")]
    Skipped {
        /// The last attempt; zero if there was none.
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
            | Self::HandedOut { attempt, .. }
            | Self::Waiting { attempt, .. }
            | Self::Completed { attempt }
            | Self::Failed { attempt }
            | Self::Skipped { attempt } => *attempt,
            Self::Each => 0,
        }
    }

    /// Ready to be sent again from `until` on, by nobody at work on it.
    #[must_use]
    pub fn waiting(attempt: u32, until: Timestamp) -> Self {
        Self::Waiting { attempt, until, complete_by: None }
    }

    /// The state's name, as logs and people say it.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Running { .. } | Self::Each => "running",
            Self::HandedOut { .. } => "handed out",
            Self::Waiting { .. } => "waiting",
            Self::Completed { .. } => "completed",
            Self::Failed { .. } => "failed",
            Self::Skipped { .. } => "skipped",
        }
    }

    /// Whether an agent may be at work on it.
    #[must_use]
    pub fn is_running(&self) -> bool {
        matches!(self, Self::Running { .. })
    }

    /// By when an answer is awaited, if one is.
    #[must_use]
    pub fn awaited_by(&self) -> Option<Timestamp> {
        match self {
            Self::Running { complete_by, .. } | Self::HandedOut { complete_by, .. } => {
                Some(*complete_by)
            }
            Self::Each
            | Self::Waiting { .. }
            | Self::Completed { .. }
            | Self::Failed { .. }
            | Self::Skipped { .. } => None,
        }
    }

    /// Until when it waits, if it does.
    #[must_use]
    pub fn waits_until(&self) -> Option<Timestamp> {
        match self {
            Self::Waiting { until, .. } => Some(*until),
            Self::Running { .. }
            | Self::HandedOut { .. }
            | Self::Each
            | Self::Completed { .. }
            | Self::Failed { .. }
            | Self::Skipped { .. } => None,
        }
    }

    /// By when a deferred attempt had to be complete: until then another delivery of its request may act.
    #[must_use]
    pub fn deferred_by(&self) -> Option<Timestamp> {
        match self {
            Self::Waiting { complete_by, .. } => *complete_by,
            Self::Running { .. }
            | Self::HandedOut { .. }
            | Self::Each
            | Self::Completed { .. }
            | Self::Failed { .. }
            | Self::Skipped { .. } => None,
        }
    }

    /// Whether it will not be tried again by itself.
    #[must_use]
    pub fn is_failed(&self) -> bool {
        matches!(self, Self::Failed { .. })
    }

    /// Whether it is done, or was skipped.
    #[must_use]
    pub fn has_passed(&self) -> bool {
        matches!(self, Self::Completed { .. } | Self::Skipped { .. })
    }
}

/// How far doing a step, or undoing it, has come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// Where it stands.
    #[serde(flatten)]
    pub state: StepState,
    /// How many attempts failed (the pattern's `FailureCount`, per step) since the recovery policy
    /// began to count: at the start, or when an operator resubmitted it.
    #[serde(rename = "f", default, skip_serializing_if = "is_zero")]
    pub failure_count: u32,
    /// Whether an attempt that did not complete may have taken effect.
    #[serde(rename = "m", default, skip_serializing_if = "std::ops::Not::not")]
    pub may_have_run: bool,
    /// Until when a call of an attempt of unknown outcome may still be in progress at the service:
    /// the attempt's complete-by, by every clock, and as long as one call may take. Until then neither
    /// the part nor what came before it is undone; if it is the undo, what came before the part. Only of a step
    /// with an agent.
    #[serde(
        rename = "w",
        default,
        with = "millis::optional",
        skip_serializing_if = "Option::is_none"
    )]
    pub in_progress_until: Option<Timestamp>,
    /// Which edit of the input its requests are made from; the one submitted if absent.
    #[serde(rename = "i", default, skip_serializing_if = "Option::is_none")]
    pub input: Option<CommandId>,
    /// The command of the operator who completed it, if one did: the output is the command's, and not
    /// the attempt's.
    #[serde(rename = "o", default, skip_serializing_if = "Option::is_none")]
    pub completed_by: Option<CommandId>,
    /// The revision at which the task of this step reported that it did not end well. Earlier reports of it
    /// are ignored. 0 if this task was left alone for so long that the other may have begun, ended and expired.
    #[serde(rename = "r", default, skip_serializing_if = "Option::is_none")]
    pub child_revision: Option<u64>,
}

impl Progress {
    /// Something that has come into this state and knows nothing more yet.
    #[must_use]
    pub fn new(state: StepState) -> Self {
        Self {
            state,
            failure_count: 0,
            may_have_run: false,
            in_progress_until: None,
            input: None,
            completed_by: None,
            child_revision: None,
        }
    }

    /// Until when a call may still be in progress at the service, if one may be at `now`.
    #[must_use]
    pub fn in_progress(&self, now: Timestamp) -> Option<Timestamp> {
        self.in_progress_until.filter(|until| *until > now)
    }

    /// Which document holds what it returned, if it completed and returned anything.
    #[must_use]
    pub fn output(&self, step: &Part, action: Action) -> Option<DocumentKey> {
        let StepState::Completed { attempt: number @ 1.. } = self.state else { return None };
        let attempt = Attempt { step: step.clone(), action, number };
        Some(match &self.completed_by {
            Some(command) => DocumentKey::ByHand(attempt, command.clone()),
            None => DocumentKey::Output(attempt),
        })
    }
}

/// One step's record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepRecord {
    /// How far doing it has come.
    #[serde(flatten)]
    pub run: Progress,
    /// How far undoing it has come, once that has begun.
    #[serde(rename = "x", default, skip_serializing_if = "Option::is_none")]
    pub undo: Option<Progress>,
    /// The items of a step with `for_each`: they are done and undone, and it is not.
    #[serde(rename = "p", default, skip_serializing_if = "Option::is_none")]
    pub items: Option<Items>,
}

impl StepRecord {
    /// Until when a call that does the part, or undoes it, may be in progress at the service, if one may be
    /// at `now`.
    #[must_use]
    pub fn in_progress(&self, now: Timestamp) -> Option<Timestamp> {
        // One that is not through is waited for anyway.
        let undo = self.undo.as_ref().filter(|undo| undo.state.has_passed());
        self.run.in_progress(now).max(undo.and_then(|undo| undo.in_progress(now)))
    }

    /// A step that has never been sent.
    #[must_use]
    pub fn new(state: StepState) -> Self {
        Self { run: Progress::new(state), undo: None, items: None }
    }

    /// How far one way of it has come.
    #[must_use]
    pub fn progress(&self, action: Action) -> Option<&Progress> {
        match action {
            Action::Do => Some(&self.run),
            Action::Undo => self.undo.as_ref(),
        }
    }

    /// The same, to change it.
    #[must_use]
    pub fn progress_mut(&mut self, action: Action) -> Option<&mut Progress> {
        match action {
            Action::Do => Some(&mut self.run),
            Action::Undo => self.undo.as_mut(),
        }
    }

    /// What of it is done and undone by itself: its items, or the step.
    pub fn parts(&self, step: &StepName) -> impl Iterator<Item = (Part, &Self)> {
        let items = self.items.iter().flat_map(|items| &items.begun).zip(0_u32..);
        let items =
            items.map(|(record, place)| (Part { step: step.clone(), item: Some(place) }, record));
        let whole = self.items.is_none().then(|| (Part::from(step.clone()), self));
        whole.into_iter().chain(items)
    }

    /// The same, without their names.
    pub(crate) fn own_parts(&self) -> impl Iterator<Item = &Self> {
        match &self.items {
            Some(items) => items.begun.as_slice(),
            None => std::slice::from_ref(self),
        }
        .iter()
    }

    /// The same, to change it.
    pub fn parts_mut(&mut self) -> impl Iterator<Item = &mut Self> {
        match self.items {
            Some(ref mut items) => items.begun.as_mut_slice(),
            None => std::slice::from_mut(self),
        }
        .iter_mut()
    }

    /// The state's name, as people say it. Of a step with items, that of the items that have come
    /// least far in its undo.
    #[must_use]
    pub fn name(&self) -> &'static str {
        let name = |undo: &Progress| match undo.state {
            StepState::Running { .. } | StepState::HandedOut { .. } | StepState::Each => "undoing",
            StepState::Waiting { .. } => "undo waiting",
            StepState::Completed { .. } => "undone",
            StepState::Failed { .. } => "undo failed",
            StepState::Skipped { .. } => "undo skipped",
        };
        let undos = self.items.iter().flat_map(|items| &items.begun).chain([self]);
        let undos: Vec<_> = undos.filter_map(|record| record.undo.as_ref()).collect();
        let open = undos.iter().find(|undo| !undo.state.has_passed()).or(undos.first());
        open.map_or_else(|| self.run.state.name(), |undo| name(undo))
    }
}

/// The items of a step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Items {
    /// How many there are.
    #[serde(rename = "n")]
    pub count: u32,
    /// The records of those that have begun, the first ones.
    #[serde(rename = "l", default, skip_serializing_if = "Vec::is_empty")]
    pub begun: Vec<StepRecord>,
}

impl Items {
    /// Whether every item has completed or was skipped.
    #[must_use]
    pub fn have_passed(&self) -> bool {
        self.begun.len() >= self.count as usize
            && self.begun.iter().all(|item| item.run.state.has_passed())
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_zero(count: &u32) -> bool {
    *count == 0
}
