//! A task: one run of a workflow, as it lies in the state store.
//!
//! The item is small and hot, so it keeps decisions and no payloads: what was submitted and what
//! steps returned are [documents](crate::ports::Document) beside it. In a step's record the stored
//! field names are one letter each (`s` state, `a` attempt, `b` complete-by, `u` until, `f` failures,
//! `m` may have run, `w` in progress until, `i` edited input, `o` completed by an operator's command, `x` its
//! undo, `p` its items: `n` how many, `l` those
//! that began), and so are the states (`r` running, `h` handed out, `w` waiting, `e` each item by
//! itself, `c` completed, `f` failed, `k` skipped): DynamoDB charges for names too, and twenty steps
//! must fit in 1 KB, all running at once.
//!
//! ```text
//! Pending ──► Processing ──► Processed ─┐ operator
//!                 │ ├───────► Undoing ◄─┘────► Undone
//!                 │ ▼ operator   ▲ │
//!                 └► Error ◄─────┴─┘   (alerted)
//! ```

use std::{collections::BTreeMap, fmt, time::Duration};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    command::{CommandId, CommandRecord},
    limits,
    messages::{Action, Keep, Parent},
    names::{Incarnation, Part, StepName, TaskId, WorkflowName},
    ports::{Attempt, DocumentKey, Kept},
    workflow::Workflow,
};

/// Whole seconds: shorter, where a second more or less is nothing.
use jiff::fmt::serde::timestamp::second::optional as seconds;

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
    /// Every step completed or was skipped.
    Processed,
    /// It can go no further by itself; the operator has been, or will be, alerted.
    Error,
    /// What was done is being undone.
    Undoing,
    /// Everything that was done, or may have been, is undone, but for steps that have no undo.
    Undone,
}

