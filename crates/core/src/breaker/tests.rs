//! Tests of each row of the breaker's table, and an exhaustive exploration of the interleavings of a few instances.

use std::collections::HashSet;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn settings() -> BreakerSettings {
    let failures = NonZeroU32::new(2).unwrap();
    BreakerSettings { failures, open_for: 10 * SECOND, probe_within: 30 * SECOND }
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).unwrap()
}

/// The request of a call. In these tests, each request makes one call at a time, and both have the same name.
fn key(call: &str) -> KeyHash {
    KeyHash::new(call)
}

fn request_call(breaker: &Breaker, call: &str, seconds: i64) -> PermitDecision {
    let (request, now) = (key(call), at(seconds));
    let request = PermitRequest { call, request, now, clock_skew: 2 * SECOND };
    breaker.request_permit(request, &settings())
}

fn probe(breaker: &Breaker, call: &str, seconds: i64) -> Breaker {
    let decision = request_call(breaker, call, seconds);
    let PermitDecision::Probe(next, permit) = decision else { panic!("{decision:?}") };
    let until = at(seconds) + settings().probe_within;
    assert_eq!(permit, CallPermit::Probe { call: call.to_owned(), until });
    next
}

/// A failure that is not due to the request.
fn unavailable() -> CallOutcome {
    CallOutcome::Unavailable { reason: "no connection".to_owned(), request: None }
}

/// A failure that may be due to the request of this call.
fn server_error(call: &str) -> CallOutcome {
    CallOutcome::Unavailable { reason: "HTTP 500".to_owned(), request: Some(key(call)) }
}

/// The failures of an instance after these outcomes.
fn failures<'a>(
    breaker: &Breaker,
    outcomes: impl IntoIterator<Item = &'a CallOutcome>,
) -> FailuresInARow {
    let mut failures = FailuresInARow::default();
    outcomes.into_iter().for_each(|outcome| failures.record(outcome, breaker, &settings()));
    failures
}

/// The breaker after the last of these outcomes of calls through a closed breaker.
fn after_calls(breaker: &Breaker, outcomes: &[CallOutcome]) -> Option<Breaker> {
    let failures = failures(breaker, outcomes);
    let last = outcomes.last().unwrap();
    breaker.record_outcome(&CallPermit::Call, last, &failures, at(0), &settings())
}

fn completed(address: &str) -> CallOutcome {
    CallOutcome::Completed { address: KeyHash::new(address) }
}

#[test]
fn the_first_call_that_completes_at_an_address_is_recorded_once_in_any_state() {
    let closed = Breaker::default();
    assert_eq!(after_calls(&closed, &[CallOutcome::Available]), None);
    let first = after_calls(&closed, &[completed("https://a")]).unwrap();
    assert_eq!(first, Breaker { completed_at: vec![KeyHash::new("https://a")], ..closed });
    assert_eq!(after_calls(&first, &[completed("https://a")]), None);
    let opened = after_calls(&first, &[server_error("a"), server_error("b")]).unwrap();
    assert_eq!(opened.completed_at, first.completed_at);
    // A call that was in progress when the breaker opened.
    let late = after_calls(&opened, &[completed("https://b")]).unwrap();
    assert_eq!((&late.state, late.completed_at.len()), (&opened.state, 2));
    let probing = probe(&late, "c", 21);
    let closed = after(&probing, &probe_permit("c"), &completed("https://c"), 22).unwrap();
    assert_eq!((&closed.state, closed.completed_at.len()), (&BreakerState::Closed, 3));
    let many = ["d", "e", "f"]
        .iter()
        .fold(closed, |breaker, address| after_calls(&breaker, &[completed(address)]).unwrap());
    assert_eq!(many.completed_at.len(), limits::BREAKER_ADDRESSES_MAX);
}

fn after(
    breaker: &Breaker,
    permit: &CallPermit,
    outcome: &CallOutcome,
    seconds: i64,
) -> Option<Breaker> {
    let failures = failures(breaker, [&unavailable(), &unavailable()]);
    breaker.record_outcome(permit, outcome, &failures, at(seconds), &settings())
}

