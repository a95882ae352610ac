//! Worlds near the limits of size. In few worlds there are tasks of parallel steps with many items,
//! whose names, ids and inputs are as long as may be. Services refuse many of the items with long reasons,
//! and operators edit inputs and complete items with long ids and texts. The services are fast and not
//! awkward, so that such a world stays cheap.

use anyhow::Result;
use serde_json::{Value, json};
use steward_core::{
    limits,
    model::{
        command::Order,
        names::{Part, StepName},
    },
};

use super::{
    blueprint::{Blueprint, Each, ItemsPlan, Output, StepPlan, UndoPlan, WorkPlan},
    dice::Dice,
    late::LatePlan,
    oracle::Oracle,
    plan::{AGENTS, CommandPlan, MINUTE, Plan, SECOND, TaskPlan, Temper},
};

/// One world of this many is large.
const ONE_OF: u64 = 300;

/// Items of all steps of one task together: what a world can afford.
const PARTS_MAX: u64 = 160;

/// The workflow of the large tasks.
const WORKFLOW: &str = "first";

/// Bytes of a submission beside its input's texts.
const SUBMISSION_BYTES: usize = 2_000;

/// What takes three bytes a character.
const WORDS: &str = "：在庫がありません";

/// Puts large tasks in the place of all others, in few worlds; drawn from dice of their own.
pub(super) fn enlarge(seed: u64, plan: Plan) -> Result<Plan> {
    let dice = &mut Dice::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x1a46e);
    if dice.within(1..=ONE_OF) > 1 {
        return Ok(plan);
    }
    let count = dice.within(40..=80);
    let blueprint = blueprint(count, dice)?;
    let tasks: Vec<_> =
        (1..=dice.pick(1, &[1, 2])).map(|n| task(n, count, dice)).collect::<Result<_>>()?;
    let commands = tasks.iter().flat_map(|task| commands(task, &blueprint, count, dice)).collect();
    let mut plan = Plan { tasks, commands, late: LatePlan::default(), attended: true, ..plan };
    plan.workflows = vec![blueprint.workflow()?];
    plan.blueprints = vec![blueprint];
    plan.services.values_mut().for_each(|temper| *temper = refusing(dice));
    (plan.edits, plan.is_large) = (false, true);
    Ok(plan)
}

fn blueprint(items: u64, dice: &mut Dice) -> Result<Blueprint> {
    let mut blueprint = Blueprint {
        name: WORKFLOW.parse()?,
        complete_within: 20 * MINUTE,
        overdue: "alert",
        retention_h: None,
        defaults: None,
        steps: Default::default(),
        output: Output::Nothing,
    };
    let then = dice.pick("alert", &["alert", "undo"]);
    for n in 1..=PARTS_MAX / items {
        let name = format!("step_{n:_>width$}", width = limits::NAME_CHARS_MAX - "step_".len());
        blueprint.steps.insert(name.parse()?, step(then, dice));
    }
    Ok(blueprint)
}

fn step(then: &str, dice: &mut Dice) -> StepPlan {
    let [agent, others @ ..] = AGENTS;
    let agent = dice.pick(agent, &others);
    let each = Each { items: ItemsPlan::Input, at_once: limits::ITEMS_MAX as usize };
    StepPlan {
        after: Vec::new(),
        when: None,
        each: Some(each),
        work: WorkPlan::Call { agent, idempotent: true, callback: None },
        reads: Vec::new(),
        complete_within: Some("5m"),
        recovery: Some(recovery(then, dice)),
        undo: Some(UndoPlan {
            complete_within: Some("5m"),
            recovery: Some(recovery("alert", dice)),
            reads_own: false,
        }),
        point_of_no_return: false,
    }
}

fn recovery(then: &str, dice: &mut Dice) -> Value {
    let backoff = json!({ "first": "1s", "rate": 1.0, "max": "1s", "jitter": false });
    json!({ "attempts": dice.within(1..=2), "backoff": backoff, "then": then })
}

/// A task with an id as long as may be, and often with an input that is.
fn task(n: u64, items: u64, dice: &mut Dice) -> Result<TaskPlan> {
    let width = limits::TASK_ID_CHARS_MAX - "order-".len();
    let list: Vec<_> = (0..items).map(|_| dice.within(1..=99)).collect();
    let bytes = dice.pick(0, &[limits::DOCUMENT_BYTES_MAX - SUBMISSION_BYTES]);
    let input = json!({
        "amount": dice.within(1..=99), "items": list, "wait": "1s", "note": words(bytes / 3),
    });
    Ok(TaskPlan {
        task_id: format!("order-{n:-<width$}").parse()?,
        workflow: WORKFLOW.to_owned(),
        at: dice.skewed(MINUTE),
        again: Vec::new(),
        input,
        rival: false,
    })
}

/// Resubmissions with edited input, items completed by hand, and an undo.
fn commands(
    task: &TaskPlan,
    blueprint: &Blueprint,
    items: u64,
    dice: &mut Dice,
) -> Vec<CommandPlan> {
    let mut at = task.at + MINUTE;
    let mut command = |order, dice: &mut Dice| {
        at += dice.within(30 * SECOND..=3 * MINUTE);
        CommandPlan { at, task_id: task.task_id.clone(), order, copies: 1 }
    };
    let mut commands = Vec::new();
    for _ in 0..dice.within(1..=4) {
        let input = Some(json!({ "amount": dice.within(100..=199) }));
        commands.push(command(Order::Resubmit { step: None, input, did_not_run: false }, dice));
    }
    for _ in 0..dice.within(3..=8) {
        commands.push(command(complete(blueprint, items, dice), dice));
    }
    commands.push(command(Order::Undo, dice));
    for _ in 0..dice.within(3..=8) {
        commands.push(command(complete(blueprint, items, dice), dice));
    }
    commands
}

fn complete(blueprint: &Blueprint, items: u64, dice: &mut Dice) -> Order {
    let names: Vec<&StepName> = blueprint.steps.keys().collect();
    let name = dice.place(names.len()).and_then(|place| names.get(place));
    let item = u32::try_from(dice.within(0..=items - 1)).ok();
    let step = name.map(|name| Part { step: (*name).clone(), item });
    Order::Complete { step, output: Oracle::by_hand() }
}

/// A fast service that refuses many steps, and some undos, with long reasons.
fn refusing(dice: &mut Dice) -> Temper {
    Temper {
        latency_max: 50,
        fail: 0.1,
        lie: 0.1,
        refuse: dice.within(200..=700) as f64 / 1_000.0,
        refuse_undo: dice.within(0..=500) as f64 / 1_000.0,
        reason_chars: dice.within(120..=400) as usize,
        ..Temper::default()
    }
}

/// So many characters that are not ASCII.
pub(super) fn words(chars: usize) -> String {
    WORDS.chars().cycle().take(chars).collect()
}

/// A command's id, who gives it and why, each as long as may be.
pub(super) fn texts_of_command(id: &str) -> (String, String, String) {
    let text = "\u{1f4b3}".repeat(limits::COMMAND_TEXT_CHARS_MAX);
    (format!("{id:-<width$}", width = limits::COMMAND_ID_CHARS_MAX), text.clone(), text)
}
