//! The breaker's table, row by row, and then every interleaving of a few instances' steps.

use std::collections::HashSet;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn settings() -> Settings {
    let failures = NonZeroU32::new(2).unwrap();
    Settings { failures, open_for: 10 * SECOND, probe_within: 30 * SECOND }
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).unwrap()
}

fn ask(breaker: &Breaker, call: &str, seconds: i64) -> Asked {
    let asker = Asker { call, now: at(seconds), clock_skew: 2 * SECOND };
    breaker.ask(asker, &settings())
}

fn probe(breaker: &Breaker, call: &str, seconds: i64) -> Breaker {
    let asked = ask(breaker, call, seconds);
    let Asked::Probe(next, permit) = asked else { panic!("{asked:?}") };
    let until = at(seconds) + settings().probe_within;
    assert_eq!(permit, Permit::Probe { call: call.to_owned(), until });
    next
}

fn down() -> Heard {
    Heard::Unavailable { reason: "HTTP 503".to_owned() }
}

fn after(breaker: &Breaker, permit: &Permit, heard: &Heard, seconds: i64) -> Option<Breaker> {
    breaker.after(permit, heard, settings().failures.get(), at(seconds), &settings())
}

fn opened() -> Breaker {
    after(&Breaker::default(), &Permit::Call, &down(), 0).unwrap()
}

fn by(call: &str) -> Permit {
    Permit::Probe { call: call.to_owned(), until: at(0) }
}

fn turns(breaker: &Breaker) -> Vec<Turned> {
    breaker.untold.iter().map(|turn| turn.to).collect()
}

#[test]
fn it_opens_after_failures_in_a_row_and_not_before() {
    let closed = Breaker::default();
    assert_eq!(ask(&closed, "a", 0), Asked::Call);
    let heard = |in_a_row| closed.after(&Permit::Call, &down(), in_a_row, at(0), &settings());
    assert_eq!(heard(1), None);
    let opened = heard(2).unwrap();
    assert_eq!(turns(&opened), [Turned::Opened]);
    assert_eq!(opened.reason(), Some("HTTP 503"));
    assert_eq!(closed.after(&Permit::Call, &Heard::Alive, 9, at(0), &settings()), None);
}

#[test]
fn while_open_nobody_calls_and_then_one_does() {
    let opened = opened();
    assert_eq!(ask(&opened, "a", 4), Asked::Wait(6 * SECOND));
    assert!(opened.is_surely_open(at(9)) && !opened.is_surely_open(at(10)));
    let probing = probe(&opened, "a", 10);
    // The probe may be over long before its time is, so nobody waits for longer than at first.
    assert_eq!(ask(&probing, "b", 11), Asked::Wait(10 * SECOND));
    assert_eq!(ask(&probing, "b", 39), Asked::Wait(3 * SECOND), "clocks may disagree by 2 s");
}

#[test]
fn a_probe_that_is_answered_closes_it_and_one_that_is_not_opens_it_for_longer() {
    let probing = probe(&opened(), "a", 10);
    let closed = after(&probing, &by("a"), &Heard::Alive, 11).unwrap();
    assert_eq!(closed.state, State::Closed);
    assert_eq!(turns(&closed), [Turned::Opened, Turned::Closed]);

    let mut breaker = opened();
    let (mut now, mut lengths) = (0, Vec::new());
    for _ in 0..7 {
        let State::Open { until, open_for_ms, .. } = breaker.state else { panic!("{breaker:?}") };
        assert_eq!(until, at(now) + Duration::from_millis(open_for_ms));
        lengths.push(open_for_ms / 1_000);
        now = until.as_second();
        breaker = after(&probe(&breaker, "a", now), &by("a"), &down(), now).unwrap();
    }
    assert_eq!(lengths, [10, 20, 40, 80, 160, 300, 300]);
    assert_eq!(turns(&breaker), [Turned::Opened], "one alert, however many probes fail");
}

#[test]
fn a_dead_prober_is_replaced_and_no_longer_heard() {
    let first = probe(&opened(), "a", 10);
    let second = probe(&first, "b", 42);
    assert_eq!(after(&second, &by("a"), &Heard::Alive, 43), None);
    assert_eq!(after(&second, &by("a"), &down(), 43), None);
    let closed = after(&second, &by("b"), &Heard::Alive, 43).unwrap();
    assert_eq!(closed.state, State::Closed);
}

#[test]
fn a_probe_that_was_not_made_leaves_its_turn_to_the_next() {
    let probing = probe(&opened(), "a", 10);
    let again = after(&probing, &by("a"), &Heard::Nothing, 11).unwrap();
    let probing = probe(&again, "b", 11);
    let State::HalfOpen { open_for_ms, .. } = probing.state else { panic!("{probing:?}") };
    assert_eq!(open_for_ms, 10_000, "nothing failed");
}

