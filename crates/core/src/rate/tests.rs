//! Tests of a lease and of an instance's decisions, and a simulation of many instances whose clocks differ, which crash and
//! lose leases.

use std::{cmp::Reverse, collections::BinaryHeap, num::NonZeroU32, time::Duration};

use jiff::Timestamp;
use proptest::prelude::*;

use super::*;
use crate::model::{registration::CallRate, time::later};

const SKEW: Duration = Duration::from_secs(2);

fn at(millis: i64) -> Timestamp {
    Timestamp::from_millisecond(1_800_000_000_000 + millis).unwrap()
}

fn limit(per_second: f64, burst: u32) -> RateLimit {
    let per_second = CallRate::try_from(per_second).unwrap();
    RateLimit::new(per_second, Some(NonZeroU32::new(burst).unwrap()))
}

fn request(waiting: u32) -> LeaseRequest {
    LeaseRequest { waiting, expected: 0, next_place: at(0) }
}

fn lease(record: &RateRecord, waiting: u32, limit: &RateLimit, millis: i64) -> (RateRecord, Lease) {
    record.lease(request(waiting), limit, at(millis), SKEW)
}

#[test]
fn the_default_burst_is_a_seconds_worth_of_calls() {
    for (rate, burst) in [(0.1, 1), (1.0, 1), (2.5, 3), (10_000.0, 10_000)] {
        let limit = RateLimit::new(CallRate::try_from(rate).unwrap(), None);
        assert_eq!(limit.burst.get(), burst, "{rate}");
    }
}

#[test]
fn an_unused_limit_allows_a_burst_at_once_and_calls_of_the_next_second_later() {
    let limit = limit(10.0, 4);
    let (record, first) = lease(&RateRecord::default(), 3, &limit, 0);
    assert_eq!((first.first, first.calls, first.places), (at(-300), 3, 0));
    // One slot is in the past or present, and ten are in the next second.
    let (record, second) = lease(&record, 20, &limit, 0);
    assert_eq!((second.first, second.calls, second.places), (at(0), 11, 9));
    // The deferred calls return after those that wait, at the rate.
    assert_eq!((second.first_place, record.line_end), (at(1_100), at(2_000)));
    let (_, none) = lease(&record, 1, &limit, 0);
    assert_eq!((none.calls, none.first_place), (0, at(2_000)));
}

#[test]
fn unused_tokens_accumulate_up_to_the_burst() {
    let limit = limit(10.0, 4);
    let (record, _) = lease(&RateRecord::default(), 15, &limit, 0);
    let (_, later) = lease(&record, 99, &limit, 60_000);
    assert_eq!((later.first, later.calls), (at(59_700), 14));
}

#[test]
fn a_rate_below_one_a_second_has_slots_that_are_seconds_apart() {
    let limit = limit(0.2, 1);
    let (record, first) = lease(&RateRecord::default(), 2, &limit, 0);
    assert_eq!((first.calls, first.places, first.first_place), (1, 1, at(5_000)));
    assert_eq!(lease(&record, 1, &limit, 3_999).1.calls, 0);
    let (_, second) = lease(&record, 1, &limit, 4_000);
    assert_eq!((second.first, second.calls), (at(5_000), 1));
}

#[test]
fn a_line_that_is_too_long_begins_again_at_its_half() {
    let limit = limit(0.1, 1);
    let (record, _) = lease(&RateRecord::default(), 362, &limit, 0);
    let (record, wrapped) = lease(&record, 3, &limit, 0);
    assert_eq!(wrapped.first_place, at(1_800_000));
    assert_eq!(record.line_end, at(1_830_000));
}

#[test]
fn a_time_of_a_wrong_clock_does_not_stop_the_agent() {
    let limit = limit(10.0, 1);
    let ahead = RateRecord { next: at(3_600_000), line_end: at(36_000_000) };
    let (record, leased) = lease(&ahead, 1, &limit, 0);
    assert_eq!((leased.first, leased.calls, record.next), (at(0), 1, at(100)));
    assert_eq!(lease(&ahead, 12, &limit, 0).1.first_place, at(1_100));
    // A clock that is ahead by the clock skew is not wrong.
    let skewed = RateRecord { next: at(3_000), line_end: at(0) };
    assert_eq!(lease(&skewed, 1, &limit, 0).1.calls, 0);
}

#[test]
fn a_record_keeps_microseconds_when_it_is_stored() {
    let limit = limit(7_000.0, 1);
    let (record, _) = lease(&RateRecord::default(), 3, &limit, 0);
    let stored = serde_json::to_value(&record).unwrap();
    assert_eq!(serde_json::from_value::<RateRecord>(stored).unwrap(), record);
}

