//! Statistics of the steps of a workflow: attempts, failures and durations, measured on its most recently ended tasks.

use std::collections::BTreeMap;

use futures_util::{StreamExt, TryStreamExt, stream};
use jiff::{SignedDuration, Timestamp};
use steward_aws::{items::EndState, store::DynamoStore};
use steward_core::{
    definition::workflow::Workflow,
    model::{
        attempt::Action,
        names::{StepName, TaskId, WorkflowName},
        task::ProcessState,
    },
};
use steward_operator::{
    figures::{Figures, Spread, figures},
    shown_documents::ShownDocuments,
};
use steward_runtime::ports::PortError;

use crate::page::DurationText;

/// The number of tasks whose attempts are measured.
const TASKS_MAX: usize = 50;

/// The largest number of ended tasks of all workflows that are examined to find them.
const EXAMINED_MAX: usize = 1_000;

/// The number of index entries in one read.
const READ_SIZE: usize = 200;

/// The largest number of concurrent reads of attempts.
const READS_AT_ONCE: usize = 16;

const ENDS: [EndState; 4] = [
    EndState::In(ProcessState::Processed),
    EndState::In(ProcessState::Error),
    EndState::In(ProcessState::Undone),
    EndState::Resolved,
];

/// The statistics of a workflow's steps.
#[derive(Debug)]
pub(super) struct StepStatistics {
    /// The number of measured tasks.
    pub(super) tasks: usize,
    /// The steps and undos with attempts, in the order of the definition.
    pub(super) rows: Vec<StepStatisticsRow>,
}

/// The statistics of a step or of its undo.
#[derive(Debug)]
pub(super) struct StepStatisticsRow {
    pub(super) step: StepName,
    pub(super) is_undo: bool,
    pub(super) figures: Figures,
}

impl StepStatisticsRow {
    /// The percentage of failed attempts.
    pub(super) fn failures_percent(&self) -> usize {
        (self.figures.failures * 100).checked_div(self.figures.attempts).unwrap_or_default()
    }

    /// The median and 95th percentile of the time in the queue, and of the call.
    pub(super) fn durations(&self) -> [String; 4] {
        let text = |spread: Option<Spread>, of: fn(Spread) -> SignedDuration| {
            spread.map_or_else(|| "–".to_owned(), |spread| duration_text(of(spread)))
        };
        let Figures { waited, took, .. } = self.figures;
        let (p50, p95) = (|spread: Spread| spread.p50, |spread: Spread| spread.p95);
        [text(waited, p50), text(waited, p95), text(took, p50), text(took, p95)]
    }
}

/// A duration; with tenths of a second from 1 s to 10 s.
fn duration_text(duration: SignedDuration) -> String {
    match duration.as_millis() {
        ms @ 1_000..10_000 => format!("{}.{} s", ms / 1_000, ms % 1_000 / 100),
        _ => DurationText(duration).to_string(),
    }
}

/// Reads the attempts of the most recently ended tasks of a workflow, and computes the statistics.
pub(super) async fn read_statistics(
    store: &DynamoStore,
    workflow: &Workflow,
) -> Result<StepStatistics, PortError> {
    let ids = newest_ended(store, &workflow.name).await?;
    let tasks = store.load_tasks(&ids).await?;
    let count = tasks.len();
    let attempts = stream::iter(tasks).map(|task| async move {
        store.attempt_times(&task, &ShownDocuments::of(&task, None).ranges).await
    });
    let attempts: Vec<_> = attempts.buffer_unordered(READS_AT_ONCE).try_collect().await?;
    let attempts = attempts.iter().flatten().map(|(key, times)| (key, times));
    Ok(StepStatistics { tasks: count, rows: rows(workflow, figures(attempts)) })
}

/// The rows of each step and undo that has attempts.
fn rows(
    workflow: &Workflow,
    mut figures: BTreeMap<(StepName, Action), Figures>,
) -> Vec<StepStatisticsRow> {
    let actions = |step| [(step, Action::Do), (step, Action::Undo)];
    let rows = workflow.steps.keys().flat_map(actions).filter_map(|(step, action)| {
        let figures = figures.remove(&(step.clone(), action))?;
        let is_undo = match action {
            Action::Do => false,
            Action::Undo => true,
        };
        Some(StepStatisticsRow { step: step.clone(), is_undo, figures })
    });
    rows.collect()
}

/// The most recently ended tasks of a workflow, among the examined tasks.
async fn newest_ended(
    store: &DynamoStore,
    workflow: &WorkflowName,
) -> Result<Vec<TaskId>, PortError> {
    let (mut found, mut examined, mut after) = (Vec::new(), 0, None);
    while found.len() < TASKS_MAX && examined < EXAMINED_MAX {
        let always = Timestamp::MIN..Timestamp::MAX;
        let page = store.list_ended(&ENDS, always, after.as_ref(), READ_SIZE).await?;
        examined += page.entries.len();
        after = page.entries.last().filter(|_| page.more).map(|last| last.cursor());
        let matching = page.entries.into_iter();
        let matching = matching.filter(|entry| entry.workflow.as_ref() == Some(workflow));
        found.extend(matching.map(|entry| entry.task_id));
        if after.is_none() {
            break;
        }
    }
    found.truncate(TASKS_MAX);
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_durations_have_more_precision() {
        for (ms, expected) in
            [(0, "0 ms"), (999, "999 ms"), (1_000, "1.0 s"), (9_999, "9.9 s"), (12_345, "12 s")]
        {
            assert_eq!(duration_text(SignedDuration::from_millis(ms)), expected);
        }
    }
}
