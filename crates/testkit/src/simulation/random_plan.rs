//! Draws the plan of a run from the seed.

use std::{collections::BTreeMap, time::Duration};

use anyhow::Result;
use serde_json::{Value, json};
use steward_core::{
    limits,
    model::{
        command::CommandAction,
        names::{AgentName, Part, StepName, Tenant},
        time::Timing,
    },
};

use super::{
    agents_plan::AGENTS,
    blueprint::{Blueprint, StepPlan, WorkPlan},
    event_wait_plan, large_tasks,
    late_message_plan::LateMessagePlan,
    lifecycle_checks, list_edit_plan,
    mutation::{is_valid, mutate},
    passed_over_plan,
    payload_plan::{DocumentNumbers, PayloadPlan},
    plan::{
        CommandPlan, InfrastructureFaults, InstancePlan, InstanceRole, ServiceProfile,
        ServiceQuirks, SimulationPlan, TaskPlan, operator_output,
    },
    provider_rules,
    random::SeededRandom,
    random_workflows::{WorkflowBounds, blueprint, span},
    rate_limits, rounds_plan,
    virtual_time::{DAY, HOUR, MINUTE, Millis, SECOND, millis},
    wide_lists,
};

/// The workflows whose tasks clients submit.
const CLIENTS: [&str; 2] = ["first", "second"];

/// The share of runs whose services have quirks.
const QUIRKS_SHARE: f64 = 0.6;

impl SimulationPlan {
    pub(super) fn of(seed: u64) -> Result<Self> {
        // Consecutive seeds must give independent generators.
        let random = &mut SeededRandom::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5eed);
        let skew = random.pick(0, &[500, 2 * SECOND, 5 * SECOND]);
        let timing = Timing {
            pickup_within: Duration::from_millis(random.within(10..=60) * SECOND),
            clock_skew: Duration::from_millis(skew),
            retention: Timing::RETENTION,
        };
        let faults_until = random.within(1..=60) * MINUTE;
        let mut blueprints = blueprints(random)?;
        let late_messages = LateMessagePlan::of(seed, faults_until, &mut blueprints);
        let operators_edit_lists = list_edit_plan::draw_list_edits(seed, &mut blueprints);
        lifecycle_checks::choose_events(seed, &mut blueprints);
        if !operators_edit_lists {
            event_wait_plan::choose_event_waits(seed, &mut blueprints);
        }
        let payloads = PayloadPlan::of(seed, &mut blueprints, faults_until);
        provider_rules::choose_steps(seed, &mut blueprints);
        if !operators_edit_lists && payloads.is_none() {
            passed_over_plan::draw_passed_over(seed, &mut blueprints);
            rounds_plan::draw_rounds(seed, &mut blueprints);
        }
        let workflows = blueprints.iter().map(Blueprint::workflow).collect::<Result<_>>()?;
        let mut tasks = tasks(&blueprints, faults_until, random)?;
        if payloads.is_some() {
            add_documents(seed, &mut tasks);
        }
        if operators_edit_lists {
            tasks.iter_mut().for_each(list_edit_plan::lengthen_list);
        }
        let commands = commands(&tasks, &blueprints, faults_until, random)?;
        let agents: Vec<AgentName> =
            AGENTS.iter().map(|name| name.parse()).collect::<Result<_, _>>()?;
        let mut services = services(&agents, faults_until, operators_edit_lists, random);
        if !operators_edit_lists {
            provider_rules::choose_long_pauses(seed, &mut services);
        }
        let plan = Self {
            timing,
            shards: random.pick(1, &[2, 4]) as u32,
            faults_until,
            faults: faults(random),
            services,
            rate_limits: rate_limits::draw(seed, &agents)?,
            instances: instances(&agents, skew, random),
            blueprints,
            workflows,
            tasks,
            commands,
            sweep_every: random.pick(20, &[30, 60]) * SECOND,
            agent_timeout: random.pick(120, &[180, 600]) * SECOND,
            function_timeout: 30 * SECOND,
            operators_act_when_quiet: random.chance(0.5) || operators_edit_lists,
            operator_delay: random.pick(0, &[0, HOUR, 2 * DAY, 35 * DAY]),
            delete_expired_every: random.pick(MINUTE, &[HOUR, DAY]),
            outage: random.chance(0.05).then(|| {
                let from = random.within(0..=faults_until);
                from..from + random.within(1..=15) * MINUTE
            }),
            late_messages,
            payloads,
            operators_edit_lists,
            tasks_near_size_limits: false,
        };
        wide_lists::lengthen(seed, large_tasks::enlarge(seed, plan)?)
    }
}

