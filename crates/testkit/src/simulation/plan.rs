//! What a seed stands for: the deployment, its weather, its services, what clients and operators do.
//! All of it is drawn before anything runs.

use std::{collections::BTreeMap, ops::Range, time::Duration};

use anyhow::Result;
use jiff::Timestamp;
use serde_json::{Value, json};
use steward_core::{
    definition::workflow::Workflow,
    limits,
    model::{
        command::Order,
        names::{AgentName, Part, StepName, TaskId},
        time::Timing,
    },
};

use super::{
    bend::{bend, is_sound},
    blueprint::{Blueprint, StepPlan, WorkPlan, millis},
    dice::Dice,
    edits, large,
    late::LatePlan,
    workflows::{Scope, blueprint, span},
};

/// The logical agents, each with a remote service of its own.
pub(super) const AGENTS: [&str; 3] = ["blue", "green", "red"];

/// The workflows that clients submit tasks to.
const CLIENTS: [&str; 2] = ["first", "second"];

/// Virtual milliseconds since the start.
pub(super) type Millis = u64;

pub(super) const SECOND: Millis = 1_000;
pub(super) const MINUTE: Millis = 60 * SECOND;
pub(super) const HOUR: Millis = 60 * MINUTE;
pub(super) const DAY: Millis = 24 * HOUR;

/// The share of worlds whose services are awkward.
const AWKWARD_WORLDS: f64 = 0.6;

/// The worlds begin with the year 2026.
pub(super) const EPOCH_S: i64 = 1_767_225_600;

/// A time of day, counted from the start.
pub(super) fn since_start(time: Timestamp) -> Millis {
    Millis::try_from(time.as_millisecond() - EPOCH_S * 1_000).unwrap_or_default()
}

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
    /// Characters that are added to the reason of a refusal.
    pub(super) reason_chars: usize,
    /// What is awkward about it, in worlds that have such services.
    pub(super) awkward: Option<Awkward>,
}

/// What is awkward about real services that keep their contract; shares from 0 to 1.
#[derive(Debug, Clone, Default)]
pub(super) struct Awkward {
    /// Whether it answers 409 while a call with the same idempotency key is in progress.
    pub(super) conflicts: bool,
    /// Calls that take up to their `call_within`.
    pub(super) slow: f64,
    /// Calls whose caller gets an error while the service goes on: a gateway's timeout, a broken
    /// connection.
    pub(super) gives_up: f64,
    /// Steps whose success is a redirect.
    pub(super) redirect: f64,
    /// Steps whose success has no body.
    pub(super) empty: f64,
    /// Steps whose success has a body that is not JSON.
    pub(super) not_json: f64,
}

/// What a client submits.
#[derive(Debug, Clone)]
pub(super) struct TaskPlan {
    pub(super) task_id: TaskId,
    pub(super) workflow: String,
    pub(super) at: Millis,
    /// When the client submits it again.
    pub(super) again: Vec<Millis>,
    pub(super) input: Value,
    /// Whether its id is one that a step's task may have as well.
    pub(super) rival: bool,
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
    pub(super) blueprints: Vec<Blueprint>,
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
    /// How much time passes before they do, or look for paused tasks.
    pub(super) operators_late: Millis,
    /// How often something is deleted that has expired.
    pub(super) deletes_every: Millis,
    /// When no scheduler and no supervisor is there, so that messages pile up.
    pub(super) away: Option<Range<Millis>>,
    pub(super) late: LatePlan,
    /// Whether operators edit lists.
    pub(super) edits: bool,
    /// Whether its tasks are near the limits of size.
    pub(super) is_large: bool,
}

