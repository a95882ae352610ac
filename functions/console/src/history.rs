//! What ended when, as the supervisor counted it, and since then as the index of ended tasks has it.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use steward_aws::store::DynamoStore;
use steward_core::model::{names::WorkflowName, task::ProcessState, time::earlier};
use steward_runtime::{
    history::{self, Counts, LastRun, Minute, minute_of},
    ports::{PortError, SharedKind, StateStore},
};

/// Tasks that are counted here, at most, until the supervisor counts them.
const UNCOUNTED_MAX: usize = 1_000;

/// How far back to count here, at most: a supervisor that is silent for longer is a matter of its own.
const UNCOUNTED_WITHIN: Duration = Duration::from_secs(10 * 60);

/// Minutes in which something ended, by their starts.
pub(crate) type Minutes = BTreeMap<Timestamp, Minute>;

/// What ended from `from` on.
pub(crate) async fn since(
    store: &DynamoStore,
    from: Timestamp,
    now: Timestamp,
    last_run: Option<&LastRun>,
) -> Result<Minutes, PortError> {
    let from = minute_of(from);
    let records = store.shared_from(SharedKind::History, &history::name(from)).await?;
    let mut minutes: Minutes = records.iter().filter_map(Minute::read).collect();
    let counted_until = last_run.and_then(|run| run.counted_until).unwrap_or(from);
    let uncounted = counted_until.max(from).max(minute_of(earlier(now, UNCOUNTED_WITHIN)));
    for state in [ProcessState::Processed, ProcessState::Error, ProcessState::Undone] {
        let within = uncounted..Timestamp::MAX;
        let ended = store.list_ended(&[state], within, None, UNCOUNTED_MAX).await?;
        for entry in ended.entries {
            let Some(workflow) = entry.workflow else { continue };
            minutes.entry(minute_of(entry.at)).or_default().add(&workflow, state);
        }
    }
    Ok(minutes)
}

/// What ended from `from` on, all minutes together.
pub(crate) async fn by_workflow(
    store: &DynamoStore,
    from: Timestamp,
    now: Timestamp,
) -> Result<BTreeMap<WorkflowName, Counts>, PortError> {
    let last_run = store.shared(&LastRun::key()).await?;
    let last_run = last_run.as_ref().and_then(LastRun::read);
    let minutes = since(store, from, now, last_run.as_ref()).await?;
    let mut all: BTreeMap<_, Counts> = BTreeMap::new();
    for (workflow, counts) in minutes.into_values().flat_map(|minute| minute.workflows) {
        *all.entry(workflow).or_default() += counts;
    }
    Ok(all)
}
