//! Simulation of a load over time: messages are a fluid that advances in steps of 10 ms, with every limit applied in
//! every step.
//!
//! ```text
//! load ──► in transit ──► queue ──► in progress ──► in transit to the next hop ──► … ──► done
//!          delivery       FIFO      leaves at the pace of its invocations
//!                         ▲
//!                         └ starts as far as pollers, instances, the account and the tables allow
//! ```
//!
//! The tightest limit decides how many messages start; the waiting is attributed to that limit. If a table throttles,
//! messages wait in their queue here. On AWS they wait in the function, which retries, and are redelivered if that does
//! not help.

use std::collections::BTreeMap;

use super::{
    fluid::{Portion, PortionPool, PortionQueue},
    limit_kind::LimitKind,
    model::{HopRoutes, QueueModel, Route, Stage},
    scaling_limits::{PollerScaling, TABLES, TableThroughput},
    settings::ScaleSettings,
};
use crate::cost::{FunctionRole, Resource};

/// The length of a step, in seconds.
const TICK_S: f64 = 0.01;

/// How long the simulation continues after the last submission, in seconds, unless all tasks are done before.
pub(super) const SIMULATED_AFTER_S: f64 = 4.0 * 3600.0;

/// Messages that arrive at a queue within this many seconds are merged.
const QUEUE_MERGE_S: f64 = 0.1;

/// Messages in transit are merged within this share of the delivery time.
const TRANSIT_MERGE_SHARE: f64 = 0.01;

/// A queue whose oldest message is older than this has a backlog, in seconds.
pub(super) const BACKLOG_S: f64 = 1.0;

/// The result of a simulated load.
#[derive(Debug, Clone, Default)]
pub(super) struct LoadResult {
    pub(super) submitted: f64,
    pub(super) done: f64,
    /// Tasks that were not done at the end of the simulation.
    pub(super) left: f64,
    /// When the last task was done, in seconds; absent if some were not.
    pub(super) done_at_s: Option<f64>,
    pub(super) stages: Vec<StageResult>,
    /// The number of tasks by duration in hundredths of a second.
    pub(super) took: BTreeMap<u64, f64>,
    /// The sum of the durations of all tasks, in seconds.
    pub(super) task_s: f64,
    /// The sum of the waiting time of all tasks in seconds, by limit.
    pub(super) waited: BTreeMap<LimitKind, f64>,
    pub(super) replies: f64,
    /// Replies that arrived after the complete-by of their step.
    pub(super) late: f64,
    pub(super) first_late_s: Option<f64>,
}

/// The result of a stage.
#[derive(Debug, Clone, Default)]
pub(super) struct StageResult {
    /// The length of the longest queue, and when it occurred.
    pub(super) longest: f64,
    pub(super) longest_at_s: f64,
    /// The longest waiting time of a message, in seconds.
    pub(super) oldest_s: f64,
    /// From when until when the queue had a backlog.
    pub(super) behind: Option<(f64, f64)>,
    /// The waiting time of its messages in seconds, by limit.
    pub(super) waited: BTreeMap<LimitKind, f64>,
    /// The sum of the durations of its invocations, in seconds.
    pub(super) busy_s: f64,
}

/// A queue, and the messages that its function handles.
struct StageQueue<'m> {
    stage: &'m Stage,
    waiting: PortionQueue,
    in_progress: PortionPool,
    pollers: f64,
    instances: f64,
    new_instances: f64,
    result: StageResult,
}

struct LoadSimulation<'m> {
    settings: &'m ScaleSettings,
    model: &'m QueueModel,
    now_s: f64,
    /// Messages in transit, by hop and route.
    in_transit: Vec<Vec<PortionQueue>>,
    queues: Vec<StageQueue<'m>>,
    tables: Vec<(Resource, TableThroughput, (f64, LimitKind))>,
    /// The remaining invocations of the account, and requests of the event bus, at this moment.
    invocations: f64,
    requests: f64,
    result: LoadResult,
}

