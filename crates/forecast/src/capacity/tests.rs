//! The model against arithmetic, against what is counted elsewhere, and against itself.

use serde_json::Value;
use steward_core::model::names::AgentName;

use super::{
    bounds::{self, Bound},
    model::Model,
    run::{Ran, run},
    *,
};
use crate::cost::{self, Asked, Role, Said, Span, forecast};

/// Ten minutes after the last submission all of the loads here are done.
const WATCHED_S: f64 = 600.0;

/// The order that ships: three steps, ten seconds for each.
fn order() -> cost::Settings {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../workflows/order.yaml");
    let workflow = steward_definition_file::read_file(std::path::Path::new(file)).unwrap();
    cost::Settings { runs: 20, ..cost::Settings::new(workflow) }
}

/// Of no load.
pub(super) fn settings_of_nothing() -> Settings {
    settings(Load::steady(0.0, 1.0))
}

fn settings(load: Load) -> Settings {
    Settings {
        forecast: order(),
        load,
        deployment: Deployment::of(Size::Large),
        limits: Limits::load().unwrap(),
        compute_s: 0.003,
    }
}

/// A deployment that bears far more than any load here, all pollers there from the start.
fn ample(load: Load) -> Settings {
    let mut settings = settings(load);
    settings.limits.account_concurrency.value = 20_000.0;
    settings.limits.table_writes_quota.value = 1e6;
    settings.limits.table_reads_quota.value = 1e6;
    settings.deployment = Deployment {
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

fn ran(settings: &Settings) -> (Model, Ran) {
    let counted = forecast(settings.forecast.clone(), &|| {}).unwrap();
    let model = Model::of(settings, &counted.demand);
    let ran = run(settings, &model, WATCHED_S);
    (model, ran)
}

fn agent(name: &str) -> Role {
    Role::Agent(name.parse::<AgentName>().unwrap())
}

#[track_caller]
fn assert_close(one: f64, other: f64, share: f64, what: &str) {
    let off = (one - other).abs() / other.abs().max(1e-9);
    assert!(off <= share, "{what}: {one} and {other}, off by {:.1}%", off * 100.0);
}

#[test]
fn a_task_asks_what_the_forecast_counts() {
    let counted = forecast(order(), &|| {}).unwrap();
    let model = Model::of(&settings(Load::steady(1.0, 1.0)), &counted.demand);
    let asks: Vec<_> = supply::TABLES.map(|asked| model.asks(asked)).into();
    // 2 + 1 + 3 and 1 + 3; 1 + 1; 2 + 3 and 3 + 1, since shipping reads what reserving returned.
    assert_eq!(asks, [6.0, 4.0, 2.0, 5.0, 4.0]);
    let usage = counted.usage;
    // And once into the index of ended tasks, which is never the first to be full.
    let writes = asks[0] + asks[2] + asks[3] + 1.0;
    assert_close(writes, usage.write_units, 1e-9, "write units");
    assert_close(asks[1] + asks[4], usage.read_units, 1e-9, "read units");
    assert_close(model.invocations(), usage.invocations, 1e-9, "invocations");
    // Without the processor's time that the model adds, the functions' time is the forecast's.
    let without = Settings { compute_s: 0.0, ..settings(Load::steady(1.0, 1.0)) };
    let busy_s = Model::of(&without, &counted.demand).busy_s();
    let gb_seconds = busy_s * cost::MEMORY_GB;
    // The forecast takes the mean of an invocation's messages where this takes the slowest.
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
fn within_its_limits_nothing_waits() {
    let settings = ample(Load::steady(1_000.0, 20.0));
    let (model, ran) = ran(&settings);
    assert!(ran.stages.iter().all(|stage| stage.behind.is_none()), "{:?}", ran.stages);
    assert_close(ran.done, 20_000.0, 1e-4, "tasks");
    let mean_s = ran.task_s / ran.done;
    assert_close(mean_s, model.unloaded_s(), 0.15, "latency");
    let report = scale(&settings).unwrap();
    assert_eq!((report.binds, report.raises), (None, Vec::new()));
}

#[test]
fn a_spike_takes_the_place_of_the_rate() {
    let load = Load { spike: 50.0, spike_lasts_s: 10.0, ..Load::steady(10.0, 60.0) };
    let by: Vec<_> = [0.0, 25.0, 30.0, 35.0, 60.0, 90.0].map(|at_s| load.by(at_s)).into();
    assert_eq!(by, [0.0, 250.0, 500.0, 750.0, 1_000.0, 1_000.0]);
    assert_eq!((load.total(), load.peak()), (1_000.0, 50.0));
}

/// Loads that are borne and such that are not.
fn loads() -> Vec<Settings> {
    let steady = Load::steady(2_000.0, 20.0);
    let spike = Load { spike: 8_000.0, spike_lasts_s: 5.0, ..steady };
    let slow = vec!["ship=700ms".parse::<Said<Span>>().unwrap()];
    let mut slowed = settings(steady);
    slowed.forecast.slow = slow;
    vec![ample(steady), settings(steady), ample(spike), settings(spike), slowed]
}

#[test]
fn no_task_is_lost_and_none_is_made() {
    for settings in loads() {
        let counted = forecast(settings.forecast.clone(), &|| {}).unwrap();
        let model = Model::of(&settings, &counted.demand);
        // Cut off in the middle of it, and at the end.
        for watched_s in [0.0, 10.0, WATCHED_S] {
            let ran = run(&settings, &model, watched_s);
            assert_close(ran.submitted, settings.load.total(), 1e-9, "submitted");
            assert_close(ran.done + ran.left, ran.submitted, 1e-6, "done and left");
        }
    }
}

/// Little's law: what is there at a time, summed up over time, is what each spent there, summed up over
/// tasks. <https://en.wikipedia.org/wiki/Little%27s_law>
#[test]
fn tasks_take_as_long_as_they_are_seen() {
    for settings in loads() {
        let (_, ran) = ran(&settings);
        let took_s: f64 = ran.took.iter().map(|(took, tasks)| *took as f64 / 100.0 * tasks).sum();
        assert_close(took_s, ran.task_s, 0.01, "seconds of tasks");
    }
}

#[test]
fn functions_are_as_busy_as_arithmetic_says() {
    for settings in loads() {
        let (model, ran) = ran(&settings);
        for (stage, seen) in model.stages.iter().zip(&ran.stages) {
            let busy_s = settings.load.total() * stage.busy_s(model.batch);
            assert_close(seen.busy_s, busy_s, 0.01, &stage.role.to_string());
        }
    }
}

/// A way to lower a limit, and which one it then is.
type Lowered = (fn(&mut Settings), Bound);

/// Every limit, lowered until it bears some 500 tasks a second.
fn lowered() -> Vec<Lowered> {
    vec![
        (|s| s.deployment.submission = 2.4, Bound::AtOnce(Role::Submission)),
        (|s| s.deployment.scheduler = 11.0, Bound::AtOnce(Role::Scheduler)),
        (
            |s| {
                // Of agents that are alike the first is behind, and the others get what it lets through.
                s.deployment.agent = 14.0;
                s.forecast.slow = vec!["charge=300ms".parse().unwrap()];
            },
            Bound::AtOnce(agent("payment")),
        ),
        (
            |s| {
                s.deployment.pollers = 0.0;
                s.limits.pollers_max.value = 30.0;
                s.forecast.slow = vec!["charge=300ms".parse().unwrap()];
            },
            Bound::Pollers(agent("payment")),
        ),
        (|s| s.limits.account_concurrency.value = 52.0, Bound::Account),
        (|s| s.limits.invocations_per_concurrency.value = 0.02, Bound::Invocations),
        (
            |s| {
                s.limits.queue_in_flight.value = 300.0;
                s.forecast.slow = vec!["charge=300ms".parse().unwrap()];
            },
            Bound::InFlight(agent("payment")),
        ),
        (
            |s| {
                s.deployment.warm_writes = 3_000.0;
                s.limits.table_writes_at_start.value = 3_000.0;
                s.deployment.rehearsed = true;
            },
            Bound::Warm(Asked::TasksWrites),
        ),
        (
            |s| {
                s.deployment.warm_reads = 2_000.0;
                s.limits.table_reads_at_start.value = 2_000.0;
                reads_less(s);
            },
            Bound::Warm(Asked::TasksReads),
        ),
        (|s| s.limits.table_writes_quota.value = 3_000.0, Bound::Quota(Asked::TasksWrites)),
        (
            |s| {
                s.limits.table_reads_quota.value = 2_000.0;
                reads_less(s);
            },
            Bound::Quota(Asked::TasksReads),
        ),
        (|s| s.deployment.shards = 1, Bound::Shards),
    ]
}

/// Lets the order read fewer documents than tasks: without, two limits would be equally tight.
fn reads_less(settings: &mut Settings) {
    let steps = &mut settings.forecast.workflow.steps;
    let request = steps["reserve"].request.clone();
    steps["ship"].request = request;
}

fn lower((lower, _): &Lowered) -> Settings {
    let mut settings = ample(Load::steady(1_000.0, 30.0));
    lower(&mut settings);
    settings
}

#[test]
fn each_limit_binds_when_it_is_lowered() {
    for lowered in lowered() {
        let bound = &lowered.1;
        let settings = lower(&lowered);
        let report = scale(&settings).unwrap();
        assert_eq!(report.limits[0].bound, *bound, "by arithmetic");
        let (binds, share) = report.binds.unwrap_or_else(|| panic!("{bound} does not bind"));
        assert_eq!(binds, bound.to_string(), "in time");
        assert!(share > 0.5, "{bound}: {share}");
    }
}

#[test]
fn a_backlog_lasts_as_long_as_arithmetic_says() {
    for lowered in lowered() {
        let settings = lower(&lowered);
        let (model, ran) = ran(&settings);
        let by_s = bounds::done_by_s(&settings, &model);
        assert!(by_s > 45.0, "{}: no backlog: {by_s}", lowered.1);
        assert_close(ran.done_at_s.unwrap(), by_s, 0.05, &lowered.1.to_string());
    }
}

/// New instances are given so fast that nothing else must be in the way to see them bind.
#[test]
fn new_instances_may_come_too_slowly() {
    let mut settings = ample(Load::steady(4_000.0, 30.0));
    settings.limits.instances_at_once.value = 1.0;
    settings.limits.instances_per_second.value = 1.0;
    let (binds, _) = scale(&settings).unwrap().binds.unwrap();
    assert!(binds.ends_with("new instances"), "{binds}");
}

#[test]
fn events_may_be_too_many_for_the_bus() {
    let mut settings = ample(Load::steady(1_000.0, 30.0));
    settings.forecast.workflow.lifecycle_events = true;
    settings.limits.events_per_second.value = 40.0;
    let report = scale(&settings).unwrap();
    assert_eq!(report.limits[0].bound, Bound::Bus);
    assert_eq!(report.binds.unwrap().0, Bound::Bus.to_string());
}

#[test]
fn a_spike_leaves_what_its_limit_does_not_bear() {
    let base = Load::steady(500.0, 200.0);
    let mut settings = ample(Load { spike: 5_000.0, spike_lasts_s: 10.0, ..base });
    settings.deployment.scheduler = 22.0;
    let (model, ran) = ran(&settings);
    let bears = bounds::rows(&settings, &model)[0].bears;
    let mut stages = model.stages.iter().zip(&ran.stages);
    let (_, scheduler) = stages.find(|(stage, _)| stage.role == Role::Scheduler).unwrap();
    let (from, until) = scheduler.behind.unwrap();
    assert!((95.0..98.0).contains(&from), "{from}");
    // What is left of the spike goes out beside what comes after it.
    let left = 10.0 * (5_000.0 - bears);
    assert_close(until - 105.0, left / (bears - 500.0), 0.1, "seconds");
}

#[test]
fn pollers_that_come_by_and_by_make_messages_wait() {
    let mut settings = ample(Load::steady(4_000.0, 60.0));
    settings.deployment.pollers = 0.0;
    let report = scale(&settings).unwrap();
    let (binds, _) = report.binds.unwrap();
    assert!(binds.ends_with("pollers of its queue"), "{binds}");
    let raise = report.raises.iter().find(|raise| raise.what.starts_with("pollers")).unwrap();
    settings.deployment.pollers = raise.to;
    assert_eq!(scale(&settings).unwrap().binds, None);
}

/// What a user does who follows the advice.
fn follow(settings: &mut Settings, raises: &[Raise]) {
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
fn who_follows_the_advice_has_no_backlog() {
    for rate in [1_000.0, 10_000.0, 50_000.0] {
        let mut settings = settings(Load::steady(rate, 20.0));
        let mut rounds = 0;
        loop {
            let report = scale(&settings).unwrap();
            if report.raises.iter().all(|raise| raise.options.is_empty()) {
                assert!(report.bears >= rate, "{rate}: {}", report.bears);
                // Nothing but time brings a function more than a thousand instances.
                let slow = report.binds.is_none_or(|(bound, _)| bound.ends_with("new instances"));
                assert!(slow && (rate > 10_000.0 || report.raises.is_empty()), "{rate}");
                let oldest_s = report.stages.iter().map(|stage| stage.oldest_s);
                assert!(oldest_s.fold(0.0, f64::max) < 10.0, "{rate}: {:?}", report.stages);
                break;
            }
            follow(&mut settings, &report.raises);
            rounds += 1;
            assert!(rounds <= 4, "{rate}: {:?}", report.raises);
        }
    }
}

#[test]
fn answers_that_wait_beyond_complete_by_are_told_of() {
    let mut settings = ample(Load::steady(1_000.0, 30.0));
    settings.deployment.scheduler = 11.0;
    let late = scale(&settings).unwrap().late;
    assert!(late.share > 0.3, "{late:?}");
    // Half of what comes is borne, and each answer waits: ten seconds' worth by then.
    assert!((8.0..40.0).contains(&late.from_s.unwrap()), "{late:?}");
    let report = scale(&ample(Load::steady(1_000.0, 30.0))).unwrap();
    assert_eq!((report.late, report.let_in), (Late { share: 0.0, from_s: None }, None));
}

/// Before it is recorded, a task has no complete-by: what must wait should wait there.
#[test]
fn who_lets_in_what_is_borne_has_no_late_answers() {
    let mut settings = ample(Load::steady(1_000.0, 30.0));
    settings.deployment.scheduler = 11.0;
    let report = scale(&settings).unwrap();
    settings.deployment.submission = report.let_in.unwrap();
    let valve = scale(&settings).unwrap();
    assert_eq!(valve.late.share, 0.0);
    assert_eq!(valve.binds.unwrap().0, Bound::AtOnce(Role::Submission).to_string());
    // It takes no longer by it than what the floor takes off.
    let (one, other) = (valve.drained_after_s.unwrap(), report.drained_after_s.unwrap());
    assert!(one < other * 1.3, "{one} and {other}");
}

#[test]
fn a_price_is_that_of_the_forecast_but_for_the_time_of_functions() {
    let settings = settings(Load::steady(10_000.0, 10.0));
    let counted = forecast(settings.forecast.clone(), &|| {}).unwrap();
    let cost = scale(&settings).unwrap().cost;
    assert_eq!(cost.per_million.dynamodb, counted.dollars_per_million.dynamodb);
    assert!(cost.per_million.lambda > counted.dollars_per_million.lambda);
    assert_close(cost.an_hour, 36.0 * cost.per_million.total, 1e-9, "an hour");
    assert_close(cost.of_this_load, 0.1 * cost.per_million.total, 1e-9, "this load");
}

#[test]
fn the_same_question_has_the_same_answer() {
    let settings = settings(Load::steady(1_000.0, 10.0));
    let json = || serde_json::to_string(&scale(&settings).unwrap()).unwrap();
    assert_eq!(json(), json());
}

#[test]
fn numbers_that_make_no_sense_are_refused() {
    let error = |change: fn(&mut Settings)| {
        let mut settings = settings(Load::steady(1_000.0, 10.0));
        change(&mut settings);
        scale(&settings).unwrap_err().to_string()
    };
    assert_eq!(
        error(|s| s.deployment.scheduler = 1_001.0),
        "--scheduler-concurrency: must be from 2 to 1000, which is what MaximumConcurrency can be; with --pollers it may be more"
    );
    assert_eq!(error(|s| s.deployment.pollers = 201.0), "--pollers: must be from 0 to 200");
    assert_eq!(error(|s| s.load.lasts_s = 0.0), "--for: must be from 1 to 14400 seconds");
    assert_eq!(
        error(|s| s.load.spike_lasts_s = 11.0),
        "--spike-for: must be from 0 to 10 seconds, as --for"
    );
    assert_eq!(error(|s| s.load.rate = f64::NAN), "--rate: must be from 0 to 1000000");
}

/// The numbers of the sizes are in the templates; here is a copy.
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
