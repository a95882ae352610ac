//! `--update`: writes what was seen into the test file. It replaces the keys of `expect` that differ, line by line, and adds
//! an `expect` where there is none. All other lines stay as they are, with their comments.

use std::{ops::Range, time::Duration};

use serde_json::{Value, json};
use steward_core::model::attempt::Action;

use super::{
    names::method_name,
    observed::{Observed, ObservedCall},
    run::{CaseOutcome, FileResult},
    workflow_tests::WorkflowTests,
};

/// A test file with what was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Update {
    /// The new text of the file.
    pub text: String,
    /// The names of the cases that changed.
    pub changed: Vec<String>,
    /// The names of the cases that cannot be changed: they are written on one line, or could not be run.
    pub skipped: Vec<String>,
}

/// The keys of `expect`, in the order in which they are written.
const KEYS: [&str; 8] =
    ["state", "reason", "steps", "output", "calls", "alerts", "notifications", "took"];

/// Replaces lines of a file.
struct Edit {
    lines: Range<usize>,
    by: Vec<String>,
}

/// The text of the test file with what was seen in each case that did not pass.
#[must_use]
pub fn update(tests: &WorkflowTests, result: &FileResult) -> Update {
    let lines: Vec<&str> = tests.file.text.lines().collect();
    let (mut edits, mut changed, mut skipped) = (Vec::new(), Vec::new(), Vec::new());
    for (n, case) in result.cases.iter().enumerate() {
        let wanted: Vec<&str> = match &case.outcome {
            CaseOutcome::Passed => continue,
            CaseOutcome::NothingExpected => Vec::new(),
            CaseOutcome::Failed { differences } => {
                differences.iter().map(|difference| difference.key).collect()
            }
            CaseOutcome::NotRun { .. } => {
                skipped.push(case.name.clone());
                continue;
            }
        };
        let edit = case.observed.as_ref().and_then(|seen| {
            let block = CaseBlock::find(tests, &lines, n)?;
            if wanted.is_empty() {
                Some(vec![block.added(seen)])
            } else {
                block.replaced(&lines, seen, &wanted)
            }
        });
        match edit {
            Some(edit) => {
                edits.extend(edit);
                changed.push(case.name.clone());
            }
            None => skipped.push(case.name.clone()),
        }
    }
    let mut new: Vec<String> = lines.iter().map(ToString::to_string).collect();
    edits.sort_by_key(|edit| std::cmp::Reverse(edit.lines.start));
    for Edit { lines, by } in edits {
        if lines.end <= new.len() {
            new.splice(lines, by);
        }
    }
    Update { text: new.join("\n") + "\n", changed, skipped }
}

/// The lines of a case, by index from 0.
struct CaseBlock {
    lines: Range<usize>,
    /// The number of spaces before the keys of the case.
    indent: usize,
}

impl CaseBlock {
    /// `None` if the case is not written in block style.
    fn find(tests: &WorkflowTests, lines: &[&str], n: usize) -> Option<Self> {
        let start = index_of(tests.file.location(&format!("cases.{n}"))?.line)?;
        let next = (n + 1 < tests.cases().len())
            .then(|| tests.file.location(&format!("cases.{}", n + 1)))
            .flatten();
        let end = next.and_then(|next| index_of(next.line)).unwrap_or(lines.len());
        let first = lines.get(start)?;
        let keys = first.trim_start().strip_prefix('-')?;
        let indent = first.len() - keys.trim_start().len();
        let is_block = !keys.trim_start().starts_with('{');
        let body = lines.get(start..end)?;
        // What comes after the last key: empty lines, comments of the next case, keys of the file.
        let own = body.iter().enumerate().skip(1).take_while(|(_, line)| {
            is_blank(line) || line.trim_start().starts_with('#') || spaces(line) >= indent
        });
        let last =
            own.filter(|(_, line)| !is_blank(line) && !line.trim_start().starts_with('#')).last();
        let end = start + last.map_or(0, |(index, _)| index) + 1;
        is_block.then_some(Self { lines: start..end, indent })
    }

    /// Adds the whole expectation.
    fn added(&self, seen: &Observed) -> Edit {
        let at = self.lines.end;
        Edit { lines: at..at, by: whole(seen, self.indent) }
    }

