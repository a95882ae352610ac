//! Which call goes wrong, and how.
//!
//! A fault is a pure function of the seed and the idempotency key. Arrival order and time have no
//! say, so that a run which went badly goes badly again under the same seed, however it is
//! scheduled.

use std::ops::RangeInclusive;

use serde::Serialize;

/// How often the services misbehave. Each rate is a share of the idempotency keys, 0.0 to 1.0. A
/// key gets at most one fault, so the rates add up; what passes 1.0, in their order, is cut off.
#[derive(Debug, Clone, PartialEq)]
pub struct FaultPlan {
    /// The same seed gives every key the same fault.
    pub seed: u64,
    /// How long every call takes at least.
    pub latency_ms: u64,
    /// Share of keys whose every call is slow.
    pub slow: f64,
    /// The slowest that a slow call gets, on top of the latency; the quickest is a quarter of it.
    pub slow_max_ms: u64,
    /// Share of keys whose first one to three calls answer 503, 429 or 500.
    pub flaky: f64,
    /// Share of keys whose first call is never answered and takes no effect.
    pub hang: f64,
    /// Share of keys whose first call takes effect, but the answer is lost.
    pub answer_lost: f64,
    /// Share of keys that are refused for good. Undoing has a rate of its own.
    pub refuse: f64,
    /// Share of the keys of undos that are refused for good.
    pub refuse_undo: f64,
    /// Share of keys whose first call takes some seconds.
    pub long: f64,
    /// Share of keys whose call is still running when the caller's time for the step is up.
    pub outlive: f64,
    /// Share of keys that are answered with a redirect, and take effect during that answer or after it.
    pub redirect: f64,
    /// Share of keys that take effect and are answered with an empty 200.
    pub empty_answer: f64,
    /// Share of keys that take effect and are answered with a 200 that is not JSON.
    pub not_json: f64,
    /// Whether a call is answered with 409 or 423 while another one with its key is in progress. If
    /// not, it takes as long as any call and then gets the other one's answer.
    pub conflict_in_progress: bool,
    /// Whether an undo that finds nothing is answered with 404, and not with success.
    pub undo_not_found: bool,
}

/// What happens to the calls with one idempotency key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Nothing does.
    Healthy,
    /// Every call takes this much longer.
    Slow {
        /// Beyond the latency of every call.
        delay_ms: u64,
    },
    /// The first calls fail, without effect; then all is well.
    Flaky {
        /// How many calls fail, 1 to 3.
        calls: u32,
        /// 503, 429 or 500.
        status: u16,
        /// Whether the answer asks the client to stay away for a second (`Retry-After: 1`).
        retry_after: bool,
    },
    /// The first call has no effect and no answer; the server waits until the client goes away.
    Hang,
    /// The first call takes effect; then the connection breaks without an answer.
    AnswerLost,
    /// Every call gets the service's permanent refusal, and none takes effect.
    Refuse,
    /// The first call takes some seconds; it takes effect, whether or not the caller still waits.
    Long {
        /// Beyond the latency of every call.
        delay_ms: u64,
    },
    /// The first call fails after half a second, without effect. The second takes 9.7 s: it
    /// takes effect after the ten seconds which the workflows that ship give an attempt, but no later
    /// than ten seconds after its own start.
    Outlive,
    /// Every call is answered with a redirect. The first one takes effect, possibly after its answer.
    Redirect {
        /// 302 or 303.
        status: u16,
        /// How long after the answer the call takes effect; zero: before the answer.
        commit_after_ms: u64,
    },
    /// The first call takes effect; every answer is a 200 with an empty body.
    EmptyAnswer,
    /// The first call takes effect; every answer is a 200 whose body is not JSON.
    NotJson,
}

/// How long a long call takes.
const LONG_MS: RangeInclusive<u64> = 2_000..=5_000;

/// How long after a redirect the call may take effect.
const COMMIT_AFTER_MS: RangeInclusive<u64> = 500..=3_000;

/// How long the call of [`Fault::Outlive`] takes.
pub(super) const OUTLIVING_MS: u64 = 9_700;

/// How long its first call takes to fail.
pub(super) const OUTLIVING_AFTER_MS: u64 = 500;

