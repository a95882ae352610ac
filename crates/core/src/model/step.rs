//! The records of steps in a task's item.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::model::{
    attempt::{Action, AttemptId},
    command::CommandId,
    document::DocumentKey,
    earlier_key::EarlierKey,
    items::ItemRecords,
    names::{Part, StepName},
    part_span::PartSpan,
};

/// An attempt in a stored state: its number, or zero for none.
mod attempt_or_zero {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[expect(clippy::ref_option, reason = "serde passes the field by reference")]
    pub(super) fn serialize<S: Serializer>(
        attempt: &Option<u32>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        attempt.unwrap_or(0).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<u32>, D::Error> {
        u32::deserialize(deserializer).map(|attempt| (attempt > 0).then_some(attempt))
    }
}

mod millis {
    pub(super) use jiff::fmt::serde::timestamp::millisecond::{optional, required};
}

/// The state of a step or of its undo. A step without a record has not started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "s")]
pub enum StepState {
    /// An attempt has begun: a request to an agent, the submission of a child task, or a subscription to an event.
    #[serde(rename = "r")]
    Running {
        /// The number of the attempt. It grows with each request and fences replies, except successes with the same idempotency key.
        #[serde(rename = "a")]
        attempt: u32,
        /// After this time no agent may act on this attempt.
        #[serde(rename = "b", with = "millis::required")]
        complete_by: Timestamp,
    },
    /// The agent's call has completed and only begun the step. A callback will complete it.
    #[serde(rename = "h")]
    AwaitingCallback {
        /// The attempt.
        #[serde(rename = "a")]
        attempt: u32,
        /// By when the callback or the next heartbeat must arrive.
        #[serde(rename = "b", with = "millis::required")]
        complete_by: Timestamp,
        /// By when the callback must arrive. Heartbeats do not extend this deadline.
        #[serde(rename = "u", with = "millis::required")]
        answer_by: Timestamp,
    },
    /// The step has items, and each item runs separately.
    #[serde(rename = "e")]
    RunningItems,
    /// A pause. At `until` or later the next attempt starts, or the step with `wait` completes.
    #[serde(rename = "w")]
    Waiting {
        /// The attempt that failed or was deferred. `None` for a step with `wait`, and before the first attempt.
        #[serde(rename = "a", with = "attempt_or_zero")]
        attempt: Option<u32>,
        /// The end of the pause: the earliest start of the next attempt, or the end of the `wait`.
        #[serde(rename = "u", with = "millis::required")]
        until: Timestamp,
        /// The complete-by of a deferred attempt. Its request may have been delivered twice, so until this time another
        /// agent may act on it.
        #[serde(
            rename = "b",
            default,
            with = "millis::optional",
            skip_serializing_if = "Option::is_none"
        )]
        complete_by: Option<Timestamp>,
    },
    /// The step completed. Its output is the document of this attempt.
    #[serde(rename = "c")]
    Completed {
        /// The attempt that completed, and has the output document. `None` if there is none: a wait has no output, and
        /// the output of a step with items consists of the outputs of the items.
        #[serde(rename = "a", with = "attempt_or_zero")]
        attempt: Option<u32>,
    },
    /// The step failed. Only an operator can retry it.
    #[serde(rename = "f")]
    Failed {
        /// The last attempt. `None` if the step never started.
        #[serde(rename = "a", with = "attempt_or_zero")]
        attempt: Option<u32>,
    },
    /// Its `when` was false, an operator skipped it, or it failed and the task goes on without it.
    #[serde(rename = "k")]
    Skipped {
        /// The last attempt. `None` if the step never started.
        #[serde(rename = "a", with = "attempt_or_zero")]
        attempt: Option<u32>,
    },
}

impl StepState {
    /// The number of the newest attempt, from 1. `None` if there was none.
    #[must_use]
    pub fn newest_attempt(&self) -> Option<u32> {
        match self {
            Self::Running { attempt, .. } | Self::AwaitingCallback { attempt, .. } => {
                Some(*attempt)
            }
            Self::Waiting { attempt, .. }
            | Self::Completed { attempt }
            | Self::Failed { attempt }
            | Self::Skipped { attempt } => *attempt,
            Self::RunningItems => None,
        }
    }

