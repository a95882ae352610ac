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

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde_json::Value;

use crate::{
    change::{Change, waits},
    command::Command,
    effects::Effect,
    messages::{Action, Outcome, StepReply, Wake, WakeCause},
    names::StepName,
    operate::{operate, refuse, told},
    ports::{Attempt, Document, DocumentKey, Timing},
    request::{input_key, reads, request},
    task::{ProcessState, StepState, Task, later},
    tell::ending,
    workflow::Workflow,
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
            Self::AlertSent { .. } => "alert_sent",
        }
    }

    /// The step and attempt it is about, if it is about one.
    #[must_use]
    pub fn step(&self) -> Option<(&StepName, u32)> {
        match self {
            Self::Replied(reply) => Some((&reply.step, reply.attempt)),
            Self::Wake | Self::Swept | Self::Commanded(_) | Self::AlertSent { .. } => None,
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

/// Which documents [`transition`] will want.
#[must_use]
pub fn needs(
    workflow: &Workflow,
    task: &Task,
    event: &Event,
    context: Context<'_>,
) -> BTreeSet<DocumentKey> {
    let wanted = |task: &Task, send: &[(StepName, Action)]| -> BTreeSet<_> {
        send.iter().flat_map(|(step, action)| reads(workflow, task, step, *action)).collect()
    };
    match decide(workflow, task, event, context) {
        Decision::Change(change) => {
            let mut keys = wanted(&change.task, &change.send);
            // What this very event brings along need not be read.
            for document in &change.documents {
                keys.remove(&document.key);
            }
            if let Some((id, _)) = &change.edit {
                keys.remove(&input_key(Some(id)));
                keys.insert(input_key(task.input.as_ref()));
            }
            keys
        }
        Decision::Ignore { send, .. } => wanted(task, &send),
        Decision::Illegal(_) => BTreeSet::new(),
    }
}

/// Decides. `documents` holds at least what [`needs`] asked for.
#[must_use]
pub fn transition(
    workflow: &Workflow,
    task: &Task,
    documents: &Documents,
    event: &Event,
    context: Context<'_>,
) -> Transition {
    match decide(workflow, task, event, context) {
        Decision::Change(mut change) => {
            if let (Err(reason), Event::Commanded(command)) =
                (change.edit_input(task, documents), event)
            {
                change = refuse(workflow, task, command, context, &reason);
            }
            let requests = change.render(task, documents);
            change.settle(task, requests)
        }
        Decision::Ignore { reason, send, tell } => {
            let requests = send.iter().filter_map(|(step, action)| {
                request(workflow, task, documents, step, *action).ok().map(Effect::Request)
            });
            Transition::Ignore { reason, effects: requests.chain(tell).collect() }
        }
        Decision::Illegal(reason) => Transition::Illegal(reason),
    }
}

/// A decision before its requests are rendered: state alone decides it, no document does.
enum Decision<'a> {
    Change(Box<Change<'a>>),
    Ignore { reason: Ignored, send: Vec<(StepName, Action)>, tell: Vec<Effect> },
    Illegal(String),
}

impl Decision<'_> {
    /// Changes nothing, and tells nobody.
    fn ignore(reason: Ignored) -> Self {
        Self::Ignore { reason, send: Vec::new(), tell: Vec::new() }
    }
}

fn decide<'a>(
    workflow: &'a Workflow,
    task: &Task,
    event: &Event,
    context: Context<'a>,
) -> Decision<'a> {
    match task.process_state {
        ProcessState::Pending | ProcessState::Processing | ProcessState::Undoing => match event {
            Event::Wake => go_on(workflow, task, context),
            Event::Swept if !is_due(task, context) => not_due(workflow, task, context),
            Event::Swept => sweep(workflow, task, context),
            Event::Replied(reply) => replied(workflow, task, reply, context),
            Event::Commanded(command) => commanded(workflow, task, command, context),
            // An operator was quicker than the record of the alert.
            Event::AlertSent { .. } => Decision::ignore(Ignored::NotDue),
        },
        ProcessState::Processed | ProcessState::Undone => match event {
            Event::Wake => ended(workflow, task, context),
            Event::Swept => Decision::ignore(Ignored::Ended),
            Event::Replied(reply) => replied(workflow, task, reply, context),
            Event::Commanded(command) => commanded(workflow, task, command, context),
            Event::AlertSent { .. } => Decision::ignore(Ignored::NotDue),
        },
        ProcessState::Error => match event {
            Event::Wake => ended(workflow, task, context),
            Event::Replied(reply) => replied(workflow, task, reply, context),
            Event::Commanded(command) => commanded(workflow, task, command, context),
            Event::Swept if !is_due(task, context) => not_due(workflow, task, context),
            Event::Swept => alert_again(workflow, task, context),
            Event::AlertSent { ended_at } if task.due.is_some() && is_end(task, *ended_at) => {
                alert_sent(workflow, task, context)
            }
            // On record already, or about an end before this one.
            Event::AlertSent { .. } => Decision::ignore(Ignored::NotDue),
        },
    }
}

