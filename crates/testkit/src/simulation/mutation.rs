//! Mutated workflows. A mutation changes one property of a random workflow, so that it may become invalid. Validation
//! must accept exactly the valid ones, by the rules that this file states independently. Accepted mutations are
//! simulated like any other workflow.

use steward_core::model::names::StepName;

use super::{
    agents_plan::AgentsPlan,
    blueprint::{
        Blueprint, ForEachPlan, ItemsPlan, StepPlan, UndoPlan, WaitPlan, WhenPlan, WorkPlan,
    },
    random::SeededRandom,
    workflow_model::WorkflowModel,
};

/// Changes one property of one step.
pub(super) fn mutate(blueprint: &mut Blueprint, random: &mut SeededRandom) {
    let names: Vec<_> = blueprint.steps.keys().cloned().collect();
    let one = |random: &mut SeededRandom| {
        let known = random.index(names.len()).and_then(|index| names.get(index)).cloned();
        known.filter(|_| !random.chance(0.1)).or_else(|| "nowhere".parse().ok())
    };
    let (index, Some(other)) = (random.index(names.len()), one(random)) else { return };
    let step = index.and_then(|index| names.get(index));
    let Some(step) = step.and_then(|name| blueprint.steps.get_mut(name)) else { return };
    match random.within(0..=9) {
        0 | 1 => step.reads = vec![other],
        2 => step.when = Some(WhenPlan::RollBelow(other, 50)),
        3 => step.each = Some(ForEachPlan { items: ItemsPlan::Output(other), at_once: 2 }),
        4 | 5 => step.after.push(other),
        6 => {
            step.after.pop();
        }
        7 => step.work = WorkPlan::Wait(WaitPlan::Input),
        8 => {
            let agents = AgentsPlan::One("red");
            step.work = WorkPlan::Call { agents, idempotent: false, callback: None };
        }
        _ => step.undo = Some(UndoPlan { complete_within: None, recovery: None, reads_own: false }),
    }
}

/// Whether the workflow is valid.
pub(super) fn is_valid(blueprint: &Blueprint) -> bool {
    let model = WorkflowModel::of(blueprint);
    blueprint.steps.iter().all(|(name, step)| is_step_valid(&model, name, step))
}

fn is_step_valid(model: &WorkflowModel, name: &StepName, step: &StepPlan) -> bool {
    let before = model.before(name);
    let is_known = |other: &StepName| model.step(other).is_some();
    let once = |other: &StepName| step.after.iter().filter(|name| *name == other).count() == 1;
    let when = match &step.when {
        Some(WhenPlan::RollBelow(other, _)) => before.contains(other),
        Some(WhenPlan::Always(_) | WhenPlan::AmountBelow(_) | WhenPlan::NotBoolean) | None => true,
    };
    let items = match step.each.as_ref().map(|each| &each.items) {
        Some(ItemsPlan::Output(other)) => before.contains(other),
        Some(
            ItemsPlan::Literal(_) | ItemsPlan::Input | ItemsPlan::NotAList | ItemsPlan::Rounds(_),
        )
        | None => true,
    };
    let reads = step.reads.iter().all(|other| before.contains(other));
    let kind = match &step.work {
        WorkPlan::Wait(_) => {
            let has_more = step.each.is_some() || step.undo.is_some() || step.recovery.is_some();
            !has_more && step.complete_within.is_none() && !step.point_of_no_return
        }
        WorkPlan::Event(_) => {
            step.undo.is_none() && step.complete_within.is_none() && !step.point_of_no_return
        }
        WorkPlan::Call { idempotent, .. } => {
            let waits_long =
                step.recovery.as_ref().and_then(|recovery| recovery.get("extended_wait"));
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