    /// How many attempts there were.
    #[must_use]
    pub fn attempt_count(&self) -> u32 {
        self.newest_attempt().unwrap_or(0)
    }

    /// Returns a waiting state without an agent that may still act on the attempt.
    #[must_use]
    pub fn waiting(attempt: Option<u32>, until: Timestamp) -> Self {
        Self::Waiting { attempt, until, complete_by: None }
    }

    /// The name of the state, for logs and for people.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Running { .. } | Self::RunningItems => "running",
            Self::AwaitingCallback { .. } => "awaiting callback",
            Self::Waiting { .. } => "waiting",
            Self::Completed { .. } => "completed",
            Self::Failed { .. } => "failed",
            Self::Skipped { .. } => "skipped",
        }
    }

    /// Whether an agent or a child task may be working on it, or its event is awaited.
    #[must_use]
    pub fn is_running(&self) -> bool {
        matches!(self, Self::Running { .. })
    }

    /// The attempt whose callback is awaited, if one is.
    #[must_use]
    pub fn awaiting_callback(&self) -> Option<u32> {
        let Self::AwaitingCallback { attempt, .. } = self else { return None };
        Some(*attempt)
    }

    /// The deadline of the awaited reply, callback or heartbeat, if one is awaited.
    #[must_use]
    pub fn reply_due_by(&self) -> Option<Timestamp> {
        let (Self::Running { complete_by, .. } | Self::AwaitingCallback { complete_by, .. }) = self
        else {
            return None;
        };
        Some(*complete_by)
    }

    /// The end of the wait, if the state is waiting.
    #[must_use]
    pub fn waiting_until(&self) -> Option<Timestamp> {
        let Self::Waiting { until, .. } = self else { return None };
        Some(*until)
    }

    /// By when a deferred attempt had to be complete: until then another delivery of its request may act.
    #[must_use]
    pub fn deferred_by(&self) -> Option<Timestamp> {
        let Self::Waiting { complete_by, .. } = self else { return None };
        *complete_by
    }

    /// Whether it failed and only an operator can retry it.
    #[must_use]
    pub fn is_failed(&self) -> bool {
        matches!(self, Self::Failed { .. })
    }

    /// Whether it completed or was skipped.
    #[must_use]
    pub fn is_completed_or_skipped(&self) -> bool {
        matches!(self, Self::Completed { .. } | Self::Skipped { .. })
    }
}

