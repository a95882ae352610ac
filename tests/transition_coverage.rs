//! What the stories cover together: every row of the table at the top of `transition.rs`, every event in every state, and
//! every reason to ignore an event.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::PathBuf,
};

use steward_core::{
    engine::{decision::Transition, event::Event},
    model::task::Task,
};

use crate::{
    stories,
    transition_rows::{KINDS, STATES, TransitionRow, documented_rows, kind, row_of},
};

/// What the decisions of all stories cover.
#[derive(Default)]
struct Coverage {
    rows: BTreeSet<TransitionRow>,
    /// The outcomes by state and kind of event.
    outcomes: BTreeMap<(String, &'static str), BTreeSet<String>>,
}

impl Coverage {
    /// Runs all stories. Errors in a story are reported by its own test; a violated invariant panics here, too.
    fn of_all_stories() -> Self {
        let mut coverage = Self::default();
        for file in story_files() {
            let _ = stories::check(&file, |before, event, answer| {
                coverage.record(before, event, answer);
            });
        }
        coverage
    }

    fn record(&mut self, before: &Task, event: &Event, answer: &Transition) {
        self.rows.extend(row_of(before, event, answer));
        let outcome = match answer {
            Transition::Apply { task, .. } => task.process_state.to_string(),
            Transition::Ignore { reason, .. } => format!("ignored: {reason:?}"),
            Transition::Illegal(_) => "illegal".to_owned(),
        };
        let key = (before.process_state.to_string(), kind(event));
        self.outcomes.entry(key).or_default().insert(outcome);
    }
}

fn story_files() -> Vec<PathBuf> {
    let directory: PathBuf = [env!("CARGO_MANIFEST_DIR"), "../../tests/stories"].iter().collect();
    let files = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let files: Vec<_> =
        files.filter(|file| file.extension().is_some_and(|e| e == "story")).collect();
    assert!(files.len() > 100, "found only {} stories", files.len());
    files
}

#[test]
fn every_row_of_the_transition_table_is_covered_by_a_story() {
    let (documented, coverage) = (documented_rows(), Coverage::of_all_stories());
    assert!(documented.len() > 10, "the table of transition.rs was not found: {documented:?}");
    let missing: Vec<_> =
        documented.difference(&coverage.rows).map(TransitionRow::to_string).collect();
    assert!(missing.is_empty(), "no story covers:\n{missing:#?}");
}

#[test]
fn every_transition_of_a_story_is_in_the_transition_table() {
    let (documented, coverage) = (documented_rows(), Coverage::of_all_stories());
    let unknown: Vec<_> =
        coverage.rows.difference(&documented).map(TransitionRow::to_string).collect();
    assert!(unknown.is_empty(), "not in the table of transition.rs:\n{unknown:#?}");
}

#[test]
fn every_event_occurs_in_every_state() {
    let outcomes = Coverage::of_all_stories().outcomes;
    let all = STATES.iter().flat_map(|state| KINDS.map(|kind| (*state, kind)));
    let missing: Vec<_> = all
        .filter(|(state, kind)| !outcomes.contains_key(&((*state).to_owned(), *kind)))
        .map(|(state, kind)| format!("{state}: {kind}"))
        .collect();
    assert!(missing.is_empty(), "in no story:\n{missing:#?}");
}

/// The stories have no full record and no other incarnation, so two reasons are missing.
#[test]
fn every_other_reason_to_ignore_an_event_occurs() {
    let reasons = [
        "DuplicateCommand",
        "DuplicateReply",
        "Ended",
        "InvalidAnswer",
        "NotDue",
        "NothingReady",
        "StaleReply",
        "StillAwaited",
    ];
    let outcomes: BTreeSet<_> =
        Coverage::of_all_stories().outcomes.into_values().flatten().collect();
    let ignored: Vec<_> =
        outcomes.iter().filter_map(|outcome| outcome.strip_prefix("ignored: ")).collect();
    assert_eq!(ignored, reasons);
}

/// Prints the outcomes of every event in every state:
/// `cargo test -p steward-core --test core transition_report -- --ignored --nocapture`.
#[test]
#[ignore = "prints a report"]
fn transition_report() {
    for ((state, kind), outcomes) in Coverage::of_all_stories().outcomes {
        let outcomes: Vec<_> = outcomes.into_iter().collect();
        println!("{state:<10} | {kind:<14} | {}", outcomes.join(", "));
    }
}