/// Simulates the load until all tasks are done, but at most `simulated_after_s` seconds after the last submission.
pub(super) fn run(
    settings: &ScaleSettings,
    model: &QueueModel,
    simulated_after_s: f64,
) -> LoadResult {
    let mut simulation = LoadSimulation::new(settings, model);
    let (total, lasts_s) = (settings.load.total(), settings.load.lasts_s);
    // Half a task, or the rounding error of a large sum.
    let tolerance = (total * 1e-6).max(0.5).min(total / 2.0);
    let mut ticks = 0_u64;
    while simulation.now_s < lasts_s + simulated_after_s {
        ticks += 1;
        simulation.tick(ticks as f64 * TICK_S);
        if simulation.now_s >= lasts_s
            && simulation.result.submitted - simulation.result.done <= tolerance
        {
            simulation.result.done_at_s = Some(simulation.now_s);
            break;
        }
    }
    simulation.end()
}

impl<'m> LoadSimulation<'m> {
    fn new(settings: &'m ScaleSettings, model: &'m QueueModel) -> Self {
        let pollers = PollerScaling::of(settings).start;
        let at_once = settings.limits.instances_at_once.value;
        let queue = |stage: &'m Stage| StageQueue {
            stage,
            waiting: PortionQueue::new(QUEUE_MERGE_S),
            in_progress: PortionPool::default(),
            pollers,
            instances: 0.0,
            new_instances: at_once,
            result: StageResult::default(),
        };
        let table = |resource: Resource| {
            let table = TableThroughput::of(settings, resource);
            let rate = table.rate(resource);
            (resource, table, rate)
        };
        Self {
            settings,
            model,
            now_s: 0.0,
            in_transit: model.hops.iter().map(in_transit).collect(),
            queues: model.stages.iter().map(queue).collect(),
            tables: TABLES.map(table).into(),
            invocations: 0.0,
            requests: 0.0,
            result: LoadResult::default(),
        }
    }

    fn tick(&mut self, now_s: f64) {
        let load = &self.settings.load;
        let arrived = load.by(now_s) - load.by(self.now_s);
        self.now_s = now_s;
        self.refill();
        self.result.submitted += arrived;
        let portion = Portion { messages: arrived, submitted_s: now_s, requested_s: now_s };
        self.send(0, portion, None);
        self.finish();
        self.deliver();
        self.start();
        self.result.task_s += (self.result.submitted - self.result.done) * TICK_S;
    }

    /// Refills the limits per second, in proportion to the step.
    fn refill(&mut self) {
        let limits = &self.settings.limits;
        let account = limits.account_concurrency.value;
        let invocations = account * limits.invocations_per_concurrency.value;
        self.invocations = (self.invocations + invocations * TICK_S).min(invocations);
        let requests = limits.events_per_second.value;
        self.requests = (self.requests + requests * TICK_S).min(requests);
        for (resource, table, rate) in &mut self.tables {
            table.pass(self.now_s, TICK_S, rate.0);
            if table.grow(self.now_s) {
                *rate = table.rate(*resource);
            }
        }
        for queue in &mut self.queues {
            let more = limits.instances_per_second.value * TICK_S;
            queue.new_instances = (queue.new_instances + more).min(limits.instances_at_once.value);
        }
    }

    /// Sends the messages of `hop`. `portion` caused them: `from` is its hop and the function that handled it; without
    /// `from`, the portion consists of submitted tasks.
    fn send(&mut self, hop: usize, portion: Portion, from: Option<(&HopRoutes, &FunctionRole)>) {
        let Some(next) = self.model.hops.get(hop) else { return };
        let Some(in_transit) = self.in_transit.get_mut(hop) else { return };
        for (route, transit) in next.routes.iter().zip(in_transit) {
            let each = from.map_or(route.messages, |(from, _)| route.messages / from.messages);
            let mut portion = Portion { messages: portion.messages * each, ..portion };
            if from.is_some_and(|(_, role)| !matches!(role, FunctionRole::Agent(_))) {
                portion.requested_s = self.now_s;
            }
            if portion.messages > 0.0 {
                transit.put(self.now_s, hop, portion);
            }
        }
    }

    /// Finishes messages in progress, at the pace of the invocations.
    fn finish(&mut self) {
        let mut finished = Vec::new();
        for queue in &mut self.queues {
            let share = TICK_S / queue.stage.invocation_s.max(TICK_S);
            finished.push((&queue.stage.role, queue.in_progress.split(share)));
        }
        for (role, pool) in finished {
            for (at, portion) in pool.portions() {
                let Some(hop) = self.model.hops.get(at) else { continue };
                self.count_late_replies(hop, role, portion);
                if at + 1 < self.model.hops.len() {
                    self.send(at + 1, portion, Some((hop, role)));
                } else {
                    self.result.done += portion.messages / hop.messages;
                    let took = (self.now_s - portion.submitted_s) * 100.0;
                    *self.result.took.entry(took.round().max(0.0) as u64).or_default() +=
                        portion.messages / hop.messages;
                }
            }
        }
    }

    /// Counts replies of agents that arrive after the complete-by of their step.
    fn count_late_replies(&mut self, hop: &HopRoutes, role: &FunctionRole, portion: Portion) {
        let (Some(within_s), FunctionRole::Scheduler) = (hop.within_s, role) else { return };
        self.result.replies += portion.messages;
        if self.now_s - portion.requested_s > within_s {
            self.result.late += portion.messages;
            self.result.first_late_s.get_or_insert(self.now_s);
        }
    }

    fn deliver(&mut self) {
        for (hop, in_transit) in self.model.hops.iter().zip(&mut self.in_transit) {
            for (route, transit) in hop.routes.iter().zip(in_transit) {
                let Route { stage, delay_s, .. } = *route;
                let Some(queue) = self.queues.get_mut(stage) else { continue };
                while let Some(pool) = transit.take_since(self.now_s - delay_s) {
                    for (hop, portion) in pool.portions() {
                        queue.waiting.put(self.now_s, hop, portion);
                    }
                }
            }
        }
    }

    /// Starts as many messages as all limits allow.
    fn start(&mut self) {
        let batch = self.model.batch;
        let in_flight = self.settings.limits.queue_in_flight.value;
        let queues = self.queues.iter().map(|queue| queue.startable(batch, in_flight));
        let mut starts: Vec<StartableMessages> = queues.collect();
        let account = self.settings.limits.account_concurrency.value;
        let in_progress: f64 = self.queues.iter().map(|queue| queue.in_progress.messages).sum();
        let stages = &self.model.stages;
        let room = account - in_progress / batch;
        limit(&mut starts, stages, |_| 1.0 / batch, room, &LimitKind::Account);
        limit(&mut starts, stages, |_| 1.0 / batch, self.invocations, &LimitKind::Invocations);
        self.invocations -= starts.iter().map(|start| start.messages).sum::<f64>() / batch;
        for (resource, table, (_, bound)) in &mut self.tables {
            let taken =
                limit(&mut starts, stages, |stage| stage.units_of(*resource), table.left(), bound);
            table.take(taken);
        }
        let events_per_request = self.settings.limits.events_per_request.value;
        let requests = |stage: &Stage| stage.units_of(Resource::Events) / events_per_request;
        self.requests -= limit(&mut starts, stages, requests, self.requests, &LimitKind::Bus);
        let pollers = PollerScaling::of(self.settings);
        for (queue, start) in self.queues.iter_mut().zip(starts) {
            queue.start(start, self.now_s, batch, pollers);
        }
    }

    fn end(mut self) -> LoadResult {
        let hops = &self.model.hops;
        let share = |(at, portion): (usize, Portion)| {
            hops.get(at).map_or(0.0, |hop| portion.messages / hop.messages)
        };
        let in_transit = self.in_transit.iter().flatten();
        let waiting = self.queues.iter().map(|queue| &queue.waiting);
        let in_progress = self.queues.iter().map(|queue| &queue.in_progress);
        let pools = in_transit.chain(waiting).flat_map(PortionQueue::pools).chain(in_progress);
        self.result.left = pools.flat_map(PortionPool::portions).map(share).sum();
        for queue in self.queues {
            for (bound, waited) in &queue.result.waited {
                let tasks = waited / queue.stage.messages;
                *self.result.waited.entry(bound.clone()).or_default() += tasks;
            }
            self.result.stages.push(queue.result);
        }
        self.result
    }
}