/// An instance that asks the record itself.
struct Instance {
    tokens: InstanceTokens,
    /// How far its clock is ahead.
    ahead: Duration,
}

impl Instance {
    fn decide(&mut self, shared: &mut (RateRecord, u64), now: Timestamp) -> TokenDecision {
        self.decide_many(shared, now, WAIT_MAX, 1)
    }

    fn decide_many(
        &mut self,
        shared: &mut (RateRecord, u64),
        now: Timestamp,
        longest_wait: Duration,
        waiting: u32,
    ) -> TokenDecision {
        let now = later(now, self.ahead);
        let decision = self.tokens.decide(now, longest_wait, waiting);
        let TokenDecision::Lease(request) = decision else { return decision };
        let (next, lease) = shared.0.lease(request, self.tokens.limit(), now, SKEW);
        *shared = (next, shared.1 + 1);
        self.tokens.leased(&lease, request, shared.1, now);
        self.tokens.decide(now, longest_wait, waiting)
    }
}

fn instance(limit: RateLimit) -> Instance {
    Instance { tokens: InstanceTokens::new(limit), ahead: Duration::ZERO }
}

fn deferred(decision: TokenDecision) -> Duration {
    let TokenDecision::Defer(wait) = decision else { panic!("{decision:?}") };
    wait
}

#[test]
fn concurrent_calls_share_a_lease() {
    let (mut one, mut shared) = (instance(limit(1.0, 3)), (RateRecord::default(), 0));
    let slots: Vec<_> = (0..4)
        .map(|n| one.decide_many(&mut shared, at(0), WAIT_MAX, 6 - n))
        .map(|decision| match decision {
            TokenDecision::CallAt { slot, .. } => slot,
            TokenDecision::Lease(_) | TokenDecision::Defer(_) | TokenDecision::Unknown(_) => {
                panic!("{decision:?}")
            }
        })
        .collect();
    assert_eq!(slots, [at(-2_000), at(-1_000), at(0), at(1_000)]);
    let waits = [(); 2].map(|()| deferred(one.decide(&mut shared, at(0))));
    assert_eq!(waits.map(|wait| wait.as_secs()), [2, 3], "each has its own place");
    assert_eq!(shared.1, 1, "all share one write");
}

#[test]
fn a_call_that_cannot_wait_leaves_its_token_to_others() {
    let (mut one, mut shared) = (instance(limit(10.0, 1)), (RateRecord::default(), 0));
    let soon = Duration::from_millis(50);
    one.decide_many(&mut shared, at(0), WAIT_MAX, 2);
    deferred(one.decide_many(&mut shared, at(0), soon, 1));
    let decision = one.decide(&mut shared, at(0));
    assert!(matches!(decision, TokenDecision::CallAt { slot, .. } if slot == at(100)));
}

#[test]
fn an_instance_leases_what_it_used_recently() {
    let (mut one, mut shared) = (instance(limit(1_000.0, 1_000)), (RateRecord::default(), 0));
    for millis in 0..10_000 {
        one.decide(&mut shared, at(millis * 10));
    }
    // 100 seconds with a hundred calls a second: a lease every two seconds, after a few to learn the rate.
    assert!((50..70).contains(&shared.1), "{} leases", shared.1);
}

#[test]
fn tokens_expire_with_their_lease() {
    let (mut one, mut shared) = (instance(limit(10.0, 10)), (RateRecord::default(), 0));
    one.decide_many(&mut shared, at(0), WAIT_MAX, 5);
    one.decide(&mut shared, at(2_999));
    assert_eq!(shared.1, 1);
    let decision = one.decide(&mut shared, at(3_000));
    assert!(matches!(decision, TokenDecision::CallAt { slot, .. } if slot >= at(2_100)));
    assert_eq!(shared.1, 2);
}

#[test]
fn without_the_state_store_no_call_is_made_after_the_lease() {
    let (mut one, mut shared) = (instance(limit(10.0, 10)), (RateRecord::default(), 0));
    one.decide_many(&mut shared, at(0), WAIT_MAX, 2);
    assert!(matches!(one.tokens.decide(at(1), WAIT_MAX, 1), TokenDecision::CallAt { .. }));
    assert!(matches!(one.tokens.decide(at(2), WAIT_MAX, 1), TokenDecision::Lease(_)));
    one.tokens.lease_failed(at(2));
    for millis in [3, 500, 1_001] {
        let decision = one.tokens.decide(at(millis), WAIT_MAX, 1);
        assert!(matches!(decision, TokenDecision::Unknown(_)), "{decision:?}");
    }
    assert!(matches!(one.tokens.decide(at(1_002), WAIT_MAX, 1), TokenDecision::Lease(_)));
}

