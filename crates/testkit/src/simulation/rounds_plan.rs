//! Runs with steps that are repeated: which runs these are, and which steps.

use super::{
    blueprint::{Blueprint, ForEachPlan, ItemsPlan, WorkPlan},
    list_edit_plan::reads_fields,
    random::SeededRandom,
};

/// The share of runs with such steps.
const ROUNDS_SHARE: f64 = 0.15;

/// Draws from a separate generator whether some calls and child tasks are repeated.
pub(super) fn draw_rounds(seed: u64, blueprints: &mut [Blueprint]) {
    let random = &mut SeededRandom::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x40d5);
    if random.chance(ROUNDS_SHARE) {
        blueprints.iter_mut().for_each(|blueprint| repeat(blueprint, random));
    }
}

/// Repeats steps of which no other step needs a field.
fn repeat(blueprint: &mut Blueprint, random: &mut SeededRandom) {
    let read: Vec<_> = blueprint.steps.values().flat_map(reads_fields).cloned().collect();
    for (name, step) in &mut blueprint.steps {
        let acts = matches!(step.work, WorkPlan::Call { .. } | WorkPlan::Child(_));
        if acts && !step.point_of_no_return && !read.contains(name) && random.chance(0.4) {
            let items = ItemsPlan::Rounds(random.within(1..=4) as u32);
            step.each = Some(ForEachPlan { items, at_once: 1 });
        }
    }
}