/// The progress of a step, or of its undo.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// The current state.
    #[serde(flatten)]
    pub state: StepState,
    /// The number of failed attempts since the start, or since an operator resubmitted the step. This is the pattern's
    /// `FailureCount`, per step.
    #[serde(rename = "f", default, skip_serializing_if = "is_zero")]
    pub failure_count: u32,
    /// Whether an attempt without a known completion may have taken effect.
    #[serde(rename = "m", default, skip_serializing_if = "std::ops::Not::not")]
    pub may_have_run: bool,
    /// Until when a call with an unknown outcome may be in progress at the service: the complete-by of the attempt, plus
    /// the clock skew, plus the duration of one call. Until then neither this part nor the steps before it are undone.
    /// For the progress of an undo, this delays only the undo of the steps before it. Present only for steps with an
    /// agent.
    #[serde(
        rename = "w",
        default,
        with = "millis::optional",
        skip_serializing_if = "Option::is_none"
    )]
    pub call_may_run_until: Option<Timestamp>,
    /// The command whose edit of the input the requests use. The submitted input if absent.
    #[serde(rename = "i", default, skip_serializing_if = "Option::is_none")]
    pub input_edit_id: Option<CommandId>,
    /// The command by which an operator completed it, if any. Then the output is that of the command, not that of the
    /// attempt.
    #[serde(rename = "o", default, skip_serializing_if = "Option::is_none")]
    pub completed_by_hand: Option<CommandId>,
    /// The revision of the child task at which it reported an end other than Processed. Reports with lower revisions are
    /// ignored. Zero if this task was inactive for so long that the child task may have begun, ended and expired.
    #[serde(rename = "r", default, skip_serializing_if = "Option::is_none")]
    pub child_revision: Option<u64>,
    /// The agent that the step uses: its position in the definition. Absent if the step has one agent only, uses the first
    /// of several, or has not chosen one. The undo goes to the agent of the run.
    #[serde(rename = "n", default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<u32>,
    /// The first attempt with the idempotency key in use: the first at the agent in use, or the first after an edit of the input.
    /// Earlier attempts used [other keys](StepRecord::earlier). Absent if there was no other key. For the progress of an undo: the
    /// earlier key that it is about, by its first attempt.
    #[serde(rename = "g", default, skip_serializing_if = "Option::is_none")]
    pub key_since: Option<u32>,
    /// Whether SQS may deliver a request to two callers that both act. Only for a step with several agents that are tried in
    /// order. Once true, the part never switches to another agent, even if an operator states that it did not run.
    #[serde(rename = "q", default, skip_serializing_if = "std::ops::Not::not")]
    pub second_delivery_may_act: bool,
    /// The time limit of all attempts: no attempt begins at this time or later, and none is awaited longer. Present only while
    /// a part goes on whose recovery policy has `give_up_after`.
    #[serde(
        rename = "l",
        default,
        with = "millis::optional",
        skip_serializing_if = "Option::is_none"
    )]
    pub give_up_at: Option<Timestamp>,
    /// Until when the service surely knows the idempotency key in use. An attempt that may have run is not repeated at this time or
    /// later, and no attempt is awaited longer. Present only if the recovery policy has `key_valid_for`.
    #[serde(
        rename = "v",
        default,
        with = "millis::optional",
        skip_serializing_if = "Option::is_none"
    )]
    pub key_valid_until: Option<Timestamp>,
    /// What few parts have. In memory it is beside the record, so that those of the others stay small.
    #[serde(rename = "z", default, skip_serializing_if = "Option::is_none")]
    pub extras: Option<Box<Extras>>,
}

/// What the progress of few parts has.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extras {
    /// The agents that asked for a pause that is not over, in the order of their answers. Only for a step with several agents that
    /// are tried in order, while it goes on.
    #[serde(rename = "p", default, skip_serializing_if = "Vec::is_empty")]
    pub agent_pauses: Vec<AgentPause>,
    /// When the first request was sent. Present only if templates of the step read `step.started_at`.
    #[serde(
        rename = "t",
        default,
        with = "millis::optional",
        skip_serializing_if = "Option::is_none"
    )]
    pub started_at: Option<Timestamp>,
}

/// The pause that an agent asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentPause {
    /// The position of the agent in the definition.
    #[serde(rename = "n")]
    pub agent: u32,
    /// Before this time it gets no request.
    #[serde(rename = "u", with = "millis::required")]
    pub until: Timestamp,
}

impl Progress {
    /// The agents that asked for a pause that is not over.
    #[must_use]
    pub fn agent_pauses(&self) -> &[AgentPause] {
        self.extras.as_ref().map_or(&[], |extras| &extras.agent_pauses)
    }

    /// Replaces the agents that asked for a pause.
    pub fn set_agent_pauses(&mut self, agent_pauses: Vec<AgentPause>) {
        self.set_extras(Extras { agent_pauses, started_at: self.started_at() });
    }

    /// When the first request was sent, if templates of the step read it.
    #[must_use]
    pub fn started_at(&self) -> Option<Timestamp> {
        self.extras.as_ref()?.started_at
    }

    /// Records when the first request was sent.
    pub fn set_started_at(&mut self, at: Timestamp) {
        let agent_pauses = self.agent_pauses().to_vec();
        self.set_extras(Extras { agent_pauses, started_at: Some(at) });
    }

    fn set_extras(&mut self, extras: Extras) {
        self.extras = (extras != Extras::default()).then(|| Box::new(extras));
    }

    /// Creates the progress of a part in this state, without failures.
    #[must_use]
    pub fn new(state: StepState) -> Self {
        Self {
            state,
            failure_count: 0,
            may_have_run: false,
            call_may_run_until: None,
            input_edit_id: None,
            completed_by_hand: None,
            child_revision: None,
            agent: None,
            key_since: None,
            second_delivery_may_act: false,
            give_up_at: None,
            key_valid_until: None,
            extras: None,
        }
    }

