//! A task: one execution of a workflow, in the format of the state store.
//!
//! The item of a task is written often and must stay small: DynamoDB charges a write unit for each kilobyte of it. It
//! contains the states of the steps, and those [documents](crate::model::document::Document) that fit into the
//! first kilobyte. Larger documents are separate items.
//!
//! DynamoDB charges for attribute names too, and twenty running steps must fit in 1 KB. So a step's record has field
//! names and states of one letter:
//!
//! | field | meaning | state `s` | meaning |
//! | --- | --- | --- | --- |
//! | `s` | state | `r` | running |
//! | `a` | attempt | `h` | awaiting callback |
//! | `b` | complete-by | `w` | waiting |
//! | `u` | until | `e` | each item runs separately |
//! | `f` | number of failures | `c` | completed |
//! | `m` | may have run | `f` | failed |
//! | `w` | call in progress until | `k` | skipped |
//! | `i` | edited input | | |
//! | `o` | completed by this command | | |
//! | `r` | revision of the child task | | |
//! | `n` | position of the agent in use | | |
//! | `g` | first attempt with the idempotency key in use; of an undo, of the key that it undoes | | |
//! | `q` | two deliveries of a request may act | | |
//! | `l` | time limit of all attempts | | |
//! | `y` | earlier idempotency keys: `a` first attempt, `n` agent, `i` edit, `m` ran, `c` output, `s` denied, `x` undone, `r` revision of its child | | |
//! | `x` | progress of the undo | | |
//! | `p` | items: `n` number, `c`, `h` slices of the list, `z` bytes of outputs in memory, `d` distinct records, `l` spans | | |
//!
//! The states of a task:
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
use serde_json::Value;

use crate::{
    limits,
    model::{
        attempt::{Action, AttemptId},
        command::{CommandId, CommandRecord},
        document::DocumentOwner,
        inline_documents::InlineDocuments,
        messages::{ExtendRetention, ParentStep},
        names::{Incarnation, LabelValue, Part, StepName, TaskId, Tenant, ValueName, WorkflowName},
        part_span::PartSpan,
        payload::PayloadPlace,
        rerun::Rerun,
        retention::{DocumentRetention, retention_start},
        step::{Progress, StepRecord},
        time::later,
    },
};

/// Whole seconds, which are shorter than milliseconds, for a time that needs no more precision.
use jiff::fmt::serde::timestamp::second::required as seconds;

mod millis {
    pub(super) use jiff::fmt::serde::timestamp::millisecond::{optional, required};
}

/// The state of a task as a whole (the pattern's `ProcessState`).
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
    /// The task is recorded, and no scheduler has started it yet.
    Pending,
    /// A scheduler has started the first steps.
    Processing,
    /// Every step completed or was skipped.
    Processed,
    /// The task needs an operator. Steward sends an alert.
    Error,
    /// The completed steps are being undone.
    Undoing,
    /// Every step that completed or may have run is undone, except steps without an undo.
    Undone,
}

impl ProcessState {
    /// All states.
    pub const ALL: [Self; 6] = [
        Self::Pending,
        Self::Processing,
        Self::Processed,
        Self::Error,
        Self::Undoing,
        Self::Undone,
    ];

