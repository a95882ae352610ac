//! The deployment in time: a fluid of messages in steps of 10 ms, every limit applied to every step.
//!
//! ```text
//! load ──► line ──► queue ──► in hand ──► line of the next hop ──► … ──► done
//!       delivery    first     leaves at its invocation's pace
//!                   come      ▲
//!                             └ as much as pollers, instances, the account and the tables let through
//! ```
//!
//! What is let through is the least of all limits; what has to wait is put down to the one that was
//! least. A table that throttles makes messages wait in their queue here; on AWS they wait in the
//! function, which tries again, and comes back later if that does not help.

use std::collections::BTreeMap;

use super::{
    bounds::Bound,
    model::{Hop, Model, Stage, To},
    queue::{Fifo, Pool, Portion},
    settings::Settings,
    supply::{Pollers, TABLES, Table},
};
use crate::cost::{Asked, Role};

/// A step, in seconds.
const TICK_S: f64 = 0.01;

/// How long the queues are watched after the last submission, in seconds, unless all is done before.
pub(super) const WATCHED_S: f64 = 4.0 * 3600.0;

/// What comes to a queue within so many seconds is taken as one...
const GRAIN_S: f64 = 0.1;

/// ...and on the way to it, within such a share of the time that takes.
const LINE_GRAIN: f64 = 0.01;

/// A queue whose first message is older than this is behind, in seconds.
pub(super) const BEHIND_S: f64 = 1.0;

/// What became of a load.
#[derive(Debug, Clone, Default)]
pub(super) struct Ran {
    pub(super) submitted: f64,
    pub(super) done: f64,
    /// Tasks that were not done when the watch ended.
    pub(super) left: f64,
    /// When the last task was done, in seconds; absent if it was not.
    pub(super) done_at_s: Option<f64>,
    pub(super) stages: Vec<StageRan>,
    /// Tasks by how long they took, in hundredths of a second.
    pub(super) took: BTreeMap<u64, f64>,
    /// Seconds that tasks spent, all together.
    pub(super) task_s: f64,
    /// What tasks waited for, in seconds, all together.
    pub(super) held: BTreeMap<Bound, f64>,
    pub(super) answers: f64,
    /// Answers that came after their step's complete-by.
    pub(super) late: f64,
    pub(super) first_late_s: Option<f64>,
}

/// What became of a stage.
#[derive(Debug, Clone, Default)]
pub(super) struct StageRan {
    /// The most messages that waited, and when.
    pub(super) longest: f64,
    pub(super) longest_at_s: f64,
    /// The longest that a message waited, in seconds.
    pub(super) oldest_s: f64,
    /// From when until when it was behind.
    pub(super) behind: Option<(f64, f64)>,
    /// What held its messages up, in seconds of messages.
    pub(super) held: BTreeMap<Bound, f64>,
    /// Seconds of invocations.
    pub(super) busy_s: f64,
}

/// A queue, and what its function has in hand.
struct Queue<'m> {
    stage: &'m Stage,
    waiting: Fifo,
    in_hand: Pool,
    pollers: f64,
    instances: f64,
    new_instances: f64,
    ran: StageRan,
}

struct Engine<'m> {
    settings: &'m Settings,
    model: &'m Model,
    now_s: f64,
    /// Messages on their way to a queue, by the ways of all hops.
    lines: Vec<Vec<Fifo>>,
    queues: Vec<Queue<'m>>,
    tables: Vec<(Asked, Table, (f64, Bound))>,
    /// What is left of the account's invocations, and of the bus's requests, at this moment.
    invocations: f64,
    requests: f64,
    ran: Ran,
}

/// Lets the load come, and watches until all is done, or for so many seconds after the last submission.
pub(super) fn run(settings: &Settings, model: &Model, watched_s: f64) -> Ran {
    let mut engine = Engine::new(settings, model);
    let (total, lasts_s) = (settings.load.total(), settings.load.lasts_s);
    // Half a task, or what a float of so many cannot tell from none.
    let nothing = (total * 1e-6).max(0.5).min(total / 2.0);
    let mut ticks = 0_u64;
    while engine.now_s < lasts_s + watched_s {
        ticks += 1;
        engine.tick(ticks as f64 * TICK_S);
        if engine.now_s >= lasts_s && engine.ran.submitted - engine.ran.done <= nothing {
            engine.ran.done_at_s = Some(engine.now_s);
            break;
        }
    }
    engine.end()
}

