//! Compares the arithmetic with the counts of the forecast, and follows its advice.

use serde_json::Value;
use steward_core::model::{lifecycle::LifecycleEventKind, names::AgentName};

use super::{limit_kind::LimitKind, model::QueueModel, *};
use crate::cost::{self, FunctionRole, Resource, forecast};

/// The order workflow in `workflows/`: three steps with ten seconds each.
fn order() -> cost::ForecastSettings {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../workflows/order.yaml");
    let workflow = steward_definition_file::read_file(std::path::Path::new(file)).unwrap();
    cost::ForecastSettings { runs: 20, ..cost::ForecastSettings::new(workflow) }
}

fn settings(load: Load) -> ScaleSettings {
    ScaleSettings {
        forecast: order(),
        load,
        deployment: DeploymentSizing::of(Size::Large),
        limits: Limits::load().unwrap(),
        compute_s: 0.003,
    }
}

/// A deployment that sustains far more than any load in these tests, with all pollers from the start.
fn ample(load: Load) -> ScaleSettings {
    let mut settings = settings(load);
    settings.limits.account_concurrency.value = 20_000.0;
    settings.limits.table_writes_quota.value = 1e6;
    settings.limits.table_reads_quota.value = 1e6;
    settings.deployment = DeploymentSizing {
        submission: 1_000.0,
        scheduler: 1_000.0,
        agent: 1_000.0,
        pollers: 100.0,
        shards: 1_000,
        warm_writes: 1e6,
        warm_reads: 1e6,
        rehearsed: true,
        ..settings.deployment
    };
    settings
}

fn agent(name: &str) -> FunctionRole {
    FunctionRole::Agent(name.parse::<AgentName>().unwrap())
}

#[track_caller]
fn assert_close(one: f64, other: f64, share: f64, what: &str) {
    let off = (one - other).abs() / other.abs().max(1e-9);
    assert!(off <= share, "{what}: {one} and {other}, off by {:.1}%", off * 100.0);
}

#[test]
fn the_demand_of_a_task_is_that_of_the_forecast() {
    let counted = forecast(order(), &|| {}).unwrap();
    let model = QueueModel::of(&settings(Load::steady(1.0, 1.0)), &counted.demand);
    let units: Vec<_> =
        scaling_limits::TABLES.map(|resource| model.units_per_task(resource)).into();
    // 1 + 1 + 3 and 1 + 3; 1 + 1. All documents fit into the item of the task.
    assert_eq!(units, [5.0, 4.0, 2.0, 0.0, 0.0]);
    let usage = counted.usage;
    // Plus one write to the index of ended tasks, which is never the tightest limit.
    let writes = units[0] + units[2] + units[3] + 1.0;
    assert_close(writes, usage.write_units, 1e-9, "write units");
    assert_close(units[1] + units[4], usage.read_units, 1e-9, "read units");
    assert_close(model.invocations(), usage.invocations, 1e-9, "invocations");
    // Without the processor time that the model adds, the functions' time is that of the forecast.
    let without = ScaleSettings { compute_s: 0.0, ..settings(Load::steady(1.0, 1.0)) };
    let busy_s = QueueModel::of(&without, &counted.demand).busy_s();
    let gb_seconds = busy_s * cost::MEMORY_GB;
    // The forecast uses the mean of an invocation's messages, the model the slowest.
    assert!(gb_seconds >= usage.gb_seconds, "{gb_seconds}");
    assert_close(gb_seconds, usage.gb_seconds, 0.05, "GB-seconds");
}

#[test]
fn messages_pass_the_queues_in_order() {
    let counted = forecast(order(), &|| {}).unwrap();
    let hops = counted.demand.hops.iter().map(|hops| {
        let roles = hops.iter().map(|(role, hop)| format!("{} {role}", hop.messages));
        roles.collect::<Vec<_>>().join(", ")
    });
    assert_eq!(
        hops.collect::<Vec<_>>(),
        [
            "1 submission",
            "1 scheduler",
            "1 agent inventory",
            "1 scheduler",
            "1 agent payment",
            "1 scheduler",
            "1 agent shipping",
            "1 scheduler"
        ]
    );
}

#[test]
fn nothing_is_advised_while_all_limits_are_sufficient() {
    let report = scale(&ample(Load::steady(1_000.0, 20.0))).unwrap();
    assert!(report.sustained_rate > 1_250.0, "{}", report.sustained_rate);
    assert_eq!((report.backlog_max, report.let_in, report.raises), (0.0, None, Vec::new()));
}

#[test]
fn a_spike_replaces_the_rate() {
    let load = Load { spike: 50.0, spike_lasts_s: 10.0, ..Load::steady(10.0, 60.0) };
    assert_eq!((load.total(), load.peak()), (1_000.0, 50.0));
}

/// Loads that the deployment sustains, and loads that it does not.
/// A function that lowers a limit, and the limit.
type Lowered = (fn(&mut ScaleSettings), LimitKind);

