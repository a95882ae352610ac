//! Many tasks at once for agents with a rate limit. Each step has a single attempt, so a task is processed only if waiting
//! costs none.

use std::collections::BTreeMap;

use serde_json::json;
use steward_core::rate::RateLimit;

use super::{
    agents_plan::AgentsPlan,
    blueprint::{Blueprint, OutputPlan, StepPlan, WorkPlan},
    late_message_plan::LateMessagePlan,
    plan::{InfrastructureFaults, ServiceProfile, SimulationPlan, TaskPlan},
    simulate_plan,
    virtual_time::{HOUR, Millis, SECOND},
};

const TASKS: u64 = 60;

/// Tasks with two parallel steps, of which one is not idempotent.
fn plan(per_second: f64) -> SimulationPlan {
    let step = |idempotent| StepPlan {
        after: Vec::new(),
        when: None,
        each: None,
        work: WorkPlan::Call { agents: AgentsPlan::One("blue"), idempotent, callback: None },
        reads: Vec::new(),
        document: None,
        complete_within: Some("30s"),
        recovery: Some(json!({ "attempts": 1 })),
        undo: None,
        point_of_no_return: false,
        judges_body: false,
    };
    let blueprint = Blueprint {
        name: "first".parse().unwrap(),
        complete_within: HOUR,
        overdue: "alert",
        retention_h: None,
        defaults: None,
        steps: [("a", step(true)), ("b", step(false))]
            .map(|(name, step)| (name.parse().unwrap(), step))
            .into(),
        output: OutputPlan::Nothing,
        lifecycle_events: Default::default(),
    };
    let task = |n: u64| TaskPlan {
        task_id: format!("order-{n}").parse().unwrap(),
        workflow: "first".to_owned(),
        at: n * 10,
        repeated_at: Vec::new(),
        input: json!({ "amount": 1, "items": [], "wait": "1s" }),
        id_collision: false,
        tenant: None,
    };
    let usual = SimulationPlan::of(0).unwrap();
    let profile = ServiceProfile { latency_max: 50, ..ServiceProfile::default() };
    SimulationPlan {
        faults_until: 0,
        faults: InfrastructureFaults::default(),
        services: usual.services.keys().map(|name| (name.clone(), profile.clone())).collect(),
        rate_limits: BTreeMap::from([(
            "blue".parse().unwrap(),
            RateLimit::new(per_second.try_into().unwrap(), None),
        )]),
        workflows: vec![blueprint.workflow().unwrap()],
        blueprints: vec![blueprint],
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
fn calls_above_the_rate_wait_and_cost_no_attempt() {
    let report = simulate_plan(0, plan(2.0), false).unwrap();
    assert_eq!(report.findings, Vec::<String>::new());
    assert_eq!(report.totals.tasks, BTreeMap::from([("Processed".to_owned(), TASKS)]));
    assert!(report.totals.rate_deferrals > TASKS, "{:?}", report.totals);
    // 120 calls at two a second: the last task takes a minute, and the mean task half of that.
    let mean: Millis = report.totals.task_ms / TASKS;
    assert!((20 * SECOND..80 * SECOND).contains(&mean), "{mean} ms");
}