fn services(
    agents: &[AgentName],
    faults_until: Millis,
    operators_edit_lists: bool,
    random: &mut SeededRandom,
) -> BTreeMap<AgentName, ServiceProfile> {
    let has_quirks = random.chance(QUIRKS_SHARE);
    let profile = |name: &AgentName| {
        let mut profile = profile(faults_until, random);
        profile.quirks = has_quirks.then(|| quirks(random));
        if has_quirks {
            profile.reason_chars = limits::REASON_CHARS_MAX;
        }
        if operators_edit_lists {
            list_edit_plan::make_transient(&mut profile);
        }
        (name.clone(), profile)
    };
    agents.iter().map(profile).collect()
}

fn faults(random: &mut SeededRandom) -> InfrastructureFaults {
    if random.chance(0.1) {
        return InfrastructureFaults::default();
    }
    // Not every fault occurs in every run: rare paths are only reached when the common ones work.
    let mut share = |often: f64, max: u64| {
        if random.chance(often) { random.skewed(max) as f64 / 1_000.0 } else { 0.0 }
    };
    let mut faults = InfrastructureFaults {
        fail_before: share(0.6, 100),
        fail_after: share(0.6, 100),
        crash: share(0.6, 50),
        slow: share(0.5, 100),
        duplicate: share(0.6, 300),
        delay: share(0.6, 300),
        ..InfrastructureFaults::default()
    };
    faults.delay_max = random.pick(2, &[10, 60, 300]) * SECOND;
    faults.mean_time_between_crashes = random.pick(0, &[0, 20, 60, 300]) * SECOND;
    faults
}

fn profile(faults_until: Millis, random: &mut SeededRandom) -> ServiceProfile {
    let mut share = |often: f64, max: u64| {
        if random.chance(often) { random.within(0..=max) as f64 / 1_000.0 } else { 0.0 }
    };
    let mut profile = ServiceProfile {
        fail: share(0.5, 600),
        false_error: share(0.5, 500),
        no_response: share(0.5, 400),
        refuse: share(0.3, 300),
        refuse_undo: share(0.1, 300),
        throttle: share(0.3, 300),
        ..ServiceProfile::default()
    };
    profile.latency_max = random.pick(50, &[SECOND, 10 * SECOND, 40 * SECOND]);
    if random.chance(0.25) {
        let from = random.within(0..=faults_until);
        profile.down.push(from..from + random.skewed(30 * MINUTE));
    }
    if random.chance(0.4) {
        // Many tasks begin in the first minutes.
        let from = random.skewed(faults_until);
        profile.unreachable.push(from..from + random.within(1..=30) * MINUTE);
    }
    profile
}

fn quirks(random: &mut SeededRandom) -> ServiceQuirks {
    let mut share = |often: f64, max: u64| {
        if random.chance(often) { random.within(0..=max) as f64 / 1_000.0 } else { 0.0 }
    };
    ServiceQuirks {
        slow: share(0.7, 500),
        disconnects: share(0.7, 500),
        redirect: share(0.3, 200),
        empty: share(0.3, 300),
        not_json: share(0.3, 200),
        stores_answers: share(0.3, 300),
        conflicts: random.chance(0.7),
        forgets_refusals: random.chance(0.5),
    }
}

