//! The report of the capacity model.

use serde::Serialize;

use super::{
    limit_kind::LimitKind,
    limit_rows::{self, LimitRow},
    model::{QueueModel, Stage},
    recommendations::{self, Recommendation},
    scaling_limits::PollerScaling,
    settings::{DeploymentSizing, Load, ScaleSettings},
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
    /// The bottleneck: the tightest limit.
    pub bottleneck: Option<String>,
    /// The submissions per second that the deployment sustains: those of its tightest limit.
    pub sustained_rate: f64,
    /// Tasks submitted.
    pub submitted: f64,
    /// The largest number of submissions beyond the sustainable rate. They wait before they are tasks, when no deadline runs.
    pub backlog_max: f64,
    /// Seconds from the last submission until the last task ends, at the sustainable rate.
    pub drained_after_s: f64,
    /// The duration of a task if nothing waits, in milliseconds.
    pub unloaded_ms: f64,
    /// The concurrency of the submission function that caps intake at the rate which the rest sustains; absent if the rest
    /// sustains the load.
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
    ) -> Self {
        let limits = limit_rows::rows(settings, model);
        let load = settings.load;
        let sustained_rate = limits.first().map_or(f64::MAX, |row| row.sustained_rate);
        Self {
            workflow: counted.workflow.clone(),
            version: counted.version,
            load,
            deployment: settings.deployment,
            stages: model.stages.iter().map(|stage| stage_row(settings, model, stage)).collect(),
            bottleneck: limits.first().map(|row| row.bound.to_string()),
            sustained_rate,
            submitted: load.total(),
            backlog_max: load.backlog_max(sustained_rate),
            drained_after_s: limit_rows::done_by_s(settings, model) - load.lasts_s,
            unloaded_ms: model.unloaded_s * 1_000.0,
            let_in: intake_cap(settings, model, &limits),
            raises: recommendations::recommendations(settings, &limits),
            limits,
            cost: cost(settings, model, counted, prices),
            assumes: assumes(settings, prices),
        }
    }
}

fn stage_row(settings: &ScaleSettings, model: &QueueModel, stage: &Stage) -> StageRow {
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
    }
}

/// The concurrency of the submission function that caps intake at the rate which all other limits sustain, if the load
/// is higher. The smallest possible setting is 2.
fn intake_cap(settings: &ScaleSettings, model: &QueueModel, limits: &[LimitRow]) -> Option<f64> {
    let rest =
        limits.iter().filter(|row| row.bound != LimitKind::Concurrency(FunctionRole::Submission));
    let sustained = rest.map(|row| row.sustained_rate).fold(f64::MAX, f64::min);
    let submission = model.stages.iter().find(|stage| stage.role == FunctionRole::Submission);
    let busy_s = submission.map_or(0.0, |stage| stage.busy_s(model.batch));
    (sustained < settings.load.peak()).then(|| (sustained * busy_s).floor().max(2.0))
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
        "every task succeeds: no faults, no duplicates, no retries; tables do not grow".to_owned(),
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