/// A wake of a task that has ended. It may itself have ended it: by a request that cannot be made,
/// or because nothing was left to undo.
fn ended<'a>(workflow: &'a Workflow, task: &Task, context: Context<'a>) -> Decision<'a> {
    let tell = if context.redelivered { ending(task, workflow) } else { Vec::new() };
    Decision::Ignore { reason: Ignored::Ended, send: Vec::new(), tell }
}

/// Starts what can start: steps whose predecessors completed, undos whose successors are undone, and
/// what waited long enough.
fn go_on<'a>(workflow: &'a Workflow, task: &Task, context: Context<'a>) -> Decision<'a> {
    let again = if context.redelivered { running(task, |_, _, _| true) } else { Vec::new() };
    let mut change = Change::of(workflow, task, context);
    change.early = context.timing.clock_skew;
    change.advance();
    if change.task == *task {
        return Decision::Ignore { reason: Ignored::NothingReady, send: again, tell: Vec::new() };
    }
    // What has become ready since must not hide what the first delivery may have lost.
    change.send.extend(again);
    Decision::Change(change)
}

fn replied<'a>(
    workflow: &'a Workflow,
    task: &Task,
    reply: &StepReply,
    context: Context<'a>,
) -> Decision<'a> {
    let StepReply { step, action, attempt, .. } = reply;
    let of = match action {
        Action::Do => format!("step `{step}`"),
        Action::Undo => format!("the undo of step `{step}`"),
    };
    let Some(progress) = task.progress(step, *action) else {
        return Decision::Illegal(format!("a reply to {of}, which never started"));
    };
    let newest = progress.state.attempt();
    if *attempt > newest || *attempt == 0 {
        return Decision::Illegal(format!("a reply to attempt {attempt} at {of}, of {newest}"));
    }
    if *attempt < newest {
        return stale(task, reply, context);
    }
    match &progress.state {
        StepState::Running { complete_by, .. } if context.now > *complete_by => {
            Decision::ignore(Ignored::LateReply)
        }
        StepState::Running { .. } if is_only_awaited(task, reply) => {
            let again = |_: &StepName, action, _| context.redelivered && action == Action::Undo;
            let tell = if context.redelivered { wakes(task, context) } else { Vec::new() };
            let reason = Ignored::StillAwaited;
            Decision::Ignore { reason, send: running(task, again), tell }
        }
        StepState::Running { .. } => {
            let mut change = Change::of(workflow, task, context);
            change.record(reply);
            Decision::Change(change)
        }
        // The supervisor has given this attempt up, or it was this reply that deferred the step.
        StepState::Waiting { .. } => stale(task, reply, context),
        StepState::Completed { .. } | StepState::Failed { .. } | StepState::Skipped { .. }
            if !context.redelivered =>
        {
            Decision::ignore(Ignored::DuplicateReply)
        }
        StepState::Completed { .. } | StepState::Failed { .. } | StepState::Skipped { .. } => {
            let follows = |name: &StepName, action: Action, number: u32| {
                action == Action::Undo
                    || is_again(name, action, number)
                    || workflow.steps.get(name).is_some_and(|other| other.after.contains(step))
            };
            let mut tell = ending(task, workflow);
            tell.extend(wakes(task, context));
            let send = running(task, follows);
            Decision::Ignore { reason: Ignored::DuplicateReply, send, tell }
        }
    }
}

/// A reply to an attempt that was given up or deferred. It may be on record, and have started undos,
/// and others whose wait was over.
fn stale<'a>(task: &Task, reply: &StepReply, context: Context<'_>) -> Decision<'a> {
    let reason = Ignored::StaleReply;
    if !context.redelivered {
        return Decision::ignore(reason);
    }
    let again = |name: &StepName, action, number| {
        let is_other = (name, action) != (&reply.step, reply.action);
        is_other && (action == Action::Undo || is_again(name, action, number))
    };
    Decision::Ignore { reason, send: running(task, again), tell: wakes(task, context) }
}

/// Whether a step of a task that goes backward was deferred.
fn is_only_awaited(task: &Task, reply: &StepReply) -> bool {
    let deferred = matches!(reply.outcome, Outcome::Deferred { .. });
    deferred && reply.action == Action::Do && task.direction() == Action::Undo
}

/// A command that is on record is not carried out again.
fn commanded<'a>(
    workflow: &'a Workflow,
    task: &Task,
    command: &Command,
    context: Context<'a>,
) -> Decision<'a> {
    let on_record = task.commands.iter().find(|record| record.id == command.command_id);
    let Some(record) = on_record else {
        return Decision::Change(operate(workflow, task, command, context));
    };
    let reason = Ignored::DuplicateCommand;
    if !context.redelivered {
        return Decision::ignore(reason);
    }
    let mut tell = vec![told(task, record)];
    tell.extend(ending(task, workflow));
    tell.extend(wakes(task, context));
    Decision::Ignore { reason, send: running(task, |_, _, _| true), tell }
}

