//! Why a delivery was not handled.

use std::sync::Arc;

use steward_core::model::names::TaskId;

use crate::ports::PortError;

/// The reason why a delivery was not handled.
#[derive(Debug, thiserror::Error)]
pub enum DriveError {
    /// A port failed.
    #[error("task {task_id}")]
    Port {
        /// The task.
        task_id: TaskId,
        /// The error of the port. It is shared because one failure may affect several deliveries.
        #[source]
        source: Arc<PortError>,
    },
    /// The event is impossible in the state of the task.
    #[error("task {task_id}: illegal event: {reason}")]
    Illegal {
        /// The task.
        task_id: TaskId,
        /// The reason.
        reason: String,
    },
    /// The task, or the workflow version that it is pinned to, does not exist.
    #[error("task {task_id}: there is no {what}")]
    Missing {
        /// The task.
        task_id: TaskId,
        /// The missing task or workflow version.
        what: String,
    },
    /// Other writers kept saving the task first until the time for retries ran out.
    #[error("task {task_id}: lost {lost} races in a row to other writers")]
    Contended {
        /// The task.
        task_id: TaskId,
        /// The number of lost races.
        lost: u32,
    },
    /// The function had to stop before the decision was saved.
    #[error("the function's time was up")]
    OutOfTime,
    /// The decision panicked, which is a bug. Other tasks of the batch are not affected.
    #[error("task {task_id}: panicked")]
    Panicked {
        /// The task.
        task_id: TaskId,
    },
}

impl DriveError {
    /// Whether a redelivery of the message may succeed. If not, the message is corrupt. Every port error counts as
    /// retryable, even a permanent one: an operator may fix it (a missing permission, for example) before the message
    /// becomes a dead letter.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Port { .. }
            | Self::Contended { .. }
            | Self::OutOfTime
            | Self::Panicked { .. } => true,
            Self::Illegal { .. } | Self::Missing { .. } => false,
        }
    }

    /// Converts errors of ports for this task.
    pub(super) fn port(task_id: &TaskId) -> impl Fn(PortError) -> Self + Copy {
        move |source| Self::Port { task_id: task_id.clone(), source: Arc::new(source) }
    }

    pub(super) fn missing(task_id: &TaskId, what: String) -> Self {
        Self::Missing { task_id: task_id.clone(), what }
    }
}
