//! A service that forgets idempotency keys, and a deployment that does not know it: the invariants must report each second effect.

use serde_json::json;
use steward_core::model::attempt::Action;

use super::{
    blueprint::{Blueprint, StepPlan, UndoPlan},
    plan::{ServiceProfile, SimulationPlan},
    simulate_plan,
    virtual_time::HOUR,
};

const TASKS: u64 = 40;

/// A workflow whose calls and undos are repeated after fifteen minutes. The service keeps the keys of these actions for a minute.
fn blueprint(forgotten: &[Action]) -> Blueprint {
    let recovery = |action, then| {
        let wait = json!({ "wait": "15m", "times": 2 });
        let mut recovery = json!({ "attempts": 1, "extended_wait": wait, "then": then });
        if forgotten.contains(&action) {
            recovery["key_valid_for"] = json!("1m");
        }
        recovery
    };
    let step = |after: &[&str], undo| StepPlan {
        complete_within: Some("5s"),
        recovery: Some(recovery(Action::Do, "undo")),
        undo,
        ..StepPlan::call("blue", after.iter().map(|name| name.parse().unwrap()).collect())
    };
    let undo = UndoPlan {
        complete_within: Some("5s"),
        recovery: Some(recovery(Action::Undo, "alert")),
        reads_own: false,
    };
    let steps = [("a", step(&[], Some(undo))), ("b", step(&["a"], None))];
    let steps = steps.map(|(name, step)| (name.parse().unwrap(), step)).into();
    Blueprint::of("first".parse().unwrap(), 4 * HOUR, steps)
}

/// Tasks at a service whose calls take effect, but are often answered with an error. It refuses some, and forgets the keys of these actions; the
/// published definition knows it or not.
fn plan(forgotten: &[Action], is_published: bool) -> SimulationPlan {
    let published = if is_published { forgotten } else { &[] };
    let profile = ServiceProfile {
        latency_max: 50,
        refuse: 0.3,
        false_error: 0.8,
        ..ServiceProfile::default()
    };
    SimulationPlan {
        faults_until: 4 * HOUR,
        workflows: vec![blueprint(published).workflow().unwrap()],
        ..SimulationPlan::of_tasks(blueprint(forgotten), TASKS, 0, &profile)
    }
}

#[test]
fn a_second_effect_after_a_key_is_forgotten_is_reported() {
    for (action, finding) in [
        (Action::Do, ": took effect twice"),
        (Action::Undo, "undo of a: took effect twice with one idempotency key"),
    ] {
        let findings = simulate_plan(0, plan(&[action], false), false).unwrap().findings;
        assert!(findings.iter().any(|found| found.ends_with(finding)), "{findings:?}");
    }
}

#[test]
fn a_definition_that_says_how_long_keys_are_valid_prevents_it() {
    let both = plan(&[Action::Do, Action::Undo], true);
    assert_eq!(simulate_plan(0, both, false).unwrap().findings, Vec::<String>::new());
}
