//! The supervisor: reads the due index, several shards concurrently and each page by page, until its deadline. It contains no
//! recovery rules: it delivers the event "swept" to each due task, and `crates/core` decides.
//!
//! Several supervisors may run concurrently: the save of a task is conditional, so a passed deadline is counted once. A run
//! need not complete: tasks that it leaves stay due, and the next run finds them.
//!
//! | module | contents |
//! | --- | --- |
//! | [`ticks`] | further sweeps between two runs |
//! | `dead_letters` | alerts about dead letters |
//! | `errors` | keeps and reports tasks in Error that no operator has settled |
//! | `history` | the numbers of ended tasks, and the last run |
//! | `payloads` | deletes payloads that no task needs any more |
//! | `queues` | checks of all queues |

use std::{future::pending, time::Duration};

use futures_util::{
    FutureExt, StreamExt,
    future::{join, join3},
    stream,
};
use jiff::Timestamp;
use steward_core::{engine::event::Event, model::time::earlier};
use steward_runtime::{
    breaker::publish_unpublished_changes,
    drive::{Delivery, drive},
    history::SupervisorRun,
    metrics,
    ports::{Clock, DueCursor, PortError, Ports, StateStore, error_chain},
};

mod dead_letters;
pub mod errors;
mod history;
pub mod payloads;
mod queues;
mod sweep_result;
pub mod ticks;

pub use crate::{
    sweep_result::SweepResult,
    ticks::{SupervisorConfig, SweepSchedule},
};

/// The largest number of shards that are swept concurrently. Each holds up to one page of tasks in memory.
const SHARDS_AT_ONCE: usize = 4;

/// How long before its deadline a run reads no page of tasks in Error any more.
const ERRORS_WITHIN: Duration = Duration::from_secs(15);

/// How long before its deadline a run begins no page of payloads any more.
const PAYLOADS_WITHIN: Duration = Duration::from_secs(5);

/// Makes one run as [`run_once`] does, and sends the [ticks] for the time until the next run. Its sweep ends when the first
/// tick is due.
///
/// # Errors
/// As for [`run_once`]. The ticks are sent nevertheless.
pub async fn run<P: Ports>(
    ports: &P,
    schedule: &SweepSchedule,
    first_shard: u32,
    deadline: Timestamp,
) -> Result<SweepResult, PortError> {
    let at = ports.clock().now();
    let sweep_end = schedule.sweep_end(at, deadline);
    let run = Box::pin(run_from(ports, at, first_shard, sweep_end, deadline));
    let (swept, ()) = join(run, Box::pin(ticks::send(ports, schedule, at))).await;
    swept
}

/// Handles the bodies of ticks: sweeps the due index, without the checks and the history of a run, until the next tick is due. Stale
/// ticks do nothing.
///
/// # Errors
/// The due index could not be read, or the sweep did not end before `deadline`. The tick need not be delivered again: the next one makes up for it.
pub async fn handle_ticks<P: Ports>(
    ports: &P,
    schedule: &SweepSchedule,
    ticks: Vec<String>,
    first_shard: u32,
    deadline: Timestamp,
) -> Result<SweepResult, PortError> {
    let mut swept = SweepResult::default();
    for tick in ticks {
        let now = ports.clock().now();
        if let Some(end) = ticks::sweep_end(schedule, &tick, now, deadline) {
            swept.add(until(ports, deadline, sweep(ports, first_shard, end)).await?);
        }
    }
    Ok(swept)
}

/// Makes one run without ticks: sweeps the due index, publishes alerts that were not published, updates the history, and
/// deletes payloads for the rest of the time.
///
/// # Errors
/// The due index could not be read, or the sweep did not end before `deadline`. Failures of alerts and of the history are logged; the next run makes up for them.
pub async fn run_once<P: Ports>(
    ports: &P,
    first_shard: u32,
    deadline: Timestamp,
) -> Result<SweepResult, PortError> {
    run_from(ports, ports.clock().now(), first_shard, deadline, deadline).await
}

/// Makes one run that started at `at`. The sweep ends at `sweep_end`, the history at `deadline`.
async fn run_from<P: Ports>(
    ports: &P,
    at: Timestamp,
    first_shard: u32,
    sweep_end: Timestamp,
    deadline: Timestamp,
) -> Result<SweepResult, PortError> {
    let checking = queues::check(ports).map(Ok);
    let (swept, checked, breakers) = join3(
        until(ports, deadline, sweep(ports, first_shard, sweep_end)),
        until(ports, deadline, checking),
        until(ports, deadline, publish_unpublished_changes(ports)),
    )
    .await;
    // The alarm for missing runs is what reports that the queues cannot be checked.
    let complete = checked.as_ref().is_ok_and(|checked| checked.complete);
    let alerted = checked.and_then(|checked| checked.alerts);
    for error in alerted.err().into_iter().chain(breakers.err()) {
        tracing::warn!(
            error = error_chain(&error),
            "alerts not published; the next run publishes them"
        );
    }
    let swept = swept?;
    if complete {
        metrics::swept();
    }
    if let Err(error) = until(ports, deadline, record(ports, at, swept, deadline)).await {
        tracing::warn!(
            error = error_chain(&error),
            "history not updated; the next run continues from here"
        );
    }
    let deleting = payloads::delete_orphans(ports, at, earlier(deadline, PAYLOADS_WITHIN));
    if let Err(error) = until(ports, deadline, deleting).await {
        tracing::warn!(
            error = error_chain(&error),
            "payloads of expired tasks not deleted; the next run deletes them"
        );
    }
    Ok(swept)
}

/// Does what is due since the last run: keeps tasks in Error, and updates the history.
async fn record<P: Ports>(
    ports: &P,
    at: Timestamp,
    swept: SweepResult,
    deadline: Timestamp,
) -> Result<(), PortError> {
    let last = ports.store().shared_record(&SupervisorRun::key()).await?;
    let read = last.as_ref().and_then(SupervisorRun::read);
    let mut errors = read.map(|last| last.errors).unwrap_or_default();
    let until = earlier(deadline, ERRORS_WITHIN);
    if let Err(error) = errors::keep_each_hour(ports, &mut errors, at, until).await {
        tracing::warn!(
            error = error_chain(&error),
            "tasks in Error not kept or not reported; the next run goes on"
        );
    }
    history::record(ports, last, errors, at, swept, deadline).await
}

/// Does `work` until `deadline`. Whatever is not done by then is abandoned; the next run repeats it.
///
/// # Errors
/// The work failed, or was not done by then.
async fn until<P: Ports, T>(
    ports: &P,
    deadline: Timestamp,
    work: impl Future<Output = Result<T, PortError>>,
) -> Result<T, PortError> {
    let left = Duration::try_from(ports.clock().now().duration_until(deadline)).unwrap_or_default();
    // Boxed: the type of a whole run would be too deeply nested for the compiler.
    tokio::time::timeout(left, Box::pin(work)).await.unwrap_or_else(|elapsed| {
        let operation = "finish before the function's deadline".to_owned();
        Err(PortError { operation, retryable: true, source: elapsed.into() })
    })
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
        swept.add(shard?);
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
        for result in drive(ports, deliveries.collect(), pending()).await {
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