    /// Replaces the keys that differ. `None` if the expectation is not written in block style, or on one line.
    fn replaced(&self, lines: &[&str], seen: &Observed, keys: &[&str]) -> Option<Vec<Edit>> {
        let is_expect =
            |line: &str| spaces(line) == self.indent && line.trim_start().starts_with("expect:");
        let start =
            self.lines.clone().find(|n| lines.get(*n).is_some_and(|line| is_expect(line)))?;
        let end = end_of_block(lines, start, self.lines.end, self.indent);
        let after_colon = lines.get(start)?.trim_start().strip_prefix("expect:")?.trim();
        if !(after_colon.is_empty() || after_colon.starts_with('#')) {
            let is_one_line = end == start + 1;
            return is_one_line
                .then(|| vec![Edit { lines: start..end, by: whole(seen, self.indent) }]);
        }
        let inner = (start + 1..end).find(|n| lines.get(*n).is_some_and(|line| is_key(line)))?;
        let indent = spaces(lines.get(inner)?);
        let edits = keys.iter().filter_map(|key| {
            let prefix = format!("{key}:");
            let at = (inner..end).find(|n| {
                lines.get(*n).is_some_and(|line| {
                    spaces(line) == indent && line.trim_start().starts_with(&prefix)
                })
            })?;
            Some(Edit {
                lines: at..end_of_block(lines, at, end, indent),
                by: key_lines(key, seen, indent),
            })
        });
        Some(edits.collect())
    }
}

/// The end of a key's lines: those that are indented further, and list items below it.
fn end_of_block(lines: &[&str], start: usize, limit: usize, indent: usize) -> usize {
    let is_inside = |line: &str| {
        is_blank(line)
            || spaces(line) > indent
            || (spaces(line) == indent && line.trim_start().starts_with("- "))
    };
    let end = (start + 1..limit).find(|n| lines.get(*n).is_some_and(|line| !is_inside(line)));
    let mut end = end.unwrap_or(limit);
    while end > start + 1 && lines.get(end - 1).is_some_and(|line| is_blank(line)) {
        end -= 1;
    }
    end
}

fn index_of(line: u64) -> Option<usize> {
    usize::try_from(line).ok()?.checked_sub(1)
}

fn spaces(line: &str) -> usize {
    line.len() - line.trim_start_matches(' ').len()
}

fn is_blank(line: &str) -> bool {
    line.trim().is_empty()
}

fn is_key(line: &str) -> bool {
    !is_blank(line) && !line.trim_start().starts_with('#')
}

fn whole(seen: &Observed, indent: usize) -> Vec<String> {
    let mut lines = vec![format!("{}expect:", " ".repeat(indent))];
    for key in KEYS {
        let is_empty = match key {
            // Calls and the state say it already.
            "steps" => true,
            "reason" => seen.reason.is_none(),
            "output" => seen.output.is_null(),
            "took" => seen.took.is_none(),
            _ => false,
        };
        if !is_empty {
            lines.extend(key_lines(key, seen, indent + 2));
        }
    }
    lines
}

/// The lines of one key of `expect`.
fn key_lines(key: &str, seen: &Observed, indent: usize) -> Vec<String> {
    let space = " ".repeat(indent);
    let names = |names: &[&str]| format!("[{}]", names.join(", "));
    let value = match key {
        "state" => seen.state.clone(),
        "reason" => json!(seen.reason.clone().unwrap_or_default()).to_string(),
        "output" => seen.output.to_string(),
        "alerts" => names(&seen.alerts),
        "notifications" => names(&seen.notifications),
        "took" => took(seen.took.unwrap_or_default()),
        "steps" => {
            let steps =
                seen.steps.iter().map(|(step, state)| format!("{space}  {step}: {}", state.name()));
            return std::iter::once(format!("{space}steps:")).chain(steps).collect();
        }
        _ if seen.calls.is_empty() => "[]".to_owned(),
        _ => {
            let mut lines = vec![format!("{space}calls:")];
            for equal in seen.calls.chunk_by(|one, next| one == next) {
                lines.extend(
                    equal
                        .first()
                        .map(|call| call_lines(call, equal.len(), &space))
                        .unwrap_or_default(),
                );
            }
            return lines;
        }
    };
    vec![format!("{space}{key}: {value}")]
}

/// One call, or several equal ones in a row.
fn call_lines(call: &ObservedCall, times: usize, space: &str) -> Vec<String> {
    let action = match call.action {
        Action::Do => "do",
        Action::Undo => "undo",
    };
    let mut lines = vec![
        format!("{space}  - {action}: {}", scalar(&call.part)),
        format!("{space}    method: {}", method_name(call.method)),
        format!("{space}    path: {}", scalar(&call.path)),
    ];
    lines.extend(call.body.as_ref().map(|body| format!("{space}    body: {body}")));
    lines.extend((times > 1).then(|| format!("{space}    times: {times}")));
    lines
}

/// A text as YAML, in quotes only if it needs them.
fn scalar(text: &str) -> String {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_./-".contains(&byte));
    let is_number = text.parse::<f64>().is_ok();
    match is_plain && !is_number && !text.is_empty() && !text.starts_with('-') {
        true => text.to_owned(),
        false => Value::from(text).to_string(),
    }
}

/// The limits around a time: whole seconds.
fn took(seen: Duration) -> String {
    let seconds = seen.as_secs();
    match seconds {
        0 => "{ at_most: 1s }".to_owned(),
        _ => format!("{{ at_least: {seconds}s, at_most: {}s }}", seconds + 1),
    }
}
