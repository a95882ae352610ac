//! Attribution of usage: each unit is charged to a function, and to a step or its task.
//!
//! Each message concerns a step or the task as a whole. All usage that its handler causes is charged to that:
//!
//! ```text
//! task   its submission, its first wake, its entries in the indices, the events about the task
//! step   its request, its reply, the events about the step, and what the scheduler reads and writes for that reply
//! ```
//!
//! So a step pays for the reads that start the steps after it, and the task for the reads that start its first steps.
//! The submission of a child task is charged to its step; the work of the child task to the child.

use std::collections::BTreeMap;

use serde::Serialize;
use steward_core::{
    correlation::EventSubscription,
    model::{
        events::BusEvent,
        lifecycle::LifecycleEventContent,
        messages::{
            CallbackMessage, ChildEnded, ExtendRetention, ParentRequest, SchedulerMessage,
            StepReply, StepRequest, Submission, Wake,
        },
        names::{AgentName, StepName, TaskId, WorkflowName},
    },
};
use steward_runtime::ports::{OutgoingMessage, Queue};

use super::{
    plan::ForecastPlan,
    prices::{Dollars, TaskUsage, gb_seconds},
};

/// The functions that are billed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum BilledFunction {
    /// Validates and records submissions.
    Submission,
    /// Decides the next actions of tasks.
    Scheduler,
    /// All agents together.
    Agent,
    /// Recovers overdue tasks.
    Supervisor,
}

impl BilledFunction {
    /// The name in reports.
    fn name(self) -> &'static str {
        match self {
            Self::Submission => "submission",
            Self::Scheduler => "scheduler",
            Self::Agent => "agents",
            Self::Supervisor => "supervisor",
        }
    }
}

/// What usage is charged to: a step of a workflow, or the task without its steps.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct CostSubject {
    pub(super) workflow: WorkflowName,
    pub(super) step: Option<StepName>,
}

impl CostSubject {
    /// The task without its steps.
    pub(super) fn task(workflow: &WorkflowName) -> Self {
        Self { workflow: workflow.clone(), step: None }
    }

    /// What an event concerns. Without a known task, that is a task of the workflow `default`.
    pub(super) fn of_event(event: &BusEvent, default: &WorkflowName) -> Self {
        let BusEvent::Lifecycle(event) = event else { return Self::task(default) };
        let (task, step) = match &event.content {
            LifecycleEventContent::Submitted(task)
            | LifecycleEventContent::Processed(task)
            | LifecycleEventContent::Undone(task) => (task, None),
            LifecycleEventContent::Error(data) => (&data.task, None),
            LifecycleEventContent::StepCompleted(data) => (&data.task, Some(&data.step)),
            LifecycleEventContent::StepFailed(data) => (&data.task, Some(&data.step.step)),
        };
        Self { workflow: task.workflow.clone(), step: step.cloned() }
    }

    /// What a message concerns. Without a known task, that is a task of the workflow `default`.
    pub(super) fn of(
        message: &OutgoingMessage,
        default: &WorkflowName,
        workflow_of: impl FnOnce(&TaskId) -> Option<WorkflowName>,
    ) -> Self {
        let (task, step) = match &message.queue {
            Queue::Agent(_) => request_subject(&message.body),
            Queue::Scheduler | Queue::Commands => scheduler_message_subject(&message.body),
            Queue::Events => match serde_json::from_str::<EventSubscription>(&message.body) {
                Ok(EventSubscription { waiter, .. }) => {
                    (Some(waiter.task_id), Some(waiter.step.step))
                }
                Err(_) => (None, None),
            },
            Queue::Submissions => match serde_json::from_str::<Submission>(&message.body) {
                Ok(Submission { parent: Some(parent), .. }) => {
                    (Some(parent.task_id), Some(parent.step.step))
                }
                Ok(submission) => return Self { workflow: submission.workflow, step: None },
                Err(_) => (None, None),
            },
            Queue::Client(_) | Queue::Rejected | Queue::Sweeps => (None, None),
        };
        let workflow = task.and_then(|task| workflow_of(&task));
        Self { workflow: workflow.unwrap_or_else(|| default.clone()), step }
    }
}

type TaskAndStep = (Option<TaskId>, Option<StepName>);

fn request_subject(body: &str) -> TaskAndStep {
    match serde_json::from_str(body) {
        Ok(StepRequest { task_id, step, .. }) => (Some(task_id), Some(step.step)),
        Err(_) => (None, None),
    }
}

