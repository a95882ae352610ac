//! The supervisor in `template.yaml`: its schedule, its ticks, and the alarm of missed runs.

use std::time::Duration;

use serde_json::json;
use steward_aws::queues;
use steward_supervisor::ticks::{RUN_EVERY, SweepInterval};

use super::{operations, properties, template};

#[test]
fn missed_supervisor_runs_do_not_accumulate() {
    let template = template();
    let config = &properties(&template, "SupervisorFunction")["EventInvokeConfig"];
    let expected = json!({ "MaximumRetryAttempts": 0, "MaximumEventAgeInSeconds": 60 });
    assert_eq!(*config, expected);
}

/// The parameter accepts what the function accepts.
#[test]
fn sweep_every_is_limited_to_valid_intervals() {
    let template = template();
    let parameter = &template["Parameters"]["SweepEvery"];
    let limits = ["MinValue", "MaxValue"].map(|limit| parameter[limit].as_u64().unwrap());
    let is_valid = |seconds: u64| format!("{seconds}s").parse::<SweepInterval>().is_ok();
    assert_eq!(limits.map(is_valid), [true, true]);
    assert_eq!([limits[0] - 1, limits[1] + 1].map(is_valid), [false, false]);
    assert_eq!(parameter["Type"], "Number");
    let schedule = &properties(&template, "SupervisorFunction")["Events"]["Sweep"]["Properties"];
    assert_eq!(schedule["Schedule"], "rate(1 minute)");
    assert_eq!(RUN_EVERY, Duration::from_secs(60));
}

/// Each invocation has one tick, so a failed sweep affects no other. A tick whose sweep failed becomes visible again only
/// after it has expired.
#[test]
fn ticks_do_not_accumulate() {
    let template = template();
    let function = properties(&template, "SupervisorFunction");
    let source = &function["Events"]["Ticks"]["Properties"];
    assert_eq!((&source["Queue"], &source["BatchSize"]), (&json!("SweepsQueue.Arn"), &json!(1)));
    assert_eq!(source["MaximumBatchingWindowInSeconds"], 0);
    assert!(source["ScalingConfig"].is_null(), "Lambda would keep five pollers instead of two");
    let queue = properties(&template, "SweepsQueue");
    assert_eq!(queue["VisibilityTimeout"], queues::SWEEPS_VISIBILITY_SECONDS);
    assert_eq!(queue["MessageRetentionPeriod"], queues::SWEEPS_RETENTION_SECONDS);
    let timeout = function["Timeout"].as_u64().unwrap();
    assert!(u64::from(queues::SWEEPS_VISIBILITY_SECONDS) >= 6 * timeout);
    const { assert!(queues::SWEEPS_VISIBILITY_SECONDS > queues::SWEEPS_RETENTION_SECONDS) };
    assert!(queue["RedrivePolicy"].is_null());
}

#[test]
fn a_supervisor_without_runs_raises_an_alarm() {
    let template = operations();
    let alarm = properties(&template, "SupervisorSilent");
    assert_eq!(alarm["MetricName"], "steward_sweeps_total");
    assert_eq!(alarm["TreatMissingData"], "breaching");
    let seconds = alarm["Period"].as_u64().unwrap() * alarm["EvaluationPeriods"].as_u64().unwrap();
    assert_eq!(seconds, 300);
}