    /// Whether an attempt may have run, or another delivery of a deferred request may still run.
    #[must_use]
    pub fn is_in_doubt(&self) -> bool {
        self.may_have_run || self.state.deferred_by().is_some()
    }

    /// The time from which an attempt that may have run is not repeated: the service may have forgotten its idempotency key.
    #[must_use]
    pub fn no_repeat_from(&self) -> Option<Timestamp> {
        self.key_valid_until.filter(|_| self.is_in_doubt())
    }

    /// The time from which no further attempt begins.
    #[must_use]
    pub fn no_attempt_from(&self) -> Option<Timestamp> {
        self.give_up_at.into_iter().chain(self.no_repeat_from()).min()
    }

    /// Until when a call may be in progress at the service. `None` if no call can be in progress at `now`.
    #[must_use]
    pub fn in_progress(&self, now: Timestamp) -> Option<Timestamp> {
        self.call_may_run_until.filter(|until| *until > now)
    }

    /// The key of the output document. `None` if the part has not completed or has no output.
    #[must_use]
    pub fn output(&self, step: &Part, action: Action) -> Option<DocumentKey> {
        let StepState::Completed { attempt: Some(number) } = self.state else { return None };
        let attempt = AttemptId { step: step.clone(), action, number };
        Some(match &self.completed_by_hand {
            Some(command) => DocumentKey::OperatorOutput(attempt, command.clone()),
            None => DocumentKey::Output(attempt),
        })
    }
}

/// The record of one step, or of one item.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepRecord {
    /// The progress of running it.
    #[serde(flatten)]
    pub forward: Progress,
    /// The progress of undoing it, if the undo has started.
    #[serde(rename = "x", default, skip_serializing_if = "Option::is_none")]
    pub undo: Option<Progress>,
    /// The keys that it used before the one in use, in the order of their first attempts.
    #[serde(rename = "y", default, skip_serializing_if = "Vec::is_empty")]
    pub earlier: Vec<EarlierKey>,
    /// The items of a step with `for_each`. They run and are undone instead of the step.
    #[serde(rename = "p", default, skip_serializing_if = "Option::is_none")]
    pub items: Option<ItemRecords<StepRecord>>,
}

impl StepRecord {
    /// Until when a call of the part or of its undo may be in progress at the service. `None` if no call can be in
    /// progress at `now`.
    #[must_use]
    pub fn in_progress(&self, now: Timestamp) -> Option<Timestamp> {
        // The task waits for an unfinished undo in any case.
        let undo = self.undo.as_ref().filter(|undo| undo.state.is_completed_or_skipped());
        self.forward.in_progress(now).max(undo.and_then(|undo| undo.in_progress(now)))
    }

    /// Whether the task goes on without the step, or without one of its items, which did not complete.
    #[must_use]
    pub fn is_passed_over(&self) -> bool {
        let is_so = |run: &Progress| match run.state {
            StepState::Skipped { attempt } => attempt.is_some() || run.failure_count > 0,
            StepState::Running { .. }
            | StepState::AwaitingCallback { .. }
            | StepState::RunningItems
            | StepState::Waiting { .. }
            | StepState::Completed { .. }
            | StepState::Failed { .. } => false,
        };
        let items = self.items.iter().flat_map(ItemRecords::spans);
        is_so(&self.forward) || items.into_iter().any(|(_, item)| is_so(&item.forward))
    }

    /// Creates the record of a step or item that has not been undone.
    #[must_use]
    pub fn new(state: StepState) -> Self {
        Self { forward: Progress::new(state), undo: None, earlier: Vec::new(), items: None }
    }

    /// The progress of running or undoing it.
    #[must_use]
    pub fn progress(&self, action: Action) -> Option<&Progress> {
        match action {
            Action::Do => Some(&self.forward),
            Action::Undo => self.undo.as_ref(),
        }
    }

    /// The progress of running or undoing it, mutable.
    #[must_use]
    pub(crate) fn progress_mut(&mut self, action: Action) -> Option<&mut Progress> {
        match action {
            Action::Do => Some(&mut self.forward),
            Action::Undo => self.undo.as_mut(),
        }
    }

