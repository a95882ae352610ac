//! A task: one run of a workflow, as it lies in the state store.
//!
//! The item is small and hot, so it keeps decisions and no payloads: what was submitted and what
//! steps returned are [documents](crate::model::document::Document) beside it. In a step's record the stored
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

use crate::model::document::Owner;
use crate::model::step::Progress;
use crate::model::step::StepRecord;
use crate::model::time::later;
use std::{collections::BTreeMap, fmt, time::Duration};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    limits,
    model::{
        attempt::Action,
        command::{CommandId, CommandRecord},
        document::Kept,
        messages::{Keep, Parent},
        names::{Incarnation, Part, StepName, TaskId, WorkflowName},
    },
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
    /// The owner of its documents.
    #[must_use]
    pub fn owner(&self) -> Owner {
        Owner { task_id: self.task_id.clone(), incarnation: self.incarnation }
    }

    /// How long its documents and the tasks of its steps are kept: until it has expired, however it
    /// goes on from here, and until the task has that it runs for.
    #[must_use]
    pub fn kept(&self) -> Kept {
        let from = self.kept_from.unwrap_or(self.complete_by);
        let own = Kept { from, retention_s: self.retention_s };
        self.kept_for_parent.map_or(own, |Kept { from, retention_s }| {
            own.and(Kept { from: later(from, limits::KEPT_MARGIN), retention_s })
        })
    }

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
