//! The simulation of one task: its virtual clock, its queues, and its counts.
//!
//! The messages that are sent in it are [delivered](super::delivery) to the real handlers of the functions.

use std::{
    collections::BTreeMap,
    num::NonZeroU32,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use jiff::Timestamp;
use steward_agent::attempt::CircuitBreaker;
use steward_aws::items::Items;
use steward_core::{
    breaker::{BreakerSettings as Breaker, KeyHash},
    callback_url::CallbackUrls,
    definition::recovery,
    model::{
        attempt::Action,
        json_text::to_json_value,
        messages::{ChildEnded, ChildOutcome, ParentStep, SchedulerMessage, Submission},
        names::{AgentName, Part, StepName, TaskId, WorkflowName},
        task::Task,
        time::Timing,
    },
};
use steward_runtime::ports::{
    Clock, OutgoingMessage, Queue, SharedRecord, SharedRecordKey, SharedRecordKind,
};
use tokio::{
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    time::Instant,
};

use super::{
    attempt_outcome::{AttemptOutcome, random_duration},
    demand::DemandCounts,
    function_role::FunctionRole,
    ledger::{AgentTime, CostAccount, CostSubject},
    meter::UsageMeter,
    plan::{ForecastPlan, StepAssumptions, StepKey},
    scripted::{script::LogItem, services::ScriptedServices},
};
use steward_test_world::{MemoryPorts, WorldClock, ledger::EffectLedger, service::Millis};

/// The signing keys of the simulated deployment. Nothing outside it accepts them.
const CALLBACK_KEYS: &str = r#"{ "1": "the key of a simulated deployment" }"#;

/// An instance name of the length on AWS, since it is part of the size of a task's item.
const INSTANCE: &str = "scheduler-0badcafe";

/// How long a message is in its queue before a function receives it.
pub const DELIVERY_LATENCY: Duration = Duration::from_millis(20);

/// A message in the queue of a function.
#[derive(Debug)]
pub(super) struct QueuedMessage {
    pub(super) role: FunctionRole,
    pub(super) message: OutgoingMessage,
    pub(super) delay: Duration,
    /// Its hop in the [demand](super::demand).
    pub(super) hop: usize,
}

/// The simulation of one task and its child tasks.
#[derive(Debug)]
pub(super) struct TaskSimulation {
    pub(super) plan: Arc<ForecastPlan>,
    pub(super) memory: MemoryPorts,
    pub(super) items: Items,
    start: Instant,
    seed: u64,
    messages: UnboundedSender<QueuedMessage>,
    /// What the services do, if a script says it.
    pub(super) scripted: Option<ScriptedServices>,
    state: Mutex<TaskSimulationState>,
}

/// The mutable state of the simulation of a task.
#[derive(Debug)]
pub(super) struct TaskSimulationState {
    pub(super) draw: fastrand::Rng,
    pub(super) meter: UsageMeter,
    pub(super) alerts: u64,
    /// The number of calls to services, by step and action.
    pub(super) calls: BTreeMap<(StepKey, Action), u64>,
    /// How long each message of an agent took.
    pub(super) agents_took: Vec<AgentTime>,
    pub(super) demand_counts: DemandCounts,
    /// The workflow and the due time of each task.
    pub(super) tasks: BTreeMap<TaskId, (WorkflowName, Option<Timestamp>)>,
    pub(super) refused: Option<String>,
    /// What the services have done.
    pub(super) ledger: EffectLedger,
    guards: BTreeMap<AgentName, Arc<CircuitBreaker>>,
    /// When and how child tasks end whose workflow is not given, so that they count as a call.
    children: BTreeMap<TaskId, (Duration, AttemptOutcome)>,
}

impl TaskSimulationState {
    /// The side effects that are not undone.
    pub(super) fn effects(&self) -> Vec<(WorkflowName, Part)> {
        let effects = self.ledger.remaining_effects();
        let of_workflow = |(id, part): (&TaskId, &Part)| {
            self.tasks.get(id).map(|(workflow, _)| (workflow.clone(), part.clone()))
        };
        effects.filter_map(of_workflow).collect()
    }
}

/// The timing of the deployment, as in `template.yaml`.
pub(super) const TIMING: Timing = Timing {
    pickup_within: Duration::from_secs(60),
    clock_skew: Duration::from_secs(2),
    retention: Timing::RETENTION,
};

/// The number of shards and the retention, as in `template.yaml`. Both affect the sizes of items.
const SHARDS: NonZeroU32 = NonZeroU32::MIN.saturating_add(7);
const RETENTION: Duration = Duration::from_secs(30 * 24 * 3600);

impl TaskSimulation {
    /// A new simulation, and the messages that are sent in it.
    pub(super) fn new(
        plan: Arc<ForecastPlan>,
        seed: u64,
    ) -> (Self, UnboundedReceiver<QueuedMessage>) {
        let (messages, waiting) = unbounded_channel();
        let state = TaskSimulationState {
            draw: fastrand::Rng::with_seed(seed),
            meter: UsageMeter::default(),
            alerts: 0,
            calls: BTreeMap::new(),
            agents_took: Vec::new(),
            demand_counts: DemandCounts::default(),
            tasks: BTreeMap::new(),
            refused: None,
            ledger: EffectLedger::with_undo_agents(plan.undo_agents()),
            guards: BTreeMap::new(),
            children: BTreeMap::new(),
        };
        let clock = WorldClock::running(epoch());
        let callback_urls = CALLBACK_KEYS
            .parse()
            .ok()
            .map(|keys| Arc::new(CallbackUrls::new("https://callbacks.example", keys)));
        let memory = MemoryPorts {
            definitions: plan.definitions.clone(),
            instance: INSTANCE.into(),
            has_bucket: false,
            callback_urls,
            ..MemoryPorts::with_clock(TIMING, NonZeroU32::MIN, clock)
        };
        // The first task of a deployment costs a write more for each agent.
        for agent in plan.all_steps().flat_map(|(_, step)| step.agents()) {
            memory.store.insert_shared(used_breaker(agent));
        }
        let simulation = Self {
            plan,
            memory,
            items: Items { shards: SHARDS, retention: RETENTION },
            start: Instant::now(),
            seed,
            messages,
            scripted: None,
            state: Mutex::new(state),
        };
        (simulation, waiting)
    }

    /// The mutable state. Its guard must never be held across an await.
    pub(super) fn state(&self) -> MutexGuard<'_, TaskSimulationState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The virtual time since the start.
    pub(super) fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// The time of day. Every simulation starts on 1 January 2026.
    pub(super) fn time(&self) -> Timestamp {
        self.memory.clock.now()
    }

    /// Converts a timestamp to the time since the start.
    pub(super) fn since_start(&self, time: Timestamp) -> Duration {
        Duration::try_from(time.duration_since(epoch())).unwrap_or_default()
    }

    pub(super) async fn sleep_until(&self, at: Duration) {
        tokio::time::sleep_until(self.start + at).await;
    }

    /// The workflow of a recorded task.
    pub(super) fn workflow_of(&self, task: &TaskId) -> Option<WorkflowName> {
        self.state().tasks.get(task).map(|(workflow, _)| workflow.clone())
    }

    /// The key and the assumptions of a step of a task.
    pub(super) fn assumptions(
        &self,
        task: &TaskId,
        step: &StepName,
    ) -> Option<(StepKey, &StepAssumptions)> {
        let key = (self.workflow_of(task)?, step.clone());
        let assumptions = self.plan.step_assumptions.get(&key)?;
        Some((key, assumptions))
    }

    /// A random generator that gives the same numbers for the same attempt.
    pub(super) fn attempt_random(
        &self,
        task: &TaskId,
        step: &Part,
        action: Action,
        attempt: u32,
    ) -> fastrand::Rng {
        let own = u64::from(recovery::seed(task, step, action, attempt));
        fastrand::Rng::with_seed(self.seed ^ own.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// Records the workflow and the due time of a written task.
    pub(super) fn record_task(&self, task: &Task) {
        let note = (task.workflow.clone(), task.due);
        self.state().tasks.insert(task.task_id.clone(), note);
    }

    /// The earliest due time of all tasks.
    pub(super) fn first_due(&self) -> Option<Timestamp> {
        self.state().tasks.values().filter_map(|(_, due)| *due).min()
    }

    /// The circuit breaker view of an agent.
    pub(super) fn breaker(&self, agent: &AgentName) -> Arc<CircuitBreaker> {
        let probe_within = self.plan.settings.call_timeout;
        let breaker = Breaker { probe_within, ..Breaker::default() };
        let mut state = self.state();
        let new = || Arc::new(CircuitBreaker::new(agent.clone(), breaker));
        state.guards.entry(agent.clone()).or_insert_with(new).clone()
    }

    /// Sends a command of an operator.
    pub(super) fn send_command(&self, command: &SchedulerMessage, after: Duration) {
        let body = serde_json::to_string(command).unwrap_or_default();
        self.deliver(FunctionRole::Scheduler, plain(Queue::Commands, body), after);
    }

    /// Sends an event to the steps that wait for one, as EventBridge does.
    pub(super) fn send_event(&self, event: String, after: Duration) {
        self.deliver(FunctionRole::Submission, plain(Queue::Events, event), after);
    }

    /// Sends a message to the scheduler from outside the functions.
    pub(super) fn send_to_scheduler(&self, message: &SchedulerMessage, after: Duration) {
        let body = serde_json::to_string(message).unwrap_or_default();
        self.deliver(FunctionRole::Scheduler, plain(Queue::Scheduler, body), after);
    }

    /// Submits a task, as a client does.
    pub(super) fn submit(&self, submission: &Submission) {
        let body = serde_json::to_string(submission).unwrap_or_default();
        self.deliver(FunctionRole::Submission, plain(Queue::Submissions, body), Duration::ZERO);
    }

    /// Adds an entry to the log of a scripted run.
    pub(super) fn log(&self, item: impl FnOnce() -> Option<LogItem>) {
        if let Some(scripted) = &self.scripted
            && let Some(item) = item()
        {
            scripted.log(self.now(), item);
        }
    }

    /// Delivers a message that a function has sent.
    pub(super) fn send_message(&self, message: OutgoingMessage) {
        // Whole seconds, rounded up, as on SQS.
        let delay = Duration::from_secs(message.delay.as_millis().div_ceil(1_000) as u64);
        let role = match &message.queue {
            Queue::Submissions => match self.outside_child(&message.body) {
                Some((submission, key)) => return self.run_outside_child(submission, key),
                None => FunctionRole::Submission,
            },
            Queue::Events => FunctionRole::Submission,
            Queue::Scheduler | Queue::Commands => FunctionRole::Scheduler,
            Queue::Agent(name) => FunctionRole::Agent(name.clone()),
            Queue::Rejected => {
                let reason = message.attributes.iter().find(|(name, _)| *name == "reason");
                self.state().refused = reason.map(|(_, reason)| reason.clone());
                return;
            }
            Queue::Client(_) => {
                return self
                    .log(|| Some(LogItem::Notified(serde_json::from_str(&message.body).ok()?)));
            }
            // The simulation sweeps without ticks.
            Queue::Sweeps => return,
        };
        self.deliver(role, message, delay);
    }

    /// Delivers a message to a function.
    pub(super) fn deliver(&self, role: FunctionRole, message: OutgoingMessage, delay: Duration) {
        let hop = self.state().demand_counts.sent(&role, delay);
        // Sending cannot fail: the receiver lives as long as the simulation.
        let _: Result<_, _> = self.messages.send(QueuedMessage { role, message, delay, hop });
    }

    /// What a message concerns.
    pub(super) fn subject_of(&self, message: &OutgoingMessage) -> CostSubject {
        let default = &self.plan.settings.workflow.name;
        CostSubject::of(message, default, |task| self.workflow_of(task))
    }

    /// Counts an invocation.
    pub(super) fn record_invocation(
        &self,
        role: &FunctionRole,
        account: &CostAccount,
        millis: u64,
    ) {
        let mut state = self.state();
        state.demand_counts.record_invocation(role, millis);
        match role {
            FunctionRole::Agent(agent) => {
                let (agent, subject) = (agent.clone(), account.subject.clone());
                state.agents_took.push(AgentTime { agent, subject, millis });
            }
            FunctionRole::Submission | FunctionRole::Scheduler => {
                state.meter.took(account, millis, &self.plan)
            }
        }
    }

    /// The submission of a child task and the step it runs for, if its workflow is not given.
    fn outside_child(&self, body: &str) -> Option<(Submission, StepKey)> {
        let submission: Submission = serde_json::from_str(body).ok()?;
        let parent = submission.parent.as_ref()?;
        let (key, _) = self.assumptions(&parent.task_id, &parent.step.step)?;
        self.plan.workflow(&submission.workflow).is_none().then_some((submission, key))
    }

    /// Simulates a child task whose workflow is not given: it ends after a while and reports that. A repeated submission
    /// after its end is answered with another report.
    fn run_outside_child(&self, submission: Submission, key: StepKey) {
        let (Some(parent), Some(assumptions)) =
            (submission.parent.clone(), self.plan.step_assumptions.get(&key))
        else {
            return;
        };
        if let Some(scripted) = &self.scripted {
            let action = if submission.undo { Action::Undo } else { Action::Do };
            let sample = assumptions.output.value(key.1.as_str(), &mut self.state().draw);
            *self.state().calls.entry((key.clone(), action)).or_default() += 1;
            let end = scripted.child_end(&submission, &parent, &key, self.now(), sample);
            let is_undone = |outcome: &ChildOutcome| matches!(outcome, ChildOutcome::Undone { .. });
            let remains = !end.as_ref().is_some_and(|(_, outcome)| is_undone(outcome));
            let effect = remains.then(|| self.now().as_millis() as Millis);
            self.state().ledger.set_effect(&parent.task_id, &parent.step, effect);
            if let Some((after, outcome)) = end {
                self.send_child_end(parent, outcome, after);
            }
            return;
        }
        let reason = || "as forecast".to_owned();
        // A new attempt draws again if the attempt before it was not answered.
        let known = self.state().children.get(&submission.task_id).copied();
        let known = known.filter(|(_, outcome)| *outcome != AttemptOutcome::NoReply);
        let (after, outcome) = if submission.undo {
            let (outcome, takes) = self.child_outcome(&key, assumptions, Action::Undo);
            let outcome = match outcome {
                AttemptOutcome::Succeeds | AttemptOutcome::NoReply => {
                    ChildOutcome::Undone { reason: reason() }
                }
                AttemptOutcome::Fails => {
                    ChildOutcome::Error { reason: reason(), not_undone: true, was_processed: false }
                }
            };
            (takes, outcome)
        } else {
            let (ends, outcome) = known.unwrap_or_else(|| {
                let (outcome, takes) = self.child_outcome(&key, assumptions, Action::Do);
                (self.now() + takes, outcome)
            });
            self.state().children.insert(submission.task_id, (ends, outcome));
            let output = assumptions.output.value(key.1.as_str(), &mut self.state().draw);
            let outcome = match outcome {
                AttemptOutcome::NoReply => return,
                AttemptOutcome::Fails => ChildOutcome::Undone { reason: reason() },
                AttemptOutcome::Succeeds => ChildOutcome::Processed { output },
            };
            // A repeated submission while it runs is ignored: it reports once, at its end.
            let after = ends.saturating_sub(self.now());
            if known.is_some() && !after.is_zero() {
                return;
            }
            (after, outcome)
        };
        self.send_child_end(parent, outcome, after);
    }

    /// Reports the end of a child task whose workflow is not given to its parent.
    fn send_child_end(&self, parent: ParentStep, outcome: ChildOutcome, after: Duration) {
        let ParentStep { task_id, step, incarnation, .. } = parent;
        let (attempt, child, revision) = (None, None, None);
        let ended = ChildEnded { task_id, step, outcome, attempt, child, revision, incarnation };
        self.send_to_scheduler(&SchedulerMessage::ChildEnded(ended), after);
    }

    /// Draws the outcome and the duration of a child task whose workflow is not given.
    fn child_outcome(
        &self,
        key: &StepKey,
        assumptions: &StepAssumptions,
        action: Action,
    ) -> (AttemptOutcome, Duration) {
        let state = &mut *self.state();
        *state.calls.entry((key.clone(), action)).or_default() += 1;
        (
            AttemptOutcome::of(assumptions, action, &mut state.draw),
            random_duration(assumptions.slow, &mut state.draw),
        )
    }
}

/// The circuit breaker of an agent whose service has completed calls.
fn used_breaker(agent: &AgentName) -> SharedRecord {
    let breaker = steward_core::breaker::Breaker {
        completed_at: vec![KeyHash::new("")],
        ..Default::default()
    };
    let body = to_json_value(&breaker);
    let key = SharedRecordKey { kind: SharedRecordKind::Breaker, name: agent.to_string() };
    SharedRecord { key, revision: 1, body, expires_at: None }
}

fn epoch() -> Timestamp {
    Timestamp::from_second(1_767_225_600).unwrap_or_default()
}

fn plain(queue: Queue, body: String) -> OutgoingMessage {
    OutgoingMessage { queue, body, attributes: Vec::new(), tenant: None, delay: Duration::ZERO }
}
