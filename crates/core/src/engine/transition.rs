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

use crate::engine::decision::Context;
use crate::engine::decision::Ignored;
use crate::engine::decision::Transition;
use crate::engine::documents::Documents;
use crate::engine::documents::Wanted;
use crate::engine::event::Event;
use std::{collections::BTreeSet, time::Duration};

use jiff::Timestamp;

use crate::{
    definition::{size, step::Work, workflow::Workflow},
    engine::{
        change::{Change, NO_REPLY, waits, would_go_on},
        compensate::{self, PointOfNoReturn},
        effect::Effect,
        notify::{ending, not_undone, to_parent},
        operate::{operate, refused, told},
        request::{child_id, request},
        values::{Desk, Sources},
    },
    limits,
    model::{
        attempt::{Action, Attempt},
        command::Command,
        messages::{Answer, ChildOutcome, Outcome, StepReply, Wake, WakeCause},
        names::{CallbackFence, Part, StepName, TaskId},
        step::{Progress, StepState},
        task::{ProcessState, Task},
        time::later,
    },
};

/// Decides.
///
/// # Errors
/// Which documents are wanted, beside those given: nothing is decided, and the same is to be asked
/// again with them.
pub fn transition(
    workflow: &Workflow,
    task: &Task,
    documents: &Documents,
    event: &Event,
    context: Context<'_>,
) -> Result<Transition, Wanted> {
    let desk = Desk::new(documents);
    let case = Case { workflow, task, context, desk: &desk };
    let transition = match case.decide(event) {
        Decision::Change(mut change) => {
            let requests = change.render(task);
            case.within_size(change.settle(task, requests), event)
        }
        Decision::Ignore { reason, send, tell } => {
            // They may have been sent before.
            let requests = send
                .iter()
                .filter_map(|(part, action)| request(case.sources(), part, *action).ok())
                .map(Effect::sent_again);
            Transition::Ignore { reason, effects: requests.chain(tell).collect() }
        }
        Decision::Illegal(reason) => Transition::Illegal(reason),
    };
    let wanted = desk.wanted();
    if wanted.is_empty() { Ok(transition) } else { Err(Wanted(wanted)) }
}

