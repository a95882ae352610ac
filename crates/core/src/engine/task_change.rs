//! The changed task before it is saved, with the documents to store and the effects to send.
//!
//! A decision has three phases. First [`outcome`](super::outcome), [`forward`](super::forward),
//! [`undo`](super::undo) and [`operate`](super::operate) change the task. Then [`render`](super::render)
//! renders the requests of the started parts. Finally [`finish`](super::finish) does what every change needs: the end
//! of the task, its due time, its notifications and wakes.

use std::{collections::BTreeSet, time::Duration};

use jiff::Timestamp;

use crate::{
    definition::{plan::Plan, step::ActionDefinition, step_agents::StepAgents},
    engine::{
        decision::DecisionContext,
        effect::Effect,
        values::{DocumentCache, ValueSources},
    },
    limits,
    model::{
        attempt::{Action, AttemptId},
        document::Document,
        earlier_key::Ran,
        events::{BusEvent, EventData},
        messages::WakeCause,
        names::{Part, StepName},
        step::{Progress, StepRecord, StepState},
        task::{ProcessState, StopCause, Task},
        time::later,
    },
};

/// What a decision reads beside the task, and does not change.
#[derive(Clone, Copy)]
pub(crate) struct Inputs<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) context: DecisionContext<'a>,
    pub(crate) documents: &'a DocumentCache<'a>,
}

/// A part that starts and needs a request.
pub(crate) struct StartedPart {
    pub(crate) part: Part,
    pub(crate) action: Action,
    /// The progress just before the start. `None` if there was none.
    pub(crate) before: Option<Progress>,
}

/// The changed task before it is saved.
pub(crate) struct TaskChange<'a> {
    pub(crate) inputs: Inputs<'a>,
    /// The changed task.
    pub(crate) task: Task,
    /// The parts that start and need a request.
    pub(crate) starts: Vec<StartedPart>,
    /// The parts that should start, but whose request cannot be rendered, with the reason.
    pub(crate) unrenderable: Vec<(Part, Action, String)>,
    /// The documents to store before the task is saved.
    pub(crate) documents: Vec<Document>,
    /// The attempt that a callback ended during its call. Its documents are stored where the agent finds them.
    pub(crate) ended_during_call: Option<AttemptId>,
    /// The effects to send in addition to those that rendering and finishing add.
    pub(crate) notifications: Vec<Effect>,
    /// When to wake the scheduler.
    pub(crate) wakes: Wakes,
    /// Whether to send the notifications of the end although the task had ended before.
    pub(crate) reports_end_again: bool,
    /// Whether an ended task goes on, at least until another end.
    pub(crate) is_reopened: bool,
    /// Whether to recompute `due`. Otherwise it can only move to an earlier time.
    pub(crate) recompute_due: bool,
}

/// When to wake the scheduler, and why.
pub(crate) struct Wakes {
    pub(crate) after: BTreeSet<Duration>,
    pub(crate) cause: WakeCause,
}

impl Wakes {
    /// Wakes the scheduler after `pause`. If the pause is longer than the maximum delay of a queue, no wake is sent,
    /// and the supervisor finds the task.
    pub(crate) fn after(&mut self, pause: Duration) {
        if pause <= limits::QUEUE_DELAY_MAX {
            self.after.insert(pause);
        }
    }

    pub(crate) fn at_once(&mut self) {
        self.after.insert(Duration::ZERO);
    }
}

impl<'a> TaskChange<'a> {
    /// Creates a change that does not change anything yet.
    pub(crate) fn new(inputs: Inputs<'a>, task: &Task) -> Box<Self> {
        Box::new(Self {
            inputs,
            task: task.clone(),
            starts: Vec::new(),
            unrenderable: Vec::new(),
            documents: Vec::new(),
            ended_during_call: None,
            notifications: Vec::new(),
            wakes: Wakes { after: BTreeSet::new(), cause: WakeCause::Waited },
            reports_end_again: false,
            is_reopened: false,
            recompute_due: false,
        })
    }