fn opened() -> Breaker {
    after(&Breaker::default(), &CallPermit::Call, &unavailable(), 0).unwrap()
}

fn probe_permit(call: &str) -> CallPermit {
    CallPermit::Probe { call: call.to_owned(), until: at(0) }
}

fn changes(breaker: &Breaker) -> Vec<BreakerTransition> {
    breaker.unpublished.iter().map(|change| change.to).collect()
}

#[test]
fn opens_after_the_set_number_of_failures_in_a_row() {
    let closed = Breaker::default();
    assert_eq!(request_call(&closed, "a", 0), PermitDecision::Call);
    let (a, b) = (server_error("a"), server_error("b"));
    assert_eq!(after_calls(&closed, std::slice::from_ref(&a)), None);
    let opened = after_calls(&closed, &[a.clone(), b.clone()]).unwrap();
    assert_eq!(changes(&opened), [BreakerTransition::Opened]);
    assert_eq!(opened.reason(), Some("HTTP 500"));
    let between = [a.clone(), CallOutcome::Available, b.clone()];
    assert_eq!(after_calls(&closed, &between), None);
    assert_eq!(after_calls(&closed, &[a, b, CallOutcome::Available]), None);
}

#[test]
fn request_that_always_fails_counts_once_unless_its_calls_do_not_reach_the_service() {
    let closed = Breaker::default();
    let mut outcomes = vec![server_error("a"); 100];
    assert_eq!(after_calls(&closed, &outcomes), None);
    outcomes.extend([CallOutcome::NotCalled, server_error("b")]);
    let opened = after_calls(&closed, &outcomes).unwrap();
    assert_eq!(opened.failed_requests.0, [key("a"), key("b")]);
    assert!(after_calls(&closed, &[unavailable(), unavailable()]).is_some());
}

#[test]
fn request_that_failed_leaves_the_probe_to_others_and_does_not_lengthen_the_open_time() {
    let opened = after_calls(&Breaker::default(), &[server_error("a"), server_error("b")]).unwrap();
    assert_eq!(request_call(&opened, "a", 4), PermitDecision::Wait(6 * SECOND));
    assert_eq!(request_call(&opened, "a", 12), PermitDecision::Wait(8 * SECOND));
    // The probe of another request shows whether the service is available.
    let probing = probe(&opened, "c", 12);
    let again = after(&probing, &probe_permit("c"), &server_error("c"), 13).unwrap();
    assert_eq!(again.failed_requests.0, [key("a"), key("b"), key("c")]);
    assert_eq!(request_call(&again, "d", 13), PermitDecision::Wait(20 * SECOND));
    // If there is no other, a request that failed probes after twice the time.
    let probing = probe(&opened, "a", 20);
    let again = after(&probing, &probe_permit("a"), &server_error("a"), 21).unwrap();
    assert_eq!(again.failed_requests, opened.failed_requests);
    assert_eq!(request_call(&again, "b", 21), PermitDecision::Wait(10 * SECOND));
    probe(&again, "b", 31);
    let closed = after(&probe(&again, "c", 21), &probe_permit("c"), &CallOutcome::Available, 22);
    assert_eq!(closed.unwrap().state, BreakerState::Closed);
    // A call that did not reach the service says the same about it, whichever request it was for.
    let unreachable = after(&probing, &probe_permit("a"), &unavailable(), 21).unwrap();
    assert_eq!(request_call(&unreachable, "c", 21), PermitDecision::Wait(20 * SECOND));
}

#[test]
fn request_that_failed_does_not_replace_a_lost_probe_before_others() {
    let opened = after_calls(&Breaker::default(), &[server_error("a"), server_error("b")]).unwrap();
    let probing = probe(&opened, "c", 10);
    assert_eq!(request_call(&probing, "a", 43), PermitDecision::Wait(9 * SECOND));
    probe(&probing, "d", 43);
    probe(&probing, "a", 52);
}