fn scheduler_message_subject(body: &str) -> TaskAndStep {
    match serde_json::from_str(body) {
        Ok(SchedulerMessage::Reply(StepReply { task_id, step, .. })) => {
            (Some(task_id), Some(step.step))
        }
        Ok(SchedulerMessage::Callback(CallbackMessage { token, .. })) => {
            (Some(token.task_id), Some(token.step.step))
        }
        Ok(SchedulerMessage::ChildEnded(ChildEnded { task_id, step, .. })) => {
            (Some(task_id), Some(step.step))
        }
        Ok(SchedulerMessage::Wake(Wake { task_id, .. })) => (Some(task_id), None),
        Ok(SchedulerMessage::ParentRequest(ParentRequest { task_id, .. })) => (Some(task_id), None),
        Ok(SchedulerMessage::ExtendRetention(ExtendRetention { task_id, .. })) => {
            (Some(task_id), None)
        }
        Ok(SchedulerMessage::Command(command)) => (Some(command.task_id), None),
        Err(_) => (None, None),
    }
}

/// The function and the subject that usage is charged to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct CostAccount {
    pub(super) function: BilledFunction,
    pub(super) subject: CostSubject,
}

/// The usage of each account.
pub(super) type CostAccounts = BTreeMap<CostAccount, TaskUsage>;

/// How long an agent took for one message.
#[derive(Debug, Clone)]
pub(super) struct AgentTime {
    pub(super) agent: AgentName,
    pub(super) subject: CostSubject,
    pub(super) millis: u64,
}

/// One line of the ledger.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CostLedgerEntry {
    /// The name of the function, the step, or the task without its steps.
    pub of: String,
    /// The average usage of a task.
    pub usage: TaskUsage,
    /// The price for a million tasks.
    pub dollars_per_million: Dollars,
}

/// The average usage of a task, by function and by step.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CostLedger {
    /// By function; functions without usage are omitted.
    pub functions: Vec<CostLedgerEntry>,
    /// By step. The task without its steps precedes the steps of its workflow.
    pub steps: Vec<CostLedgerEntry>,
}

impl CostLedger {
    /// The average of `accounts`, which contains the usage of all runs.
    pub(super) fn of(plan: &ForecastPlan, accounts: &CostAccounts) -> Self {
        let runs = f64::from(plan.settings.runs);
        let (mut functions, mut subjects) = (BTreeMap::new(), BTreeMap::new());
        for (account, usage) in accounts {
            *functions.entry(account.function).or_insert_with(TaskUsage::default) += *usage;
            *subjects.entry(account.subject.clone()).or_insert_with(TaskUsage::default) += *usage;
        }
        let entry = |of: String, usage: &TaskUsage| {
            let usage = usage.divided(runs);
            CostLedgerEntry { of, usage, dollars_per_million: plan.prices.of(&usage) }
        };
        let functions = functions.iter().map(|(one, usage)| entry(one.name().to_owned(), usage));
        let steps = plan.workflows().flat_map(|workflow| {
            let task = (CostSubject::task(&workflow.name), plan.task_label(&workflow.name));
            let steps = workflow.steps.keys().map(|step| {
                let key = (workflow.name.clone(), step.clone());
                let label = plan.label(&key);
                (CostSubject { workflow: key.0, step: Some(key.1) }, label)
            });
            std::iter::once(task).chain(steps).collect::<Vec<_>>()
        });
        let used = |subject: &CostSubject| subjects.get(subject).copied().unwrap_or_default();
        let steps = steps.map(|(subject, label)| entry(label, &used(&subject)));
        Self { functions: functions.collect(), steps: steps.collect() }
    }
}

/// Adds the agents' time to the accounts. An invocation handles its batch concurrently, so it takes as long as the
/// slowest message. Consecutive messages of an agent share a batch.
pub(super) fn add_agents_time(accounts: &mut CostAccounts, took: &[AgentTime], batch: u32) {
    let mut queues: BTreeMap<&AgentName, Vec<&AgentTime>> = BTreeMap::new();
    for took in took {
        queues.entry(&took.agent).or_default().push(took);
    }
    let size = usize::try_from(batch).unwrap_or(1).max(1);
    for together in queues.values().flat_map(|queue| queue.chunks(size)) {
        let longest = together.iter().map(|took| took.millis).max().unwrap_or(0);
        for took in together {
            // An incomplete last batch counts in proportion to its messages.
            let gb_seconds = gb_seconds(longest) / f64::from(batch);
            let account =
                CostAccount { function: BilledFunction::Agent, subject: took.subject.clone() };
            *accounts.entry(account).or_default() +=
                TaskUsage { gb_seconds, ..TaskUsage::default() };
        }
    }
}