/// A splitmix generator.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn fraction(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}

#[derive(Debug, Clone, Copy)]
struct Load {
    limit: RateLimit,
    instances: usize,
    seed: u64,
    /// New calls a second, as a multiple of the rate.
    demand: f64,
    /// New calls at the start.
    backlog: u32,
    for_s: u64,
    /// The largest difference between two clocks.
    skew: Duration,
    /// The share of calls at which the instance crashes, and of leases whose response is lost.
    faults: f64,
}

#[derive(Debug)]
struct Outcome {
    /// The times of the calls, ordered.
    calls: Vec<Timestamp>,
    leases: u64,
    deferrals: u64,
    /// The largest number of deferrals of one call.
    deferrals_max: u32,
}

/// Calls arrive at random instances. A deferred call returns to another instance after its wait in whole seconds and up to
/// 300 ms, like a message through SQS.
fn simulate(load: Load) -> Outcome {
    let random = &mut Random(load.seed);
    let mut instances: Vec<_> = (0..load.instances)
        .map(|_| Instance { ahead: load.skew.mul_f64(random.fraction()), ..instance(load.limit) })
        .collect();
    let mut shared = (RateRecord::default(), 0);
    let rate = f64::from(load.limit.per_second) * load.demand;
    let end = load.for_s as f64;
    let mut arrivals: BinaryHeap<Reverse<(Timestamp, u32)>> = BinaryHeap::new();
    arrivals.extend((0..load.backlog).map(|n| Reverse((at(i64::from(n) / 10), 0))));
    let mut time_s = 0.0;
    while rate > 0.0 && time_s < end {
        time_s -= (1.0 - random.fraction()).ln() / rate;
        arrivals.push(Reverse((at((time_s * 1e3) as i64), 0)));
    }
    let mut outcome = Outcome { calls: Vec::new(), leases: 0, deferrals: 0, deferrals_max: 0 };
    while let Some(Reverse((now, deferrals))) = arrivals.pop() {
        if now > at(load.for_s as i64 * 1_000) {
            break;
        }
        let one = random.below(instances.len());
        let one = &mut instances[one];
        let local = later(now, one.ahead);
        if random.fraction() < load.faults {
            one.tokens = InstanceTokens::new(load.limit);
        }
        let (record, revision) = shared.clone();
        let decision = one.decide(&mut shared, now);
        if shared.1 > revision && random.fraction() < load.faults {
            // The save failed, or only its response was lost.
            if random.fraction() < 0.5 {
                shared = (record, revision);
            }
            one.tokens.lease_failed(local);
            arrivals.push(Reverse((later(now, Duration::from_secs(1)), deferrals)));
            continue;
        }
        match decision {
            TokenDecision::CallAt { slot, .. } => {
                outcome.calls.push(slot.max(local) - one.ahead);
            }
            TokenDecision::Defer(wait) | TokenDecision::Unknown(wait) => {
                outcome.deferrals += 1;
                outcome.deferrals_max = outcome.deferrals_max.max(deferrals + 1);
                let seconds = wait.as_secs_f64().ceil() + 0.3 * random.fraction();
                arrivals
                    .push(Reverse((later(now, Duration::from_secs_f64(seconds)), deferrals + 1)));
            }
            TokenDecision::Lease(_) => panic!("asked twice"),
        }
    }
    outcome.leases = shared.1;
    outcome.calls.sort_unstable();
    outcome
}

/// The largest excess of calls over `per_second` in any window.
fn excess(calls: &[Timestamp], per_second: f64) -> f64 {
    let (mut level, mut highest, mut before) = (0.0_f64, 0.0_f64, Timestamp::MIN);
    for call in calls {
        let passed = call.duration_since(before).as_secs_f64();
        level = (level - passed * per_second).max(0.0) + 1.0;
        (highest, before) = (highest.max(level), *call);
    }
    highest
}

fn check_bound(load: &Load, calls: &[Timestamp]) {
    let bound = load.limit.calls_max(Duration::ZERO, load.skew);
    let excess = excess(calls, load.limit.per_second.into());
    assert!(excess <= bound + 1e-6, "{excess} over the rate, {bound} allowed: {load:?}");
}

