//! Runs with long lists. In a few runs one task has a step with hundreds of items, whose list is stored in slices. Operators
//! pause and undo such tasks, complete items, and [edit their lists](super::list_edits).

use anyhow::Result;
use serde_json::{Value, json};
use steward_core::model::{command::CommandAction, names::Part};

use super::{
    agents_plan::AGENTS,
    blueprint::{Blueprint, ForEachPlan, ItemsPlan, StepPlan, UndoPlan},
    late_message_plan::LateMessagePlan,
    plan::{CommandPlan, ServiceProfile, SimulationPlan, TaskPlan, operator_output},
    random::SeededRandom,
    virtual_time::{HOUR, MINUTE, SECOND},
};

/// One run of this many has a long list.
const ONE_OF: u64 = 50;

/// The workflow of the task with a long list.
const WORKFLOW: &str = "first";

/// The step with the items.
const STEP: &str = "b";

/// The largest share of port calls that fail or crash the instance.
const FAULT_SHARE_MAX: f64 = 0.02;

/// Replaces all tasks by one with a long list in a few runs, drawn from a separate generator.
pub(super) fn lengthen(seed: u64, plan: SimulationPlan) -> Result<SimulationPlan> {
    let random = &mut SeededRandom::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x71de);
    if plan.tasks_near_size_limits || random.within(1..=ONE_OF) > 1 {
        return Ok(plan);
    }
    let operators_edit_lists = random.chance(0.5);
    // Operators edit the lists of tasks in which an item failed.
    let attempts = if operators_edit_lists { 2 } else { 4 };
    let blueprint = blueprint(attempts, random)?;
    let count = random.within(150..=400);
    let at = random.skewed(MINUTE);
    let input =
        json!({ "amount": random.within(1..=99), "items": list(count, random), "wait": "1s" });
    let task = TaskPlan::once("order-1".parse()?, WORKFLOW, at, input);
    let commands = commands(&task, count, random)?;
    let mut plan = SimulationPlan {
        workflows: vec![blueprint.workflow()?],
        blueprints: vec![blueprint],
        tasks: vec![task],
        commands,
        late_messages: LateMessagePlan::default(),
        payloads: None,
        operators_act_when_quiet: true,
        operators_edit_lists,
        ..plan
    };
    // A redelivered wake repeats the requests of all items in progress. With more faults than these, a run takes minutes.
    let faults = &mut plan.faults;
    for share in [&mut faults.fail_before, &mut faults.fail_after, &mut faults.crash] {
        *share = share.min(FAULT_SHARE_MAX);
    }
    plan.services.values_mut().for_each(|profile| *profile = often_available(random));
    Ok(plan)
}

/// A service that fails for a few items, and never permanently, so that most of the task succeeds.
fn often_available(random: &mut SeededRandom) -> ServiceProfile {
    ServiceProfile {
        latency_max: random.pick(50, &[SECOND]),
        fail: 0.05,
        no_response: 0.005,
        ..ServiceProfile::default()
    }
}

/// A step before the items, and one that reads their outputs.
fn blueprint(attempts: u64, random: &mut SeededRandom) -> Result<Blueprint> {
    let then = random.pick("alert", &["alert", "undo"]);
    let mut steps = std::collections::BTreeMap::new();
    steps.insert("a".parse()?, step(&[], then, attempts, random)?);
    let each = ForEachPlan { items: ItemsPlan::Input, at_once: random.within(1..=20) as usize };
    let items = StepPlan { each: Some(each), ..step(&["a"], then, attempts, random)? };
    steps.insert(STEP.parse()?, items);
    let reads = vec![STEP.parse()?];
    steps.insert("c".parse()?, StepPlan { reads, ..step(&[STEP], then, attempts, random)? });
    Ok(Blueprint::of(WORKFLOW.parse()?, 12 * HOUR, steps))
}

fn step(after: &[&str], then: &str, attempts: u64, random: &mut SeededRandom) -> Result<StepPlan> {
    let [agent, others @ ..] = AGENTS;
    let agent = random.pick(agent, &others);
    let backoff = json!({ "first": "1s", "rate": 1.0, "max": "1s", "jitter": false });
    let recovery = |then| json!({ "attempts": attempts, "backoff": backoff, "then": then });
    Ok(StepPlan {
        complete_within: Some("60s"),
        recovery: Some(recovery(then)),
        undo: Some(UndoPlan {
            complete_within: Some("60s"),
            recovery: Some(recovery("alert")),
            reads_own: false,
        }),
        ..StepPlan::call(agent, after.iter().map(|name| name.parse()).collect::<Result<_, _>>()?)
    })
}

/// A list of distinct items. Some lists have items of very different sizes.
fn list(count: u64, random: &mut SeededRandom) -> Vec<Value> {
    let differ = random.chance(0.5);
    let item = |n: u64| {
        let bytes = if differ && n % 50 == 7 { 1_000 } else { 20 };
        json!({ "n": n, "pad": "x".repeat(bytes) })
    };
    (0..count).map(item).collect()
}

/// Commands for the task while its items run.
fn commands(task: &TaskPlan, count: u64, random: &mut SeededRandom) -> Result<Vec<CommandPlan>> {
    let mut at = task.at;
    let mut commands = Vec::new();
    for _ in 0..random.within(0..=4) {
        at += random.within(SECOND..=2 * MINUTE);
        let item = u32::try_from(random.within(0..=count - 1)).ok();
        let part = || Ok::<_, anyhow::Error>(Some(Part { step: STEP.parse()?, item }));
        let action = match random.within(0..=5) {
            0 => CommandAction::Pause,
            1 | 2 => CommandAction::Resume,
            3 => CommandAction::Complete { step: part()?, output: operator_output() },
            4 => CommandAction::Resubmit { step: None, input: None, did_not_run: false },
            _ => CommandAction::Undo,
        };
        let task_id = task.task_id.clone();
        commands.push(CommandPlan { at, task_id, action, copies: 1 });
    }
    Ok(commands)
}
