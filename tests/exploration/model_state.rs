//! A state of the exploration: the saved task, the documents, the clock, the requests that were sent, the effects that
//! were lost. It also records what was really sent, so that the invariants do not depend on the core's records.

use std::{
    collections::{BTreeMap, hash_map::DefaultHasher},
    hash::{Hash, Hasher},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use steward_core::{
    engine::{documents::LoadedDocuments, event::Event},
    model::{
        attempt::{Action, AttemptId},
        command::{Command, CommandId},
        document::DocumentKey,
        items::ItemRecords,
        messages::{ReplyOutcome, StepReply},
        names::{AgentName, Part},
        step::{Progress, StepState},
        task::{ProcessState, Task},
        time::later,
    },
};

use super::{
    children::ChildModel,
    progress::has_passed,
    workflows::{Budget, ExploredWorkflow},
};

/// An end of a task: its state, its time, the number of commands before it, and whether the task was being undone.
pub(super) type TaskEnd = (ProcessState, Timestamp, usize, bool);

/// What the scheduler knows about the outcome of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum KnownOutcome {
    /// It is unknown whether the attempt took effect.
    Unknown,
    /// A message reported that the attempt took effect, or may have.
    MayHaveRun,
    /// A message reported that the attempt did not take effect.
    DidNotRun,
}

/// An attempt that the core decided to make.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Dispatch {
    /// Whether its request was sent. An agent can reply only then.
    pub(super) sent: bool,
    pub(super) known_outcome: KnownOutcome,
    /// When the core decided it.
    pub(super) decided_at: Timestamp,
    /// The time by which every call of the attempt has started.
    pub(super) begins_by: Timestamp,
    /// Whether a call of the attempt may still be in progress at the service after its agent has given it up, because
    /// no message has reported its end. The same holds for another delivery of a deferred request.
    pub(super) may_be_in_progress: bool,
    /// The edit of the input that its request uses, if any.
    pub(super) edit: Option<CommandId>,
    /// The agent to which the request was sent.
    pub(super) agent: Option<AgentName>,
    /// Whether the request was sent as `exclusive`.
    pub(super) exclusive: bool,
    /// Whether an operator has stated that the attempt did not run, after a message had reported that it may have.
    pub(super) denied: bool,
    /// Whether an operator has stated that the attempt did not run, whatever was reported before.
    pub(super) settled: bool,
    /// Whether the agent has refused the attempt for certain. Then no delivery of the request makes a call.
    pub(super) refused: bool,
}

/// A message whose effects were lost. It will be redelivered.
#[derive(Debug, Clone)]
pub(super) struct LostEffects {
    pub(super) event: Event,
    /// Waits whose wakes were lost, with their ends.
    pub(super) waits: BTreeMap<AttemptId, Timestamp>,
    /// Whether a wake without a delay was lost.
    pub(super) immediate_wake: bool,
    /// The end of the task whose notification was lost.
    pub(super) ended: Option<TaskEnd>,
}

/// A state of the exploration.
#[derive(Debug, Clone)]
pub(super) struct ModelState {
    pub(super) task: Option<Task>,
    /// The separate documents. Shared, because most events write no documents.
    pub(super) documents: Arc<LoadedDocuments>,
    /// The expiry of each document that was ever written.
    pub(super) expires: Arc<BTreeMap<DocumentKey, Timestamp>>,
    pub(super) now: Timestamp,
    pub(super) dispatches: BTreeMap<AttemptId, Dispatch>,
    /// The child tasks by part, once submitted.
    pub(super) children: BTreeMap<Part, ChildModel>,
    pub(super) lost: Option<LostEffects>,
    /// Whether the alert of the current Error was sent.
    pub(super) alerted: bool,
    /// An alert was sent, and its confirmation is pending: the time of the end that it belongs to.
    pub(super) pending_confirmation: Option<Timestamp>,
    pub(super) last_command: Option<Command>,
    /// Whether a step took effect at the service of one agent, and may have at that of another. The task stopped in Error,
    /// and an operator decides: further requests go to the agent in use.
    pub(super) ran_at_two_agents: bool,
    pub(super) budget: Budget,
}

impl ModelState {
    /// The initial state.
    pub(super) fn initial(workflow: &ExploredWorkflow) -> Self {
        Self {
            task: None,
            documents: Arc::default(),
            expires: Arc::default(),
            children: BTreeMap::new(),
            now: Timestamp::UNIX_EPOCH,
            dispatches: BTreeMap::new(),
            lost: None,
            alerted: false,
            pending_confirmation: None,
            last_command: None,
            ran_at_two_agents: false,
            budget: workflow.budget,
        }
    }

