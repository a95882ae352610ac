//! What a script says about services, and what a scripted run logs.

use std::{fmt, time::Duration};

use serde_json::Value;
use steward_core::model::{
    attempt::Action,
    events::BusEvent,
    messages::{CallbackOutcome, ChildOutcome, StatusNotification, StepRequest},
    names::{Part, StepName, TaskId, WorkflowName},
};
use steward_test_world::service::CallPlan;

/// What the services of a workflow do.
pub trait Script: Send + Sync + fmt::Debug {
    /// What a service does with a call.
    fn call(&self, call: &ScriptedCall<'_>) -> CallPlan;

    /// What the holder of the callback token sends, each with the time after the answer to the call, once a call has
    /// started a step with a callback.
    fn callbacks(&self, call: &ScriptedCall<'_>) -> Vec<(Duration, CallbackOutcome)>;

    /// How a child task ends whose workflow is not given, and after which time. `None` if it never ends.
    fn child(&self, child: &ChildCall<'_>) -> Option<(Duration, ChildOutcome)>;

    /// After which time an event arrives for a step that begins to wait for one. `None` if the script sends no event.
    /// `at` is the time since the submission.
    fn event_after(&self, step: &StepKeyRef<'_>, part: &Part, at: Duration) -> Option<Duration>;
}

/// A step of a workflow.
#[derive(Debug, Clone, Copy)]
pub struct StepKeyRef<'a> {
    /// The workflow.
    pub workflow: &'a WorkflowName,
    /// The step.
    pub step: &'a StepName,
}

/// A call of a service.
#[derive(Debug)]
pub struct ScriptedCall<'a> {
    /// The step.
    pub step: StepKeyRef<'a>,
    /// The agent's request.
    pub request: &'a StepRequest,
    /// Which call of this part and action it is, from 1. Calls of all attempts count.
    pub number: u32,
    /// The time since the submission.
    pub at: Duration,
    /// An output with the fields that the workflow's expressions read.
    pub sample: Value,
}

/// The request for a child task whose workflow is not given.
#[derive(Debug)]
pub struct ChildCall<'a> {
    /// The step that runs it.
    pub step: StepKeyRef<'a>,
    /// The step's part.
    pub part: &'a Part,
    /// The child task.
    pub task_id: &'a TaskId,
    /// The time since the submission.
    pub at: Duration,
    /// Whether the child is to be done or undone.
    pub action: Action,
    /// Which request for this child and action it is, from 1.
    pub number: u32,
    /// An output with the fields that the workflow's expressions read.
    pub sample: Value,
}

/// An entry of the log of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct LogEntry {
    /// The time since the submission.
    pub at: Duration,
    /// What happened.
    pub item: LogItem,
}

/// What happened in a run.
#[derive(Debug, Clone, PartialEq)]
pub enum LogItem {
    /// An agent called a service.
    Called(Box<CallRecord>),
    /// The holder of a callback token sent this.
    CallbackSent(Part, CallbackOutcome),
    /// A child task was requested whose workflow is not given.
    ChildRequested(Part, Action),
    /// The client was notified.
    Notified(StatusNotification),
    /// An event was published.
    Published(BusEvent),
    /// A message from outside the functions: an operator's command, an event.
    Sent(String),
}

/// A call, and what the service answered.
#[derive(Debug, Clone, PartialEq)]
pub struct CallRecord {
    /// The task: the child's, for a step of a child workflow.
    pub task_id: TaskId,
    /// The workflow of the step.
    pub workflow: WorkflowName,
    /// The request.
    pub request: StepRequest,
    /// Which call of this part and action it is, from 1.
    pub number: u32,
    /// What the service did.
    pub answer: CallPlan,
}
