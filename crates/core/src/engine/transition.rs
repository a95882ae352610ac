//! The one decision: given a task, its workflow and an event, what is the task next, and what must
//! be told to whom? Pure: no clock, no I/O, no randomness.
//!
//! | state      | event                              | becomes                | and                          |
//! | ---------- | ---------------------------------- | ---------------------- | ---------------------------- |
//! | Pending    | wake                               | Processing, Processed  | first steps run, or pass     |
//! | Pending    | wake, impossible                   | Undoing, Error         | the policy says which        |
//! | Pending    | swept, nothing past due            | Pending                | due later; wake              |
//! | Pending    | swept, task past due               | Undoing, Error         | the workflow says which      |
//! | Pending    | undo                               | Undoing, Undone        | Undoing only while paused    |
//! | Pending    | asked to be undone                 | Undone                 |                              |
//! | Pending    | cancel                             | Error                  | alert                        |
//! | Pending    | pause                              | Pending                | nothing starts               |
//! | Pending    | resume                             | Pending, Processing    | as a wake, if in time        |
//! | Pending    | resume, impossible                 | Undoing, Error         | the policy says which        |
//! | Pending    | corrupt reply                      | illegal                |                              |
//! | Processing | wake                               | Processing, Processed  | what waited runs or passes   |
//! | Processing | wake, impossible                   | Undoing, Error         | the policy says which        |
//! | Processing | step completed                     | Processing, Processed  | what comes after runs        |
//! | Processing | step completed, impossible         | Undoing, Error         | the policy says which        |
//! | Processing | step failed                        | Undoing, Undone, Error | the policy says which        |
//! | Processing | step failed, impossible            | Error                  | left to undo; alert          |
//! | Processing | step deferred                      | Processing             | waits, uncounted; wake       |
//! | Processing | step unknown                       | Processing             | counted, waits; wake         |
//! | Processing | step ran after all                 | Processing             | on record                    |
//! | Processing | swept, nothing past due            | Processing             | due moves on; wake           |
//! | Processing | swept, step past due               | Processing             | counted, waits; wake         |
//! | Processing | swept, attempts used up            | Undoing, Error         | the policy says which        |
//! | Processing | swept, task past due               | Undoing, Error         | the workflow says which      |
//! | Processing | resubmit                           | Processing             | what waits runs at once      |
//! | Processing | skip/complete                      | Processing, Processed  | what comes after runs        |
//! | Processing | resubmit/skip/complete, impossible | Undoing, Error         | the policy says which        |
//! | Processing | undo                               | Undoing, Undone        | undos run                    |
//! | Processing | asked to be undone                 | Undoing, Undone, Error | undos run                    |
//! | Processing | heartbeat                          | Processing             | awaited for longer           |
//! | Processing | undo, impossible                   | Error                  | left to undo; alert          |
//! | Processing | cancel                             | Error                  | alert                        |
//! | Processing | pause                              | Processing             | nothing starts               |
//! | Processing | resume                             | Processing, Processed  | what is ready runs           |
//! | Processing | resume, impossible                 | Undoing, Error         | the policy says which        |
//! | Processing | corrupt reply                      | illegal                |                              |
//! | Undoing    | wake                               | Undoing, Undone, Error | undos run                    |
//! | Undoing    | wake, impossible                   | Error                  | left to undo; alert          |
//! | Undoing    | step completed                     | Undoing, Undone, Error | on record; undos run         |
//! | Undoing    | step failed                        | Undoing, Undone, Error | on record; undos run         |
//! | Undoing    | step completed, impossible         | Error                  | left to undo; alert          |
//! | Undoing    | step failed, impossible            | Error                  | left to undo; alert          |
//! | Undoing    | step ran after all                 | Undoing, Error         | on record; undos run         |
//! | Undoing    | undo completed                     | Undoing, Undone        | what came before is undone   |
//! | Undoing    | undo completed, impossible         | Error                  | left to undo; alert          |
//! | Undoing    | undo failed                        | Error                  | left to undo; alert          |
//! | Undoing    | undo deferred                      | Undoing                | waits, uncounted; wake       |
//! | Undoing    | undo unknown                       | Undoing                | counted, waits; wake         |
//! | Undoing    | swept, nothing past due            | Undoing                | due moves on; wake           |
//! | Undoing    | swept, step past due               | Undoing                | counted; an undo waits; wake |
//! | Undoing    | swept, attempts used up            | Error                  | left to undo; alert          |
//! | Undoing    | swept, task past due               | Error                  | left to undo; alert          |
//! | Undoing    | resubmit                           | Undoing                | what waits runs at once      |
//! | Undoing    | skip/complete                      | Undoing, Undone        | what came before is undone   |
//! | Undoing    | resubmit/skip/complete, impossible | Error                  | left to undo; alert          |
//! | Undoing    | cancel                             | Error                  | left to undo; alert          |
//! | Undoing    | pause                              | Undoing                | nothing starts               |
//! | Undoing    | resume                             | Undoing, Undone, Error | as a wake                    |
//! | Undoing    | resume, impossible                 | Error                  | left to undo; alert          |
//! | Undoing    | corrupt reply                      | illegal                |                              |
//! | Processed  | undo                               | Undoing, Undone        | undos run                    |
//! | Processed  | asked to be undone                 | Undoing, Undone        | undos run                    |
//! | Processed  | undo, impossible                   | Error                  | left to undo; alert          |
//! | Processed  | step ran after all                 | Processed              | on record                    |
//! | Processed  | corrupt reply                      | illegal                |                              |
//! | Undone     | step ran after all                 | Error                  | left to undo; alert          |
//! | Undone     | corrupt reply                      | illegal                |                              |
//! | Error      | any reply                          | Error                  | on record; nothing starts    |
//! | Error      | step ran after all                 | Error                  | on record                    |
//! | Error      | swept, alert unsent                | Error                  | alert again                  |
//! | Error      | alert sent                         | Error                  | no longer due                |
//! | Error      | resubmit/skip/complete             | any but Pending        | goes on where it stopped     |
//! | Error      | resubmit/skip/complete, impossible | Undoing, Error         | the policy says which        |
//! | Error      | undo                               | Undoing, Undone        | undos run                    |
//! | Error      | asked to be undone                 | Undoing, Undone        | undos run                    |
//! | Error      | heartbeat                          | Error                  | awaited for longer           |
//! | Error      | undo, impossible                   | Error                  | left to undo; alert          |
//! | Error      | corrupt reply                      | illegal                |                              |
//! | any        | command refused                    | the same               | on record                    |
//!
//! Each state and each event that a cell names stands for an arrow. *Step* is an agent's reply about
//! the step itself, *undo* with a verb one about its undo: or what someone answers who was handed a
//! token, or how the task of the step ended. *Undo* alone is the operator's command, as are resubmit,
//! skip, complete, cancel, pause and resume. *Asked to be undone*, and asked for, which is as a wake, a
//! task is by the one that it runs for. A step failed also if its output is over a
//! limit, if it was deferred and must not be repeated, or if its outcome is unknown and its attempts are
//! used up. *Unknown*: a call was cut, and may still be in progress at the service; so it may be after
//! silence, and after a failure or a deferral that may have run. Its undo, and those of what came before
//! it, wait until it can be no more. *Impossible*: what should run next makes no
//! request, or what the task returns cannot be made. *Error*, where a row of Undoing names it beside others: the point of no return turned out
//! to be passed. Every end tells the client, every Error is alerted, every command is told; all that
//! is not here is ignored, with its [reason](Ignored).
//!
//! A duplicate, a reply to an attempt that was superseded or given up: ignored. A late reply counts while
//! its attempt is the newest: any that comes before the attempt is given up, and one that says that it
//! completed also while the next attempt is waited for. If the ignored message was
//! delivered before, the effects of its first delivery may have been lost with the process, so they
//! are given again: the first three columns say what is saved, and only then is anything sent.

