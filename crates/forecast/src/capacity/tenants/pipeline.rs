//! The pipeline of queues and functions, event by event.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
};

use jiff::Timestamp;
use serde::Serialize;
use steward_core::{
    definition::workflow::Workflow,
    intake::{BatchWait, Intake, SCHEDULER_TIME, may_start, pause_before_next_turn, used_share},
    model::names::{AgentName, Tenant},
};

use super::tenant_queue::{Delivery, SimulatedMessage, TenantNumber, TenantQueue};
use crate::{
    capacity::model::{QueueModel, Stage},
    cost::FunctionRole,
};

/// The number of quiet tenants. They share the load that is not the noisy tenant's.
pub const QUIET_TENANTS: usize = 9;

/// The load of the scenario.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct TenantLoad {
    /// Tasks per second of the noisy tenant.
    pub(super) noisy_rate: f64,
    /// Tasks per second of all quiet tenants.
    pub(super) quiet_rate: f64,
    pub(super) lasts_s: f64,
    pub(super) seed: u64,
}

/// The time from submission to end of the tasks of quiet tenants.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct QuietTenants {
    /// The number of their tasks.
    pub tasks: usize,
    /// The median, in seconds.
    pub p50_s: f64,
    /// The 99th percentile, in seconds.
    pub p99_s: f64,
}

/// The number of the noisy tenant.
const NOISY: TenantNumber = 0;

const SECOND: u64 = 1_000_000;

/// Submission reads the levels of intake control this often, in microseconds.
const READ_LEVELS_EVERY: u64 = SECOND;

/// If the replies of a batch waited for longer than this share, the scheduler postpones first wakes, as deployed.
const PREFER_PROGRESS_FROM: f64 = 0.2;

/// The hop of the first wakes.
const FIRST_WAKE: usize = 1;

/// The simulation ends at the latest this long after the last submission, in microseconds.
const DRAINS_FOR: u64 = 3_600 * SECOND;

/// What happens next.
#[derive(Debug, Clone, PartialEq)]
enum PipelineEvent {
    /// A message arrives at the queue of a stage.
    Arrived { stage: usize, message: SimulatedMessage },
    /// An invocation of a stage has handled its messages.
    Finished { stage: usize, messages: Vec<SimulatedMessage> },
}

/// A task.
#[derive(Debug, Clone, Copy)]
struct SimulatedTask {
    tenant: TenantNumber,
    submitted_at: u64,
    ended_at: Option<u64>,
    /// The messages of its current hop that are not handled yet.
    open: usize,
}

/// A stage with its queue.
struct SimulatedStage<'m> {
    stage: &'m Stage,
    agent: Option<AgentName>,
    queue: TenantQueue,
    invocations: usize,
    concurrency: usize,
}

/// The simulation.
pub(super) struct Pipeline<'m> {
    workflow: &'m Workflow,
    model: &'m QueueModel,
    load: TenantLoad,
    random: fastrand::Rng,
    now: u64,
    /// By time, then in the order of creation.
    events: BinaryHeap<Reverse<(u64, u64)>>,
    scheduled: BTreeMap<u64, PipelineEvent>,
    last_event: u64,
    stages: Vec<SimulatedStage<'m>>,
    tasks: Vec<SimulatedTask>,
    quiet_left: usize,
    tenants: Vec<Tenant>,
    levels: Intake,
    /// The copy of the levels that submission uses, and when it was read.
    read_levels: (u64, Intake),
}

