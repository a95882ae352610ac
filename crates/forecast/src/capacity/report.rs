//! The report of the capacity model.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{
    limit_kind::LimitKind,
    limit_rows::{self, LimitRow},
    load_simulation::LoadResult,
    model::{QueueModel, Stage},
    recommendations::{self, Recommendation},
    scaling_limits::PollerScaling,
    settings::{DeploymentSizing, Load, ScaleSettings},
    stage_queue::StageResult,
};
use crate::cost::{
    self, FunctionRole,
    prices::{Dollars, Prices, TaskUsage},
};

/// How a deployment behaves under a load.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ScaleReport {
    /// The workflow.
    pub workflow: String,
    /// Its version.
    pub version: u32,
    /// The load.
    pub load: Load,
    /// The deployment.
    pub deployment: DeploymentSizing,
    /// The queues and their functions.
    pub stages: Vec<StageRow>,
    /// All limits, the tightest first.
    pub limits: Vec<LimitRow>,
    /// The bottleneck: the limit that caused most of the waiting, and its share of all waiting; absent if no queue has a
    /// backlog.
    pub bottleneck: Option<(String, f64)>,
    /// The submissions per second that the deployment sustains: those of its tightest limit.
    pub sustained_rate: f64,
    /// Tasks submitted.
    pub submitted: f64,
    /// Tasks that were not done at the end of the simulation.
    pub left: f64,
    /// Seconds from the last submission until the last task was done; absent if some were not.
    pub drained_after_s: Option<f64>,
    /// The same by arithmetic alone: the time that the tightest limit needs.
    pub drained_after_by_arithmetic_s: f64,
    /// The durations of tasks.
    pub latency: LatencySummary,
    /// Late replies.
    pub late: LateReplies,
    /// How many submissions were held back at the same time, at most.
    pub held_back_max: f64,
    /// Requests that agents received past complete-by, and shed.
    pub shed_requests: f64,
    /// Attempts that may have been abandoned because their request or their reply waited.
    pub lost_attempts: f64,
    /// The concurrency of the submission function that caps intake at the rate which the rest sustains; absent if there are
    /// no late replies, or if a cap does not help. Submissions then wait before they are tasks, when no deadline runs.
    pub let_in: Option<f64>,
    /// The limits to increase.
    pub raises: Vec<Recommendation>,
    /// The cost.
    pub cost: LoadCost,
    /// The assumptions behind the numbers.
    pub assumes: Vec<String>,
}

/// A queue and its function.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StageRow {
    /// The name of the function.
    pub stage: String,
    /// Messages of a task.
    pub messages: f64,
    /// The duration of an invocation, in milliseconds.
    pub invocation_ms: f64,
    /// Messages per second at the peak rate.
    pub messages_a_second: f64,
    /// The needed concurrent invocations.
    pub needed: f64,
    /// The configured concurrent invocations.
    pub set: f64,
    /// The needed share of the configured concurrency.
    pub utilisation: f64,
    /// Seconds until its queue has enough pollers; absent if it never has.
    pub pollers_after_s: Option<f64>,
    /// The largest length of the queue.
    pub longest: f64,
    /// When the queue was longest, in seconds from the start.
    pub longest_at_s: f64,
    /// The longest waiting time of a message, in seconds.
    pub oldest_s: f64,
    /// The first and the last moment with a backlog of more than a second, in seconds from the start.
    pub behind_s: Option<(f64, f64)>,
    /// The limit that caused most of the waiting; absent without a backlog.
    pub held_by: Option<String>,
    /// The sum of the durations of its invocations, in seconds.
    pub busy_s: f64,
}

/// The durations of tasks from submission to end, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct LatencySummary {
    /// If nothing waits.
    pub unloaded_ms: f64,
    /// The median.
    pub p50_ms: f64,
    /// The 99th percentile.
    pub p99_ms: f64,
    /// The longest duration.
    pub max_ms: f64,
}

/// Replies of agents that the scheduler handles after the deadline of their attempt. It ignores those that come after the
/// supervisor has given the attempt up, and retries the steps. The model does not include these retries.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct LateReplies {
    /// Their share of all replies.
    pub share: f64,
    /// When the scheduler handled the first, in seconds from the start.
    pub from_s: Option<f64>,
}

/// The cost in dollars.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct LoadCost {
    /// The usage of a task.
    pub usage: TaskUsage,
    /// The price of a million tasks.
    pub per_million: Dollars,
    /// The price of an hour at the rate.
    pub an_hour: f64,
    /// The price of an hour at the rate of the spike.
    pub an_hour_of_spike: f64,
    /// The price of this load.
    pub of_this_load: f64,
}

impl ScaleReport {
    pub(super) fn of(
        settings: &ScaleSettings,
        model: &QueueModel,
        counted: &cost::ForecastReport,
        prices: &Prices,
        result: &LoadResult,
    ) -> Self {
        let limits = limit_rows::rows(settings, model);
        let lasts_s = settings.load.lasts_s;
        let by_arithmetic_s = limit_rows::done_by_s(settings, model) - lasts_s;
        let late_share = if result.handled_replies > 0.0 {
            result.late_replies / result.handled_replies
        } else {
            0.0
        };
        Self {
            workflow: counted.workflow.clone(),
            version: counted.version,
            load: settings.load,
            deployment: settings.deployment,
            stages: model
                .stages
                .iter()
                .zip(&result.stages)
                .map(|(stage, result)| stage_row(settings, model, stage, result))
                .collect(),
            bottleneck: bottleneck(result),
            sustained_rate: limits.iter().map(|row| row.sustained_rate).fold(f64::MAX, f64::min),
            submitted: result.submitted,
            left: if result.done_at_s.is_some() { 0.0 } else { result.unfinished },
            drained_after_s: result.done_at_s.map(|at_s| at_s - lasts_s),
            drained_after_by_arithmetic_s: by_arithmetic_s,
            latency: latency(model, result),
            late: LateReplies { share: late_share, from_s: result.first_late_s },
            held_back_max: result.held_back_max,
            shed_requests: result.shed_requests,
            lost_attempts: result.lost_attempts,
            let_in: intake_cap(settings, model, &limits).filter(|_| result.lost_attempts > 0.0),
            raises: recommendations::recommendations(settings, model, &limits, result),
            limits,
            cost: cost(settings, model, counted, prices),
            assumes: assumes(settings, prices),
        }
    }
}

