//! The drive loop: load the task, decide, save conditionally, send the effects. The scheduler and the supervisor run
//! this loop. Submission only creates tasks, and agents only reply.
//!
//! [`drive`] groups a batch of deliveries by task and handles the tasks concurrently. It applies all events of one task
//! before it saves the task once. Then it sends the effects of all tasks together, so that ten messages share one
//! request to SQS. Large amounts of effects are sent in several chunks, so that memory stays bounded. `drive` returns a
//! result for each delivery. The caller acknowledges only a delivery whose result is `Ok`.
//!
//! ```text
//! deliveries ─┬─ task a ── load ─ decide ─ save ─┬─ effects of all, batched ─┬─ done
//!             ├─ task b ── load ─ decide ─ save ─┤                           ├─ done
//!             └─ task c ── load ─ panics ────────┘ (only its own fail)       └─ retried
//! ```
//!
//! | module | contents |
//! | --- | --- |
//! | `task` | load, decide and save for the deliveries of one task; retry after a lost race |
//! | `update` | applies the events of one task in memory |
//! | `save` | writes the documents and then the task |
//! | `send` | sends the effects of many tasks in chunks |
//! | `conflict_backoff` | pauses between retries of a save that lost a race |
//! | `retention` | extends the expiry of documents and child tasks |
//! | `transition_log` | the log line of a transition |

use std::{collections::BTreeMap, panic::AssertUnwindSafe, sync::Arc};

use futures_util::{FutureExt, StreamExt, stream};

use crate::ports::{PortError, Ports};
use send::{DecidedDeliveries, in_chunks, send_chunk};
use steward_core::{
    engine::event::Event,
    model::names::{Incarnation, TaskId},
};
use task::decide_task;

pub use retention::keep;

mod conflict_backoff;
mod retention;
mod save;
mod send;
mod task;
mod transition_log;
mod update;

/// The number of tasks of one batch that are handled concurrently.
pub const TASKS_AT_ONCE: usize = 64;

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
            Self::Port { .. } | Self::Contended { .. } | Self::Panicked { .. } => true,
            Self::Illegal { .. } | Self::Missing { .. } => false,
        }
    }

    /// Converts errors of ports for this task.
    fn port(task_id: &TaskId) -> impl Fn(PortError) -> Self + Copy {
        move |source| Self::Port { task_id: task_id.clone(), source: Arc::new(source) }
    }

    fn missing(task_id: &TaskId, what: String) -> Self {
        Self::Missing { task_id: task_id.clone(), what }
    }
}

/// Applies each delivery to its task and sends the effects. Returns a result for each delivery, in the order given.
pub async fn drive<P: Ports>(
    ports: &P,
    deliveries: Vec<Delivery>,
) -> Vec<Result<(), Arc<DriveError>>> {
    let mut results: Vec<Result<(), Arc<DriveError>>> = deliveries.iter().map(|_| Ok(())).collect();
    let mut by_task: BTreeMap<TaskId, Vec<(usize, Delivery)>> = BTreeMap::new();
    for (position, delivery) in deliveries.into_iter().enumerate() {
        by_task.entry(delivery.task_id.clone()).or_default().push((position, delivery));
    }
    let decided = stream::iter(by_task)
        .map(|(task_id, deliveries)| async move {
            let (positions, deliveries): (Vec<_>, Vec<_>) = deliveries.into_iter().unzip();
            let outcome = AssertUnwindSafe(decide_task(ports, &task_id, deliveries)).catch_unwind();
            let outcome = outcome
                .await
                .unwrap_or_else(|_| Err(DriveError::Panicked { task_id: task_id.clone() }));
            DecidedDeliveries { task_id, positions: positions.into(), outcome }
        })
        .buffer_unordered(TASKS_AT_ONCE);
    let sent = in_chunks(decided).map(|chunk| async move { send_chunk(ports, chunk).await });
    let mut sent = std::pin::pin!(sent.buffer_unordered(send::CHUNKS_AT_ONCE));
    while let Some(chunk) = sent.next().await {
        for (position, result) in chunk {
            if let Some(slot) = results.get_mut(position) {
                *slot = result;
            }
        }
    }
    results
}
