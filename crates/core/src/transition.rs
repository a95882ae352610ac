//! The one decision: given a task, its workflow and an event, what is the task next, and what must
//! be told to whom? Pure: no clock, no I/O, no randomness.
//!
//! | state      | event                            | becomes    | and                                    |
//! | ---------- | -------------------------------- | ---------- | -------------------------------------- |
//! | Pending    | wake                             | Processing | first steps run; requests              |
//! | Pending    | wake, request impossible         | Error      | alert, notice                          |
//! | Pending    | swept, past due                  | Pending    | due later; wake                        |
//! | Pending    | swept, task past due             | Error      | alert, notice                          |
//! | Pending    | reply                            | illegal    |                                        |
//! | Processing | wake                             | Processing | waiting steps run again; requests      |
//! | Processing | reply completed                  | Processing | next steps run; requests               |
//! | Processing | reply completed, last            | Processed  | notice                                 |
//! | Processing | reply completed, next impossible | Error      | alert, notice                          |
//! | Processing | reply completed, too large       | Error      | alert, notice                          |
//! | Processing | reply failed                     | Error      | alert, notice                          |
//! | Processing | swept, step past due             | Processing | failure counted, step waits; wake      |
//! | Processing | same, attempts used up           | Error      | alert, notice                          |
//! | Processing | swept, task past due             | Error      | alert, notice                          |
//! | Processing | swept, nothing past due          | Processing | due moves on                           |
//! | Error      | reply completed                  | Error      | recorded, so that nothing is forgotten |
//! | Error      | reply failed                     | Error      | recorded                               |
//! | Error      | swept, alert unsent              | Error      | alert, notice again                    |
//! | Error      | alert sent                       | Error      | no longer due                          |
//!
//! A duplicate, a stale attempt, a reply after complete-by: ignored. If the ignored message was
//! delivered before, the effects of its first delivery may have been lost with the process, so they
//! are given again: the first three columns say what is saved, and only then is anything sent.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde_json::Value;

use crate::{
    change::{Change, ending, output_key, request},
    effects::Effect,
    messages::{Outcome, StepReply},
    names::StepName,
    ports::{Document, DocumentKey, Timing},
    task::{ProcessState, StepState, Task, later},
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
    /// The alert of a task in Error has been published.
    AlertSent,
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
            },
            Self::Swept => "swept",
            Self::AlertSent => "alert_sent",
        }
    }

    /// The step and attempt it is about, if it is about one.
    #[must_use]
    pub fn step(&self) -> Option<(&StepName, u32)> {
        match self {
            Self::Replied(reply) => Some((&reply.step, reply.attempt)),
            Self::Wake | Self::Swept | Self::AlertSent => None,
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
    /// Nothing is past due.
    NotDue,
    /// The task has ended.
    Ended,
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
    let (after, send, made) = match decide(workflow, task, event, context) {
        Decision::Change(change) => (change.task, change.send, change.documents),
        Decision::Ignore { send, .. } => (task.clone(), send, Vec::new()),
        Decision::Illegal(_) => return BTreeSet::new(),
    };
    let mut keys: BTreeSet<_> = send
        .iter()
        .filter_map(|step| workflow.steps.get(step))
        .flat_map(|step| step.request.templates())
        .flat_map(|template| {
            let reads = template.reads();
            let outputs = reads.steps.iter().filter_map(|step| output_key(&after, step));
            outputs.chain(reads.input.then_some(DocumentKey::Submission))
        })
        .collect();
    // What this very event brings along need not be read.
    for document in made {
        keys.remove(&document.key);
    }
    keys
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
            change.render(task, workflow, documents, context);
            change.settle(task, workflow, context)
        }
        Decision::Ignore { reason, send, tell } => {
            let requests = send.iter().filter_map(|step| {
                request(workflow, task, documents, step).ok().map(Effect::Request)
            });
            Transition::Ignore { reason, effects: requests.chain(tell).collect() }
        }
        Decision::Illegal(reason) => Transition::Illegal(reason),
    }
}

/// A decision before its requests are rendered: state alone decides it, no document does.
enum Decision {
    Change(Box<Change>),
    Ignore { reason: Ignored, send: Vec<StepName>, tell: Vec<Effect> },
    Illegal(String),
}

impl Decision {
    /// Changes nothing, and tells nobody.
    fn ignore(reason: Ignored) -> Self {
        Self::Ignore { reason, send: Vec::new(), tell: Vec::new() }
    }
}

fn decide(workflow: &Workflow, task: &Task, event: &Event, context: Context<'_>) -> Decision {
    match task.process_state {
        ProcessState::Pending => match event {
            Event::Wake => run_ready(workflow, task, context),
            Event::Swept if !is_due(task, context) => Decision::ignore(Ignored::NotDue),
            Event::Swept => sweep_pending(task, context),
            Event::Replied(reply) => {
                Decision::Illegal(format!("a reply to step `{}`, which never started", reply.step))
            }
            Event::AlertSent => Decision::Illegal("no alert was raised".to_owned()),
        },
        ProcessState::Processing => match event {
            Event::Wake => run_ready(workflow, task, context),
            Event::Swept if !is_due(task, context) => Decision::ignore(Ignored::NotDue),
            Event::Swept => sweep_processing(workflow, task, context),
            Event::Replied(reply) => replied(workflow, task, reply, context),
            Event::AlertSent => Decision::Illegal("no alert was raised".to_owned()),
        },
        ProcessState::Processed => match event {
            Event::Wake => ended(workflow, task, context),
            Event::Swept => Decision::ignore(Ignored::Ended),
            Event::Replied(reply) => replied(workflow, task, reply, context),
            Event::AlertSent => Decision::Illegal("no alert was raised".to_owned()),
        },
        ProcessState::Error => match event {
            Event::Wake => ended(workflow, task, context),
            Event::Replied(reply) => replied(workflow, task, reply, context),
            Event::Swept if !is_due(task, context) => Decision::ignore(Ignored::NotDue),
            Event::Swept => sweep_error(task),
            Event::AlertSent if task.due.is_none() => Decision::ignore(Ignored::NotDue),
            Event::AlertSent => alert_sent(task),
        },
    }
}

