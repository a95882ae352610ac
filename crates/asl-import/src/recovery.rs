//! `Retry` as `recovery`.

use std::time::Duration;

use serde_json::{Map, Value, json};
use steward_core::limits;

use crate::{machine::State, source::child};

/// The recovery of a step, and what to report of it.
#[derive(Debug, Default)]
pub(crate) struct Recovery {
    /// The keys of `recovery`.
    pub(crate) keys: Map<String, Value>,
    /// Whether an error of the service itself is retried, not only a call without an answer.
    pub(crate) retries_errors: bool,
    /// Notes, each with its pointer.
    pub(crate) notes: Vec<(String, String)>,
    /// Decisions, each with its pointer.
    pub(crate) decisions: Vec<(String, String)>,
}

/// One entry of `Retry`.
#[derive(Debug, Clone, PartialEq)]
struct Retrier {
    attempts: u64,
    first_s: f64,
    rate: f64,
    max_s: Option<f64>,
    jitter: bool,
}

/// Errors that mean: the service did not answer, or refused the call before it began. Agents and `recovery` retry them.
const TRANSIENT: [&str; 9] = [
    "States.Timeout",
    "States.HeartbeatTimeout",
    "Lambda.ServiceException",
    "Lambda.AWSLambdaException",
    "Lambda.SdkClientException",
    "Lambda.TooManyRequestsException",
    "Lambda.ClientExecutionTimeoutException",
    "States.Http.Socket",
    "Lambda.Unknown",
];

/// Errors that contain every error of a call.
const ANY: [&str; 2] = ["States.ALL", "States.TaskFailed"];

/// The recovery of a state. Without `Retry`, a state is attempted once.
pub(crate) fn recovery(state: &State<'_>) -> Recovery {
    let mut recovery = Recovery::default();
    let mut chosen: Option<Retrier> = None;
    let pointer = state.at("Retry");
    for (index, entry) in state.list("Retry").iter().enumerate() {
        let at = format!("{pointer}/{index}");
        let Some(retrier) = retrier(entry, &at, &mut recovery) else { continue };
        errors(entry, &at, retrier.attempts, &mut recovery);
        match &mut chosen {
            None => chosen = Some(retrier),
            Some(other) if *other == retrier => {}
            Some(other) => {
                let message = "a step has one policy for all errors; the translation has the one with the most attempts";
                recovery.decisions.push((at, message.to_owned()));
                if retrier.attempts > other.attempts {
                    *other = retrier;
                }
            }
        }
    }
    match chosen {
        Some(retrier) => retrier.write(&pointer, &mut recovery),
        None => {
            recovery.keys.insert("attempts".to_owned(), json!(1));
        }
    }
    recovery
}

fn retrier(entry: &Value, at: &str, recovery: &mut Recovery) -> Option<Retrier> {
    let fields = entry.as_object()?;
    let known = [
        "ErrorEquals",
        "IntervalSeconds",
        "MaxAttempts",
        "BackoffRate",
        "MaxDelaySeconds",
        "JitterStrategy",
        "Comment",
    ];
    for key in fields.keys().filter(|key| !known.contains(&key.as_str())) {
        recovery.decisions.push((child(at, key), format!("unknown key `{key}`")));
    }
    let number =
        |key: &str, default: f64| fields.get(key).and_then(Value::as_f64).unwrap_or(default);
    for key in ["IntervalSeconds", "MaxAttempts", "BackoffRate", "MaxDelaySeconds"] {
        if fields.get(key).is_some_and(|value| !value.is_number()) {
            recovery.decisions.push((child(at, key), "must be a number".to_owned()));
        }
    }
    let max_attempts = fields.get("MaxAttempts").and_then(Value::as_u64).unwrap_or(3);
    Some(Retrier {
        // `MaxAttempts` counts retries; `attempts` also counts the first attempt.
        attempts: max_attempts.saturating_add(1),
        first_s: number("IntervalSeconds", 1.0),
        rate: number("BackoffRate", 2.0),
        max_s: fields.get("MaxDelaySeconds").and_then(Value::as_f64),
        jitter: fields.get("JitterStrategy").and_then(Value::as_str) == Some("FULL"),
    })
}

/// Compares `ErrorEquals` with what a step retries.
fn errors(entry: &Value, at: &str, attempts: u64, recovery: &mut Recovery) {
    let at = child(at, "ErrorEquals");
    let names = entry.get("ErrorEquals").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let names: Vec<_> = names.iter().filter_map(Value::as_str).collect();
    if attempts <= 1 {
        return;
    }
    let special: Vec<_> =
        names.iter().filter(|name| !TRANSIENT.contains(name) && !ANY.contains(name)).collect();
    if names.iter().any(|name| ANY.contains(name)) {
        recovery.retries_errors = true;
    } else if let Some(name) = special.first() {
        recovery.retries_errors = true;
        let message = format!(
            "only the error `{name}` and others in the list are retried; a step cannot tell the errors of a service apart by \
             name, but by HTTP status, with `responses`"
        );
        recovery.decisions.push((at, message));
    }
}

impl Retrier {
    fn write(&self, pointer: &str, recovery: &mut Recovery) {
        let max = u64::from(limits::ATTEMPTS_MAX);
        if self.attempts > max {
            let message = format!("{} attempts; the limit is {max}", self.attempts);
            recovery.decisions.push((pointer.to_owned(), message));
        }
        recovery.keys.insert("attempts".to_owned(), json!(self.attempts.clamp(1, max)));
        if self.attempts <= 1 {
            return;
        }
        let (low, high) = (limits::BACKOFF_RATE_MIN, limits::BACKOFF_RATE_MAX);
        if !(low..=high).contains(&self.rate) {
            let message = format!("`BackoffRate` must be from {low} to {high}");
            recovery.decisions.push((pointer.to_owned(), message));
        }
        let rate = self.rate.clamp(low, high);
        let longest = self.first_s * rate.powf((self.attempts.min(max).saturating_sub(2)) as f64);
        let longest = longest.min(self.max_s.unwrap_or(f64::INFINITY)).max(self.first_s);
        let limit = limits::WAIT_MAX.as_secs_f64();
        if longest > limit {
            let message = "pauses of more than 30 days are shortened to 30 days";
            recovery.notes.push((pointer.to_owned(), message.to_owned()));
        }
        if self.jitter {
            let message = "`JitterStrategy: FULL` shortens a pause by up to all of it, `jitter` by up to half";
            recovery.notes.push((pointer.to_owned(), message.to_owned()));
        }
        let rate = match rate.fract() == 0.0 {
            true => json!(rate as u64),
            false => json!(rate),
        };
        recovery.keys.insert(
            "backoff".to_owned(),
            json!({
                "first": duration(self.first_s),
                "rate": rate,
                "max": duration(longest.min(limit)),
                "jitter": self.jitter,
            }),
        );
    }
}

/// Seconds in the format of definitions.
pub(crate) fn duration(seconds: f64) -> String {
    let millis = (seconds * 1_000.0).round().clamp(0.0, 366.0 * 86_400_000.0);
    let millis = millis as u64;
    for (unit, name) in [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s")] {
        if millis > 0 && millis.is_multiple_of(unit) {
            return format!("{}{name}", millis / unit);
        }
    }
    if millis == 0 { "0s".to_owned() } else { format!("{millis}ms") }
}

/// How long a step polls if the state machine has no limit, in seconds.
pub(crate) const POLLS_S: f64 = 86_400.0;

/// The longest time of a step.
pub(crate) const STEP_MAX: Duration = limits::STEP_WITHIN_MAX;
