//! What a seed stands for: the deployment, its weather, its services, what clients and operators do.
//! All of it is drawn before anything runs.

use std::{collections::BTreeMap, ops::Range, time::Duration};

use anyhow::Result;
use steward_core::{
    command::Order,
    names::{AgentName, Part, TaskId},
    ports::Timing,
    workflow::Workflow,
};

use super::{dice::Dice, workflows::workflow};

/// The logical agents, each with a remote service of its own.
pub(super) const AGENTS: [&str; 3] = ["blue", "green", "red"];

/// Virtual milliseconds since the start.
pub(super) type Millis = u64;

pub(super) const SECOND: Millis = 1_000;
pub(super) const MINUTE: Millis = 60 * SECOND;
pub(super) const HOUR: Millis = 60 * MINUTE;

/// What a function instance is deployed as.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Role {
    Submission,
    Scheduler,
    Agent(AgentName),
    Supervisor,
}

/// A function instance: its clock is ahead of the true time by its offset.
#[derive(Debug, Clone)]
pub(super) struct InstancePlan {
    pub(super) role: Role,
    pub(super) name: String,
    pub(super) clock_ahead: Duration,
}

/// How often things go wrong while the storm lasts; shares from 0 to 1.
#[derive(Debug, Clone, Default)]
pub(super) struct Weather {
    /// Port calls that fail before they take effect.
    pub(super) fail_before: f64,
    /// Port calls that take effect, and whose answer is lost.
    pub(super) fail_after: f64,
    /// Port calls at which the instance dies, before or after.
    pub(super) die: f64,
    /// Port calls that take long.
    pub(super) slow: f64,
    /// Messages that arrive twice.
    pub(super) duplicate: f64,
    /// Messages that are on their way for long.
    pub(super) delay: f64,
    /// How long that may be.
    pub(super) delay_max: Millis,
    /// Mean time between deaths of instances, whatever they are doing; zero if they live.
    pub(super) killed_every: Millis,
}

impl Weather {
    /// Whether the network and the instances do nothing wrong; services still may.
    pub(super) fn is_calm(&self) -> bool {
        let shares =
            [self.fail_before, self.fail_after, self.die, self.slow, self.duplicate, self.delay];
        shares.iter().all(|share| *share == 0.0) && self.killed_every == 0
    }
}

/// How a remote service behaves; shares from 0 to 1.
#[derive(Debug, Clone, Default)]
pub(super) struct Temper {
    /// The longest it usually takes.
    pub(super) latency_max: Millis,
    /// Calls that fail before they take effect.
    pub(super) fail: f64,
    /// Calls that take effect and answer with an error.
    pub(super) lie: f64,
    /// Calls that are never answered, in effect or not.
    pub(super) hang: f64,
    /// Steps that it refuses for good.
    pub(super) refuse: f64,
    /// Undos that it refuses for good.
    pub(super) refuse_undo: f64,
    /// When it is down.
    pub(super) down: Vec<Range<Millis>>,
}

/// What a client submits.
#[derive(Debug, Clone)]
pub(super) struct TaskPlan {
    pub(super) task_id: TaskId,
    pub(super) workflow: String,
    pub(super) at: Millis,
    /// When the client submits it again.
    pub(super) again: Vec<Millis>,
    pub(super) amount: u64,
}

/// What an operator asks for.
#[derive(Debug, Clone)]
pub(super) struct CommandPlan {
    pub(super) at: Millis,
    pub(super) task_id: TaskId,
    pub(super) order: Order,
    pub(super) copies: u64,
}

/// Everything that a seed decides beforehand.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) timing: Timing,
    pub(super) shards: u32,
    /// When all faults cease, but for refusals.
    pub(super) storm_until: Millis,
    pub(super) weather: Weather,
    pub(super) instances: Vec<InstancePlan>,
    pub(super) services: BTreeMap<AgentName, Temper>,
    pub(super) workflows: Vec<Workflow>,
    pub(super) tasks: Vec<TaskPlan>,
    pub(super) commands: Vec<CommandPlan>,
    pub(super) sweep_every: Millis,
    /// How long an agent may take for a batch.
    pub(super) agent_limit: Millis,
    /// How long the other functions may.
    pub(super) limit: Millis,
    /// Whether operators attend to tasks in Error once it is quiet.
    pub(super) attended: bool,
}

impl Plan {
    pub(super) fn of(seed: u64) -> Result<Self> {
        // Seeds that are close to each other must not give dice that are.
        let dice = &mut Dice::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5eed);
        let skew = dice.pick(0, &[500, 2 * SECOND, 5 * SECOND]);
        let timing = Timing {
            pickup_within: Duration::from_millis(dice.within(10..=60) * SECOND),
            clock_skew: Duration::from_millis(skew),
        };
        let storm_until = dice.within(1..=60) * MINUTE;
        let mut workflows = Vec::new();
        for name in ["first", "second"].iter().take(dice.within(1..=2) as usize) {
            workflows.push(workflow(name, dice)?);
        }
        let tasks = tasks(&workflows, storm_until, dice)?;
        let commands = commands(&tasks, &workflows, storm_until, dice);
        let agents: Vec<AgentName> =
            AGENTS.iter().map(|name| name.parse()).collect::<Result<_, _>>()?;
        let services =
            agents.iter().map(|name| (name.clone(), temper(storm_until, dice))).collect();
        Ok(Self {
            timing,
            shards: dice.pick(1, &[2, 4]) as u32,
            storm_until,
            weather: weather(dice),
            services,
            instances: instances(&agents, skew, dice),
            workflows,
            tasks,
            commands,
            sweep_every: dice.pick(20, &[30, 60]) * SECOND,
            agent_limit: dice.pick(60, &[180, 600]) * SECOND,
            limit: 30 * SECOND,
            attended: dice.chance(0.5),
        })
    }
}