#[test]
fn requests_that_fail_for_ever_never_hold_up_others() {
    let mut breaker =
        after_calls(&Breaker::default(), &[server_error("a"), server_error("b")]).unwrap();
    let mut probes = 0;
    for second in 10..3_600 {
        probe(&breaker, "c", second);
        for call in ["a", "b"] {
            if let PermitDecision::Probe(probing, permit) = request_call(&breaker, call, second) {
                breaker = after(&probing, &permit, &server_error(call), second).unwrap();
                probes += 1;
            }
        }
    }
    assert_eq!(probes, 358, "one every ten seconds");
}

#[test]
fn failed_requests_do_not_count_again_after_the_breaker_closes() {
    let [a, b] = [server_error("a"), server_error("b")];
    let opened = after_calls(&Breaker::default(), &[a.clone(), b.clone()]).unwrap();
    let probing = probe(&opened, "c", 10);
    let closed = after(&probing, &probe_permit("c"), &CallOutcome::Available, 11).unwrap();
    assert_eq!(after_calls(&closed, &[a.clone(), b.clone(), server_error("c"), a]), None);
    let reopened = after_calls(&closed, &[b, server_error("c"), server_error("d")]).unwrap();
    assert_eq!(reopened.failed_requests.0, ["a", "b", "c", "d"].map(key));
}

#[test]
fn number_of_failed_requests_is_limited() {
    let mut breaker = opened();
    let mut now = 0;
    for n in 0..100 {
        now += 300;
        let call = n.to_string();
        let probing = probe(&breaker, &call, now);
        breaker = after(&probing, &probe_permit(&call), &server_error(&call), now).unwrap();
    }
    assert_eq!(breaker.failed_requests.0.len(), limits::BREAKER_FAILED_REQUESTS_MAX);
    assert_eq!(breaker.failed_requests.0.last(), Some(&key("99")));
}

#[test]
fn breaker_without_failed_requests_is_read() {
    let stored = r#"{ "state": { "is": "open", "until": 10000, "open_for_ms": 10000, "reason": "HTTP 503" } }"#;
    let read: Breaker = serde_json::from_str(stored).unwrap();
    probe(&read, "a", 10);
}

#[test]
fn open_breaker_refuses_calls_and_then_allows_one_probe() {
    let opened = opened();
    assert_eq!(request_call(&opened, "a", 4), PermitDecision::Wait(6 * SECOND));
    assert!(opened.is_certainly_open(at(9)) && !opened.is_certainly_open(at(10)));
    let probing = probe(&opened, "a", 10);
    // The probe may end long before its deadline, so a refused call waits no longer than `open_for`.
    assert_eq!(request_call(&probing, "b", 11), PermitDecision::Wait(10 * SECOND));
    assert_eq!(
        request_call(&probing, "b", 39),
        PermitDecision::Wait(3 * SECOND),
        "clocks may differ by 2 s"
    );
}

#[test]
fn successful_probe_closes_it_and_failed_probe_doubles_the_open_time() {
    let probing = probe(&opened(), "a", 10);
    let closed = after(&probing, &probe_permit("a"), &CallOutcome::Available, 11).unwrap();
    assert_eq!(closed.state, BreakerState::Closed);
    assert_eq!(changes(&closed), [BreakerTransition::Opened, BreakerTransition::Closed]);

    let mut breaker = opened();
    let (mut now, mut lengths) = (0, Vec::new());
    for _ in 0..7 {
        let BreakerState::Open { until, open_for_ms, .. } = breaker.state else {
            panic!("{breaker:?}")
        };
        assert_eq!(until, at(now) + Duration::from_millis(open_for_ms));
        lengths.push(open_for_ms / 1_000);
        now = until.as_second();
        breaker =
            after(&probe(&breaker, "a", now), &probe_permit("a"), &unavailable(), now).unwrap();
    }
    assert_eq!(lengths, [10, 20, 40, 80, 160, 300, 300]);
    assert_eq!(
        changes(&breaker),
        [BreakerTransition::Opened],
        "one alert, however many probes fail"
    );
}