/// What becomes of a task whose next state cannot be saved, since it is too large: it stops where it
/// stands, in Error, with an alert. If it has stopped already, nothing is put on record, and an operator is
/// told that the command is refused.
#[must_use]
pub fn stop_for_size(
    workflow: &Workflow,
    task: &Task,
    event: &Event,
    context: Context<'_>,
) -> Transition {
    let limit = limits::TASK_ITEM_BYTES_MAX / 1_000;
    if task.process_state.is_final() {
        let effects = match event {
            Event::Commanded(command) => {
                let reason = format!("the task's record is full: its limit is {limit} KB");
                vec![told(task, &refused(command, &reason, context.now))]
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
    let desk = Desk::new(&nothing);
    let mut change = Change::of(workflow, task, context, &desk);
    change.fail_task(&format!(
        "the task's record would be larger than {limit} KB: what is left is to be done by hand"
    ));
    change.settle(task, Vec::new())
}

/// A decision before its requests are made.
enum Decision<'a> {
    Change(Box<Change<'a>>),
    Ignore { reason: Ignored, send: Vec<(Part, Action)>, tell: Vec<Effect> },
    Illegal(String),
}

impl Decision<'_> {
    /// Changes nothing, and tells nobody.
    fn ignore(reason: Ignored) -> Self {
        Self::Ignore { reason, send: Vec::new(), tell: Vec::new() }
    }
}

/// What is to be decided on.
#[derive(Clone, Copy)]
struct Case<'a, 't> {
    workflow: &'a Workflow,
    task: &'t Task,
    context: Context<'a>,
    desk: &'a Desk<'a>,
}

impl<'a> Case<'a, '_> {
    fn sources(&self) -> Sources<'_> {
        let Self { workflow, task, desk, .. } = *self;
        Sources { workflow, task, made: &[], desk }
    }

    fn change(&self) -> Box<Change<'a>> {
        Change::of(self.workflow, self.task, self.context, self.desk)
    }

    fn decide(&self, event: &Event) -> Decision<'a> {
        match self.task.process_state {
            ProcessState::Pending | ProcessState::Processing | ProcessState::Undoing => match event
            {
                Event::Wake | Event::Asked(Action::Do) => self.go_on(),
                Event::Asked(Action::Undo) => self.undo_for_parent(),
                Event::Swept if !self.is_due() => self.not_due(),
                Event::Swept => self.sweep(),
                Event::Replied(reply) => self.replied(reply),
                Event::Answered { step, fence, answer } => self.answered(step, fence, answer),
                Event::ChildEnded { step, outcome, attempt, child, revision } => {
                    self.child_ended(step, outcome, *attempt, (child.as_ref(), *revision))
                }
                Event::Commanded(command) => self.commanded(command),
                // An operator was quicker than the record of the alert.
                Event::AlertSent { .. } => Decision::ignore(Ignored::NotDue),
            },
            ProcessState::Processed | ProcessState::Undone => match event {
                Event::Wake => self.ended(),
                Event::Asked(Action::Do) => self.tell_parent(),
                Event::Asked(Action::Undo) => self.undo_for_parent(),
                Event::Swept => Decision::ignore(Ignored::Ended),
                Event::Replied(reply) => self.replied(reply),
                Event::Answered { step, fence, answer } => self.answered(step, fence, answer),
                Event::ChildEnded { step, outcome, attempt, child, revision } => {
                    self.child_ended(step, outcome, *attempt, (child.as_ref(), *revision))
                }
                Event::Commanded(command) => self.commanded(command),
                Event::AlertSent { .. } => Decision::ignore(Ignored::NotDue),
            },
            ProcessState::Error => match event {
                Event::Wake => self.ended(),
                Event::Asked(Action::Do) => self.tell_parent(),
                Event::Asked(Action::Undo) => self.undo_for_parent(),
                Event::Replied(reply) => self.replied(reply),
                Event::Answered { step, fence, answer } => self.answered(step, fence, answer),
                Event::ChildEnded { step, outcome, attempt, child, revision } => {
                    self.child_ended(step, outcome, *attempt, (child.as_ref(), *revision))
                }
                Event::Commanded(command) => self.commanded(command),
                Event::Swept if !self.is_due() => self.not_due(),
                Event::Swept => self.alert_again(),
                Event::AlertSent { ended_at }
                    if self.task.due.is_some() && is_end(self.task, *ended_at) =>
                {
                    self.alert_sent()
                }
                // On record already, or about an end before this one.
                Event::AlertSent { .. } => Decision::ignore(Ignored::NotDue),
            },
        }
    }

    /// A decision that makes the task's item larger than it may be is not taken: the task stops where it
    /// stands, in Error, which takes little room. One that has stopped takes in nothing more that would make
    /// it larger.
    fn within_size(&self, decided: Transition, event: &Event) -> Transition {
        let grows = match &decided {
            Transition::Apply { task, .. } => {
                size::is_over_limit(task) && size::task_bytes(task) > size::task_bytes(self.task)
            }
            Transition::Ignore { .. } | Transition::Illegal(_) => false,
        };
        if grows { stop_for_size(self.workflow, self.task, event, self.context) } else { decided }
    }

    /// A wake of a task that has ended. It may itself have ended it: by a request that cannot be
    /// made, or because nothing was left to undo.
    fn ended(&self) -> Decision<'a> {
        let tell = if self.context.redelivered { ending(self.sources()) } else { Vec::new() };
        Decision::Ignore { reason: Ignored::Ended, send: Vec::new(), tell }
    }

    /// The task that this one runs for asks how it ended. By asking it may have ended it, and then
    /// that is told again to all.
    fn tell_parent(&self) -> Decision<'a> {
        let mut tell = if self.context.redelivered { ending(self.sources()) } else { Vec::new() };
        if tell.is_empty() {
            tell.extend(to_parent(self.sources()));
        }
        Decision::Ignore { reason: Ignored::Ended, send: Vec::new(), tell }
    }

    /// The task that this one runs for is being undone.
    fn undo_for_parent(&self) -> Decision<'a> {
        let task = self.task;
        if task.direction() == Action::Undo {
            return if task.process_state.is_final() { self.tell_parent() } else { self.go_on() };
        }
        let mut change = self.change();
        if task.process_state.is_final() {
            if let PointOfNoReturn::Passed(step) =
                compensate::point_of_no_return(self.workflow, task)
            {
                if task.process_state == ProcessState::Error && self.context.redelivered {
                    return self.tell_parent();
                }
                let tell = not_undone(task, &step).into_iter().collect();
                return Decision::Ignore { reason: Ignored::Ended, send: Vec::new(), tell };
            }
            change.reopen();
        }
        let parent = task.parent.as_ref().map(|parent| parent.task_id.to_string());
        change.due_anew = true;
        change.begin_undo(&format!("asked for by task {}", parent.unwrap_or_default()));
        change.advance();
        Decision::Change(change)
    }

    /// Starts what can start: steps whose predecessors completed, undos whose successors are undone,
    /// and what waited long enough.
    fn go_on(&self) -> Decision<'a> {
        let task = self.task;
        let again =
            if self.context.redelivered { running(task, |_, _, _| true) } else { Vec::new() };
        let mut change = self.change();
        change.early = self.context.timing.clock_skew;
        change.advance();
        if change.task == *task {
            let reason = Ignored::NothingReady;
            return Decision::Ignore { reason, send: again, tell: Vec::new() };
        }
        // What has become ready since must not hide what the first delivery may have lost.
        change.send.extend(again);
        Decision::Change(change)
    }

    fn replied(&self, reply: &StepReply) -> Decision<'a> {
        let StepReply { step, action, attempt, .. } = reply;
        if self.is_news_of_an_earlier_attempt(reply) {
            let mut change = self.change();
            change.has_run_after_all(step, Some(&reply.outcome));
            return Decision::Change(change);
        }
        let progress = match self.progress(step, *action, *attempt, "a reply") {
            Ok(progress) => progress,
            Err(decision) => return decision,
        };
        match &progress.state {
            StepState::Running { .. } if is_only_awaited(self.task, reply) => {
                let redelivered = self.context.redelivered;
                let again = |_: &Part, action, _| redelivered && action == Action::Undo;
                let tell = if redelivered { self.wakes() } else { Vec::new() };
                let reason = Ignored::StillAwaited;
                Decision::Ignore { reason, send: running(self.task, again), tell }
            }
            StepState::Running { .. } => {
                let mut change = self.change();
                change.record(reply);
                Decision::Change(change)
            }
            // The attempt was given up or deferred, and nothing has been asked for since. The reply to a call that only
            // began a step with a callback does not complete it, and may be a second one.
            StepState::Waiting { .. }
                if matches!(reply.outcome, Outcome::Completed { .. })
                    && !self.awaits_callback(step, *action) =>
            {
                let mut change = self.change();
                change.record(reply);
                Decision::Change(change)
            }
            StepState::Waiting { .. } | StepState::Failed { .. } | StepState::Skipped { .. }
                if *action == Action::Do
                    && !progress.may_have_run
                    && says_it_ran(&reply.outcome, &progress.state) =>
            {
                let mut change = self.change();
                change.has_run_after_all(step, Some(&reply.outcome));
                Decision::Change(change)
            }
            StepState::Waiting { .. } => self.stale(step, *action),
            StepState::HandedOut { .. }
            | StepState::Each
            | StepState::Completed { .. }
            | StepState::Failed { .. }
            | StepState::Skipped { .. } => self.duplicate(step),
        }
    }

    /// Whether an attempt took effect, or may have, that was taken for one that did not, and another has been
    /// begun since.
    fn is_news_of_an_earlier_attempt(&self, reply: &StepReply) -> bool {
        let progress = self.task.progress(&reply.step, reply.action);
        progress.is_some_and(|progress| {
            reply.action == Action::Do
                && (1..progress.state.attempt()).contains(&reply.attempt)
                && !progress.may_have_run
                && !matches!(progress.state, StepState::Completed { .. })
                && says_it_ran(&reply.outcome, &StepState::Failed { attempt: reply.attempt })
        })
    }

    /// Whether a call only begins the step, which is completed by a callback.
    fn awaits_callback(&self, part: &Part, action: Action) -> bool {
        let step = self.workflow.steps.get(&part.step);
        action == Action::Do && step.is_some_and(|step| step.callback.is_some())
    }

    fn answered(&self, step: &Part, fence: &CallbackFence, answer: &Answer) -> Decision<'a> {
        let definition = self.workflow.steps.get(&step.step);
        if definition.is_none_or(|step| step.callback.is_none()) {
            return Decision::Illegal(format!(
                "an answer to step `{step}`, which hands nothing out"
            ));
        }
        let number = match self.answered_attempt(step, fence) {
            Ok(number) => number,
            Err(decision) => return decision,
        };
        let progress = match self.progress(step, Action::Do, number, "an answer") {
            Ok(progress) => progress,
            Err(decision) => return decision,
        };
        let heartbeat = *answer == Answer::Heartbeat;
        match &progress.state {
            // The call that hands the token out has not come back yet.
            StepState::Running { .. } if heartbeat => Decision::ignore(Ignored::StillAwaited),
            StepState::Waiting { .. } if !matches!(answer, Answer::Completed { .. }) => {
                self.answered_between_attempts(step, progress, heartbeat)
            }
            // Between two attempts: all have the same token, so the operation that it names has completed.
            StepState::Running { .. } | StepState::HandedOut { .. } | StepState::Waiting { .. } => {
                let mut change = self.change();
                let step = step.clone();
                change.answer(Attempt { step, action: Action::Do, number }, answer);
                if change.task == *self.task {
                    return Decision::ignore(Ignored::StillAwaited);
                }
                Decision::Change(change)
            }
            StepState::Failed { .. } | StepState::Skipped { .. }
                if !heartbeat && !progress.may_have_run =>
            {
                self.has_run_after_all(step)
            }
            StepState::Each
            | StepState::Completed { .. }
            | StepState::Failed { .. }
            | StepState::Skipped { .. } => self.duplicate(step),
        }
    }

    /// An answer that completes nothing, between two attempts.
    fn answered_between_attempts(
        &self,
        step: &Part,
        progress: &Progress,
        heartbeat: bool,
    ) -> Decision<'a> {
        if heartbeat || progress.may_have_run {
            return self.stale(step, Action::Do);
        }
        self.has_run_after_all(step)
    }

    /// An agent passes the token on with a call, so an answer proves that a call was made.
    fn has_run_after_all(&self, step: &Part) -> Decision<'a> {
        let mut change = self.change();
        change.has_run_after_all(step, None);
        Decision::Change(change)
    }

    /// The attempt that an answer is for. All attempts that are made from one input have the same token, as
    /// they have the same idempotency key: an answer is for the newest of them.
    fn answered_attempt(&self, step: &Part, fence: &CallbackFence) -> Result<u32, Decision<'a>> {
        let edit = match fence {
            CallbackFence::Attempt(number) => return Ok(*number),
            CallbackFence::Request { edit } => edit,
        };
        match self.task.progress(step, Action::Do) {
            Some(progress) if progress.input != *edit => Err(self.stale(step, Action::Do)),
            Some(progress) => Ok(progress.state.attempt()),
            None => {
                let what = format!("an answer to step `{step}`, which never started");
                Err(Decision::Illegal(what))
            }
        }
    }

    /// What its task says of a step holds whichever attempt asked, and however late; but not if an edit of the
    /// input has made it another task, nor if that task has reported something later. A refusal is of
    /// one submission only: a later one may have been accepted.
    fn child_ended(
        &self,
        step: &Part,
        outcome: &ChildOutcome,
        refused: Option<u32>,
        (child, revision): (Option<&TaskId>, Option<u64>),
    ) -> Decision<'a> {
        let definition = self.workflow.steps.get(&step.step);
        let runs_task = definition.is_some_and(|step| matches!(step.work(), Some(Work::Child(_))));
        let Some(record) = self.task.record(step).filter(|_| runs_task) else {
            return Decision::Illegal(format!("step `{step}` runs no task"));
        };
        let (action, progress) =
            record.undo.as_ref().map_or((Action::Do, &record.run), |undo| (Action::Undo, undo));
        let forward = matches!(
            outcome,
            ChildOutcome::Processed { .. }
                // That it was refused when it was to be done does not say that it never was.
                | ChildOutcome::Refused { .. }
                | ChildOutcome::Error { not_undone: false, .. }
        );
        let runs = child_id(self.task, step).ok();
        let is_earlier = |last: u64| revision.is_some_and(|revision| revision < last);
        if child.is_some_and(|child| runs.as_ref() != Some(child))
            || record.run.child_revision.is_some_and(is_earlier)
        {
            return self.stale(step, action);
        }
        let is_refusal = matches!(outcome, ChildOutcome::Refused { .. });
        let is_of_another = refused.is_some_and(|number| number != progress.state.attempt());
        if is_refusal && is_of_another && action == Action::Do {
            return self.stale(step, action);
        }
        match &progress.state {
            // It has not heard yet that it is to be undone; or this is what began that.
            StepState::Running { .. } | StepState::Waiting { .. }
                if forward && action == Action::Undo =>
            {
                if self.context.redelivered {
                    return self.duplicate(step);
                }
                Decision::ignore(Ignored::StaleReply)
            }
            StepState::Running { attempt, .. } | StepState::Waiting { attempt, .. } => {
                let mut change = self.change();
                let (step, number) = (step.clone(), *attempt);
                change.child_ended(Attempt { step, action, number }, outcome, revision);
                Decision::Change(change)
            }
            StepState::Failed { .. } | StepState::Skipped { .. }
                if action == Action::Do
                    && !progress.may_have_run
                    && matches!(
                        outcome,
                        ChildOutcome::Processed { .. } | ChildOutcome::Error { .. }
                    ) =>
            {
                let mut change = self.change();
                change.has_run_after_all(step, None);
                Decision::Change(change)
            }
            StepState::Failed { .. } | StepState::Skipped { .. }
                if action == Action::Do
                    && progress.may_have_run
                    && matches!(outcome, ChildOutcome::Undone { .. }) =>
            {
                let mut change = self.change();
                change.child_is_undone(step, revision);
                Decision::Change(change)
            }
            StepState::HandedOut { .. }
            | StepState::Each
            | StepState::Completed { .. }
            | StepState::Failed { .. }
            | StepState::Skipped { .. } => self.duplicate(step),
        }
    }

    /// How far the newest attempt has come, if the message is about it.
    fn progress(
        &self,
        step: &Part,
        action: Action,
        attempt: u32,
        what: &str,
    ) -> Result<&Progress, Decision<'a>> {
        let of = match action {
            Action::Do => format!("step `{step}`"),
            Action::Undo => format!("the undo of step `{step}`"),
        };
        let Some(progress) = self.task.progress(step, action) else {
            return Err(Decision::Illegal(format!("{what} to {of}, which never started")));
        };
        let newest = progress.state.attempt();
        if attempt > newest || attempt == 0 {
            let what = format!("{what} to attempt {attempt} at {of}, of {newest}");
            return Err(Decision::Illegal(what));
        }
        if attempt < newest {
            return Err(self.stale(step, action));
        }
        Ok(progress)
    }

    /// A reply to an attempt that was given up or deferred. It may be on record, and have started
    /// undos, and others whose wait was over; or have ended the task once more.
    fn stale(&self, step: &Part, action: Action) -> Decision<'a> {
        let reason = Ignored::StaleReply;
        if !self.context.redelivered {
            return Decision::ignore(reason);
        }
        let again = |name: &Part, of, number| {
            let is_other = (name, of) != (step, action);
            is_other && (of == Action::Undo || self.is_any_time(name, number))
        };
        let mut tell = ending(self.sources());
        tell.extend(self.wakes());
        Decision::Ignore { reason, send: running(self.task, again), tell }
    }

    /// A reply that is on record. What it started may have been lost: whatever comes after its step,
    /// the next items of it, undos, and others whose wait was over.
    fn duplicate(&self, step: &Part) -> Decision<'a> {
        let reason = Ignored::DuplicateReply;
        if !self.context.redelivered {
            return Decision::ignore(reason);
        }
        let ancestors = self.workflow.ancestors();
        let follows = |name: &Part, action: Action, number: u32| {
            let after = ancestors.get(&name.step).is_some_and(|before| before.contains(&step.step));
            let next = name.step == step.step && name.item > step.item;
            action == Action::Undo || self.is_any_time(name, number) || after || next
        };
        let mut tell = ending(self.sources());
        tell.extend(self.wakes());
        Decision::Ignore { reason, send: running(self.task, follows), tell }
    }

    /// Whether any event may have started this attempt, once a wait was over: it is not the first, or
    /// comes after a step that waits.
    fn is_any_time(&self, part: &Part, number: u32) -> bool {
        let waits = |name: &&StepName| {
            let step = self.workflow.steps.get(*name);
            step.is_some_and(|step| matches!(step.work(), Some(Work::Wait(_))))
        };
        let ancestors = self.workflow.ancestors();
        number > 1 || ancestors.get(&part.step).is_some_and(|before| before.iter().any(waits))
    }

    /// A command that is on record is not carried out again.
    fn commanded(&self, command: &Command) -> Decision<'a> {
        let task = self.task;
        let on_record = task.commands.iter().find(|record| record.id == command.command_id);
        let Some(record) = on_record else {
            return Decision::Change(operate(command, || self.change()));
        };
        let reason = Ignored::DuplicateCommand;
        if !self.context.redelivered {
            return Decision::ignore(reason);
        }
        let mut tell = vec![told(task, record)];
        tell.extend(ending(self.sources()));
        tell.extend(self.wakes());
        Decision::Ignore { reason, send: running(task, |_, _, _| true), tell }
    }

    /// The wakes that a task's last save may have asked for, in case they were lost: one for each
    /// wait, and one for what a scheduler left to the next.
    fn wakes(&self) -> Vec<Effect> {
        let (task, now) = (self.task, self.context.now);
        let idle = !task.process_state.is_final() && task.awaited().next().is_none();
        let left = (idle && waits(task, now).next().is_none()).then_some(Duration::ZERO);
        let afters: BTreeSet<_> = if task.process_state.is_final() || task.paused_at.is_some() {
            BTreeSet::new()
        } else {
            let afters = waits(task, now).chain(left);
            afters.filter(|after| *after <= crate::limits::QUEUE_DELAY_MAX).collect()
        };
        let wake = |after| {
            let (task_id, cause) = (task.task_id.clone(), WakeCause::Waited);
            Effect::Wake { wake: Wake { task_id, cause }, after }
        };
        afters.into_iter().map(wake).collect()
    }

    /// Counts the failure of everything that is past its complete-by, applies the policies, and asks
    /// the scheduler to go on.
    fn sweep(&self) -> Decision<'a> {
        let context = self.context;
        let mut change = self.change();
        change.due_anew = true;
        let overdue = self.task.awaited().filter(|(.., complete_by)| context.is_past(*complete_by));
        for (step, action, number, _) in overdue {
            change.task.locked_by = None;
            change.give_up(Attempt { step, action, number }, NO_REPLY);
        }
        if change.task.paused_at.is_none() && context.is_past(change.task.complete_by) {
            change.overdue();
        }
        change.ask_for_recovery();
        Decision::Change(change)
    }

    /// Another supervisor was quicker; or it was this one, whose save took effect and whose answer
    /// was lost. Then what that save decided has not been told to anybody.
    fn not_due(&self) -> Decision<'a> {
        if !self.context.redelivered {
            return Decision::ignore(Ignored::NotDue);
        }
        let mut tell = ending(self.sources());
        tell.extend(self.wakes());
        let is_woken =
            |effect: &Effect| matches!(effect, Effect::Wake { after, .. } if after.is_zero());
        let goes_on = would_go_on(self.workflow, self.task, self.context);
        if goes_on && !tell.iter().any(is_woken) {
            let task_id = self.task.task_id.clone();
            let wake = Wake { task_id, cause: WakeCause::Recovery };
            tell.push(Effect::Wake { wake, after: Duration::ZERO });
        }
        Decision::Ignore { reason: Ignored::NotDue, send: Vec::new(), tell }
    }

    fn alert_again(&self) -> Decision<'a> {
        let mut change = self.change();
        change.tell = ending(self.sources());
        change.task.due = Some(later(self.context.now, self.context.timing.pickup_within));
        Decision::Change(change)
    }

    fn alert_sent(&self) -> Decision<'a> {
        let mut change = self.change();
        change.task.due = None;
        Decision::Change(change)
    }

    /// Whether the supervisor has anything to do here yet: another may have been quicker.
    fn is_due(&self) -> bool {
        self.task.due.is_some_and(|due| self.context.is_past(due))
    }
}

