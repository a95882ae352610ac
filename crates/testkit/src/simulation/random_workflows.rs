//! Random blueprints: lines, diamonds, fans and other graphs, with every kind of step and every policy.

use anyhow::Result;
use serde_json::{Value, json};
use steward_core::model::names::StepName;

use super::{
    agents_plan::AgentsPlan,
    blueprint::{
        Blueprint, CallbackPlan, ForEachPlan, ItemsPlan, OutputPlan, StepPlan, UndoPlan, WaitPlan,
        WhenPlan, WorkPlan,
    },
    random::SeededRandom,
    virtual_time::{HOUR, MINUTE, Millis, SECOND},
};

const NAMES: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];

/// The bounds of a random workflow.
#[derive(Debug, Clone, Copy)]
pub(super) struct WorkflowBounds {
    /// The largest number of steps.
    pub(super) steps_max: u64,
    /// Whether there may be steps other than plain calls.
    pub(super) all_kinds: bool,
    /// The workflows that steps may run as child tasks.
    pub(super) children: &'static [&'static str],
}

/// The properties that all steps of a workflow share.
struct WorkflowStyle {
    scope: WorkflowBounds,
    undoable: bool,
    /// Whether expressions may have no value.
    faulty: bool,
    defaults: bool,
}

/// A random workflow.
pub(super) fn blueprint(
    name: &str,
    scope: WorkflowBounds,
    random: &mut SeededRandom,
) -> Result<Blueprint> {
    let shape = shape(scope.steps_max, random);
    let style = WorkflowStyle {
        scope,
        undoable: random.chance(0.75),
        faulty: random.chance(0.2),
        defaults: scope.all_kinds && random.chance(0.3),
    };
    let names: Vec<StepName> = NAMES.iter().map(|name| name.parse()).collect::<Result<_, _>>()?;
    let mut blueprint = Blueprint {
        name: name.parse()?,
        complete_within: random.pick(10 * MINUTE, &[20 * MINUTE, HOUR, 4 * HOUR]),
        overdue: random.pick("alert", &["undo"]),
        retention_h: (scope.all_kinds && random.chance(0.4)).then(|| random.skewed(998) + 1),
        defaults: style.defaults.then(|| defaults(style.undoable, random)),
        steps: Default::default(),
        output: OutputPlan::Nothing,
        lifecycle_events: Default::default(),
    };
    for (name, after) in names.iter().zip(&shape) {
        let after = after.iter().filter_map(|n| names.get(*n).cloned()).collect();
        let step = style.step(after, &blueprint, random);
        blueprint.steps.insert(name.clone(), step);
    }
    let returning = random.chance(0.25);
    let index = random.index(blueprint.steps.len()).filter(|_| returning);
    let point = blueprint.steps.values_mut().nth(index.unwrap_or(usize::MAX));
    if let Some(point) = point.filter(|step| !matches!(step.work, WorkPlan::Wait(_))) {
        point.point_of_no_return = true;
    }
    if scope.all_kinds {
        let all: Vec<_> = blueprint.steps.keys().cloned().collect();
        blueprint.output = match random.within(0..=9) {
            0..=3 => OutputPlan::Of(all.into_iter().filter(|_| random.chance(0.5)).collect()),
            4 if style.faulty => OutputPlan::Broken,
            _ => OutputPlan::Nothing,
        };
        if random.chance(0.2) {
            blueprint.complete_within = 12 * HOUR;
        }
    }
    Ok(blueprint)
}

/// For each step, the indices of the earlier steps that it follows.
fn shape(steps_max: u64, random: &mut SeededRandom) -> Vec<Vec<usize>> {
    let count = random.within(1..=steps_max) as usize;
    let line = |n: usize| if n == 0 { Vec::new() } else { vec![n - 1] };
    match random.within(0..=3) {
        0 => (0..count).map(line).collect(),
        1 if steps_max > 3 => vec![Vec::new(), vec![0], vec![0], vec![1, 2]],
        2 => (0..count).map(|n| if n == 0 { Vec::new() } else { vec![0] }).collect(),
        _ => (0..count).map(|n| (0..n).filter(|_| random.chance(0.4)).collect()).collect(),
    }
}