use std::time::Duration;

use jiff::Timestamp;

use crate::{
    definition::{plan::Plan, size},
    engine::{
        advance::{advance, request_recovery, would_go_on},
        case::{Case, Decision},
        change::{Change, Inputs},
        compensate,
        decision::{Context, Ignored, Transition},
        documents::{Documents, Wanted},
        effect::Effect,
        event::Event,
        notify::{ending, not_undone, to_parent},
        operate::{notification, operate, refused},
        order::{self, PointOfNoReturn},
        outcome::{self, NO_REPLY},
        redelivery::{in_progress, wake},
        render::render,
        replies::{answered, child_ended, replied},
        request::request,
        settle::settle,
        values::DocumentCache,
    },
    limits,
    model::{
        attempt::{Action, Attempt},
        command::Command,
        messages::WakeCause,
        task::{ProcessState, Task},
        time::later,
    },
};

/// Decides what becomes of a task.
///
/// # Errors
/// The documents that the decision needs beside those given. Nothing is decided: read them, and call this again.
pub fn transition(
    plan: &Plan,
    task: &Task,
    documents: &Documents,
    event: &Event,
    context: Context<'_>,
) -> Result<Transition, Wanted> {
    if let Some(unknown) = plan.unknown_step(task) {
        let reason = format!("the task has a record of step `{unknown}`, which its workflow lacks");
        return Ok(Transition::Illegal(reason));
    }
    let cache = DocumentCache::new(documents);
    let inputs = Inputs { plan, context, documents: &cache, wait_tolerance: Duration::ZERO };
    let case = Case { task, inputs };
    let transition = match case.decide(event) {
        Decision::Change(mut change) => {
            let requests = render(&mut change, task);
            case.within_size(settle(change, task, requests), event)
        }
        Decision::Ignore { reason, resend, notify } => {
            // They may have been sent before.
            let requests = resend
                .iter()
                .filter_map(|(part, action)| request(case.sources(), part, *action).ok())
                .map(Effect::sent_again);
            Transition::Ignore { reason, effects: requests.chain(notify).collect() }
        }
        Decision::Illegal(reason) => Transition::Illegal(reason),
    };
    let wanted = cache.wanted();
    if wanted.is_empty() { Ok(transition) } else { Err(Wanted(wanted)) }
}

