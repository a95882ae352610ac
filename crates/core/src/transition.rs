//! The one decision: given a task, its workflow and an event, what is the task next, and what must
//! be told to whom? Pure: no clock, no I/O, no randomness.
//!
//! | state      | event                              | becomes                | and                          |
//! | ---------- | ---------------------------------- | ---------------------- | ---------------------------- |
//! | Pending    | wake                               | Processing             | first steps run              |
//! | Pending    | wake, impossible                   | Undoing, Error         | the policy says which        |
//! | Pending    | swept, nothing past due            | Pending                | due later; wake              |
//! | Pending    | swept, task past due               | Undoing, Error         | the workflow says which      |
//! | Pending    | undo                               | Undoing, Undone        | Undoing only while paused    |
//! | Pending    | cancel                             | Error                  | alert                        |
//! | Pending    | pause                              | Pending                | nothing starts               |
//! | Pending    | resume                             | Pending, Processing    | as a wake, if in time        |
//! | Pending    | resume, impossible                 | Undoing, Error         | the policy says which        |
//! | Pending    | corrupt reply                      | illegal                |                              |
//! | Processing | wake                               | Processing             | what waited runs again       |
//! | Processing | wake, impossible                   | Undoing, Error         | the policy says which        |
//! | Processing | step completed                     | Processing, Processed  | what comes after runs        |
//! | Processing | step completed, impossible         | Undoing, Error         | the policy says which        |
//! | Processing | step failed                        | Undoing, Undone, Error | the policy says which        |
//! | Processing | step failed, impossible            | Error                  | left to undo; alert          |
//! | Processing | step deferred                      | Processing             | waits, uncounted; wake       |
//! | Processing | swept, nothing past due            | Processing             | due moves on; wake           |
//! | Processing | swept, step past due               | Processing             | counted, waits; wake         |
//! | Processing | swept, attempts used up            | Undoing, Error         | the policy says which        |
//! | Processing | swept, task past due               | Undoing, Error         | the workflow says which      |
//! | Processing | resubmit                           | Processing             | what waits runs at once      |
//! | Processing | skip/complete                      | Processing, Processed  | what comes after runs        |
//! | Processing | resubmit/skip/complete, impossible | Undoing, Error         | the policy says which        |
//! | Processing | undo                               | Undoing, Undone        | undos run                    |
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
//! | Undoing    | undo completed                     | Undoing, Undone        | what came before is undone   |
//! | Undoing    | undo completed, impossible         | Error                  | left to undo; alert          |
//! | Undoing    | undo failed                        | Error                  | left to undo; alert          |
//! | Undoing    | undo deferred                      | Undoing                | waits, uncounted; wake       |
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
//! | Processed  | undo, impossible                   | Error                  | left to undo; alert          |
//! | Processed  | corrupt reply                      | illegal                |                              |
//! | Undone     | corrupt reply                      | illegal                |                              |
//! | Error      | any reply                          | Error                  | on record; nothing starts    |
//! | Error      | swept, alert unsent                | Error                  | alert again                  |
//! | Error      | alert sent                         | Error                  | no longer due                |
//! | Error      | resubmit/skip/complete             | any but Pending        | goes on where it stopped     |
//! | Error      | resubmit/skip/complete, impossible | Undoing, Error         | the policy says which        |
//! | Error      | undo                               | Undoing, Undone        | undos run                    |
//! | Error      | undo, impossible                   | Error                  | left to undo; alert          |
//! | Error      | corrupt reply                      | illegal                |                              |
//! | any        | command refused                    | the same               | on record                    |
//!
//! Each state and each event that a cell names stands for an arrow. *Step* is an agent's reply about
//! the step itself, *undo* with a verb one about its undo; *undo* alone is the operator's command, as
//! are resubmit, skip, complete, cancel, pause and resume. A step failed also if its output is over a
//! limit, or if it was deferred and must not be repeated. *Impossible*: what should run next makes no
//! request. *Error*, where a row of Undoing names it beside others: the point of no return turned out
//! to be passed. Every end tells the client, every Error is alerted, every command is told; all that
//! is not here is ignored, with its [reason](Ignored).
//!
//! A duplicate, a stale attempt, a reply after complete-by: ignored. If the ignored message was
//! delivered before, the effects of its first delivery may have been lost with the process, so they
//! are given again: the first three columns say what is saved, and only then is anything sent.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use jiff::Timestamp;
use serde_json::Value;

