//! The plan of steps that wait for an event: which steps of the random workflows these are, and for what they wait.

use std::collections::BTreeSet;

use serde_json::json;
use steward_core::model::names::StepName;

use super::{
    blueprint::{Blueprint, StepPlan, WorkPlan},
    event_wait::{EventKeyPlan, EventWaitPlan},
    list_edit_plan::reads_fields,
    random::SeededRandom,
    virtual_time::{HOUR, MINUTE, Millis, SECOND},
};

/// The share of runs with such steps.
const RUNS_SHARE: f64 = 0.35;

/// The share of the calls that become such steps in these runs.
const STEPS_SHARE: f64 = 0.35;

/// Turns some of the calls into waits for events. Has its own random generator, so that the rest of the plan stays the same.
pub(super) fn choose_event_waits(seed: u64, blueprints: &mut [Blueprint]) {
    let random = &mut SeededRandom::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0xe7e7);
    if !random.chance(RUNS_SHARE) {
        return;
    }
    for blueprint in blueprints {
        let read: BTreeSet<StepName> =
            blueprint.steps.values().flat_map(reads_fields).cloned().collect();
        let calls = blueprint.steps.iter_mut().filter(|(name, step)| {
            let is_call = matches!(step.work, WorkPlan::Call { .. });
            is_call && !step.point_of_no_return && !read.contains(*name)
        });
        for (_, step) in calls {
            if random.chance(STEPS_SHARE) {
                wait_for_event(step, blueprint.complete_within, random);
            }
        }
    }
}

/// The share of these steps that wait for the first of several events.
const OR_SHARE: f64 = 0.3;

fn wait_for_event(step: &mut StepPlan, longest: Millis, random: &mut SeededRandom) {
    let within = random.pick(30 * SECOND, &[2 * MINUTE, 10 * MINUTE, HOUR, 2 * HOUR]);
    step.work = WorkPlan::Event(EventWaitPlan {
        detail_type: random.pick("Paid", &["Shipped"]),
        or_other: random.chance(OR_SHARE),
        key: match random.within(0..=11) {
            0 => EventKeyPlan::Broken,
            1..=3 => EventKeyPlan::Shared,
            _ => EventKeyPlan::Task,
        },
        within: within.min(longest),
    });
    // A wait is never repeated or undone, and only says what happens if no event comes.
    let then = step.recovery.as_ref().and_then(|recovery| recovery.get("then"));
    step.recovery = then.map(|then| json!({ "then": then }));
    (step.complete_within, step.undo) = (None, None);
    step.reads.clear();
}