impl ProcessState {
    /// Whether the task has ended: nothing more will happen by itself.
    #[must_use]
    pub fn is_final(self) -> bool {
        match self {
            Self::Pending | Self::Processing | Self::Undoing => false,
            Self::Processed | Self::Error | Self::Undone => true,
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
            Self::Undoing => "Undoing",
            Self::Undone => "Undone",
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
    fn own_parts(&self) -> impl Iterator<Item = &Self> {
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
    /// Which task with this id it is: an id may be used again once its task has expired. It is in the
    /// keys of the documents, and in the messages. Absent if an older release recorded the task.
    #[serde(rename = "i", default, skip_serializing_if = "Option::is_none")]
    pub incarnation: Option<Incarnation>,
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
    /// Whose step it is, if it runs for another task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Parent>,
    /// Until when the task that it runs for may need it, if it runs for another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_for_parent: Option<Kept>,
    /// By when it surely ends, as far as its documents are concerned: they are kept for the retention time
    /// after it. It moves with complete-by. Absent if an older release recorded the task.
    #[serde(rename = "k", default, with = "seconds", skip_serializing_if = "Option::is_none")]
    pub kept_from: Option<Timestamp>,
    /// How long it is kept after its end, if its workflow says so, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention_s: Option<u64>,
    /// W3C `traceparent` of the submission.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
    /// Why the task is in Error, shortened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Why it is, or was to be, undone, shortened. Present: it goes backward, also after an Error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undo_reason: Option<String>,
    /// Since when an operator has paused it: nothing starts.
    #[serde(default, with = "millis::optional", skip_serializing_if = "Option::is_none")]
    pub paused_at: Option<Timestamp>,
    /// The newest edit of its input; what steps that start from now on read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<CommandId>,
    /// The newest commands of operators, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub commands: Vec<CommandRecord>,
    /// One record per step that has started.
    #[serde(default)]
    pub steps: BTreeMap<StepName, StepRecord>,
}

impl Task {
    /// The earliest time at which this unfinished task needs looking after: the first complete-by
    /// of a running step, the latest pick-up of a waiting one or of an undo that waits for a call in
    /// progress, the task's own complete-by. Of a paused one only what runs counts. `pickup_within` is
    /// how long a wake may take to be acted on.
    #[must_use]
    pub fn earliest_deadline(&self, now: Timestamp, pickup_within: Duration) -> Timestamp {
        let paused = self.paused_at.is_some();
        let last = if paused { later(now, limits::PAUSED_LOOK_WITHIN) } else { self.complete_by };
        let deadlines = self.actions().filter_map(|(_, _, progress)| {
            let waits_until = progress.state.waits_until().filter(|_| !paused);
            let picked_up = waits_until.map(|until| later(until.max(now), pickup_within));
            progress.state.awaited_by().or(picked_up)
        });
        let undo_waits = self.undo_waits(now).filter(|_| !paused);
        let undo_waits = undo_waits.map(|until| later(until, pickup_within));
        deadlines.chain(undo_waits).fold(last, Timestamp::min)
    }

    /// The times until which the undo waits for calls that may still be in progress at their service.
    pub fn undo_waits(&self, now: Timestamp) -> impl Iterator<Item = Timestamp> {
        let backward = self.direction() == Action::Undo;
        let records = self.steps.values().filter(move |_| backward).flat_map(StepRecord::own_parts);
        records.filter_map(move |record| record.in_progress(now))
    }

    /// Whether it is of another incarnation than a message that names `incarnation`. Messages of an
    /// older release name none, and are not checked.
    #[must_use]
    pub fn is_another(&self, incarnation: Option<Incarnation>) -> bool {
        matches!((self.incarnation, incarnation), (Some(own), Some(named)) if own != named)
    }

    /// Moves the time by which it surely ends, if it may end later than that: its documents, and the
    /// tasks of its steps, must then be kept for longer before it is saved. An undo may take as long as
    /// the task, and begin at its complete-by; of a paused task the supervisor looks again before.
    pub fn keep_long_enough(&mut self, now: Timestamp, complete_within: Duration) {
        let ends = match self.ended_at {
            Some(ended_at) if self.process_state.is_final() => ended_at,
            Some(_) | None if self.paused_at.is_some() => {
                self.complete_by.max(later(now, limits::PAUSED_LOOK_WITHIN * 2))
            }
            Some(_) | None => self.complete_by.max(now),
        };
        if self.kept_from.is_none_or(|kept_from| kept_from < ends) {
            self.kept_from = Some(kept_from(ends, complete_within));
        }
    }

    /// What becomes of it when it is to be kept for longer for the task that it runs for: nothing if it
    /// runs for another one, or is kept for as long.
    #[must_use]
    pub fn kept_for(&self, keep: &Keep) -> Option<Self> {
        let parent = self.parent.as_ref()?;
        let is_meant = parent.task_id == keep.parent && parent.incarnation == keep.incarnation;
        let now = self.kept_for_parent.map_or(keep.kept, |kept| kept.and(keep.kept));
        let longer = is_meant && self.kept_for_parent != Some(now);
        longer.then(|| Self {
            kept_for_parent: Some(now),
            revision: self.revision + 1,
            ..self.clone()
        })
    }

    /// Whether a new task may take the place of this one, whose item may go at `expires_at`, in seconds
    /// since the epoch: it has expired; or both run for the same step of a task, and the task that this
    /// one ran for has itself expired and been submitted again.
    #[must_use]
    pub fn gives_way(&self, expires_at: Option<i64>, new: &Self) -> bool {
        let Some(expires_at) = expires_at else { return false };
        let of_earlier_parent = match (&self.parent, &new.parent) {
            (Some(earlier), Some(later)) => {
                earlier.task_id == later.task_id
                    && earlier.incarnation.is_some()
                    && earlier.incarnation < later.incarnation
            }
            (None, _) | (_, None) => false,
        };
        expires_at <= new.submitted_at.as_second() || of_earlier_parent
    }

    /// Whether `step` has completed or was skipped.
    #[must_use]
    pub fn has_passed(&self, step: &StepName) -> bool {
        self.steps.get(step).is_some_and(|record| record.run.state.has_passed())
    }

    /// Everything that is done and undone by itself, of what has begun.
    pub fn parts(&self) -> impl Iterator<Item = (Part, &StepRecord)> {
        self.steps.iter().flat_map(|(name, record)| record.parts(name))
    }

    /// Everything that was begun: steps or their items, and the undos of them.
    pub fn actions(&self) -> impl Iterator<Item = (Part, Action, &Progress)> {
        self.parts().flat_map(|(part, record)| {
            let undo = record.undo.iter().map({
                let part = part.clone();
                move |undo| (part.clone(), Action::Undo, undo)
            });
            std::iter::once((part, Action::Do, &record.run)).chain(undo)
        })
    }

    /// What is with an agent, with its attempt and complete-by.
    pub fn running(&self) -> impl Iterator<Item = (Part, Action, u32, Timestamp)> {
        self.awaited().filter(|(part, action, ..)| {
            self.progress(part, *action).is_some_and(|progress| progress.state.is_running())
        })
    }

    /// What someone is to answer, with its attempt and complete-by: an agent, or who was handed a
    /// token.
    pub fn awaited(&self) -> impl Iterator<Item = (Part, Action, u32, Timestamp)> {
        self.actions().filter_map(|(part, action, progress)| {
            let complete_by = progress.state.awaited_by()?;
            Some((part, action, progress.state.attempt(), complete_by))
        })
    }

    /// The record of a step, or of one of its items.
    #[must_use]
    pub fn record(&self, part: &Part) -> Option<&StepRecord> {
        let record = self.steps.get(&part.step)?;
        match (part.item, &record.items) {
            (None, None) => Some(record),
            (Some(place), Some(items)) => items.begun.get(place as usize),
            (None, Some(_)) | (Some(_), None) => None,
        }
    }

    /// The same, to change it.
    #[must_use]
    pub fn record_mut(&mut self, part: &Part) -> Option<&mut StepRecord> {
        let record = self.steps.get_mut(&part.step)?;
        match (part.item, record.items.is_some()) {
            (None, false) => Some(record),
            (Some(place), true) => record.items.as_mut()?.begun.get_mut(place as usize),
            (None, true) | (Some(_), false) => None,
        }
    }

    /// How far doing or undoing a step, or an item of it, has come.
    #[must_use]
    pub fn progress(&self, part: &Part, action: Action) -> Option<&Progress> {
        self.record(part)?.progress(action)
    }

    /// The same, to change it.
    #[must_use]
    pub fn progress_mut(&mut self, part: &Part, action: Action) -> Option<&mut Progress> {
        self.record_mut(part)?.progress_mut(action)
    }

    /// When a running part was sent, if that can be told: its complete-by was as far away as its
    /// definition says, unless the task's own came first.
    #[must_use]
    pub fn sent_at(&self, part: &Part, action: Action, workflow: &Workflow) -> Option<Timestamp> {
        let StepState::Running { complete_by, .. } = self.progress(part, action)?.state else {
            return None;
        };
        let definition = workflow.steps.get(&part.step)?.action(action)?;
        let sent = earlier(complete_by, definition.complete_within);
        (complete_by < self.complete_by).then_some(sent)
    }

    /// Which way the task goes.
    #[must_use]
    pub fn direction(&self) -> Action {
        if self.undo_reason.is_some() { Action::Undo } else { Action::Do }
    }
}

/// From when on the documents of a task count as kept whose complete-by is this: to the second.
#[must_use]
pub fn kept_from(complete_by: Timestamp, complete_within: Duration) -> Timestamp {
    let from = later(later(complete_by, complete_within), limits::TURN_WITHIN);
    Timestamp::from_second(from.as_second()).unwrap_or(from)
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
