//! The shapes of a part: what a task knows of it, without the numbers of attempts, times and identities. Each combination
//! of states that the engine can meet is one shape.

use std::collections::{BTreeMap, BTreeSet};

use steward_core::model::{
    earlier_key::{EarlierKey, Ran},
    step::{Progress, StepRecord, StepState},
    task::Task,
};

/// Shapes, each with an example.
pub(super) type Shapes = BTreeMap<String, String>;

/// Adds the shapes of the parts of a task.
pub(super) fn add(shapes: &mut Shapes, workflow: &str, task: &Task) {
    for (part, record) in task.started_parts() {
        let example = || format!("{part} of {workflow}, {}", task.process_state);
        shapes.entry(shape(record)).or_insert_with(example);
    }
}

fn shape(record: &StepRecord) -> String {
    let keys: BTreeSet<_> = record.earlier.iter().map(key).collect();
    let undo = record.undo.as_ref().map(|undo| {
        let of = if undo.key_since.is_some() { "undo of an earlier key" } else { "undo" };
        format!("{of} {}", progress(undo))
    });
    let parts = [progress(&record.forward)].into_iter().chain(keys).chain(undo);
    parts.collect::<Vec<_>>().join("; ")
}

fn progress(progress: &Progress) -> String {
    let Progress { state, may_have_run, call_may_run_until, completed_by_hand, .. } = progress;
    let is_deferred = matches!(state, StepState::Waiting { complete_by: Some(_), .. });
    let facts = [
        (is_deferred, "after a deferral"),
        (*may_have_run, "may have run"),
        (call_may_run_until.is_some() && *may_have_run, "perhaps in progress"),
        (completed_by_hand.is_some(), "by hand"),
        (progress.second_delivery_may_act, "two deliveries"),
    ];
    let facts: String = facts
        .into_iter()
        .filter_map(|(is, fact)| is.then_some(fact))
        .map(|fact| format!(", {fact}"))
        .collect();
    format!("{}{facts}", state.name())
}

fn key(key: &EarlierKey) -> String {
    let ran = match key.ran {
        Ran::No => "did not run",
        Ran::Maybe => "may have run",
        Ran::Yes => "ran",
    };
    let denied = if key.denied.is_some() { ", denied" } else { "" };
    let undone = if key.undone { ", undone" } else { "" };
    format!("a key that {ran}{denied}{undone}")
}
