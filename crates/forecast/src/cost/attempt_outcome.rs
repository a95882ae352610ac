//! The outcome and the duration of an attempt, drawn by the assumptions about its step.

use std::time::Duration;

use steward_core::model::attempt::Action;

use super::plan::StepAssumptions;

/// The standard deviation of the logarithm of latencies. One call in a hundred takes almost three times the mean.
const SPREAD: f64 = 0.5;

/// The drawn outcome of an attempt. It is the same for every delivery of the attempt's request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AttemptOutcome {
    Succeeds,
    NoReply,
    Fails,
}

impl AttemptOutcome {
    pub(super) fn of(
        assumptions: &StepAssumptions,
        action: Action,
        draw: &mut fastrand::Rng,
    ) -> Self {
        let (silent, fail) = match action {
            Action::Do => (assumptions.silent, assumptions.fail),
            Action::Undo => (0.0, assumptions.fail_undo),
        };
        match draw.f64() {
            share if share < silent => Self::NoReply,
            share if share < silent + fail * (1.0 - silent) => Self::Fails,
            _ => Self::Succeeds,
        }
    }
}

/// A random duration with this mean, log-normally distributed, in whole milliseconds.
pub(super) fn random_duration(mean: Duration, draw: &mut fastrand::Rng) -> Duration {
    // Box-Muller: https://en.wikipedia.org/wiki/Box%E2%80%93Muller_transform
    let (one, other) = (1.0 - draw.f64(), draw.f64());
    let normal = (-2.0 * one.ln()).sqrt() * (std::f64::consts::TAU * other).cos();
    let millis = mean.as_secs_f64() * 1_000.0 * (SPREAD * normal - SPREAD * SPREAD / 2.0).exp();
    Duration::from_millis(millis.round().max(1.0) as u64)
}