impl WorkflowStyle {
    fn step(
        &self,
        after: Vec<StepName>,
        so_far: &Blueprint,
        random: &mut SeededRandom,
    ) -> StepPlan {
        let work = self.work(random);
        let calls = matches!(work, WorkPlan::Call { .. });
        let waits = matches!(work, WorkPlan::Wait(_));
        let idempotent = !matches!(work, WorkPlan::Call { idempotent: false, .. });
        let then = if self.undoable { random.pick("undo", &["alert"]) } else { "alert" };
        let sets_own_policy = !self.defaults || random.chance(0.5);
        let mut reads: Vec<_> = after.first().cloned().into_iter().collect();
        reads.retain(|_| !waits);
        let has_undo = (calls && self.undoable && random.chance(0.8))
            || (matches!(work, WorkPlan::Child(_)) && random.chance(0.3));
        StepPlan {
            when: self.when(&after, so_far, random),
            each: self.each(&after, so_far, random).filter(|_| !waits),
            reads,
            document: None,
            complete_within: match work {
                WorkPlan::Call { .. } if sets_own_policy => Some(complete_within(random)),
                WorkPlan::Child(_) => random.pick(None, &[Some("5m"), Some("1h"), Some("6h")]),
                WorkPlan::Call { .. } | WorkPlan::Wait(_) | WorkPlan::Event(_) => None,
            },
            recovery: (sets_own_policy && !waits).then(|| {
                let limit = time_limit(&work, random);
                with_limit(recovery(then, idempotent, random), limit)
            }),
            undo: has_undo.then(|| self.undo(random)),
            point_of_no_return: false,
            judges_body: false,
            after,
            work,
        }
    }

    fn work(&self, random: &mut SeededRandom) -> WorkPlan {
        let agents = AgentsPlan::draw(self.faulty, random);
        let call = |idempotent, callback| WorkPlan::Call { agents, idempotent, callback };
        if !self.scope.all_kinds {
            return call(random.chance(0.85), None);
        }
        match random.within(0..=9) {
            0 | 1 => call(random.chance(0.85), Some(callback(random))),
            2 => WorkPlan::Wait(self.wait(random)),
            3 | 4 => match random.index(self.scope.children.len()) {
                Some(index) => WorkPlan::Child(self.scope.children.get(index).unwrap_or(&"leaf")),
                None => call(true, None),
            },
            _ => call(random.chance(0.85), None),
        }
    }

    fn when(
        &self,
        after: &[StepName],
        so_far: &Blueprint,
        random: &mut SeededRandom,
    ) -> Option<WhenPlan> {
        if !self.scope.all_kinds || random.chance(0.7) {
            return None;
        }
        let limit = random.within(10..=90);
        Some(match random.within(0..=9) {
            0..=2 => WhenPlan::Always(random.chance(0.5)),
            3..=5 => WhenPlan::AmountBelow(limit),
            9 if self.faulty => WhenPlan::NotBoolean,
            _ => match returns_roll(after, so_far) {
                Some(step) => WhenPlan::RollBelow(step, limit),
                None => WhenPlan::Always(true),
            },
        })
    }

    fn each(
        &self,
        after: &[StepName],
        so_far: &Blueprint,
        random: &mut SeededRandom,
    ) -> Option<ForEachPlan> {
        if !self.scope.all_kinds || random.chance(0.7) {
            return None;
        }
        let count = random.within(0..=5);
        let items = match random.within(0..=9) {
            0..=3 => ItemsPlan::Literal((0..count).map(|_| random.within(1..=99)).collect()),
            9 if self.faulty => ItemsPlan::NotAList,
            7..=9 => match returns_roll(after, so_far) {
                Some(step) => ItemsPlan::Output(step),
                None => ItemsPlan::Input,
            },
            _ => ItemsPlan::Input,
        };
        Some(ForEachPlan { items, at_once: random.within(1..=3) as usize })
    }

