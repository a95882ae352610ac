//! Statistics of the steps of a workflow: attempts, failures and durations, computed from documents of tasks.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use steward_core::model::{
    attempt::{Action, AttemptTimes},
    document::DocumentKey,
    names::StepName,
};

/// The statistics of the attempts at a step, or at its undo.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Figures {
    /// The number of attempts that completed or failed. Deferred attempts are not counted.
    pub attempts: usize,
    /// How many of these failed, including those that timed out without a reply.
    pub failures: usize,
    /// Time from the sending of the request to the first call; `None` if no attempt has both times.
    pub waited: Option<Spread>,
    /// Time from the first call of an attempt to its answer; `None` if no attempt has both times.
    pub took: Option<Spread>,
}

/// Percentiles of durations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spread {
    /// The median.
    pub p50: SignedDuration,
    /// The 95th percentile.
    pub p95: SignedDuration,
}

impl Spread {
    /// Nearest-rank percentiles: each is one of the measured values. `None` if there are none.
    fn of(mut durations: Vec<SignedDuration>) -> Option<Self> {
        durations.sort();
        let at = |percent: usize| {
            let rank = (durations.len() * percent).div_ceil(100);
            durations.get(rank.checked_sub(1)?).copied()
        };
        Some(Self { p50: at(50)?, p95: at(95)? })
    }
}

/// The measured values of the attempts at one step, or at its undo.
#[derive(Debug, Default)]
struct Samples {
    attempts: usize,
    failures: usize,
    waited: Vec<SignedDuration>,
    took: Vec<SignedDuration>,
}

/// The statistics for each step and each undo that has attempts. Attempts at a step's items count as attempts at the step.
pub fn figures<'a>(
    documents: impl IntoIterator<Item = (&'a DocumentKey, &'a AttemptTimes)>,
) -> BTreeMap<(StepName, Action), Figures> {
    let mut all: BTreeMap<_, Samples> = BTreeMap::new();
    for (key, times) in documents {
        let (attempt, has_failed) = match key {
            DocumentKey::Output(attempt) | DocumentKey::OperatorOutput(attempt, _) => {
                (attempt, false)
            }
            DocumentKey::Failure(attempt) => (attempt, true),
            DocumentKey::Submission
            | DocumentKey::Input(_)
            | DocumentKey::Items { .. }
            | DocumentKey::Result(_)
            | DocumentKey::Deferral(_)
            | DocumentKey::Claim(_) => continue,
        };
        let samples = all.entry((attempt.step.step.clone(), attempt.action)).or_default();
        samples.attempts += 1;
        samples.failures += usize::from(has_failed);
        samples.waited.extend(between(times.queued_at, times.called_at));
        samples.took.extend(between(times.called_at, times.answered_at));
    }
    let figures =
        all.into_iter().map(|(step_action, Samples { attempts, failures, waited, took })| {
            let (waited, took) = (Spread::of(waited), Spread::of(took));
            (step_action, Figures { attempts, failures, waited, took })
        });
    figures.collect()
}

/// The time between two instants, or zero if it is negative because two clocks disagree.
fn between(from: Option<Timestamp>, to: Option<Timestamp>) -> Option<SignedDuration> {
    Some(to?.duration_since(from?).max(SignedDuration::ZERO))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: i64) -> Option<Timestamp> {
        Some(Timestamp::from_millisecond(ms).unwrap())
    }

    fn document(key: &str, queued: i64, called: i64, answered: i64) -> (DocumentKey, AttemptTimes) {
        let (queued_at, called_at, answered_at) = (at(queued), at(called), at(answered));
        (key.parse().unwrap(), AttemptTimes { queued_at, called_at, answered_at })
    }

    fn of(documents: &[(DocumentKey, AttemptTimes)]) -> BTreeMap<(StepName, Action), Figures> {
        figures(documents.iter().map(|(key, times)| (key, times)))
    }

    fn spread(p50: i64, p95: i64) -> Option<Spread> {
        let [p50, p95] = [p50, p95].map(SignedDuration::from_millis);
        Some(Spread { p50, p95 })
    }

    #[test]
    fn attempts_are_counted_by_step_and_by_action() {
        let documents = [
            document("submission", 0, 0, 0),
            document("step/charge/1/failure", 0, 10, 40),
            document("step/charge/2/claim", 0, 0, 0),
            document("step/charge/2/output", 100, 110, 210),
            document("step/ship[0]/1/output", 0, 1, 2),
            document("step/ship[1]/1/deferral", 0, 1, 2),
            document("step/ship[1]/2/output", 0, 3, 6),
            document("undo/charge/1/output", 5, 6, 8),
        ];
        let figures = of(&documents);
        let expected = [
            ("charge", Action::Do, 2, 1, spread(10, 10), spread(30, 100)),
            ("charge", Action::Undo, 1, 0, spread(1, 1), spread(2, 2)),
            ("ship", Action::Do, 2, 0, spread(1, 3), spread(1, 3)),
        ];
        let expected = expected.map(|(step, action, attempts, failures, waited, took)| {
            ((step.parse().unwrap(), action), Figures { attempts, failures, waited, took })
        });
        assert_eq!(figures, BTreeMap::from(expected));
    }

    #[test]
    fn percentiles_are_measured_values() {
        let documents: Vec<_> =
            (1..=50).map(|n| document(&format!("step/a/{n}/output"), 0, 0, n)).collect();
        let figures = of(&documents);
        assert_eq!(figures.values().next().unwrap().took, spread(25, 48));
    }

    #[test]
    fn unknown_times_are_left_out_and_no_duration_is_negative() {
        let silent = AttemptTimes { queued_at: at(5), ..AttemptTimes::default() };
        let key: DocumentKey = "step/a/1/failure".parse().unwrap();
        let documents = [(key, silent)];
        let figure = of(&documents).into_values().next().unwrap();
        assert_eq!(figure, Figures { attempts: 1, failures: 1, waited: None, took: None });
        // The agent's clock is behind the queue's.
        let ahead = [document("step/a/1/output", 9, 5, 7)];
        assert_eq!(of(&ahead).values().next().unwrap().waited, spread(0, 0));
    }
}