impl<'m> Engine<'m> {
    fn new(settings: &'m Settings, model: &'m Model) -> Self {
        let pollers = Pollers::of(settings).start;
        let at_once = settings.limits.instances_at_once.value;
        let queue = |stage: &'m Stage| Queue {
            stage,
            waiting: Fifo::new(GRAIN_S),
            in_hand: Pool::default(),
            pollers,
            instances: 0.0,
            new_instances: at_once,
            ran: StageRan::default(),
        };
        let table = |asked: Asked| {
            let table = Table::of(settings, asked);
            let rate = table.rate(asked);
            (asked, table, rate)
        };
        Self {
            settings,
            model,
            now_s: 0.0,
            lines: model.hops.iter().map(lines).collect(),
            queues: model.stages.iter().map(queue).collect(),
            tables: TABLES.map(table).into(),
            invocations: 0.0,
            requests: 0.0,
            ran: Ran::default(),
        }
    }

    fn tick(&mut self, now_s: f64) {
        let load = &self.settings.load;
        let came = load.by(now_s) - load.by(self.now_s);
        self.now_s = now_s;
        self.refill();
        self.ran.submitted += came;
        let portion = Portion { messages: came, submitted_s: now_s, asked_s: now_s };
        self.send(0, portion, None);
        self.finish();
        self.deliver();
        self.start();
        self.ran.task_s += (self.ran.submitted - self.ran.done) * TICK_S;
    }

    /// What a second allows becomes available by and by.
    fn refill(&mut self) {
        let limits = &self.settings.limits;
        let account = limits.account_concurrency.value;
        let invocations = account * limits.invocations_per_concurrency.value;
        self.invocations = (self.invocations + invocations * TICK_S).min(invocations);
        let requests = limits.events_per_second.value;
        self.requests = (self.requests + requests * TICK_S).min(requests);
        for (asked, table, rate) in &mut self.tables {
            table.pass(self.now_s, TICK_S, rate.0);
            if table.grow(self.now_s) {
                *rate = table.rate(*asked);
            }
        }
        for queue in &mut self.queues {
            let more = limits.instances_per_second.value * TICK_S;
            queue.new_instances = (queue.new_instances + more).min(limits.instances_at_once.value);
        }
    }

    /// Messages of `hop` set out. `portion` is what brought them about: `from` is its hop and who handled
    /// it, or it is tasks, which come from outside.
    fn send(&mut self, hop: usize, portion: Portion, from: Option<(&Hop, &Role)>) {
        let Some(next) = self.model.hops.get(hop) else { return };
        let Some(lines) = self.lines.get_mut(hop) else { return };
        for (to, line) in next.to.iter().zip(lines) {
            let each = from.map_or(to.messages, |(from, _)| to.messages / from.messages);
            let mut portion = Portion { messages: portion.messages * each, ..portion };
            if from.is_some_and(|(_, role)| !matches!(role, Role::Agent(_))) {
                portion.asked_s = self.now_s;
            }
            if portion.messages > 0.0 {
                line.put(self.now_s, hop, portion);
            }
        }
    }

    /// Functions are done with what they have in hand, at the pace of their invocations.
    fn finish(&mut self) {
        let mut finished = Vec::new();
        for queue in &mut self.queues {
            let share = TICK_S / queue.stage.invocation_s.max(TICK_S);
            finished.push((&queue.stage.role, queue.in_hand.split(share)));
        }
        for (role, pool) in finished {
            for (at, portion) in pool.portions() {
                let Some(hop) = self.model.hops.get(at) else { continue };
                self.answer(hop, role, portion);
                if at + 1 < self.model.hops.len() {
                    self.send(at + 1, portion, Some((hop, role)));
                } else {
                    self.ran.done += portion.messages / hop.messages;
                    let took = (self.now_s - portion.submitted_s) * 100.0;
                    *self.ran.took.entry(took.round().max(0.0) as u64).or_default() +=
                        portion.messages / hop.messages;
                }
            }
        }
    }

    /// An agent's answer counts only until its step's complete-by.
    fn answer(&mut self, hop: &Hop, role: &Role, portion: Portion) {
        let (Some(within_s), Role::Scheduler) = (hop.within_s, role) else { return };
        self.ran.answers += portion.messages;
        if self.now_s - portion.asked_s > within_s {
            self.ran.late += portion.messages;
            self.ran.first_late_s.get_or_insert(self.now_s);
        }
    }

    fn deliver(&mut self) {
        for (hop, lines) in self.model.hops.iter().zip(&mut self.lines) {
            for (to, line) in hop.to.iter().zip(lines) {
                let To { stage, delay_s, .. } = *to;
                let Some(queue) = self.queues.get_mut(stage) else { continue };
                while let Some(pool) = line.take_since(self.now_s - delay_s) {
                    for (hop, portion) in pool.portions() {
                        queue.waiting.put(self.now_s, hop, portion);
                    }
                }
            }
        }
    }

    /// Functions take as many messages as every limit allows.
    fn start(&mut self) {
        let batch = self.model.batch;
        let in_flight = self.settings.limits.queue_in_flight.value;
        let queues = self.queues.iter().map(|queue| queue.wants(batch, in_flight));
        let mut wants: Vec<Want> = queues.collect();
        let account = self.settings.limits.account_concurrency.value;
        let in_hand: f64 = self.queues.iter().map(|queue| queue.in_hand.messages).sum();
        let stages = &self.model.stages;
        let room = account - in_hand / batch;
        limit(&mut wants, stages, |_| 1.0 / batch, room, &Bound::Account);
        limit(&mut wants, stages, |_| 1.0 / batch, self.invocations, &Bound::Invocations);
        self.invocations -= wants.iter().map(|want| want.messages).sum::<f64>() / batch;
        for (asked, table, (_, bound)) in &mut self.tables {
            let taken = limit(&mut wants, stages, |stage| stage.ask(*asked), table.left(), bound);
            table.take(taken);
        }
        let in_one = self.settings.limits.events_per_request.value;
        let requests = |stage: &Stage| stage.ask(Asked::Events) / in_one;
        self.requests -= limit(&mut wants, stages, requests, self.requests, &Bound::Bus);
        let pollers = Pollers::of(self.settings);
        for (queue, want) in self.queues.iter_mut().zip(wants) {
            queue.start(want, self.now_s, batch, pollers);
        }
    }

    fn end(mut self) -> Ran {
        let hops = &self.model.hops;
        let share = |(at, portion): (usize, Portion)| {
            hops.get(at).map_or(0.0, |hop| portion.messages / hop.messages)
        };
        let lines = self.lines.iter().flatten();
        let waiting = self.queues.iter().map(|queue| &queue.waiting);
        let in_hand = self.queues.iter().map(|queue| &queue.in_hand);
        let pools = lines.chain(waiting).flat_map(Fifo::pools).chain(in_hand);
        self.ran.left = pools.flat_map(Pool::portions).map(share).sum();
        for queue in self.queues {
            for (bound, held) in &queue.ran.held {
                let tasks = held / queue.stage.messages;
                *self.ran.held.entry(bound.clone()).or_default() += tasks;
            }
            self.ran.stages.push(queue.ran);
        }
        self.ran
    }
}