/// The name of a [`Fault`], to count by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultKind {
    /// [`Fault::Slow`]
    Slow,
    /// [`Fault::Flaky`]
    Flaky,
    /// [`Fault::Hang`]
    Hang,
    /// [`Fault::AnswerLost`]
    AnswerLost,
    /// [`Fault::Refuse`]
    Refuse,
    /// The service is down, whatever the plan says.
    Down,
    /// [`Fault::Long`]
    Long,
    /// [`Fault::Outlive`]
    Outlive,
    /// [`Fault::Redirect`]
    Redirect,
    /// [`Fault::EmptyAnswer`]
    EmptyAnswer,
    /// [`Fault::NotJson`]
    NotJson,
    /// Another call with the same key is in progress.
    InProgress,
    /// The undo found nothing, and said so.
    NotFound,
}

impl FaultKind {
    /// All kinds, for reports.
    pub const ALL: [Self; 13] = [
        Self::Slow,
        Self::Flaky,
        Self::Hang,
        Self::AnswerLost,
        Self::Refuse,
        Self::Down,
        Self::Long,
        Self::Outlive,
        Self::Redirect,
        Self::EmptyAnswer,
        Self::NotJson,
        Self::InProgress,
        Self::NotFound,
    ];
}

impl FaultPlan {
    /// Services that always work, at once.
    #[must_use]
    pub const fn none(seed: u64) -> Self {
        Self {
            seed,
            latency_ms: 0,
            slow: 0.0,
            slow_max_ms: 0,
            flaky: 0.0,
            hang: 0.0,
            answer_lost: 0.0,
            refuse: 0.0,
            refuse_undo: 0.0,
            long: 0.0,
            outlive: 0.0,
            redirect: 0.0,
            empty_answer: 0.0,
            not_json: 0.0,
            conflict_in_progress: false,
            undo_not_found: false,
        }
    }

    /// A bad day: one key in four meets a fault, so more than half of the orders of three steps do.
    #[must_use]
    pub const fn demo(seed: u64) -> Self {
        Self {
            seed,
            latency_ms: 5,
            slow: 0.08,
            slow_max_ms: 400,
            flaky: 0.10,
            hang: 0.02,
            answer_lost: 0.03,
            refuse: 0.02,
            ..Self::none(seed)
        }
    }

    /// A worse day: more is refused for good, some of that cannot even be undone, and the services are
    /// as awkward as real ones.
    #[must_use]
    pub const fn chaos(seed: u64) -> Self {
        Self {
            refuse: 0.05,
            refuse_undo: 0.10,
            long: 0.01,
            outlive: 0.005,
            redirect: 0.01,
            empty_answer: 0.01,
            not_json: 0.005,
            conflict_in_progress: true,
            ..Self::demo(seed)
        }
    }

    /// What happens to the calls that undo something with this idempotency key. They are refused at
    /// a rate of their own, and not at that of what they undo.
    #[must_use]
    pub fn fault_of_undo(&self, idempotency_key: &str) -> Fault {
        Self { refuse: self.refuse_undo, ..self.clone() }.fault(idempotency_key)
    }

    /// What happens to the calls with this idempotency key.
    #[must_use]
    pub fn fault(&self, idempotency_key: &str) -> Fault {
        let mut random = fastrand::Rng::with_seed(digest(self.seed, idempotency_key));
        let mut left = random.f64();
        let mut falls_to = |rate: f64| {
            left -= rate;
            left < 0.0
        };
        if falls_to(self.slow) {
            Fault::Slow { delay_ms: random.u64(self.slow_max_ms / 4..=self.slow_max_ms) }
        } else if falls_to(self.flaky) {
            let calls = random.u32(1..=3);
            let (status, retry_after) = match random.u8(0..5) {
                0 | 1 => (503, false),
                2 => (503, true),
                3 => (429, true),
                _ => (500, false),
            };
            Fault::Flaky { calls, status, retry_after }
        } else if falls_to(self.hang) {
            Fault::Hang
        } else if falls_to(self.answer_lost) {
            Fault::AnswerLost
        } else if falls_to(self.refuse) {
            Fault::Refuse
        } else if falls_to(self.long) {
            Fault::Long { delay_ms: random.u64(LONG_MS) }
        } else if falls_to(self.outlive) {
            Fault::Outlive
        } else if falls_to(self.redirect) {
            let status = if random.bool() { 302 } else { 303 };
            let commit_after_ms = if random.bool() { 0 } else { random.u64(COMMIT_AFTER_MS) };
            Fault::Redirect { status, commit_after_ms }
        } else if falls_to(self.empty_answer) {
            Fault::EmptyAnswer
        } else if falls_to(self.not_json) {
            Fault::NotJson
        } else {
            Fault::Healthy
        }
    }
}

