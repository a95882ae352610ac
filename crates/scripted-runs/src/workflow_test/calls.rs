//! Comparison of the expected calls with those that were made.

use steward_core::model::attempt::Action;

use super::{file::ExpectedCall, names::method_name, observed::ObservedCall, partial};

/// The longest list for which the difference is computed line by line; its time grows with the square.
const DIFF_MAX: usize = 2_000;

/// Expected calls whose order does not matter: mostly one.
type Group<'a> = Vec<&'a ExpectedCall>;

/// Nothing if the calls are as expected. Otherwise a line for each call: `-` is missing, `+` was not expected.
pub(super) fn difference(expected: &[ExpectedCall], seen: &[ObservedCall]) -> Option<Vec<String>> {
    let groups = groups(expected);
    if match_all(&groups, seen) {
        return None;
    }
    let flat: Vec<&ExpectedCall> = groups.into_iter().flatten().collect();
    if flat.len() > DIFF_MAX || seen.len() > DIFF_MAX {
        return Some(vec![format!("expected {} calls, got {}", flat.len(), seen.len())]);
    }
    Some(diff(&flat, seen))
}

/// Repeats the calls with `times`.
fn groups(expected: &[ExpectedCall]) -> Vec<Group<'_>> {
    let repeated = |call| std::iter::repeat_n(call, count(call));
    let mut groups = Vec::new();
    for call in expected {
        match &call.any_order {
            Some(calls) => groups.push(calls.iter().flat_map(repeated).collect()),
            None => groups.extend(repeated(call).map(|call| vec![call])),
        }
    }
    groups
}

fn count(call: &ExpectedCall) -> usize {
    call.times.and_then(|times| usize::try_from(times).ok()).unwrap_or(1)
}

fn match_all(groups: &[Group<'_>], seen: &[ObservedCall]) -> bool {
    let mut rest = seen;
    for group in groups {
        let Some((window, after)) = rest.split_at_checked(group.len()) else { return false };
        let mut open: Vec<&ObservedCall> = window.iter().collect();
        for expected in group {
            let Some(n) = open.iter().position(|seen| why_not(expected, seen).is_none()) else {
                return false;
            };
            open.swap_remove(n);
        }
        rest = after;
    }
    rest.is_empty()
}

/// Why a call is not the expected one. The empty text if it is a call of another part.
fn why_not(expected: &ExpectedCall, seen: &ObservedCall) -> Option<String> {
    let (part, action) = target(expected);
    if part != seen.part || action != seen.action {
        return Some(String::new());
    }
    if let Some(method) = expected.method.filter(|method| *method != seen.method) {
        return Some(format!("method: expected {}", method_name(method)));
    }
    if let Some(path) = expected.path.as_ref().filter(|path| **path != seen.path) {
        return Some(format!("path: expected {path}"));
    }
    let body = expected.body.as_ref()?;
    match &seen.body {
        Some(seen) => partial::mismatch("body", body, seen),
        None => Some(format!("body: expected {body}, but there is none")),
    }
}

fn target(expected: &ExpectedCall) -> (&str, Action) {
    match (&expected.run, &expected.undo) {
        (Some(part), _) => (part, Action::Do),
        (None, Some(part)) => (part, Action::Undo),
        (None, None) => ("", Action::Do),
    }
}

/// The lines of the longest common subsequence, and what is missing or too much between them.
fn diff(expected: &[&ExpectedCall], seen: &[ObservedCall]) -> Vec<String> {
    let equal = |i: usize, j: usize| match (expected.get(i), seen.get(j)) {
        (Some(expected), Some(seen)) => why_not(expected, seen).is_none(),
        _ => false,
    };
    let (rows, columns) = (expected.len(), seen.len());
    let width = columns + 1;
    let mut lengths = vec![0_u32; (rows + 1) * width];
    let at = |lengths: &[u32], i: usize, j: usize| lengths.get(i * width + j).copied().unwrap_or(0);
    for i in (0..rows).rev() {
        for j in (0..columns).rev() {
            let length = match equal(i, j) {
                true => at(&lengths, i + 1, j + 1) + 1,
                false => at(&lengths, i + 1, j).max(at(&lengths, i, j + 1)),
            };
            if let Some(slot) = lengths.get_mut(i * width + j) {
                *slot = length;
            }
        }
    }
    let (mut i, mut j, mut lines) = (0, 0, Vec::new());
    while i < rows || j < columns {
        if i < rows && j < columns && equal(i, j) {
            lines.extend(seen.get(j).map(|seen| format!("  {}", seen_text(seen))));
            (i, j) = (i + 1, j + 1);
        } else if i < rows && (j >= columns || at(&lengths, i + 1, j) >= at(&lengths, i, j + 1)) {
            lines.extend(expected.get(i).map(|expected| format!("- {}", expected_text(expected))));
            i += 1;
        } else {
            lines.extend(
                seen.get(j).map(|seen| format!("+ {}{}", seen_text(seen), reason(expected, seen))),
            );
            j += 1;
        }
    }
    lines
}

/// What is wrong with a call that was expected with another path or body.
fn reason(expected: &[&ExpectedCall], seen: &ObservedCall) -> String {
    let similar = expected.iter().filter_map(|expected| why_not(expected, seen));
    let why = similar.into_iter().find(|why| !why.is_empty());
    why.map(|why| format!("   ({why})")).unwrap_or_default()
}

fn seen_text(call: &ObservedCall) -> String {
    format!("{} {}: {} {}", call.action.name(), call.part, method_name(call.method), call.path)
}

fn expected_text(call: &ExpectedCall) -> String {
    let (part, action) = target(call);
    let method = call.method.map(|method| format!(" {}", method_name(method))).unwrap_or_default();
    let path = call.path.as_ref().map(|path| format!(" {path}")).unwrap_or_default();
    let colon = if method.is_empty() && path.is_empty() { "" } else { ":" };
    format!("{} {part}{colon}{method}{path}", action.name())
}