fn instances(agents: &[AgentName], skew: Millis, random: &mut SeededRandom) -> Vec<InstancePlan> {
    let mut instances = Vec::new();
    let mut deploy = |role: &InstanceRole, name: &str, count: u64| {
        for n in 1..=count {
            // Offsets below a millisecond are included: stored times have milliseconds.
            let ahead = random.within(0..=skew * 1_000_000);
            let clock_offset = Duration::from_nanos(ahead);
            instances.push(InstancePlan {
                role: role.clone(),
                name: format!("{name}-{n}"),
                clock_offset,
            });
        }
    };
    deploy(&InstanceRole::Submission, "submission", 2);
    deploy(&InstanceRole::Scheduler, "scheduler", 3);
    for agent in agents {
        deploy(&InstanceRole::Agent(agent.clone()), &format!("agent-{agent}"), 2);
    }
    deploy(&InstanceRole::Supervisor, "supervisor", 2);
    instances
}

/// One or two workflows for clients, and the workflows of their child tasks. Some runs have only steps that are plain
/// calls.
pub(super) fn blueprints(random: &mut SeededRandom) -> Result<Vec<Blueprint>> {
    let all_kinds = random.chance(0.7);
    let mut drawn = Vec::new();
    for name in CLIENTS.iter().take(random.within(1..=2) as usize) {
        let steps_max = if random.chance(0.2) { 8 } else { 6 };
        let children = &["leaf", "leaf", "inner", "inner", "absent"];
        drawn.push(blueprint(name, WorkflowBounds { steps_max, all_kinds, children }, random)?);
    }
    for drawn in &mut drawn {
        if !all_kinds || random.chance(0.7) {
            continue;
        }
        let mut mutated = drawn.clone();
        mutate(&mut mutated, random);
        if is_valid(&mutated) {
            *drawn = mutated;
        }
    }
    if all_kinds {
        let children = &["leaf", "leaf", "leaf", "absent"];
        drawn.push(blueprint(
            "inner",
            WorkflowBounds { steps_max: 3, all_kinds, children },
            random,
        )?);
        drawn.push(blueprint(
            "leaf",
            WorkflowBounds { steps_max: 3, all_kinds, children: &[] },
            random,
        )?);
    }
    Ok(drawn)
}

fn tasks(
    blueprints: &[Blueprint],
    faults_until: Millis,
    random: &mut SeededRandom,
) -> Result<Vec<TaskPlan>> {
    let clients: Vec<_> =
        blueprints.iter().filter(|b| CLIENTS.contains(&b.name.as_str())).collect();
    let mut tasks = Vec::new();
    for n in 1..=random.within(1..=8) {
        let Some(blueprint) = random.index(clients.len()).and_then(|index| clients.get(index))
        else {
            continue;
        };
        let at = random.skewed(faults_until);
        let repeats = if random.chance(0.3) { random.within(1..=3) } else { 0 };
        let repeated_at = (0..repeats).map(|_| at + random.skewed(10 * MINUTE)).collect();
        let (task_id, workflow) = (format!("order-{n}").parse()?, blueprint.name.to_string());
        let task = TaskPlan {
            task_id,
            workflow,
            at,
            repeated_at,
            input: input(random),
            id_collision: false,
            tenant: tenant(n),
        };
        let id_collision =
            random.chance(0.1).then(|| id_collision(&task, blueprint, random)).transpose()?;
        tasks.push(task);
        tasks.extend(id_collision.flatten());
    }
    Ok(tasks)
}

pub(super) fn input(random: &mut SeededRandom) -> Value {
    let items: Vec<_> = (0..random.within(0..=5)).map(|_| random.within(1..=99)).collect();
    json!({ "amount": random.within(1..=99), "items": items, "wait": millis(span(random)) })
}

/// Gives each task the input of a run with payloads. Has its own random generator.
fn add_documents(seed: u64, tasks: &mut [TaskPlan]) {
    let random = &mut SeededRandom::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0xd0c5);
    let mut numbers = DocumentNumbers::default();
    for task in tasks {
        if let Some(fields) = task.input.as_object_mut() {
            fields.insert("document".to_owned(), numbers.document(random));
        }
    }
}

