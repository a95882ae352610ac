//! The supervisor: sweeps the due index, some shards side by side, each page by page, until its time is
//! up. It knows no business: each task found is driven by the event "swept", and the core decides.
//!
//! Several may run at once: a task's save is conditional, so one expiry is counted once. Nothing
//! depends on one run: what it leaves is due still, and the next run finds it.

use futures_util::{StreamExt, future::join3, stream};
use jiff::Timestamp;
use serde::Serialize;
use steward_core::{engine::event::Event, model::time::earlier};
use steward_runtime::{
    breaker::tell_untold,
    drive::{Delivery, drive},
    metrics,
    ports::{Clock, DueCursor, PortError, Ports, StateStore, chain},
};

mod dead_letters;
mod history;

/// Shards swept at once: while the tasks of one are saved, the next is read. Each has up to a page in hand.
const SHARDS_AT_ONCE: usize = 4;

/// One run: sweeps the due index, makes good what else was left untold, and then keeps history.
///
/// # Errors
/// The due index could not be read. What is left untold is told by the next run, and what is left
/// uncounted is counted by it.
pub async fn supervise<P: Ports>(
    ports: &P,
    first_shard: u32,
    deadline: Timestamp,
) -> Result<Swept, PortError> {
    let at = ports.clock().now();
    let sweeping = Box::pin(sweep(ports, first_shard, deadline));
    let letters = Box::pin(dead_letters::tell_new(ports));
    let (swept, letters, breakers) = join3(sweeping, letters, Box::pin(tell_untold(ports))).await;
    for error in letters.err().into_iter().chain(breakers.err()) {
        tracing::warn!(error = chain(&error), "something was left untold; the next run tells it");
    }
    let swept = swept?;
    metrics::swept();
    if let Err(error) = Box::pin(history::record(ports, at, swept, deadline)).await {
        tracing::warn!(error = chain(&error), "history not kept; the next run goes on from here");
    }
    Ok(swept)
}

/// What one sweep saw.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Swept {
    /// Tasks found due.
    pub due: u64,
    /// Of these, the ones that could not be driven; they are due still.
    pub failed: u64,
    /// Shards that were not read to their end: the time was up.
    pub shards_left: u32,
}

/// Sweeps all shards, some side by side, until `deadline`, the time at which the function itself is
/// stopped. It starts at a shard of its own, so that several supervisors begin in different places.
///
/// # Errors
/// The due index could not be read.
pub async fn sweep<P: Ports>(
    ports: &P,
    first_shard: u32,
    deadline: Timestamp,
) -> Result<Swept, PortError> {
    let shards = ports.store().shards();
    let order = (0..shards).map(|n| (first_shard % shards + n) % shards);
    let sweep = |shard| Box::pin(async move { sweep_shard(ports, shard, deadline).await });
    let sweeps = stream::iter(order).map(sweep);
    let sweeps: Vec<_> = sweeps.buffer_unordered(SHARDS_AT_ONCE).collect().await;
    let mut swept = Swept::default();
    for shard in sweeps {
        let Swept { due, failed, shards_left } = shard?;
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
) -> Result<Swept, PortError> {
    let mut swept = Swept { shards_left: 1, ..Swept::default() };
    let mut after: Option<DueCursor> = None;
    loop {
        let now = ports.clock().now();
        if now >= deadline {
            return Ok(swept);
        }
        let until = earlier(now, ports.timing().clock_skew);
        let page = ports.store().due(shard, until, after.as_ref()).await?;
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
                tracing::warn!(error = chain(&*error), "due task not driven");
            }
        }
        after = page.next;
        if after.is_none() {
            return Ok(Swept { shards_left: 0, ..swept });
        }
    }
}