    /// Whether the task has ended: it does not continue unless an operator, its parent task or a late reply changes it.
    #[must_use]
    pub fn has_stopped(self) -> bool {
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

/// Why a task stopped in Error.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub enum StopCause {
    /// A step or an undo failed, the task was late, or an effect came to light. What has started goes on to its end.
    #[default]
    Failure,
    /// An effect came to light after the task was Processed. Nothing is left that could go on.
    #[serde(rename = "p")]
    AfterProcessed,
    /// An operator cancelled it, or its record is full. Nothing goes on.
    #[serde(rename = "h")]
    Halted,
}

impl StopCause {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// One execution of a workflow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// The id that the client chose.
    pub task_id: TaskId,
    /// The name of the workflow that it runs.
    pub workflow: WorkflowName,
    /// The version of the workflow. It stays the same for the whole life of the task.
    #[serde(rename = "v")]
    pub version: u32,
    /// The state of the task as a whole.
    pub process_state: ProcessState,
    /// Grows with every save. A save succeeds only if the stored revision is the one that was read (optimistic lock).
    pub revision: u64,
    /// The scheduler instance that last started a step. The supervisor clears it, and the end of the task does too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub locked_by: Option<String>,
    /// The instance that made the last save. If a save fails because of an earlier save by the same instance, only the
    /// response to that save was lost, and the instance sends its effects again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub saved_by: Option<String>,
    /// By when the task as a whole must end.
    #[serde(with = "millis::required")]
    pub complete_by: Timestamp,
    /// The number of failed attempts of all steps.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub failure_count: u32,
    /// When it was recorded.
    #[serde(with = "millis::required")]
    pub submitted_at: Timestamp,
    /// Distinguishes the task from expired tasks with the same id. It is part of the keys of documents, and of messages.
    #[serde(rename = "i")]
    pub incarnation: Incarnation,
    /// When it ended.
    #[serde(default, with = "millis::optional", skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    /// When the supervisor checks the task: the key in the due index. Absent if there is nothing left to recover. It may
    /// be earlier than the first deadline of the task, but never later.
    #[serde(default, with = "millis::optional", skip_serializing_if = "Option::is_none")]
    pub due: Option<Timestamp>,
    /// The URL of the client's queue for notifications.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<String>,
    /// The tenant. It never changes.
    #[serde(rename = "t", default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<Tenant>,
    /// The labels by which people search for it. They never change.
    #[serde(rename = "l", default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<ValueName, LabelValue>,
    /// The parent task and its step, if this is a child task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<ParentStep>,
    /// The task that this one repeats, if it is a rerun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rerun: Option<Rerun>,
    /// How long the parent task may need this task, if this is a child task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "kept_for_parent")]
    pub retention_for_parent: Option<DocumentRetention>,
    /// The latest possible end of the task, from which the retention of its documents is counted. It moves with
    /// complete-by.
    #[serde(rename = "k", with = "seconds")]
    pub retention_start: Timestamp,
    /// How long the task is kept after its end, in seconds. The deployment's retention time if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention_s: Option<u64>,
    /// W3C `traceparent` of the submission.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
    /// Whether the alert of its Error is still to be published.
    #[serde(rename = "alert", default, skip_serializing_if = "std::ops::Not::not")]
    pub is_alert_due: bool,
    /// Why it stopped in Error, as far as decisions depend on it.
    #[serde(rename = "stop", default, skip_serializing_if = "StopCause::is_default")]
    pub stop_cause: StopCause,
    /// The shortened reason of the Error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// When an operator settled the Error. Until then the task never expires.
    #[serde(
        rename = "resolved",
        default,
        with = "millis::optional",
        skip_serializing_if = "Option::is_none"
    )]
    pub resolved_at: Option<Timestamp>,
    /// The shortened reason of the undo. If present, the task is being undone, or was when it stopped in Error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undo_reason: Option<String>,
    /// Whether an effect came to light after the undo had begun or ended. Nothing cancels the undo then, not even the point of
    /// no return.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub undo_is_final: bool,
    /// When it was reported as late.
    #[serde(
        rename = "late",
        default,
        with = "millis::optional",
        skip_serializing_if = "Option::is_none"
    )]
    pub late_at: Option<Timestamp>,
    /// When an operator paused the task. While it is paused, nothing starts.
    #[serde(default, with = "millis::optional", skip_serializing_if = "Option::is_none")]
    pub paused_at: Option<Timestamp>,
    /// The command with the newest edit of the input. Steps that start from now on read the edited input.
    #[serde(rename = "input", default, skip_serializing_if = "Option::is_none")]
    pub input_edit_id: Option<CommandId>,
    /// The newest commands of operators, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub commands: Vec<CommandRecord>,
    /// The records of the steps that have started.
    #[serde(default)]
    pub steps: BTreeMap<StepName, StepRecord>,
    /// The documents that are small enough for the task's item. The others are in the table of documents.
    #[serde(rename = "d", default, skip_serializing_if = "InlineDocuments::is_empty")]
    pub documents: InlineDocuments,
}

impl Task {
    /// The owner of its documents.
    #[must_use]
    pub fn document_owner(&self) -> DocumentOwner {
        DocumentOwner { task_id: self.task_id.clone(), incarnation: self.incarnation }
    }

    /// How long its documents and its child tasks are kept: until this task has expired, whatever happens to it, and
    /// until its parent task has expired.
    #[must_use]
    pub fn document_retention(&self) -> DocumentRetention {
        let own = DocumentRetention { from: self.retention_start, retention_s: self.retention_s };
        self.retention_for_parent.map_or(own, |DocumentRetention { from, retention_s }| {
            own.and(DocumentRetention { from: later(from, limits::RETENTION_MARGIN), retention_s })
        })
    }