    /// The parts of the step with their records, in spans: its started items, or the step itself.
    pub fn part_spans<'t>(
        &'t self,
        step: &'t StepName,
    ) -> impl Iterator<Item = (PartSpan<'t>, &'t Self)> {
        let whole = self.items.is_none().then_some((PartSpan { step, items: None }, self));
        let items = self.items.iter().flat_map(|items| items.spans());
        let items = items.map(|(items, record)| (PartSpan { step, items: Some(items) }, record));
        whole.into_iter().chain(items)
    }

    /// The parts of the step with their records: its started items, or the step itself.
    pub fn parts<'t>(&'t self, step: &'t StepName) -> impl Iterator<Item = (Part, &'t Self)> {
        let expand =
            |(span, record): (PartSpan<'t>, &'t Self)| span.parts().map(move |part| (part, record));
        self.part_spans(step).flat_map(expand)
    }

    /// The records of the parts of the step, mutable. Items with equal records share one, and change together.
    pub(crate) fn part_records_mut(&mut self) -> impl Iterator<Item = &mut Self> {
        let (items, whole) = match self.items {
            Some(ref mut items) => (Some(items.spans_mut()), None),
            None => (None, Some(self)),
        };
        whole.into_iter().chain(items.into_iter().flatten())
    }

    /// The undo whose state people see instead of the state of the run. `None` if no undo has started. For a step with
    /// items this is the first undo, in the order of the items, that is neither completed nor skipped; the first undo
    /// if there is none. Items whose undo has not started are ignored.
    #[must_use]
    pub fn shown_undo(&self) -> Option<&Progress> {
        let records = self.items.iter().flat_map(ItemRecords::spans).map(|(_, record)| record);
        let records = records.chain([self]);
        let mut undos = records.filter_map(|record| record.undo.as_ref());
        let first = undos.clone().next();
        undos.find(|undo| !undo.state.is_completed_or_skipped()).or(first)
    }

    /// The name of the state, for people: the state of [the undo](Self::shown_undo) if there is one, else of the run.
    #[must_use]
    pub fn name(&self) -> &'static str {
        let name = |undo: &Progress| match undo.state {
            StepState::Running { .. }
            | StepState::AwaitingCallback { .. }
            | StepState::RunningItems => "undoing",
            StepState::Waiting { .. } => "undo waiting",
            StepState::Completed { .. } => "undone",
            StepState::Failed { .. } => "undo failed",
            StepState::Skipped { .. } => "undo skipped",
        };
        self.shown_undo().map_or_else(|| self.forward.state.name(), name)
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_zero(count: &u32) -> bool {
    *count == 0
}

impl ItemRecords<StepRecord> {
    /// Whether every item has completed or was skipped.
    #[must_use]
    pub fn are_completed_or_skipped(&self) -> bool {
        self.started() >= self.count()
            && self.spans().all(|(_, record)| record.forward.state.is_completed_or_skipped())
    }

    /// Reduces the number of spans before the task is saved. It joins the spans with equal records. The times until which
    /// calls of passed items may be in progress differ, so it drops those that are over, and sets the others to the latest
    /// of them. That is safe, because an undo may always wait longer.
    pub(crate) fn compact(&mut self, now: Timestamp) {
        let passed = || self.spans().map(|(_, record)| record).filter(|record| has_passed(record));
        let run_until = passed().filter_map(|record| record.forward.in_progress(now)).max();
        let undos = passed().filter_map(|record| record.undo.as_ref());
        let undo_until = undos.filter_map(|undo| undo.in_progress(now)).max();
        let share = |progress: &mut Progress, latest| {
            progress.call_may_run_until = progress.in_progress(now).and(latest);
        };
        self.replace_records(|record| {
            if has_passed(record) {
                share(&mut record.forward, run_until);
                record.undo.iter_mut().for_each(|undo| share(undo, undo_until));
            }
        });
    }
}

/// Whether neither the item nor its undo goes on.
fn has_passed(record: &StepRecord) -> bool {
    record.forward.state.is_completed_or_skipped()
        && record.undo.as_ref().is_none_or(|undo| undo.state.is_completed_or_skipped())
}
