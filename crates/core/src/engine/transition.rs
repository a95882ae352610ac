//! The entry point of the decision engine. Given a task, its workflow and an event, [`transition`] returns the next
//! state of the task, and the messages to send. It is pure: no clock, no I/O, no randomness.
//!
//! | state      | event                              | becomes                | and                          |
//! | ---------- | ---------------------------------- | ---------------------- | ---------------------------- |
//! | Pending    | wake                               | Processing, Processed  | first steps run or complete  |
//! | Pending    | wake, impossible                   | Undoing, Error         | the policy decides           |
//! | Pending    | swept, nothing past due            | Pending                | due later; wake              |
//! | Pending    | swept, task past due               | Undoing, Error         | the workflow decides         |
//! | Pending    | undo                               | Undoing, Undone        | Undoing only while paused    |
//! | Pending    | asked to be undone                 | Undoing, Undone        | Undoing only while paused    |
//! | Pending    | cancel                             | Error                  | alert                        |
//! | Pending    | pause                              | Pending                | nothing starts               |
//! | Pending    | resume                             | Pending, Processing    | as a wake, unless overdue    |
//! | Pending    | resume, impossible                 | Undoing, Error         | the policy decides           |
//! | Pending    | corrupt reply                      | illegal                |                              |
//! | Processing | wake                               | Processing, Processed  | waiting steps run, complete  |
//! | Processing | wake, impossible                   | Undoing, Error         | the policy decides           |
//! | Processing | step completed                     | Processing, Processed  | successors run               |
//! | Processing | step completed                     | Error                  | at two agents; alert         |
//! | Processing | step completed, impossible         | Undoing, Error         | the policy decides           |
//! | Processing | step failed                        | Undoing, Undone, Error | the policy decides           |
//! | Processing | step failed, impossible            | Error                  | undo incomplete; alert       |
//! | Processing | step deferred                      | Processing             | waits, not counted; wake     |
//! | Processing | step unknown                       | Processing             | failure counted, waits; wake |
//! | Processing | step ran after all                 | Processing, Error      | recorded                     |
//! | Processing | swept, nothing past due            | Processing             | due later; wake              |
//! | Processing | swept, step past due               | Processing             | failure counted, waits; wake |
//! | Processing | swept, attempts used up            | Undoing, Error         | the policy decides           |
//! | Processing | swept, task past due               | Undoing, Error         | the workflow decides         |
//! | Processing | resubmit                           | Processing             | waiting parts run now        |
//! | Processing | skip/complete                      | Processing, Processed  | successors run               |
//! | Processing | resubmit/skip/complete, impossible | Undoing, Error         | the policy decides           |
//! | Processing | undo                               | Undoing, Undone        | undos run                    |
//! | Processing | asked to be undone                 | Undoing, Undone, Error | undos run                    |
//! | Processing | heartbeat                          | Processing             | awaited longer               |
//! | Processing | undo, impossible                   | Error                  | undo incomplete; alert       |
//! | Processing | cancel                             | Error                  | alert                        |
//! | Processing | pause                              | Processing             | nothing starts               |
//! | Processing | resume                             | Processing, Processed  | ready steps run              |
//! | Processing | resume, impossible                 | Undoing, Error         | the policy decides           |
//! | Processing | corrupt reply                      | illegal                |                              |
//! | Undoing    | wake                               | Undoing, Undone, Error | undos run                    |
//! | Undoing    | wake, impossible                   | Error                  | undo incomplete; alert       |
//! | Undoing    | step completed                     | Undoing, Undone, Error | recorded; undos run          |
//! | Undoing    | step failed                        | Undoing, Undone, Error | recorded; undos run          |
//! | Undoing    | step completed, impossible         | Error                  | undo incomplete; alert       |
//! | Undoing    | step failed, impossible            | Error                  | undo incomplete; alert       |
//! | Undoing    | step ran after all                 | Undoing, Error         | recorded; undos run          |
//! | Undoing    | undo completed                     | Undoing, Undone, Error | predecessors are undone      |
//! | Undoing    | undo completed, impossible         | Error                  | undo incomplete; alert       |
//! | Undoing    | undo failed                        | Error                  | undo incomplete; alert       |
//! | Undoing    | undo deferred                      | Undoing                | waits, not counted; wake     |
//! | Undoing    | undo unknown                       | Undoing                | failure counted, waits; wake |
//! | Undoing    | swept, nothing past due            | Undoing                | due later; wake              |
//! | Undoing    | swept, step past due               | Undoing                | counted; an undo waits; wake |
//! | Undoing    | swept, attempts used up            | Error                  | undo incomplete; alert       |
//! | Undoing    | swept, task past due               | Error                  | undo incomplete; alert       |
//! | Undoing    | asked to be undone                 | Undoing, Undone, Error | as a wake                    |
//! | Undoing    | heartbeat                          | Undoing                | awaited longer               |
//! | Undoing    | resubmit                           | Undoing                | waiting parts run now        |
//! | Undoing    | skip/complete                      | Undoing, Undone        | predecessors are undone      |
//! | Undoing    | resubmit/skip/complete, impossible | Error                  | undo incomplete; alert       |
//! | Undoing    | cancel                             | Error                  | undo incomplete; alert       |
//! | Undoing    | pause                              | Undoing                | nothing starts               |
//! | Undoing    | resume                             | Undoing, Undone, Error | as a wake                    |
//! | Undoing    | resume, impossible                 | Error                  | undo incomplete; alert       |
//! | Undoing    | corrupt reply                      | illegal                |                              |
//! | Processed  | undo                               | Undoing, Undone        | undos run                    |
//! | Processed  | asked to be undone                 | Undoing, Undone        | undos run                    |
//! | Processed  | undo, impossible                   | Error                  | undo incomplete; alert       |
//! | Processed  | step ran after all                 | Processed, Error       | recorded                     |
//! | Processed  | corrupt reply                      | illegal                |                              |
//! | Undone     | step ran after all                 | Error                  | undo incomplete; alert       |
//! | Undone     | undo failed                        | Error                  | its child task ran after all |
//! | Undone     | corrupt reply                      | illegal                |                              |
//! | Error      | any reply                          | Error                  | recorded; nothing starts     |
//! | Error      | step ran after all                 | Error                  | recorded                     |
//! | Error      | swept, alert unsent                | Error                  | alert again                  |
//! | Error      | alert sent                         | Error                  | no longer due                |
//! | Error      | resubmit/skip/complete             | any but Pending        | continues where it stopped   |
//! | Error      | resubmit/skip/complete, impossible | Undoing, Error         | the policy decides           |
//! | Error      | undo                               | Undoing, Undone        | undos run                    |
//! | Error      | asked to be undone                 | Undoing, Undone        | undos run                    |
//! | Error      | heartbeat                          | Error                  | awaited longer               |
//! | Error      | undo, impossible                   | Error                  | undo incomplete; alert       |
//! | Error      | corrupt reply                      | illegal                |                              |
//! | any        | command refused                    | the same               | recorded                     |
//!
//! Each state and each event in a cell stands for one transition. The events mean:
//!
//! - *step completed*, *failed*, *deferred*, *unknown*: the outcome of a step, from an agent's reply, a callback, or the end
//!   of its child task. *Undo completed* and so on: the outcome of its undo.
//! - *step failed* includes an output over a limit, a deferral of a step that must not be repeated, and an unknown outcome
//!   after all attempts have been used.
//! - *unknown*: the agent cut a call, which may still be in progress at the service. The same holds without a reply, and
//!   after a failure or a deferral that may have run. The undo of the step, and those of its predecessors, wait until the
//!   call can no longer be in progress.
//! - *step ran after all*: a step that was recorded as one that did not run took effect, or may have. If its agent had
//!   refused it for certain, and the step has moved on to another agent, the task stops in Error.
//! - *impossible*: the request of the next step, or the output of the task, cannot be rendered.
//! - *undo*, *resubmit*, *skip*, *complete*, *cancel*, *pause*, *resume*: the commands of an operator.
//! - *asked to be undone*: the parent task requests the undo of this child task. A request to do it acts like a wake.
//!
//! Where a row of Undoing lists Error beside other states, the task goes to Error if it has passed its point of no return,
//! or if a stray effect remains: one at another agent, or before an edit of the input. Every end notifies the client, every Error sends an alert, and every command is published. All other events are ignored, with
//! a [reason](crate::engine::decision::IgnoreReason).
//!
//! A duplicate, and a reply to an attempt that was superseded or abandoned, are ignored. A late reply counts while
//! its attempt is the newest: any reply until the attempt is abandoned, and a reply that it completed also while the
//! step waits for the next attempt. The task is saved before anything is sent, so a process that crashes may lose the
//! effects of a message. If an ignored message was delivered before, these effects are therefore sent again.