#[test]
fn calls_that_began_before_change_nothing_once_it_is_open() {
    let (opened, probing) = (opened(), probe(&opened(), "a", 10));
    for heard in [Heard::Alive, Heard::Nothing, down()] {
        assert_eq!(after(&opened, &Permit::Call, &heard, 1), None);
        assert_eq!(after(&probing, &Permit::Call, &heard, 11), None);
        assert_eq!(after(&opened, &by("a"), &heard, 1), None);
        assert_eq!(after(&Breaker::default(), &by("a"), &heard, 1), None);
    }
}

#[test]
fn what_is_told_is_forgotten_and_what_came_since_is_not() {
    let opened = opened();
    let told = opened.untold.clone();
    let closed = after(&probe(&opened, "a", 10), &by("a"), &Heard::Alive, 11).unwrap();
    let left = closed.told(&told).unwrap();
    assert_eq!((left.state.clone(), turns(&left)), (State::Closed, vec![Turned::Closed]));
    assert_eq!(left.told(&told), None);
}

#[test]
fn turns_that_nobody_can_be_told_of_do_not_pile_up() {
    let mut breaker = Breaker::default();
    for round in 0..100 {
        breaker = after(&breaker, &Permit::Call, &down(), round * 100).unwrap();
        let probing = probe(&breaker, "a", round * 100 + 10);
        breaker = after(&probing, &by("a"), &Heard::Alive, round * 100 + 11).unwrap();
    }
    assert_eq!(breaker.untold.len(), limits::BREAKER_UNTOLD_MAX);
    assert_eq!(breaker.untold.last().unwrap().at, at(9_911));
}

#[test]
fn it_reads_back_as_it_was_written_and_its_event_stays_the_same() {
    let nanos = Timestamp::new(1_795_201_200, 123_456_789).unwrap();
    let opened = Breaker::default().after(&Permit::Call, &down(), 2, nanos, &settings()).unwrap();
    for breaker in [Breaker::default(), opened.clone(), probe(&opened, "a", 1_795_201_211)] {
        let text = serde_json::to_string(&breaker).unwrap();
        let read: Breaker = serde_json::from_str(&text).unwrap();
        assert_eq!(read.untold, breaker.untold);
        assert_eq!(serde_json::to_string(&read).unwrap(), text);
    }
    let agent = "payment".parse().unwrap();
    let event = serde_json::to_value(opened.untold[0].event(&agent)).unwrap();
    assert_eq!(event["metadata"]["event_id"], "payment/breaker_opened/1795201200123");
    assert_eq!(event["data"], serde_json::json!({ "agent": "payment", "reason": "HTTP 503" }));
}

// Exploration: an instance decides on what it knows, saves on the condition that it knew the newest, and
// only then calls. Every interleaving of that, with deaths, outages and the time that passes.