    /// Whether an attempt at `step` took effect, or may have.
    pub(super) fn may_have_run(&self, step: &Part) -> bool {
        self.dispatches.iter().any(|(attempt, dispatch)| {
            attempt.step == *step
                && attempt.action == Action::Do
                && dispatch.sent
                && dispatch.known_outcome != KnownOutcome::DidNotRun
        })
    }

    /// Whether a reply reports the effect of an attempt, and the step has moved on to another agent since, or will, or uses another
    /// idempotency key since an edit of its input.
    pub(super) fn is_effect_elsewhere(
        &self,
        workflow: &ExploredWorkflow,
        reply: &StepReply,
    ) -> bool {
        let StepReply { step, action, attempt, outcome, .. } = reply;
        let is_effect =
            matches!(outcome, ReplyOutcome::Completed { .. }) || outcome.has_call_in_doubt();
        let has_several = workflow.definition.steps[&step.step].agents().count() > 1;
        let of = |number| AttemptId { step: step.clone(), action: Action::Do, number };
        let own = self.dispatches.get(&of(*attempt)).and_then(|own| own.agent.as_ref());
        let mut later = self.dispatches.range(of(*attempt)..=of(u32::MAX));
        let is_elsewhere =
            later.any(|(_, dispatch)| dispatch.agent.as_ref() != own || dispatch.refused);
        let progress = self.task.as_ref().and_then(|task| task.progress(step, Action::Do));
        let has_other_key =
            progress.and_then(|run| run.key_since).is_some_and(|since| *attempt < since);
        // The reply does not name its agent, so it may be another one that had refused.
        let is_unclear = has_several && has_other_key && outcome.may_have_run();
        let is_news = is_effect && (has_several && is_elsewhere || has_other_key);
        *action == Action::Do && (is_news || is_unclear)
    }

    /// The time until which a call of `part` or of its undo may be in progress at its service. An agent whose clock is
    /// behind may start the call at complete-by, and the call takes at most `call_within`.
    pub(super) fn in_progress_until(
        &self,
        workflow: &ExploredWorkflow,
        part: &Part,
        action: Action,
    ) -> Option<Timestamp> {
        let step = &workflow.definition.steps[&part.step];
        step.agent.as_ref()?;
        let within = match action {
            Action::Do => step.complete_within?,
            Action::Undo => step.undo.as_ref()?.complete_within?,
        };
        let call_within = within.min(Duration::from_secs(100));
        let own = self.dispatches.iter().filter(|(attempt, dispatch)| {
            attempt.step == *part
                && attempt.action == action
                && dispatch.sent
                && dispatch.may_be_in_progress
        });
        let last = own.map(|(_, dispatch)| dispatch.begins_by).max()?;
        Some(later(later(last, workflow.timing.clock_skew), call_within))
            .filter(|until| *until > self.now)
    }

    /// Whether a call of `part` or of its completed undo may be in progress. An undo that is not complete is waited for
    /// anyway.
    pub(super) fn is_in_progress(&self, workflow: &ExploredWorkflow, part: &Part) -> bool {
        let record = self.task.as_ref().and_then(|task| task.record(part));
        let is_undone = record.and_then(|record| record.undo.as_ref()).is_some_and(has_passed);
        self.in_progress_until(workflow, part, Action::Do).is_some()
            || (is_undone && self.in_progress_until(workflow, part, Action::Undo).is_some())
    }

    /// Whether the core decided an attempt at `part` that is not known not to have run.
    pub(super) fn was_decided(&self, part: &Part) -> bool {
        self.dispatches.iter().any(|(attempt, dispatch)| {
            attempt.step == *part
                && attempt.action == Action::Do
                && dispatch.known_outcome != KnownOutcome::DidNotRun
        })
    }

    /// A hash that is the same for states with the same future.
    pub(super) fn fingerprint(&self, workflow: &ExploredWorkflow) -> u64 {
        let mut hash = DefaultHasher::new();
        let to = &mut hash;
        if let Some(task) = &self.task {
            self.hash_task(task, workflow, to);
        }
        self.hash_dispatches(to);
        self.hash_keys(workflow, to);
        self.children.iter().for_each(|(part, child)| {
            part.hash(to);
            child.hash(self.now, to);
        });
        self.hash_expiry(to);
        if let Some(LostEffects { event, waits, immediate_wake, ended }) = &self.lost {
            (format!("{event:?}"), immediate_wake).hash(to);
            ended.map(|of| Some(of) == self.task.as_ref().and_then(end)).hash(to);
            waits.iter().for_each(|(of, at)| (of, self.seconds_until(*at, workflow)).hash(to));
        }
        (self.alerted, self.ran_at_two_agents, self.budget).hash(to);
        let ended_at = self.task.as_ref().and_then(|task| task.ended_at);
        self.pending_confirmation.map(|of| Some(of) == ended_at).hash(to);
        let command = self.last_command.as_ref();
        command.map(|command| (&command.command_id, command.action.describe(&[]))).hash(to);
        hash.finish()
    }

