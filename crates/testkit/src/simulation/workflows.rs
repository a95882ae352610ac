//! Random blueprints: lines, diamonds, fans and other graphs, of every kind of step, with every policy
//! there is.

use anyhow::Result;
use serde_json::{Value, json};
use steward_core::model::names::StepName;

use super::{
    blueprint::{
        Blueprint, CallbackPlan, Each, ItemsPlan, Output, StepPlan, UndoPlan, WaitPlan, When,
        WorkPlan,
    },
    dice::Dice,
    plan::{AGENTS, HOUR, MINUTE, Millis, SECOND},
};

const NAMES: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];

/// What may be drawn.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scope {
    /// The most steps there are.
    pub(super) steps_max: u64,
    /// Whether there are steps of other kinds than plain calls.
    pub(super) all_kinds: bool,
    /// The workflows that steps may run.
    pub(super) children: &'static [&'static str],
}

/// What is drawn for a whole workflow.
struct Style {
    scope: Scope,
    undoable: bool,
    /// Whether expressions may have no value.
    faulty: bool,
    defaults: bool,
}

/// A random workflow.
pub(super) fn blueprint(name: &str, scope: Scope, dice: &mut Dice) -> Result<Blueprint> {
    let shape = shape(scope.steps_max, dice);
    let style = Style {
        scope,
        undoable: dice.chance(0.75),
        faulty: dice.chance(0.2),
        defaults: scope.all_kinds && dice.chance(0.3),
    };
    let names: Vec<StepName> = NAMES.iter().map(|name| name.parse()).collect::<Result<_, _>>()?;
    let mut blueprint = Blueprint {
        name: name.parse()?,
        complete_within: dice.pick(10 * MINUTE, &[20 * MINUTE, HOUR, 4 * HOUR]),
        overdue: dice.pick("alert", &["undo"]),
        retention_h: (scope.all_kinds && dice.chance(0.4)).then(|| dice.skewed(998) + 1),
        defaults: style.defaults.then(|| defaults(style.undoable, dice)),
        steps: Default::default(),
        output: Output::Nothing,
    };
    for (name, after) in names.iter().zip(&shape) {
        let after = after.iter().filter_map(|n| names.get(*n).cloned()).collect();
        let step = style.step(after, &blueprint, dice);
        blueprint.steps.insert(name.clone(), step);
    }
    let returning = dice.chance(0.25);
    let place = dice.place(blueprint.steps.len()).filter(|_| returning);
    let point = blueprint.steps.values_mut().nth(place.unwrap_or(usize::MAX));
    if let Some(point) = point.filter(|step| !matches!(step.work, WorkPlan::Wait(_))) {
        point.point_of_no_return = true;
    }
    if scope.all_kinds {
        let all: Vec<_> = blueprint.steps.keys().cloned().collect();
        blueprint.output = match dice.within(0..=9) {
            0..=3 => Output::Of(all.into_iter().filter(|_| dice.chance(0.5)).collect()),
            4 if style.faulty => Output::Broken,
            _ => Output::Nothing,
        };
        if dice.chance(0.2) {
            blueprint.complete_within = 12 * HOUR;
        }
    }
    Ok(blueprint)
}

/// For each step, the earlier steps it comes after.
fn shape(steps_max: u64, dice: &mut Dice) -> Vec<Vec<usize>> {
    let count = dice.within(1..=steps_max) as usize;
    let line = |n: usize| if n == 0 { Vec::new() } else { vec![n - 1] };
    match dice.within(0..=3) {
        0 => (0..count).map(line).collect(),
        1 if steps_max > 3 => vec![Vec::new(), vec![0], vec![0], vec![1, 2]],
        2 => (0..count).map(|n| if n == 0 { Vec::new() } else { vec![0] }).collect(),
        _ => (0..count).map(|n| (0..n).filter(|_| dice.chance(0.4)).collect()).collect(),
    }
}

impl Style {
    fn step(&self, after: Vec<StepName>, so_far: &Blueprint, dice: &mut Dice) -> StepPlan {
        let work = self.work(dice);
        let calls = matches!(work, WorkPlan::Call { .. });
        let waits = matches!(work, WorkPlan::Wait(_));
        let idempotent = !matches!(work, WorkPlan::Call { idempotent: false, .. });
        let then = if self.undoable { dice.pick("undo", &["alert"]) } else { "alert" };
        let said = !self.defaults || dice.chance(0.5);
        let mut reads: Vec<_> = after.first().cloned().into_iter().collect();
        reads.retain(|_| !waits);
        let has_undo = (calls && self.undoable && dice.chance(0.8))
            || (matches!(work, WorkPlan::Child(_)) && dice.chance(0.3));
        StepPlan {
            when: self.when(&after, so_far, dice),
            each: self.each(&after, so_far, dice).filter(|_| !waits),
            reads,
            complete_within: match work {
                WorkPlan::Call { .. } if said => Some(complete_within(dice)),
                WorkPlan::Child(_) => dice.pick(None, &[Some("5m"), Some("1h"), Some("6h")]),
                WorkPlan::Call { .. } | WorkPlan::Wait(_) => None,
            },
            recovery: (said && !waits).then(|| recovery(then, idempotent, dice)),
            undo: has_undo.then(|| self.undo(dice)),
            point_of_no_return: false,
            after,
            work,
        }
    }

