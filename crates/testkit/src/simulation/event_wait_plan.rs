//! The plan of steps that wait for an event: which steps of the random workflows these are, and for what they wait.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use steward_core::model::names::StepName;

use super::{
    blueprint::{Blueprint, StepPlan, WorkPlan, millis},
    list_edit_plan::reads_fields,
    random::SeededRandom,
    virtual_time::{HOUR, MINUTE, Millis, SECOND},
};

/// The source of all events for which steps wait.
pub(super) const SOURCE: &str = "shop";

/// Their detail-types.
pub(super) const DETAIL_TYPES: [&str; 2] = ["Paid", "Shipped"];

/// The key of all steps that compete with other tasks for their events.
pub(super) const SHARED_KEY: &str = "all orders";

/// The share of runs with such steps.
const RUNS_SHARE: f64 = 0.35;

/// The share of the calls that become such steps in these runs.
const STEPS_SHARE: f64 = 0.35;

/// What a step waits for.
#[derive(Debug, Clone, Copy)]
pub(super) struct EventWaitPlan {
    pub(super) detail_type: &'static str,
    pub(super) key: EventKeyPlan,
    pub(super) within: Millis,
}

/// The value of the task that the key of the event must equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EventKeyPlan {
    /// The id of the task, and the item of a step with `for_each`.
    Task,
    /// A text that all tasks share, so that they compete.
    Shared,
    /// A value that is no key.
    Broken,
}

impl EventWaitPlan {
    /// The key `wait` of the step `name`. An event has its key for this step in a field with the step's name.
    pub(super) fn definition(self, name: &StepName, has_item: bool) -> Value {
        let equals = match (self.key, has_item) {
            (EventKeyPlan::Task, false) => "${ task.id }",
            (EventKeyPlan::Task, true) => "${ task.id }/${ item }",
            (EventKeyPlan::Shared, _) => SHARED_KEY,
            (EventKeyPlan::Broken, _) => "${ input.amount > 0 }",
        };
        let event = json!({
            "source": SOURCE,
            "detail_type": self.detail_type,
            "key": format!("${{ event.detail.{name} }}"),
            "equals": equals,
        });
        json!({ "event": event, "within": millis(self.within) })
    }
}

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

fn wait_for_event(step: &mut StepPlan, longest: Millis, random: &mut SeededRandom) {
    let within = random.pick(30 * SECOND, &[2 * MINUTE, 10 * MINUTE, HOUR, 2 * HOUR]);
    step.work = WorkPlan::Event(EventWaitPlan {
        detail_type: random.pick("Paid", &["Shipped"]),
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
