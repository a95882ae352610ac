//! Who uses what: each unit is on the account of a function, and of a step or of its task.
//!
//! A message is about a step or about its task as a whole, and what it sets off is on the account of
//! what it is about:
//!
//! ```text
//! of a task   its submission, its first wake, its entries in the indices, its events
//! of a step   its request, its answer, and what the scheduler reads and writes over that answer
//! ```
//!
//! So a step pays for what is read to begin those after it, and its task for what is read to begin the
//! first. The task of a step is submitted on that step's account; what it does is on its own.

use std::collections::BTreeMap;

use serde::Serialize;
use steward_core::model::{
    messages::{
        Ask, CallbackAnswer, ChildEnded, Keep, SchedulerMessage, StepReply, StepRequest,
        Submission, Wake,
    },
    names::{AgentName, StepName, TaskId, WorkflowName},
};
use steward_runtime::ports::{Outgoing, Queue};

use super::{
    meter::gb_seconds,
    plan::Plan,
    prices::{Dollars, Usage},
    world::World,
};

/// The functions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Function {
    /// Takes submissions in.
    Submission,
    /// Decides.
    Scheduler,
    /// Calls the services: all agents together.
    Agent,
    /// Looks after what is overdue.
    Supervisor,
}

impl Function {
    /// As people say it.
    fn name(self) -> &'static str {
        match self {
            Self::Submission => "submission",
            Self::Scheduler => "scheduler",
            Self::Agent => "agents",
            Self::Supervisor => "supervisor",
        }
    }
}

/// What is done about which something is counted: a step of a workflow, or its tasks as a whole.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Subject {
    pub(super) workflow: WorkflowName,
    pub(super) step: Option<StepName>,
}

impl Subject {
    /// The task as a whole.
    pub(super) fn task(workflow: &WorkflowName) -> Self {
        Self { workflow: workflow.clone(), step: None }
    }

    /// What a message is about.
    pub(super) fn of(world: &World, message: &Outgoing) -> Self {
        let (task, step) = match &message.queue {
            Queue::Agent(_) => asked(&message.body),
            Queue::Scheduler => told(&message.body),
            Queue::Submissions => match serde_json::from_str::<Submission>(&message.body) {
                Ok(Submission { parent: Some(parent), .. }) => {
                    (Some(parent.task_id), Some(parent.step.step))
                }
                Ok(submission) => return Self { workflow: submission.workflow, step: None },
                Err(_) => (None, None),
            },
            Queue::Client(_) | Queue::Rejected => (None, None),
        };
        let workflow = task.and_then(|task| world.workflow_of(&task));
        let workflow = workflow.unwrap_or_else(|| world.plan.settings.workflow.name.clone());
        Self { workflow, step }
    }
}

type About = (Option<TaskId>, Option<StepName>);

fn asked(body: &str) -> About {
    match serde_json::from_str(body) {
        Ok(StepRequest { task_id, step, .. }) => (Some(task_id), Some(step.step)),
        Err(_) => (None, None),
    }
}

fn told(body: &str) -> About {
    match serde_json::from_str(body) {
        Ok(SchedulerMessage::Reply(StepReply { task_id, step, .. })) => {
            (Some(task_id), Some(step.step))
        }
        Ok(SchedulerMessage::Callback(CallbackAnswer { token, .. })) => {
            (Some(token.task_id), Some(token.step.step))
        }
        Ok(SchedulerMessage::ChildEnded(ChildEnded { task_id, step, .. })) => {
            (Some(task_id), Some(step.step))
        }
        Ok(SchedulerMessage::Wake(Wake { task_id, .. })) => (Some(task_id), None),
        Ok(SchedulerMessage::Ask(Ask { task_id, .. })) => (Some(task_id), None),
        Ok(SchedulerMessage::Keep(Keep { task_id, .. })) => (Some(task_id), None),
        Ok(SchedulerMessage::Command(command)) => (Some(command.task_id), None),
        Err(_) => (None, None),
    }
}

/// Whose count it is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Account {
    pub(super) function: Function,
    pub(super) subject: Subject,
}

/// What is on each account.
pub(super) type Accounts = BTreeMap<Account, Usage>;

/// How long one message of an agent's queue took to carry out, and whose it was.
#[derive(Debug, Clone)]
pub(super) struct Took {
    pub(super) agent: AgentName,
    pub(super) subject: Subject,
    pub(super) millis: u64,
}

/// One line of the ledger.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Entry {
    /// What it is of: a function, a step, or a task beside its steps.
    pub of: String,
    /// What a task uses there on average.
    pub usage: Usage,
    /// What that comes to for a million tasks.
    pub dollars_per_million: Dollars,
}

/// What tasks use on average, and on whose account: by function, and by step.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Ledger {
    /// By function; those that use something.
    pub functions: Vec<Entry>,
    /// By step, each workflow's task beside its steps first.
    pub steps: Vec<Entry>,
}

impl Ledger {
    /// `accounts` is what all runs used.
    pub(super) fn of(plan: &Plan, accounts: &Accounts) -> Self {
        let runs = f64::from(plan.settings.runs);
        let (mut functions, mut subjects) = (BTreeMap::new(), BTreeMap::new());
        for (account, usage) in accounts {
            *functions.entry(account.function).or_insert_with(Usage::default) += *usage;
            *subjects.entry(account.subject.clone()).or_insert_with(Usage::default) += *usage;
        }
        let entry = |of: String, usage: &Usage| {
            let usage = usage.divided(runs);
            Entry { of, usage, dollars_per_million: plan.prices.of(&usage) }
        };
        let functions = functions.iter().map(|(one, usage)| entry(one.name().to_owned(), usage));
        let steps = plan.workflows().flat_map(|workflow| {
            let task = (Subject::task(&workflow.name), plan.task_label(&workflow.name));
            let steps = workflow.steps.keys().map(|step| {
                let key = (workflow.name.clone(), step.clone());
                let label = plan.label(&key);
                (Subject { workflow: key.0, step: Some(key.1) }, label)
            });
            std::iter::once(task).chain(steps).collect::<Vec<_>>()
        });
        let used = |subject: &Subject| subjects.get(subject).copied().unwrap_or_default();
        let steps = steps.map(|(subject, label)| entry(label, &used(&subject)));
        Self { functions: functions.collect(), steps: steps.collect() }
    }
}

/// Puts the agents' time on the accounts. An invocation carries out its batch side by side, so it takes
/// as long as the slowest of them; invocations of an agent that follow one another share a batch.
pub(super) fn add_agents_time(accounts: &mut Accounts, took: &[Took], batch: u32) {
    let mut queues: BTreeMap<&AgentName, Vec<&Took>> = BTreeMap::new();
    for took in took {
        queues.entry(&took.agent).or_default().push(took);
    }
    let size = usize::try_from(batch).unwrap_or(1).max(1);
    for together in queues.values().flat_map(|queue| queue.chunks(size)) {
        let longest = together.iter().map(|took| took.millis).max().unwrap_or(0);
        for took in together {
            // A last batch that is not full counts for what it holds.
            let gb_seconds = gb_seconds(longest) / f64::from(batch);
            let account = Account { function: Function::Agent, subject: took.subject.clone() };
            *accounts.entry(account).or_default() += Usage { gb_seconds, ..Usage::default() };
        }
    }
}
