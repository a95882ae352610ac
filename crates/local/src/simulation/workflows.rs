//! Random definitions: lines, diamonds, fans and other graphs, with every policy there is.

use anyhow::Result;
use serde_json::{Map, Value, json};
use steward_core::workflow::Workflow;

use super::{dice::Dice, plan::AGENTS};

const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

/// Whether agents claim an attempt before they call a service that does not recognise a repeated
/// call. Until they do, no step here is `idempotent: false`.
pub(super) const AGENTS_CLAIM: bool = true;

/// A random definition.
pub(super) fn workflow(name: &str, dice: &mut Dice) -> Result<Workflow> {
    let shape = Shape::random(dice);
    let undoable = dice.chance(0.75);
    let point_of_no_return = dice.chance(0.25).then(|| dice.place(shape.0.len())).flatten();
    let mut steps = Map::new();
    for (n, (step, after)) in NAMES.iter().zip(&shape.0).enumerate() {
        let after: Vec<_> = after.iter().filter_map(|n| NAMES.get(*n).copied()).collect();
        let mut definition = step_definition(&after, undoable, dice);
        if point_of_no_return == Some(n) {
            definition.insert("point_of_no_return".to_owned(), json!(true));
        }
        steps.insert((*step).to_owned(), Value::Object(definition));
    }
    let workflow = json!({
        "name": name,
        "version": 1,
        "complete_within": dice.pick("10m", &["20m", "1h", "4h"]),
        "overdue": dice.pick("alert", &["undo"]),
        "steps": steps,
    });
    Ok(serde_json::from_value(workflow)?)
}

/// For each step, the earlier steps it comes after.
struct Shape(Vec<Vec<usize>>);

impl Shape {
    fn random(dice: &mut Dice) -> Self {
        let count = dice.within(1..=5) as usize;
        let line = |n: usize| if n == 0 { Vec::new() } else { vec![n - 1] };
        Self(match dice.within(0..=3) {
            0 => (0..count).map(line).collect(),
            1 => vec![Vec::new(), vec![0], vec![0], vec![1, 2]],
            2 => (0..count + 1).map(|n| if n == 0 { Vec::new() } else { vec![0] }).collect(),
            _ => (0..count + 1).map(|n| (0..n).filter(|_| dice.chance(0.4)).collect()).collect(),
        })
    }
}

fn step_definition(after: &[&str], undoable: bool, dice: &mut Dice) -> Map<String, Value> {
    let idempotent = !AGENTS_CLAIM || dice.chance(0.85);
    let mut body = json!({ "task": "${ task.id }", "amount": "${ input.amount }" });
    if let (Some(before), Some(fields)) = (after.first(), body.as_object_mut()) {
        fields.insert("before".to_owned(), json!(format!("${{ steps.{before}.output }}")));
    }
    let then = if undoable { dice.pick("undo", &["alert"]) } else { "alert" };
    let mut step = Map::new();
    let [agent, others @ ..] = AGENTS;
    step.insert("agent".to_owned(), json!(dice.pick(agent, &others)));
    step.insert("after".to_owned(), json!(after));
    step.insert("complete_within".to_owned(), json!(complete_within(dice)));
    step.insert("recovery".to_owned(), recovery(then, idempotent, dice));
    step.insert("request".to_owned(), json!({ "path": "/do", "body": body }));
    if !idempotent {
        step.insert("idempotent".to_owned(), json!(false));
    }
    if undoable && dice.chance(0.8) {
        let body = json!({ "task": "${ task.id }", "amount": "${ input.amount }" });
        let undo = json!({
            "complete_within": complete_within(dice),
            "recovery": recovery("alert", true, dice),
            "request": { "path": "/undo", "body": body },
        });
        step.insert("undo".to_owned(), undo);
    }
    step
}

fn complete_within(dice: &mut Dice) -> &'static str {
    dice.pick("5s", &["10s", "30s", "60s", "5m"])
}

fn recovery(then: &str, repeatable: bool, dice: &mut Dice) -> Value {
    let mut recovery = json!({
        "attempts": dice.within(1..=4),
        "backoff": {
            "first": dice.pick("500ms", &["1s", "5s"]),
            "rate": dice.pick(1.0, &[2.0, 3.0]),
            "max": dice.pick("10s", &["60s"]),
            "jitter": dice.chance(0.5),
        },
        "then": then,
    });
    if repeatable
        && dice.chance(0.3)
        && let Some(fields) = recovery.as_object_mut()
    {
        let wait = dice.pick("2m", &["15m", "30m"]);
        let times = dice.within(1..=3);
        fields.insert("extended_wait".to_owned(), json!({ "wait": wait, "times": times }));
    }
    recovery
}
