//! A backlog of ten minutes, and what becomes of it once messages are handled again. Every reply in it is late. If late
//! replies were of no use, each would be asked for again, and the load would feed itself.

use std::ops::Range;

use serde_json::json;

use super::{
    SimulationTotals,
    blueprint::{Blueprint, Output, StepPlan, WorkPlan},
    late::LatePlan,
    plan::{HOUR, MINUTE, Millis, Plan, SECOND, TaskPlan, Temper, Weather},
    simulate_plan,
};

const TASKS: u64 = 60;

/// When the backlog begins.
const BEGINS: Millis = 5 * MINUTE;

/// Tasks of three steps one after the other, all begun within a few seconds before the backlog.
fn plan(away: Option<Range<Millis>>) -> Plan {
    let step = |after: &[&str]| StepPlan {
        after: after.iter().map(|name| name.parse().unwrap()).collect(),
        when: None,
        each: None,
        work: WorkPlan::Call { agent: "blue", idempotent: true, callback: None },
        reads: Vec::new(),
        complete_within: Some("30s"),
        recovery: Some(json!({ "attempts": 5 })),
        undo: None,
        point_of_no_return: false,
    };
    let steps = [("a", step(&[])), ("b", step(&["a"])), ("c", step(&["b"]))];
    let blueprint = Blueprint {
        name: "first".parse().unwrap(),
        complete_within: HOUR,
        overdue: "alert",
        retention_h: None,
        defaults: None,
        steps: steps.map(|(name, step)| (name.parse().unwrap(), step)).into(),
        output: Output::Nothing,
    };
    let task = |n: u64| TaskPlan {
        task_id: format!("order-{n}").parse().unwrap(),
        workflow: "first".to_owned(),
        at: BEGINS - 3 * SECOND + n * 10,
        again: Vec::new(),
        input: json!({ "amount": 1, "items": [], "wait": "1s" }),
        rival: false,
    };
    let usual = Plan::of(0).unwrap();
    let kind = |_| Temper { latency_max: 5 * SECOND, ..Temper::default() };
    Plan {
        storm_until: 10 * MINUTE,
        // The oracle holds what is late against a world in which nothing goes wrong.
        weather: Weather { duplicate: 0.001, ..Weather::default() },
        services: usual.services.keys().map(|name| (name.clone(), kind(name))).collect(),
        workflows: vec![blueprint.workflow().unwrap()],
        blueprints: vec![blueprint],
        tasks: (0..TASKS).map(task).collect(),
        commands: Vec::new(),
        attended: false,
        operators_late: 0,
        away,
        late: LatePlan::default(),
        ..usual
    }
}

fn run(away: Option<Range<Millis>>) -> SimulationTotals {
    let report = simulate_plan(0, plan(away), false).unwrap();
    assert_eq!(report.findings, Vec::<String>::new());
    report.totals
}

#[test]
fn a_backlog_of_ten_minutes_drains_once_messages_are_handled_again() {
    let (usual, late) = (run(None), run(Some(BEGINS..BEGINS + 10 * MINUTE)));
    for totals in [&usual, &late] {
        assert_eq!(totals.tasks["Processed"], TASKS, "{totals:?}");
    }
    // Nearly nothing is asked for twice...
    assert!(late.messages < usual.messages * 12 / 10, "{} of {}", late.messages, usual.messages);
    // ...and a task takes longer by no more than the backlog's length.
    let longer = (late.task_ms - usual.task_ms) / TASKS;
    assert!(longer < 11 * MINUTE, "{longer} ms longer");
}