    /// Whether the step is kept: the task does not run it, and reads its output from the submission.
    #[must_use]
    pub fn keeps(&self, step: &StepName) -> bool {
        self.rerun.as_ref().is_some_and(|rerun| rerun.kept.contains(step))
    }

    /// The tasks that repeat this one, as far as its newest commands show.
    pub fn reruns(&self) -> impl Iterator<Item = &TaskId> {
        self.commands.iter().filter_map(|record| record.submitted.as_ref())
    }

    /// The place of its payloads.
    #[must_use]
    pub fn payload_place(&self) -> PayloadPlace {
        match &self.parent {
            Some(parent) => parent.place().of_child(&self.task_id, self.incarnation),
            None => PayloadPlace::of_task(&self.task_id, self.incarnation),
        }
    }

    /// The earliest time at which this unfinished task may need recovery. It is the minimum of the deadlines of running
    /// parts, the times by which waiting parts and a waiting undo must have continued, and the task's complete-by. In a
    /// paused task only the deadlines of running parts count, and a regular check replaces the complete-by.
    /// `pickup_within` is how long the scheduler may take to handle a wake.
    #[must_use]
    pub fn earliest_deadline(&self, now: Timestamp, pickup_within: Duration) -> Timestamp {
        let paused = self.paused_at.is_some();
        let last =
            if paused { later(now, limits::PAUSED_CHECK_INTERVAL) } else { self.complete_by };
        let deadlines = self.action_spans().filter_map(|(_, _, progress)| {
            let waits_until = progress.state.waiting_until().filter(|_| !paused);
            let limit = progress.no_attempt_from().unwrap_or(Timestamp::MAX);
            let waits_until = waits_until.map(|until| until.min(limit).max(now));
            let picked_up_by = waits_until.map(|until| later(until, pickup_within));
            progress.state.reply_due_by().or(picked_up_by)
        });
        let undo_waits = self.undo_blocked_until(now).filter(|_| !paused);
        let undo_waits = undo_waits.map(|until| later(until, pickup_within));
        deadlines.chain(undo_waits).fold(last, Timestamp::min)
    }

    /// Whether attempts start: of everything that can start, or in Error only of the parts that have started.
    #[must_use]
    pub fn goes_on(&self) -> bool {
        let is_halted = match self.process_state {
            ProcessState::Pending | ProcessState::Processing | ProcessState::Undoing => false,
            ProcessState::Error => self.stop_cause != StopCause::Failure,
            ProcessState::Processed | ProcessState::Undone => true,
        };
        !is_halted && self.paused_at.is_none()
    }

    /// The ends of the pauses after which a part goes on. In Error these are the parts that have started; nothing starts after
    /// the task's complete-by.
    pub fn pauses(&self) -> impl Iterator<Item = Timestamp> {
        let direction = self.direction();
        let in_error = self.process_state == ProcessState::Error;
        self.action_spans().filter_map(move |(_, action, progress)| {
            let until = progress.state.waiting_until().filter(|_| action == direction)?;
            let has_started = progress.state.newest_attempt().is_some();
            (!in_error || has_started && until < self.complete_by).then_some(until)
        })
    }

    /// When this task in Error may need recovery, because something that has started goes on. `None` if nothing does.
    #[must_use]
    pub fn deadline_in_error(&self, now: Timestamp, pickup_within: Duration) -> Option<Timestamp> {
        let awaited = self.action_spans().filter_map(|(.., run)| run.state.reply_due_by());
        let pauses = self.pauses().filter(|_| now < self.complete_by);
        let deadlines = awaited.chain(pauses.map(|until| later(until.max(now), pickup_within)));
        deadlines.min().filter(|_| self.goes_on())
    }

    /// The times until which the undo waits because a call may be in progress at its service. Empty if the task is not
    /// being undone.
    pub fn undo_blocked_until(&self, now: Timestamp) -> impl Iterator<Item = Timestamp> {
        let undoing = self.direction() == Action::Undo;
        let records = self.part_spans().filter(move |_| undoing);
        records.filter_map(move |(_, record)| record.in_progress(now))
    }

    /// Whether it is in Error, and no operator has settled that yet.
    #[must_use]
    pub fn is_unresolved(&self) -> bool {
        self.process_state == ProcessState::Error && self.resolved_at.is_none()
    }

    /// Whether it expires when its retention time is over: not while something is left to do, for Steward or for an operator.
    #[must_use]
    pub fn expires(&self) -> bool {
        self.process_state.has_stopped() && self.due.is_none() && !self.is_unresolved()
    }

