//! The entry point of the decision engine. Given a task, its workflow and an event, [`transition`] returns the next
//! state of the task, and the messages to send. It is pure: no clock, no I/O, no randomness.
//!
//! | state                                 | event                                                 | becomes                | and                          |
//! | ------------------------------------- | ----------------------------------------------------- | ---------------------- | ---------------------------- |
//! | Pending                               | wake                                                  | Processing, Processed  | first steps run or complete  |
//! | Pending                               | resume                                                | Pending, Processing    | as a wake, unless overdue    |
//! | Pending, Processing                   | wake/resume, impossible                               | Undoing, Error         | the policy decides           |
//! | Pending, Processing                   | swept, task past due                                  | Undoing, Error         | the workflow decides         |
//! | Pending, Processing, Undoing          | swept, nothing past due                               | the same               | due later; wake              |
//! | Pending, Processing, Undoing          | pause                                                 | the same               | nothing starts               |
//! | Pending, Processing, Undoing          | cancel                                                | Error                  | alert; nothing goes on       |
//! | Pending, Processing, Processed, Error | undo                                                  | Undoing, Undone        | undos run                    |
//! | Pending, Processed, Error             | asked to be undone                                    | Undoing, Undone        | undos run                    |
//! | Processing                            | wake/step completed/resume/skip/complete              | Processing, Processed  | ready steps run              |
//! | Processing                            | step completed, impossible                            | Undoing, Error         | the policy decides           |
//! | Processing                            | step failed                                           | Undoing, Undone, Error | the policy decides           |
//! | Processing                            | step failed                                           | Processing             | goes on without the step     |
//! | Processing                            | step failed, impossible                               | Error                  | undo incomplete; alert       |
//! | Processing                            | step deferred/step unknown                            | Processing             | waits; wake                  |
//! | Processing                            | step deferred                                         | Undoing, Error         | too long: workflow decides   |
//! | Processing                            | step ran after all                                    | Processing, Error      | recorded                     |
//! | Processing                            | swept, attempts used up                               | Undoing, Error         | the policy decides           |
//! | Processing, Undoing, Error            | swept, step past due                                  | the same               | failure counted, waits; wake |
//! | Processing, Undoing, Error            | heartbeat                                             | the same               | awaited longer               |
//! | Processing, Undoing                   | resubmit                                              | the same               | waiting parts run now        |
//! | Processing, Undoing                   | asked to be undone                                    | Undoing, Undone, Error | undos run                    |
//! | Processing, Error                     | resubmit/skip/complete, impossible                    | Undoing, Error         | the policy decides           |
//! | Processing, Processed, Error          | undo, impossible                                      | Error                  | undo incomplete; alert       |
//! | Undoing                               | wake/step completed/step failed/undo completed/resume | Undoing, Undone, Error | undos run                    |
//! | Undoing                               | wake/resume/resubmit/skip/complete, impossible        | Error                  | undo incomplete; alert       |
//! | Undoing                               | step completed/step failed/undo completed, impossible | Error                  | undo incomplete; alert       |
//! | Undoing                               | undo deferred/undo unknown                            | Undoing                | waits; wake                  |
//! | Undoing                               | undo deferred                                         | Error                  | too long; undo incomplete    |
//! | Undoing                               | skip/complete                                         | Undoing, Undone        | predecessors are undone      |
//! | Undoing                               | swept, attempts used up                               | Error                  | undo incomplete; alert       |
//! | Undoing                               | swept, task past due                                  | Error                  | undo incomplete; alert       |
//! | Undoing, Undone                       | step ran after all                                    | Undoing, Error         | it is undone too; or alert   |
//! | Undoing                               | step ran after all                                    | Undone                 | it has no undo               |
//! | Undoing, Undone                       | undo failed                                           | Error                  | undo incomplete; alert       |
//! | Undoing, Undone                       | step ran after all, impossible                        | Error                  | undo incomplete; alert       |
//! | Processed                             | step ran after all                                    | Error                  | a second effect; alert       |
//! | Error                                 | wake                                                  | Error                  | what has started goes on     |
//! | Error                                 | any reply/step ran after all                          | Error                  | recorded                     |
//! | Error                                 | step failed                                           | Undoing, Undone        | an undo wins over an alert   |
//! | Error                                 | swept, nothing past due                               | Error                  | due later; alert again; wake |
//! | Error                                 | swept, attempts used up                               | Undoing                | an undo wins over an alert   |
//! | Error                                 | resolve                                               | Error                  | it may expire                |
//! | Error                                 | alert sent                                            | Error                  | no longer due for it         |
//! | Error                                 | resubmit/skip/complete                                | any but Pending        | continues where it stopped   |
//! | Processed, Undone, Error              | rerun                                                 | the same               | submits a new task           |
//! | any                                   | command refused                                       | the same               | recorded                     |
//! | any                                   | corrupt reply                                         | illegal                |                              |
//!
//! Each state and each event in a cell stands for one transition. The events mean:
//!
//! - *step completed*, *failed*, *deferred*, *unknown*: the outcome of a step, from an agent's reply, a callback, or the end
//!   of its child task. *Undo completed* and so on: the outcome of its undo.
//! - *step failed* includes an output over a limit, a deferral of a step that must not be repeated, an unknown outcome
//!   after all attempts have been used, and one after which the next attempt would begin after the time limit of the step.
//! - *too long*: the next attempt would begin after the task's complete-by, so the task is overdue at once.
//! - *unknown*: the agent cut a call, which may still be in progress at the service. The same holds without a reply, and
//!   after a failure or a deferral that may have run. The undo of the step, and those of its predecessors, wait until the
//!   call can no longer be in progress.
//! - *step ran after all*: a step that was recorded as one that did not run took effect, or may have. A task that is being
//!   undone, or is Undone, undoes it too. A task that goes forward stops in Error if the step has another
//!   [idempotency key](crate::model::earlier_key) by now: what it goes on with would be a second effect.
//! - In Error, what has started goes on to its end: an attempt in progress, a callback, the next attempt after a pause. No
//!   other step starts, and no other undo. If a step then fails whose policy is `undo`, the task is undone. So the end does not
//!   depend on which of two branches fails first. Nothing goes on in a task that was cancelled, or whose record is full.
//! - *impossible*: the request of the next step, or the output of the task, cannot be rendered.
//! - *undo*, *resubmit*, *skip*, *complete*, *cancel*, *resolve*, *pause*, *resume*, *rerun*: the commands of an operator.
//! - *asked to be undone*: the parent task requests the undo of this child task. A request to do it acts like a wake.
//!
//! Where a row of Undoing lists Error beside other states, the task goes to Error if it has passed its point of no return,
//! or if a step ran beside its completion by an operator. Every end notifies the client, every Error sends an alert, and every command is published. All other events are ignored, with
//! a [reason](crate::engine::decision::IgnoreReason).
//!
//! A duplicate, and most replies to an attempt that was superseded or abandoned, are ignored. A late reply counts until its
//! attempt is abandoned. A reply that it completed counts until the undo of the step is requested, also while the next attempt
//! with the same idempotency key waits or runs. The task is saved before anything is sent, so a process that crashes may lose the
//! effects of a message. If an ignored message was delivered before, these effects are therefore sent again.

