//! The list of differences, and the comparisons that several keys share.

use std::{cmp::Ordering, time::Duration};

use steward_core::definition::recovery::{FinalAction, Recovery};

/// Seconds in a day.
const DAY: u64 = 24 * 3600;

/// One difference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DefinitionChange {
    /// The path of the key, as `steps.charge.undo`.
    pub at: String,
    /// What is different.
    pub what: String,
    /// Whether the change is safe; if not, it is risky and has to be reviewed.
    pub safe: bool,
    /// Why it is safe or risky.
    pub why: String,
}

/// The differences found so far.
#[derive(Debug, Default)]
pub(super) struct Changes(pub(super) Vec<DefinitionChange>);

impl Changes {
    fn push(&mut self, at: impl Into<String>, what: impl Into<String>, why: &str, safe: bool) {
        self.0.push(DefinitionChange {
            at: at.into(),
            what: what.into(),
            safe,
            why: why.to_owned(),
        });
    }

    /// Adds a safe change of the key `at`.
    pub(super) fn safe(&mut self, at: impl Into<String>, what: impl Into<String>, why: &str) {
        self.push(at, what, why, true);
    }

    /// Adds a risky change of the key `at`.
    pub(super) fn risky(&mut self, at: impl Into<String>, what: impl Into<String>, why: &str) {
        self.push(at, what, why, false);
    }

    /// A limit on a duration.
    pub(super) fn time_limit(&mut self, at: impl Into<String>, old: Duration, new: Duration) {
        let what = format!("{} became {}", duration_text(old), duration_text(new));
        if new < old {
            let why = "durations that were in time before may now exceed the limit";
            self.risky(at, format!("shortened: {what}"), why);
        } else if new > old {
            self.safe(
                at,
                format!("lengthened: {what}"),
                "no effect on durations that were in time before",
            );
        }
    }

    /// Compares the recovery policies of a step or an undo.
    pub(super) fn recovery(&mut self, at: &str, old: &Recovery, new: &Recovery) {
        let at = |key: &str| format!("{at}.recovery.{key}");
        let (attempts_old, attempts_new) = (old.attempts.0, new.attempts.0);
        let what = format!("{attempts_old} became {attempts_new}");
        if attempts_new < attempts_old {
            self.risky(at("attempts"), what, "fails earlier if the service is down");
        } else if attempts_new > attempts_old {
            self.safe(at("attempts"), what, "retries more often");
        }
        if old.backoff != new.backoff {
            self.safe(at("backoff"), "changed", "only changes the pauses between attempts");
        }
        let waits = |recovery: &Recovery| {
            let wait = recovery.extended_wait.as_ref();
            wait.map_or(Duration::ZERO, |wait| wait.wait.saturating_mul(wait.times))
        };
        if old.extended_wait != new.extended_wait {
            let what = format!(
                "{} in total became {}",
                duration_text(waits(old)),
                duration_text(waits(new))
            );
            if waits(new) < waits(old) {
                self.risky(at("extended_wait"), what, "fails earlier if the service is down");
            } else {
                self.safe(at("extended_wait"), what, "waits at least as long");
            }
        }
        for ((key, old), (_, new)) in old.time_limits().into_iter().zip(new.time_limits()) {
            let text = |limit: Option<Duration>| limit.map_or("none".to_owned(), duration_text);
            let what = format!("{} became {}", text(old), text(new));
            match new.unwrap_or(Duration::MAX).cmp(&old.unwrap_or(Duration::MAX)) {
                Ordering::Less => {
                    self.risky(at(key), what, "fails earlier if the service is down");
                }
                Ordering::Greater => self.safe(at(key), what, "retries for longer"),
                Ordering::Equal => {}
            }
        }
        if old.then != new.then {
            let why = match new.then {
                FinalAction::Undo => {
                    "a task that fails here is now undone automatically instead of waiting for an operator"
                }
                FinalAction::Alert => {
                    "a task that fails here now waits for an operator instead of being undone automatically"
                }
                FinalAction::Continue => {
                    "a task that fails here now goes on; readers of the output get null"
                }
            };
            let what = format!("{} became {}", old.then.name(), new.then.name());
            self.risky(at("then"), what, why);
        }
    }
}

/// Both values if they differ.
pub(super) fn differing<'a, T: PartialEq>(old: &'a T, new: &'a T) -> Option<(&'a T, &'a T)> {
    (old != new).then_some((old, new))
}

/// Formats a duration as in a definition. Whole days stay days; `humantime` alone would convert 30 of them to a month.
pub(super) fn duration_text(duration: Duration) -> String {
    let (days, rest) = (duration.as_secs() / DAY, duration.as_secs() % DAY);
    if days > 0 && rest == 0 && duration.subsec_nanos() == 0 {
        return format!("{days}d");
    }
    humantime::format_duration(duration).to_string()
}
