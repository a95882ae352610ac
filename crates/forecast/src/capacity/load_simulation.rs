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
//! Work that cannot be done in time is refused. An agent sheds the requests that it receives past complete-by, and their
//! steps try again later. Submission holds new tasks back while a queue is too long; the level comes from the function that
//! the deployment uses ([`IntakeLevel`]). Not included: the scheduler postpones first wakes.
//!
//! The tightest limit decides how many messages start; all waiting in this tick is counted for that limit. If a table
//! throttles, messages wait in their queue here. On AWS they wait in the function, which retries, and are redelivered if
//! that does not help.

use std::collections::BTreeMap;

use steward_core::intake::{IntakeLevel, pause_after_turns};

use super::{
    fluid::{Portion, PortionPool, PortionQueue, ReturningMessages},
    limit_kind::LimitKind,
    model::{HopRoutes, QueueModel, Route, Stage},
    scaling_limits::{PollerScaling, TABLES, TableThroughput},
    settings::ScaleSettings,
    stage_queue::{Refusals, StageQueue, StageResult, StartableMessages, TICK_S, limit, timestamp},
};
use crate::cost::{FunctionRole, Resource};

/// How often submission reads the levels of intake control, in seconds.
const READ_LEVELS_EVERY_S: f64 = 1.0;

/// How much longer than complete-by the supervisor waits for a reply, in seconds: the clock skew of the templates. It may
/// abandon an attempt then, so a reply that is later costs the attempt.
const ABANDONED_AFTER_S: f64 = 2.0;

/// The longest additional pause of a shed request, in seconds: half of it on average, like the breaker's `open_for`.
const SHED_JITTER_S: f64 = 10.0;

/// How long the simulation continues after the last submission, in seconds, unless all tasks are done before.
pub(super) const SIMULATED_AFTER_S: f64 = 4.0 * 3600.0;