    /// Seconds from now. All times that are in the past by every clock are equal.
    fn seconds_until(&self, time: Timestamp, workflow: &ExploredWorkflow) -> i64 {
        let long_ago = -2 * i64::try_from(workflow.timing.clock_skew.as_secs()).unwrap();
        (time.as_second() - self.now.as_second()).max(long_ago)
    }

    fn hash_task(&self, task: &Task, workflow: &ExploredWorkflow, to: &mut impl Hasher) {
        let relative = |time: Timestamp| self.seconds_until(time, workflow);
        task.process_state.hash(to);
        let is_at_rest = task.process_state.has_stopped() && self.budget.commands == 0;
        if !is_at_rest {
            relative(task.complete_by).hash(to);
        }
        task.due.map(relative).hash(to);
        task.undo_reason.is_some().hash(to);
        task.paused_at.map(|at| (at.as_second() - self.now.as_second()).max(-200)).hash(to);
        task.input_edit_id.hash(to);
        for (name, record) in &task.steps {
            (name, record.items.as_ref().map(ItemRecords::count)).hash(to);
            hash_progress(&record.forward, relative, to);
        }
        for (step, action, progress) in task.started_actions() {
            (&step, action).hash(to);
            hash_progress(progress, relative, to);
            [progress.give_up_at, progress.key_valid_until]
                .map(|limit| limit.map(relative))
                .hash(to);
            let pauses = progress.agent_pauses().iter().filter(|paused| paused.until > self.now);
            pauses.for_each(|paused| (paused.agent, relative(paused.until)).hash(to));
            progress.in_progress(self.now).map(relative).hash(to);
            self.in_progress_until(workflow, &step, action).map(relative).hash(to);
            let output = progress.output(&step, action);
            let output = output.map(|key| (self.lacks(&key), self.document(&key)));
            output.map(|(lacks, body)| (lacks, body.map(|body| body.to_string()))).hash(to);
        }
    }

    /// Hashes when the attempts were decided, of steps whose services forget keys.
    fn hash_keys(&self, workflow: &ExploredWorkflow, to: &mut impl Hasher) {
        for (of, dispatch) in &self.dispatches {
            let action = workflow.definition.step(&of.step.step).action(of.action);
            if let Some(valid) = action.and_then(|action| action.key_valid_for()) {
                let left = self.seconds_until(later(dispatch.decided_at, valid), workflow);
                (of, left, dispatch.sent, dispatch.known_outcome, dispatch.settled).hash(to);
            }
        }
    }

    /// Hashes the newest attempt of each part, and whether there are older ones.
    fn hash_dispatches(&self, to: &mut impl Hasher) {
        let mut newest: BTreeMap<(&Part, Action), (&Dispatch, bool, bool)> = BTreeMap::new();
        for (attempt, dispatch) in &self.dispatches {
            let older = newest.get(&(&attempt.step, attempt.action)).copied();
            let stale = older.is_some_and(|(older, stale, _)| stale || older.sent);
            let ran = older.is_some_and(|(.., ran)| ran)
                || (dispatch.sent && dispatch.known_outcome != KnownOutcome::DidNotRun);
            newest.insert((&attempt.step, attempt.action), (dispatch, stale, ran));
        }
        for (of, (dispatch, stale, ran)) in newest {
            let Dispatch { sent, known_outcome, may_be_in_progress, denied, .. } = dispatch;
            (of, sent, known_outcome, may_be_in_progress, denied, stale, ran).hash(to);
        }
    }
}

/// The end of a task. In production two ends have different times; here the number of commands distinguishes them.
pub(super) fn end(task: &Task) -> Option<TaskEnd> {
    let backward = task.undo_reason.is_some();
    Some((task.process_state, task.ended_at?, task.commands.len(), backward))
}

fn hash_progress(progress: &Progress, relative: impl Fn(Timestamp) -> i64, to: &mut impl Hasher) {
    let Progress { state, failure_count, may_have_run, input_edit_id, .. } = progress;
    (state.name(), state.attempt_count() > 0, failure_count, may_have_run, input_edit_id).hash(to);
    match state {
        StepState::Running { complete_by, .. } => relative(*complete_by).hash(to),
        StepState::AwaitingCallback { complete_by, answer_by, .. } => {
            (relative(*complete_by), relative(*answer_by)).hash(to);
        }
        StepState::Waiting { until, complete_by, .. } => {
            (relative(*until), complete_by.map(relative)).hash(to);
        }
        StepState::RunningItems
        | StepState::Completed { .. }
        | StepState::Failed { .. }
        | StepState::Skipped { .. } => {}
    }
}