impl<'m> Pipeline<'m> {
    pub(super) fn new(
        workflow: &'m Workflow,
        model: &'m QueueModel,
        load: TenantLoad,
        delivery: Delivery,
    ) -> Self {
        let stage = |stage: &'m Stage| SimulatedStage {
            stage,
            agent: match &stage.role {
                FunctionRole::Agent(name) => Some(name.clone()),
                FunctionRole::Submission | FunctionRole::Scheduler => None,
            },
            queue: TenantQueue::new(delivery),
            invocations: 0,
            concurrency: stage.concurrency.max(1.0) as usize,
        };
        Self {
            workflow,
            model,
            load,
            random: fastrand::Rng::with_seed(load.seed),
            now: 0,
            events: BinaryHeap::new(),
            scheduled: BTreeMap::new(),
            last_event: 0,
            stages: model.stages.iter().map(stage).collect(),
            tasks: Vec::new(),
            quiet_left: 0,
            tenants: (0..=QUIET_TENANTS).filter_map(|n| format!("t-{n}").parse().ok()).collect(),
            levels: Intake::default(),
            read_levels: (0, Intake::default()),
        }
    }

    /// Runs until all tasks of quiet tenants have ended.
    pub(super) fn run(mut self) -> QuietTenants {
        self.submit_all();
        let until = micros(self.load.lasts_s) + DRAINS_FOR;
        while self.quiet_left > 0
            && let Some(Reverse((at, number))) = self.events.pop()
            && at <= until
        {
            self.now = at;
            match self.scheduled.remove(&number) {
                Some(PipelineEvent::Arrived { stage, message }) => {
                    if let Some(stage) = self.stages.get_mut(stage) {
                        stage.queue.put(message, at);
                    }
                    self.start(stage);
                }
                Some(PipelineEvent::Finished { stage, messages }) => {
                    self.finish(stage, messages);
                    self.start(stage);
                }
                None => {}
            }
        }
        self.result()
    }

    /// Schedules the submissions of all tenants. The quiet tenants draw theirs first, so they are the same in every run.
    fn submit_all(&mut self) {
        for (rate, noisy) in [(self.load.quiet_rate, false), (self.load.noisy_rate, true)] {
            let mut at_s = self.pause_s(rate);
            while at_s < self.load.lasts_s {
                let tenant = if noisy { NOISY } else { self.random.usize(1..=QUIET_TENANTS) };
                self.quiet_left += usize::from(!noisy);
                let (task, submitted_at) = (self.tasks.len(), micros(at_s));
                self.tasks.push(SimulatedTask { tenant, submitted_at, ended_at: None, open: 0 });
                self.send(task, 0, submitted_at);
                at_s += self.pause_s(rate);
            }
        }
    }

    /// The seconds until the next of `rate` submissions a second; infinite if there are none.
    fn pause_s(&mut self, rate: f64) -> f64 {
        -(1.0 - self.random.f64()).ln() / rate
    }

    fn schedule(&mut self, at: u64, event: PipelineEvent) {
        self.last_event += 1;
        self.events.push(Reverse((at, self.last_event)));
        self.scheduled.insert(self.last_event, event);
    }

    /// Sends the messages of a hop. A task ends after its last hop.
    fn send(&mut self, task: usize, hop: usize, at: u64) {
        let Some(routes) = self.model.hops.get(hop).map(|hop| hop.routes.clone()) else {
            return self.end(task);
        };
        let Some(tenant) = self.tasks.get(task).map(|task| task.tenant) else { return };
        let mut open = 0;
        for route in routes {
            let more = self.random.f64() < route.messages.fract();
            for _ in 0..route.messages.trunc() as usize + usize::from(more) {
                open += 1;
                let message = SimulatedMessage { task, tenant, hop, sent_at: at, turns: 0 };
                let event = PipelineEvent::Arrived { stage: route.stage, message };
                self.schedule(at + micros(route.delay_s), event);
            }
        }
        match self.tasks.get_mut(task) {
            Some(task) if open > 0 => task.open = open,
            Some(_) => self.send(task, hop + 1, at),
            None => {}
        }
    }

    fn end(&mut self, task: usize) {
        let Some(task) = self.tasks.get_mut(task) else { return };
        task.ended_at = Some(self.now);
        self.quiet_left -= usize::from(task.tenant != NOISY);
    }

    /// Starts invocations of a stage while its concurrency allows it.
    fn start(&mut self, index: usize) {
        let batch = self.model.batch as usize;
        while let Some(stage) = self.stages.get_mut(index)
            && stage.invocations < stage.concurrency
        {
            let messages = stage.queue.take(batch, self.now);
            if messages.is_empty() {
                return;
            }
            stage.invocations += 1;
            let invocation_s = stage.stage.invocation_s * (0.5 + self.random.f64());
            self.report_wait(index, &messages);
            let event = PipelineEvent::Finished { stage: index, messages };
            self.schedule(self.now + micros(invocation_s), event);
        }
    }

    /// Lowers the level of a queue if the messages of a batch waited for too long.
    fn report_wait(&mut self, index: usize, messages: &[SimulatedMessage]) {
        let Some(stage) = self.stages.get(index) else { return };
        if stage.stage.role == FunctionRole::Submission {
            return;
        }
        let waits = messages.iter().filter(|message| message.turns == 0);
        let waits =
            waits.map(|message| (self.tenants.get(message.tenant), self.used(stage, message)));
        let wait = BatchWait::of(waits.collect());
        if let Some(levels) = self.levels.after_wait(stage.agent.as_ref(), &wait, time(self.now)) {
            self.levels = levels;
        }
    }

    /// The share of its time that a message has waited.
    fn used(&self, stage: &SimulatedStage<'_>, message: &SimulatedMessage) -> f64 {
        let within = stage.stage.within_s.unwrap_or(SCHEDULER_TIME.as_secs_f64());
        match stage.agent {
            Some(_) => {
                let complete_by = time(message.sent_at + micros(within));
                used_share(time(message.sent_at), complete_by, time(self.now))
            }
            None => (self.now - message.sent_at) as f64 / micros(within) as f64,
        }
    }

    /// Handles the messages of an invocation.
    fn finish(&mut self, index: usize, messages: Vec<SimulatedMessage>) {
        let Some(stage) = self.stages.get_mut(index) else { return };
        stage.invocations -= 1;
        stage.queue.finish(&messages);
        let role = stage.stage.role.clone();
        let postponing = match role {
            FunctionRole::Scheduler => self.wait_of_replies(index, &messages),
            FunctionRole::Submission | FunctionRole::Agent(_) => None,
        };
        for message in messages {
            let is_put_back = match role {
                FunctionRole::Submission => !self.may_start(&message),
                FunctionRole::Scheduler => {
                    let tenant = self.tenants.get(message.tenant);
                    message.hop == FIRST_WAKE
                        && message.turns == 0
                        && postponing.as_ref().is_some_and(|wait| wait.counts_for(tenant))
                }
                FunctionRole::Agent(_) => self.is_late(index, &message),
            };
            if is_put_back {
                let id = message.task.to_string();
                let pause = pause_before_next_turn(&id, message.turns).as_micros() as u64;
                let (sent_at, turns) = (self.now + pause, message.turns + 1);
                let message = SimulatedMessage { sent_at, turns, ..message };
                self.schedule(sent_at, PipelineEvent::Arrived { stage: index, message });
                continue;
            }
            let Some(task) = self.tasks.get_mut(message.task) else { continue };
            task.open = task.open.saturating_sub(1);
            if task.open == 0 {
                self.send(message.task, message.hop + 1, self.now);
            }
        }
    }

    /// Whether a new task may start now.
    fn may_start(&mut self, message: &SimulatedMessage) -> bool {
        let (read_at, levels) = &mut self.read_levels;
        if self.now >= *read_at + READ_LEVELS_EVERY {
            (*read_at, *levels) = (self.now, self.levels.clone());
        }
        let tenant = self.tenants.get(message.tenant);
        let share = levels.start_share(self.workflow, tenant, time(self.now));
        may_start(&message.task.to_string(), message.turns, share)
    }

    /// How long the replies of a batch waited, if it is so long that tasks in progress come first.
    fn wait_of_replies(&self, index: usize, messages: &[SimulatedMessage]) -> Option<BatchWait> {
        let stage = self.stages.get(index)?;
        let replies = messages.iter().filter(|message| message.hop > FIRST_WAKE);
        let waits = replies.map(|reply| (self.tenants.get(reply.tenant), self.used(stage, reply)));
        let wait = BatchWait::of(waits.collect());
        (wait.used > PREFER_PROGRESS_FROM).then_some(wait)
    }

    /// Whether an agent sheds a request, because it received it past complete-by.
    fn is_late(&self, index: usize, message: &SimulatedMessage) -> bool {
        let stage = self.stages.get(index);
        stage.is_some_and(|stage| stage.agent.is_some() && self.used(stage, message) >= 1.0)
    }

    fn result(&self) -> QuietTenants {
        let quiet = self.tasks.iter().filter(|task| task.tenant != NOISY);
        let ended = quiet.filter_map(|task| Some(task.ended_at? - task.submitted_at));
        let mut durations: Vec<u64> = ended.collect();
        durations.sort_unstable();
        QuietTenants {
            tasks: durations.len() + self.quiet_left,
            p50_s: percentile_s(&durations, 0.5),
            p99_s: percentile_s(&durations, 0.99),
        }
    }
}

/// A percentile of sorted durations, in seconds.
fn percentile_s(sorted: &[u64], share: f64) -> f64 {
    let index = (sorted.len().saturating_sub(1) as f64 * share).round() as usize;
    sorted.get(index).map_or(0.0, |micros| *micros as f64 / SECOND as f64)
}

fn micros(seconds: f64) -> u64 {
    (seconds * SECOND as f64).round() as u64
}

fn time(micros: u64) -> Timestamp {
    Timestamp::from_microsecond(micros as i64).unwrap_or(Timestamp::MAX)
}