    /// From when on a task that has ended is kept for its retention time. In Error, what has started goes on until complete-by.
    #[must_use]
    pub fn kept_from(&self) -> Timestamp {
        let ended_at = self.ended_at.unwrap_or(self.complete_by);
        match self.process_state {
            ProcessState::Error => {
                ended_at.max(self.complete_by).max(self.resolved_at.unwrap_or_default())
            }
            ProcessState::Pending
            | ProcessState::Processing
            | ProcessState::Undoing
            | ProcessState::Processed
            | ProcessState::Undone => ended_at,
        }
    }

    /// Postpones the latest possible end of the task, if the task may end after it. The caller must then extend the
    /// retention of the documents and of the child tasks before it saves the task. An undo may begin at the complete-by
    /// and take `complete_within`. The supervisor checks a paused task again before the new time.
    pub(crate) fn extend_retention(&mut self, now: Timestamp, complete_within: Duration) {
        let end = match self.ended_at {
            Some(_) if self.process_state.has_stopped() => self.kept_from(),
            Some(_) | None if self.paused_at.is_some() => {
                self.complete_by.max(later(now, limits::PAUSED_CHECK_INTERVAL * 2))
            }
            Some(_) | None => self.complete_by.max(now),
        };
        if self.retention_start < end {
            self.retention_start = retention_start(end, complete_within);
        }
    }

    /// The task in Error with the retention that it has if it is settled now. `None` if it is not in Error, is settled, or its
    /// retention was counted from half of the margin ago, or later: whatever the retention time was then, nothing has expired.
    #[must_use]
    pub fn kept_until_resolved(&self, now: Timestamp) -> Option<Self> {
        let is_kept = later(self.retention_start, limits::RETENTION_MARGIN / 2) > now;
        (self.is_unresolved() && !is_kept).then(|| Self {
            retention_start: self.retention_start.max(now),
            revision: self.revision + 1,
            ..self.clone()
        })
    }

    /// Returns the child task with the retention that its parent requests. `None` if the request is from
    /// another parent, or if the retention is already long enough.
    #[must_use]
    pub fn with_extended_retention(&self, request: &ExtendRetention) -> Option<Self> {
        let parent = self.parent.as_ref()?;
        let is_from_parent =
            parent.task_id == request.parent && parent.incarnation == request.incarnation;
        let extended =
            self.retention_for_parent.map_or(request.retention, |now| now.and(request.retention));
        let changes = is_from_parent && self.retention_for_parent != Some(extended);
        changes.then(|| Self {
            retention_for_parent: Some(extended),
            revision: self.revision + 1,
            ..self.clone()
        })
    }

    /// Whether a `new` task with the same id may replace this one. That is so if this task has expired. It is also so if
    /// both are child tasks of the same parent id, and the parent of this one has expired and been submitted again.
    /// `expires_at` is the expiry of this task's item, in seconds since the epoch.
    #[must_use]
    pub fn may_be_replaced_by(&self, expires_at: Option<i64>, new: &Self) -> bool {
        let of_earlier_parent = match (&self.parent, &new.parent) {
            (Some(earlier), Some(later)) => {
                earlier.task_id == later.task_id && earlier.incarnation < later.incarnation
            }
            (None, _) | (_, None) => false,
        };
        // Nobody settles the Error of a child whose parent is gone.
        let is_over = expires_at.is_some() || self.is_unresolved() && self.due.is_none();
        expires_at.is_some_and(|at| at <= new.submitted_at.as_second())
            || of_earlier_parent && is_over
    }

    /// Whether `step` has completed or was skipped.
    #[must_use]
    pub fn has_passed(&self, step: &StepName) -> bool {
        self.steps.get(step).is_some_and(|record| record.forward.state.is_completed_or_skipped())
    }

    /// Counts the output of an attempt, if it is an attempt at doing an item.
    pub(crate) fn count_output(&mut self, attempt: &AttemptId, output: &Value) {
        let is_of_item = attempt.action == Action::Do && attempt.step.item.is_some();
        let record = self.steps.get_mut(&attempt.step.step).filter(|_| is_of_item);
        if let Some(items) = record.and_then(|record| record.items.as_mut()) {
            items.add_output(limits::estimated_memory_bytes(output));
        }
    }