/// Every limit, lowered until it sustains about 500 tasks per second.
fn lowered_limits() -> Vec<Lowered> {
    vec![
        (|s| s.deployment.submission = 2.4, LimitKind::Concurrency(FunctionRole::Submission)),
        (|s| s.deployment.scheduler = 11.0, LimitKind::Concurrency(FunctionRole::Scheduler)),
        (
            |s| {
                // Among equal agents the first has the backlog; the others get only what it passes on.
                s.deployment.agent = 14.0;
                s.forecast.slow = vec!["charge=300ms".parse().unwrap()];
            },
            LimitKind::Concurrency(agent("payment")),
        ),
        (
            |s| {
                s.deployment.pollers = 0.0;
                s.limits.invocations_max.value = 30.0;
                s.forecast.slow = vec!["charge=300ms".parse().unwrap()];
            },
            LimitKind::Pollers(agent("payment")),
        ),
        (|s| s.limits.account_concurrency.value = 52.0, LimitKind::Account),
        (|s| s.limits.invocations_per_concurrency.value = 0.02, LimitKind::Invocations),
        (
            |s| {
                s.limits.queue_in_flight.value = 300.0;
                s.forecast.slow = vec!["charge=300ms".parse().unwrap()];
            },
            LimitKind::InFlight(agent("payment")),
        ),
        (
            |s| {
                s.deployment.warm_writes = 3_000.0;
                s.limits.table_writes_at_start.value = 3_000.0;
                s.deployment.rehearsed = true;
            },
            LimitKind::Warm(Resource::TasksWrites),
        ),
        (
            |s| {
                s.deployment.warm_reads = 2_000.0;
                s.limits.table_reads_at_start.value = 2_000.0;
                reads_less(s);
            },
            LimitKind::Warm(Resource::TasksReads),
        ),
        (|s| s.limits.table_writes_quota.value = 3_000.0, LimitKind::Quota(Resource::TasksWrites)),
        (
            |s| {
                s.limits.table_reads_quota.value = 2_000.0;
                reads_less(s);
            },
            LimitKind::Quota(Resource::TasksReads),
        ),
        (|s| s.deployment.shards = 1, LimitKind::Shards),
    ]
}

/// Makes the order read fewer documents than tasks. Otherwise two limits would be equally tight.
fn reads_less(settings: &mut ScaleSettings) {
    let steps = &mut settings.forecast.workflow.steps;
    let request = steps["reserve"].request.clone();
    steps["ship"].request = request;
}

fn lower((lower, _): &Lowered) -> ScaleSettings {
    let mut settings = ample(Load::steady(1_000.0, 30.0));
    lower(&mut settings);
    settings
}

#[test]
fn each_lowered_limit_is_the_bottleneck() {
    for lowered in lowered_limits() {
        let report = scale(&lower(&lowered)).unwrap();
        assert_eq!(report.bottleneck, Some(lowered.1.to_string()));
        assert!(report.drained_after_s > 15.0, "{}: no backlog", lowered.1);
        assert!(report.backlog_max > 0.0, "{}", lowered.1);
    }
}

#[test]
fn the_event_bus_may_be_the_bottleneck() {
    let mut settings = ample(Load::steady(1_000.0, 30.0));
    settings.forecast.workflow.lifecycle_events = LifecycleEventKind::ENDS.into_iter().collect();
    settings.limits.events_per_second.value = 40.0;
    assert_eq!(scale(&settings).unwrap().bottleneck, Some(LimitKind::Bus.to_string()));
}

#[test]
fn a_backlog_is_what_arrives_beyond_the_sustainable_rate() {
    assert_eq!(Load::steady(10.0, 60.0).backlog_max(10.0), 0.0);
    assert_eq!(Load::steady(10.0, 60.0).backlog_max(4.0), 360.0);
    let spike = Load { spike: 50.0, spike_lasts_s: 10.0, ..Load::steady(10.0, 60.0) };
    // 30 a second too many for ten seconds; the rest of the load drains ten a second.
    assert_eq!(spike.backlog_max(20.0), 300.0);
    // 5 a second too many for 25 s, 45 for 10 s, 5 for 25 s.
    assert_eq!(spike.backlog_max(5.0), 700.0);
}

/// Applies the recommendations, as a user would.
fn follow(settings: &mut ScaleSettings, raises: &[Recommendation]) {
    let options = raises.iter().flat_map(|raise| &raise.options);
    for (option, value) in options.filter_map(|option| option.split_once(' ')) {
        let value: f64 = value.parse().unwrap();
        let (limits, deployment) = (&mut settings.limits, &mut settings.deployment);
        let set = match option {
            "--submission-concurrency" => &mut deployment.submission,
            "--scheduler-concurrency" => &mut deployment.scheduler,
            "--agent-concurrency" => &mut deployment.agent,
            "--pollers" => &mut deployment.pollers,
            "--warm-writes" => &mut deployment.warm_writes,
            "--warm-reads" => &mut deployment.warm_reads,
            "--account-concurrency" => &mut limits.account_concurrency.value,
            "--shards" => {
                deployment.shards = deployment.shards.max(value as u32);
                continue;
            }
            "--table-quota" => {
                let most = limits.table_writes_quota.value.max(value);
                limits.table_reads_quota.value = most;
                &mut limits.table_writes_quota.value
            }
            other => panic!("{other}"),
        };
        *set = set.max(value);
    }
}

