//! The fault plan: which calls get which faults.
//!
//! A fault is a pure function of the plan (its seed and rates) and of the key of a call: the idempotency key, or the
//! method and the resource at a service without such keys. It does not depend on the order or time of the calls, so
//! that a failed run gets the same faults again with the same plan, however it is scheduled.

use std::ops::RangeInclusive;

use serde::Serialize;

/// The rates of injected faults. Each rate is a share of the keys, from 0.0 to 1.0. A key gets at most one fault, so
/// the rates add up. If their sum exceeds 1.0, later rates are cut off.
#[derive(Debug, Clone, PartialEq)]
pub struct FaultPlan {
    /// The random seed. With the same rates, the same seed gives every key the same fault.
    pub seed: u64,
    /// The minimum duration of a call. Malformed requests, and calls that are refused because another call with their
    /// key is in progress, are answered at once.
    pub latency_ms: u64,
    /// Share of keys whose every call is slow.
    pub slow: f64,
    /// The maximum delay of slow calls beyond the latency. The minimum is a quarter of it.
    pub slow_max_ms: u64,
    /// Share of keys whose first one to three calls get 503, 429 or 500.
    pub flaky: f64,
    /// Share of keys whose first call has no effect and gets no response.
    pub hang: f64,
    /// Share of keys whose first call takes effect, but whose response is lost.
    pub answer_lost: f64,
    /// Share of keys that are refused permanently. Undos have a separate rate.
    pub refuse: f64,
    /// Share of the keys of undos that are refused permanently.
    pub refuse_undo: f64,
    /// Share of keys whose first call takes several seconds.
    pub long: f64,
    /// Share of keys with a call that is still in progress at the complete-by of its attempt.
    pub outlive: f64,
    /// Share of keys whose calls get a redirect. The first call takes effect before the redirect or after it.
    pub redirect: f64,
    /// Share of keys whose calls take effect and get an empty 200.
    pub empty_answer: f64,
    /// Share of keys whose calls take effect and get a 200 that is not JSON.
    pub not_json: f64,
    /// Share of keys to which the service stores a 500 and repeats it for ever.
    pub stored_error: f64,
    /// Share of keys whose first one to three calls get a 200 whose body says that the service is too busy. Only the payment
    /// service has it.
    pub busy_body: f64,
    /// Share of keys whose calls take effect and get a success with a byte order mark before the JSON.
    pub byte_order_mark: f64,
    /// Share of keys whose first call gets a 429 with a `Retry-After` that ends after its attempt.
    pub long_pause: f64,
    /// Whether a call gets 409 or 423 while another call with its key is in progress. Otherwise it is carried out
    /// independently: the call that finishes first takes effect, and the other one gets its response.
    pub conflict_in_progress: bool,
    /// Whether an undo that finds nothing gets 404 instead of success.
    pub undo_not_found: bool,
    /// Share of answers to callbacks, and of events, that are sent late.
    pub late: f64,
    /// Share of answers to callbacks, and of events, that are sent twice.
    pub repeat: f64,
    /// Share of events that are sent before the step waits for them.
    pub early: f64,
}

/// How a service or a person sends the answer to a callback, or an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sending {
    /// The delay before it is sent.
    pub delay_ms: u64,
    /// Whether it is sent twice.
    pub is_repeated: bool,
    /// Whether an event is sent before the step waits for it. It has no meaning for an answer.
    pub is_early: bool,
}