/// Stops a task whose next state would be too large to save: in Error, with an alert. If it has stopped already, nothing is
/// recorded, and an operator is notified that the command is refused.
#[must_use]
pub fn stop_for_size(plan: &Plan, task: &Task, event: &Event, context: Context<'_>) -> Transition {
    let limit = limits::TASK_ITEM_BYTES_MAX / 1_000;
    if task.process_state.is_final() {
        let effects = match event {
            Event::Commanded(command) => {
                let reason = format!("the task's record is full: its limit is {limit} KB");
                vec![notification(task, &refused(command, &reason, context.now))]
            }
            Event::Wake
            | Event::Replied(_)
            | Event::Swept
            | Event::Answered { .. }
            | Event::Asked(_)
            | Event::ChildEnded { .. }
            | Event::AlertSent { .. } => Vec::new(),
        };
        return Transition::Ignore { reason: Ignored::NoRoom, effects };
    }
    let nothing = Documents::new();
    let cache = DocumentCache::new(&nothing);
    let inputs = Inputs { plan, context, documents: &cache, wait_tolerance: Duration::ZERO };
    let mut change = Change::of(inputs, task);
    change.fail_task(&format!(
        "the task's record would be larger than {limit} KB: what is left is to be done by hand"
    ));
    settle(change, task, Vec::new())
}

