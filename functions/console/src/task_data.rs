//! The data of one task, from which its pages and the dry runs of commands are made.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;
use steward_core::{
    definition::plan::Plan,
    engine::documents::LoadedDocuments,
    model::{
        command::{Command, CommandAction},
        document::{Document, DocumentKey},
        names::{Part, TaskId},
        task::Task,
    },
};
use steward_operator::preview::{Preview, preview};
use steward_runtime::ports::{Clock, Definitions, Ports, StateStore};

use crate::{caller::Caller, console::Console, console_command::new_command_id, page::Failure};

/// A task with its definition and all its documents.
pub(crate) struct TaskData {
    pub(crate) task: Task,
    pub(crate) workflow: Arc<Plan>,
    pub(crate) documents: Vec<Document>,
    pub(crate) now: Timestamp,
}

impl TaskData {
    /// Reads a task, its definition and its documents.
    pub(crate) async fn read(console: &Console, id: &str) -> Result<Self, Failure> {
        let no_task = || Failure::NotFound(format!("task {id}"));
        let id: TaskId = id.parse().map_err(|_| no_task())?;
        let ports = &console.ports;
        let task = ports.store().load(&id).await?.ok_or_else(no_task)?;
        let (name, version) = (&task.workflow, task.version);
        let workflow = ports.definitions().workflow(name, Some(version)).await?;
        // Without the definition, the console does not know which values are masked.
        let workflow = workflow.ok_or_else(|| {
            Failure::NotFound(format!("definition of workflow {name} version {version}"))
        })?;
        let documents = ports.store().all_documents(&task).await?;
        Ok(Self { task, workflow, documents, now: ports.clock().now() })
    }

    /// The input that steps read if they start now. It is not masked.
    pub(crate) fn input(&self) -> &Value {
        let key = match &self.task.input_edit_id {
            Some(edit) => DocumentKey::Input(edit.clone()),
            None => DocumentKey::Submission,
        };
        let body = self.documents.iter().find(|document| document.key == key);
        body.and_then(|document| document.body.get("input")).unwrap_or(&Value::Null)
    }

    /// Makes a dry run of an order.
    pub(crate) fn dry_run(&self, order: CommandAction, caller: &Caller, reason: &str) -> Preview {
        let Some(command_id) = new_command_id() else {
            return Preview::Refused("no command id could be generated".to_owned());
        };
        let (task_id, by, why) =
            (self.task.task_id.clone(), caller.name.clone(), reason.to_owned());
        let command = Command { command_id, task_id, by, why, order, issued_at: Some(self.now) };
        let documents = self.documents.iter().map(|d| (d.key.clone(), d.body.clone()));
        let mut documents: LoadedDocuments = documents.collect();
        preview(&self.workflow, &self.task, &mut documents, &command, self.now)
    }

    /// The failed and waiting steps and items. While the task is being undone: those whose undo failed or waits.
    pub(crate) fn stuck_parts(&self) -> Vec<Part> {
        let direction = self.task.direction();
        let stuck = self.task.started_actions().filter(|(_, action, progress)| {
            let state = &progress.state;
            *action == direction && (state.is_failed() || state.waiting_until().is_some())
        });
        stuck.map(|(part, ..)| part).collect()
    }
}

/// JSON with line breaks and indentation.
pub(crate) fn pretty_json(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default()
}
