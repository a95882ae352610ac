//! The plan of runs in which operators [edit lists](super::list_edits): which runs these are, and what differs in their
//! workflows, services and tasks.

use serde_json::json;
use steward_core::model::names::StepName;

use super::{
    blueprint::{Blueprint, ForEachPlan, ItemsPlan, StepPlan, WhenPlan, WorkPlan},
    plan::{ServiceProfile, TaskPlan},
    random::SeededRandom,
};

/// The share of runs with such operators.
const LIST_EDITS_SHARE: f64 = 0.05;

/// Bytes of an item in a list that is stored in slices, of three items each.
const PADDING_BYTES: usize = 1_100;

/// Draws from a separate generator whether operators edit lists, and prepares the workflows for that.
pub(super) fn draw_list_edits(seed: u64, blueprints: &mut [Blueprint]) -> bool {
    let random = &mut SeededRandom::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0xed17);
    let edits_lists = random.chance(LIST_EDITS_SHARE);
    if edits_lists {
        blueprints.iter_mut().for_each(|blueprint| use_input_list(blueprint, random));
    }
    edits_lists
}

/// Makes steps iterate over the list of the input, and stop with an alert when an item fails.
fn use_input_list(blueprint: &mut Blueprint, random: &mut SeededRandom) {
    let read: Vec<StepName> = blueprint.steps.values().flat_map(reads_fields).cloned().collect();
    for (name, step) in &mut blueprint.steps {
        let is_call = matches!(step.work, WorkPlan::Call { callback: None, .. });
        if is_call && !read.contains(name) && random.chance(0.7) {
            step.each = Some(ForEachPlan {
                items: ItemsPlan::Input,
                at_once: random.within(1..=3) as usize,
            });
            step.recovery = Some(json!({ "attempts": 1, "then": "alert" }));
        }
    }
}

/// The steps whose output fields a step reads. Their output must not become a list.
pub(super) fn reads_fields(step: &StepPlan) -> impl Iterator<Item = &StepName> {
    let when = match &step.when {
        Some(WhenPlan::RollBelow(other, _)) => Some(other),
        Some(WhenPlan::Always(_) | WhenPlan::AmountBelow(_) | WhenPlan::NotBoolean) | None => None,
    };
    let items = match step.each.as_ref().map(|each| &each.items) {
        Some(ItemsPlan::Output(other)) => Some(other),
        Some(
            ItemsPlan::Literal(_) | ItemsPlan::Input | ItemsPlan::NotAList | ItemsPlan::Rounds(_),
        )
        | None => None,
    };
    when.into_iter().chain(items)
}

/// Makes a service fail often, but never permanently: a failed call succeeds when it is repeated.
pub(super) fn make_transient(profile: &mut ServiceProfile) {
    (profile.fail, profile.false_error, profile.refuse) = (0.2, 0.0, 0.0);
}

/// Gives a task a list of several distinct items. The list of every other task is stored in slices.
pub(super) fn lengthen_list(task: &mut TaskPlan) {
    let count = 2 + task.task_id.as_str().len() as u64 % 4;
    let has_slices = task.task_id.as_str().bytes().last().is_some_and(|byte| byte % 2 == 0);
    let padding = if has_slices { "-".repeat(PADDING_BYTES) } else { String::new() };
    let item = |n: u64| if has_slices { json!(format!("{n}{padding}")) } else { json!(n) };
    let items: Vec<_> = (1..=count).map(|n| item(n * 10)).collect();
    if let Some(list) = task.input.get_mut("items") {
        *list = json!(items);
    }
}
