//! Many tasks at once for agents with a rate limit. Each step has a single attempt, so a task is processed only if waiting
//! costs none.

use std::collections::BTreeMap;

use serde_json::json;
use steward_core::rate::RateLimit;

use super::{
    agents_plan::AgentsPlan,
    blueprint::{Blueprint, StepPlan, WorkPlan},
    plan::{ServiceProfile, SimulationPlan},
    simulate_plan,
    virtual_time::{HOUR, Millis, SECOND},
};

const TASKS: u64 = 60;

/// Tasks with two parallel steps, of which one is not idempotent.
fn plan(per_second: f64) -> SimulationPlan {
    let step = |idempotent| StepPlan {
        work: WorkPlan::Call { agents: AgentsPlan::One("blue"), idempotent, callback: None },
        complete_within: Some("30s"),
        recovery: Some(json!({ "attempts": 1 })),
        ..StepPlan::call("blue", Vec::new())
    };
    let steps = [("a", step(true)), ("b", step(false))];
    let steps = steps.map(|(name, step)| (name.parse().unwrap(), step)).into();
    let workflow = Blueprint::of("first".parse().unwrap(), HOUR, steps);
    let profile = ServiceProfile { latency_max: 50, ..ServiceProfile::default() };
    let limit = RateLimit::new(per_second.try_into().unwrap(), None);
    SimulationPlan {
        rate_limits: BTreeMap::from([("blue".parse().unwrap(), limit)]),
        ..SimulationPlan::of_tasks(workflow, TASKS, 0, &profile)
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