use std::time::Duration;

use jiff::Timestamp;

use crate::{
    definition::{plan::Plan, size},
    engine::{
        advance::{advance, has_work_to_start, request_recovery},
        child_report::{ChildReport, child_ended},
        decision::{DecisionContext, IgnoreReason, Transition},
        decision_input::{DecisionInput, PendingDecision},
        documents::{LoadedDocuments, NeededDocuments},
        effect::Effect,
        event::Event,
        finish::finish,
        graph::{self, PointOfNoReturn},
        invariants::{check_decision, decision::Decision},
        lifecycle::MayHaveLost,
        notify::{parent_notification, parent_notification_not_undone},
        operate::{apply_command, command_event, refused_record},
        outcome,
        redelivery::wake,
        render::render_requests,
        replies::{callback_received, reply_received},
        request::render_request,
        rerun::submission,
        task_change::{Inputs, TaskChange, remaining_waits},
        undo,
        values::DocumentCache,
    },
    limits,
    model::{
        attempt::{Action, AttemptId},
        command::{CommandAction, ReceivedCommand},
        messages::{NO_REPLY, StepReply, WakeCause},
        task::{ProcessState, Task},
    },
};

/// Decides how a task reacts to an event.
///
/// # Errors
/// The keys of further documents that the decision needs. Nothing is decided then: load them, and call this function
/// again.
pub fn transition(
    plan: &Plan,
    task: &Task,
    documents: &LoadedDocuments,
    event: &Event,
    context: DecisionContext<'_>,
) -> Result<Transition, NeededDocuments> {
    if let Some(unknown) = plan.unknown_step(task) {
        let reason =
            format!("the task has a record of step `{unknown}`, which its workflow does not have");
        return Ok(Transition::Illegal(reason));
    }
    let cache = DocumentCache::new(documents);
    let inputs = Inputs { plan, context, documents: &cache };
    let input = DecisionInput { task, inputs };
    let transition = match input.decide(event) {
        PendingDecision::Change(mut change) => {
            let stays_in_error =
                change.task.process_state == ProcessState::Error && !change.ends_again();
            change.notifications.extend(input.lost_although_it_changes(event, stays_in_error));
            let requests = render_requests(&mut change);
            finish(change, task, requests)
        }
        PendingDecision::Ignore { reason, resend, notify } => {
            // These requests may have been sent before.
            let requests = resend
                .iter()
                .filter_map(|(part, action)| render_request(input.sources(), part, *action).ok())
                .map(Effect::into_resent);
            Transition::Ignore { reason, effects: requests.chain(notify).collect() }
        }
        PendingDecision::Illegal(reason) => Transition::Illegal(reason),
    };
    let needed = cache.needed();
    if !needed.is_empty() {
        return Err(NeededDocuments(needed));
    }
    let violated =
        || check_decision(&Decision::new(plan, task, event, &transition, context)?).err();
    debug_assert_eq!(violated(), None, "by `{}`", event.name());
    Ok(input.within_size(transition, event))
}

