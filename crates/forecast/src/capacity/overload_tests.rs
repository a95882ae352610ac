//! The promise for an overload: with twice the sustainable load for ten minutes, the deployment does at least 80 % of what
//! it sustains, no attempt is lost to queueing, and the backlog drains.

use super::{OverloadRun, limit_kind::LimitKind, tests::settings_without_load, *};
use crate::cost::{FunctionRole, Resource, forecast};

/// The deployment of the templates, with their overload handling.
fn deployed(size: Size) -> ScaleSettings {
    ScaleSettings { deployment: DeploymentSizing::of(size), ..settings_without_load() }
}

/// Simulates the scenario on a deployment whose tightest limit is `bottleneck`.
fn simulate(settings: &ScaleSettings, bottleneck: &LimitKind) -> OverloadRun {
    let counted = forecast(settings.forecast.clone(), &|| {}).unwrap();
    let model = model::QueueModel::of(settings, &counted.demand);
    assert_eq!(limit_rows::rows(settings, &model)[0].bound, *bottleneck);
    OverloadRun::simulate(settings, &counted.demand, true)
}

#[track_caller]
fn assert_bounded(run: &OverloadRun) {
    assert!(run.goodput >= 0.8, "{run:?}");
    assert!(run.goodput_of_worst_minute >= 0.8, "{run:?}");
    assert_eq!(run.lost_attempts, 0.0, "{run:?}");
    assert_eq!(run.unfinished, 0.0, "{run:?}");
    // Without any loss, the other half of the load takes 600 s.
    assert!(run.drained_after_s.is_some_and(|after_s| after_s < 1_200.0), "{run:?}");
}

#[test]
fn an_overload_of_the_agents_costs_no_attempts_and_little_throughput() {
    let report = overload(&deployed(Size::Medium)).unwrap();
    assert!(report.bottleneck.starts_with("agent "), "{}", report.bottleneck);
    assert_bounded(&report.with_intake_control);
    // The scenario is hard: without intake control, attempts are lost and steps are done again.
    let OverloadRun { goodput, lost_attempts, shed_requests, .. } = report.without;
    assert!(goodput < 0.7 && lost_attempts > 100_000.0 && shed_requests > 100_000.0);
}

#[test]
fn an_overload_of_the_scheduler_costs_no_attempts_and_little_throughput() {
    let mut settings = deployed(Size::Medium);
    settings.deployment.scheduler = 5.0;
    assert_bounded(&simulate(&settings, &LimitKind::Concurrency(FunctionRole::Scheduler)));
}

#[test]
fn an_overload_of_the_tables_costs_no_attempts_and_little_throughput() {
    assert_bounded(&simulate(&deployed(Size::Large), &LimitKind::Warm(Resource::TasksWrites)));
}

#[test]
fn a_load_that_the_deployment_sustains_is_never_held_back() {
    let settings = deployed(Size::Medium);
    let sustained_rate = scale(&settings).unwrap().sustained_rate;
    let load = Load::steady(sustained_rate * 0.9, 60.0);
    let report = scale(&ScaleSettings { load, ..settings }).unwrap();
    assert_eq!((report.held_back_max, report.shed_requests), (0.0, 0.0));
}
