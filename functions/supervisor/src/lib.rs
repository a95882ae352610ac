//! The supervisor: reads the due index, several shards concurrently and each page by page, until its deadline. It contains no
//! recovery rules: it delivers the event "swept" to each due task, and `crates/core` decides.
//!
//! Several supervisors may run concurrently: the save of a task is conditional, so a passed deadline is counted once. A run
//! need not complete: tasks that it leaves stay due, and the next run finds them.

use futures_util::{StreamExt, future::join3, stream};
use jiff::Timestamp;
use steward_core::{engine::event::Event, model::time::earlier};
use steward_runtime::{
    breaker::publish_unpublished_changes,
    drive::{Delivery, drive},
    metrics,
    ports::{Clock, DueCursor, PortError, Ports, StateStore, error_chain},
};

mod dead_letters;
mod history;
mod sweep_result;

pub use crate::sweep_result::SweepResult;

/// The largest number of shards that are swept concurrently. Each holds up to one page of tasks in memory.
const SHARDS_AT_ONCE: usize = 4;

/// Makes one run: sweeps the due index, publishes alerts that were not published, and updates the history.
///
/// # Errors
/// The due index could not be read. Failures of alerts and of the history are logged; the next run makes up for them.
pub async fn run_once<P: Ports>(
    ports: &P,
    first_shard: u32,
    deadline: Timestamp,
) -> Result<SweepResult, PortError> {
    let at = ports.clock().now();
    let sweeping = Box::pin(sweep(ports, first_shard, deadline));
    let letters = Box::pin(dead_letters::publish_new(ports));
    let (swept, letters, breakers) =
        join3(sweeping, letters, Box::pin(publish_unpublished_changes(ports))).await;
    for error in letters.err().into_iter().chain(breakers.err()) {
        tracing::warn!(
            error = error_chain(&error),
            "alerts not published; the next run publishes them"
        );
    }
    let swept = swept?;
    metrics::swept();
    if let Err(error) = Box::pin(history::record(ports, at, swept, deadline)).await {
        tracing::warn!(
            error = error_chain(&error),
            "history not updated; the next run continues from here"
        );
    }
    Ok(swept)
}

/// Sweeps all shards, several concurrently, until `deadline`, the time at which Lambda stops the function. It starts at
/// `first_shard`, so that concurrent supervisors start at different shards.
///
/// # Errors
/// The due index could not be read.
pub async fn sweep<P: Ports>(
    ports: &P,
    first_shard: u32,
    deadline: Timestamp,
) -> Result<SweepResult, PortError> {
    let shards = ports.store().shards();
    let order = (0..shards).map(|n| (first_shard % shards + n) % shards);
    let sweep = |shard| Box::pin(async move { sweep_shard(ports, shard, deadline).await });
    let sweeps = stream::iter(order).map(sweep);
    let sweeps: Vec<_> = sweeps.buffer_unordered(SHARDS_AT_ONCE).collect().await;
    let mut swept = SweepResult::default();
    for shard in sweeps {
        let SweepResult { due, failed, shards_left } = shard?;
        swept.due += due;
        swept.failed += failed;
        swept.shards_left += shards_left;
    }
    Ok(swept)
}

async fn sweep_shard<P: Ports>(
    ports: &P,
    shard: u32,
    deadline: Timestamp,
) -> Result<SweepResult, PortError> {
    let mut swept = SweepResult { shards_left: 1, ..SweepResult::default() };
    let mut after: Option<DueCursor> = None;
    loop {
        let now = ports.clock().now();
        if now >= deadline {
            return Ok(swept);
        }
        let until = earlier(now, ports.timing().clock_skew);
        let page = ports.store().due_tasks(shard, until, after.as_ref()).await?;
        let deliveries = page.task_ids.into_iter().map(|task_id| Delivery {
            task_id,
            incarnation: None,
            event: Event::Swept,
            redelivered: false,
            traceparent: None,
        });
        for result in drive(ports, deliveries.collect()).await {
            swept.due += 1;
            if let Err(error) = result {
                swept.failed += 1;
                tracing::warn!(error = error_chain(&*error), "due task not processed");
            }
        }
        after = page.next;
        if after.is_none() {
            return Ok(SweepResult { shards_left: 0, ..swept });
        }
    }
}