/// Messages in transit are merged within this share of the delivery time.
const TRANSIT_MERGE_SHARE: f64 = 0.01;

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
    /// Attempts that may have been abandoned because their request or their reply waited.
    pub(super) lost_attempts: f64,
    /// Requests that agents received past complete-by, and shed.
    pub(super) shed_requests: f64,
    /// How many submissions were held back at the same time, at most.
    pub(super) held_back_max: f64,
    /// How often submissions were held back.
    pub(super) turns: f64,
    /// Tasks done in each minute.
    pub(super) done_by_minute: Vec<f64>,
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
    /// Submissions that are held back.
    held_back: ReturningMessages,
    /// Steps whose request was shed.
    deferred: ReturningMessages,
    /// The levels of intake control as submission has read them, and when.
    levels: (f64, Vec<IntakeLevel>),
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
        let queue = |stage: &'m Stage| StageQueue::new(stage, pollers, burst);
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
            held_back: ReturningMessages::default(),
            deferred: ReturningMessages::default(),
            levels: (0.0, Vec::new()),
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
        let portion =
            Portion { messages: arrived, submitted_s: now_s, requested_s: now_s, turns: 0.0 };
        self.send(0, portion, None);
        self.finish();
        self.finish_refused();
        self.deliver();
        self.deliver_returning();
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
        let more = limits.instances_per_second.value * TICK_S;
        for queue in &mut self.queues {
            queue.refill(more, limits.instances_at_once.value);
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
                    let done = portion.messages / hop.messages;
                    self.result.done += done;
                    self.result.count_minute(self.now_s, done);
                    let duration_cs = (self.now_s - portion.submitted_s) * 100.0;
                    *self
                        .result
                        .durations_cs
                        .entry(duration_cs.round().max(0.0) as u64)
                        .or_default() += done;
                }
            }
        }
    }

    /// Counts the replies that the scheduler has handled, and those that it handled after the deadline of their attempt.
    fn count_replies(&mut self, hop: &HopRoutes, role: &FunctionRole, portion: Portion) {
        let (Some(within_s), FunctionRole::Scheduler) = (hop.within_s, role) else { return };
        self.result.handled_replies += portion.messages;
        let late_s = self.now_s - portion.requested_s - within_s;
        if late_s > 0.0 {
            self.result.late_replies += portion.messages;
            self.result.first_late_s.get_or_insert(self.now_s);
        }
        if late_s > ABANDONED_AFTER_S {
            self.result.lost_attempts += portion.messages;
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

    /// Finishes the invocations that refuse their messages. A submission returns to its queue after a pause. The step of a
    /// late request tries again after it has waited as long once more: the scheduler handles the deferral, and later a wake.
    fn finish_refused(&mut self) {
        let compute_s = self.settings.compute_s * self.model.batch;
        let mut refused = Vec::new();
        for (stage, queue) in self.queues.iter_mut().enumerate() {
            let share = TICK_S / queue.refusal_s(compute_s).max(TICK_S);
            refused.push((stage, queue.stage.role.clone(), queue.refused.split(share)));
        }
        for (stage, role, pool) in refused {
            for (hop, portion) in pool.portions() {
                match role {
                    FunctionRole::Submission => {
                        self.result.turns += portion.messages;
                        let pause_s = pause_after_turns(portion.turns).as_secs_f64();
                        let portion = Portion { turns: portion.turns + 1.0, ..portion };
                        self.held_back.put((stage, hop), portion, self.now_s, pause_s);
                    }
                    FunctionRole::Agent(_) | FunctionRole::Scheduler => self.defer(hop, portion),
                }
            }
        }
        self.result.held_back_max = self.result.held_back_max.max(self.held_back.messages);
    }

    /// Defers the steps of late requests of `hop`.
    fn defer(&mut self, hop: usize, portion: Portion) {
        let scheduler =
            self.model.stages.iter().position(|stage| stage.role == FunctionRole::Scheduler);
        let (Some(scheduler), Some(before)) = (scheduler, hop.checked_sub(1)) else { return };
        let waited_s = self.now_s - portion.requested_s;
        let within_s = self.model.hops.get(hop + 1).and_then(|replies| replies.within_s);
        if within_s.is_some_and(|within_s| waited_s > within_s + ABANDONED_AFTER_S) {
            self.result.lost_attempts += portion.messages;
        }
        // The deferral itself leads to no other message.
        let no_hop = self.model.hops.len();
        if let Some(queue) = self.queues.get_mut(scheduler) {
            queue.waiting.put(self.now_s, no_hop, portion);
        }
        self.deferred.put((scheduler, before), portion, self.now_s, waited_s + SHED_JITTER_S);
    }

    fn deliver_returning(&mut self) {
        let returning = self.held_back.take_until(self.now_s).into_iter();
        for (stage, hop, portion) in returning.chain(self.deferred.take_until(self.now_s)) {
            if let Some(queue) = self.queues.get_mut(stage) {
                let portion = Portion { requested_s: self.now_s, ..portion };
                queue.waiting.put(self.now_s, hop, portion);
            }
        }
    }

    /// What the functions refuse now.
    fn refusals(&mut self) -> Refusals {
        let overload = self.settings.deployment.overload;
        let (read_at_s, levels) = &mut self.levels;
        if self.now_s >= *read_at_s + READ_LEVELS_EVERY_S {
            *read_at_s = self.now_s;
            *levels = self.queues.iter().filter_map(|queue| queue.level).collect();
        }
        let now = timestamp(self.now_s);
        let start_share = match overload.holds_back {
            true => levels.iter().map(|level| level.start_at(now)).fold(1.0, f64::min),
            false => 1.0,
        };
        Refusals { start_share, refuses_late: overload.sheds_late }
    }

    /// Attributes the waiting time of submissions that are held back to the limit of the longest queue.
    fn count_held_back(&mut self) {
        let waits = self.queues.iter().filter(|queue| queue.level.is_some());
        let longest = waits.max_by(|one, other| {
            one.waiting.oldest_s(self.now_s).total_cmp(&other.waiting.oldest_s(self.now_s))
        });
        if let Some(limited_by) = longest.and_then(|queue| queue.limited_by.clone()) {
            *self.result.waiting_s_by_limit.entry(limited_by).or_default() +=
                self.held_back.messages * TICK_S;
        }
    }

    /// Starts as many messages as all limits allow.
    fn start(&mut self) {
        let refusals = self.refusals();
        let batch = self.model.batch;
        let in_flight = self.settings.limits.queue_in_flight.value;
        let queues = self.queues.iter().map(|queue| queue.startable(batch, in_flight, refusals));
        let mut starts: Vec<StartableMessages> = queues.collect();
        let account = self.settings.limits.account_concurrency.value;
        let invoked = |queue: &StageQueue| queue.in_progress.messages + queue.refused.messages;
        let in_progress: f64 = self.queues.iter().map(invoked).sum();
        let stages = &self.model.stages;
        let headroom = account - in_progress / batch;
        let invocations = |start: &StartableMessages, _: &Stage| start.messages / batch;
        limit(&mut starts, stages, invocations, headroom, &LimitKind::Account);
        self.invocation_tokens -= limit(
            &mut starts,
            stages,
            invocations,
            self.invocation_tokens,
            &LimitKind::Invocations,
        );
        for SimulatedTable { resource, throughput, rate: (_, limit_kind) } in &mut self.tables {
            let left = throughput.left();
            let units = |start: &StartableMessages, stage: &Stage| {
                start.handled_messages() * stage.units_of(*resource)
            };
            throughput.take(limit(&mut starts, stages, units, left, limit_kind));
        }
        let events_per_request = self.settings.limits.events_per_request.value;
        let requests = |start: &StartableMessages, stage: &Stage| {
            start.handled_messages() * stage.units_of(Resource::Events) / events_per_request
        };
        let left = self.event_request_tokens;
        self.event_request_tokens -= limit(&mut starts, stages, requests, left, &LimitKind::Bus);
        let pollers = PollerScaling::of(self.settings);
        for (queue, start) in self.queues.iter_mut().zip(starts) {
            self.result.shed_requests += queue.start(start, self.now_s, batch, pollers, refusals);
        }
        self.count_held_back();
    }

    fn end(mut self) -> LoadResult {
        let hops = &self.model.hops;
        let share = |(hop_index, portion): (usize, Portion)| {
            hops.get(hop_index).map_or(0.0, |hop| portion.messages / hop.messages)
        };
        let in_transit = self.in_transit.iter().flatten();
        let waiting = self.queues.iter().map(|queue| &queue.waiting);
        let invoked = self.queues.iter().flat_map(|queue| [&queue.in_progress, &queue.refused]);
        let pools = in_transit.chain(waiting).flat_map(PortionQueue::pools).chain(invoked);
        let returning = self.held_back.portions().chain(self.deferred.portions());
        let portions = pools.flat_map(PortionPool::portions).chain(returning);
        self.result.unfinished = portions.map(share).sum();
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

impl LoadResult {
    fn count_minute(&mut self, now_s: f64, done: f64) {
        let minute = (now_s / 60.0) as usize;
        if self.done_by_minute.len() <= minute {
            self.done_by_minute.resize(minute + 1, 0.0);
        }
        if let Some(count) = self.done_by_minute.get_mut(minute) {
            *count += done;
        }
    }
}