fn weather(dice: &mut Dice) -> Weather {
    if dice.chance(0.1) {
        return Weather::default();
    }
    // Not everything goes wrong in every world: rare paths need the common ones to work.
    let mut share = |often: f64, max: u64| {
        if dice.chance(often) { dice.skewed(max) as f64 / 1_000.0 } else { 0.0 }
    };
    let mut weather = Weather {
        fail_before: share(0.6, 100),
        fail_after: share(0.6, 100),
        die: share(0.6, 50),
        slow: share(0.5, 100),
        duplicate: share(0.6, 300),
        delay: share(0.6, 300),
        ..Weather::default()
    };
    weather.delay_max = dice.pick(2, &[10, 60, 300]) * SECOND;
    weather.killed_every = dice.pick(0, &[0, 20, 60, 300]) * SECOND;
    weather
}

fn temper(storm_until: Millis, dice: &mut Dice) -> Temper {
    let mut share = |often: f64, max: u64| {
        if dice.chance(often) { dice.within(0..=max) as f64 / 1_000.0 } else { 0.0 }
    };
    let mut temper = Temper {
        fail: share(0.5, 600),
        lie: share(0.5, 500),
        hang: share(0.5, 400),
        refuse: share(0.3, 300),
        refuse_undo: share(0.1, 300),
        ..Temper::default()
    };
    temper.latency_max = dice.pick(50, &[SECOND, 10 * SECOND, 40 * SECOND]);
    if dice.chance(0.25) {
        let from = dice.within(0..=storm_until);
        temper.down.push(from..from + dice.skewed(30 * MINUTE));
    }
    temper
}

fn instances(agents: &[AgentName], skew: Millis, dice: &mut Dice) -> Vec<InstancePlan> {
    let mut instances = Vec::new();
    let mut deploy = |role: &Role, name: &str, count: u64| {
        for n in 1..=count {
            // Also less than a millisecond, which is what is stored.
            let ahead = dice.within(0..=skew * 1_000_000);
            let clock_ahead = Duration::from_nanos(ahead);
            instances.push(InstancePlan {
                role: role.clone(),
                name: format!("{name}-{n}"),
                clock_ahead,
            });
        }
    };
    deploy(&Role::Submission, "submission", 2);
    deploy(&Role::Scheduler, "scheduler", 3);
    for agent in agents {
        deploy(&Role::Agent(agent.clone()), &format!("agent-{agent}"), 2);
    }
    deploy(&Role::Supervisor, "supervisor", 2);
    instances
}

fn tasks(workflows: &[Workflow], storm_until: Millis, dice: &mut Dice) -> Result<Vec<TaskPlan>> {
    let mut tasks = Vec::new();
    for n in 1..=dice.within(1..=8) {
        let Some(workflow) = dice.place(workflows.len()).and_then(|place| workflows.get(place))
        else {
            continue;
        };
        let at = dice.skewed(storm_until);
        let repeats = if dice.chance(0.3) { dice.within(1..=3) } else { 0 };
        let again = (0..repeats).map(|_| at + dice.skewed(10 * MINUTE)).collect();
        let amount = dice.within(1..=99);
        let (task_id, workflow) = (format!("order-{n}").parse()?, workflow.name.to_string());
        tasks.push(TaskPlan { task_id, workflow, at, again, amount });
    }
    Ok(tasks)
}

fn commands(
    tasks: &[TaskPlan],
    workflows: &[Workflow],
    storm_until: Millis,
    dice: &mut Dice,
) -> Vec<CommandPlan> {
    if dice.chance(0.5) {
        return Vec::new();
    }
    let mut commands = Vec::new();
    for _ in 0..dice.within(1..=8) {
        let Some(task) = dice.place(tasks.len()).and_then(|place| tasks.get(place)) else { break };
        let workflow = workflows.iter().find(|workflow| workflow.name.as_str() == task.workflow);
        let order = workflow.map(|workflow| random_order(workflow, dice));
        let at = task.at + dice.skewed(storm_until.max(10 * MINUTE));
        let copies = if dice.chance(0.3) { 2 } else { 1 };
        let task_id = task.task_id.clone();
        commands.extend(order.map(|order| CommandPlan { at, task_id, order, copies }));
    }
    commands
}

/// An order that may make sense, of an operator who knows no more than the task's record says.
pub(super) fn random_order(workflow: &Workflow, dice: &mut Dice) -> Order {
    let place = dice.place(workflow.steps.len());
    let step = place
        .and_then(|place| workflow.steps.get_index(place))
        .map(|(name, _)| Part::from(name.clone()));
    let step = step.filter(|_| dice.chance(0.6));
    let output = serde_json::json!({ "by": "hand" });
    match dice.within(0..=9) {
        0 | 1 => Order::Pause,
        2 | 3 => Order::Resume,
        4 => {
            let edit = serde_json::json!({ "amount": dice.within(100..=199) });
            let input = dice.chance(0.4).then_some(edit);
            Order::Resubmit { step, input, did_not_run: false }
        }
        5 => Order::Resubmit { step: None, input: None, did_not_run: false },
        6 => Order::Skip { step, did_not_run: false },
        7 => Order::Complete { step, output },
        8 => Order::Undo,
        _ => Order::Cancel,
    }
}
