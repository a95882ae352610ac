//! A task as clients and operators see it: the fields of the task's item, with readable names.

use std::collections::BTreeMap;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{next::next_events, state::PartState};

use steward_core::{
    engine::notify::result_key,
    model::{
        attempt::Action,
        command::CommandRecord,
        document::{Document, DocumentKey},
        items::ItemRecords,
        names::{Part, TaskId, WorkflowName},
        step::{Progress, StepRecord, StepState},
        task::{ProcessState, Task},
    },
};

pub use crate::failure_reason::{failure_reason_keys, newest_reason};

/// A task. The HTTP API and the command line return it as JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the fields are those of `Task`")]
pub struct TaskView {
    pub task_id: TaskId,
    pub workflow: WorkflowName,
    pub version: u32,
    pub process_state: ProcessState,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub undo_reason: Option<String>,
    #[schemars(with = "Option<String>")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused_at: Option<Timestamp>,
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
    /// The steps that have started, and their items.
    pub steps: BTreeMap<Part, StepView>,
    /// The newest commands of operators, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub commands: Vec<CommandRecord>,
    /// What happens next, in sentences.
    pub next: String,
    /// The task's output, if it is Processed and the documents were read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
}

/// The key of the document with the task's output; `None` unless the task is Processed.
#[must_use]
pub fn result_key_of(task: &Task) -> Option<DocumentKey> {
    (task.process_state == ProcessState::Processed).then(|| result_key(task))
}

/// A step, or an item of one. As soon as its undo has begun, the fields describe the undo.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StepView {
    /// The state.
    pub state: PartState,
    /// The number of the newest attempt, from 1.
    pub attempt: u32,
    /// The number of attempts that failed since the step started, or since an operator resubmitted it.
    pub failure_count: u32,
    /// The complete-by of the running attempt, or the time at which the next attempt may start.
    #[schemars(with = "Option<String>")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// The reason of the newest failure or deferral, if its document was read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Whether an attempt that did not complete may have taken effect.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub may_have_run: bool,
    /// The number of items; absent if the step has no `for_each`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub items: Option<u32>,
}

impl StepView {
    fn of(record: &StepRecord) -> Self {
        let Progress { state, failure_count, .. } = record.undo.as_ref().unwrap_or(&record.run);
        let until = state.reply_due_by().or(state.waiting_until());
        Self {
            state: PartState::of(record),
            attempt: state.attempt_count(),
            failure_count: *failure_count,
            until,
            error: None,
            may_have_run: record.run.may_have_run,
            items: record.items.as_ref().map(ItemRecords::count),
        }
    }
}

impl TaskView {
    /// Adds the reasons why steps failed or wait, as far as `documents` contain them.
    #[must_use]
    pub fn with_reasons(mut self, task: &Task, documents: &[Document]) -> Self {
        for (part, view) in &mut self.steps {
            let Some(record) = task.steps.get(&part.step) else { continue };
            let record = if part.item.is_some() { task.record(part) } else { Some(record) };
            let Some(record) = record else { continue };
            let (action, progress) = match &record.undo {
                Some(undo) => (Action::Undo, undo),
                None => (Action::Do, &record.run),
            };
            if !matches!(progress.state, StepState::Completed { .. }) {
                view.error = newest_reason(documents, part, action);
            }
        }
        self
    }

    /// The view of a task. Steps have no `error` and the task no `output`: these need documents.
    #[must_use]
    pub fn of(task: &Task) -> Self {
        let whole = task.steps.iter().map(|(name, record)| (Part::from(name.clone()), record));
        let steps: BTreeMap<_, _> = whole
            .chain(task.started_parts())
            .map(|(part, record)| (part, StepView::of(record)))
            .collect();
        let next: Vec<_> = next_events(task, None, &[]).iter().map(ToString::to_string).collect();
        Self {
            task_id: task.task_id.clone(),
            workflow: task.workflow.clone(),
            version: task.version,
            process_state: task.process_state,
            error: task.error.clone(),
            undo_reason: task.undo_reason.clone(),
            paused_at: task.paused_at,
            submitted_at: task.submitted_at,
            complete_by: task.complete_by,
            ended_at: task.ended_at,
            locked_by: task.locked_by.clone(),
            failure_count: task.failure_count,
            revision: task.revision,
            next: next.join(". "),
            steps,
            commands: task.commands.clone(),
            output: None,
        }
    }
}