    pub(crate) fn plan(&self) -> &'a Plan {
        self.inputs.plan
    }

    /// Records that a callback ends this attempt, if its call may still be in progress: the agent then makes no further one.
    pub(crate) fn note_answer_during_call(&mut self, attempt: &AttemptId) {
        let progress = self.task.progress(&attempt.step, attempt.action);
        if progress.is_some_and(|run| matches!(run.state, StepState::Running { .. })) {
            self.ended_during_call = Some(attempt.clone());
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.inputs.context.now
    }

    /// The sources of the values that expressions read.
    pub(crate) fn sources(&self) -> ValueSources<'_> {
        let Self { inputs, task, documents, .. } = self;
        ValueSources {
            plan: inputs.plan,
            task,
            new_documents: documents,
            cache: inputs.documents,
            callback_urls: inputs.context.callback_urls,
        }
    }

    /// Starts the next attempt at doing or undoing a part.
    pub(crate) fn start(&mut self, part: Part, action: Action) {
        let now = self.now();
        let step = self.plan().step(&part.step);
        let Some(definition) = step.action(action) else { return };
        let complete_by = later(now, definition.complete_within).min(self.task.complete_by);
        let until = |limit: Option<Duration>| limit.map(|limit| later(now, limit));
        let new_limit = until(definition.recovery.give_up_after);
        let new_key_limit = until(definition.key_valid_for());
        let input = self.task.input_edit_id.clone();
        let before = self.task.progress(&part, action).cloned();
        let Some(progress) = started_progress(&mut self.task, &part, action, now) else { return };
        let attempt = progress.state.attempt_count() + 1;
        if attempt == 1 && action == Action::Do {
            progress.input_edit_id = input;
        }
        if action == Action::Do {
            step.record_start(progress, now);
        }
        let deferred = progress.state.deferred_by();
        progress.give_up_at = progress.give_up_at.or(new_limit);
        let is_valid = progress.key_valid_until.is_some_and(|until| now < until);
        if !is_valid && !progress.is_in_doubt() {
            progress.key_valid_until = new_key_limit;
        }
        let limits = progress.give_up_at.into_iter().chain(progress.key_valid_until);
        let complete_by = limits.fold(complete_by, Timestamp::min);
        progress.state = StepState::Running { attempt, complete_by };
        if let Some(deferred) = deferred {
            self.block_undo_on_deferred_attempt(deferred, &part, action);
        }
        self.record_second_delivery(&part, action);
        self.task.locked_by = Some(self.inputs.context.actor.to_owned());
        self.starts.push(StartedPart { part, action, before });
    }

    /// Records at the start of an attempt that two deliveries of its request may act, if the step has several agents in order and
    /// an earlier attempt may have run. A request that is sent again is what it was at first, whatever has become known since.
    fn record_second_delivery(&mut self, part: &Part, action: Action) {
        let agents = self.plan().step(&part.step).agents();
        if action == Action::Do
            && agents.is_some_and(StepAgents::falls_back)
            && let Some(progress) = self.task.progress_mut(part, action)
        {
            progress.second_delivery_may_act |= progress.may_have_run;
        }
    }

    /// Blocks the undo on a deferred attempt: another delivery of its request may still make a call until
    /// `complete_by`. For a step that is not idempotent, only one delivery makes a call, so nothing is blocked.
    pub(crate) fn block_undo_on_deferred_attempt(
        &mut self,
        complete_by: Timestamp,
        part: &Part,
        action: Action,
    ) {
        if !self.plan().step(&part.step).is_repeatable(action) {
            return;
        }
        if let Some(progress) = self.task.progress_mut(part, action) {
            progress.may_have_run = true;
        }
        self.block_undo_on_call_started_by(complete_by, part, action);
    }

    /// Blocks the undo on a call that started at `started_by` or earlier and may still be in progress at its service.
    /// The undo of the part, and the undos of its predecessors, wait until the call must have ended. If that wait is
    /// longer than the time for the undo, the task gets more time.
    pub(crate) fn block_undo_on_call_started_by(
        &mut self,
        started_by: Timestamp,
        part: &Part,
        action: Action,
    ) {
        let definition = self.plan().step(&part.step).action(action);
        let Some(ActionDefinition { call_within, .. }) =
            definition.filter(|action| action.work.is_call())
        else {
            return;
        };
        let until = later(later(started_by, self.inputs.context.timing.clock_skew), call_within);
        let Some(progress) = self.task.progress_mut(part, action) else { return };
        progress.call_may_run_until = progress.call_may_run_until.max(Some(until));
        if self.task.process_state == ProcessState::Undoing && action == Action::Do {
            self.extend_undo_deadline();
        }
    }

    /// Extends the task's complete-by, because waiting for calls in progress does not count as time for the undo.
    pub(crate) fn extend_undo_deadline(&mut self) {
        if let Some(last) = self.task.undo_blocked_until(self.now()).max() {
            let complete_by = later(last, self.plan().complete_within);
            self.task.complete_by = self.task.complete_by.max(complete_by);
        }
    }

    /// Records that the task is late, and reports it.
    pub(crate) fn report_late(&mut self) {
        let now = self.now();
        self.task.late_at = Some(now);
        let task = &self.task;
        let is_open = |state: &StepState| !state.is_completed_or_skipped() && !state.is_failed();
        let open = task.started_actions().filter(|(.., progress)| is_open(&progress.state));
        let steps = open.map(|(part, ..)| part).take(limits::ALERT_STEPS_MAX).collect();
        let data = EventData::TaskLate {
            task_id: task.task_id.clone(),
            workflow: task.workflow.clone(),
            submitted_at: task.submitted_at,
            complete_by: task.complete_by,
            steps,
        };
        let event = BusEvent::new(task.task_id.as_str(), now, data);
        self.notifications.push(Effect::Publish(event));
    }

    /// Stops the task in Error with an alert, and nothing goes on.
    pub(crate) fn halt_task(&mut self, reason: &str) {
        self.fail_task_again(reason);
        self.task.stop_cause = StopCause::Halted;
    }

    /// Stops the task in Error, unless it has stopped already.
    pub(crate) fn fail_task(&mut self, reason: &str) {
        if self.task.process_state != ProcessState::Error {
            self.task.process_state = ProcessState::Error;
            self.task.error = Some(limits::short_line(reason, limits::ERROR_CHARS_MAX));
        }
    }

    /// Stops the task in Error with an alert, also if it had stopped or ended before.
    pub(crate) fn fail_task_again(&mut self, reason: &str) {
        let before = self.task.error.take().map(|error| format!("; {error}")).unwrap_or_default();
        if self.task.process_state == ProcessState::Processed {
            self.task.stop_cause = StopCause::AfterProcessed;
        }
        self.task.process_state = ProcessState::Error;
        let reason = format!("{reason}{before}");
        self.task.error = Some(limits::short_line(&reason, limits::ERROR_CHARS_MAX));
        self.reports_end_again = true;
    }

    /// Whether the task ends in another way than before, or goes on to.
    pub(crate) fn ends_again(&self) -> bool {
        self.reports_end_again && self.task.process_state.has_stopped()
    }

    /// Records that an operator knows which steps ran beside a completion by hand.
    pub(crate) fn settle_effects_beside_completions(&mut self) {
        let records = self.task.steps.values_mut().flat_map(StepRecord::part_records_mut);
        let beside = records.filter(|record| record.ran_beside_completion());
        beside.for_each(|record| record.deny_key_in_use(Ran::No));
    }

    /// Gives the task the full `complete_within` of its workflow again.
    pub(crate) fn renew_complete_by(&mut self) {
        let complete_by = later(self.now(), self.plan().complete_within);
        self.task.complete_by = self.task.complete_by.max(complete_by);
    }

    /// Reopens an ended task, and gives it the full `complete_within` of its workflow again.
    pub(crate) fn reopen(&mut self) {
        self.renew_complete_by();
        self.task.error = None;
        self.task.resolved_at = None;
        self.task.stop_cause = StopCause::default();
        self.task.is_alert_due = false;
        self.task.ended_at = None;
        self.reports_end_again = true;
        self.is_reopened = true;
    }

    /// Sends the subscriptions of the steps that wait for an event again. One may have been lost: a message that was
    /// redelivered while the task had ended has sent none.
    pub(crate) fn subscribe_again(&mut self) {
        let plan = self.plan();
        let running = self.task.running_attempts();
        let waiting = running.filter(|(part, ..)| plan.step(&part.step).awaits_event());
        let waiting: Vec<_> = waiting.map(|(part, action, ..)| (part, action)).collect();
        self.send_again(waiting);
    }

    /// Sends the requests of parts in progress again.
    pub(crate) fn send_again(&mut self, parts: Vec<(Part, Action)>) {
        for (part, action) in parts {
            let before = self.task.progress(&part, action).cloned();
            self.starts.push(StartedPart { part, action, before });
        }
    }

    /// The parts whose wait has ended. After its time limit, a part does not start any more: the supervisor gives it up.
    pub(crate) fn parts_ready_to_start(&self, action: Action) -> Vec<Part> {
        let now = self.now();
        let waited = |progress: &Progress| {
            progress.state.waiting_until().is_some_and(|until| until <= now)
                && progress.no_attempt_from().is_none_or(|limit| now < limit)
        };
        let waited = self.task.action_spans().filter(|(_, of, p)| *of == action && waited(p));
        waited.flat_map(|(run, ..)| run.parts()).collect()
    }

    /// Schedules a wake for the end of each wait.
    pub(crate) fn schedule_wakes_for_waits(&mut self) {
        for pause in remaining_waits(&self.task, self.now()) {
            self.wakes.after(pause);
        }
    }

    /// Extends the retention of the task's documents and child tasks to the latest time at which the task may now
    /// end. If they may have expired already, no child task counts as never started any more.
    pub(crate) fn extend_retention(&mut self) {
        let now = self.now();
        if self.task.document_retention().expires_at(self.inputs.context.timing.retention) <= now {
            let plan = self.plan();
            let runs_child =
                |name: &StepName| plan.find(name).is_some_and(|step| step.runs_child());
            let steps = self.task.steps.iter_mut().filter(|(name, _)| runs_child(name));
            let started = steps
                .flat_map(|(_, record)| record.part_records_mut())
                .map(|record| &mut record.forward)
                .filter(|run| run.state.newest_attempt().is_some());
            started.for_each(|run| run.child_revision = run.child_revision.or(Some(0)));
        }
        self.task.extend_retention(now, self.plan().complete_within);
    }
}