fn load(per_second: f64, instances: usize) -> Load {
    let limit = RateLimit::new(CallRate::try_from(per_second).unwrap(), None);
    let for_s = ((2_000.0 / per_second) as u64).clamp(100, 3_000);
    let (skew, faults) = (Duration::from_millis(50), 0.0);
    Load { limit, instances, seed: 7, demand: 2.0, backlog: 0, for_s, skew, faults }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn no_window_has_more_calls_than_the_bound(
        rate in prop_oneof![0.1..2.0, 2.0..50.0, 50.0..500.0],
        burst in prop_oneof![Just(1_u32), 2_u32..20, 20_u32..2_000],
        instances in 1_usize..=20,
        seed: u64,
        demand in prop_oneof![0.1..1.2, 1.0..10.0],
        backlog in 0_u32..500,
        skew_ms in 0_u64..=2_000,
        faults in prop_oneof![Just(0.0), 0.0..0.3],
    ) {
        let limit = limit(rate, burst);
        let (for_s, skew) = (40, Duration::from_millis(skew_ms));
        let load = Load { limit, instances, seed, demand, backlog, for_s, skew, faults };
        check_bound(&load, &simulate(load).calls);
    }
}

#[test]
fn with_enough_demand_nine_tenths_of_the_rate_are_used() {
    for instances in [1, 2, 20] {
        for rate in [0.2, 1.0, 10.0, 100.0] {
            for burst in [None, Some(1)] {
                for demand in [1.2, 4.0] {
                    let mut load = Load { demand, ..load(rate, instances) };
                    if let Some(burst) = burst {
                        load.limit = limit(rate, burst);
                    }
                    let outcome = simulate(load);
                    check_bound(&load, &outcome.calls);
                    let used = outcome.calls.len() as f64 / (rate * load.for_s as f64);
                    assert!(used > 0.9, "{used} of {load:?}");
                }
            }
        }
    }
}

#[test]
fn the_record_sees_a_few_writes_a_second_whatever_the_rate() {
    for instances in [1, 2, 20] {
        // About five a second in all, or two leases of each instance in three seconds.
        let most = f64::from(instances) * 0.5 + 5.0;
        let instances = instances as usize;
        for rate in [0.2, 10.0, 1_000.0] {
            for demand in [0.5, 1.0, 4.0] {
                let load = Load { demand, for_s: 100, ..load(rate, instances) };
                let writes = simulate(load).leases as f64 / load.for_s as f64;
                assert!(writes < most, "{writes} writes a second: {load:?}");
            }
        }
    }
}

#[test]
fn a_demand_below_the_rate_is_not_deferred() {
    for instances in [1, 2, 20] {
        for rate in [10.0, 100.0, 1_000.0] {
            let load = Load { demand: 0.5, ..load(rate, instances) };
            let Outcome { calls, deferrals, .. } = simulate(load);
            let share = deferrals as f64 / calls.len() as f64;
            assert!(share < 0.01, "{share} of the calls are deferred: {load:?}");
        }
    }
}

#[test]
fn a_backlog_drains_at_the_rate() {
    for instances in [1, 2, 20] {
        for rate in [1.0, 10.0, 100.0] {
            let backlog = (rate * 100.0) as u32;
            let load = Load { demand: 0.0, backlog, for_s: 1_000, ..load(rate, instances) };
            let Outcome { calls, deferrals_max, .. } = simulate(load);
            assert_eq!(calls.len(), backlog as usize);
            let took = calls.last().unwrap().duration_since(at(0)).as_secs_f64();
            assert!(took < 150.0, "{took} s with {load:?}");
            assert!(deferrals_max < 12, "{deferrals_max} deferrals of a call: {load:?}");
        }
    }
}

#[test]
fn a_single_busy_instance_stays_at_the_rate_and_the_burst() {
    for demand in [1.0, 3.0] {
        let load = Load { demand, ..load(10.0, 1) };
        let excess = excess(&simulate(load).calls, 10.0);
        let burst = f64::from(load.limit.burst.get());
        assert!(excess < burst + 10.0 * 0.3, "{excess}");
    }
}

#[test]
fn calls_that_arrive_later_do_not_keep_a_deferred_call_from_returning() {
    // Half of the demand is above the rate, so the line grows. Even so, most calls need few returns.
    let load = Load { demand: 1.5, ..load(10.0, 2) };
    let Outcome { calls, deferrals, .. } = simulate(load);
    let mean = deferrals as f64 / calls.len() as f64;
    assert!(mean < 3.0, "{mean} deferrals a call");
}
