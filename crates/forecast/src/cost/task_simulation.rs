//! The world of one task: its virtual clock, its queues, and what is counted in it.
//!
//! A message is a future: it waits until it is delivered, is handled by the real handler of its role,
//! and comes back if it was not done. All of them run side by side on the virtual clock.

use std::{
    collections::BTreeMap,
    fmt,
    num::NonZeroU32,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures_util::{FutureExt, future::BoxFuture};
use jiff::Timestamp;
use steward_agent::attempt::Guard;
use steward_aws::{channel::redelivery, items::Items};
use steward_core::{
    breaker::Settings as Breaker,
    definition::recovery,
    model::{
        attempt::Action,
        messages::{ChildEnded, ChildOutcome, Parent, SchedulerMessage, Submission},
        names::{AgentName, Part, StepName, TaskId, WorkflowName},
        task::Task,
        time::{Timing, later},
    },
};
use steward_runtime::ports::{Outgoing, Queue};
use tokio::{
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    time::Instant,
};

use super::{
    demand::{self, Visits},
    ledger::{Account, Function, Subject, Took},
    meter::Meter,
    plan::{Plan, StepKey, Temper},
    roles,
    service::{Fate, child_fate},
};
use steward_testkit::memory::MemoryPorts;

/// How long a message is in its queue before a function has it.
pub const DELIVERY_TAKES: Duration = Duration::from_millis(20);

/// Which function a message is for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Takes a submission in.
    Submission,
    /// Decides what comes next.
    Scheduler,
    /// Calls a remote service.
    Agent(AgentName),
}

impl Role {
    fn function(&self) -> Function {
        match self {
            Self::Submission => Function::Submission,
            Self::Scheduler => Function::Scheduler,
            Self::Agent(_) => Function::Agent,
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Submission => f.write_str("submission"),
            Self::Scheduler => f.write_str("scheduler"),
            Self::Agent(name) => write!(f, "agent {name}"),
        }
    }
}

/// One task's world.
#[derive(Debug)]
pub(super) struct World {
    pub(super) plan: Arc<Plan>,
    pub(super) memory: MemoryPorts,
    pub(super) items: Items,
    start: Instant,
    seed: u64,
    messages: UnboundedSender<BoxFuture<'static, ()>>,
    state: Mutex<State>,
}

/// What changes in it.
#[derive(Debug)]
pub(super) struct State {
    pub(super) draw: fastrand::Rng,
    pub(super) meter: Meter,
    pub(super) alerts: u64,
    /// Calls of services, by step and which way it went.
    pub(super) calls: BTreeMap<(StepKey, Action), u64>,
    /// How long each message of an agent took.
    pub(super) agents_took: Vec<Took>,
    /// How long each invocation took.
    pub(super) millis: Vec<(Role, u64)>,
    pub(super) visits: Visits,
    /// The tasks: what they run, and when they are due.
    pub(super) tasks: BTreeMap<TaskId, (WorkflowName, Option<Timestamp>)>,
    pub(super) refused: Option<String>,
    guards: BTreeMap<AgentName, Arc<Guard>>,
    /// Tasks of steps that are taken as a call: when they end, and how.
    children: BTreeMap<TaskId, (Duration, Fate)>,
}

/// The deployment's times, as `template.yaml` says them.
pub(super) const TIMING: Timing = Timing {
    pickup_within: Duration::from_secs(60),
    clock_skew: Duration::from_secs(2),
    retention: Timing::RETENTION,
};

/// The shards and the retention, as `template.yaml` says them: both are part of items' sizes.
const SHARDS: NonZeroU32 = NonZeroU32::MIN.saturating_add(7);
const RETENTION: Duration = Duration::from_secs(30 * 24 * 3600);