/// Returns the progress of doing or undoing a part, and creates it if there is none, or if another key of the part is undone
/// next. Returns `None` for an item that does not exist yet, because the scheduler creates the items of a step in order.
pub(crate) fn started_progress<'t>(
    task: &'t mut Task,
    part: &Part,
    action: Action,
    now: Timestamp,
) -> Option<&'t mut Progress> {
    let not_started = StepState::waiting(None, now);
    if part.item.is_none() {
        task.steps.entry(part.step.clone()).or_insert_with(|| StepRecord::new(not_started.clone()));
    }
    let record = task.part_record_mut(part)?;
    Some(match action {
        Action::Do => &mut record.forward,
        Action::Undo => {
            if record.undo.as_ref().is_none_or(|undo| undo.state.is_completed_or_skipped()) {
                record.begin_undo(now);
            }
            record.undo.as_mut()?
        }
    })
}

/// Returns the remaining times of the waiting steps or undos, and of the calls in progress that the undo waits for.
pub(crate) fn remaining_waits(task: &Task, now: Timestamp) -> Vec<Duration> {
    let in_error = task.process_state == ProcessState::Error;
    let calls = task.undo_blocked_until(now).filter(|_| !in_error);
    task.pauses().chain(calls).map(|until| pause_until(until, now)).collect()
}

/// Returns the time from `now` to `until`, or zero if `until` has passed.
pub(crate) fn pause_until(until: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(until.duration_since(now)).unwrap_or_default()
}