use std::time::Duration;

use jiff::Timestamp;

use crate::{
    definition::{plan::Plan, size},
    engine::{
        advance::{advance, has_work_to_start, request_recovery},
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
        outcome::{self, NO_REPLY},
        redelivery::wake,
        render::render_requests,
        replies::{ChildReport, callback_received, child_ended, reply_received},
        request::render_request,
        task_change::{Inputs, TaskChange},
        undo,
        values::DocumentCache,
    },
    limits,
    model::{
        attempt::{Action, AttemptId},
        command::ReceivedCommand,
        messages::{StepReply, WakeCause},
        task::{ProcessState, Task},
        time::later,
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
    let inputs = Inputs { plan, context, documents: &cache, wait_tolerance: Duration::ZERO };
    let input = DecisionInput { task, inputs };
    let transition = match input.decide(event) {
        PendingDecision::Change(mut change) => {
            change.notifications.extend(input.lost_although_it_changes(event));
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
    if task.process_state.has_stopped() {
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
    let inputs = Inputs { plan, context, documents: &cache, wait_tolerance: Duration::ZERO };
    let mut change = TaskChange::new(inputs, task);
    change.fail_task(&format!(
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
            Event::Swept => self.alert_again(),
            Event::AlertPublished { ended_at }
                if in_error && self.task.due.is_some() && is_end(self.task, *ended_at) =>
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
    /// a sweep is no message.
    fn lost_although_it_changes(&self, event: &Event) -> Vec<Effect> {
        match event {
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
    /// that stop an ended task again, because an effect came to light: what DynamoDB accepts beyond the limit is for them.
    fn within_size(&self, decided: Transition, event: &Event) -> Transition {
        let is_report = !matches!(event, Event::CommandReceived(_));
        let stops_again = |task: &Task| {
            is_report && self.task.process_state.has_stopped() && task.error != self.task.error
        };
        let grows = match &decided {
            Transition::Apply { task, .. } => {
                size::is_over_limit(task)
                    && size::task_bytes(task) > size::task_bytes(self.task)
                    && !stops_again(task)
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
        PendingDecision::ignore_and(IgnoreReason::Ended, Vec::new(), notify)
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
        change.inputs.wait_tolerance = self.inputs.context.timing.clock_skew;
        advance(&mut change);
        if change.task == *task {
            let events = self.lost_events_if_redelivered(&MayHaveLost::Wake);
            return PendingDecision::ignore_and(IgnoreReason::NothingReady, again, events);
        }
        // Also send the requests that the first delivery may have lost.
        change.send_again(again);
        PendingDecision::Change(change)
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
        notify.extend(self.lost_notifications_and_wakes(&MayHaveLost::Command));
        PendingDecision::ignore_and(reason, self.lost_requests(), notify)
    }

    /// Counts a failure for every attempt that is past its complete-by, applies the recovery policies, and wakes the
    /// scheduler.
    fn sweep(&self) -> PendingDecision<'a> {
        let context = self.inputs.context;
        let mut change = self.change();
        change.recompute_due = true;
        if self.task.process_state == ProcessState::Undoing {
            // No message is redelivered if a supervisor crashed after it had failed a step.
            change.notifications = self.lost_events(&MayHaveLost::Sweep);
        }
        let overdue =
            self.task.awaited_attempts().filter(|(.., complete_by)| context.is_past(*complete_by));
        for (step, action, number, _) in overdue {
            change.task.locked_by = None;
            outcome::abandon_attempt(&mut change, AttemptId { step, action, number }, NO_REPLY);
        }
        if change.task.paused_at.is_none() && context.is_past(change.task.complete_by) {
            outcome::expire(&mut change);
        }
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

    fn alert_again(&self) -> PendingDecision<'a> {
        let context = self.inputs.context;
        let mut change = self.change();
        change.notifications = self.lost_notifications(&MayHaveLost::Sweep);
        change.task.due = Some(later(context.now, context.timing.pickup_within));
        PendingDecision::Change(change)
    }

    fn alert_sent(&self) -> PendingDecision<'a> {
        let mut change = self.change();
        change.task.due = None;
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