/// What is with an agent, among what `wanted` accepts. Nothing is asked for again in a task that has
/// stopped, and no step of a task that is being undone: if its request was lost, nothing was done.
fn running(
    task: &Task,
    wanted: impl Fn(&StepName, Action, u32) -> bool,
) -> Vec<(StepName, Action)> {
    if task.process_state.is_final() {
        return Vec::new();
    }
    let direction = task.direction();
    task.running()
        .filter(|(name, action, number, _)| *action == direction && wanted(name, *action, *number))
        .map(|(name, action, ..)| (name.clone(), action))
        .collect()
}

/// Whether it is not the first attempt: any event may have started it, once its wait was over.
fn is_again(_: &StepName, _: Action, number: u32) -> bool {
    number > 1
}

/// The wakes that a task's last save may have asked for, in case they were lost: one for each wait,
/// and one for what a scheduler left to the next.
fn wakes(task: &Task, context: Context<'_>) -> Vec<Effect> {
    let now = context.now;
    let idle = !task.process_state.is_final() && task.running().next().is_none();
    let left = (idle && waits(task, now).next().is_none()).then_some(std::time::Duration::ZERO);
    let afters: BTreeSet<_> = if task.process_state.is_final() || task.paused_at.is_some() {
        BTreeSet::new()
    } else {
        waits(task, now)
            .chain(left)
            .filter(|after| *after <= crate::limits::QUEUE_DELAY_MAX)
            .collect()
    };
    let wake = |after| {
        let (task_id, cause) = (task.task_id.clone(), WakeCause::Waited);
        Effect::Wake { wake: Wake { task_id, cause }, after }
    };
    afters.into_iter().map(wake).collect()
}

/// Counts the failure of everything that is past its complete-by, applies the policies, and asks the
/// scheduler to go on.
fn sweep<'a>(workflow: &'a Workflow, task: &Task, context: Context<'a>) -> Decision<'a> {
    let mut change = Change::of(workflow, task, context);
    change.due_anew = true;
    let overdue = task.running().filter(|(.., complete_by)| context.is_past(*complete_by));
    let overdue: Vec<_> = overdue
        .map(|(step, action, number, _)| Attempt { step: step.clone(), action, number })
        .collect();
    for attempt in overdue {
        change.task.locked_by = None;
        change.give_up(attempt);
    }
    if change.task.paused_at.is_none() && context.is_past(change.task.complete_by) {
        change.overdue();
    }
    change.ask_for_recovery();
    Decision::Change(change)
}

/// Another supervisor was quicker; or it was this one, whose save took effect and whose answer was
/// lost. Then what that save decided has not been told to anybody.
fn not_due<'a>(workflow: &'a Workflow, task: &Task, context: Context<'a>) -> Decision<'a> {
    if !context.redelivered {
        return Decision::ignore(Ignored::NotDue);
    }
    let mut tell = ending(task, workflow);
    tell.extend(wakes(task, context));
    let mut trial = Change::of(workflow, task, context);
    trial.advance();
    let is_woken =
        |effect: &Effect| matches!(effect, Effect::Wake { after, .. } if after.is_zero());
    if trial.task != *task && !tell.iter().any(is_woken) {
        let wake = Wake { task_id: task.task_id.clone(), cause: WakeCause::Recovery };
        tell.push(Effect::Wake { wake, after: std::time::Duration::ZERO });
    }
    Decision::Ignore { reason: Ignored::NotDue, send: Vec::new(), tell }
}

fn alert_again<'a>(workflow: &'a Workflow, task: &Task, context: Context<'a>) -> Decision<'a> {
    let mut change = Change::of(workflow, task, context);
    change.tell = ending(task, workflow);
    change.task.due = Some(later(context.now, context.timing.pickup_within));
    Decision::Change(change)
}

fn alert_sent<'a>(workflow: &'a Workflow, task: &Task, context: Context<'a>) -> Decision<'a> {
    let mut change = Change::of(workflow, task, context);
    change.task.due = None;
    Decision::Change(change)
}

/// Whether `time` is when the task ended, to the millisecond: the state store keeps no more.
fn is_end(task: &Task, time: Timestamp) -> bool {
    task.ended_at.is_some_and(|ended_at| ended_at.as_millisecond() == time.as_millisecond())
}

/// Whether the supervisor has anything to do here yet: another may have been quicker.
fn is_due(task: &Task, context: Context<'_>) -> bool {
    task.due.is_some_and(|due| context.is_past(due))
}

impl Context<'_> {
    /// Whether `time` has passed by every clock.
    fn is_past(&self, time: Timestamp) -> bool {
        later(time, self.timing.clock_skew) <= self.now
    }
}
