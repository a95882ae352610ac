//! The recovery policy of a step or of its undo: the number of attempts, the pauses between them, and the final
//! action. It is pure: the jitter of the pauses comes from a hash, not from a random number.
//!
//! ```text
//! attempts: 3, extended_wait: { wait: 15m, times: 1 }, then: undo
//!
//!   #1 ─ pause ─ #2 ─ pause ─ #3 ── 15m ── #4 ─ pause ─ #5 ─ pause ─ #6 ── undo
//! ```
//!
//! After a permanent failure, the policy goes directly to `then`.

use std::{fmt, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    definition::duration,
    limits,
    model::{
        attempt::Action,
        names::{Part, TaskId},
    },
};

/// The recovery policy of a step or of its undo, for attempts without a final outcome.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(transform = nullable)]
pub struct Recovery {
    /// The number of attempts in a row.
    pub attempts: AttemptLimit,
    /// The pauses between the attempts.
    pub backoff: Backoff,
    /// A long pause after all attempts have failed, followed by as many attempts again.
    // Written even if absent. Otherwise a definition that removed the default with `null` would get it back when it
    // is read again.
    pub extended_wait: Option<ExtendedWait>,
    /// How long all attempts may take together, with their pauses, extended waits and deferrals. It counts from the start
    /// of the step, or of the item or the undo. When no further attempt can begin in this time, the final action follows.
    #[serde(with = "duration::optional", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<duration::Text>")]
    pub give_up_after: Option<Duration>,
    /// How long the service surely keeps an idempotency key. An attempt that may have run is not repeated after this time, because
    /// the service might not recognise the call. It counts from the first request with the key.
    #[serde(with = "duration::optional", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<duration::Text>")]
    pub key_valid_for: Option<Duration>,
    /// The final action, after all attempts and extended waits.
    pub then: FinalAction,
}

/// A number of attempts, three by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct AttemptLimit(#[schemars(range(min = 1, max = limits::ATTEMPTS_MAX))] pub u32);

impl Default for AttemptLimit {
    fn default() -> Self {
        Self(3)
    }
}

/// The pauses between attempts. Each is `rate` times as long as the one before, up to `max`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(transform = nullable)]
pub struct Backoff {
    /// The first pause, such as `500ms` or `2s`.
    #[serde(with = "duration")]
    #[schemars(with = "duration::Text")]
    pub first: Duration,
    /// The factor by which each pause is longer than the one before.
    #[schemars(range(min = limits::BACKOFF_RATE_MIN, max = limits::BACKOFF_RATE_MAX))]
    pub rate: f64,
    /// The longest pause.
    #[serde(with = "duration")]
    #[schemars(with = "duration::Text")]
    pub max: Duration,
    /// Whether to shorten each pause by up to half, differently for each task. Then tasks that failed together do not
    /// retry together.
    pub jitter: bool,
}

/// Allows `null` for each key, which removes the default.
fn nullable(schema: &mut schemars::Schema) {
    let keys = schema.get_mut("properties").and_then(serde_json::Value::as_object_mut);
    for key in keys.into_iter().flat_map(|keys| keys.values_mut()) {
        let Some(key) = key.as_object_mut().filter(|key| !key.contains_key("anyOf")) else {
            continue;
        };
        let mut plain = std::mem::take(key);
        for annotation in ["description", "default"] {
            if let Some(value) = plain.shift_remove(annotation) {
                key.insert(annotation.to_owned(), value);
            }
        }
        key.insert("anyOf".to_owned(), serde_json::json!([plain, { "type": "null" }]));
    }
}

impl Default for Backoff {
    fn default() -> Self {
        let (first, max) = (Duration::from_secs(1), Duration::from_secs(60));
        Self { first, rate: 2.0, max, jitter: true }
    }
}

/// A long pause, for a service that is down.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExtendedWait {
    /// The length of the pause, such as `15m` or `2h`.
    #[serde(with = "duration")]
    #[schemars(with = "duration::Text")]
    pub wait: Duration,
    /// The number of extended waits.
    #[serde(default = "default_times")]
    #[schemars(range(min = 1, max = limits::EXTENDED_WAITS_MAX))]
    pub times: u32,
}

fn default_times() -> u32 {
    1
}

/// The final action when all attempts and extended waits are used up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FinalAction {
    /// The task stops in Error, with an alert.
    #[default]
    Alert,
    /// The whole task is undone.
    Undo,
    /// The task goes on without the step, whose output is null. If the task is undone later, what may have run is undone too.
    Continue,
}

/// What happens to a task that misses its deadline.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Overdue {
    /// It stops in Error, with an alert.
    #[default]
    Alert,
    /// It is undone.
    Undo,
}

impl FinalAction {
    /// Its name in a definition.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Alert => "alert",
            Self::Undo => "undo",
            Self::Continue => "continue",
        }
    }
}

