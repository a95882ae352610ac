//! A change in the making: what the transition decided on, until it is a task, documents and effects.
//!
//! The parts are small and named in the words of the table in [`transition`](crate::engine::transition):
//! complete, fail, wait, undo, go on with what is ready; then render the requests, and settle what
//! holds for every change: the end of a task, its due time, who is told.

use std::{collections::BTreeSet, time::Duration};

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{
    definition::{
        recovery::{Then, Verdict, seed},
        step::{ActionDefinition, Callback, Work},
        workflow::Workflow,
    },
    engine::{
        compensate::{self, PointOfNoReturn},
        decision::{Context, Transition},
        documents::Documents,
        effect::Effect,
        forward,
        notify::ending,
        operate::deferred_by,
        request::{request, too_large},
        values::{Desk, NoValue, Sources},
    },
    limits,
    model::{
        attempt::{Action, Attempt, AttemptTimes},
        command::CommandId,
        document::{Document, DocumentKey},
        messages::{Answer, ChildOutcome, Outcome, StepReply, Wake, WakeCause},
        names::{Part, StepName},
        step::{Progress, StepRecord, StepState},
        task::{ProcessState, Task},
        time::later,
    },
};

/// Why a running attempt is given up.
pub(crate) const NO_REPLY: &str = "no reply by complete-by";

/// A change in the making.
pub(crate) struct Change<'a> {
    pub(crate) workflow: &'a Workflow,
    pub(crate) context: Context<'a>,
    desk: &'a Desk<'a>,
    pub(crate) task: Task,
    /// What to ask for.
    pub(crate) send: Vec<(Part, Action)>,
    /// What was to be begun and cannot be, and why.
    pub(crate) impossible: Vec<(Part, Action, String)>,
    pub(crate) documents: Vec<Document>,
    /// Told whatever else happens.
    pub(crate) tell: Vec<Effect>,
    /// After how long the scheduler must be woken.
    wakes: BTreeSet<Duration>,
    wake_cause: WakeCause,
    /// Whether the end is told although the task was in Error already.
    pub(crate) ends_again: bool,
    /// Whether `due` is set anew or only moved earlier.
    pub(crate) due_anew: bool,
    /// How long before its time a wait may end: a wake is the end of a wait by the clock that set it,
    /// which may be ahead of this one. Nothing else is: a pause shorter than that would be none.
    pub(crate) early: Duration,
}

impl<'a> Change<'a> {
    pub(crate) fn of(
        workflow: &'a Workflow,
        task: &Task,
        context: Context<'a>,
        desk: &'a Desk<'a>,
    ) -> Box<Self> {
        Box::new(Self {
            workflow,
            context,
            desk,
            task: task.clone(),
            send: Vec::new(),
            impossible: Vec::new(),
            documents: Vec::new(),
            tell: Vec::new(),
            wakes: BTreeSet::new(),
            wake_cause: WakeCause::Waited,
            ends_again: false,
            due_anew: false,
            early: Duration::ZERO,
        })
    }