#[test]
fn probe_that_timed_out_is_replaced_and_its_outcome_ignored() {
    let first = probe(&opened(), "a", 10);
    let second = probe(&first, "b", 42);
    assert_eq!(after(&second, &probe_permit("a"), &CallOutcome::Available, 43), None);
    assert_eq!(after(&second, &probe_permit("a"), &unavailable(), 43), None);
    let closed = after(&second, &probe_permit("b"), &CallOutcome::Available, 43).unwrap();
    assert_eq!(closed.state, BreakerState::Closed);
}

#[test]
fn next_call_may_probe_if_a_probe_was_not_made() {
    let probing = probe(&opened(), "a", 10);
    let again = after(&probing, &probe_permit("a"), &CallOutcome::NotCalled, 11).unwrap();
    let probing = probe(&again, "b", 11);
    let BreakerState::HalfOpen { open_for_ms, .. } = probing.state else { panic!("{probing:?}") };
    assert_eq!(open_for_ms, 10_000, "nothing failed");
}

#[test]
fn outcomes_of_calls_that_began_before_it_opened_are_ignored() {
    let (opened, probing) = (opened(), probe(&opened(), "a", 10));
    for outcome in [CallOutcome::Available, CallOutcome::NotCalled, unavailable()] {
        assert_eq!(after(&opened, &CallPermit::Call, &outcome, 1), None);
        assert_eq!(after(&probing, &CallPermit::Call, &outcome, 11), None);
        assert_eq!(after(&opened, &probe_permit("a"), &outcome, 1), None);
        assert_eq!(after(&Breaker::default(), &probe_permit("a"), &outcome, 1), None);
    }
}

#[test]
fn published_changes_are_removed_and_later_changes_stay() {
    let opened = opened();
    let published = opened.unpublished.clone();
    let closed =
        after(&probe(&opened, "a", 10), &probe_permit("a"), &CallOutcome::Available, 11).unwrap();
    let left = closed.mark_published(&published).unwrap();
    assert_eq!(
        (left.state.clone(), changes(&left)),
        (BreakerState::Closed, vec![BreakerTransition::Closed])
    );
    assert_eq!(left.mark_published(&published), None);
}

#[test]
fn number_of_unpublished_changes_is_limited() {
    let mut breaker = Breaker::default();
    for round in 0..100 {
        breaker = after(&breaker, &CallPermit::Call, &unavailable(), round * 100).unwrap();
        let probing = probe(&breaker, "a", round * 100 + 10);
        breaker =
            after(&probing, &probe_permit("a"), &CallOutcome::Available, round * 100 + 11).unwrap();
    }
    assert_eq!(breaker.unpublished.len(), limits::BREAKER_UNPUBLISHED_MAX);
    assert_eq!(breaker.unpublished.last().unwrap().at, at(9_911));
}

#[test]
fn breaker_reads_back_as_written_and_its_event_stays_the_same() {
    let nanos = Timestamp::new(1_795_201_200, 123_456_789).unwrap();
    let (closed, failed) = (Breaker::default(), [server_error("a"), server_error("b")]);
    let failures = failures(&closed, &failed);
    let opened = closed
        .record_outcome(&CallPermit::Call, &failed[1], &failures, nanos, &settings())
        .unwrap();
    for breaker in [Breaker::default(), opened.clone(), probe(&opened, "c", 1_795_201_211)] {
        let text = serde_json::to_string(&breaker).unwrap();
        let read: Breaker = serde_json::from_str(&text).unwrap();
        assert_eq!(read.unpublished, breaker.unpublished);
        assert_eq!(read.failed_requests, breaker.failed_requests);
        assert_eq!(serde_json::to_string(&read).unwrap(), text);
    }
    let agent = "payment".parse().unwrap();
    let event = serde_json::to_value(opened.unpublished[0].to_event(&agent)).unwrap();
    assert_eq!(event["metadata"]["event_id"], "payment/breaker_opened/1795201200123");
    assert_eq!(event["data"], serde_json::json!({ "agent": "payment", "reason": "HTTP 500" }));
}

// Exhaustive exploration. An instance decides with the breaker that it has read, saves the changed breaker if the stored
// one has not changed, and only then calls the service. The tests run every interleaving of these actions, with crashes,
// outages of the service and passing time.

