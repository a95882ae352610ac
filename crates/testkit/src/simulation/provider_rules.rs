//! The plan of services that follow the documented rules of real providers: they forget idempotency keys, answer errors with 200, and
//! ask for pauses of hours. The functions have their own random generators, so that the rest of the plan stays the same.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use steward_core::model::{
    attempt::Action,
    names::{AgentName, StepName},
};

use super::{
    blueprint::{Blueprint, WorkPlan},
    plan::ServiceProfile,
    random::SeededRandom,
    virtual_time::{HOUR, MINUTE, Millis, millis},
    workflow_model::WorkflowModel,
};

/// The share of runs in which some services forget idempotency keys.
const FORGETFUL_RUNS_SHARE: f64 = 0.5;

/// The share of repeatable calls and undos whose keys are forgotten in these runs.
const FORGOTTEN_KEYS_SHARE: f64 = 0.6;

/// The share of runs with steps that judge a 200 by its body.
const JUDGING_RUNS_SHARE: f64 = 0.3;

/// The share of such steps in these runs.
const JUDGING_STEPS_SHARE: f64 = 0.5;

/// The share of runs whose services ask for long pauses.
const LONG_PAUSES_RUNS_SHARE: f64 = 0.15;

/// Gives some of the steps `recovery.key_valid_for`, and cases in `responses`.
pub(super) fn choose_steps(seed: u64, blueprints: &mut [Blueprint]) {
    let random = &mut SeededRandom::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x9c0f);
    let (forgets, judges) =
        (random.chance(FORGETFUL_RUNS_SHARE), random.chance(JUDGING_RUNS_SHARE));
    for blueprint in blueprints {
        if forgets {
            limit_keys(blueprint, random);
        }
        let calls = blueprint.steps.values_mut();
        for step in calls.filter(|step| judges && matches!(step.work, WorkPlan::Call { .. })) {
            step.judges_body = random.chance(JUDGING_STEPS_SHARE);
        }
    }
}

fn limit_keys(blueprint: &mut Blueprint, random: &mut SeededRandom) {
    let model = WorkflowModel::of(blueprint);
    for (name, step) in &mut blueprint.steps {
        let WorkPlan::Call { idempotent, .. } = step.work else { continue };
        let own = step.recovery.as_mut().filter(|_| idempotent);
        let of_undo = step.undo.as_mut().and_then(|undo| undo.recovery.as_mut());
        for (action, recovery) in [(Action::Do, own), (Action::Undo, of_undo)] {
            if let Some(recovery) = recovery
                && random.chance(FORGOTTEN_KEYS_SHARE)
            {
                limit_key(recovery, key_valid_for(&model, name, action, random));
            }
        }
    }
}

/// A random time that is long enough for one attempt.
fn key_valid_for(
    model: &WorkflowModel,
    step: &StepName,
    action: Action,
    random: &mut SeededRandom,
) -> Millis {
    let attempt = model.complete_within(step, action);
    random.pick(attempt, &[2 * attempt, 10 * MINUTE, HOUR]).max(attempt)
}

fn limit_key(recovery: &mut Value, valid: Millis) {
    if let Some(fields) = recovery.as_object_mut() {
        fields.insert("key_valid_for".to_owned(), json!(millis(valid)));
    }
}

/// Lets some services ask for long pauses.
pub(super) fn choose_long_pauses(seed: u64, services: &mut BTreeMap<AgentName, ServiceProfile>) {
    let random = &mut SeededRandom::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x9a5e);
    if random.chance(LONG_PAUSES_RUNS_SHARE) {
        for profile in services.values_mut() {
            profile.long_pauses = random.within(0..=300) as f64 / 1_000.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use steward_core::definition::workflow::Workflow;

    use super::{super::plan::SimulationPlan, *};

    #[test]
    fn services_forget_keys_answer_errors_with_200_and_ask_for_long_pauses_in_some_runs() {
        let (mut keys, mut keys_of_undos, mut judging, mut pausing) = (0, 0, 0, 0);
        for seed in 0..100 {
            let plan = SimulationPlan::of(seed).unwrap();
            for blueprint in &plan.blueprints {
                let model = WorkflowModel::of(blueprint);
                for (name, step) in model.steps() {
                    let is_forgotten = |action| model.key_valid_for(name, action).is_some();
                    keys += u32::from(is_forgotten(Action::Do));
                    keys_of_undos += u32::from(is_forgotten(Action::Undo));
                    judging += u32::from(step.judges_body);
                }
                let workflow: Workflow = serde_json::from_value(blueprint.definition()).unwrap();
                let mut found = workflow.lint().into_iter().map(|found| found.to_string());
                let too_short = found.find(|found| found.contains("key_valid_for: shorter"));
                assert_eq!(too_short, None, "seed {seed}");
            }
            pausing += plan.services.values().filter(|of| of.long_pauses > 0.0).count();
        }
        assert!(keys > 50 && keys_of_undos > 20, "{keys} keys, {keys_of_undos} of undos");
        assert!(judging > 30 && pausing > 10, "{judging} steps, {pausing} services");
    }
}
