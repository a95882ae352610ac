//! A task as people and clients see it: the state store's item with its words spelled out.

use std::collections::BTreeMap;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    names::{StepName, TaskId, WorkflowName},
    task::{ProcessState, StepState, Task},
};

/// A task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the fields are those of `Task`")]
pub struct TaskView {
    pub task_id: TaskId,
    pub workflow: WorkflowName,
    pub version: u32,
    pub process_state: ProcessState,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    #[schemars(with = "String")]
    pub submitted_at: Timestamp,
    #[schemars(with = "String")]
    pub complete_by: Timestamp,
    #[schemars(with = "Option<String>")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub locked_by: Option<String>,
    pub failure_count: u32,
    pub revision: u64,
    /// The steps that have started.
    pub steps: BTreeMap<StepName, StepView>,
}

/// A step of a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StepView {
    /// running, waiting, completed or failed.
    pub state: String,
    /// The newest attempt.
    pub attempt: u32,
    /// How many attempts failed.
    pub failure_count: u32,
    /// By when the running attempt must be done, or when the next one may start.
    #[schemars(with = "Option<String>")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// The last failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl TaskView {
    /// The view of a task.
    #[must_use]
    pub fn of(task: &Task) -> Self {
        let steps = task.steps.iter().map(|(name, record)| {
            let until = match record.state {
                StepState::Running { complete_by, .. } => Some(complete_by),
                StepState::Waiting { until, .. } => Some(until),
                StepState::Completed { .. } | StepState::Failed { .. } => None,
            };
            let view = StepView {
                state: record.state.name().to_owned(),
                attempt: record.state.attempt(),
                failure_count: record.failure_count,
                until,
                error: record.error.clone(),
            };
            (name.clone(), view)
        });
        Self {
            task_id: task.task_id.clone(),
            workflow: task.workflow.clone(),
            version: task.version,
            process_state: task.process_state,
            error: task.error.clone(),
            submitted_at: task.submitted_at,
            complete_by: task.complete_by,
            ended_at: task.ended_at,
            locked_by: task.locked_by.clone(),
            failure_count: task.failure_count,
            revision: task.revision,
            steps: steps.collect(),
        }
    }
}