/// One instance of an agent, with the breaker at the revision that it has read.
#[derive(Clone, PartialEq, Eq, Hash)]
struct AgentInstance {
    read: (u64, Breaker),
    /// The changed breaker that it is about to save. The permit is present if its next call is the probe.
    to_save: Option<(Breaker, Option<CallPermit>)>,
    /// The permit of its call in progress.
    calling: Option<CallPermit>,
    failures: FailuresInARow,
    probes: u32,
}

/// All instances, the stored breaker with its revision, the service and the time in seconds.
#[derive(Clone, PartialEq, Eq, Hash)]
struct SystemState {
    now: i64,
    service_is_up: bool,
    stored: (u64, Breaker),
    instances: Vec<AgentInstance>,
}

/// An action of one instance.
#[derive(Debug, Clone, Copy, PartialEq)]
enum InstanceAction {
    ReadBreaker,
    RequestCall,
    SaveBreaker,
    EndCall,
    Crash,
}

const ACTIONS: [InstanceAction; 5] = [
    InstanceAction::ReadBreaker,
    InstanceAction::RequestCall,
    InstanceAction::SaveBreaker,
    InstanceAction::EndCall,
    InstanceAction::Crash,
];

const EXPLORED: BreakerSettings = BreakerSettings {
    failures: NonZeroU32::MIN,
    open_for: Duration::from_secs(10),
    probe_within: Duration::from_secs(20),
};

impl AgentInstance {
    fn request_call(&mut self, nth: usize, now: i64) {
        let call = format!("{nth}/{}", self.probes);
        let (request, now) = (key(&nth.to_string()), at(now));
        let request = PermitRequest { call: &call, request, now, clock_skew: Duration::ZERO };
        match self.read.1.request_permit(request, &EXPLORED) {
            PermitDecision::Call => self.calling = Some(CallPermit::Call),
            PermitDecision::Probe(next, permit) => {
                self.probes += 1;
                self.to_save = Some((next, Some(permit)));
            }
            PermitDecision::Wait(_) => self.failures = FailuresInARow::default(),
        }
    }

    fn end_call(&mut self, permit: CallPermit, outcome: &CallOutcome, now: i64) {
        let next = self.read.1.record_outcome(&permit, outcome, &self.failures, at(now), &EXPLORED);
        // When a change is published does not matter here, and would multiply the states.
        self.to_save = next.map(|next| (Breaker { unpublished: Vec::new(), ..next }, None));
    }
}

impl SystemState {
    fn new(instances: usize) -> Self {
        let stored = (0, Breaker::default());
        let instance = AgentInstance {
            read: stored.clone(),
            to_save: None,
            calling: None,
            failures: FailuresInARow::default(),
            probes: 0,
        };
        Self { now: 0, service_is_up: false, stored, instances: vec![instance; instances] }
    }

    /// Advances the time by ten seconds. That is the first open time of the breaker, and half the time of a probe.
    fn later(&self) -> Self {
        Self { now: self.now + 10, ..self.clone() }
    }

    fn step(&self, nth: usize, action: InstanceAction) -> Option<Self> {
        let mut next = self.clone();
        let instance = &mut next.instances[nth];
        match action {
            InstanceAction::ReadBreaker
                if instance.to_save.is_none() && instance.read != self.stored =>
            {
                instance.read = self.stored.clone();
            }
            InstanceAction::RequestCall
                if instance.to_save.is_none() && instance.calling.is_none() =>
            {
                instance.request_call(nth, self.now)
            }
            InstanceAction::SaveBreaker => {
                let (breaker, permit) = instance.to_save.take()?;
                if self.stored.0 == instance.read.0 {
                    instance.read = (instance.read.0 + 1, breaker);
                    instance.calling = permit;
                    next.stored = instance.read.clone();
                } else {
                    instance.read = self.stored.clone();
                }
            }
            InstanceAction::EndCall => {
                let permit = instance.calling.take()?;
                // The first instance has a request of its own, and always the same.
                let outcome = match (self.service_is_up, nth) {
                    (true, _) => CallOutcome::Available,
                    (false, 0) => server_error("0"),
                    (false, _) => unavailable(),
                };
                instance.failures.record(&outcome, &instance.read.1, &EXPLORED);
                instance.end_call(permit, &outcome, self.now);
            }
            InstanceAction::Crash if instance.to_save.is_some() || instance.calling.is_some() => {
                (instance.to_save, instance.calling) = (None, None);
            }
            InstanceAction::ReadBreaker | InstanceAction::RequestCall | InstanceAction::Crash => {
                return None;
            }
        }
        Some(next)
    }