    fn work(&self, dice: &mut Dice) -> WorkPlan {
        let [agent, others @ ..] = AGENTS;
        let agent = dice.pick(agent, &others);
        let call = |idempotent, callback| WorkPlan::Call { agent, idempotent, callback };
        if !self.scope.all_kinds {
            return call(dice.chance(0.85), None);
        }
        match dice.within(0..=9) {
            0 | 1 => call(dice.chance(0.85), Some(callback(dice))),
            2 => WorkPlan::Wait(self.wait(dice)),
            3 | 4 => match dice.place(self.scope.children.len()) {
                Some(place) => WorkPlan::Child(self.scope.children.get(place).unwrap_or(&"leaf")),
                None => call(true, None),
            },
            _ => call(dice.chance(0.85), None),
        }
    }

    fn when(&self, after: &[StepName], so_far: &Blueprint, dice: &mut Dice) -> Option<When> {
        if !self.scope.all_kinds || dice.chance(0.7) {
            return None;
        }
        let limit = dice.within(10..=90);
        Some(match dice.within(0..=9) {
            0..=2 => When::Always(dice.chance(0.5)),
            3..=5 => When::AmountBelow(limit),
            9 if self.faulty => When::NotBoolean,
            _ => match returns_roll(after, so_far) {
                Some(step) => When::RollBelow(step, limit),
                None => When::Always(true),
            },
        })
    }

    fn each(&self, after: &[StepName], so_far: &Blueprint, dice: &mut Dice) -> Option<Each> {
        if !self.scope.all_kinds || dice.chance(0.7) {
            return None;
        }
        let count = dice.within(0..=5);
        let items = match dice.within(0..=9) {
            0..=3 => ItemsPlan::Literal((0..count).map(|_| dice.within(1..=99)).collect()),
            9 if self.faulty => ItemsPlan::NotAList,
            7..=9 => match returns_roll(after, so_far) {
                Some(step) => ItemsPlan::Output(step),
                None => ItemsPlan::Input,
            },
            _ => ItemsPlan::Input,
        };
        Some(Each { items, at_once: dice.within(1..=3) as usize })
    }

    fn wait(&self, dice: &mut Dice) -> WaitPlan {
        match dice.within(0..=9) {
            0..=5 => WaitPlan::For(span(dice)),
            6 | 7 => WaitPlan::Until(dice.skewed(4 * HOUR)),
            9 if self.faulty => WaitPlan::Broken,
            _ => WaitPlan::Input,
        }
    }

    fn undo(&self, dice: &mut Dice) -> UndoPlan {
        let said = !self.defaults || dice.chance(0.5);
        UndoPlan {
            complete_within: said.then(|| complete_within(dice)),
            recovery: said.then(|| recovery("alert", true, dice)),
            reads_own: self.scope.all_kinds && dice.chance(0.1),
        }
    }
}

/// One of the steps before that returns one number and one list.
fn returns_roll(after: &[StepName], so_far: &Blueprint) -> Option<StepName> {
    let returns =
        |step: &StepPlan| step.each.is_none() && matches!(step.work, WorkPlan::Call { .. });
    after.iter().find(|name| so_far.steps.get(*name).is_some_and(returns)).cloned()
}

fn callback(dice: &mut Dice) -> CallbackPlan {
    let within = dice.pick(30 * SECOND, &[2 * MINUTE, 10 * MINUTE, 2 * HOUR]);
    let heartbeat = dice.chance(0.4).then(|| within / dice.within(2..=6));
    CallbackPlan { within, heartbeat }
}

/// How long something waits: also longer than a queue can hold a message back.
pub(super) fn span(dice: &mut Dice) -> Millis {
    let long = [MINUTE, 899 * SECOND, 15 * MINUTE, 901 * SECOND, 40 * MINUTE, 3 * HOUR];
    let short = dice.within(1..=30_000);
    dice.pick(short, &long)
}

fn complete_within(dice: &mut Dice) -> &'static str {
    dice.pick("5s", &["10s", "30s", "60s", "5m"])
}

fn defaults(undoable: bool, dice: &mut Dice) -> Value {
    let then = if undoable { dice.pick("undo", &["alert"]) } else { "alert" };
    let undo = json!({
        "complete_within": complete_within(dice),
        "recovery": recovery("alert", true, dice),
    });
    // A step that is not idempotent has no extended wait, so there is none for all.
    json!({
        "complete_within": complete_within(dice),
        "recovery": recovery(then, false, dice),
        "undo": undo,
    })
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
