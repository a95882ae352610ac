//! Bent workflows: one thing of a drawn one is changed, so that it may no longer make sense. The
//! checker must accept exactly those that do, by the rules as they are told again here; and what it
//! accepts is run like any other.

use steward_core::model::names::StepName;

use super::{
    blueprint::{Blueprint, Each, ItemsPlan, StepPlan, UndoPlan, WaitPlan, When, WorkPlan},
    dice::Dice,
    graph::Graph,
};

/// Changes one thing.
pub(super) fn bend(blueprint: &mut Blueprint, dice: &mut Dice) {
    let names: Vec<_> = blueprint.steps.keys().cloned().collect();
    let one = |dice: &mut Dice| {
        let known = dice.place(names.len()).and_then(|place| names.get(place)).cloned();
        known.filter(|_| !dice.chance(0.1)).or_else(|| "nowhere".parse().ok())
    };
    let (place, Some(other)) = (dice.place(names.len()), one(dice)) else { return };
    let step = place.and_then(|place| names.get(place));
    let Some(step) = step.and_then(|name| blueprint.steps.get_mut(name)) else { return };
    match dice.within(0..=9) {
        0 | 1 => step.reads = vec![other],
        2 => step.when = Some(When::RollBelow(other, 50)),
        3 => step.each = Some(Each { items: ItemsPlan::Output(other), at_once: 2 }),
        4 | 5 => step.after.push(other),
        6 => {
            step.after.pop();
        }
        7 => step.work = WorkPlan::Wait(WaitPlan::Input),
        8 => step.work = WorkPlan::Call { agent: "red", idempotent: false, callback: None },
        _ => step.undo = Some(UndoPlan { complete_within: None, recovery: None, reads_own: false }),
    }
}

/// Whether it makes sense.
pub(super) fn is_sound(blueprint: &Blueprint) -> bool {
    let graph = Graph::of(blueprint);
    blueprint.steps.iter().all(|(name, step)| is_step_sound(&graph, name, step))
}

fn is_step_sound(graph: &Graph, name: &StepName, step: &StepPlan) -> bool {
    let before = graph.before(name);
    let is_known = |other: &StepName| graph.step(other).is_some();
    let once = |other: &StepName| step.after.iter().filter(|name| *name == other).count() == 1;
    let when = match &step.when {
        Some(When::RollBelow(other, _)) => before.contains(other),
        Some(When::Always(_) | When::AmountBelow(_) | When::NotBoolean) | None => true,
    };
    let items = match step.each.as_ref().map(|each| &each.items) {
        Some(ItemsPlan::Output(other)) => before.contains(other),
        Some(ItemsPlan::Literal(_) | ItemsPlan::Input | ItemsPlan::NotAList) | None => true,
    };
    let reads = step.reads.iter().all(|other| before.contains(other));
    let kind = match &step.work {
        WorkPlan::Wait(_) => {
            let has_more = step.each.is_some() || step.undo.is_some() || step.recovery.is_some();
            !has_more && step.complete_within.is_none() && !step.point_of_no_return
        }
        WorkPlan::Call { idempotent, .. } => {
            let waits_long = step.recovery.as_ref().and_then(|said| said.get("extended_wait"));
            reads && (*idempotent || waits_long.is_none())
        }
        WorkPlan::Child(_) => reads,
    };
    let ordered = step.after.iter().all(|other| is_known(other) && once(other));
    ordered
        && !before.contains(name)
        && before.iter().all(|other| is_known(other))
        && when
        && items
        && kind
}
