//! Sends the effects of many tasks together, in chunks of bounded size, and maps failures back to the deliveries.

use std::{collections::BTreeMap, sync::Arc};

use futures_util::{Stream, StreamExt, stream};
use jiff::Timestamp;

use super::{
    delivery::Delivery,
    error::DriveError,
    task::{TASKS_AT_ONCE, decide_task},
    task_outcome::TaskOutcome,
};
use crate::{
    dispatch::send_prepared,
    ports::{Ports, error_chain},
};
use steward_core::{engine::event::Event, model::names::TaskId};

/// The size in bytes from which a chunk of messages is sent. A batch of small messages stays below it, so that all its
/// messages share full requests.
const CHUNK_BYTES: usize = 8 * 1024 * 1024;

/// The number of chunks that are sent concurrently.
pub(super) const CHUNKS_AT_ONCE: usize = 2;

/// The deliveries of one task, by their positions in the batch, after the decision.
pub(super) struct DecidedDeliveries {
    pub(super) task_id: TaskId,
    pub(super) positions: Arc<[usize]>,
    pub(super) outcome: Result<TaskOutcome, DriveError>,
}

/// Collects decided deliveries into one chunk, or into several if their effects exceed [`CHUNK_BYTES`]. While one
/// chunk is sent, the next tasks are decided. When `decided` ends, it is dropped at once, with the decisions that are not
/// complete: others may wait for a request that they share with one.
pub(super) fn in_chunks(
    decided: impl Stream<Item = DecidedDeliveries>,
) -> impl Stream<Item = Vec<DecidedDeliveries>> {
    stream::unfold(Some(Box::pin(decided)), |decided| async move {
        let mut decided = decided?;
        let (mut chunk, mut bytes) = (Vec::new(), 0);
        while bytes < CHUNK_BYTES {
            let Some(next) = decided.next().await else {
                return (!chunk.is_empty()).then_some((chunk, None));
            };
            let effects = next.outcome.iter().flat_map(|outcome| &outcome.effects);
            bytes += effects.map(|(effect, _)| effect.bytes()).sum::<usize>();
            chunk.push(next);
        }
        Some((chunk, Some(decided)))
    })
}

/// Sends the effects of a chunk. Returns results by position. If there are several for one position, the last one
/// counts. When `stop` is ready, the alerts are not recorded as sent any more.
pub(super) async fn send_chunk<P: Ports>(
    ports: &P,
    chunk: Vec<DecidedDeliveries>,
    stop: impl Future<Output = ()>,
) -> Vec<(usize, Result<(), Arc<DriveError>>)> {
    let (mut results, mut effects, mut owners) = (Vec::new(), Vec::new(), Vec::new());
    for DecidedDeliveries { task_id, positions, outcome } in chunk {
        match outcome {
            Err(error) => {
                let error = Arc::new(error);
                results.extend(positions.iter().map(|position| (*position, Err(error.clone()))));
            }
            Ok(outcome) => {
                let own = outcome.results.into_iter().map(|result| result.map_err(Arc::new));
                results.extend(positions.iter().copied().zip(own));
                for (effect, own) in outcome.effects {
                    let own =
                        own.into_iter().filter_map(|delivery| positions.get(delivery).copied());
                    owners.push((task_id.clone(), own.collect::<Vec<_>>()));
                    effects.push(effect);
                }
            }
        }
    }
    let mut alerted: BTreeMap<_, _> = owners
        .iter()
        .zip(&effects)
        .filter_map(|((id, _), effect)| Some((id.clone(), effect.alerted_end()?)))
        .collect();
    let sent = send_prepared(ports, effects).await;
    for ((task_id, positions), result) in owners.into_iter().zip(sent) {
        let Err(source) = result else { continue };
        // The task stays due, so the supervisor sends the alert and the notification again.
        alerted.remove(&task_id);
        let error = Arc::new(DriveError::port(&task_id)(source));
        results.extend(positions.iter().map(|position| (*position, Err(error.clone()))));
    }
    confirm_alerts(ports, alerted, stop).await;
    results
}

/// Records that the alerts of these tasks were published. A task in Error stays due until then. If this save is lost,
/// the supervisor publishes the alert again: at least once.
async fn confirm_alerts<P: Ports>(
    ports: &P,
    alerted: BTreeMap<TaskId, Timestamp>,
    stop: impl Future<Output = ()>,
) {
    let confirmed = stream::iter(alerted).map(|(task_id, ended_at)| async move {
        let delivery = Delivery {
            task_id: task_id.clone(),
            incarnation: None,
            event: Event::AlertPublished { ended_at },
            redelivered: false,
            traceparent: None,
        };
        if let Err(error) = decide_task(ports, &task_id, vec![delivery]).await {
            tracing::warn!(error = error_chain(&error), "alert sent, but not recorded as sent");
        }
    });
    confirmed.buffer_unordered(TASKS_AT_ONCE).take_until(stop).collect::<()>().await;
}
