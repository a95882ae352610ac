//! A backlog of ten minutes drains once messages are handled again. Every reply in it is late. If late replies did not
//! count, each attempt would be repeated, and the load would sustain itself.

use std::ops::Range;

use serde_json::json;

use super::{
    SimulationTotals,
    blueprint::{Blueprint, StepPlan},
    plan::{InfrastructureFaults, ServiceProfile, SimulationPlan},
    simulate_plan,
    virtual_time::{HOUR, MINUTE, Millis, SECOND},
};

const TASKS: u64 = 60;

/// When the backlog starts.
const BEGINS: Millis = 5 * MINUTE;

/// Tasks with three sequential steps, all submitted within a few seconds before the backlog.
fn plan(outage: Option<Range<Millis>>) -> SimulationPlan {
    let step = |after: &[&str]| StepPlan {
        complete_within: Some("30s"),
        recovery: Some(json!({ "attempts": 5 })),
        ..StepPlan::call("blue", after.iter().map(|name| name.parse().unwrap()).collect())
    };
    let steps = [("a", step(&[])), ("b", step(&["a"])), ("c", step(&["b"]))];
    let steps = steps.map(|(name, step)| (name.parse().unwrap(), step)).into();
    let workflow = Blueprint::of("first".parse().unwrap(), HOUR, steps);
    let profile = ServiceProfile { latency_max: 5 * SECOND, ..ServiceProfile::default() };
    SimulationPlan {
        faults_until: 10 * MINUTE,
        // A small fault rate: in a run without faults the oracle reports late waits as findings.
        faults: InfrastructureFaults { duplicate: 0.001, ..InfrastructureFaults::default() },
        outage,
        ..SimulationPlan::of_tasks(workflow, TASKS, BEGINS - 3 * SECOND, &profile)
    }
}

fn run(outage: Option<Range<Millis>>) -> SimulationTotals {
    let report = simulate_plan(0, plan(outage), false).unwrap();
    assert_eq!(report.findings, Vec::<String>::new());
    report.totals
}

#[test]
fn a_backlog_of_ten_minutes_drains_once_messages_are_handled_again() {
    let (usual, late) = (run(None), run(Some(BEGINS..BEGINS + 10 * MINUTE)));
    for totals in [&usual, &late] {
        assert_eq!(totals.tasks["Processed"], TASKS, "{totals:?}");
    }
    // Almost no attempt is repeated...
    assert!(late.messages < usual.messages * 12 / 10, "{} of {}", late.messages, usual.messages);
    // ...and a task takes at most the length of the backlog longer.
    let longer = (late.task_ms - usual.task_ms) / TASKS;
    assert!(longer < 11 * MINUTE, "{longer} ms longer");
}
