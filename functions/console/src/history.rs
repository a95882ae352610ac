//! The numbers of ended tasks per minute: as counted by the supervisor, and since its last run from the index of ended
//! tasks.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use steward_aws::store::DynamoStore;
use steward_core::model::{names::WorkflowName, task::ProcessState, time::earlier};
use steward_runtime::{
    history::{self, EndedCounts, EndedInMinute, SupervisorRun, minute_of},
    ports::{PortError, SharedRecordKind, StateStore},
};

/// The largest number of tasks that the console counts itself.
const UNCOUNTED_MAX: usize = 1_000;

/// How far back the console counts itself. If the supervisor has not run for longer, the overview shows that as a problem.
const UNCOUNTED_WITHIN: Duration = Duration::from_secs(10 * 60);

/// The minutes in which tasks ended, by their starts.
pub(crate) type Minutes = BTreeMap<Timestamp, EndedInMinute>;

/// The tasks that ended since `from`, by minute.
pub(crate) async fn since(
    store: &DynamoStore,
    from: Timestamp,
    now: Timestamp,
    last_run: Option<&SupervisorRun>,
) -> Result<Minutes, PortError> {
    let from = minute_of(from);
    let records = store.shared_from(SharedRecordKind::History, &history::name(from)).await?;
    let mut minutes: Minutes = records.iter().filter_map(EndedInMinute::read).collect();
    let counted_until = last_run.and_then(|run| run.counted_until).unwrap_or(from);
    let uncounted = counted_until.max(from).max(minute_of(earlier(now, UNCOUNTED_WITHIN)));
    for state in [ProcessState::Processed, ProcessState::Error, ProcessState::Undone] {
        let within = uncounted..Timestamp::MAX;
        let ended = store.list_ended(&[state.into()], within, None, UNCOUNTED_MAX).await?;
        for entry in ended.entries {
            let Some(workflow) = entry.workflow else { continue };
            minutes.entry(minute_of(entry.at)).or_default().add(&workflow, state);
        }
    }
    Ok(minutes)
}

/// The tasks that ended since `from`, by workflow.
pub(crate) async fn by_workflow(
    store: &DynamoStore,
    from: Timestamp,
    now: Timestamp,
) -> Result<BTreeMap<WorkflowName, EndedCounts>, PortError> {
    let last_run = store.shared_record(&SupervisorRun::key()).await?;
    let last_run = last_run.as_ref().and_then(SupervisorRun::read);
    let minutes = since(store, from, now, last_run.as_ref()).await?;
    let mut all: BTreeMap<_, EndedCounts> = BTreeMap::new();
    for (workflow, counts) in minutes.into_values().flat_map(|minute| minute.workflows) {
        *all.entry(workflow).or_default() += counts;
    }
    Ok(all)
}