use crate::{
    change::{Change, waits, would_go_on},
    command::Command,
    effects::Effect,
    messages::{Action, Answer, ChildEnded, ChildOutcome, Outcome, StepReply, Wake, WakeCause},
    names::Part,
    operate::{operate, told},
    ports::{Attempt, Document, DocumentKey, Timing},
    request::request,
    task::{ProcessState, Progress, StepState, Task, later},
    tell::{ending, to_parent},
    undo::{self, PointOfNoReturn},
    values::{Desk, Sources},
    workflow::{Work, Workflow},
};

/// Something that happened to a task.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// Someone asks to see what the task needs.
    Wake,
    /// An agent answered.
    Replied(StepReply),
    /// The supervisor found the task in the due index.
    Swept,
    /// An operator asks for something.
    Commanded(Command),
    /// Someone who was handed a token answered.
    Answered {
        /// The step.
        step: Part,
        /// The attempt that the token names.
        attempt: u32,
        /// What was said.
        answer: Answer,
    },
    /// The task that this one runs for asks for it, to be done or undone.
    Asked(Action),
    /// The task that ran for a step has ended.
    ChildEnded {
        /// The step.
        step: Part,
        /// How.
        outcome: ChildOutcome,
    },
    /// The alert of a task in Error has been published.
    AlertSent {
        /// The end that it told of: the task may have gone on since, and ended once more.
        ended_at: Timestamp,
    },
}

impl Event {
    /// The event's name, as logs say it.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Wake => "wake",
            Self::Replied(reply) => match reply.outcome {
                Outcome::Completed { .. } => "completed",
                Outcome::Failed { .. } => "failed",
                Outcome::Deferred { .. } => "deferred",
            },
            Self::Swept => "swept",
            Self::Commanded(_) => "commanded",
            Self::Answered { answer, .. } => match answer {
                Answer::Completed { .. } => "answered: completed",
                Answer::Failed { .. } => "answered: failed",
                Answer::Heartbeat => "heartbeat",
            },
            Self::Asked(Action::Do) => "asked to be done",
            Self::Asked(Action::Undo) => "asked to be undone",
            Self::ChildEnded { outcome, .. } => match outcome {
                ChildOutcome::Processed { .. } => "its task processed",
                ChildOutcome::Undone { .. } => "its task undone",
                ChildOutcome::Error { .. } => "its task in error",
                ChildOutcome::Refused { .. } => "its task refused",
            },
            Self::AlertSent { .. } => "alert_sent",
        }
    }

    /// The step and attempt it is about, if it is about one; an attempt of 0 is the newest.
    #[must_use]
    pub fn step(&self) -> Option<(&Part, u32)> {
        match self {
            Self::Replied(reply) => Some((&reply.step, reply.attempt)),
            Self::Answered { step, attempt, .. } => Some((step, *attempt)),
            Self::ChildEnded { step, .. } => Some((step, 0)),
            Self::Wake
            | Self::Swept
            | Self::Commanded(_)
            | Self::Asked(_)
            | Self::AlertSent { .. } => None,
        }
    }
}

/// What a decision needs to know beside the task.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
    /// The time.
    pub now: Timestamp,
    /// Who decides, for `locked_by`.
    pub actor: &'a str,
    /// Whether this message may have been acted on before: the queue delivered it before, or a save
    /// was lost to one that may have been our own.
    pub redelivered: bool,
    /// The deployment's times.
    pub timing: Timing,
}

/// The documents at hand, by key.
pub type Documents = BTreeMap<DocumentKey, Value>;

/// Why an event changed nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ignored {
    /// The reply has been recorded before.
    DuplicateReply,
    /// The reply is of an attempt that has been superseded or given up.
    StaleReply,
    /// The reply came after complete-by.
    LateReply,
    /// There is nothing to start.
    NothingReady,
    /// The step is only waited for, until its complete-by: a deferral does not end the attempt, for
    /// its request may have been delivered twice.
    StillAwaited,
    /// Nothing is past due.
    NotDue,
    /// The task has ended.
    Ended,
    /// The command is on the task's record.
    DuplicateCommand,
}