/// A client's task whose id is the same as the id of a child task.
fn id_collision(
    task: &TaskPlan,
    blueprint: &Blueprint,
    random: &mut SeededRandom,
) -> Result<Option<TaskPlan>> {
    let runs_task = |(_, step): &(&StepName, &StepPlan)| matches!(step.work, WorkPlan::Child(_));
    let Some((name, step)) = blueprint.steps.iter().find(runs_task) else { return Ok(None) };
    let item = step.each.as_ref().map(|_| ":0").unwrap_or_default();
    let task_id = format!("{}:{name}{item}", task.task_id).parse()?;
    let at = (task.at + random.skewed(MINUTE)).saturating_sub(random.skewed(MINUTE));
    let client_task = TaskPlan::once(task_id, "leaf", at, input(random));
    Ok(Some(TaskPlan { id_collision: true, ..client_task }))
}

/// Two of three tasks have a tenant. It needs no random number, so that a seed keeps its plan.
fn tenant(n: u64) -> Option<Tenant> {
    let names = [None, Some("acme"), Some("globex")];
    let name = *names.iter().cycle().nth(usize::try_from(n % 3).ok()?)?;
    name?.parse().ok()
}

fn commands(
    tasks: &[TaskPlan],
    blueprints: &[Blueprint],
    faults_until: Millis,
    random: &mut SeededRandom,
) -> Result<Vec<CommandPlan>> {
    if random.chance(0.5) {
        return Ok(Vec::new());
    }
    let of = |name: &str| blueprints.iter().find(|blueprint| blueprint.name.as_str() == name);
    let mut commands = Vec::new();
    for _ in 0..random.within(1..=8) {
        let Some(task) = random.index(tasks.len()).and_then(|index| tasks.get(index)) else {
            break;
        };
        let Some(mut blueprint) = of(&task.workflow) else { break };
        let mut task_id = task.task_id.clone();
        // Some commands are for the child task of a step.
        let steps = blueprint.steps.iter();
        let children = steps.filter_map(|(name, step)| match step.work {
            WorkPlan::Child(child) => Some((name, step, of(child)?)),
            WorkPlan::Call { .. } | WorkPlan::Wait(_) | WorkPlan::Event(_) => None,
        });
        let children: Vec<_> = children.collect();
        let child = random.index(children.len()).filter(|_| random.chance(0.4));
        if let Some((name, step, child)) = child.and_then(|index| children.get(index)) {
            let item = step.each.as_ref().map(|_| format!(":{}", random.within(0..=2)));
            task_id = format!("{task_id}:{name}{}", item.unwrap_or_default()).parse()?;
            blueprint = child;
        }
        let action = random_action(blueprint, random);
        let at = task.at + random.skewed(faults_until.max(10 * MINUTE));
        let copies = if random.chance(0.3) { 2 } else { 1 };
        commands.push(CommandPlan { at, task_id, action, copies });
    }
    Ok(commands)
}

/// A random action that may be valid. It uses only what an operator sees in the task's record.
pub(super) fn random_action(blueprint: &Blueprint, random: &mut SeededRandom) -> CommandAction {
    let index = random.index(blueprint.steps.len());
    let step = index.and_then(|index| blueprint.steps.iter().nth(index));
    let each = step.is_some_and(|(_, step)| step.each.is_some());
    let item = random.chance(if each { 0.7 } else { 0.05 }).then(|| random.within(0..=4) as u32);
    let step = step.map(|(name, _)| Part { step: name.clone(), item });
    let step = step.filter(|_| random.chance(0.6));
    let output = operator_output();
    match random.within(0..=10) {
        0 | 1 => CommandAction::Pause,
        2 | 3 => CommandAction::Resume,
        4 => {
            let items: Vec<_> =
                (0..random.within(0..=5)).map(|_| random.within(100..=199)).collect();
            let edit = json!({ "amount": random.within(100..=199), "items": items });
            let input = random.chance(0.4).then_some(edit);
            CommandAction::Resubmit { step, input, did_not_run: false }
        }
        // An empty edit asks for a new idempotency key.
        5 => CommandAction::Resubmit {
            step: None,
            input: index.is_some_and(|index| index % 3 == 0).then(|| json!({})),
            did_not_run: false,
        },
        6 => CommandAction::Skip { step, did_not_run: false },
        7 => CommandAction::Complete { step, output },
        8 => CommandAction::Undo,
        9 => CommandAction::Resolve,
        _ => CommandAction::Cancel,
    }
}