/// A wake of a task that has ended. It may itself have ended it: by a request that cannot be made.
fn ended(workflow: &Workflow, task: &Task, context: Context<'_>) -> Decision {
    let tell = match task.process_state {
        ProcessState::Error if context.redelivered => ending(task, workflow),
        ProcessState::Pending
        | ProcessState::Processing
        | ProcessState::Processed
        | ProcessState::Error => Vec::new(),
    };
    Decision::Ignore { reason: Ignored::Ended, send: Vec::new(), tell }
}

/// Starts what can start: steps whose predecessors completed, and steps that waited long enough.
fn run_ready(workflow: &Workflow, task: &Task, context: Context<'_>) -> Decision {
    let again = if context.redelivered { running(task, |_| true) } else { Vec::new() };
    let mut change = Change::of(task);
    change.start_ready(workflow, context);
    if change.send.is_empty() {
        return Decision::Ignore { reason: Ignored::NothingReady, send: again, tell: Vec::new() };
    }
    // What has become ready since must not hide what the first delivery may have lost.
    change.send.extend(again);
    change.task.process_state = ProcessState::Processing;
    Decision::Change(change)
}

fn replied(workflow: &Workflow, task: &Task, reply: &StepReply, context: Context<'_>) -> Decision {
    let Some(record) = task.steps.get(&reply.step) else {
        return Decision::Illegal(format!("a reply to step `{}`, which never started", reply.step));
    };
    let newest = record.state.attempt();
    if reply.attempt > newest || reply.attempt == 0 {
        let (step, attempt) = (&reply.step, reply.attempt);
        return Decision::Illegal(format!(
            "a reply to attempt {attempt} at step `{step}`, of {newest}"
        ));
    }
    if reply.attempt < newest {
        return Decision::ignore(Ignored::StaleReply);
    }
    match &record.state {
        StepState::Running { complete_by, .. } if context.now > *complete_by => {
            Decision::ignore(Ignored::LateReply)
        }
        StepState::Running { .. } => {
            Decision::Change(Change::record(workflow, task, reply, context))
        }
        // The supervisor has given this attempt up.
        StepState::Waiting { .. } => Decision::ignore(Ignored::StaleReply),
        StepState::Completed { .. } | StepState::Failed { .. } if !context.redelivered => {
            Decision::ignore(Ignored::DuplicateReply)
        }
        StepState::Completed { .. } | StepState::Failed { .. } => Decision::Ignore {
            reason: Ignored::DuplicateReply,
            send: running(task, |step| {
                workflow.steps.get(step).is_some_and(|step| step.after.contains(&reply.step))
            }),
            tell: ending(task, workflow),
        },
    }
}

/// The steps with an agent among those that `wanted` accepts.
fn running(task: &Task, wanted: impl Fn(&StepName) -> bool) -> Vec<StepName> {
    task.running().map(|(name, ..)| name).filter(|name| wanted(name)).cloned().collect()
}

fn sweep_pending(task: &Task, context: Context<'_>) -> Decision {
    let mut change = Change::of(task);
    if context.is_past(task.complete_by) {
        change.fail_task("the task was not done by its complete-by");
    } else {
        change.wake = true;
        change.due_anew = true;
    }
    Decision::Change(change)
}

/// Counts the failure of each step that is past its complete-by, and asks for another attempt while
/// there are any left.
fn sweep_processing(workflow: &Workflow, task: &Task, context: Context<'_>) -> Decision {
    let mut change = Change::of(task);
    change.due_anew = true;
    let overdue: Vec<_> = task
        .running()
        .filter(|(_, _, complete_by)| context.is_past(*complete_by))
        .map(|(name, attempt, _)| (name.clone(), attempt))
        .collect();
    for (step, attempt) in overdue {
        let attempts = workflow.steps.get(&step).map_or(1, |step| step.attempts);
        let reason = "no reply by complete-by";
        if attempt < attempts {
            let waiting = StepState::Waiting { attempt, until: context.now };
            change.count_failure(&step, waiting, reason, context);
            change.task.locked_by = None;
        } else {
            change.count_failure(&step, StepState::Failed { attempt }, reason, context);
            change.fail_task(&format!("step {step}: {reason}, attempt {attempt} of {attempts}"));
        }
    }
    if context.is_past(task.complete_by) {
        change.fail_task("the task was not done by its complete-by");
    }
    change.wake = change.has_waiting_until(context.now);
    Decision::Change(change)
}

fn sweep_error(task: &Task) -> Decision {
    let mut change = Change::of(task);
    change.alert_again = true;
    Decision::Change(change)
}

fn alert_sent(task: &Task) -> Decision {
    let mut change = Change::of(task);
    change.task.due = None;
    Decision::Change(change)
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