/// A decision.
#[derive(Debug, Clone, PartialEq)]
pub enum Transition {
    /// Write the documents, save the task, then carry out the effects; in this order.
    Apply {
        /// The task as it becomes; its revision is the caller's to set.
        task: Box<Task>,
        /// What the new state refers to.
        documents: Vec<Document>,
        /// What to tell whom.
        effects: Vec<Effect>,
    },
    /// Save nothing; carry out the effects, which an earlier delivery may have lost.
    Ignore {
        /// Why.
        reason: Ignored,
        /// What may have been lost.
        effects: Vec<Effect>,
    },
    /// The event cannot have happened to this task: corruption, or a foreign message.
    Illegal(String),
}

/// The documents that a decision wants and that are not at hand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted(pub BTreeSet<DocumentKey>);

/// Decides. A document that does not exist is at hand as null.
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
            change.settle(task, requests)
        }
        Decision::Ignore { reason, send, tell } => {
            let requests = send
                .iter()
                .filter_map(|(part, action)| request(case.sources(), part, *action).ok());
            Transition::Ignore { reason, effects: requests.chain(tell).collect() }
        }
        Decision::Illegal(reason) => Transition::Illegal(reason),
    };
    let wanted = desk.wanted();
    if wanted.is_empty() { Ok(transition) } else { Err(Wanted(wanted)) }
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
                Event::Answered { step, attempt, answer } => self.answered(step, *attempt, answer),
                Event::ChildEnded { step, outcome } => self.child_ended(step, outcome),
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
                Event::Answered { step, attempt, answer } => self.answered(step, *attempt, answer),
                Event::ChildEnded { step, outcome } => self.child_ended(step, outcome),
                Event::Commanded(command) => self.commanded(command),
                Event::AlertSent { .. } => Decision::ignore(Ignored::NotDue),
            },
            ProcessState::Error => match event {
                Event::Wake => self.ended(),
                Event::Asked(Action::Do) => self.tell_parent(),
                Event::Asked(Action::Undo) => self.undo_for_parent(),
                Event::Replied(reply) => self.replied(reply),
                Event::Answered { step, attempt, answer } => self.answered(step, *attempt, answer),
                Event::ChildEnded { step, outcome } => self.child_ended(step, outcome),
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

    /// A wake of a task that has ended. It may itself have ended it: by a request that cannot be
    /// made, or because nothing was left to undo.
    fn ended(&self) -> Decision<'a> {
        let tell = if self.context.redelivered { ending(self.sources()) } else { Vec::new() };
        Decision::Ignore { reason: Ignored::Ended, send: Vec::new(), tell }
    }

    /// The task that this one runs for asks how it ended.
    fn tell_parent(&self) -> Decision<'a> {
        let tell = to_parent(self.sources()).into_iter().collect();
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
            if let PointOfNoReturn::Passed(step) = undo::point_of_no_return(self.workflow, task) {
                let reason = format!("not undone, past the point of no return {step}");
                let error = ChildOutcome::Error { reason, undoing: true };
                let tell = to_parent(self.sources()).into_iter().map(|effect| match effect {
                    Effect::ChildEnded(ended) => {
                        Effect::ChildEnded(ChildEnded { outcome: error.clone(), ..ended })
                    }
                    other => other,
                });
                let reason = Ignored::Ended;
                return Decision::Ignore { reason, send: Vec::new(), tell: tell.collect() };
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
        let progress = match self.progress(step, *action, *attempt, "reply") {
            Ok(progress) => progress,
            Err(decision) => return decision,
        };
        match &progress.state {
            StepState::Running { complete_by, .. } if self.context.now > *complete_by => {
                Decision::ignore(Ignored::LateReply)
            }
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
            // The supervisor has given this attempt up, or it was this reply that deferred the step.
            StepState::Waiting { .. } => self.stale(step, *action),
            StepState::HandedOut { .. }
            | StepState::Each
            | StepState::Completed { .. }
            | StepState::Failed { .. }
            | StepState::Skipped { .. } => self.duplicate(step),
        }
    }

    fn answered(&self, step: &Part, number: u32, answer: &Answer) -> Decision<'a> {
        let definition = self.workflow.steps.get(&step.step);
        if definition.is_none_or(|step| step.callback.is_none()) {
            return Decision::Illegal(format!(
                "an answer to step `{step}`, which hands nothing out"
            ));
        }
        let progress = match self.progress(step, Action::Do, number, "answer") {
            Ok(progress) => progress,
            Err(decision) => return decision,
        };
        let heartbeat = *answer == Answer::Heartbeat;
        match &progress.state {
            // The call that hands the token out has not come back yet.
            StepState::Running { .. } if heartbeat => Decision::ignore(Ignored::StillAwaited),
            StepState::Running { complete_by, .. } | StepState::HandedOut { complete_by, .. }
                if self.context.now > *complete_by =>
            {
                Decision::ignore(Ignored::LateReply)
            }
            StepState::Running { .. } | StepState::HandedOut { .. } => {
                let mut change = self.change();
                let step = step.clone();
                change.answer(Attempt { step, action: Action::Do, number }, answer);
                if change.task == *self.task {
                    return Decision::ignore(Ignored::StillAwaited);
                }
                Decision::Change(change)
            }
            StepState::Waiting { .. } => self.stale(step, Action::Do),
            StepState::Each
            | StepState::Completed { .. }
            | StepState::Failed { .. }
            | StepState::Skipped { .. } => self.duplicate(step),
        }
    }

    /// What its task says of a step holds whichever attempt asked, and however late.
    fn child_ended(&self, step: &Part, outcome: &ChildOutcome) -> Decision<'a> {
        let definition = self.workflow.steps.get(&step.step);
        let runs_task = definition.is_some_and(|step| matches!(step.work(), Some(Work::Child(_))));
        let Some(record) = self.task.record(step).filter(|_| runs_task) else {
            return Decision::Illegal(format!("step `{step}` runs no task"));
        };
        let (action, progress) =
            record.undo.as_ref().map_or((Action::Do, &record.run), |undo| (Action::Undo, undo));
        // It had not heard yet that it is to be undone.
        let before_undo = match outcome {
            ChildOutcome::Processed { .. } => true,
            ChildOutcome::Error { undoing, .. } => !undoing,
            ChildOutcome::Undone { .. } | ChildOutcome::Refused { .. } => false,
        };
        match &progress.state {
            StepState::Running { .. } | StepState::Waiting { .. }
                if before_undo && action == Action::Undo =>
            {
                Decision::ignore(Ignored::StaleReply)
            }
            StepState::Running { attempt, .. } | StepState::Waiting { attempt, .. } => {
                let mut change = self.change();
                let (step, number) = (step.clone(), *attempt);
                change.child_ended(Attempt { step, action, number }, outcome);
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
            return Err(Decision::Illegal(format!("a {what} to {of}, which never started")));
        };
        let newest = progress.state.attempt();
        if attempt > newest || attempt == 0 {
            let what = format!("a {what} to attempt {attempt} at {of}, of {newest}");
            return Err(Decision::Illegal(what));
        }
        if attempt < newest {
            return Err(self.stale(step, action));
        }
        Ok(progress)
    }

    /// A reply to an attempt that was given up or deferred. It may be on record, and have started
    /// undos, and others whose wait was over.
    fn stale(&self, step: &Part, action: Action) -> Decision<'a> {
        let reason = Ignored::StaleReply;
        if !self.context.redelivered {
            return Decision::ignore(reason);
        }
        let again = |name: &Part, of, number| {
            let is_other = (name, of) != (step, action);
            is_other && (of == Action::Undo || is_again(name, of, number))
        };
        Decision::Ignore { reason, send: running(self.task, again), tell: self.wakes() }
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
            action == Action::Undo || is_again(name, action, number) || after || next
        };
        let mut tell = ending(self.sources());
        tell.extend(self.wakes());
        Decision::Ignore { reason, send: running(self.task, follows), tell }
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
            change.give_up(Attempt { step, action, number });
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

/// Whether it is not the first attempt: any event may have started it, once its wait was over.
fn is_again(_: &Part, _: Action, number: u32) -> bool {
    number > 1
}

/// Whether `time` is when the task ended, to the millisecond: the state store keeps no more.
fn is_end(task: &Task, time: Timestamp) -> bool {
    task.ended_at.is_some_and(|ended_at| ended_at.as_millisecond() == time.as_millisecond())
}

impl Context<'_> {
    /// Whether `time` has passed by every clock.
    fn is_past(&self, time: Timestamp) -> bool {
        later(time, self.timing.clock_skew) <= self.now
    }
}