/// The fault of the calls with one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// No fault.
    Healthy,
    /// Every call is slow.
    Slow {
        /// The delay beyond the normal latency.
        delay_ms: u64,
    },
    /// The first calls fail without effect; later calls succeed.
    Flaky {
        /// How many calls fail, 1 to 3.
        calls: u32,
        /// 503, 429 or 500.
        status: u16,
        /// Whether the response has `Retry-After: 1`.
        retry_after: bool,
    },
    /// The first call has no effect and gets no response; the server waits until the client disconnects.
    Hang,
    /// The first call takes effect; then the connection breaks without a response.
    AnswerLost,
    /// Every call gets the service's permanent refusal and has no effect.
    Refuse,
    /// The first call takes several seconds. It takes effect even if the caller disconnects.
    Long {
        /// The delay beyond the normal latency.
        delay_ms: u64,
    },
    /// The first call fails after half a second, without effect. The second call takes 9.7 s. It takes effect after the
    /// attempt's complete-by (10 s in the example workflows), but within ten seconds of its own start.
    Outlive,
    /// Every call gets a redirect. The first call takes effect, possibly after its response.
    Redirect {
        /// 302 or 303.
        status: u16,
        /// The time from the response to the side effect; zero means that the side effect comes first.
        commit_after_ms: u64,
    },
    /// The first call takes effect; every successful response is replaced by a 200 with an empty body.
    EmptyAnswer,
    /// The first call takes effect; every successful response is replaced by a 200 whose body is not JSON.
    NotJson,
    /// Every call gets a 500, because the service stores its first response.
    StoredError {
        /// Whether the first call takes effect nevertheless.
        takes_effect: bool,
    },
    /// The first calls get a 200 whose body says that the service is too busy. They have no effect; later calls succeed.
    BusyBody {
        /// How many calls, 1 to 3.
        calls: u32,
    },
    /// The first call takes effect; every successful response has a byte order mark before its JSON.
    ByteOrderMark,
    /// The first call gets a 429, and has no effect; later calls succeed.
    LongPause {
        /// The `Retry-After` of the response.
        seconds: u64,
    },
}

/// The delay of a late answer or event.
const LATE_MS: RangeInclusive<u64> = 200..=1_500;

/// The duration of [`Fault::Long`].
const LONG_MS: RangeInclusive<u64> = 2_000..=5_000;

/// The `Retry-After` of [`Fault::LongPause`], in seconds. An attempt of the example workflows takes ten.
const LONG_PAUSE: RangeInclusive<u64> = 12..=20;

/// The time from a redirect to the side effect.
const COMMIT_AFTER_MS: RangeInclusive<u64> = 500..=3_000;

/// The duration of the second call of [`Fault::Outlive`].
pub(super) const OUTLIVE_CALL_MS: u64 = 9_700;

/// The time until the first call of [`Fault::Outlive`] fails.
pub(super) const OUTLIVE_FAILURE_AFTER_MS: u64 = 500;

/// The kind of an injected fault, used for counting.
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
    /// The service is down. This does not depend on the plan.
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
    /// [`Fault::StoredError`]
    StoredError,
    /// [`Fault::BusyBody`]
    BusyBody,
    /// [`Fault::ByteOrderMark`]
    ByteOrderMark,
    /// [`Fault::LongPause`]
    LongPause,
    /// Another call with the same key is in progress.
    InProgress,
    /// The undo found nothing and got 404.
    NotFound,
    /// An answer or event was late.
    Late,
    /// An answer or event was sent twice.
    Repeated,
    /// An event was sent before the step waited for it.
    Early,
    /// The message that undoes came before the message that does.
    OutOfOrder,
}

impl FaultKind {
    /// All kinds.
    pub const ALL: [Self; 21] = [
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
        Self::StoredError,
        Self::BusyBody,
        Self::ByteOrderMark,
        Self::LongPause,
        Self::InProgress,
        Self::NotFound,
        Self::Late,
        Self::Repeated,
        Self::Early,
        Self::OutOfOrder,
    ];
}