/// Stops a task in Error, with an alert, because its next state would be too large to save. If the task has ended
/// already, nothing is recorded, and a command is refused with an event.
#[must_use]
pub fn stop_for_size(
    plan: &Plan,
    task: &Task,
    event: &Event,
    context: DecisionContext<'_>,
) -> Transition {
    let limit = limits::TASK_ITEM_BYTES_MAX / 1_000;
    let is_command = matches!(event, Event::CommandReceived(_));
    if task.process_state.has_stopped() && (is_command || !task.goes_on()) {
        let effects = match event {
            Event::CommandReceived(command) => {
                let reason = format!("the task's record is full: its limit is {limit} KB");
                vec![command_event(task, &refused_record(command, &reason, context.now))]
            }
            Event::Wake
            | Event::ReplyReceived(_)
            | Event::Swept
            | Event::CallbackReceived { .. }
            | Event::ParentRequested(_)
            | Event::ChildEnded { .. }
            | Event::AlertPublished { .. } => Vec::new(),
        };
        return Transition::Ignore { reason: IgnoreReason::NoRoom, effects };
    }
    let no_documents = LoadedDocuments::new();
    let cache = DocumentCache::new(&no_documents);
    let inputs = Inputs { plan, context, documents: &cache };
    let mut change = TaskChange::new(inputs, task);
    change.halt_task(&format!(
        "the task's record would be larger than {limit} KB: an operator has to complete the rest by hand"
    ));
    finish(change, task, Vec::new())
}