/// Whether an outcome says of a step that was taken for one that did not run that it did, or may have. Of a
/// step that has failed a second refusal says nothing new: an agent that gets a request again says that the first delivery
/// may have called, and that one has been answered.
fn says_it_ran(outcome: &Outcome, state: &StepState) -> bool {
    match outcome {
        Outcome::Completed { .. } | Outcome::Unknown { .. } => true,
        Outcome::Failed { .. } | Outcome::Deferred { .. } => {
            outcome.may_have_run() && matches!(state, StepState::Waiting { .. })
        }
    }
}

/// Whether a step of a task that goes backward was deferred.
fn is_only_awaited(task: &Task, reply: &StepReply) -> bool {
    let deferred = matches!(reply.outcome, Outcome::Deferred { .. });
    deferred && reply.action == Action::Do && task.direction() == Action::Undo
}

/// What was asked for and is not answered, among what `wanted` accepts. Nothing is asked for again in
/// a task that has stopped, and no step of a task that is being undone: if its request was lost,
/// nothing was done.
fn running(task: &Task, wanted: impl Fn(&Part, Action, u32) -> bool) -> Vec<(Part, Action)> {
    if task.process_state.is_final() {
        return Vec::new();
    }
    let direction = task.direction();
    task.running()
        .filter(|(name, action, number, _)| *action == direction && wanted(name, *action, *number))
        .map(|(name, action, ..)| (name, action))
        .collect()
}

/// Whether `time` is when the task ended, to the millisecond: the state store keeps no more.
fn is_end(task: &Task, time: Timestamp) -> bool {
    task.ended_at.is_some_and(|ended_at| ended_at.as_millisecond() == time.as_millisecond())
}