    /// Where the values of its expressions come from.
    pub(crate) fn sources(&self) -> Sources<'_> {
        let Self { workflow, task, documents, desk, .. } = self;
        Sources { workflow, task, made: documents, desk }
    }

    /// Records an agent's answer, and goes on with what it allows.
    pub(crate) fn record(&mut self, reply: &StepReply) {
        let attempt =
            Attempt { step: reply.step.clone(), action: reply.action, number: reply.attempt };
        let queued_at = reply.times.queued_at.or_else(|| self.sent_at(&attempt));
        match &reply.outcome {
            Outcome::Completed { output, may_continue } => {
                if *may_continue {
                    self.wait_for_the_call(&attempt);
                }
                match self.callback(&attempt) {
                    Some(callback) => self.hand_out(attempt, callback),
                    None => self.keep(attempt, output),
                }
            }
            Outcome::Failed { reason, may_have_run } => {
                if *may_have_run {
                    self.wait_for_the_call(&attempt);
                }
                self.fail(attempt, reason, *may_have_run);
            }
            Outcome::Deferred { reason, retry_after_ms, may_have_run } => {
                let pause = Duration::from_millis(*retry_after_ms);
                if *may_have_run {
                    self.wait_for_the_call(&attempt);
                }
                self.defer(attempt, reason, pause, *may_have_run);
            }
            Outcome::Unknown { reason } => self.give_up(attempt, reason),
        }
        self.note(AttemptTimes { queued_at, ..reply.times });
        self.advance();
    }

    /// Puts down with what is recorded of an attempt when it got how far.
    fn note(&mut self, times: AttemptTimes) {
        for document in &mut self.documents {
            document.times = times;
        }
    }

    fn sent_at(&self, Attempt { step, action, .. }: &Attempt) -> Option<Timestamp> {
        self.workflow.sent_at(&self.task, step, *action)
    }

    /// Records the answer of someone who was handed a token.
    pub(crate) fn answer(&mut self, attempt: Attempt, answer: &Answer) {
        // The call that hands the token out may not have come back yet.
        if *answer != Answer::Heartbeat {
            self.wait_for_the_call(&attempt);
        }
        match answer {
            Answer::Completed { output } => self.keep(attempt, output),
            Answer::Failed { reason } => self.fail(attempt, reason, true),
            Answer::Heartbeat => self.extend(&attempt),
        }
        self.advance();
    }

    /// Records how the task of a step ended, at this revision of its own.
    pub(crate) fn child_ended(
        &mut self,
        attempt: Attempt,
        outcome: &ChildOutcome,
        revision: Option<u64>,
    ) {
        let undoing = attempt.action == Action::Undo;
        let completes = matches!(outcome, ChildOutcome::Processed { .. });
        // What it reported before may come later, and must not complete the step then.
        if let Some(progress) = self.task.progress_mut(&attempt.step, Action::Do)
            && !completes
        {
            progress.child_revision = revision.max(progress.child_revision);
        }
        match outcome {
            ChildOutcome::Processed { output } => self.keep(attempt, output),
            ChildOutcome::Undone { .. } if undoing => {
                self.complete(attempt, &Value::Null);
            }
            ChildOutcome::Undone { reason } => {
                self.child_is_undone(&attempt.step, revision);
                self.fail(attempt, &format!("its task was undone: {reason}"), false);
            }
            ChildOutcome::Refused { reason, id_taken } => {
                self.fail(attempt, &format!("its task was refused: {reason}"), !id_taken);
            }
            ChildOutcome::Error { reason, .. } => {
                self.fail(attempt, &format!("its task is in Error: {reason}"), true);
            }
        }
        self.advance();
    }

    /// The task of a step says that nothing of it stands. All attempts since the last edit have asked for that one task.
    pub(crate) fn child_is_undone(&mut self, part: &Part, revision: Option<u64>) {
        if let Some(progress) = self.task.progress_mut(part, Action::Do) {
            progress.may_have_run = false;
            progress.child_revision = revision.max(progress.child_revision);
        }
    }

    /// An attempt took effect, or may have, that had been settled as one that did not: there was another
    /// delivery of its request. If the task is Undone, it was not.
    pub(crate) fn has_run_after_all(&mut self, part: &Part, outcome: Option<&Outcome>) {
        if let Some(progress) = self.task.progress_mut(part, Action::Do) {
            progress.may_have_run = true;
        }
        let is_over = outcome.is_none_or(|outcome| {
            matches!(outcome, Outcome::Completed { may_continue: false, .. })
        });
        if !is_over {
            self.wait_for_call_begun_by(self.context.now, part, Action::Do);
        }
        if self.task.process_state == ProcessState::Undone {
            self.fail_task(&format!("step {part} took effect after the task was undone"));
            self.ends_again = true;
        }
        let state = self.task.progress(part, Action::Do).map(|progress| progress.state.clone());
        if let Some(StepState::Waiting { attempt, .. }) = state {
            let step = self.workflow.steps.get(&part.step);
            if step.is_some_and(|step| !step.idempotent) {
                let attempt = Attempt { step: part.clone(), action: Action::Do, number: attempt };
                self.fail(attempt, "it may have run, and must not be repeated", true);
            } else if self.task.process_state != ProcessState::Undoing {
                // The wake that ends the wait starts the next attempt: its request is sent again if it is lost.
                return;
            }
        }
        self.advance();
    }

    fn callback(&self, attempt: &Attempt) -> Option<&'a Callback> {
        let step = self.workflow.steps.get(&attempt.step.step)?;
        step.callback.as_ref().filter(|_| attempt.action == Action::Do)
    }

    /// The call has begun the step, and its callback is awaited. While a task is being undone no callback is
    /// awaited, except that of the point of no return.
    fn hand_out(&mut self, attempt: Attempt, callback: &Callback) {
        let definition = self.workflow.steps.get(&attempt.step.step);
        let returns = definition.is_none_or(|step| !step.point_of_no_return);
        if self.task.process_state == ProcessState::Undoing && returns {
            return self.fail(attempt, "begun, and given up", true);
        }
        let answer_by = later(self.context.now, callback.within).min(self.task.complete_by);
        let complete_by = heard_by(self.context.now, callback, answer_by);
        if let Some(progress) = self.task.progress_mut(&attempt.step, attempt.action) {
            let attempt = attempt.number;
            progress.state = StepState::HandedOut { attempt, complete_by, answer_by };
        }
    }

    fn extend(&mut self, attempt: &Attempt) {
        let Some(callback) = self.callback(attempt) else { return };
        let now = self.context.now;
        if let Some(progress) = self.task.progress_mut(&attempt.step, attempt.action)
            && let StepState::HandedOut { complete_by, answer_by, .. } = &mut progress.state
        {
            *complete_by = heard_by(now, callback, *answer_by);
        }
    }

    /// Completes an attempt, if what it returned can be kept.
    fn keep(&mut self, attempt: Attempt, output: &Value) {
        match too_large("output", output) {
            None => self.complete(attempt, output),
            // It has run.
            Some(reason) => self.fail(attempt, &reason, true),
        }
    }

    pub(crate) fn complete(&mut self, attempt: Attempt, output: &Value) {
        self.completed(attempt, output, None);
    }

    /// Completes an attempt by an operator's command.
    pub(crate) fn complete_by_hand(&mut self, attempt: Attempt, output: &Value, by: &CommandId) {
        self.completed(attempt, output, Some(by.clone()));
    }

    fn completed(&mut self, attempt: Attempt, output: &Value, by: Option<CommandId>) {
        if let Some(progress) = self.task.progress_mut(&attempt.step, attempt.action) {
            progress.state = StepState::Completed { attempt: attempt.number };
            progress.completed_by.clone_from(&by);
        }
        let key = match by {
            Some(command) => DocumentKey::ByHand(attempt, command),
            None => DocumentKey::Output(attempt),
        };
        self.documents.push(Document::new(key, self.context.now, output.clone()));
    }

    /// A permanent failure: the same again would fail again.
    fn fail(&mut self, attempt: Attempt, reason: &str, may_have_run: bool) {
        let then = self.then(&attempt);
        let next = StepState::Failed { attempt: attempt.number };
        self.count_failure(&attempt, next, reason, &Verdict::Finally(then), may_have_run);
        self.conclude(&attempt, reason, then);
    }

    /// The remote service is known to be down and was left alone: no failure is counted.
    fn defer(&mut self, attempt: Attempt, reason: &str, pause: Duration, may_have_run: bool) {
        let repeatable = attempt.action == Action::Undo
            || self.workflow.steps.get(&attempt.step.step).is_none_or(|step| step.idempotent);
        // Of an earlier attempt, too, another delivery may have called.
        let progress = self.task.progress(&attempt.step, attempt.action);
        let may_have_run = may_have_run || progress.is_some_and(|progress| progress.may_have_run);
        if may_have_run && !repeatable {
            return self.fail(attempt, reason, may_have_run);
        }
        let pause = pause.clamp(limits::WITHIN_MIN, limits::WAIT_MAX);
        let until = later(self.context.now, pause);
        if let Some(progress) = self.task.progress_mut(&attempt.step, attempt.action) {
            let complete_by = match progress.state {
                StepState::Running { complete_by, .. } => Some(complete_by),
                StepState::HandedOut { .. }
                | StepState::Each
                | StepState::Waiting { .. }
                | StepState::Completed { .. }
                | StepState::Failed { .. }
                | StepState::Skipped { .. } => None,
            };
            progress.state = StepState::Waiting { attempt: attempt.number, until, complete_by };
            progress.may_have_run |= may_have_run;
        }
        let verdict = format!("not counted; again after {}", humantime::format_duration(pause));
        self.keep_reason(DocumentKey::Deferral(attempt), reason, &verdict);
        self.wake_after(pause);
    }

    /// An attempt ended, and whether it took effect is not known: a call of it may still be in progress
    /// at the service. Its undo, and those of what came before it, wait for that.
    fn wait_for_the_call(&mut self, Attempt { step, action, .. }: &Attempt) {
        // A deferred attempt may be with another agent still.
        let Some(
            StepState::Running { complete_by, .. }
            | StepState::Waiting { complete_by: Some(complete_by), .. },
        ) = self.task.progress(step, *action).map(|progress| &progress.state)
        else {
            return;
        };
        self.wait_for_call_begun_by(*complete_by, step, *action);
    }

    /// The same, of a call that began at `begun_by` or before. A wait that outlasts the time that the
    /// undo has gives the task more time.
    pub(crate) fn wait_for_call_begun_by(
        &mut self,
        begun_by: Timestamp,
        part: &Part,
        action: Action,
    ) {
        let definition = self.workflow.steps.get(&part.step);
        let definition = definition.and_then(|step| step.action(action));
        let Some(ActionDefinition { call_within, work: Work::Call { .. }, .. }) = definition else {
            return;
        };
        let until = later(later(begun_by, self.context.timing.clock_skew), call_within);
        let Some(progress) = self.task.progress_mut(part, action) else { return };
        progress.in_progress_until = progress.in_progress_until.max(Some(until));
        if self.task.process_state == ProcessState::Undoing && action == Action::Do {
            self.keep_time_to_undo();
        }
    }

    /// The wait for calls in progress does not count in the time that the task has to be undone.
    fn keep_time_to_undo(&mut self) {
        if let Some(last) = self.task.undo_waits(self.context.now).max() {
            let complete_by = later(last, self.workflow.complete_within);
            self.task.complete_by = self.task.complete_by.max(complete_by);
        }
    }

    /// An attempt is over without a final answer, `reason` says why: whether it took effect is not
    /// known.
    pub(crate) fn give_up(&mut self, attempt: Attempt, reason: &str) {
        self.wait_for_the_call(&attempt);
        let (verdict, queued_at) = (self.verdict(&attempt), self.sent_at(&attempt));
        let (now, number) = (self.context.now, attempt.number);
        let wait = match verdict {
            Verdict::Again { pause, .. } => Some(pause),
            Verdict::ExtendedWait { wait, .. } => Some(wait),
            Verdict::Finally(_) => None,
        };
        let next = match wait {
            Some(wait) => StepState::waiting(number, later(now, wait)),
            None => StepState::Failed { attempt: number },
        };
        self.count_failure(&attempt, next, reason, &verdict, true);
        if let Some(failure) = self.documents.last_mut() {
            failure.times.queued_at = queued_at;
        }
        match verdict {
            Verdict::Again { pause: wait, .. } | Verdict::ExtendedWait { wait, .. } => {
                self.wake_after(wait);
            }
            Verdict::Finally(then) => {
                self.conclude(&attempt, &format!("{reason}, attempt {number}"), then);
            }
        }
    }

    /// What the policy says to a failure of this attempt that is not permanent.
    fn verdict(&self, attempt: &Attempt) -> Verdict {
        let Attempt { step, action, number } = attempt;
        let then = Verdict::Finally(self.then(attempt));
        let Some(definition) = self.workflow.steps.get(&step.step) else { return then };
        let Some(policy) = definition.action(*action) else { return then };
        let unrepeatable = *action == Action::Do && !definition.idempotent;
        if unrepeatable || self.is_given_up(attempt) {
            return then;
        }
        let failures = self.task.progress(step, *action).map_or(0, |p| p.failure_count) + 1;
        policy.recovery.verdict(failures, seed(&self.task.task_id, step, *action, *number))
    }

    fn then(&self, attempt: &Attempt) -> Then {
        let definition = self.workflow.steps.get(&attempt.step.step);
        let policy = definition.and_then(|step| step.action(attempt.action));
        policy.map_or(Then::Alert, |policy| policy.recovery.then)
    }

    /// Whether it is a step of a task that is being undone: it is only waited for.
    fn is_given_up(&self, attempt: &Attempt) -> bool {
        attempt.action == Action::Do && self.task.direction() == Action::Undo
    }

    fn count_failure(
        &mut self,
        attempt: &Attempt,
        next: StepState,
        reason: &str,
        verdict: &Verdict,
        may_have_run: bool,
    ) {
        if let Some(progress) = self.task.progress_mut(&attempt.step, attempt.action) {
            progress.state = next;
            progress.failure_count += 1;
            progress.may_have_run |= may_have_run;
        }
        self.task.failure_count += 1;
        let verdict = match self.is_given_up(attempt) {
            true => "the task is being undone".to_owned(),
            false => verdict.to_string(),
        };
        self.keep_reason(DocumentKey::Failure(attempt.clone()), reason, &verdict);
    }

    fn keep_reason(&mut self, key: DocumentKey, reason: &str, verdict: &str) {
        let reason = limits::shorten(reason, limits::REASON_CHARS_MAX);
        let body = json!({ "reason": reason, "verdict": verdict });
        self.documents.push(Document::new(key, self.context.now, body));
    }

    /// Nothing is left to try: the task ends, or is undone.
    fn conclude(&mut self, attempt: &Attempt, reason: &str, then: Then) {
        let step = &attempt.step;
        match (self.task.process_state, attempt.action) {
            (ProcessState::Pending | ProcessState::Processing, _) => {
                let reason = format!("step {step}: {reason}");
                match then {
                    Then::Alert => self.fail_task(&reason),
                    Then::Undo => self.begin_undo(&reason),
                }
            }
            (ProcessState::Undoing, Action::Undo) => {
                self.fail_task(&format!("undo of step {step}: {reason}"));
            }
            (ProcessState::Undoing, Action::Do)
            | (ProcessState::Processed | ProcessState::Undone | ProcessState::Error, _) => {}
        }
    }

    pub(crate) fn fail_task(&mut self, reason: &str) {
        if self.task.process_state != ProcessState::Error {
            self.task.process_state = ProcessState::Error;
            self.task.error = Some(limits::shorten(reason, limits::ERROR_CHARS_MAX));
        }
    }

    /// Turns the task round, with as much time to undo it as it had to be done; unless it is past
    /// its point of no return.
    pub(crate) fn begin_undo(&mut self, reason: &str) {
        if let PointOfNoReturn::Passed(step) =
            compensate::point_of_no_return(self.workflow, &self.task)
        {
            return self.fail_past_return(reason, &step);
        }
        self.task.process_state = ProcessState::Undoing;
        self.task.undo_reason = Some(limits::shorten(reason, limits::ERROR_CHARS_MAX));
        self.task.complete_by = later(self.context.now, self.workflow.complete_within);
        self.give_up_forward();
        self.keep_time_to_undo();
    }

    /// Nothing more is tried forward. An agent at work is waited for, and so is one that may still act
    /// on an attempt that was deferred; a task that runs for a step is undone where it stands. No callback is
    /// awaited, except that of the point of no return. As long as that step runs it can still cancel the undo, so
    /// waits go on.
    fn give_up_forward(&mut self) {
        let (workflow, now) = (self.workflow, self.context.now);
        let mut past_deferrals = Vec::new();
        let parts: Vec<_> = self.task.parts().map(|(part, record)| (part, &record.run)).collect();
        for (part, run) in parts {
            if let StepState::Waiting { complete_by: Some(complete_by), .. } = run.state
                && complete_by <= now
            {
                past_deferrals.push((part, complete_by));
            }
        }
        for (part, complete_by) in past_deferrals {
            self.may_act_until(complete_by, &part, Action::Do);
        }
        for (name, record) in &mut self.task.steps {
            let Some(step) = workflow.steps.get(name) else { continue };
            let runs_task = matches!(step.work(), Some(Work::Child(_)));
            if matches!(step.work(), Some(Work::Wait(_))) {
                continue;
            }
            for StepRecord { run, .. } in record.parts_mut() {
                run.state = match run.state {
                    StepState::Waiting { attempt, complete_by: Some(complete_by), .. }
                        if complete_by > now =>
                    {
                        StepState::Running { attempt, complete_by }
                    }
                    StepState::Waiting { attempt, .. } => StepState::Failed { attempt },
                    StepState::HandedOut { attempt, .. } | StepState::Running { attempt, .. }
                        if !step.point_of_no_return && (runs_task || !run.state.is_running()) =>
                    {
                        run.may_have_run = true;
                        StepState::Failed { attempt }
                    }
                    StepState::Running { .. }
                    | StepState::HandedOut { .. }
                    | StepState::Each
                    | StepState::Completed { .. }
                    | StepState::Failed { .. }
                    | StepState::Skipped { .. } => continue,
                };
            }
        }
        if compensate::point_of_no_return(workflow, &self.task) != PointOfNoReturn::Running {
            self.end_waits();
        }
    }

    /// The undo is not called off any more: nothing is waited for that only takes time.
    fn end_waits(&mut self) {
        for (name, record) in &mut self.task.steps {
            let step = self.workflow.steps.get(name);
            if step.is_some_and(|step| matches!(step.work(), Some(Work::Wait(_))))
                && let StepState::Waiting { attempt, .. } = record.run.state
            {
                record.run.state = StepState::Skipped { attempt };
            }
        }
    }

    /// The task can only be driven forward: that is for the operator to do.
    fn fail_past_return(&mut self, reason: &str, step: &StepName) {
        self.task.undo_reason = None;
        self.fail_task(&format!("not undone, past the point of no return {step}: {reason}"));
    }

    /// The task is past its own complete-by.
    pub(crate) fn overdue(&mut self) {
        match (self.task.process_state, self.workflow.overdue) {
            (ProcessState::Pending | ProcessState::Processing, Then::Alert) => {
                self.fail_task("the task was not done by its complete-by");
            }
            (ProcessState::Pending | ProcessState::Processing, Then::Undo) => {
                self.begin_undo("the task was not done by its complete-by");
            }
            (ProcessState::Undoing, _) => {
                self.fail_task("the task was not undone by its complete-by");
            }
            (ProcessState::Processed | ProcessState::Undone | ProcessState::Error, _) => {}
        }
    }

    /// Starts what can start, forward or backward, and finds the end. Nothing starts in a paused
    /// task, nor past the task's own complete-by: nobody may act on it then.
    pub(crate) fn advance(&mut self) {
        if self.task.paused_at.is_some() {
            return;
        }
        match self.task.process_state {
            ProcessState::Pending | ProcessState::Processing => forward::advance(self),
            ProcessState::Undoing => {
                match compensate::point_of_no_return(self.workflow, &self.task) {
                    PointOfNoReturn::Running => return,
                    PointOfNoReturn::Passed(step) => {
                        let reason = self.task.undo_reason.clone().unwrap_or_default();
                        return self.fail_past_return(&reason, &step);
                    }
                    PointOfNoReturn::Ahead => self.end_waits(),
                }
                self.keep_time_to_undo();
                let now = self.context.now;
                if now < self.task.complete_by {
                    let ready = compensate::ready(self.workflow, &self.task, now);
                    for part in ready.into_iter().chain(self.waited(Action::Undo)) {
                        self.start(part, Action::Undo);
                    }
                }
                if compensate::is_done(self.workflow, &self.task, now) {
                    self.task.process_state = ProcessState::Undone;
                }
            }
            ProcessState::Processed | ProcessState::Undone | ProcessState::Error => {}
        }
    }

    /// What has waited long enough.
    pub(crate) fn waited(&self, action: Action) -> Vec<Part> {
        let soon = later(self.context.now, self.early);
        let waited =
            |progress: &Progress| progress.state.waits_until().is_some_and(|until| until <= soon);
        let waited = self.task.actions().filter(|(_, of, p)| *of == action && waited(p));
        waited.map(|(part, ..)| part).collect()
    }

    /// Begins the next attempt at doing or undoing a part.
    pub(crate) fn start(&mut self, part: Part, action: Action) {
        let now = self.context.now;
        let definition = self.workflow.steps.get(&part.step).and_then(|step| step.action(action));
        let Some(definition) = definition else { return };
        let complete_by = later(now, definition.complete_within).min(self.task.complete_by);
        let input = match action {
            Action::Do => self.task.input.clone(),
            // What is undone is what was done, and not what an operator edited since.
            Action::Undo => self.task.progress(&part, Action::Do).and_then(|run| run.input.clone()),
        };
        let Some(progress) = begun(&mut self.task, &part, action, now) else { return };
        let attempt = progress.state.attempt() + 1;
        if attempt == 1 {
            progress.input = input;
        }
        let deferred = deferred_by(&progress.state);
        progress.state = StepState::Running { attempt, complete_by };
        if let Some(deferred) = deferred {
            self.may_act_until(deferred, &part, action);
        }
        self.task.locked_by = Some(self.context.actor.to_owned());
        self.send.push((part, action));
    }

    /// The request of a deferred attempt may have been delivered twice, and the other delivery may call until
    /// its complete-by. Of a step that is not idempotent only one delivery calls.
    fn may_act_until(&mut self, complete_by: Timestamp, part: &Part, action: Action) {
        let step = self.workflow.steps.get(&part.step);
        if action == Action::Do && step.is_none_or(|step| !step.idempotent) {
            return;
        }
        if let Some(progress) = self.task.progress_mut(part, action) {
            progress.may_have_run = true;
        }
        self.wait_for_call_begun_by(complete_by, part, action);
    }

    /// Has the scheduler woken once `pause` is over. What waits longer than a queue can hold a
    /// message back is found by the supervisor.
    pub(crate) fn wake_after(&mut self, pause: Duration) {
        if pause <= limits::QUEUE_DELAY_MAX {
            self.wakes.insert(pause);
        }
    }

    /// Has the scheduler woken at `time`.
    pub(crate) fn wake_at(&mut self, time: Timestamp) {
        let pause = time.duration_since(self.context.now);
        self.wake_after(Duration::try_from(pause).unwrap_or_default());
    }

    /// Has the scheduler woken when each wait is over.
    pub(crate) fn wake_waiting(&mut self) {
        let pauses: Vec<_> = waits(&self.task, self.context.now).collect();
        pauses.into_iter().for_each(|pause| self.wake_after(pause));
    }

    /// The supervisor starts nothing itself: it asks the scheduler, if there is anything to start.
    pub(crate) fn ask_for_recovery(&mut self) {
        self.wake_cause = WakeCause::Recovery;
        if would_go_on(self.workflow, &self.task, self.context) {
            self.wakes.insert(Duration::ZERO);
        }
    }

    /// Has what the task refers to kept for as long as it may live now. If that comes so late that it may have expired, no task of a step can be taken for one that never began any more.
    fn keep_long_enough(&mut self) {
        let now = self.context.now;
        if self.task.kept().expires_at(self.context.timing.retention) <= now {
            let records = self.task.steps.values_mut().flat_map(StepRecord::parts_mut);
            let asked = records.map(|record| &mut record.run).filter(|run| run.state.attempt() > 0);
            asked.for_each(|run| run.child_revision = run.child_revision.or(Some(0)));
        }
        self.task.keep_long_enough(now, self.workflow.complete_within);
    }

    /// Makes the requests of what starts.
    pub(crate) fn render(&mut self, before: &Task) -> Vec<Effect> {
        // The submission of a child task says how long the child is kept.
        self.keep_long_enough();
        let send = std::mem::take(&mut self.send);
        let mut impossible = std::mem::take(&mut self.impossible);
        let (mut requests, mut put_off, mut bytes) = (Vec::new(), Vec::new(), 0_usize);
        for (part, action) in &send {
            if bytes >= limits::DECISION_BYTES_MAX {
                put_off.push((part.clone(), *action));
                continue;
            }
            match request(self.sources(), part, *action) {
                Ok(request) => {
                    bytes = bytes.saturating_add(request.bytes());
                    requests.push(request);
                }
                Err(NoValue::Because(reason)) => impossible.push((part.clone(), *action, reason)),
                Err(NoValue::Wanted) => {}
            }
        }
        if !impossible.is_empty() {
            self.withdraw(before, &send, impossible);
            return Vec::new();
        }
        if !put_off.is_empty() {
            // More than one decision may hold in memory: the next goes on with it.
            put_off.iter().for_each(|(part, action)| self.take_back(before, part, *action));
            self.wakes.insert(Duration::ZERO);
        }
        requests
    }

    /// A request that cannot be made is a permanent failure of its step, and then nothing else starts
    /// either.
    fn withdraw(
        &mut self,
        before: &Task,
        send: &[(Part, Action)],
        impossible: Vec<(Part, Action, String)>,
    ) {
        for (part, action) in send {
            if impossible.iter().any(|(failed, of, _)| failed == part && of == action) {
                continue;
            }
            self.take_back(before, part, *action);
        }
        for (step, action, reason) in impossible {
            let number = self.task.progress(&step, action).map_or(1, |p| p.state.attempt());
            self.fail(Attempt { step, action, number }, &reason, false);
        }
        // What an undo reads is not at hand yet: the scheduler goes on from here.
        self.wakes.insert(Duration::ZERO);
    }

    /// What was to start is as it was before.
    fn take_back(&mut self, before: &Task, part: &Part, action: Action) {
        let old = before.record(part);
        let not_begun = Progress::new(StepState::waiting(0, self.context.now));
        match (action, old, self.task.record_mut(part)) {
            (Action::Do, Some(old), Some(record)) => record.run = old.run.clone(),
            (Action::Do, None, Some(record)) if part.item.is_some() => record.run = not_begun,
            (Action::Do, None, _) => drop(self.task.steps.remove(&part.step)),
            (Action::Undo, _, Some(record)) => record.undo = old.and_then(|r| r.undo.clone()),
            (_, _, None) => {}
        }
    }

    /// Takes back the end of a task, and gives it as much time as it had at first.
    pub(crate) fn reopen(&mut self) {
        let complete_by = later(self.context.now, self.workflow.complete_within);
        self.task.complete_by = self.task.complete_by.max(complete_by);
        self.task.error = None;
        self.task.ended_at = None;
        self.ends_again = true;
    }

    /// Draws the conclusions that hold for every change: the end of a task, when it is due, and who
    /// is told.
    pub(crate) fn settle(mut self, before: &Task, requests: Vec<Effect>) -> Transition {
        let now = self.context.now;
        let task = &mut self.task;
        let is_final = task.process_state.is_final();
        let ended = is_final && (!before.process_state.is_final() || self.ends_again);
        if ended {
            task.ended_at = Some(now);
            task.locked_by = None;
            task.paused_at = None;
        }
        // One wake for each call that the undo has come to wait for.
        let waited_before: BTreeSet<_> = before.undo_waits(now).collect();
        for until in task.undo_waits(now).filter(|until| !waited_before.contains(until)) {
            let pause = Duration::try_from(until.duration_since(now)).unwrap_or_default();
            if pause <= limits::QUEUE_DELAY_MAX {
                self.wakes.insert(pause);
            }
        }
        if is_final || task.paused_at.is_some() {
            self.wakes.clear();
        }
        self.keep_long_enough();
        let task = &mut self.task;
        let pickup_within = self.context.timing.pickup_within;
        let mut deadline = task.earliest_deadline(now, pickup_within);
        if task.process_state == ProcessState::Pending && task.paused_at.is_none() {
            deadline = deadline.min(later(now, pickup_within));
        }
        if let Some(first) = self.wakes.first() {
            deadline = deadline.min(later(later(now, *first), pickup_within));
        }
        task.due = match task.process_state {
            ProcessState::Pending | ProcessState::Processing | ProcessState::Undoing => {
                let before = task.due.filter(|_| !self.due_anew);
                Some(before.map_or(deadline, |due| due.min(deadline)))
            }
            ProcessState::Processed | ProcessState::Undone => None,
            // Due until the alert is out, so that a crash before it is made good.
            ProcessState::Error if ended => Some(later(now, pickup_within)),
            ProcessState::Error => task.due,
        };
        let mut effects = requests;
        if ended {
            effects.extend(ending(self.sources()));
        }
        effects.extend(self.tell);
        let (task_id, cause) = (&self.task.task_id, self.wake_cause);
        let wake = |after: Duration| Effect::Wake {
            wake: Wake { task_id: task_id.clone(), cause },
            after,
        };
        effects.extend(self.wakes.into_iter().map(wake));
        Transition::Apply { task: Box::new(self.task), documents: self.documents, effects }
    }
}