fn in_transit(hop: &HopRoutes) -> Vec<PortionQueue> {
    hop.routes.iter().map(|route| PortionQueue::new(route.delay_s * TRANSIT_MERGE_SHARE)).collect()
}

/// How many messages a function starts now, and the limit that prevents more.
#[derive(Debug, Clone)]
struct StartableMessages {
    messages: f64,
    bound: LimitKind,
}

/// Reduces the started messages so that they use at most `left` units of a resource. `units_of` gives the units per
/// message of a stage. Returns the used units.
fn limit(
    starts: &mut [StartableMessages],
    stages: &[Stage],
    units_of: impl Fn(&Stage) -> f64,
    left: f64,
    bound: &LimitKind,
) -> f64 {
    let needed: f64 =
        starts.iter().zip(stages).map(|(start, stage)| start.messages * units_of(stage)).sum();
    if needed <= left.max(0.0) {
        return needed;
    }
    let share = left.max(0.0) / needed;
    for (start, stage) in starts.iter_mut().zip(stages) {
        if units_of(stage) > 0.0 && start.messages > 0.0 {
            *start = StartableMessages { messages: start.messages * share, bound: bound.clone() };
        }
    }
    needed * share
}

impl StageQueue<'_> {
    fn startable(&self, batch: f64, in_flight: f64) -> StartableMessages {
        let role = || self.stage.role.clone();
        let rooms = [
            (self.stage.concurrency * batch, LimitKind::Concurrency(role())),
            (self.pollers * batch, LimitKind::Pollers(role())),
            ((self.instances + self.new_instances) * batch, LimitKind::Instances(role())),
            (in_flight, LimitKind::InFlight(role())),
        ];
        let least =
            rooms.into_iter().reduce(|one, other| if other.0 < one.0 { other } else { one });
        let (room, bound) = least.unwrap_or((0.0, LimitKind::Concurrency(role())));
        // Rounding errors may make the difference negative.
        let messages = (room - self.in_progress.messages).min(self.waiting.messages).max(0.0);
        StartableMessages { messages, bound }
    }

    fn start(&mut self, start: StartableMessages, now_s: f64, batch: f64, pollers: PollerScaling) {
        self.waiting.take(start.messages, &mut self.in_progress);
        let at_once = self.in_progress.messages / batch;
        let new = (at_once - self.instances).max(0.0);
        self.instances += new;
        self.new_instances -= new;
        self.result.busy_s += at_once * TICK_S;
        // A single message that arrives in this step is no backlog.
        if self.waiting.messages > 1.0 {
            self.pollers = (self.pollers + pollers.more_per_s * TICK_S).min(pollers.max);
            *self.result.waited.entry(start.bound).or_default() += self.waiting.messages * TICK_S;
        }
        self.result.note(&self.waiting, now_s);
    }
}

impl StageResult {
    fn note(&mut self, waiting: &PortionQueue, now_s: f64) {
        if waiting.messages > self.longest {
            (self.longest, self.longest_at_s) = (waiting.messages, now_s);
        }
        let oldest_s = waiting.oldest_s(now_s);
        self.oldest_s = self.oldest_s.max(oldest_s);
        if oldest_s > BACKLOG_S {
            let from = self.behind.map_or(now_s, |(from, _)| from);
            self.behind = Some((from, now_s));
        }
    }
}
