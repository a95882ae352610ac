//! Comparison of an expectation with what a run did.

use serde::Serialize;
use serde_json::{Value, json};

use super::{
    calls,
    file::{Expectation, ExpectedTime},
    observed::Observed,
    partial,
    timeline::text,
};

/// A difference between an expectation and a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Difference {
    /// The key of `expect`.
    pub key: &'static str,
    /// What was expected, and what was seen instead, as lines.
    pub lines: Vec<String>,
}

/// All differences, in the order of the keys.
pub(super) fn differences(expect: &Expectation, seen: &Observed) -> Vec<Difference> {
    let mut found = Vec::new();
    let mut add = |key, lines: Vec<String>| found.push(Difference { key, lines });
    if let Some(state) = expect.state.map(|state| format!("{state:?}"))
        && state != seen.state
    {
        let reason = seen.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
        add("state", vec![format!("expected {state}, got {}{reason}", seen.state)]);
    }
    if let Some(part) = &expect.reason {
        match &seen.reason {
            Some(reason) if reason.contains(part) => {}
            Some(reason) => {
                add("reason", vec![format!("expected to contain `{part}`, got `{reason}`")])
            }
            None => add("reason", vec![format!("expected to contain `{part}`, but there is none")]),
        }
    }
    let steps = expect.steps.iter().filter_map(|(step, state)| {
        let seen = seen.steps.get(step).map_or("not started", |state| state.name());
        (seen != state.name()).then(|| format!("{step}: expected {}, got {seen}", state.name()))
    });
    let steps: Vec<_> = steps.collect();
    if !steps.is_empty() {
        add("steps", steps);
    }
    if let Some(output) = &expect.output {
        let mismatch = partial::mismatch("output", output, &seen.output);
        mismatch.into_iter().for_each(|mismatch| add("output", vec![mismatch]));
    }
    let calls = expect.calls.as_ref().and_then(|calls| calls::difference(calls, &seen.calls));
    calls.into_iter().for_each(|lines| add("calls", lines));
    if let Some(alerts) = &expect.alerts {
        let alerts: Vec<_> = alerts.iter().map(|alert| alert.name()).collect();
        lists(&alerts, &seen.alerts).into_iter().for_each(|line| add("alerts", vec![line]));
    }
    if let Some(expected) = &expect.notifications {
        let expected: Vec<_> =
            expected.iter().map(|status| format!("{status:?}").to_lowercase()).collect();
        let expected: Vec<_> = expected.iter().map(String::as_str).collect();
        let line = lists(&expected, &seen.notifications);
        line.into_iter().for_each(|line| add("notifications", vec![line]));
    }
    let took = expect.took.as_ref().and_then(|took| time(took, seen));
    took.into_iter().for_each(|line| add("took", vec![line]));
    found
}

fn lists(expected: &[&str], seen: &[&str]) -> Option<String> {
    (expected != seen).then(|| {
        let list =
            |names: &[&str]| Value::from(names.iter().map(|name| json!(name)).collect::<Vec<_>>());
        format!("expected {}, got {}", list(expected), list(seen))
    })
}

fn time(expected: &ExpectedTime, seen: &Observed) -> Option<String> {
    let ExpectedTime { at_least, at_most } = expected;
    let Some(took) = seen.took else {
        return Some("the task has not ended".to_owned());
    };
    match (at_least, at_most) {
        (Some(least), _) if took < least.0 => {
            Some(format!("expected at least {}, got {}", text(least.0), text(took)))
        }
        (_, Some(most)) if took > most.0 => {
            Some(format!("expected at most {}, got {}", text(most.0), text(took)))
        }
        _ => None,
    }
}