fn lines(hop: &Hop) -> Vec<Fifo> {
    hop.to.iter().map(|to| Fifo::new(to.delay_s * LINE_GRAIN)).collect()
}

/// How many messages a function takes now, and what keeps it from taking more.
#[derive(Debug, Clone)]
struct Want {
    messages: f64,
    bound: Bound,
}

/// Lets no more through than there is `left` of something of which each message asks; answers how much
/// of it is taken.
fn limit(
    wants: &mut [Want],
    stages: &[Stage],
    ask: impl Fn(&Stage) -> f64,
    left: f64,
    bound: &Bound,
) -> f64 {
    let asked: f64 = wants.iter().zip(stages).map(|(want, stage)| want.messages * ask(stage)).sum();
    if asked <= left.max(0.0) {
        return asked;
    }
    let share = left.max(0.0) / asked;
    for (want, stage) in wants.iter_mut().zip(stages) {
        if ask(stage) > 0.0 && want.messages > 0.0 {
            *want = Want { messages: want.messages * share, bound: bound.clone() };
        }
    }
    asked * share
}

impl Queue<'_> {
    fn wants(&self, batch: f64, in_flight: f64) -> Want {
        let role = || self.stage.role.clone();
        let rooms = [
            (self.stage.at_once * batch, Bound::AtOnce(role())),
            (self.pollers * batch, Bound::Pollers(role())),
            ((self.instances + self.new_instances) * batch, Bound::Instances(role())),
            (in_flight, Bound::InFlight(role())),
        ];
        let least =
            rooms.into_iter().reduce(|one, other| if other.0 < one.0 { other } else { one });
        let (room, bound) = least.unwrap_or((0.0, Bound::AtOnce(role())));
        // What floats leave over of sums may be less than nothing.
        let messages = (room - self.in_hand.messages).min(self.waiting.messages).max(0.0);
        Want { messages, bound }
    }

    fn start(&mut self, want: Want, now_s: f64, batch: f64, pollers: Pollers) {
        self.waiting.take(want.messages, &mut self.in_hand);
        let at_once = self.in_hand.messages / batch;
        let new = (at_once - self.instances).max(0.0);
        self.instances += new;
        self.new_instances -= new;
        self.ran.busy_s += at_once * TICK_S;
        // A message that comes in this very step is no backlog.
        if self.waiting.messages > 1.0 {
            self.pollers = (self.pollers + pollers.more_per_s * TICK_S).min(pollers.max);
            *self.ran.held.entry(want.bound).or_default() += self.waiting.messages * TICK_S;
        }
        self.ran.note(&self.waiting, now_s);
    }
}

impl StageRan {
    fn note(&mut self, waiting: &Fifo, now_s: f64) {
        if waiting.messages > self.longest {
            (self.longest, self.longest_at_s) = (waiting.messages, now_s);
        }
        let oldest_s = waiting.oldest_s(now_s);
        self.oldest_s = self.oldest_s.max(oldest_s);
        if oldest_s > BEHIND_S {
            let from = self.behind.map_or(now_s, |(from, _)| from);
            self.behind = Some((from, now_s));
        }
    }
}
