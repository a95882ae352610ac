//! Runs close to the size limits. A few runs have tasks with parallel steps and many items, whose names, ids and inputs
//! have the maximum length. Services refuse many items with long reasons, and operators edit inputs and complete items
//! with long ids and texts. The services are fast and have no quirks, so that such a run stays cheap.

use anyhow::Result;
use serde_json::{Value, json};
use steward_core::{
    limits,
    model::{
        command::CommandAction,
        names::{Part, StepName},
    },
};

use super::{
    agents_plan::AGENTS,
    blueprint::{Blueprint, ForEachPlan, ItemsPlan, StepPlan, UndoPlan},
    late_message_plan::LateMessagePlan,
    plan::{CommandPlan, ServiceProfile, SimulationPlan, TaskPlan, operator_output},
    random::SeededRandom,
    virtual_time::{MINUTE, SECOND},
};

/// One run of this many is large.
const ONE_OF: u64 = 300;

/// The largest number of items in one task, over all steps. More would make the run too slow.
const PARTS_MAX: u64 = 160;

/// The workflow of the large tasks.
const WORKFLOW: &str = "first";

/// The bytes of a submission without the texts of its input.
const SUBMISSION_BYTES: usize = 2_000;

/// Characters of three bytes each.
const WORDS: &str = "：在庫がありません";

/// Replaces all tasks by large ones in a few runs, drawn from a separate generator.
pub(super) fn enlarge(seed: u64, plan: SimulationPlan) -> Result<SimulationPlan> {
    let random = &mut SeededRandom::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x1a46e);
    if random.within(1..=ONE_OF) > 1 {
        return Ok(plan);
    }
    let count = random.within(40..=80);
    let blueprint = blueprint(count, random)?;
    let tasks: Vec<_> =
        (1..=random.pick(1, &[1, 2])).map(|n| task(n, count, random)).collect::<Result<_>>()?;
    let commands =
        tasks.iter().flat_map(|task| commands(task, &blueprint, count, random)).collect();
    let mut plan = SimulationPlan {
        tasks,
        commands,
        late_messages: LateMessagePlan::default(),
        payloads: None,
        operators_act_when_quiet: true,
        ..plan
    };
    plan.workflows = vec![blueprint.workflow()?];
    plan.blueprints = vec![blueprint];
    plan.services.values_mut().for_each(|profile| *profile = refusing(random));
    (plan.operators_edit_lists, plan.tasks_near_size_limits) = (false, true);
    Ok(plan)
}

fn blueprint(items: u64, random: &mut SeededRandom) -> Result<Blueprint> {
    let mut blueprint = Blueprint::of(WORKFLOW.parse()?, 20 * MINUTE, Default::default());
    let then = random.pick("alert", &["alert", "undo"]);
    for n in 1..=PARTS_MAX / items {
        let name = format!("step_{n:_>width$}", width = limits::NAME_CHARS_MAX - "step_".len());
        blueprint.steps.insert(name.parse()?, step(then, random));
    }
    Ok(blueprint)
}

fn step(then: &str, random: &mut SeededRandom) -> StepPlan {
    let [agent, others @ ..] = AGENTS;
    let agent = random.pick(agent, &others);
    let each = ForEachPlan { items: ItemsPlan::Input, at_once: limits::ITEMS_AT_ONCE_MAX as usize };
    StepPlan {
        each: Some(each),
        complete_within: Some("5m"),
        recovery: Some(recovery(then, random)),
        undo: Some(UndoPlan {
            complete_within: Some("5m"),
            recovery: Some(recovery("alert", random)),
            reads_own: false,
        }),
        ..StepPlan::call(agent, Vec::new())
    }
}

fn recovery(then: &str, random: &mut SeededRandom) -> Value {
    let backoff = json!({ "first": "1s", "rate": 1.0, "max": "1s", "jitter": false });
    json!({ "attempts": random.within(1..=2), "backoff": backoff, "then": then })
}

/// A task with an id of the maximum length, and often an input of the maximum size.
fn task(n: u64, items: u64, random: &mut SeededRandom) -> Result<TaskPlan> {
    let width = limits::TASK_ID_CHARS_MAX - "order-".len();
    let list: Vec<_> = (0..items).map(|_| random.within(1..=99)).collect();
    let bytes = random.pick(0, &[limits::DOCUMENT_BYTES_MAX - SUBMISSION_BYTES]);
    let input = json!({
        "amount": random.within(1..=99), "items": list, "wait": "1s", "note": words(bytes / 3),
    });
    let task_id = format!("order-{n:-<width$}").parse()?;
    Ok(TaskPlan::once(task_id, WORKFLOW, random.skewed(MINUTE), input))
}

/// Resubmit commands with edited input, completed items, and an undo.
fn commands(
    task: &TaskPlan,
    blueprint: &Blueprint,
    items: u64,
    random: &mut SeededRandom,
) -> Vec<CommandPlan> {
    let mut at = task.at + MINUTE;
    let mut command = |action, random: &mut SeededRandom| {
        at += random.within(30 * SECOND..=3 * MINUTE);
        CommandPlan { at, task_id: task.task_id.clone(), action, copies: 1 }
    };
    let mut commands = Vec::new();
    for _ in 0..random.within(1..=4) {
        let input = Some(json!({ "amount": random.within(100..=199) }));
        commands.push(command(
            CommandAction::Resubmit { step: None, input, did_not_run: false },
            random,
        ));
    }
    for _ in 0..random.within(3..=8) {
        commands.push(command(complete(blueprint, items, random), random));
    }
    commands.push(command(CommandAction::Undo, random));
    for _ in 0..random.within(3..=8) {
        commands.push(command(complete(blueprint, items, random), random));
    }
    commands
}

fn complete(blueprint: &Blueprint, items: u64, random: &mut SeededRandom) -> CommandAction {
    let names: Vec<&StepName> = blueprint.steps.keys().collect();
    let name = random.index(names.len()).and_then(|index| names.get(index));
    let item = u32::try_from(random.within(0..=items - 1)).ok();
    let step = name.map(|name| Part { step: (*name).clone(), item });
    CommandAction::Complete { step, output: operator_output() }
}

/// A fast service that refuses many steps and some undos with long reasons.
fn refusing(random: &mut SeededRandom) -> ServiceProfile {
    ServiceProfile {
        latency_max: 50,
        fail: 0.1,
        false_error: 0.1,
        refuse: random.within(200..=700) as f64 / 1_000.0,
        refuse_undo: random.within(0..=500) as f64 / 1_000.0,
        reason_chars: random.within(120..=400) as usize,
        ..ServiceProfile::default()
    }
}

/// A text of this many characters outside ASCII.
pub(super) fn words(chars: usize) -> String {
    WORDS.chars().cycle().take(chars).collect()
}

/// The id, the author and the reason of a command, each of the maximum length.
pub(super) fn longest_command_texts(id: &str) -> (String, String, String) {
    let text = "\u{1f4b3}".repeat(limits::COMMAND_TEXT_CHARS_MAX);
    (format!("{id:-<width$}", width = limits::COMMAND_ID_CHARS_MAX), text.clone(), text)
}
