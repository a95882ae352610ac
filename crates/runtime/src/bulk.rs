//! Bulk commands: one action of an operator for many tasks. A bulk command is recorded before its commands are sent. Each
//! of the commands has the id of the bulk command. Sending them again is idempotent, because a task carries out a
//! command once.
//!
//! ```text
//! record the bulk command ──► send a command to each task ──► each task records its outcome
//!                         ╳ crash: commands are sent again to the tasks without an outcome
//! ```

use futures_util::future::{join_all, try_join_all};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    dispatch::command_message,
    ports::{
        Channel, PortError, Ports, SharedRecord, SharedRecordKey, SharedRecordKind,
        SharedSaveOutcome, StateStore,
    },
};
use steward_core::{
    limits::{BULK_RECORD_RETENTION, BULK_TASKS_MAX, COMMAND_TEXT_CHARS_MAX, short_line},
    model::{
        command::{Command, CommandAction, CommandId, CommandRecord},
        json_text::to_json_value,
        names::TaskId,
        task::Task,
        time::later,
    },
};

/// A bulk command, as it is recorded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BulkCommand {
    /// The id, chosen by the sender. The command to each task has the same id.
    pub id: CommandId,
    /// The action of each task.
    #[serde(rename = "order")]
    pub action: CommandAction,
    /// The operator who sends it.
    pub by: String,
    /// The operator's reason.
    pub why: String,
    /// The time at which it was recorded.
    pub at: Timestamp,
    /// The filter by which the operator selected the tasks, as text for people.
    pub found_by: String,
    /// The tasks, each once.
    pub tasks: Vec<TaskId>,
}

/// A bulk command is outside the limits.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidBulkCommand {
    /// It has no tasks.
    #[error("no task is selected")]
    Empty,
    /// It has too many tasks.
    #[error("{0} tasks are selected; the limit is {max}", max = BULK_TASKS_MAX)]
    TooMany(usize),
}

impl BulkCommand {
    /// Checks the limits, removes duplicate tasks and shortens long texts.
    ///
    /// # Errors
    /// There are no tasks, or too many.
    pub fn validated(mut self) -> Result<Self, InvalidBulkCommand> {
        self.tasks.sort();
        self.tasks.dedup();
        if self.tasks.is_empty() {
            return Err(InvalidBulkCommand::Empty);
        }
        if self.tasks.len() > BULK_TASKS_MAX {
            return Err(InvalidBulkCommand::TooMany(self.tasks.len()));
        }
        let short = |text: &str| short_line(text, COMMAND_TEXT_CHARS_MAX);
        (self.by, self.why) = (short(&self.by), short(&self.why));
        Ok(self)
    }

    /// The command for one task.
    #[must_use]
    pub fn command(&self, task_id: &TaskId) -> Command {
        Command {
            command_id: self.id.clone(),
            task_id: task_id.clone(),
            by: self.by.clone(),
            why: self.why.clone(),
            action: self.action.clone(),
            issued_at: self.at,
        }
    }

    /// The outcome of the command that the task recorded, if there is one yet.
    #[must_use]
    pub fn answer<'a>(&self, task: &'a Task) -> Option<&'a CommandRecord> {
        task.commands.iter().find(|record| record.id == self.id)
    }

    /// Reads a bulk command.
    ///
    /// # Errors
    /// The store cannot be read, or its record is not a bulk command.
    pub async fn read<P: Ports>(ports: &P, id: &CommandId) -> Result<Option<Self>, PortError> {
        let shared = ports.store().shared_record(&key(id)).await?;
        let bulk = shared.map(|shared| serde_json::from_value(shared.body)).transpose();
        bulk.map_err(|error| {
            let operation = format!("read bulk command {id}");
            PortError { operation, retryable: false, source: Box::new(error) }
        })
    }

    /// Records the bulk command, unless its id is used already. Returns whether it was recorded.
    ///
    /// # Errors
    /// The save failed, or its outcome is unknown.
    pub async fn record<P: Ports>(&self, ports: &P) -> Result<bool, PortError> {
        let body = to_json_value(self);
        let expires_at = Some(later(self.at, BULK_RECORD_RETENTION));
        let shared = SharedRecord { key: key(&self.id), revision: 1, body, expires_at };
        Ok(ports.store().save_shared_record(&shared).await? == SharedSaveOutcome::Saved)
    }

    /// Sends the command to the given tasks. Returns a result for each task, in the order given. It reads the tasks for
    /// their tenants. If a task cannot be read, its command is sent without one.
    pub async fn send<P: Ports>(&self, ports: &P, tasks: &[TaskId]) -> Vec<Result<(), PortError>> {
        let message = |task_id| async move {
            let task = ports.store().load(task_id).await.ok().flatten();
            command_message(self.command(task_id), task.and_then(|task| task.tenant))
        };
        ports.channel().send(join_all(tasks.iter().map(message)).await).await
    }

    /// Loads the tasks, in the order of `tasks`. The result is `None` for a task that has expired.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn load<P: Ports>(&self, ports: &P) -> Result<Vec<Option<Task>>, PortError> {
        try_join_all(self.tasks.iter().map(|id| ports.store().load(id))).await
    }
}

fn key(id: &CommandId) -> SharedRecordKey {
    SharedRecordKey { kind: SharedRecordKind::Bulk, name: id.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(tasks: usize) -> BulkCommand {
        BulkCommand {
            id: "run-1".parse().unwrap(),
            action: CommandAction::Undo,
            by: "anna".to_owned(),
            why: "w".repeat(COMMAND_TEXT_CHARS_MAX + 1),
            at: Timestamp::UNIX_EPOCH,
            found_by: "state=Error".to_owned(),
            tasks: (0..tasks).map(|n| format!("order-{n}").parse().unwrap()).collect(),
        }
    }

    #[test]
    fn a_check_limits_the_tasks_removes_duplicates_and_shortens_the_reason() {
        assert_eq!(bulk(0).validated(), Err(InvalidBulkCommand::Empty));
        let too_many = bulk(BULK_TASKS_MAX + 1).validated();
        assert_eq!(too_many, Err(InvalidBulkCommand::TooMany(BULK_TASKS_MAX + 1)));
        let mut twice = bulk(BULK_TASKS_MAX);
        twice.tasks.extend(bulk(10).tasks);
        let checked = twice.validated().unwrap();
        assert_eq!(checked.tasks.len(), BULK_TASKS_MAX);
        assert_eq!(checked.why.chars().count(), COMMAND_TEXT_CHARS_MAX);
    }
}