    /// The parts that have started, with their records, in spans.
    pub fn part_spans(&self) -> impl Iterator<Item = (PartSpan<'_>, &StepRecord)> {
        self.steps.iter().flat_map(|(name, record)| record.part_spans(name))
    }

    /// Everything that has started: the parts, and their undos.
    pub fn action_spans(&self) -> impl Iterator<Item = (PartSpan<'_>, Action, &Progress)> {
        self.part_spans().flat_map(|(span, record)| {
            let undo = record.undo.iter().map({
                let span = span.clone();
                move |undo| (span.clone(), Action::Undo, undo)
            });
            std::iter::once((span, Action::Do, &record.forward)).chain(undo)
        })
    }

    /// The progress of everything that has started, mutable. Items with equal records share one.
    pub(crate) fn progresses_mut(&mut self) -> impl Iterator<Item = &mut Progress> {
        let records = self.steps.values_mut().flat_map(StepRecord::part_records_mut);
        records.flat_map(|record| std::iter::once(&mut record.forward).chain(&mut record.undo))
    }

    /// The parts that have started, with their records.
    pub fn started_parts(&self) -> impl Iterator<Item = (Part, &StepRecord)> {
        self.steps.iter().flat_map(|(name, record)| record.parts(name))
    }

    /// Everything that has started: the parts, and their undos.
    pub fn started_actions(&self) -> impl Iterator<Item = (Part, Action, &Progress)> {
        self.started_parts().flat_map(|(part, record)| {
            let undo = record.undo.iter().map({
                let part = part.clone();
                move |undo| (part.clone(), Action::Undo, undo)
            });
            std::iter::once((part, Action::Do, &record.forward)).chain(undo)
        })
    }

    /// The parts and undos that wait for their next attempt and have a time limit, with the number of the last attempt and
    /// the limit.
    pub fn limited_waits(&self) -> impl Iterator<Item = (Part, Action, u32, Timestamp)> {
        self.attempts(|progress| progress.state.waiting_until().and(progress.no_attempt_from()))
    }

    /// The parts and undos that are running, with the number and the complete-by of the attempt.
    pub fn running_attempts(&self) -> impl Iterator<Item = (Part, Action, u32, Timestamp)> {
        self.attempts(|of| of.state.reply_due_by().filter(|_| of.state.is_running()))
    }

    /// The parts and undos that await a reply or a callback, with the number and the complete-by of the attempt.
    pub fn awaited_attempts(&self) -> impl Iterator<Item = (Part, Action, u32, Timestamp)> {
        self.attempts(|progress| progress.state.reply_due_by())
    }

    /// The parts and undos for which `due` returns a time, with the number of the attempt and that time.
    fn attempts(
        &self,
        due: impl Fn(&Progress) -> Option<Timestamp>,
    ) -> impl Iterator<Item = (Part, Action, u32, Timestamp)> {
        let spans = self.action_spans().filter_map(move |(span, action, progress)| {
            Some((span, action, progress.state.newest_attempt()?, due(progress)?))
        });
        spans.flat_map(|(span, action, number, due)| {
            span.parts().map(move |part| (part, action, number, due))
        })
    }

    /// The record of a part.
    #[must_use]
    pub fn record(&self, part: &Part) -> Option<&StepRecord> {
        let record = self.steps.get(&part.step)?;
        match (part.item, &record.items) {
            (None, None) => Some(record),
            (Some(index), Some(items)) => items.get(index),
            (None, Some(_)) | (Some(_), None) => None,
        }
    }

    /// The record of a part, mutable.
    #[must_use]
    pub(crate) fn part_record_mut(&mut self, part: &Part) -> Option<&mut StepRecord> {
        let record = self.steps.get_mut(&part.step)?;
        match (part.item, record.items.is_some()) {
            (None, false) => Some(record),
            (Some(index), true) => record.items.as_mut()?.get_mut(index),
            (None, true) | (Some(_), false) => None,
        }
    }

    /// The progress of running or undoing a part.
    #[must_use]
    pub fn progress(&self, part: &Part, action: Action) -> Option<&Progress> {
        self.record(part)?.progress(action)
    }

    /// The progress of running or undoing a part, mutable.
    #[must_use]
    pub(crate) fn progress_mut(&mut self, part: &Part, action: Action) -> Option<&mut Progress> {
        self.part_record_mut(part)?.progress_mut(action)
    }

    /// Whether the task runs forward or is being undone.
    #[must_use]
    pub fn direction(&self) -> Action {
        if self.undo_reason.is_some() { Action::Undo } else { Action::Do }
    }
}
