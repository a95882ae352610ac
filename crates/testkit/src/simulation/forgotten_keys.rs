//! A service that forgets idempotency keys, and a deployment that does not know it: the invariants must report each second effect.

use serde_json::{Value, json};
use steward_core::model::attempt::Action;

use super::{
    agents_plan::AgentsPlan,
    blueprint::{Blueprint, OutputPlan, StepPlan, UndoPlan, WorkPlan},
    late_message_plan::LateMessagePlan,
    plan::{InfrastructureFaults, ServiceProfile, SimulationPlan, TaskPlan},
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
    let step = |after: &[&str], recovery: Value, undo| StepPlan {
        after: after.iter().map(|name| name.parse().unwrap()).collect(),
        when: None,
        each: None,
        work: WorkPlan::Call { agents: AgentsPlan::One("blue"), idempotent: true, callback: None },
        reads: Vec::new(),
        document: None,
        complete_within: Some("5s"),
        recovery: Some(recovery),
        undo,
        point_of_no_return: false,
        judges_body: false,
    };
    let undo = UndoPlan {
        complete_within: Some("5s"),
        recovery: Some(recovery(Action::Undo, "alert")),
        reads_own: false,
    };
    Blueprint {
        name: "first".parse().unwrap(),
        complete_within: 4 * HOUR,
        overdue: "alert",
        retention_h: None,
        defaults: None,
        steps: [
            ("a", step(&[], recovery(Action::Do, "undo"), Some(undo))),
            ("b", step(&["a"], recovery(Action::Do, "undo"), None)),
        ]
        .map(|(name, step)| (name.parse().unwrap(), step))
        .into(),
        output: OutputPlan::Nothing,
        lifecycle_events: Default::default(),
    }
}

/// Tasks at a service whose calls take effect, but are often answered with an error. It refuses some, and forgets the keys of these actions; the
/// published definition knows it or not.
fn plan(forgotten: &[Action], is_published: bool) -> SimulationPlan {
    let task = |n: u64| TaskPlan {
        task_id: format!("order-{n}").parse().unwrap(),
        workflow: "first".to_owned(),
        at: n * 10,
        repeated_at: Vec::new(),
        input: json!({ "amount": 1, "items": [], "wait": "1s" }),
        id_collision: false,
        tenant: None,
    };
    let published = if is_published { forgotten } else { &[] };
    let usual = SimulationPlan::of(0).unwrap();
    let profile = ServiceProfile {
        latency_max: 50,
        refuse: 0.3,
        false_error: 0.8,
        ..ServiceProfile::default()
    };
    SimulationPlan {
        faults_until: 4 * HOUR,
        faults: InfrastructureFaults::default(),
        services: usual.services.keys().map(|name| (name.clone(), profile.clone())).collect(),
        rate_limits: Default::default(),
        workflows: vec![blueprint(published).workflow().unwrap()],
        blueprints: vec![blueprint(forgotten)],
        tasks: (0..TASKS).map(task).collect(),
        commands: Vec::new(),
        operators_act_when_quiet: false,
        operator_delay: 0,
        outage: None,
        late_messages: LateMessagePlan::default(),
        payloads: None,
        ..usual
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
