//! A simulated deployment: what all parts of one run share. These are the virtual clock, the random generator, the
//! queues, the ledger, the oracle, the trace, and the schedule of future events.

use std::{
    collections::BTreeMap,
    num::NonZeroU32,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use jiff::Timestamp;
use serde_json::Value;
use steward_core::model::{
    command::Command,
    messages::{CallbackMessage, SchedulerMessage, Submission},
};
use steward_runtime::ports::{Clock, OutgoingMessage, Queue};
use steward_test_world::ledger::EffectLedger;
use tokio::{sync::Notify, time::Instant};

use super::{
    event_wait::EventDraft,
    late_message_plan::late,
    network::{FunctionQueue, Network},
    oracle::Oracle,
    plan::SimulationPlan,
    random::SeededRandom,
    trace_checks,
    virtual_time::{EPOCH_S, Millis, SECOND},
};
use steward_test_world::{MemoryPorts, WorldClock};

/// An event on the schedule.
#[derive(Debug)]
pub(super) enum ScheduledEvent {
    /// A client submits the task with this index in the plan.
    Submit(usize),
    /// The client of the task with this index in the plan reuses the task's id with another input, if the id is free.
    ReuseTaskId(usize),
    /// An operator sends a command this many times.
    Command(Command, u64),
    /// A random instance dies, and the next such event is scheduled.
    KillInstance,
    /// All schedulers and supervisors are down until this time.
    Outage(Millis),
    /// The instance with this index restarts.
    RestartInstance(usize),
    /// The supervisor with this index sweeps.
    Sweep(usize),
    /// The call with this number takes effect; its caller no longer waits for it.
    CommitCall(u64),
    /// The holder of a callback token answers.
    AnswerCallback(CallbackMessage),
    /// A client submits the forged reference with this number in the plan. Its input, if it was made before.
    SubmitForged(usize, Option<Value>),
    /// The supervisor with this index looks for payloads to delete. Without an index a random one does, once.
    SweepPayloads(Option<usize>),
    /// A supervisor keeps tasks in Error.
    KeepErrors(usize),
    /// An event that steps may wait for is published.
    PublishEvent(EventDraft),
    /// No more faults are injected from now on.
    StopFaults,
    /// An operator resumes paused tasks.
    ResumePaused,
    /// Some of the expired items are deleted.
    DeleteExpired,
    /// A late message arrives.
    LateArrival(FunctionQueue, OutgoingMessage),
}

/// One simulated deployment.
#[derive(Debug)]
pub(super) struct SimulatedDeployment {
    pub(super) plan: SimulationPlan,
    pub(super) memory: MemoryPorts,
    start: Instant,
    /// Notified when a message or an event was added.
    pub(super) changed: Notify,
    state: Mutex<SimulationState>,
}

/// The mutable state of a simulated deployment.
#[derive(Debug)]
pub(super) struct SimulationState {
    pub(super) random: SeededRandom,
    pub(super) network: Network,
    pub(super) ledger: EffectLedger,
    pub(super) oracle: Oracle,
    pub(super) schedule: BTreeMap<(Millis, u64), ScheduledEvent>,
    last_event: u64,
    pub(super) trace: Option<Vec<String>>,
    pub(super) faults: u64,
    pub(super) faults_enabled: bool,
}

impl SimulatedDeployment {
    pub(super) fn new(seed: u64, plan: SimulationPlan, traced: bool) -> Self {
        let shards = NonZeroU32::new(plan.shards).unwrap_or(NonZeroU32::MIN);
        let epoch = Timestamp::from_second(EPOCH_S).unwrap_or_default();
        let memory = MemoryPorts::with_clock(plan.timing, shards, WorldClock::running(epoch));
        let receives_max = plan.late_messages.dead_letters.as_ref().map(|plan| plan.receives_max);
        let state = SimulationState {
            random: SeededRandom::new(seed),
            network: Network::new(receives_max),
            ledger: EffectLedger::default(),
            oracle: Oracle::new(&plan, memory.payloads.clone()),
            schedule: BTreeMap::new(),
            last_event: 0,
            trace: traced.then(Vec::new),
            faults: 0,
            faults_enabled: true,
        };
        Self {
            memory,
            plan,
            start: Instant::now(),
            changed: Notify::new(),
            state: Mutex::new(state),
        }
    }

    /// The mutable state. Its guard must never be held across an await.
    pub(super) fn state(&self) -> MutexGuard<'_, SimulationState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The true time since the start of the run, in virtual milliseconds. Clocks of instances may differ.
    pub(super) fn now(&self) -> Millis {
        self.start.elapsed().as_millis() as Millis
    }

    /// The true time of day.
    pub(super) fn time(&self) -> Timestamp {
        self.memory.clock.now()
    }

    pub(super) async fn sleep_until(&self, at: Millis) {
        tokio::time::sleep_until(self.start + Duration::from_millis(at)).await;
    }

    /// Schedules an event, at `at` or now if that is in the past.
    pub(super) fn schedule(&self, at: Millis, event: ScheduledEvent) {
        self.state().insert_event(at.max(self.now()), event);
        self.changed.notify_one();
    }

    /// Adds a line to the trace, if one was requested.
    pub(super) fn note(&self, who: &str, what: impl FnOnce() -> String) {
        let now = self.now();
        let mut state = self.state();
        if let Some(trace) = &mut state.trace {
            let (seconds, millis) = (now / SECOND, now % SECOND);
            trace.push(format!("{seconds:>6}.{millis:03}s {who:<16} {}", what()));
        }
    }

    /// Counts an injected fault and adds it to the trace.
    pub(super) fn fault(&self, who: &str, what: impl FnOnce() -> String) {
        self.state().faults += 1;
        self.note(who, || format!("! {}", what()));
    }

    /// Sends a message over the network. By the fault rates of the plan it may be delayed, duplicated and reordered.
    pub(super) fn send_message(&self, message: &OutgoingMessage) {
        let now = self.now();
        let source = match &message.queue {
            Queue::Submissions | Queue::Events => FunctionQueue::Submissions,
            Queue::Scheduler | Queue::Commands => FunctionQueue::Scheduler,
            Queue::Agent(name) => FunctionQueue::Agent(name.clone()),
            Queue::Client(_) | Queue::Rejected | Queue::Sweeps => return self.observe(message),
        };
        self.observe(message);
        if message.queue == Queue::Events {
            self.expect_events(message);
        }
        // Whole seconds, rounded up, as on SQS.
        let delay = message.delay.as_millis().div_ceil(1_000) as Millis * SECOND;
        self.put(source, now + delay, message);
    }

    /// Passes a message to the oracle.
    fn observe(&self, message: &OutgoingMessage) {
        let now = self.now();
        let skew = self.plan.timing.clock_skew.as_millis() as Millis;
        let state = &mut *self.state();
        if message.queue == Queue::Rejected {
            state.oracle.payloads.observe_refusal(&message.body, now, skew);
        }
        state.oracle.observe_message(message, &state.ledger);
    }

    /// Sends a submission of a client.
    pub(super) fn submit(&self, submission: &Submission) {
        let body = serde_json::to_string(submission).unwrap_or_default();
        let traceparent = trace_checks::client_traceparent(&submission.task_id);
        let attributes = traceparent.map(|text| ("traceparent", text)).into_iter().collect();
        let message = OutgoingMessage { attributes, ..plain(Queue::Submissions, body) };
        self.put(FunctionQueue::Submissions, self.now(), &message);
    }

    /// Sends a command of an operator.
    pub(super) fn command(&self, command: &Command) {
        let message = SchedulerMessage::Command(command.clone());
        let body = serde_json::to_string(&message).unwrap_or_default();
        self.put(FunctionQueue::Scheduler, self.now(), &plain(Queue::Commands, body));
    }

    /// Sends a message to the scheduler from a sender that is none of the roles.
    pub(super) fn send_to_scheduler(&self, message: &SchedulerMessage) {
        let body = serde_json::to_string(message).unwrap_or_default();
        self.put(FunctionQueue::Scheduler, self.now(), &plain(Queue::Scheduler, body));
    }

    /// Sends an event from the event bus to the events queue.
    pub(super) fn send_event(&self, body: String) {
        self.put(FunctionQueue::Submissions, self.now(), &plain(Queue::Events, body));
    }

    fn put(&self, source: FunctionQueue, at: Millis, message: &OutgoingMessage) {
        let now = self.now();
        let state = &mut *self.state();
        if let Some(copies) = &self.plan.late_messages.copies {
            for arrival in copies.arrivals(now, &mut state.random) {
                state.schedule_late_arrival(source.clone(), arrival, message);
            }
        }
        let faults = &self.plan.faults;
        let faults_enabled = state.faults_enabled;
        let copies = if faults_enabled && state.random.chance(faults.duplicate) { 2 } else { 1 };
        let mut delayed = copies - 1;
        for _ in 0..copies {
            let mut transit = state.random.within(1..=20);
            if faults_enabled && state.random.chance(faults.delay) {
                transit += state.random.skewed(faults.delay_max);
                delayed += 1;
            }
            state.network.put(source.clone(), now, at + transit, message);
        }
        state.faults += delayed;
        self.changed.notify_one();
    }
}

impl SimulationState {
    /// Schedules an event. `at` must not be in the past.
    pub(super) fn insert_event(&mut self, at: Millis, event: ScheduledEvent) {
        self.last_event += 1;
        self.schedule.insert((at, self.last_event), event);
    }

    /// Schedules the arrival of a message, marked as possibly handled before.
    pub(super) fn schedule_late_arrival(
        &mut self,
        source: FunctionQueue,
        at: Millis,
        message: &OutgoingMessage,
    ) {
        self.insert_event(at, ScheduledEvent::LateArrival(source, late(message)));
    }
}

fn plain(queue: Queue, body: String) -> OutgoingMessage {
    OutgoingMessage { queue, body, attributes: Vec::new(), tenant: None, delay: Duration::ZERO }
}
