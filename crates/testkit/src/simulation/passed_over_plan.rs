//! Runs whose tasks go on without steps that fail: which runs these are, and which steps.

use steward_core::model::names::StepName;

use super::{
    blueprint::{Blueprint, WorkPlan},
    list_edit_plan::reads_fields,
    random::SeededRandom,
};

/// The share of runs with such steps.
const PASSED_OVER_SHARE: f64 = 0.08;

/// Draws from a separate generator whether tasks go on without some of their steps.
pub(super) fn draw_passed_over(seed: u64, blueprints: &mut [Blueprint]) {
    let random = &mut SeededRandom::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x0c07);
    if random.chance(PASSED_OVER_SHARE) {
        blueprints.iter_mut().for_each(|blueprint| pass_over(blueprint, random));
    }
}

/// Lets the task go on without steps of which no other step needs a field.
fn pass_over(blueprint: &mut Blueprint, random: &mut SeededRandom) {
    let read: Vec<StepName> = blueprint.steps.values().flat_map(reads_fields).cloned().collect();
    for (name, step) in &mut blueprint.steps {
        let may_fail = !matches!(step.work, WorkPlan::Wait(_)) && !step.point_of_no_return;
        if may_fail && !read.contains(name) && random.chance(0.5) {
            let recovery = step.recovery.get_or_insert_with(|| serde_json::json!({}));
            recovery["then"] = "continue".into();
        }
    }
}