/// Whether there is anything to start, or to find out: no document is read for it.
pub(crate) fn would_go_on(workflow: &Workflow, task: &Task, context: Context<'_>) -> bool {
    let nothing = Documents::new();
    let desk = Desk::new(&nothing);
    let mut trial = Change::of(workflow, task, context, &desk);
    trial.advance();
    let goes_on = trial.task != *task;
    drop(trial);
    goes_on || !desk.wanted().is_empty()
}

/// By when a heartbeat or the answer must be heard.
fn heard_by(now: Timestamp, callback: &Callback, answer_by: Timestamp) -> Timestamp {
    callback.heartbeat.map_or(answer_by, |heartbeat| later(now, heartbeat).min(answer_by))
}

/// How far doing or undoing a part has come; it begins if it has not. Nothing if there is no such
/// part: of the items of a step the scheduler begins one after the other.
pub(crate) fn begun<'t>(
    task: &'t mut Task,
    part: &Part,
    action: Action,
    now: Timestamp,
) -> Option<&'t mut Progress> {
    let nothing = StepState::waiting(0, now);
    if part.item.is_none() {
        task.steps.entry(part.step.clone()).or_insert_with(|| StepRecord::new(nothing.clone()));
    }
    let record = task.record_mut(part)?;
    Some(match action {
        Action::Do => &mut record.run,
        Action::Undo => record.undo.get_or_insert_with(|| Progress::new(nothing)),
    })
}