impl World {
    pub(super) fn new(
        plan: Arc<Plan>,
        seed: u64,
    ) -> (Self, UnboundedReceiver<BoxFuture<'static, ()>>) {
        let (messages, waiting) = unbounded_channel();
        let state = State {
            draw: fastrand::Rng::with_seed(seed),
            meter: Meter::default(),
            alerts: 0,
            calls: BTreeMap::new(),
            agents_took: Vec::new(),
            millis: Vec::new(),
            visits: Visits::default(),
            tasks: BTreeMap::new(),
            refused: None,
            guards: BTreeMap::new(),
            children: BTreeMap::new(),
        };
        let world = Self {
            plan,
            memory: MemoryPorts::new(TIMING, NonZeroU32::MIN),
            items: Items { shards: SHARDS, retention: RETENTION },
            start: Instant::now(),
            seed,
            messages,
            state: Mutex::new(state),
        };
        (world, waiting)
    }

    /// The changing part. Its guard is never held while anything waits.
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The time since the start.
    pub(super) fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// The time of day; every world begins with the year 2026.
    pub(super) fn time(&self) -> Timestamp {
        later(epoch(), self.now())
    }

    /// The time of day as a time since the start.
    pub(super) fn since_start(&self, time: Timestamp) -> Duration {
        Duration::try_from(time.duration_since(epoch())).unwrap_or_default()
    }

    pub(super) async fn sleep_until(&self, at: Duration) {
        tokio::time::sleep_until(self.start + at).await;
    }

    /// What a task runs, once it is recorded.
    pub(super) fn workflow_of(&self, task: &TaskId) -> Option<WorkflowName> {
        self.state().tasks.get(task).map(|(workflow, _)| workflow.clone())
    }

    /// How a step of a task fares.
    pub(super) fn temper(&self, task: &TaskId, step: &StepName) -> Option<(StepKey, &Temper)> {
        let key = (self.workflow_of(task)?, step.clone());
        let temper = self.plan.tempers.get(&key)?;
        Some((key, temper))
    }