impl FaultPlan {
    /// No faults and no latency.
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
            stored_error: 0.0,
            busy_body: 0.0,
            byte_order_mark: 0.0,
            long_pause: 0.0,
            conflict_in_progress: false,
            undo_not_found: false,
            late: 0.0,
            repeat: 0.0,
            early: 0.0,
        }
    }

    /// Moderate fault rates: one key in four has a fault, so more than half of the orders with three steps have one.
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
            late: 0.15,
            repeat: 0.15,
            early: 0.25,
            ..Self::none(seed)
        }
    }

    /// High fault rates: more permanent refusals, also of undos, and the difficult behaviour of real services, such as
    /// redirects, empty responses, errors that are repeated for ever or answered with 200, and calls that outlast the
    /// complete-by of their attempt.
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
            stored_error: 0.01,
            busy_body: 0.02,
            byte_order_mark: 0.01,
            long_pause: 0.01,
            conflict_in_progress: true,
            ..Self::demo(seed)
        }
    }

    /// The fault of undo calls with this key. Undos have their own rate of refusals.
    #[must_use]
    pub fn fault_of_undo(&self, key: &str) -> Fault {
        Self { refuse: self.refuse_undo, ..self.clone() }.fault(key)
    }

    /// How the answer or event with this key is sent.
    #[must_use]
    pub fn sending(&self, key: &str) -> Sending {
        let mut random = fastrand::Rng::with_seed(digest(self.seed, key));
        let mut is_chosen = |rate: f64| random.f64() < rate;
        let (is_late, is_repeated) = (is_chosen(self.late), is_chosen(self.repeat));
        let is_early = is_chosen(self.early);
        Sending { delay_ms: if is_late { random.u64(LATE_MS) } else { 0 }, is_repeated, is_early }
    }

    /// The fault of calls with this key.
    #[must_use]
    pub fn fault(&self, key: &str) -> Fault {
        let mut random = fastrand::Rng::with_seed(digest(self.seed, key));
        let mut remaining = random.f64();
        let mut is_chosen = |rate: f64| {
            remaining -= rate;
            remaining < 0.0
        };
        if is_chosen(self.slow) {
            Fault::Slow { delay_ms: random.u64(self.slow_max_ms / 4..=self.slow_max_ms) }
        } else if is_chosen(self.flaky) {
            let calls = random.u32(1..=3);
            let (status, retry_after) = match random.u8(0..5) {
                0 | 1 => (503, false),
                2 => (503, true),
                3 => (429, true),
                _ => (500, false),
            };
            Fault::Flaky { calls, status, retry_after }
        } else if is_chosen(self.hang) {
            Fault::Hang
        } else if is_chosen(self.answer_lost) {
            Fault::AnswerLost
        } else if is_chosen(self.refuse) {
            Fault::Refuse
        } else if is_chosen(self.long) {
            Fault::Long { delay_ms: random.u64(LONG_MS) }
        } else if is_chosen(self.outlive) {
            Fault::Outlive
        } else if is_chosen(self.redirect) {
            let status = if random.bool() { 302 } else { 303 };
            let commit_after_ms = if random.bool() { 0 } else { random.u64(COMMIT_AFTER_MS) };
            Fault::Redirect { status, commit_after_ms }
        } else if is_chosen(self.empty_answer) {
            Fault::EmptyAnswer
        } else if is_chosen(self.not_json) {
            Fault::NotJson
        } else if is_chosen(self.stored_error) {
            Fault::StoredError { takes_effect: random.bool() }
        } else if is_chosen(self.busy_body) {
            Fault::BusyBody { calls: random.u32(1..=3) }
        } else if is_chosen(self.byte_order_mark) {
            Fault::ByteOrderMark
        } else if is_chosen(self.long_pause) {
            Fault::LongPause { seconds: random.u64(LONG_PAUSE) }
        } else {
            Fault::Healthy
        }
    }
}