impl Plan {
    pub(super) fn of(seed: u64) -> Result<Self> {
        // Seeds that are close to each other must not give dice that are.
        let dice = &mut Dice::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5eed);
        let skew = dice.pick(0, &[500, 2 * SECOND, 5 * SECOND]);
        let timing = Timing {
            pickup_within: Duration::from_millis(dice.within(10..=60) * SECOND),
            clock_skew: Duration::from_millis(skew),
            retention: Timing::RETENTION,
        };
        let storm_until = dice.within(1..=60) * MINUTE;
        let mut blueprints = blueprints(dice)?;
        let late = LatePlan::of(seed, storm_until, &mut blueprints);
        let edits = edits::are_edited(seed, &mut blueprints);
        let workflows = blueprints.iter().map(Blueprint::workflow).collect::<Result<_>>()?;
        let mut tasks = tasks(&blueprints, storm_until, dice)?;
        if edits {
            tasks.iter_mut().for_each(edits::lengthen);
        }
        let commands = commands(&tasks, &blueprints, storm_until, dice)?;
        let agents: Vec<AgentName> =
            AGENTS.iter().map(|name| name.parse()).collect::<Result<_, _>>()?;
        let is_awkward = dice.chance(AWKWARD_WORLDS);
        let services = agents
            .iter()
            .map(|name| {
                let mut temper = temper(storm_until, dice);
                temper.awkward = is_awkward.then(|| awkward(dice));
                if is_awkward {
                    temper.reason_chars = limits::REASON_CHARS_MAX;
                }
                if edits {
                    edits::soften(&mut temper);
                }
                (name.clone(), temper)
            })
            .collect();
        let plan = Self {
            timing,
            shards: dice.pick(1, &[2, 4]) as u32,
            storm_until,
            weather: weather(dice),
            services,
            instances: instances(&agents, skew, dice),
            blueprints,
            workflows,
            tasks,
            commands,
            sweep_every: dice.pick(20, &[30, 60]) * SECOND,
            agent_limit: dice.pick(120, &[180, 600]) * SECOND,
            limit: 30 * SECOND,
            attended: dice.chance(0.5) || edits,
            operators_late: dice.pick(0, &[0, HOUR, 2 * DAY, 35 * DAY]),
            deletes_every: dice.pick(MINUTE, &[HOUR, DAY]),
            away: dice.chance(0.05).then(|| {
                let from = dice.within(0..=storm_until);
                from..from + dice.within(1..=15) * MINUTE
            }),
            late,
            edits,
            is_large: false,
        };
        large::enlarge(seed, plan)
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

fn awkward(dice: &mut Dice) -> Awkward {
    let mut share = |often: f64, max: u64| {
        if dice.chance(often) { dice.within(0..=max) as f64 / 1_000.0 } else { 0.0 }
    };
    Awkward {
        slow: share(0.7, 500),
        gives_up: share(0.7, 500),
        redirect: share(0.3, 200),
        empty: share(0.3, 300),
        not_json: share(0.3, 200),
        conflicts: dice.chance(0.7),
    }
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

/// One or two workflows for clients, and those that their steps run. Some worlds have plain calls only.
pub(super) fn blueprints(dice: &mut Dice) -> Result<Vec<Blueprint>> {
    let all_kinds = dice.chance(0.7);
    let mut drawn = Vec::new();
    for name in CLIENTS.iter().take(dice.within(1..=2) as usize) {
        let steps_max = if dice.chance(0.2) { 8 } else { 6 };
        let children = &["leaf", "leaf", "inner", "inner", "absent"];
        drawn.push(blueprint(name, Scope { steps_max, all_kinds, children }, dice)?);
    }
    for drawn in &mut drawn {
        if !all_kinds || dice.chance(0.7) {
            continue;
        }
        let mut bent = drawn.clone();
        bend(&mut bent, dice);
        if is_sound(&bent) {
            *drawn = bent;
        }
    }
    if all_kinds {
        let children = &["leaf", "leaf", "leaf", "absent"];
        drawn.push(blueprint("inner", Scope { steps_max: 3, all_kinds, children }, dice)?);
        drawn.push(blueprint("leaf", Scope { steps_max: 3, all_kinds, children: &[] }, dice)?);
    }
    Ok(drawn)
}

fn tasks(blueprints: &[Blueprint], storm_until: Millis, dice: &mut Dice) -> Result<Vec<TaskPlan>> {
    let clients: Vec<_> =
        blueprints.iter().filter(|b| CLIENTS.contains(&b.name.as_str())).collect();
    let mut tasks = Vec::new();
    for n in 1..=dice.within(1..=8) {
        let Some(blueprint) = dice.place(clients.len()).and_then(|place| clients.get(place)) else {
            continue;
        };
        let at = dice.skewed(storm_until);
        let repeats = if dice.chance(0.3) { dice.within(1..=3) } else { 0 };
        let again = (0..repeats).map(|_| at + dice.skewed(10 * MINUTE)).collect();
        let (task_id, workflow) = (format!("order-{n}").parse()?, blueprint.name.to_string());
        let task = TaskPlan { task_id, workflow, at, again, input: input(dice), rival: false };
        let rival = dice.chance(0.1).then(|| rival(&task, blueprint, dice)).transpose()?;
        tasks.push(task);
        tasks.extend(rival.flatten());
    }
    Ok(tasks)
}

pub(super) fn input(dice: &mut Dice) -> Value {
    let items: Vec<_> = (0..dice.within(0..=5)).map(|_| dice.within(1..=99)).collect();
    json!({ "amount": dice.within(1..=99), "items": items, "wait": millis(span(dice)) })
}

/// A client who hits upon the id that the task of a step has as well.
fn rival(task: &TaskPlan, blueprint: &Blueprint, dice: &mut Dice) -> Result<Option<TaskPlan>> {
    let runs_task = |(_, step): &(&StepName, &StepPlan)| matches!(step.work, WorkPlan::Child(_));
    let Some((name, step)) = blueprint.steps.iter().find(runs_task) else { return Ok(None) };
    let item = step.each.as_ref().map(|_| ":0").unwrap_or_default();
    Ok(Some(TaskPlan {
        task_id: format!("{}:{name}{item}", task.task_id).parse()?,
        workflow: "leaf".to_owned(),
        at: (task.at + dice.skewed(MINUTE)).saturating_sub(dice.skewed(MINUTE)),
        again: Vec::new(),
        input: input(dice),
        rival: true,
    }))
}

fn commands(
    tasks: &[TaskPlan],
    blueprints: &[Blueprint],
    storm_until: Millis,
    dice: &mut Dice,
) -> Result<Vec<CommandPlan>> {
    if dice.chance(0.5) {
        return Ok(Vec::new());
    }
    let of = |name: &str| blueprints.iter().find(|blueprint| blueprint.name.as_str() == name);
    let mut commands = Vec::new();
    for _ in 0..dice.within(1..=8) {
        let Some(task) = dice.place(tasks.len()).and_then(|place| tasks.get(place)) else { break };
        let Some(mut blueprint) = of(&task.workflow) else { break };
        let mut task_id = task.task_id.clone();
        // Now and then it is about the task of one of its steps.
        let steps = blueprint.steps.iter();
        let children = steps.filter_map(|(name, step)| match step.work {
            WorkPlan::Child(child) => Some((name, step, of(child)?)),
            WorkPlan::Call { .. } | WorkPlan::Wait(_) => None,
        });
        let children: Vec<_> = children.collect();
        let child = dice.place(children.len()).filter(|_| dice.chance(0.4));
        if let Some((name, step, child)) = child.and_then(|place| children.get(place)) {
            let item = step.each.as_ref().map(|_| format!(":{}", dice.within(0..=2)));
            task_id = format!("{task_id}:{name}{}", item.unwrap_or_default()).parse()?;
            blueprint = child;
        }
        let order = random_order(blueprint, dice);
        let at = task.at + dice.skewed(storm_until.max(10 * MINUTE));
        let copies = if dice.chance(0.3) { 2 } else { 1 };
        commands.push(CommandPlan { at, task_id, order, copies });
    }
    Ok(commands)
}

/// An order that may make sense, of an operator who knows no more than the task's record says.
pub(super) fn random_order(blueprint: &Blueprint, dice: &mut Dice) -> Order {
    let place = dice.place(blueprint.steps.len());
    let step = place.and_then(|place| blueprint.steps.iter().nth(place));
    let each = step.is_some_and(|(_, step)| step.each.is_some());
    let item = dice.chance(if each { 0.7 } else { 0.05 }).then(|| dice.within(0..=4) as u32);
    let step = step.map(|(name, _)| Part { step: name.clone(), item });
    let step = step.filter(|_| dice.chance(0.6));
    let output = json!({ "by": "hand" });
    match dice.within(0..=9) {
        0 | 1 => Order::Pause,
        2 | 3 => Order::Resume,
        4 => {
            let items: Vec<_> = (0..dice.within(0..=5)).map(|_| dice.within(100..=199)).collect();
            let edit = json!({ "amount": dice.within(100..=199), "items": items });
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