    /// Chance that falls the same way for an attempt whenever it is asked.
    pub(super) fn draw_for(
        &self,
        task: &TaskId,
        step: &Part,
        action: Action,
        attempt: u32,
    ) -> fastrand::Rng {
        let own = u64::from(recovery::seed(task, step, action, attempt));
        fastrand::Rng::with_seed(self.seed ^ own.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// A task was written.
    pub(super) fn recorded(&self, task: &Task) {
        let note = (task.workflow.clone(), task.due);
        self.state().tasks.insert(task.task_id.clone(), note);
    }

    /// When the first task is due.
    pub(super) fn first_due(&self) -> Option<Timestamp> {
        self.state().tasks.values().filter_map(|(_, due)| *due).min()
    }

    /// This agent's view of its breaker.
    pub(super) fn guard(&self, agent: &AgentName) -> Arc<Guard> {
        let probe_within = self.plan.settings.call_timeout;
        let breaker = Breaker { probe_within, ..Breaker::default() };
        let mut state = self.state();
        let new = || Arc::new(Guard::new(agent.clone(), breaker));
        state.guards.entry(agent.clone()).or_insert_with(new).clone()
    }

    /// Says something to the scheduler, from outside.
    pub(super) fn tell(self: &Arc<Self>, message: &SchedulerMessage, after: Duration) {
        let body = serde_json::to_string(message).unwrap_or_default();
        self.deliver(Role::Scheduler, plain(Queue::Scheduler, body), after);
    }

    /// Submits a task, as a client does.
    pub(super) fn submit(self: &Arc<Self>, submission: &Submission) {
        let body = serde_json::to_string(submission).unwrap_or_default();
        self.deliver(Role::Submission, plain(Queue::Submissions, body), Duration::ZERO);
    }

    /// Carries what a function has sent.
    pub(super) fn carry(world: &Arc<Self>, message: Outgoing) {
        // Whole seconds, rounded up, as on SQS.
        let delay = Duration::from_secs(message.delay.as_millis().div_ceil(1_000) as u64);
        let role = match &message.queue {
            Queue::Submissions => match world.outsider(&message.body) {
                Some((submission, key)) => return world.run_outside(submission, key),
                None => Role::Submission,
            },
            Queue::Scheduler => Role::Scheduler,
            Queue::Agent(name) => Role::Agent(name.clone()),
            Queue::Rejected => {
                let reason = message.attributes.iter().find(|(name, _)| *name == "reason");
                world.state().refused = reason.map(|(_, reason)| reason.clone());
                return;
            }
            Queue::Client(_) => return,
        };
        world.deliver(role, message, delay);
    }

    fn deliver(self: &Arc<Self>, role: Role, message: Outgoing, delay: Duration) {
        let world = self.clone();
        let hop = self.state().visits.sent(&role, delay);
        let delivered = async move {
            tokio::time::sleep(delay + DELIVERY_TAKES).await;
            let subject = Subject::of(&world, &message);
            let account = Account { function: role.function(), subject };
            for receives in 1..=role.receives_max() {
                let begun = Instant::now();
                world.state().meter.received(&account, &message, &world.plan);
                let handled = roles::handle(&world, &role, &account, &message, receives);
                let done = demand::handling(role.clone(), hop, handled).await;
                world.handled(&role, &account, begun.elapsed());
                if done {
                    return;
                }
                let random = world.state().draw.f64();
                tokio::time::sleep(redelivery::delay(receives, random)).await;
            }
        };
        // The receiver is there for as long as the world is.
        let _: Result<_, _> = self.messages.send(delivered.boxed());
    }

    fn handled(&self, role: &Role, account: &Account, took: Duration) {
        let millis = took.as_millis() as u64 + roles::OVERHEAD_MS;
        let mut state = self.state();
        state.millis.push((role.clone(), millis));
        match role {
            Role::Agent(agent) => {
                let (agent, subject) = (agent.clone(), account.subject.clone());
                state.agents_took.push(Took { agent, subject, millis });
            }
            Role::Submission | Role::Scheduler => state.meter.took(account, millis, &self.plan),
        }
    }

    /// The step that a submitted task runs for, if its workflow is not at hand.
    fn outsider(&self, body: &str) -> Option<(Submission, StepKey)> {
        let submission: Submission = serde_json::from_str(body).ok()?;
        let parent = submission.parent.as_ref()?;
        let (key, _) = self.temper(&parent.task_id, &parent.step.step)?;
        self.plan.workflow(&submission.workflow).is_none().then_some((submission, key))
    }

    /// A task whose workflow is not at hand: it takes a while and ends, and is told of again if it is
    /// asked again.
    fn run_outside(self: &Arc<Self>, submission: Submission, key: StepKey) {
        let (Some(parent), Some(temper)) = (submission.parent, self.plan.tempers.get(&key)) else {
            return;
        };
        let reason = || "as forecast".to_owned();
        // Another attempt may be heard, if the one before it was not.
        let known = self.state().children.get(&submission.task_id).copied();
        let known = known.filter(|(_, fate)| *fate != Fate::Silent);
        let (after, outcome) = if submission.undo {
            let (fate, takes) = child_fate(self, &key, temper, Action::Undo);
            let outcome = match fate {
                Fate::Fine | Fate::Silent => ChildOutcome::Undone { reason: reason() },
                Fate::Fails => ChildOutcome::Error { reason: reason(), not_undone: true },
            };
            (takes, outcome)
        } else {
            let (ends, fate) = known.unwrap_or_else(|| {
                let (fate, takes) = child_fate(self, &key, temper, Action::Do);
                (self.now() + takes, fate)
            });
            self.state().children.insert(submission.task_id, (ends, fate));
            let output = temper.output.value(key.1.as_str(), &mut self.state().draw);
            let outcome = match fate {
                Fate::Silent => return,
                Fate::Fails => ChildOutcome::Undone { reason: reason() },
                Fate::Fine => ChildOutcome::Processed { output },
            };
            // Asked while it runs: it tells once, at its end.
            let after = ends.saturating_sub(self.now());
            if known.is_some() && !after.is_zero() {
                return;
            }
            (after, outcome)
        };
        let Parent { task_id, step, incarnation, .. } = parent;
        let (attempt, child, revision) = (None, None, None);
        let ended = ChildEnded { task_id, step, outcome, attempt, child, revision, incarnation };
        self.tell(&SchedulerMessage::ChildEnded(ended), after);
    }
}

fn epoch() -> Timestamp {
    Timestamp::from_second(1_767_225_600).unwrap_or_default()
}

fn plain(queue: Queue, body: String) -> Outgoing {
    Outgoing { queue, body, attributes: Vec::new(), delay: Duration::ZERO }
}
