//! Simulation of a load over time: a fluid-flow model of the messages, in ticks of 10 ms. All limits are applied in each
//! tick.
//!
//! ```text
//! load ──► in transit ──► queue ──► in progress ──► in transit to the next hop ──► … ──► done
//!          delivery       FIFO      finishes exponentially, with the mean invocation time
//!                         ▲
//!                         └ starts as far as all limits allow: concurrency, pollers, instances, messages in
//!                           flight, the account, the tables and the event bus
//! ```
//!
//! The tightest limit decides how many messages start; all waiting in this tick is counted for that limit. If a table
//! throttles, messages wait in their queue here. On AWS they wait in the function, which retries, and are redelivered if
//! that does not help.

use std::collections::BTreeMap;

use super::{
    fluid::{Portion, PortionPool, PortionQueue},
    limit_kind::LimitKind,
    model::{HopRoutes, QueueModel, Route, Stage},
    scaling_limits::{PollerScaling, TABLES, TableThroughput},
    settings::ScaleSettings,
};
use crate::cost::{FunctionRole, Resource};

/// The length of a tick, in seconds.
const TICK_S: f64 = 0.01;

/// How long the simulation continues after the last submission, in seconds, unless all tasks are done before.
pub(super) const SIMULATED_AFTER_S: f64 = 4.0 * 3600.0;

/// Messages that arrive at a queue within this many seconds are merged.
const QUEUE_MERGE_S: f64 = 0.1;

/// Messages in transit are merged within this share of the delivery time.
const TRANSIT_MERGE_SHARE: f64 = 0.01;

/// The age of the oldest message, in seconds, from which a queue counts as backlogged.
pub(super) const BACKLOG_S: f64 = 1.0;

/// The result of a simulated load.
#[derive(Debug, Clone, Default)]
pub(super) struct LoadResult {
    pub(super) submitted: f64,
    pub(super) done: f64,
    /// Tasks that were not done at the end of the simulation.
    pub(super) unfinished: f64,
    /// When the last task was done, in seconds; absent if some were not.
    pub(super) done_at_s: Option<f64>,
    pub(super) stages: Vec<StageResult>,
    /// The number of tasks by duration in hundredths of a second.
    pub(super) durations_cs: BTreeMap<u64, f64>,
    /// The sum of the durations of all tasks, in seconds.
    pub(super) total_task_s: f64,
    /// The sum of the waiting time of all tasks in seconds, by limit.
    pub(super) waiting_s_by_limit: BTreeMap<LimitKind, f64>,
    /// Replies of agents that the scheduler has handled.
    pub(super) handled_replies: f64,
    /// Those that it handled after the deadline of their attempt.
    pub(super) late_replies: f64,
    /// When it handled the first of those, in seconds.
    pub(super) first_late_s: Option<f64>,
}

/// The result of a stage.
#[derive(Debug, Clone, Default)]
pub(super) struct StageResult {
    /// The largest length of the queue, and when it occurred.
    pub(super) max_length: f64,
    pub(super) max_length_at_s: f64,
    /// The longest waiting time of a message, in seconds.
    pub(super) max_age_s: f64,
    /// The first and the last moment with a backlog, in seconds. The queue may have had none in between.
    pub(super) backlog_s: Option<(f64, f64)>,
    /// The waiting time of its messages in seconds, by limit.
    pub(super) waiting_s_by_limit: BTreeMap<LimitKind, f64>,
    /// The sum of the durations of its invocations, in seconds.
    pub(super) invocation_s_total: f64,
}

/// A queue, and the messages that its function handles.
struct StageQueue<'m> {
    stage: &'m Stage,
    waiting: PortionQueue,
    in_progress: PortionPool,
    pollers: f64,
    instances: f64,
    /// The instances that may start at this moment.
    instance_start_tokens: f64,
    result: StageResult,
}

/// The throughput of a table, with the units per second and the limit that determines them.
struct SimulatedTable {
    resource: Resource,
    throughput: TableThroughput,
    rate: (f64, LimitKind),
}