impl<'a> Case<'a, '_> {
    fn decide(&self, event: &Event) -> Decision<'a> {
        match event {
            Event::Replied(reply) => return replied(self, reply),
            Event::Answered { step, fence, answer } => return answered(self, step, fence, answer),
            Event::ChildEnded { step, outcome, attempt, child, revision } => {
                return child_ended(self, step, outcome, *attempt, (child.as_ref(), *revision));
            }
            Event::Commanded(command) => return self.commanded(command),
            Event::Asked(Action::Undo) => return self.undo_for_parent(),
            Event::Wake | Event::Asked(Action::Do) | Event::Swept | Event::AlertSent { .. } => {}
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

    fn decide_in_progress(&self, event: &Event) -> Decision<'a> {
        match event {
            Event::Swept if !self.is_due() => self.not_due(),
            Event::Swept => self.sweep(),
            // An operator was quicker than the record of the alert.
            Event::AlertSent { .. } => Decision::ignore(Ignored::NotDue),
            Event::Wake
            | Event::Asked(_)
            | Event::Replied(_)
            | Event::Answered { .. }
            | Event::ChildEnded { .. }
            | Event::Commanded(_) => self.go_on(),
        }
    }

    fn decide_ended(&self, event: &Event) -> Decision<'a> {
        let in_error = self.task.process_state == ProcessState::Error;
        match event {
            Event::Asked(_) => self.notify_parent(),
            Event::Swept if !in_error => Decision::ignore(Ignored::Ended),
            Event::Swept if !self.is_due() => self.not_due(),
            Event::Swept => self.alert_again(),
            Event::AlertSent { ended_at }
                if in_error && self.task.due.is_some() && is_end(self.task, *ended_at) =>
            {
                self.alert_sent()
            }
            // Recorded already, or about an end before this one.
            Event::AlertSent { .. } => Decision::ignore(Ignored::NotDue),
            Event::Wake
            | Event::Replied(_)
            | Event::Answered { .. }
            | Event::ChildEnded { .. }
            | Event::Commanded(_) => self.ended(),
        }
    }

    /// Replaces a decision that makes the task's item larger than its limit: the task stops
    /// in Error, which takes little room. A task that has stopped records nothing more that would make it larger.
    fn within_size(&self, decided: Transition, event: &Event) -> Transition {
        let grows = match &decided {
            Transition::Apply { task, .. } => {
                size::is_over_limit(task) && size::task_bytes(task) > size::task_bytes(self.task)
            }
            Transition::Ignore { .. } | Transition::Illegal(_) => false,
        };
        if !grows {
            return decided;
        }
        stop_for_size(self.inputs.plan, self.task, event, self.inputs.context)
    }

    /// A wake of a task that has ended. The wake may itself have ended it: by a request that cannot be
    /// made, or because nothing was left to undo.
    fn ended(&self) -> Decision<'a> {
        Decision::ignore_and(Ignored::Ended, Vec::new(), self.ending_again())
    }

    /// The notifications of the end, if the message was delivered before.
    fn ending_again(&self) -> Vec<Effect> {
        if self.redelivered() { ending(self.sources()) } else { Vec::new() }
    }

    /// The parent requests the outcome of this task. The request may itself have ended the task: then all notifications
    /// of its end are sent again.
    fn notify_parent(&self) -> Decision<'a> {
        let mut notify = self.ending_again();
        if notify.is_empty() {
            notify.extend(to_parent(self.sources()));
        }
        Decision::ignore_and(Ignored::Ended, Vec::new(), notify)
    }

    /// The parent is being undone.
    fn undo_for_parent(&self) -> Decision<'a> {
        let task = self.task;
        if task.direction() == Action::Undo {
            let is_final = task.process_state.is_final();
            return if is_final { self.notify_parent() } else { self.go_on() };
        }
        let mut change = self.change();
        if task.process_state.is_final() {
            let point_of_no_return = order::point_of_no_return(self.inputs.plan, task);
            if let PointOfNoReturn::Passed(step) = point_of_no_return {
                if task.process_state == ProcessState::Error && self.redelivered() {
                    return self.notify_parent();
                }
                let notify = not_undone(task, &step).into_iter().collect();
                return Decision::ignore_and(Ignored::Ended, Vec::new(), notify);
            }
            change.reopen();
        }
        let parent = task.parent.as_ref().map(|parent| parent.task_id.to_string());
        change.due_anew = true;
        let reason = format!("asked for by task {}", parent.unwrap_or_default());
        compensate::begin(&mut change, &reason);
        advance(&mut change);
        Decision::Change(change)
    }

    /// Starts what can start: steps whose predecessors completed, undos whose successors are undone,
    /// and what has waited long enough.
    fn go_on(&self) -> Decision<'a> {
        let task = self.task;
        let again = if self.redelivered() { in_progress(task, |_, _, _| true) } else { Vec::new() };
        let mut change = self.change();
        change.inputs.wait_tolerance = self.inputs.context.timing.clock_skew;
        advance(&mut change);
        if change.task == *task {
            return Decision::ignore_and(Ignored::NothingReady, again, Vec::new());
        }
        // Also send what the first delivery may have lost.
        change.starts.extend(again);
        Decision::Change(change)
    }

    /// A command that is on record is not carried out again.
    fn commanded(&self, command: &Command) -> Decision<'a> {
        let task = self.task;
        let on_record = task.commands.iter().find(|record| record.id == command.command_id);
        let Some(record) = on_record else {
            return Decision::Change(operate(command, || self.change()));
        };
        let reason = Ignored::DuplicateCommand;
        if !self.redelivered() {
            return Decision::ignore(reason);
        }
        let mut notify = vec![notification(task, record)];
        notify.extend(self.ending_and_wakes());
        Decision::ignore_and(reason, in_progress(task, |_, _, _| true), notify)
    }

    /// Counts the failure of everything that is past its complete-by, applies the policies, and wakes
    /// the scheduler.
    fn sweep(&self) -> Decision<'a> {
        let context = self.inputs.context;
        let mut change = self.change();
        change.due_anew = true;
        let overdue = self.task.awaited().filter(|(.., complete_by)| context.is_past(*complete_by));
        for (step, action, number, _) in overdue {
            change.task.locked_by = None;
            outcome::give_up(&mut change, Attempt { step, action, number }, NO_REPLY);
        }
        if change.task.paused_at.is_none() && context.is_past(change.task.complete_by) {
            outcome::expire(&mut change);
        }
        request_recovery(&mut change);
        Decision::Change(change)
    }

    /// Another supervisor was quicker; or it was this one, whose save took effect and whose response
    /// was lost. Then the effects of that save have not been sent.
    fn not_due(&self) -> Decision<'a> {
        if !self.redelivered() {
            return Decision::ignore(Ignored::NotDue);
        }
        let mut notify = self.ending_and_wakes();
        let is_woken =
            |effect: &Effect| matches!(effect, Effect::Wake { after, .. } if after.is_zero());
        if would_go_on(self.inputs, self.task) && !notify.iter().any(is_woken) {
            notify.push(wake(self.task, WakeCause::Recovery, Duration::ZERO));
        }
        Decision::ignore_and(Ignored::NotDue, Vec::new(), notify)
    }

    fn alert_again(&self) -> Decision<'a> {
        let context = self.inputs.context;
        let mut change = self.change();
        change.notifications = ending(self.sources());
        change.task.due = Some(later(context.now, context.timing.pickup_within));
        Decision::Change(change)
    }

    fn alert_sent(&self) -> Decision<'a> {
        let mut change = self.change();
        change.task.due = None;
        Decision::Change(change)
    }

    /// Whether the supervisor has anything to do here yet: another may have been quicker.
    fn is_due(&self) -> bool {
        self.task.due.is_some_and(|due| self.inputs.context.is_past(due))
    }
}

/// Whether `time` is when the task ended, to the millisecond: the state store keeps no more.
fn is_end(task: &Task, time: Timestamp) -> bool {
    task.ended_at.is_some_and(|ended_at| ended_at.as_millisecond() == time.as_millisecond())
}
