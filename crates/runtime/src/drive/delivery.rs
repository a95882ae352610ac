//! An event for a task, as a queue delivers it.

use steward_core::{
    engine::event::Event,
    model::{
        names::{Incarnation, TaskId},
        task::Task,
    },
};

/// An event for a task, with the envelope of the message that carried it.
#[derive(Debug, Clone)]
pub struct Delivery {
    /// The task.
    pub task_id: TaskId,
    /// The incarnation of the task that the message is about. Without one, the message applies to any incarnation.
    pub incarnation: Option<Incarnation>,
    /// The event.
    pub event: Event,
    /// Whether the queue has delivered the message before.
    pub redelivered: bool,
    /// The W3C `traceparent` of the message.
    pub traceparent: Option<String>,
}

impl Delivery {
    /// Whether the message is about another task with the same id.
    pub(crate) fn is_for_another(&self, task: &Task) -> bool {
        self.incarnation.is_some_and(|incarnation| incarnation != task.incarnation)
    }
}