struct LoadSimulation<'m> {
    settings: &'m ScaleSettings,
    model: &'m QueueModel,
    now_s: f64,
    /// Messages in transit, by hop and route.
    in_transit: Vec<Vec<PortionQueue>>,
    queues: Vec<StageQueue<'m>>,
    tables: Vec<SimulatedTable>,
    /// The invocations that the account may start at this moment.
    invocation_tokens: f64,
    /// The requests that the event bus accepts at this moment.
    event_request_tokens: f64,
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
    // A millionth of all tasks, at least half a task, at most half of all.
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
        let burst = settings.limits.instances_at_once.value;
        let queue = |stage: &'m Stage| StageQueue {
            stage,
            waiting: PortionQueue::new(QUEUE_MERGE_S),
            in_progress: PortionPool::default(),
            pollers,
            instances: 0.0,
            instance_start_tokens: burst,
            result: StageResult::default(),
        };
        let table = |resource: Resource| {
            let throughput = TableThroughput::of(settings, resource);
            let rate = throughput.rate(resource);
            SimulatedTable { resource, throughput, rate }
        };
        Self {
            settings,
            model,
            now_s: 0.0,
            in_transit: model.hops.iter().map(in_transit).collect(),
            queues: model.stages.iter().map(queue).collect(),
            tables: TABLES.map(table).into(),
            invocation_tokens: 0.0,
            event_request_tokens: 0.0,
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
        self.result.total_task_s += (self.result.submitted - self.result.done) * TICK_S;
    }

    /// Refills the token buckets of the limits per second, and grows the tables.
    fn refill(&mut self) {
        let limits = &self.settings.limits;
        let account = limits.account_concurrency.value;
        let invocations = account * limits.invocations_per_concurrency.value;
        self.invocation_tokens = (self.invocation_tokens + invocations * TICK_S).min(invocations);
        let requests = limits.events_per_second.value;
        self.event_request_tokens = (self.event_request_tokens + requests * TICK_S).min(requests);
        for SimulatedTable { resource, throughput, rate } in &mut self.tables {
            throughput.pass(self.now_s, TICK_S, rate.0);
            if throughput.grow(self.now_s) {
                *rate = throughput.rate(*resource);
            }
        }
        for queue in &mut self.queues {
            let more = limits.instances_per_second.value * TICK_S;
            queue.instance_start_tokens =
                (queue.instance_start_tokens + more).min(limits.instances_at_once.value);
        }
    }

    /// Sends the messages of `hop`. `portion` are the messages that caused them. `from` is their hop and the function that
    /// handled them; `None` for new submissions.
    fn send(&mut self, hop: usize, portion: Portion, from: Option<(&HopRoutes, &FunctionRole)>) {
        let Some(next) = self.model.hops.get(hop) else { return };
        let Some(in_transit) = self.in_transit.get_mut(hop) else { return };
        for (route, transit) in next.routes.iter().zip(in_transit) {
            let per_message =
                from.map_or(route.messages, |(from, _)| route.messages / from.messages);
            let mut portion = Portion { messages: portion.messages * per_message, ..portion };
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
            for (hop_index, portion) in pool.portions() {
                let Some(hop) = self.model.hops.get(hop_index) else { continue };
                self.count_replies(hop, role, portion);
                if hop_index + 1 < self.model.hops.len() {
                    self.send(hop_index + 1, portion, Some((hop, role)));
                } else {
                    self.result.done += portion.messages / hop.messages;
                    let duration_cs = (self.now_s - portion.submitted_s) * 100.0;
                    *self
                        .result
                        .durations_cs
                        .entry(duration_cs.round().max(0.0) as u64)
                        .or_default() += portion.messages / hop.messages;
                }
            }
        }
    }

    /// Counts the replies that the scheduler has handled, and those that it handled after the deadline of their attempt.
    fn count_replies(&mut self, hop: &HopRoutes, role: &FunctionRole, portion: Portion) {
        let (Some(within_s), FunctionRole::Scheduler) = (hop.within_s, role) else { return };
        self.result.handled_replies += portion.messages;
        if self.now_s - portion.requested_s > within_s {
            self.result.late_replies += portion.messages;
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
        let headroom = account - in_progress / batch;
        limit(&mut starts, stages, |_| 1.0 / batch, headroom, &LimitKind::Account);
        limit(
            &mut starts,
            stages,
            |_| 1.0 / batch,
            self.invocation_tokens,
            &LimitKind::Invocations,
        );
        self.invocation_tokens -= starts.iter().map(|start| start.messages).sum::<f64>() / batch;
        for SimulatedTable { resource, throughput, rate: (_, limit_kind) } in &mut self.tables {
            let left = throughput.left();
            let taken =
                limit(&mut starts, stages, |stage| stage.units_of(*resource), left, limit_kind);
            throughput.take(taken);
        }
        let events_per_request = self.settings.limits.events_per_request.value;
        let requests = |stage: &Stage| stage.units_of(Resource::Events) / events_per_request;
        self.event_request_tokens -=
            limit(&mut starts, stages, requests, self.event_request_tokens, &LimitKind::Bus);
        let pollers = PollerScaling::of(self.settings);
        for (queue, start) in self.queues.iter_mut().zip(starts) {
            queue.start(start, self.now_s, batch, pollers);
        }
    }

    fn end(mut self) -> LoadResult {
        let hops = &self.model.hops;
        let share = |(hop_index, portion): (usize, Portion)| {
            hops.get(hop_index).map_or(0.0, |hop| portion.messages / hop.messages)
        };
        let in_transit = self.in_transit.iter().flatten();
        let waiting = self.queues.iter().map(|queue| &queue.waiting);
        let in_progress = self.queues.iter().map(|queue| &queue.in_progress);
        let pools = in_transit.chain(waiting).flat_map(PortionQueue::pools).chain(in_progress);
        self.result.unfinished = pools.flat_map(PortionPool::portions).map(share).sum();
        for queue in self.queues {
            for (limited_by, waiting_s) in &queue.result.waiting_s_by_limit {
                let tasks = waiting_s / queue.stage.messages;
                *self.result.waiting_s_by_limit.entry(limited_by.clone()).or_default() += tasks;
            }
            self.result.stages.push(queue.result);
        }
        self.result
    }
}