impl<'a> DecisionInput<'a, '_> {
    fn decide(&self, event: &Event) -> PendingDecision<'a> {
        match event {
            Event::ReplyReceived(reply) => return reply_received(self, reply),
            Event::CallbackReceived { step, edit, outcome } => {
                return callback_received(self, step, edit.as_ref(), outcome);
            }
            Event::ChildEnded { step, outcome, attempt, child, revision } => {
                let (refused, child, revision) = (*attempt, child.as_ref(), *revision);
                let report = ChildReport { outcome, refused, child, revision };
                return child_ended(self, step, report);
            }
            Event::CommandReceived(command) => return self.commanded(command),
            Event::ParentRequested(Action::Undo) => return self.undo_for_parent(),
            Event::Wake
            | Event::ParentRequested(Action::Do)
            | Event::Swept
            | Event::AlertPublished { .. } => {}
        }
        match self.task.process_state {
            ProcessState::Pending | ProcessState::Processing | ProcessState::Undoing => {
                self.decide_in_progress(event)
            }
            ProcessState::Processed | ProcessState::Undone | ProcessState::Error => {
                self.decide_ended(event)
            }
        }
    }

    fn decide_in_progress(&self, event: &Event) -> PendingDecision<'a> {
        match event {
            Event::Swept if !self.is_due() => self.not_due(),
            Event::Swept => self.sweep(),
            // An operator reopened the task before the alert was recorded.
            Event::AlertPublished { .. } => PendingDecision::ignore(IgnoreReason::NotDue),
            Event::Wake
            | Event::ParentRequested(_)
            | Event::ReplyReceived(_)
            | Event::CallbackReceived { .. }
            | Event::ChildEnded { .. }
            | Event::CommandReceived(_) => self.advance_task(),
        }
    }

    fn decide_ended(&self, event: &Event) -> PendingDecision<'a> {
        let in_error = self.task.process_state == ProcessState::Error;
        match event {
            Event::ParentRequested(_) => self.notify_parent(),
            Event::Swept if !in_error => self.ended(&MayHaveLost::Sweep),
            Event::Swept if !self.is_due() => self.not_due(),
            Event::Swept => self.sweep(),
            Event::Wake if in_error && self.task.goes_on() => self.advance_task(),
            Event::AlertPublished { ended_at }
                if self.task.is_alert_due && is_end(self.task, *ended_at) =>
            {
                self.alert_sent()
            }
            // The alert is recorded already, or belongs to an earlier end.
            Event::AlertPublished { .. } => PendingDecision::ignore(IgnoreReason::NotDue),
            Event::Wake
            | Event::ReplyReceived(_)
            | Event::CallbackReceived { .. }
            | Event::ChildEnded { .. }
            | Event::CommandReceived(_) => self.ended(&MayHaveLost::Wake),
        }
    }

    /// The lifecycle events that an earlier delivery of `event` may have lost, if this delivery changes the task again: a
    /// wait, a deadline or another message has become due since. A command that is not on record was never saved, and
    /// a sweep is no message. An earlier delivery of a wake may have stopped the task in Error too.
    fn lost_although_it_changes(&self, event: &Event, stays_in_error: bool) -> Vec<Effect> {
        match event {
            Event::Wake if stays_in_error && self.task.process_state == ProcessState::Error => {
                self.notifications_if_redelivered(&MayHaveLost::Wake)
            }
            Event::Wake | Event::ParentRequested(_) => {
                self.lost_events_if_redelivered(&MayHaveLost::Wake)
            }
            Event::ReplyReceived(StepReply { step, .. })
            | Event::CallbackReceived { step, .. }
            | Event::ChildEnded { step, .. } => {
                self.lost_events_if_redelivered(&MayHaveLost::Reply(&step.step))
            }
            Event::CommandReceived(_) | Event::Swept | Event::AlertPublished { .. } => Vec::new(),
        }
    }

    /// Replaces a decision that makes the task's item larger, and larger than its limit: the task stops in Error, which
    /// needs little space. If the task has ended, it stays as it is. Decisions up to the limit are not replaced, nor those
    /// that stop an ended task again or undo it further, because an effect came to light, nor
    /// what settles an Error: what DynamoDB accepts beyond the limit is for them.
    fn within_size(&self, decided: Transition, event: &Event) -> Transition {
        let is_report = !matches!(event, Event::CommandReceived(_));
        let settles = matches!(event, Event::CommandReceived(received) if received.command.action == CommandAction::Resolve);
        let stops_again = |task: &Task| {
            let is_undone_further = task.process_state == ProcessState::Undoing;
            let changes = task.error != self.task.error || is_undone_further;
            is_report && self.task.process_state.has_stopped() && changes
        };
        let grows = match &decided {
            Transition::Apply { task, .. } => {
                size::is_over_limit(task)
                    && size::task_bytes(task) > size::task_bytes(self.task)
                    && !stops_again(task)
                    && !settles
            }
            Transition::Ignore { .. } | Transition::Illegal(_) => false,
        };
        if !grows {
            return decided;
        }
        stop_for_size(self.inputs.plan, self.task, event, self.inputs.context)
    }

    /// Decides on a wake of a task that has ended. An earlier delivery of the wake may have ended the task: because a
    /// request could not be rendered, or because nothing remained to be undone. A wake of an agent whose service is
    /// silent may have ended it like a sweep.
    fn ended(&self, cause: &MayHaveLost<'_>) -> PendingDecision<'a> {
        let notify = self.notifications_if_redelivered(cause);
        PendingDecision::ignore_and(IgnoreReason::Ended, Vec::new(), notify)
    }

    /// The notifications of the end and the lifecycle events, if the message was delivered before.
    fn notifications_if_redelivered(&self, cause: &MayHaveLost<'_>) -> Vec<Effect> {
        if self.redelivered() { self.lost_notifications(cause) } else { Vec::new() }
    }

    /// Reports the outcome of this ended task to its parent, which requested it. An earlier delivery of the request
    /// may have ended the task, so a redelivered request sends all notifications of the end again.
    fn notify_parent(&self) -> PendingDecision<'a> {
        let mut notify = self.notifications_if_redelivered(&MayHaveLost::Wake);
        if !notify.iter().any(|effect| matches!(effect, Effect::ChildEnded(_))) {
            notify.extend(parent_notification(self.sources(), self.task.revision));
        }
        let again = if self.redelivered() { self.lost_requests() } else { Vec::new() };
        PendingDecision::ignore_and(IgnoreReason::Ended, again, notify)
    }

    /// Undoes this task, because its parent is being undone.
    fn undo_for_parent(&self) -> PendingDecision<'a> {
        let task = self.task;
        if task.direction() == Action::Undo {
            let has_stopped = task.process_state.has_stopped();
            return if has_stopped { self.notify_parent() } else { self.advance_task() };
        }
        let mut change = self.change();
        if task.process_state.has_stopped() {
            let point_of_no_return = graph::point_of_no_return(self.inputs.plan, task);
            if let PointOfNoReturn::Passed(step) = point_of_no_return {
                if task.process_state == ProcessState::Error && self.redelivered() {
                    return self.notify_parent();
                }
                let notify = parent_notification_not_undone(task, &step).into_iter().collect();
                return PendingDecision::ignore_and(IgnoreReason::Ended, Vec::new(), notify);
            }
            change.reopen();
        }
        let parent = task.parent.as_ref().map(|parent| parent.task_id.to_string());
        change.recompute_due = true;
        let reason = format!("requested by task {}", parent.unwrap_or_default());
        undo::begin(&mut change, &reason);
        advance(&mut change);
        PendingDecision::Change(change)
    }

    /// Starts what can start: steps whose predecessors completed, undos whose successors are undone, and parts whose
    /// wait has ended.
    fn advance_task(&self) -> PendingDecision<'a> {
        let task = self.task;
        let again = if self.redelivered() { self.lost_requests() } else { Vec::new() };
        let mut change = self.change();
        advance(&mut change);
        let next = self.wake_of_next_wait(&change.task);
        if change.task == *task {
            let mut notify = self.notifications_if_redelivered(&MayHaveLost::Wake);
            notify.extend(next);
            return PendingDecision::ignore_and(IgnoreReason::NothingReady, again, notify);
        }
        change.notifications.extend(next);
        // Also send the requests that the first delivery may have lost.
        change.send_again(again);
        PendingDecision::Change(change)
    }

    /// The wake of the next wait, if an earlier delivery of this message may have lost it. Only of one, so that the messages do not
    /// multiply; the supervisor finds the others. And the wake of a wait follows the clock of the instance that sent it: if that
    /// clock is ahead of this one, the wake comes before the end of the wait, and another one has to follow.
    fn wake_of_next_wait(&self, task: &Task) -> Option<Effect> {
        let DecisionContext { now, redelivered, lost_starts, timing, .. } = self.inputs.context;
        let is_lost = redelivered && lost_starts.is_none();
        let may_be_early = |left: &Duration| !left.is_zero() && *left <= timing.clock_skew;
        let awaited = remaining_waits(task, now).into_iter();
        let left = awaited.filter(|left| is_lost || may_be_early(left)).min()?;
        let is_sent = task.goes_on() && left <= limits::QUEUE_DELAY_MAX;
        is_sent.then(|| wake(task, WakeCause::Waited, left))
    }

    /// Executes a command. A command that is recorded already is not executed again.
    fn commanded(&self, received: &ReceivedCommand) -> PendingDecision<'a> {
        let task = self.task;
        let on_record =
            task.commands.iter().find(|record| record.id == received.command.command_id);
        let Some(record) = on_record else {
            return PendingDecision::Change(apply_command(received, || self.change()));
        };
        let reason = IgnoreReason::DuplicateCommand;
        if !self.redelivered() {
            return PendingDecision::ignore(reason);
        }
        let mut notify = vec![command_event(task, record)];
        if record.submitted.is_some() {
            notify.extend(submission(self.sources(), &received.command.action).map(Effect::Submit));
        }
        notify.extend(self.lost_notifications_and_wakes(&MayHaveLost::Command));
        PendingDecision::ignore_and(reason, self.lost_requests(), notify)
    }

    /// Counts a failure for every attempt that is past its complete-by, applies the recovery policies, also to the parts that
    /// wait past their time limit, and wakes the scheduler.
    fn sweep(&self) -> PendingDecision<'a> {
        let context = self.inputs.context;
        let mut change = self.change();
        change.recompute_due = true;
        let is_halted = self.task.process_state == ProcessState::Error && !self.task.goes_on();
        let overdue = self
            .task
            .awaited_attempts()
            .filter(|(.., complete_by)| !is_halted && context.is_past(*complete_by));
        for (step, action, number, _) in overdue {
            change.task.locked_by = None;
            outcome::abandon_attempt(&mut change, AttemptId { step, action, number }, NO_REPLY);
        }
        let late = self.task.limited_waits().filter(|(.., limit)| context.is_past(*limit));
        for (step, action, number, _) in late.filter(|_| self.task.goes_on()) {
            outcome::give_up(&mut change, &AttemptId { step, action, number });
        }
        if change.task.paused_at.is_none() && context.is_past(change.task.complete_by) {
            outcome::expire(&mut change);
        }
        if change.plan().late_from(&change.task).is_some_and(|late| context.is_past(late)) {
            change.report_late();
        }
        // No message is redelivered if a supervisor crashed after it had failed a step, or stopped the task.
        let swept = DecisionInput { task: &change.task, inputs: self.inputs };
        let lost = match self.task.process_state {
            ProcessState::Undoing => self.lost_events(&MayHaveLost::Sweep),
            // The notifications of the new end follow.
            ProcessState::Error if change.ends_again() => swept.lost_events(&MayHaveLost::Sweep),
            ProcessState::Error => swept.lost_notifications(&MayHaveLost::Sweep),
            ProcessState::Pending
            | ProcessState::Processing
            | ProcessState::Processed
            | ProcessState::Undone => Vec::new(),
        };
        change.notifications.extend(lost);
        request_recovery(&mut change);
        PendingDecision::Change(change)
    }

    /// Ignores a sweep of a task that is no longer due. Another supervisor was faster, or an earlier save of this
    /// supervisor took effect and its response was lost. In the latter case, the effects of that save have not been
    /// sent.
    fn not_due(&self) -> PendingDecision<'a> {
        if !self.redelivered() {
            return PendingDecision::ignore(IgnoreReason::NotDue);
        }
        let mut notify = self.lost_notifications_and_wakes(&MayHaveLost::Sweep);
        let is_woken =
            |effect: &Effect| matches!(effect, Effect::Wake { after, .. } if after.is_zero());
        if has_work_to_start(self.inputs, self.task) && !notify.iter().any(is_woken) {
            notify.push(wake(self.task, WakeCause::Recovery, Duration::ZERO));
        }
        PendingDecision::ignore_and(IgnoreReason::NotDue, Vec::new(), notify)
    }

    fn alert_sent(&self) -> PendingDecision<'a> {
        let mut change = self.change();
        change.task.is_alert_due = false;
        change.recompute_due = true;
        PendingDecision::Change(change)
    }

    /// Whether the task is past due. Another supervisor may have handled it already.
    fn is_due(&self) -> bool {
        self.task.due.is_some_and(|due| self.inputs.context.is_past(due))
    }
}

/// Whether the task ended at `time`. Compares milliseconds, because the state store stores no smaller units.
fn is_end(task: &Task, time: Timestamp) -> bool {
    task.ended_at.is_some_and(|ended_at| ended_at.as_millisecond() == time.as_millisecond())
}
