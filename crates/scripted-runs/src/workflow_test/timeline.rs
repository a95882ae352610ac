//! The timeline of a run as text, for people.

use std::time::Duration;

use serde::Serialize;
use steward_core::model::{
    attempt::Action,
    messages::{CallbackOutcome, StepRequest},
};
use steward_forecast::cost::scripted::{CallRecord, LogItem, ScriptedPlan, ScriptedRun};

use super::names::{alert, method_name, part_label, status_name};

/// A line of a timeline.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TimelineLine {
    /// Milliseconds since the submission.
    pub at_ms: u64,
    /// What happened.
    pub what: String,
}

/// The lines of a run, in the order of time.
pub(super) fn lines(plan: &ScriptedPlan, run: &ScriptedRun) -> Vec<TimelineLine> {
    let line = |at: Duration, what: String| TimelineLine { at_ms: millis(at), what };
    let mut lines = vec![line(Duration::ZERO, "submitted".to_owned())];
    for entry in &run.log {
        let what = match &entry.item {
            LogItem::Called(call) => called(plan, call),
            LogItem::CallbackSent(part, outcome) => match outcome {
                CallbackOutcome::Completed { .. } => format!("callback of {part}: completed"),
                CallbackOutcome::Failed { reason } => {
                    format!("callback of {part}: failed: {reason}")
                }
                CallbackOutcome::Heartbeat => format!("callback of {part}: heartbeat"),
            },
            LogItem::ChildRequested(part, Action::Do) => format!("child task of {part} starts"),
            LogItem::ChildRequested(part, Action::Undo) => {
                format!("child task of {part} is to be undone")
            }
            LogItem::Notified(notification) => {
                let reason = notification.reason.as_ref().map(|reason| format!(": {reason}"));
                let status = status_name(notification.status);
                format!("client notified: {status}{}", reason.unwrap_or_default())
            }
            LogItem::Published(event) => match alert(event) {
                Some(name) => format!("alert: {name}"),
                None => format!("event: {}", event.detail_type()),
            },
            LogItem::Sent(text) => text.clone(),
        };
        lines.push(line(entry.at, what));
    }
    match (&run.task, run.took) {
        (Some(task), Some(took)) => {
            lines.push(line(took, format!("the task is {}", task.process_state)))
        }
        (Some(task), None) => {
            let at = run.log.last().map_or(Duration::ZERO, |entry| entry.at);
            lines.push(line(at, format!("the test ends; the task is {}", task.process_state)));
        }
        (None, _) => {}
    }
    lines.sort_by_key(|line| line.at_ms);
    lines
}

fn called(plan: &ScriptedPlan, call: &CallRecord) -> String {
    let StepRequest { action, attempt, method, path, .. } = &call.request;
    let (part, method, action) = (part_label(plan, call), method_name(*method), action.name());
    let answered = match call.answer.replies_after {
        None => call.answer.to_string(),
        Some(after) => format!("{} after {}", call.answer, text(Duration::from_millis(after))),
    };
    format!("{action} {part}, attempt {attempt}: {method} {path} → {answered}")
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// A duration with at most three units: `140ms`, `6s 480ms`, `2h 5m`.
pub(crate) fn text(duration: Duration) -> String {
    let millis = millis(duration);
    let units = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s"), (1, "ms")];
    let mut rest = millis;
    let mut parts = Vec::new();
    for (unit, name) in units {
        let count = rest / unit;
        rest %= unit;
        if count > 0 {
            parts.push(format!("{count}{name}"));
        }
        // Milliseconds say nothing beside minutes.
        if unit == 1_000 && millis >= 60_000 {
            break;
        }
    }
    if parts.is_empty() { "0ms".to_owned() } else { parts.join(" ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_short() {
        let texts = [0, 140, 6_480, 123_004, 7_500_000, 90_000_000]
            .map(|ms| text(Duration::from_millis(ms)));
        assert_eq!(texts, ["0ms", "140ms", "6s 480ms", "2m 3s", "2h 5m", "1d 1h"]);
    }
}
