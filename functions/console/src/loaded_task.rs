//! The data of one task, from which its pages and the dry runs of commands are made.

use std::{cell::RefCell, collections::BTreeSet, sync::Arc};

use jiff::Timestamp;
use serde_json::Value;
use steward_core::{
    definition::{plan::Plan, step::CallbackDefinition},
    engine::documents::{LoadedDocuments, NeededDocuments},
    model::{
        command::{Command, CommandAction},
        document::{Document, DocumentKey},
        names::{Part, TaskId},
        task::Task,
    },
};
use steward_operator::{
    preview::{Preview, preview},
    printable::printable,
    shown_documents::{CutStep, ShownDocuments},
};
use steward_runtime::ports::{Clock, Definitions, Ports, StateStore};

use crate::{
    caller::ConsoleCaller, console::Console, console_command::new_command_id, page::Failure,
};

/// The maximum number of documents that dry runs read beyond those that the page shows.
const DRY_RUN_DOCUMENTS_MAX: usize = 500;

/// A task with its definition and the documents that people see.
pub(crate) struct LoadedTask {
    pub(crate) task: Task,
    pub(crate) plan: Arc<Plan>,
    pub(crate) documents: Vec<Document>,
    /// The steps of which `documents` contain only some items.
    pub(crate) cut: Vec<CutStep>,
    pub(crate) now: Timestamp,
    /// `documents` and others, for dry runs.
    loaded: LoadedDocuments,
    /// What dry runs need beside `loaded`.
    needed: RefCell<BTreeSet<DocumentKey>>,
}

impl LoadedTask {
    /// Reads a task, its definition and the documents that people see. Those of `part` are among them.
    pub(crate) async fn read(
        console: &Console,
        id: &str,
        part: Option<&Part>,
    ) -> Result<Self, Failure> {
        let no_task = || Failure::NotFound(format!("task {id}"));
        let id: TaskId = id.parse().map_err(|_| no_task())?;
        let ports = &console.ports;
        let task = ports.store().load(&id).await?.ok_or_else(no_task)?;
        let (name, version) = (&task.workflow, task.version);
        let plan = ports.definitions().workflow(name, Some(version)).await?;
        // Without the definition, the console does not know which values are masked.
        let plan = plan.ok_or_else(|| {
            Failure::NotFound(format!("definition of workflow {name} version {version}"))
        })?;
        let ShownDocuments { ranges, cut } = ShownDocuments::of(&task, part);
        let documents = ports.store().documents_in(&task, &ranges).await?;
        let loaded = documents.iter().cloned().collect();
        let (now, needed) = (ports.clock().now(), RefCell::default());
        Ok(Self { task, plan, documents, cut, now, loaded, needed })
    }

    /// Reads the documents that dry runs needed. Returns false if they needed none: then their results are right.
    pub(crate) async fn read_needed(&mut self, console: &Console) -> Result<bool, Failure> {
        let needed: Vec<_> = self.needed.take().into_iter().collect();
        let found = console.ports.store().documents_of(&self.task, &needed).await?;
        self.loaded.extend(found.into_iter().map(|document| (document.key, document.body)));
        let is_complete = needed.is_empty();
        for key in needed {
            if !self.loaded.contains_key(&key) {
                self.loaded.mark_absent(key);
            }
        }
        Ok(!is_complete)
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

    /// Makes a dry run of an action. The result is preliminary until [`read_needed`](Self::read_needed) finds nothing more.
    pub(crate) fn dry_run(
        &self,
        action: CommandAction,
        caller: &ConsoleCaller,
        reason: &str,
    ) -> Preview {
        let Some(command_id) = new_command_id() else {
            return Preview::Refused("no command id could be generated".to_owned());
        };
        let (task_id, by, why) =
            (self.task.task_id.clone(), caller.name.clone(), reason.to_owned());
        let command = Command { command_id, task_id, by, why, action, issued_at: self.now };
        match preview(&self.plan, &self.task, &self.loaded, &command, self.now) {
            Ok(result) => result,
            Err(NeededDocuments(keys)) if keys.len() > DRY_RUN_DOCUMENTS_MAX => {
                Preview::Unknown(format!(
                    "the decision reads {} documents, and the console reads {DRY_RUN_DOCUMENTS_MAX}",
                    keys.len()
                ))
            }
            Err(NeededDocuments(keys)) => {
                self.needed.borrow_mut().extend(keys);
                Preview::Refused("the documents of the decision are being read".to_owned())
            }
        }
    }

    /// The steps and items that await a callback.
    pub(crate) fn awaiting_parts(&self) -> Vec<Part> {
        let awaiting = self
            .task
            .started_parts()
            .filter(|(_, record)| record.forward.state.awaiting_callback().is_some());
        awaiting.map(|(part, _)| part).collect()
    }

    /// The callback of `part`, or of the only part that awaits one.
    pub(crate) fn callback(&self, part: Option<&Part>) -> Option<&CallbackDefinition> {
        let awaiting = self.awaiting_parts();
        let part = match (part, awaiting.as_slice()) {
            (Some(part), _) => part,
            (None, [only]) => only,
            (None, _) => return None,
        };
        self.plan.find(&part.step)?.callback()
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

/// JSON with line breaks and indentation, without characters that reorder a page.
pub(crate) fn pretty_json(value: &Value) -> String {
    printable(&serde_json::to_string_pretty(value).unwrap_or_default()).into_owned()
}