    fn next(&self) -> Vec<Self> {
        let actions = (0..self.instances.len())
            .flat_map(|nth| ACTIONS.into_iter().filter_map(move |action| self.step(nth, action)));
        let recovered = (!self.service_is_up).then(|| Self { service_is_up: true, ..self.clone() });
        actions.chain([self.later()]).chain(recovered).collect()
    }

    /// The number of probes in progress whose deadline has not passed.
    fn live_probes(&self) -> usize {
        let calls = self.instances.iter().filter_map(|instance| instance.calling.as_ref());
        let is_live = |permit: &&CallPermit| match permit {
            CallPermit::Call => false,
            CallPermit::Probe { until, .. } => *until > at(self.now),
        };
        calls.filter(is_live).count()
    }

    /// How many seconds the breaker takes to close after the service is up again, if only the instance `nth` is left and
    /// has just been restarted. `None` if it does not close.
    fn closes_after(&self, nth: usize) -> Option<i64> {
        let mut state = Self { service_is_up: true, ..self.clone() };
        let probes = state.instances[nth].probes;
        state.instances[nth] = AgentInstance { probes, ..Self::new(1).instances.remove(0) };
        while state.stored.1.state != BreakerState::Closed {
            if state.now > self.now + 400 {
                return None;
            }
            for action in [
                InstanceAction::ReadBreaker,
                InstanceAction::RequestCall,
                InstanceAction::SaveBreaker,
                InstanceAction::EndCall,
                InstanceAction::SaveBreaker,
            ] {
                state = state.step(nth, action).unwrap_or(state);
            }
            state = state.later();
        }
        Some(state.now - self.now)
    }
}

/// Visits every state that at most `depth` actions lead to. Returns the number of visited states, and how many of them
/// have a closed, an open and a half-open breaker.
fn explore(instances: usize, depth: usize) -> (usize, [usize; 3]) {
    let mut visited = HashSet::new();
    let mut counts = [0; 3];
    let mut layer = vec![SystemState::new(instances)];
    let breaker_state = |state: &SystemState| match &state.stored.1.state {
        BreakerState::Closed => 0,
        BreakerState::Open { .. } => 1,
        BreakerState::HalfOpen { .. } => 2,
    };
    for _ in 0..=depth {
        let mut next_layer = Vec::new();
        for state in layer {
            if !visited.insert(state.clone()) {
                continue;
            }
            assert!(state.live_probes() <= 1, "two probes at {} s", state.now);
            for nth in 0..instances {
                assert!(state.closes_after(nth).is_some(), "stuck: {:?}", state.stored);
            }
            counts[breaker_state(&state)] += 1;
            for next in state.next() {
                let (from, to) = (breaker_state(&state), breaker_state(&next));
                let changed = state.stored != next.stored;
                let legal = matches!((from, to), (0, 1) | (1, 2) | (2, 0) | (2, 1) | (2, 2));
                assert!(!changed || legal, "{:?} became {:?}", state.stored, next.stored);
                next_layer.push(next);
            }
        }
        layer = next_layer;
    }
    (visited.len(), counts)
}

#[test]
fn two_instances_never_probe_at_once_and_the_breaker_always_closes_again() {
    let (states, counts) = explore(2, 11);
    println!("{states} states; closed, open, half open: {counts:?}");
    assert!(counts.iter().all(|count| *count > 500), "{counts:?}");
}

#[test]
fn three_instances_never_probe_at_once_and_the_breaker_always_closes_again() {
    let (states, counts) = explore(3, 9);
    println!("{states} states; closed, open, half open: {counts:?}");
    assert!(counts.iter().all(|count| *count > 500), "{counts:?}");
}