    fn wait(&self, random: &mut SeededRandom) -> WaitPlan {
        match random.within(0..=9) {
            0..=5 => WaitPlan::For(span(random)),
            6 | 7 => WaitPlan::Until(random.skewed(4 * HOUR)),
            9 if self.faulty => WaitPlan::Broken,
            _ => WaitPlan::Input,
        }
    }

    fn undo(&self, random: &mut SeededRandom) -> UndoPlan {
        let sets_own_policy = !self.defaults || random.chance(0.5);
        UndoPlan {
            complete_within: sets_own_policy.then(|| complete_within(random)),
            recovery: sets_own_policy.then(|| {
                let limit = random.pick(None, &[None, Some("6m")]);
                with_limit(recovery("alert", true, random), limit)
            }),
            reads_own: self.scope.all_kinds && random.chance(0.1),
        }
    }
}

/// A preceding step whose output has the fields `roll` and `items`.
fn returns_roll(after: &[StepName], so_far: &Blueprint) -> Option<StepName> {
    let returns =
        |step: &StepPlan| step.each.is_none() && matches!(step.work, WorkPlan::Call { .. });
    after.iter().find(|name| so_far.steps.get(*name).is_some_and(returns)).cloned()
}

fn callback(random: &mut SeededRandom) -> CallbackPlan {
    let within = random.pick(30 * SECOND, &[2 * MINUTE, 10 * MINUTE, 2 * HOUR]);
    let heartbeat = random.chance(0.4).then(|| within / random.within(2..=6));
    CallbackPlan { within, heartbeat }
}

/// A random duration of a wait. It may be longer than the maximum delay of a queue.
pub(super) fn span(random: &mut SeededRandom) -> Millis {
    let long = [MINUTE, 899 * SECOND, 15 * MINUTE, 901 * SECOND, 40 * MINUTE, 3 * HOUR];
    let short = random.within(1..=30_000);
    random.pick(short, &long)
}

fn complete_within(random: &mut SeededRandom) -> &'static str {
    random.pick("5s", &["10s", "30s", "60s", "5m"])
}

fn defaults(undoable: bool, random: &mut SeededRandom) -> Value {
    let then = if undoable { random.pick("undo", &["alert"]) } else { "alert" };
    let undo = json!({
        "complete_within": complete_within(random),
        "recovery": recovery("alert", true, random),
    });
    // The defaults have no extended wait, since a step that is not idempotent must not have one.
    json!({
        "complete_within": complete_within(random),
        "recovery": recovery(then, false, random),
        "undo": undo,
    })
}

/// A random `give_up_after` that is long enough for one attempt.
fn time_limit(work: &WorkPlan, random: &mut SeededRandom) -> Option<&'static str> {
    match work {
        WorkPlan::Call { callback: Some(_), .. } => random.pick(None, &[None, Some("2h 10m")]),
        WorkPlan::Call { callback: None, .. } => {
            random.pick(None, &[None, None, Some("5m"), Some("20m")])
        }
        WorkPlan::Child(_) => random.pick(None, &[None, Some("1d")]),
        WorkPlan::Wait(_) | WorkPlan::Event(_) => None,
    }
}

fn with_limit(mut recovery: Value, limit: Option<&str>) -> Value {
    if let (Some(limit), Some(fields)) = (limit, recovery.as_object_mut()) {
        fields.insert("give_up_after".to_owned(), json!(limit));
    }
    recovery
}

fn recovery(then: &str, repeatable: bool, random: &mut SeededRandom) -> Value {
    let mut recovery = json!({
        "attempts": random.within(1..=4),
        "backoff": {
            "first": random.pick("500ms", &["1s", "5s"]),
            "rate": random.pick(1.0, &[2.0, 3.0]),
            "max": random.pick("10s", &["60s"]),
            "jitter": random.chance(0.5),
        },
        "then": then,
    });
    if repeatable
        && random.chance(0.3)
        && let Some(fields) = recovery.as_object_mut()
    {
        let wait = random.pick("2m", &["15m", "30m"]);
        let times = random.within(1..=3);
        fields.insert("extended_wait".to_owned(), json!({ "wait": wait, "times": times }));
    }
    recovery
}