/// One instance: it knows the breaker as it was at some revision, and may have a call under way.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Instance {
    knows: (u64, Breaker),
    /// What it is about to save, and whether that makes its next call the probe.
    decided: Option<(Breaker, Option<Permit>)>,
    /// What its call under way is made as.
    calling: Option<Permit>,
    in_a_row: u32,
    probes: u32,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct World {
    now: i64,
    healthy: bool,
    stored: (u64, Breaker),
    instances: Vec<Instance>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Move {
    Reads,
    Asks,
    Saves,
    Hears,
    Dies,
}

const MOVES: [Move; 5] = [Move::Reads, Move::Asks, Move::Saves, Move::Hears, Move::Dies];

const EXPLORED: Settings = Settings {
    failures: NonZeroU32::MIN,
    open_for: Duration::from_secs(10),
    probe_within: Duration::from_secs(20),
};

impl Instance {
    fn ask(&mut self, nth: usize, now: i64) {
        let call = format!("{nth}/{}", self.probes);
        let asker = Asker { call: &call, now: at(now), clock_skew: Duration::ZERO };
        match self.knows.1.ask(asker, &EXPLORED) {
            Asked::Call => self.calling = Some(Permit::Call),
            Asked::Probe(next, permit) => {
                self.probes += 1;
                self.decided = Some((next, Some(permit)));
            }
            Asked::Wait(_) => self.in_a_row = 0,
        }
    }

    fn hear(&mut self, permit: Permit, heard: &Heard, now: i64) {
        let next = self.knows.1.after(&permit, heard, self.in_a_row, at(now), &EXPLORED);
        // What is told when is another story, and would keep two worlds alike apart.
        self.decided = next.map(|next| (Breaker { untold: Vec::new(), ..next }, None));
    }
}

impl World {
    fn new(instances: usize) -> Self {
        let knows = (0, Breaker::default());
        let instance =
            Instance { knows: knows.clone(), decided: None, calling: None, in_a_row: 0, probes: 0 };
        Self { now: 0, healthy: false, stored: knows, instances: vec![instance; instances] }
    }

    /// Ten seconds pass: for so long the breaker opens at first, and twice that is a probe's time.
    fn later(&self) -> Self {
        Self { now: self.now + 10, ..self.clone() }
    }

    fn step(&self, nth: usize, which: Move) -> Option<Self> {
        let mut world = self.clone();
        let me = &mut world.instances[nth];
        match which {
            Move::Reads if me.decided.is_none() && me.knows != self.stored => {
                me.knows = self.stored.clone();
            }
            Move::Asks if me.decided.is_none() && me.calling.is_none() => me.ask(nth, self.now),
            Move::Saves => {
                let (next, permit) = me.decided.take()?;
                if self.stored.0 == me.knows.0 {
                    me.knows = (me.knows.0 + 1, next);
                    me.calling = permit;
                    world.stored = me.knows.clone();
                } else {
                    me.knows = self.stored.clone();
                }
            }
            Move::Hears => {
                let permit = me.calling.take()?;
                let heard = if self.healthy { Heard::Alive } else { down() };
                me.in_a_row = u32::from(!self.healthy);
                me.hear(permit, &heard, self.now);
            }
            Move::Dies if me.decided.is_some() || me.calling.is_some() => {
                (me.decided, me.calling) = (None, None);
            }
            Move::Reads | Move::Asks | Move::Dies => return None,
        }
        Some(world)
    }

    fn next(&self) -> Vec<Self> {
        let moves = (0..self.instances.len())
            .flat_map(|nth| MOVES.into_iter().filter_map(move |which| self.step(nth, which)));
        let healed = (!self.healthy).then(|| Self { healthy: true, ..self.clone() });
        moves.chain([self.later()]).chain(healed).collect()
    }

    /// Probes under way that have time left.
    fn live_probes(&self) -> usize {
        let calls = self.instances.iter().filter_map(|instance| instance.calling.as_ref());
        let is_live = |permit: &&Permit| match permit {
            Permit::Call => false,
            Permit::Probe { until, .. } => *until > at(self.now),
        };
        calls.filter(is_live).count()
    }

    /// How many seconds the breaker needs to close once the service answers, with no instance left
    /// but `nth`, and that one started anew.
    fn closes_after(&self, nth: usize) -> Option<i64> {
        let mut world = Self { healthy: true, ..self.clone() };
        let probes = world.instances[nth].probes;
        world.instances[nth] = Instance { probes, ..Self::new(1).instances.remove(0) };
        while world.stored.1.state != State::Closed {
            if world.now > self.now + 400 {
                return None;
            }
            for which in [Move::Reads, Move::Asks, Move::Saves, Move::Hears, Move::Saves] {
                world = world.step(nth, which).unwrap_or(world);
            }
            world = world.later();
        }
        Some(world.now - self.now)
    }
}

/// Walks every world that `depth` moves lead to; returns how many there are, and of each state how
/// many.
fn explore(instances: usize, depth: usize) -> (usize, [usize; 3]) {
    let mut seen = HashSet::new();
    let mut reached = [0; 3];
    let mut layer = vec![World::new(instances)];
    for _ in 0..=depth {
        let mut after = Vec::new();
        for world in layer {
            if !seen.insert(world.clone()) {
                continue;
            }
            assert!(world.live_probes() <= 1, "two probes at {} s", world.now);
            for nth in 0..instances {
                assert!(world.closes_after(nth).is_some(), "stuck: {:?}", world.stored);
            }
            let state = |world: &World| match &world.stored.1.state {
                State::Closed => 0,
                State::Open { .. } => 1,
                State::HalfOpen { .. } => 2,
            };
            reached[state(&world)] += 1;
            for next in world.next() {
                let (from, to) = (state(&world), state(&next));
                let turned = world.stored != next.stored;
                let legal = matches!((from, to), (0, 1) | (1, 2) | (2, 0) | (2, 1) | (2, 2));
                assert!(!turned || legal, "{:?} became {:?}", world.stored, next.stored);
                after.push(next);
            }
        }
        layer = after;
    }
    (seen.len(), reached)
}

#[test]
fn however_two_instances_interleave_one_probes_and_it_always_closes_again() {
    let (worlds, reached) = explore(2, 11);
    println!("{worlds} worlds; closed, open, half open: {reached:?}");
    assert!(reached.iter().all(|count| *count > 500), "{reached:?}");
}

#[test]
fn so_it_is_with_three() {
    let (worlds, reached) = explore(3, 9);
    println!("{worlds} worlds; closed, open, half open: {reached:?}");
    assert!(reached.iter().all(|count| *count > 500), "{reached:?}");
}