/// FNV-1a over seed and key. The standard library's hasher may change with the compiler, and a seed
/// that was written into a bug report must keep its meaning.
pub(super) fn digest(seed: u64, idempotency_key: &str) -> u64 {
    let bytes = seed.to_le_bytes().into_iter().chain(idempotency_key.bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys() -> impl Iterator<Item = String> {
        (0..10_000).map(|n| format!("order-{n}/charge/do"))
    }

    #[test]
    fn same_seed_gives_the_same_faults_and_another_seed_others() {
        let faults = |seed| {
            let plan = FaultPlan::demo(seed);
            keys().map(|key| plan.fault(&key)).collect::<Vec<_>>()
        };
        assert_eq!(faults(7), faults(7));
        assert_ne!(faults(7), faults(8));
    }

    #[test]
    fn a_seed_keeps_its_meaning_from_release_to_release() {
        let plan = FaultPlan::demo(42);
        let first_unhealthy = keys().find(|key| plan.fault(key) != Fault::Healthy).unwrap();
        assert_eq!(first_unhealthy, "order-2/charge/do");
        let fault = Fault::Flaky { calls: 2, status: 500, retry_after: false };
        assert_eq!(plan.fault(&first_unhealthy), fault);
    }

    #[test]
    fn faults_come_at_about_their_rates() {
        let plan = FaultPlan::demo(42);
        let share = |matches: fn(Fault) -> bool| {
            f64::from(u32::try_from(keys().filter(|key| matches(plan.fault(key))).count()).unwrap())
                / 10_000.0
        };
        let near = |share: f64, rate: f64| (share - rate).abs() < 0.01;
        assert!(near(share(|fault| matches!(fault, Fault::Slow { .. })), plan.slow));
        assert!(near(share(|fault| matches!(fault, Fault::Flaky { .. })), plan.flaky));
        assert!(near(share(|fault| fault == Fault::Hang), plan.hang));
        assert!(near(share(|fault| fault == Fault::AnswerLost), plan.answer_lost));
        assert!(near(share(|fault| fault == Fault::Refuse), plan.refuse));
    }

    #[test]
    fn awkward_answers_come_in_chaos_only_and_change_no_other_fault_of_a_seed() {
        let chaos = FaultPlan::chaos(42);
        let is_awkward = |fault| {
            matches!(
                fault,
                Fault::Long { .. }
                    | Fault::Outlive
                    | Fault::Redirect { .. }
                    | Fault::EmptyAnswer
                    | Fault::NotJson
            )
        };
        let kind_without = FaultPlan { refuse: 0.05, ..FaultPlan::demo(42) };
        for key in keys() {
            let (awkward, mild) = (chaos.fault(&key), kind_without.fault(&key));
            assert!(!is_awkward(mild));
            assert!(awkward == mild || is_awkward(awkward) && mild == Fault::Healthy);
        }
        let count = |kind: fn(Fault) -> bool| keys().filter(|key| kind(chaos.fault(key))).count();
        for (kind, about) in [
            ((|fault| matches!(fault, Fault::Long { .. })) as fn(Fault) -> bool, 100),
            (|fault| matches!(fault, Fault::Redirect { .. }), 100),
            (|fault| fault == Fault::EmptyAnswer, 100),
            (|fault| fault == Fault::NotJson, 50),
            (|fault| fault == Fault::Outlive, 50),
        ] {
            assert!(count(kind).abs_diff(about) < 50, "{}", count(kind));
        }
    }

    #[test]
    fn without_rates_all_is_healthy() {
        assert!(keys().all(|key| FaultPlan::none(42).fault(&key) == Fault::Healthy));
    }
}