#[test]
fn following_the_recommendations_removes_the_backlog() {
    for rate in [1_000.0, 10_000.0, 50_000.0] {
        let mut settings = settings(Load::steady(rate, 20.0));
        let mut rounds = 0;
        loop {
            let report = scale(&settings).unwrap();
            if report.raises.iter().all(|raise| raise.options.is_empty()) {
                assert!(report.sustained_rate >= rate, "{rate}: {}", report.sustained_rate);
                assert_eq!(report.backlog_max, 0.0, "{rate}");
                break;
            }
            follow(&mut settings, &report.raises);
            rounds += 1;
            assert!(rounds <= 4, "{rate}: {:?}", report.raises);
        }
    }
}

/// A submission that is not recorded yet has no deadline, so submissions should wait rather than tasks.
#[test]
fn capping_intake_makes_submission_the_bottleneck() {
    let mut settings = ample(Load::steady(1_000.0, 30.0));
    // So that the cap is above the smallest setting.
    settings.deployment.scheduler = 11.0;
    let report = scale(&settings).unwrap();
    settings.deployment.submission = report.let_in.unwrap();
    let capped = scale(&settings).unwrap();
    let submission = LimitKind::Concurrency(FunctionRole::Submission);
    assert_eq!(capped.bottleneck, Some(submission.to_string()));
    // It sustains less only because the cap is rounded down.
    let rest = report.sustained_rate;
    assert!((rest / 2.0..=rest).contains(&capped.sustained_rate), "{}", capped.sustained_rate);
}

#[test]
fn the_price_differs_from_the_forecast_only_in_the_time_of_functions() {
    let settings = settings(Load::steady(10_000.0, 10.0));
    let counted = forecast(settings.forecast.clone(), &|| {}).unwrap();
    let cost = scale(&settings).unwrap().cost;
    assert_eq!(cost.per_million.dynamodb, counted.dollars_per_million.dynamodb);
    assert!(cost.per_million.lambda > counted.dollars_per_million.lambda);
    assert_close(cost.an_hour, 36.0 * cost.per_million.total, 1e-9, "an hour");
    assert_close(cost.of_this_load, 0.1 * cost.per_million.total, 1e-9, "this load");
}

#[test]
fn the_same_settings_give_the_same_report() {
    let settings = settings(Load::steady(1_000.0, 10.0));
    let json = || serde_json::to_string(&scale(&settings).unwrap()).unwrap();
    assert_eq!(json(), json());
}

#[test]
fn settings_outside_their_limits_are_refused() {
    let error = |change: fn(&mut ScaleSettings)| {
        let mut settings = settings(Load::steady(1_000.0, 10.0));
        change(&mut settings);
        scale(&settings).unwrap_err().to_string()
    };
    assert_eq!(
        error(|s| s.deployment.scheduler = 1_001.0),
        "--scheduler-concurrency: must be from 2 to 1000, the limit of MaximumConcurrency; --pollers allows more"
    );
    assert_eq!(error(|s| s.deployment.pollers = 201.0), "--pollers: must be from 0 to 200");
    assert_eq!(error(|s| s.load.lasts_s = 0.0), "--for: must be from 1 to 14400 seconds");
    assert_eq!(
        error(|s| s.load.spike_lasts_s = 11.0),
        "--spike-for: must be from 0 to 10 seconds, the duration in --for"
    );
    assert_eq!(error(|s| s.load.rate = f64::NAN), "--rate: must be from 0 to 1000000");
}

/// `Size` copies the numbers of the templates.
#[test]
fn sizes_are_those_of_the_templates() {
    let parsed = |text: &str| -> Value { serde_saphyr::from_str(text).unwrap() };
    let main = parsed(include_str!("../../../../template.yaml"));
    let agent = parsed(include_str!("../../../../infra/agent.yaml"));
    for size in [Size::Small, Size::Medium, Size::Large] {
        let at_once = |template: &Value, function: &str| {
            template["Mappings"]["Concurrency"][size.to_string()][function].as_f64().unwrap()
        };
        let given =
            (at_once(&main, "Submission"), at_once(&main, "Scheduler"), at_once(&agent, "Agent"));
        assert_eq!(given, size.at_once(), "{size}");
    }
    let shards = &main["Parameters"]["Shards"];
    assert_eq!(shards["Default"], SHARDS);
    assert_eq!(shards["MaxValue"], settings::SHARDS_MAX);
    assert_eq!(main["Parameters"]["Size"]["Default"], "medium");
}
