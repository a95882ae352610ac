//! How the steps of a workflow fare, measured on those of its tasks that have ended last.

use std::collections::BTreeMap;

use futures_util::{StreamExt, TryStreamExt, stream};
use jiff::{SignedDuration, Timestamp};
use steward_aws::store::DynamoStore;
use steward_core::{
    definition::workflow::Workflow,
    model::{
        attempt::Action,
        names::{StepName, TaskId, WorkflowName},
        task::ProcessState,
    },
};
use steward_operator::figures::{Figures, Spread, figures};
use steward_runtime::ports::PortError;

use crate::page::Span;

/// Tasks whose attempts are measured.
const TASKS_MAX: usize = 50;

/// Ended tasks of any workflow that are looked at to find them.
const LOOK_AT_MAX: usize = 1_000;

/// Of these, read at once.
const PAGE: usize = 200;

/// Tasks whose attempts are read at once.
const READS_AT_ONCE: usize = 16;

const ENDED: [ProcessState; 3] =
    [ProcessState::Processed, ProcessState::Error, ProcessState::Undone];

/// What was measured.
#[derive(Debug)]
pub(super) struct Measured {
    /// On how many tasks.
    pub(super) tasks: usize,
    /// In the order of the definition.
    pub(super) rows: Vec<Row>,
}

/// A step, or its undo.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) step: StepName,
    pub(super) is_undo: bool,
    pub(super) figures: Figures,
}

impl Row {
    /// Of a hundred attempts, how many failed.
    pub(super) fn failures_percent(&self) -> usize {
        (self.figures.failures * 100).checked_div(self.figures.attempts).unwrap_or_default()
    }

    /// The median and the 95th percentile in the queue, and the same at the service.
    pub(super) fn lengths(&self) -> [String; 4] {
        let said = |spread: Option<Spread>, of: fn(Spread) -> SignedDuration| {
            spread.map_or_else(|| "–".to_owned(), |spread| length(of(spread)))
        };
        let Figures { waited, took, .. } = self.figures;
        let (p50, p95) = (|spread: Spread| spread.p50, |spread: Spread| spread.p95);
        [said(waited, p50), said(waited, p95), said(took, p50), said(took, p95)]
    }
}

/// A length of time, to a tenth of a second where that matters.
fn length(of: SignedDuration) -> String {
    match of.as_millis() {
        ms @ 1_000..10_000 => format!("{}.{} s", ms / 1_000, ms % 1_000 / 100),
        _ => Span(of).to_string(),
    }
}

/// The attempts of the newest tasks of a workflow that have ended.
pub(super) async fn measure(
    store: &DynamoStore,
    workflow: &Workflow,
) -> Result<Measured, PortError> {
    let ids = newest(store, &workflow.name).await?;
    let tasks = ids.len();
    let attempts = stream::iter(ids).map(|id| async move { store.attempt_times(&id).await });
    let attempts: Vec<_> = attempts.buffer_unordered(READS_AT_ONCE).try_collect().await?;
    let attempts = attempts.iter().flatten().map(|(key, times)| (key, times));
    Ok(Measured { tasks, rows: rows(workflow, figures(attempts)) })
}

/// Of each step that the definition has, how it is done and how it is undone.
fn rows(workflow: &Workflow, mut figures: BTreeMap<(StepName, Action), Figures>) -> Vec<Row> {
    let ways = |step| [(step, Action::Do), (step, Action::Undo)];
    let rows = workflow.steps.keys().flat_map(ways).filter_map(|(step, action)| {
        let figures = figures.remove(&(step.clone(), action))?;
        let is_undo = match action {
            Action::Do => false,
            Action::Undo => true,
        };
        Some(Row { step: step.clone(), is_undo, figures })
    });
    rows.collect()
}

/// The newest tasks of a workflow that have ended, as far as one looks.
async fn newest(store: &DynamoStore, workflow: &WorkflowName) -> Result<Vec<TaskId>, PortError> {
    let (mut found, mut looked_at, mut after) = (Vec::new(), 0, None);
    while found.len() < TASKS_MAX && looked_at < LOOK_AT_MAX {
        let always = Timestamp::MIN..Timestamp::MAX;
        let page = store.list_ended(&ENDED, always, after.as_ref(), PAGE).await?;
        looked_at += page.entries.len();
        after = page.entries.last().filter(|_| page.more).map(|last| last.cursor());
        let of_it = page.entries.into_iter();
        let of_it = of_it.filter(|entry| entry.workflow.as_ref() == Some(workflow));
        found.extend(of_it.map(|entry| entry.task_id));
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
    fn a_length_is_as_exact_as_it_is_short() {
        for (ms, said) in
            [(0, "0 ms"), (999, "999 ms"), (1_000, "1.0 s"), (9_999, "9.9 s"), (12_345, "12 s")]
        {
            assert_eq!(length(SignedDuration::from_millis(ms)), said);
        }
    }
}