/// The FNV-1a hash of seed and key. The standard library's hasher may change with the compiler, but a seed in a bug
/// report must keep its meaning.
pub(super) fn digest(seed: u64, key: &str) -> u64 {
    let bytes = seed.to_le_bytes().into_iter().chain(key.bytes());
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
    fn the_same_seed_gives_the_same_faults_and_another_seed_gives_others() {
        let faults = |seed| {
            let plan = FaultPlan::demo(seed);
            keys().map(|key| plan.fault(&key)).collect::<Vec<_>>()
        };
        assert_eq!(faults(7), faults(7));
        assert_ne!(faults(7), faults(8));
    }

    #[test]
    fn a_seed_gives_the_same_faults_in_every_release() {
        let plan = FaultPlan::demo(42);
        let first_unhealthy = keys().find(|key| plan.fault(key) != Fault::Healthy).unwrap();
        assert_eq!(first_unhealthy, "order-2/charge/do");
        let fault = Fault::Flaky { calls: 2, status: 500, retry_after: false };
        assert_eq!(plan.fault(&first_unhealthy), fault);
        // The hash of all faults of another plan, as text.
        let all: Vec<_> = keys().map(|key| FaultPlan::chaos(42).fault(&key)).collect();
        assert_eq!(digest(0, &format!("{all:?}")), 14_585_655_341_707_775_802);
    }

    #[test]
    fn faults_occur_at_about_their_rates() {
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
    fn chaos_adds_refusals_late_calls_and_unusual_responses_but_replaces_no_fault() {
        let (chaos, demo) = (FaultPlan::chaos(42), FaultPlan::demo(42));
        let is_late_or_unusual = |fault| {
            matches!(
                fault,
                Fault::Long { .. }
                    | Fault::Outlive
                    | Fault::Redirect { .. }
                    | Fault::EmptyAnswer
                    | Fault::NotJson
                    | Fault::StoredError { .. }
                    | Fault::BusyBody { .. }
                    | Fault::ByteOrderMark
                    | Fault::LongPause { .. }
            )
        };
        for key in keys() {
            let (fault, of_demo) = (chaos.fault(&key), demo.fault(&key));
            assert!(!is_late_or_unusual(of_demo));
            let is_added = fault == Fault::Refuse || is_late_or_unusual(fault);
            assert!(fault == of_demo || is_added && of_demo == Fault::Healthy);
        }
        let count = |kind: fn(Fault) -> bool| keys().filter(|key| kind(chaos.fault(key))).count();
        for (kind, about) in [
            ((|fault| fault == Fault::Refuse) as fn(Fault) -> bool, 500),
            (|fault| matches!(fault, Fault::Long { .. }), 100),
            (|fault| matches!(fault, Fault::Redirect { .. }), 100),
            (|fault| fault == Fault::EmptyAnswer, 100),
            (|fault| fault == Fault::NotJson, 50),
            (|fault| fault == Fault::Outlive, 50),
            (|fault| fault == Fault::StoredError { takes_effect: true }, 50),
            (|fault| fault == Fault::StoredError { takes_effect: false }, 50),
            (|fault| matches!(fault, Fault::BusyBody { .. }), 200),
            (|fault| fault == Fault::ByteOrderMark, 100),
            (|fault| matches!(fault, Fault::LongPause { .. }), 100),
        ] {
            assert!(count(kind).abs_diff(about) < 50, "{}", count(kind));
        }
    }

    #[test]
    fn answers_are_late_repeated_and_early_at_about_their_rates() {
        let plan = FaultPlan::demo(42);
        let share = |matches: fn(Sending) -> bool| {
            let count = keys().filter(|key| matches(plan.sending(key))).count();
            f64::from(u32::try_from(count).unwrap()) / 10_000.0
        };
        assert!((share(|sending| sending.delay_ms > 0) - plan.late).abs() < 0.01);
        assert!((share(|sending| sending.is_repeated) - plan.repeat).abs() < 0.01);
        assert!((share(|sending| sending.is_early) - plan.early).abs() < 0.01);
    }

    #[test]
    fn a_plan_without_rates_has_no_faults() {
        let plan = FaultPlan::none(42);
        assert!(keys().all(|key| plan.fault(&key) == Fault::Healthy));
        let prompt = Sending { delay_ms: 0, is_repeated: false, is_early: false };
        assert!(keys().all(|key| plan.sending(&key) == prompt));
    }
}