fn in_transit(hop: &HopRoutes) -> Vec<PortionQueue> {
    hop.routes.iter().map(|route| PortionQueue::new(route.delay_s * TRANSIT_MERGE_SHARE)).collect()
}

/// How many messages start now, and the limit that prevents more.
#[derive(Debug, Clone)]
struct StartableMessages {
    messages: f64,
    limited_by: LimitKind,
}

/// Reduces the started messages so that they use at most `left` units of a resource. `units_of` gives the units per
/// message of a stage. Returns the used units.
fn limit(
    starts: &mut [StartableMessages],
    stages: &[Stage],
    units_of: impl Fn(&Stage) -> f64,
    left: f64,
    limit_kind: &LimitKind,
) -> f64 {
    let needed: f64 =
        starts.iter().zip(stages).map(|(start, stage)| start.messages * units_of(stage)).sum();
    if needed <= left.max(0.0) {
        return needed;
    }
    let share = left.max(0.0) / needed;
    for (start, stage) in starts.iter_mut().zip(stages) {
        if units_of(stage) > 0.0 && start.messages > 0.0 {
            let messages = start.messages * share;
            *start = StartableMessages { messages, limited_by: limit_kind.clone() };
        }
    }
    needed * share
}

impl StageQueue<'_> {
    fn startable(&self, batch: f64, in_flight: f64) -> StartableMessages {
        let role = || self.stage.role.clone();
        let headrooms = [
            (self.stage.concurrency * batch, LimitKind::Concurrency(role())),
            (self.pollers * batch, LimitKind::Pollers(role())),
            ((self.instances + self.instance_start_tokens) * batch, LimitKind::Instances(role())),
            (in_flight, LimitKind::InFlight(role())),
        ];
        let least =
            headrooms.into_iter().reduce(|least, next| if next.0 < least.0 { next } else { least });
        let (headroom, limited_by) = least.unwrap_or((0.0, LimitKind::Concurrency(role())));
        // Rounding errors may make the difference negative.
        let messages = (headroom - self.in_progress.messages).min(self.waiting.messages).max(0.0);
        StartableMessages { messages, limited_by }
    }

    fn start(&mut self, start: StartableMessages, now_s: f64, batch: f64, pollers: PollerScaling) {
        self.waiting.take(start.messages, &mut self.in_progress);
        let invocations = self.in_progress.messages / batch;
        let new = (invocations - self.instances).max(0.0);
        self.instances += new;
        self.instance_start_tokens -= new;
        self.result.invocation_s_total += invocations * TICK_S;
        // Up to one waiting message is ignored.
        if self.waiting.messages > 1.0 {
            self.pollers = (self.pollers + pollers.more_per_s * TICK_S).min(pollers.max);
            *self.result.waiting_s_by_limit.entry(start.limited_by).or_default() +=
                self.waiting.messages * TICK_S;
        }
        self.result.note(&self.waiting, now_s);
    }
}

impl StageResult {
    fn note(&mut self, waiting: &PortionQueue, now_s: f64) {
        if waiting.messages > self.max_length {
            (self.max_length, self.max_length_at_s) = (waiting.messages, now_s);
        }
        let oldest_s = waiting.oldest_s(now_s);
        self.max_age_s = self.max_age_s.max(oldest_s);
        if oldest_s > BACKLOG_S {
            let from = self.backlog_s.map_or(now_s, |(from, _)| from);
            self.backlog_s = Some((from, now_s));
        }
    }
}