/// The decision of a recovery policy on a failed attempt.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum RecoveryDecision {
    /// Retry after a pause.
    Retry {
        /// The length of the pause.
        pause: Duration,
        /// The number of the next attempt, and the number of attempts in a row.
        next: (u32, u32),
    },
    /// Retry after an extended wait.
    ExtendedWait {
        /// The length of the pause.
        wait: Duration,
        /// The number of this extended wait, and the number of all.
        round: (u32, u32),
    },
    /// Stop retrying, and apply the final action.
    GiveUp(FinalAction),
}

impl RecoveryDecision {
    /// The pause before the next attempt. `None` if there is no next one.
    #[must_use]
    pub fn pause(&self) -> Option<Duration> {
        match self {
            Self::Retry { pause: wait, .. } | Self::ExtendedWait { wait, .. } => Some(*wait),
            Self::GiveUp(_) => None,
        }
    }
}

impl Recovery {
    /// Decides what follows the newest of `failures` failed attempts. `seed` determines the jitter of the pause.
    #[must_use]
    pub fn verdict(&self, failures: u32, seed: u32) -> RecoveryDecision {
        let attempts = self.attempts.0.max(1);
        let (rounds, tried) = (failures / attempts, failures % attempts);
        if tried > 0 {
            let pause = self.backoff.pause(tried, seed);
            return RecoveryDecision::Retry { pause, next: (tried + 1, attempts) };
        }
        match &self.extended_wait {
            Some(ExtendedWait { wait, times }) if rounds <= *times => {
                RecoveryDecision::ExtendedWait { wait: *wait, round: (rounds, *times) }
            }
            Some(_) | None => RecoveryDecision::GiveUp(self.then),
        }
    }

    /// The time that all attempts take, with all pauses and extended waits, if each attempt takes `attempt`.
    pub(crate) fn longest_duration(&self, attempt: Duration) -> Duration {
        let attempts = self.attempts.0.max(1);
        let pauses = (1..attempts)
            .fold(Duration::ZERO, |sum, tried| sum.saturating_add(self.backoff.full_pause(tried)));
        let round = attempt.saturating_mul(attempts).saturating_add(pauses);
        match &self.extended_wait {
            Some(ExtendedWait { wait, times }) => round
                .saturating_mul(times.saturating_add(1))
                .saturating_add(wait.saturating_mul(*times)),
            None => round,
        }
    }

    /// Returns the problems of this policy, each as a key and a message.
    pub(crate) fn problems(&self, action: Action) -> Vec<(&'static str, String)> {
        let mut found = Vec::new();
        let mut report = |wrong: bool, key, message: String| {
            if wrong {
                found.push((key, message));
            }
        };
        let (attempts, days) = (self.attempts.0, limits::WAIT_MAX.as_secs() / (24 * 3600));
        let max = limits::ATTEMPTS_MAX;
        report(!(1..=max).contains(&attempts), "attempts", format!("must be from 1 to {max}"));
        let Backoff { first, rate, max, .. } = &self.backoff;
        let rates = limits::BACKOFF_RATE_MIN..=limits::BACKOFF_RATE_MAX;
        let from_to = format!("must be from {} to {}", rates.start(), rates.end());
        report(!rates.contains(rate), "backoff.rate", from_to);
        report(*max > limits::WAIT_MAX, "backoff.max", format!("must be at most {days}d"));
        report(first > max, "backoff.first", "must not be longer than `max`".to_owned());
        if let Some(ExtendedWait { wait, times }) = &self.extended_wait {
            let max = limits::EXTENDED_WAITS_MAX;
            let at = "extended_wait.times";
            report(!(1..=max).contains(times), at, format!("must be from 1 to {max}"));
            let wrong = wait.is_zero() || *wait > limits::WAIT_MAX;
            report(wrong, "extended_wait.wait", format!("must be from 1ms to {days}d"));
        }
        let max = limits::TASK_WITHIN_MAX;
        let days = max.as_secs() / (24 * 3600);
        for (key, limit) in self.time_limits() {
            let wrong = limit.is_some_and(|limit| limit.is_zero() || limit > max);
            report(wrong, key, format!("must be from 1ms to {days}d"));
        }
        let undoing = action == Action::Undo && self.then != FinalAction::Alert;
        report(
            undoing,
            "then",
            "an undo that fails cannot be undone; it ends in an alert".to_owned(),
        );
        found
    }
}

impl Recovery {
    /// The time limits of all attempts, by their keys.
    #[must_use]
    pub fn time_limits(&self) -> [(&'static str, Option<Duration>); 2] {
        [("give_up_after", self.give_up_after), ("key_valid_for", self.key_valid_for)]
    }
}

impl Backoff {
    /// The pause after attempt `tried` in a row, counted from 1.
    fn pause(&self, tried: u32, seed: u32) -> Duration {
        let part =
            if self.jitter { 0.5 + f64::from(seed) / f64::from(u32::MAX) / 2.0 } else { 1.0 };
        // Whole milliseconds, because the state store stores no smaller units.
        Duration::from_millis((self.seconds(tried) * part * 1_000.0).round() as u64)
    }

    /// The pause without jitter.
    fn full_pause(&self, tried: u32) -> Duration {
        Duration::from_millis((self.seconds(tried) * 1_000.0).round() as u64)
    }