/// How much longer each waiting step, or undo, waits, and how much longer a call may be in progress
/// that the undo waits for.
pub(crate) fn waits(task: &Task, now: Timestamp) -> impl Iterator<Item = Duration> {
    let direction = task.direction();
    let waiting = task.actions().filter(move |(_, action, _)| *action == direction);
    let waiting = waiting.filter_map(|(_, _, progress)| progress.state.waits_until());
    waiting
        .chain(task.undo_waits(now))
        .map(move |until| Duration::try_from(until.duration_since(now)).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        engine::{event::Event, transition::transition},
        model::time::Timing,
        submission::{accept, parse},
    };

    /// What is made of a task of one step that has 30 seconds, by what happens after so many seconds.
    fn documents(happens: &[(i64, Event)]) -> Vec<Document> {
        let workflow: Workflow = serde_json::from_value(json!({
            "name": "w", "version": 1, "complete_within": "10m",
            "steps": { "a": { "agent": "a", "complete_within": "30s", "request": { "path": "/a" } } },
        }))
        .unwrap();
        let submission = parse(r#"{ "task_id": "t", "workflow": "w" }"#).unwrap();
        let timing = Timing {
            pickup_within: Duration::ZERO,
            clock_skew: Duration::ZERO,
            retention: Timing::RETENTION,
        };
        let (mut task, submitted) =
            accept(&submission, &workflow, None, Timestamp::UNIX_EPOCH, timing);
        let (at_hand, mut made) = (Documents::from([(submitted.key, submitted.body)]), Vec::new());
        for (seconds, event) in happens {
            let now = Timestamp::from_second(*seconds).unwrap();
            let context = Context { now, actor: "test", redelivered: false, timing };
            match transition(&workflow, &task, &at_hand, event, context).unwrap() {
                Transition::Apply { task: next, documents, .. } => {
                    task = *next;
                    made.extend(documents);
                }
                other @ (Transition::Ignore { .. } | Transition::Illegal(_)) => panic!("{other:?}"),
            }
        }
        made
    }

    fn completed(times: AttemptTimes) -> Event {
        Event::Replied(StepReply {
            task_id: "t".parse().unwrap(),
            step: "a".parse().unwrap(),
            action: Action::Do,
            attempt: 1,
            outcome: Outcome::Completed { output: Value::Null, may_continue: false },
            incarnation: None,
            times,
        })
    }

    fn at(second: i64) -> Option<Timestamp> {
        Timestamp::from_second(second).ok()
    }

    #[test]
    fn the_times_that_an_agent_says_are_kept_with_its_answer() {
        let times = AttemptTimes { queued_at: at(6), called_at: at(7), answered_at: at(8) };
        let made = documents(&[(5, Event::Wake), (9, completed(times))]);
        assert_eq!(made.iter().map(|made| made.times).collect::<Vec<_>>(), [times]);
    }

    #[test]
    fn when_an_attempt_was_sent_is_known_also_of_an_agent_that_does_not_say_or_is_silent() {
        let sent = AttemptTimes { queued_at: at(5), ..AttemptTimes::default() };
        for end in [(9, completed(AttemptTimes::default())), (36, Event::Swept)] {
            let made = documents(&[(5, Event::Wake), end]);
            assert_eq!(made.iter().map(|made| made.times).collect::<Vec<_>>(), [sent]);
        }
    }
}
