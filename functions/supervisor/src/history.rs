//! The history for the console: the number of tasks that ended in each minute, and the last run of the supervisor. Decisions
//! do not depend on it.
//!
//! The record of a minute is created once, so that a second supervisor does not count tasks twice. The run is recorded last:
//! if the supervisor dies before, the next run counts the same minutes again.

use std::{num::NonZeroU32, ops::Range, time::Duration};

use futures_util::{StreamExt, TryStreamExt, stream};
use jiff::Timestamp;
use steward_core::model::task::ProcessState;
use steward_runtime::{
    history::{EndedInMinute, ErrorsPass, SupervisorRun, uncounted_minutes},
    ports::{
        Clock, PortError, Ports, SharedRecord, SharedSaveOutcome, StateStore,
        ended_index_partitions,
    },
};

use crate::sweep_result::SweepResult;

/// The largest number of concurrent reads of the index of ended tasks.
const PARTS_AT_ONCE: usize = 8;

const FINAL_STATES: [ProcessState; 3] =
    [ProcessState::Processed, ProcessState::Error, ProcessState::Undone];

/// Counts the tasks that ended since the `last` run, until `deadline`, and records this run, which started at `at`.
pub(crate) async fn record<P: Ports>(
    ports: &P,
    last: Option<SharedRecord>,
    errors: ErrorsPass,
    at: Timestamp,
    swept: SweepResult,
    deadline: Timestamp,
) -> Result<(), PortError> {
    let now = ports.clock().now();
    let took = Duration::try_from(now.duration_since(at)).unwrap_or_default();
    let counted_until =
        last.as_ref().and_then(SupervisorRun::read).and_then(|last| last.counted_until);
    let (counted_until, counted) = count_minutes(ports, counted_until, now, deadline).await;
    let SweepResult { due, failed, shards_left } = swept;
    let took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
    let run = SupervisorRun { at, took_ms, due, failed, shards_left, counted_until, errors };
    let record = run.record(last.map_or(0, |last| last.revision));
    // A conflict means that another supervisor recorded its run, which is as recent.
    let (SharedSaveOutcome::Saved | SharedSaveOutcome::Conflict(_)) =
        ports.store().save_shared_record(&record).await?;
    counted
}

/// Counts minute by minute. Returns the end of the last counted minute, and the error that stopped the count.
async fn count_minutes<P: Ports>(
    ports: &P,
    mut counted_until: Option<Timestamp>,
    now: Timestamp,
    deadline: Timestamp,
) -> (Option<Timestamp>, Result<(), PortError>) {
    for minute in uncounted_minutes(counted_until, now) {
        match count_minute(ports, &minute, deadline).await {
            Ok(true) => counted_until = Some(minute.end),
            Ok(false) => break,
            Err(error) => return (counted_until, Err(error)),
        }
    }
    (counted_until, Ok(()))
}

/// Counts one minute and records it, unless no task ended in it. Returns `false` if the deadline passed before.
async fn count_minute<P: Ports>(
    ports: &P,
    within: &Range<Timestamp>,
    deadline: Timestamp,
) -> Result<bool, PortError> {
    let shards = NonZeroU32::new(ports.store().shards()).unwrap_or(NonZeroU32::MIN);
    let parts = ended_index_partitions(shards).get();
    let lanes =
        FINAL_STATES.into_iter().flat_map(|state| (0..parts).map(move |part| (state, part)));
    let counts = lanes.map(|(state, part)| {
        Box::pin(async move { count_part(ports, state, part, within, deadline).await })
    });
    let counts: Vec<_> = stream::iter(counts).buffer_unordered(PARTS_AT_ONCE).try_collect().await?;
    let Some(counts) = counts.into_iter().collect::<Option<Vec<EndedInMinute>>>() else {
        return Ok(false);
    };
    let mut minute = EndedInMinute::default();
    counts.iter().for_each(|part| minute.merge(part));
    if minute.all().all() > 0 {
        // A conflict means that another supervisor counted this minute.
        let (SharedSaveOutcome::Saved | SharedSaveOutcome::Conflict(_)) =
            ports.store().save_shared_record(&minute.record(within.start)).await?;
    }
    Ok(true)
}

/// Counts the tasks with one final state in one partition of the index. `None` if the deadline passed before.
async fn count_part<P: Ports>(
    ports: &P,
    state: ProcessState,
    part: u32,
    within: &Range<Timestamp>,
    deadline: Timestamp,
) -> Result<Option<EndedInMinute>, PortError> {
    let (mut minute, mut after) = (EndedInMinute::default(), None);
    loop {
        if ports.clock().now() >= deadline {
            return Ok(None);
        }
        let page = ports.store().ended_tasks(state, part, within.clone(), after.as_ref()).await?;
        page.ended.iter().for_each(|ended| minute.add(&ended.workflow, state));
        after = page.next;
        if after.is_none() {
            return Ok(Some(minute));
        }
    }
}