    fn seconds(&self, tried: u32) -> f64 {
        let growth = self.rate.powi(i32::try_from(tried.saturating_sub(1)).unwrap_or(i32::MAX));
        (self.first.as_secs_f64() * growth).min(self.max.as_secs_f64())
    }
}

/// Returns the jitter seed of an attempt. It differs between tasks and attempts, and is deterministic.
#[must_use]
pub fn seed(task_id: &TaskId, step: &Part, action: Action, attempt: u32) -> u32 {
    spread(&format!("{task_id}/{step}/{}/{attempt}", action.name()))
}

/// Hashes a text. The hashes are evenly distributed, even of texts that differ only at the end.
pub fn spread(text: &str) -> u32 {
    // FNV-1a gives texts that differ only at the end similar hashes. The last lines, from MurmurHash3's finaliser,
    // distribute them evenly.
    let mut hash = crate::model::hash::fnv1a(text);
    hash = (hash ^ (hash >> 16)).wrapping_mul(0x85eb_ca6b);
    hash = (hash ^ (hash >> 13)).wrapping_mul(0xc2b2_ae35);
    hash ^ (hash >> 16)
}

impl fmt::Display for RecoveryDecision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Retry { pause, next: (next, attempts) } => {
                let pause = humantime::format_duration(*pause);
                write!(f, "attempt {next} of {attempts} after {pause}")
            }
            Self::ExtendedWait { wait, round: (round, times) } => {
                let wait = humantime::format_duration(*wait);
                write!(f, "attempts used up; extended wait {round} of {times}, for {wait}")
            }
            Self::GiveUp(FinalAction::Alert) => f.write_str("alert"),
            Self::GiveUp(FinalAction::Undo) => f.write_str("undo the task"),
            Self::GiveUp(FinalAction::Continue) => f.write_str("go on without the step"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(text: &str) -> Recovery {
        serde_json::from_str(text).unwrap()
    }

    fn walk(policy: &Recovery) -> Vec<String> {
        let mut decisions = Vec::new();
        for failures in 1.. {
            let verdict = policy.verdict(failures, 0);
            decisions.push(verdict.to_string());
            if matches!(verdict, RecoveryDecision::GiveUp(_)) {
                break;
            }
        }
        decisions
    }

    #[test]
    fn attempts_are_followed_by_extended_waits_and_the_final_action() {
        let policy = policy(
            r#"{ "attempts": 2, "backoff": { "first": "2s", "jitter": false },
                 "extended_wait": { "wait": "15m", "times": 2 }, "then": "undo" }"#,
        );
        assert_eq!(
            walk(&policy),
            [
                "attempt 2 of 2 after 2s",
                "attempts used up; extended wait 1 of 2, for 15m",
                "attempt 2 of 2 after 2s",
                "attempts used up; extended wait 2 of 2, for 15m",
                "attempt 2 of 2 after 2s",
                "undo the task",
            ]
        );
    }

    #[test]
    fn the_default_is_three_attempts_and_an_alert() {
        let decisions = walk(&Recovery::default());
        assert_eq!(decisions.len(), 3);
        assert_eq!(decisions[2], "alert");
    }

    #[test]
    fn pauses_grow_to_their_cap_and_jitter_takes_up_to_half() {
        let steady = Backoff { jitter: false, ..Backoff::default() };
        let seconds: Vec<_> = (1..=8).map(|tried| steady.pause(tried, 9).as_secs()).collect();
        assert_eq!(seconds, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(steady.pause(u32::MAX, 0), Duration::from_secs(60));
        let spread = Backoff::default();
        assert_eq!(spread.pause(3, 0), Duration::from_secs(2));
        assert_eq!(spread.pause(3, u32::MAX), Duration::from_secs(4));
    }

    #[test]
    fn seeds_are_evenly_distributed_over_tasks() {
        let step: Part = "charge".parse().unwrap();
        let mut tenths = [0_u32; 10];
        for n in 0..10_000 {
            let task = format!("order-{n}").parse().unwrap();
            let seed = f64::from(seed(&task, &step, Action::Do, 1)) / (f64::from(u32::MAX) + 1.0);
            tenths[(seed * 10.0) as usize] += 1;
        }
        assert!(tenths.iter().all(|count| (850..1_150).contains(count)), "{tenths:?}");
    }

    #[test]
    fn the_problems_of_a_policy_are_reported() {
        let wrong = policy(
            r#"{ "attempts": 0, "backoff": { "first": "2m", "rate": 0.5 },
                 "extended_wait": { "wait": "0s", "times": 0 }, "give_up_after": "0s", "then": "undo" }"#,
        );
        let keys: Vec<_> = wrong.problems(Action::Undo).into_iter().map(|(key, _)| key).collect();
        assert_eq!(
            keys,
            [
                "attempts",
                "backoff.rate",
                "backoff.first",
                "extended_wait.times",
                "extended_wait.wait",
                "give_up_after",
                "then",
            ]
        );
        assert!(Recovery::default().problems(Action::Do).is_empty());
    }
}
