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
//! | `delivery`, `error` | an event for a task, and why it was not handled |
//! | `task` | load, decide and save for the deliveries of one task; retry after a lost race |
//! | `task_outcome` | the results for the deliveries of one task, and the effects to send |
//! | `update` | applies the events of one task in memory |
//! | `save` | writes the documents and then the task |
//! | `send` | sends the effects of many tasks in chunks |
//! | `conflict_backoff` | pauses between retries of a save that lost a race |
//! | `retention` | extends the expiry of documents and child tasks |
//! | `transition_log` | the log line of a transition |

use std::{collections::BTreeMap, panic::AssertUnwindSafe, sync::Arc};

use futures_util::{FutureExt, StreamExt, stream};

use steward_core::model::names::TaskId;

use crate::ports::Ports;
use send::{DecidedDeliveries, in_chunks, send_chunk};
use task::decide_task;

pub use delivery::Delivery;
pub use error::DriveError;
pub use retention::{extend_for_parent, keep_until_resolved};
pub use task::TASKS_AT_ONCE;

mod conflict_backoff;
mod delivery;
mod earlier_attempts;
mod error;
mod retention;
mod save;
mod send;
mod task;
mod task_outcome;
mod transition_log;
mod update;

/// Applies each delivery to its task and sends the effects. Returns a result for each delivery, in the order given.
///
/// When `stop` is ready, decisions that are not complete are abandoned at whatever they await, and the effects of the
/// others are sent. That is safe as a crash is at the same point. Before the save, nothing has happened, except that documents
/// may be stored, which a later decision finds. If the save takes effect, its effects are not sent: the redelivered message
/// or, after a sweep, the supervisor sends them.
pub async fn drive<P: Ports>(
    ports: &P,
    deliveries: Vec<Delivery>,
    stop: impl Future<Output = ()> + Clone,
) -> Vec<Result<(), Arc<DriveError>>> {
    let mut results: Vec<Option<Result<(), Arc<DriveError>>>> = vec![None; deliveries.len()];
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
        .buffer_unordered(TASKS_AT_ONCE)
        .take_until(stop.clone());
    let sent = in_chunks(decided).map(|chunk| {
        let stop = stop.clone();
        async move { send_chunk(ports, chunk, stop).await }
    });
    let mut sent = std::pin::pin!(sent.buffer_unordered(send::CHUNKS_AT_ONCE));
    while let Some(chunk) = sent.next().await {
        for (position, result) in chunk {
            if let Some(slot) = results.get_mut(position) {
                *slot = Some(result);
            }
        }
    }
    let out_of_time = || Err(Arc::new(DriveError::OutOfTime));
    results.into_iter().map(|result| result.unwrap_or_else(out_of_time)).collect()
}
