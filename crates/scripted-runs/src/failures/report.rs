//! The result of the analysis, and its table for people.

use std::{collections::BTreeMap, time::Duration};

use serde::Serialize;
use steward_core::model::attempt::Action;

use super::{
    cases::{FailureCase, NamedFault},
    findings::Finding,
};
use crate::workflow_test::duration_text;

/// The result of the analysis.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FailureReport {
    /// The workflow.
    pub workflow: String,
    /// Its version.
    pub version: u32,
    /// In how many variants the workflow was run: combinations of conditions.
    pub variants: usize,
    /// The variants beyond the limit, which were not run.
    pub variants_cut: usize,
    /// The cases that were run: single failures and pairs.
    pub cases_run: usize,
    /// The cases beyond the limit, which were not run.
    pub cases_cut: usize,
    /// Their number by what fails, such as `charge` or `charge + undo of reserve`.
    pub not_run: BTreeMap<String, usize>,
    /// The seed that chose the cases that were run.
    pub seed: u64,
    /// The pairs that were not run because another failure of the same place, with the same consequences, was combined.
    pub pairs_equivalent: usize,
    /// How long a task takes without failures, in milliseconds.
    pub healthy_took_ms: u64,
    /// What a million tasks without failures cost, in dollars.
    pub healthy_dollars_per_million: f64,
    /// The findings.
    pub findings: Vec<Finding>,
    /// The cases with one failure.
    pub singles: Vec<FailureCase>,
    /// The cases with two failures, of which both occur.
    pub pairs: Vec<FailureCase>,
}

/// A row of the table: failures with the same consequences.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FailureRow {
    /// What fails.
    pub fails: String,
    /// How.
    pub how: String,
    /// The final state of the task.
    pub ends: String,
    /// What remains that should not, or `nothing`.
    pub left_behind: String,
    /// The longest time until an operator is alerted, or `never`.
    pub alerted_within: String,
    /// The longest time until the task ends.
    pub took: String,
    /// The highest price of a million such tasks, in dollars.
    pub dollars: String,
}

/// The rows for these cases, in their order. Cases whose task ends in the same way share a row, with the longest times.
#[must_use]
pub fn rows(cases: &[FailureCase]) -> Vec<FailureRow> {
    let mut groups: Vec<(RowKey, Vec<&FailureCase>)> = Vec::new();
    for case in cases {
        let key = RowKey::of(case);
        match groups.iter_mut().find(|(other, _)| *other == key) {
            Some((_, cases)) => cases.push(case),
            None => groups.push((key, vec![case])),
        }
    }
    groups.into_iter().map(|(key, cases)| row(key, &cases)).collect()
}

/// What the cases of a row have in common.
#[derive(Debug, PartialEq, Eq)]
struct RowKey {
    places: String,
    state: String,
    left_behind: Vec<String>,
    more_than_once: Vec<String>,
    is_alerted: bool,
    /// The order of magnitude of the time that the task takes, for single failures.
    magnitude: Option<u32>,
}

impl RowKey {
    fn of(case: &FailureCase) -> Self {
        let is_single = case.faults.len() == 1;
        Self {
            places: places(&case.faults),
            state: case.state.clone(),
            left_behind: case.left_behind.clone(),
            more_than_once: case.more_than_once.clone(),
            is_alerted: case.alerted_within_ms.is_some(),
            magnitude: case.took_ms.filter(|_| is_single).and_then(u64::checked_ilog10),
        }
    }
}

fn row(key: RowKey, cases: &[&FailureCase]) -> FailureRow {
    let longest =
        |time: fn(&FailureCase) -> Option<u64>| cases.iter().filter_map(|case| time(case)).max();
    let text = |ms: u64| duration_text(Duration::from_millis(ms));
    let RowKey { places, state, left_behind, more_than_once, .. } = key;
    let is_twice = |label: &String| more_than_once.contains(label);
    let twice = more_than_once.iter().map(|label| format!("{label}, more than once"));
    let once = left_behind.iter().filter(|label| !is_twice(label)).cloned();
    let left_behind: Vec<_> = twice.chain(once).collect();
    let is_clean = left_behind.is_empty();
    let alerted_within = match longest(|case| case.alerted_within_ms) {
        Some(longest) => text(longest),
        None if is_clean => "not needed".to_owned(),
        None => "never".to_owned(),
    };
    let dollars = cases.iter().map(|case| case.dollars_per_million).fold(0.0, f64::max);
    FailureRow {
        fails: places,
        how: how(cases),
        ends: state,
        left_behind: if is_clean { "nothing".to_owned() } else { left_behind.join(", ") },
        alerted_within,
        took: longest(|case| case.took_ms).map_or("does not end".to_owned(), text),
        dollars: format!("{dollars:.2}"),
    }
}

/// How the places fail. Of pairs, a line for the first failures that have the same second ones.
fn how(cases: &[&FailureCase]) -> String {
    let mut by_first: Vec<(String, Vec<String>)> = Vec::new();
    for case in cases {
        let mut faults = case.faults.iter().map(|fault| fault.fault.to_string());
        let (first, second) = (faults.next().unwrap_or_default(), faults.next());
        let at = by_first.iter().position(|(known, _)| *known == first);
        let at = at.unwrap_or_else(|| {
            by_first.push((first, Vec::new()));
            by_first.len() - 1
        });
        if let Some((_, seconds)) = by_first.get_mut(at) {
            seconds.extend(second.filter(|second| !seconds.contains(second)));
        }
    }
    let mut lines: Vec<(Vec<String>, Vec<String>)> = Vec::new();
    for (first, seconds) in by_first {
        match lines.iter_mut().find(|(_, known)| *known == seconds) {
            Some((firsts, _)) => firsts.push(first),
            None => lines.push((vec![first], seconds)),
        }
    }
    let line = |(firsts, seconds): (Vec<String>, Vec<String>)| match seconds.is_empty() {
        true => merged(firsts).join("; "),
        false => format!("{} + {}", merged(firsts).join("; "), merged(seconds).join("; ")),
    };
    lines.into_iter().map(line).collect::<Vec<_>>().join("\n")
}

/// Whether the call took effect makes no difference if both possibilities are in the same row.
fn merged(how: Vec<String>) -> Vec<String> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let stem = |text: &str| {
        let stem = text.strip_suffix(", took effect").or_else(|| text.strip_suffix(", no effect"));
        stem.unwrap_or(text).to_owned()
    };
    for text in &how {
        *counts.entry(stem(text)).or_default() += 1;
    }
    let mut merged = Vec::new();
    for text in how {
        let stem = stem(&text);
        let text = if counts.get(&stem).copied().unwrap_or(0) > 1 { stem } else { text };
        if !merged.contains(&text) {
            merged.push(text);
        }
    }
    merged
}

/// The places that fail.
pub(super) fn places(faults: &[NamedFault]) -> String {
    let places = faults.iter().map(|fault| match fault.action {
        Action::Do => fault.step.clone(),
        Action::Undo => format!("undo of {}", fault.step),
    });
    places.collect::<Vec<_>>().join(" + ")
}