fn stage_row(
    settings: &ScaleSettings,
    model: &QueueModel,
    stage: &Stage,
    result: &StageResult,
) -> StageRow {
    let peak = settings.load.peak();
    let needed = peak * stage.busy_s(model.batch);
    StageRow {
        stage: stage.role.to_string(),
        messages: stage.messages,
        invocation_ms: stage.invocation_s * 1_000.0,
        messages_a_second: peak * stage.messages,
        needed,
        set: stage.concurrency,
        utilisation: needed / stage.concurrency,
        pollers_after_s: PollerScaling::of(settings).reach(needed),
        longest: result.max_length,
        longest_at_s: result.max_length_at_s,
        oldest_s: result.max_age_s,
        behind_s: result.backlog_s,
        held_by: result
            .backlog_s
            .and_then(|_| most(&result.waiting_s_by_limit))
            .map(|(bound, _)| bound.to_string()),
        busy_s: result.invocation_s_total,
    }
}

/// The concurrency of the submission function that caps intake at the rate which all other limits sustain, if the load
/// is higher. The smallest possible setting is 2.
fn intake_cap(settings: &ScaleSettings, model: &QueueModel, limits: &[LimitRow]) -> Option<f64> {
    let rest =
        limits.iter().filter(|row| row.bound != LimitKind::Concurrency(FunctionRole::Submission));
    let borne = rest.map(|row| row.sustained_rate).fold(f64::MAX, f64::min);
    let submission = model.stages.iter().find(|stage| stage.role == FunctionRole::Submission);
    let busy_s = submission.map_or(0.0, |stage| stage.busy_s(model.batch));
    (borne < settings.load.peak()).then(|| (borne * busy_s).floor().max(2.0))
}

/// The limit that caused most of the waiting, if any stage has a backlog, and its share of all waiting.
fn bottleneck(result: &LoadResult) -> Option<(String, f64)> {
    result.stages.iter().find(|stage| stage.backlog_s.is_some())?;
    let (bound, share) = most(&result.waiting_s_by_limit)?;
    Some((bound.to_string(), share))
}

fn most(waited: &BTreeMap<LimitKind, f64>) -> Option<(&LimitKind, f64)> {
    let all: f64 = waited.values().sum();
    let (bound, most) = waited.iter().max_by(|(_, one), (_, other)| one.total_cmp(other))?;
    (all > 0.0).then_some((bound, most / all))
}

fn latency(model: &QueueModel, result: &LoadResult) -> LatencySummary {
    let all: f64 = result.durations_cs.values().sum();
    let at = |share: f64| {
        let mut so_far = 0.0;
        let found = result.durations_cs.iter().find(|(_, tasks)| {
            so_far += **tasks;
            so_far >= all * share
        });
        found.map_or(0.0, |(took, _)| *took as f64 * 10.0)
    };
    let max_ms = result.durations_cs.keys().next_back().map_or(0.0, |took| *took as f64 * 10.0);
    let unloaded_ms = model.unloaded_s() * 1_000.0;
    LatencySummary { unloaded_ms, p50_ms: at(0.5), p99_ms: at(0.99), max_ms }
}

fn cost(
    settings: &ScaleSettings,
    model: &QueueModel,
    counted: &cost::ForecastReport,
    prices: &Prices,
) -> LoadCost {
    let load = &settings.load;
    let usage = TaskUsage { gb_seconds: model.busy_s() * cost::MEMORY_GB, ..counted.usage };
    let per_million = prices.of(&usage);
    let of = |tasks: f64| per_million.total * tasks / 1_000_000.0;
    LoadCost {
        usage,
        per_million,
        an_hour: of(load.rate * 3_600.0),
        an_hour_of_spike: of(load.peak() * 3_600.0),
        of_this_load: of(load.total()),
    }
}

fn assumes(settings: &ScaleSettings, prices: &Prices) -> Vec<String> {
    let limits = settings.limits.all();
    let unread = limits.filter(|(_, limit)| limit.verified.is_none()).map(|(name, _)| name);
    let unread = unread.collect::<Vec<_>>().join(", ");
    vec![
        format!(
            "batches of {} (--batch), {:.1} ms of processor time per message (--compute, an estimate), {:.0} MB",
            settings.forecast.batch,
            settings.compute_s * 1_000.0,
            cost::MEMORY_GB * 1_024.0
        ),
        "every task succeeds: no faults, no duplicates, no retries except those of late requests; throttled messages wait"
            .to_owned(),
        format!(
            "list prices of {}, {}, without storage, logs, warm throughput, provisioned pollers",
            prices.region, prices.as_of
        ),
        format!(
            "limits of AWS as in aws_limits.yaml; not confirmed in AWS's documentation: {unread}"
        ),
        "nothing was measured on AWS".to_owned(),
    ]
}
