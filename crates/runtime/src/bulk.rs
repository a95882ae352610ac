//! One order for many tasks: who gave it, why, and to which. It is recorded first and sent second. Each of
//! its commands has the run's own id, so that it is harmless to send them again: a task carries out a
//! command once.
//!
//! ```text
//! record the run ──► send a command to each task ──► the answer is on the task's record
//!                ╳ dies: sent again, to those without an answer
//! ```

use futures_util::future::try_join_all;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    dispatch::commanded,
    ports::{Channel, PortError, Ports, Shared, SharedKey, SharedKind, SharedSaved, StateStore},
};
use steward_core::{
    limits::{BULK_KEPT, BULK_TASKS_MAX, COMMAND_TEXT_CHARS_MAX, shorten},
    model::{
        command::{Command, CommandId, CommandRecord, Order},
        names::TaskId,
        task::Task,
        time::later,
    },
};

/// A run over many tasks, as it is recorded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Bulk {
    /// Chosen by whoever makes it; the id of each of its commands too.
    pub id: CommandId,
    /// What is asked of each task.
    pub order: Order,
    /// Who asks.
    pub by: String,
    /// Why.
    pub why: String,
    /// When it was recorded.
    pub at: Timestamp,
    /// How the tasks were found, for people.
    pub found_by: String,
    /// The tasks, each once.
    pub tasks: Vec<TaskId>,
}

/// Why a run cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidBulk {
    /// It has no tasks.
    #[error("no task is picked")]
    Empty,
    /// It has too many.
    #[error("{0} tasks are picked; the limit is {max} at once", max = BULK_TASKS_MAX)]
    TooMany(usize),
}

impl Bulk {
    /// A run that is within the limits.
    ///
    /// # Errors
    /// It has no tasks, or too many.
    pub fn checked(mut self) -> Result<Self, InvalidBulk> {
        self.tasks.sort();
        self.tasks.dedup();
        if self.tasks.is_empty() {
            return Err(InvalidBulk::Empty);
        }
        if self.tasks.len() > BULK_TASKS_MAX {
            return Err(InvalidBulk::TooMany(self.tasks.len()));
        }
        let short = |text: &str| shorten(text, COMMAND_TEXT_CHARS_MAX);
        (self.by, self.why) = (short(&self.by), short(&self.why));
        Ok(self)
    }

    /// The command to one task.
    #[must_use]
    pub fn command(&self, task_id: &TaskId) -> Command {
        Command {
            command_id: self.id.clone(),
            task_id: task_id.clone(),
            by: self.by.clone(),
            why: self.why.clone(),
            order: self.order.clone(),
            issued_at: Some(self.at),
        }
    }

    /// What a task made of its command, if it is decided.
    #[must_use]
    pub fn answer<'a>(&self, task: &'a Task) -> Option<&'a CommandRecord> {
        task.commands.iter().find(|record| record.id == self.id)
    }

    /// Reads a run.
    ///
    /// # Errors
    /// The store cannot be read, or what it holds is no run.
    pub async fn read<P: Ports>(ports: &P, id: &CommandId) -> Result<Option<Self>, PortError> {
        let shared = ports.store().shared(&key(id)).await?;
        let run = shared.map(|shared| serde_json::from_value(shared.body)).transpose();
        run.map_err(|error| {
            let operation = format!("read run {id}");
            PortError { operation, retryable: false, source: Box::new(error) }
        })
    }

    /// Records it, unless there is one of its id already. Says whether it did.
    ///
    /// # Errors
    /// The save failed, or may have.
    pub async fn record<P: Ports>(&self, ports: &P) -> Result<bool, PortError> {
        // Our own record always serialises.
        let body = serde_json::to_value(self).unwrap_or_default();
        let expires_at = Some(later(self.at, BULK_KEPT));
        let shared = Shared { key: key(&self.id), revision: 1, body, expires_at };
        Ok(ports.store().save_shared(&shared).await? == SharedSaved::Saved)
    }

    /// Sends their commands to these of its tasks; answers for each, in the order given.
    pub async fn send<P: Ports>(&self, ports: &P, tasks: &[TaskId]) -> Vec<Result<(), PortError>> {
        let messages = tasks.iter().map(|task_id| commanded(self.command(task_id)));
        ports.channel().send(messages.collect()).await
    }

    /// Its tasks as they are now, in its order; none for one that has expired.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn load<P: Ports>(&self, ports: &P) -> Result<Vec<Option<Task>>, PortError> {
        try_join_all(self.tasks.iter().map(|id| ports.store().load(id))).await
    }
}

fn key(id: &CommandId) -> SharedKey {
    SharedKey { kind: SharedKind::Bulk, name: id.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(tasks: usize) -> Bulk {
        Bulk {
            id: "run-1".parse().unwrap(),
            order: Order::Undo,
            by: "anna".to_owned(),
            why: "w".repeat(COMMAND_TEXT_CHARS_MAX + 1),
            at: Timestamp::UNIX_EPOCH,
            found_by: "state=Error".to_owned(),
            tasks: (0..tasks).map(|n| format!("order-{n}").parse().unwrap()).collect(),
        }
    }

    #[test]
    fn a_run_has_tasks_but_not_too_many_each_once_and_a_short_reason() {
        assert_eq!(run(0).checked(), Err(InvalidBulk::Empty));
        let too_many = run(BULK_TASKS_MAX + 1).checked();
        assert_eq!(too_many, Err(InvalidBulk::TooMany(BULK_TASKS_MAX + 1)));
        let mut twice = run(BULK_TASKS_MAX);
        twice.tasks.extend(run(10).tasks);
        let checked = twice.checked().unwrap();
        assert_eq!(checked.tasks.len(), BULK_TASKS_MAX);
        assert_eq!(checked.why.chars().count(), COMMAND_TEXT_CHARS_MAX);
    }
}
