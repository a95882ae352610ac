//! What the model says.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{
    bounds::{self, Bound, Row},
    model::{Model, Stage},
    raise::{self, Raise},
    run::{Ran, StageRan},
    settings::{Deployment, Load, Settings},
    supply::Pollers,
};
use crate::cost::{
    self, Role,
    prices::{Dollars, Prices, Usage},
};

/// How a deployment fares under a load.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// The workflow.
    pub workflow: String,
    /// Its version.
    pub version: u32,
    /// What came.
    pub load: Load,
    /// What it came to.
    pub deployment: Deployment,
    /// The queues and their functions.
    pub stages: Vec<StageRow>,
    /// All limits, the tightest first.
    pub limits: Vec<Row>,
    /// What most of the waiting was for, and its share of all waiting; absent if nothing fell behind.
    pub binds: Option<(String, f64)>,
    /// Submissions a second that the deployment bears in the long run: what its tightest limit does.
    pub bears: f64,
    /// Tasks submitted.
    pub submitted: f64,
    /// Tasks that were not done when the watch ended.
    pub left: f64,
    /// Seconds from the last submission until the last task was done; absent if it was not.
    pub drained_after_s: Option<f64>,
    /// The same by arithmetic alone: as long as the tightest limit takes.
    pub drained_after_by_arithmetic_s: f64,
    /// From submitted to ended.
    pub latency: Latency,
    /// Answers that came too late.
    pub late: Late,
    /// Invocations of the submission function at once that let in no more than the rest bears; absent if
    /// nothing is too late, or that is not why. What waits then waits before it is a task, and no
    /// complete-by runs.
    pub let_in: Option<f64>,
    /// What to raise.
    pub raises: Vec<Raise>,
    /// What it costs.
    pub cost: Cost,
    /// What the numbers take for granted.
    pub assumes: Vec<String>,
}

/// A queue and its function.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StageRow {
    /// Which.
    pub stage: String,
    /// Messages of a task.
    pub messages: f64,
    /// How long an invocation takes, in milliseconds.
    pub invocation_ms: f64,
    /// Messages a second at the highest rate.
    pub messages_a_second: f64,
    /// Invocations at once that it takes.
    pub needed: f64,
    /// Invocations at once that it is set to.
    pub set: f64,
    /// The one by the other.
    pub utilisation: f64,
    /// Seconds until its queue has so many pollers; absent if it never has.
    pub pollers_after_s: Option<f64>,
    /// The most messages that waited...
    pub longest: f64,
    /// ...and when, in seconds from the beginning.
    pub longest_at_s: f64,
    /// The longest that one waited, in seconds.
    pub oldest_s: f64,
    /// From when until when messages waited for more than a second, in seconds.
    pub behind_s: Option<(f64, f64)>,
    /// What they waited for most; absent if they did not.
    pub held_by: Option<String>,
    /// Seconds of invocations in all.
    pub busy_s: f64,
}

/// From submitted to ended, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Latency {
    /// If nothing waits.
    pub unloaded_ms: f64,
    /// Half of the tasks took no longer.
    pub p50_ms: f64,
    /// Ninety-nine in a hundred took no longer.
    pub p99_ms: f64,
    /// The longest.
    pub max_ms: f64,
}

/// Answers of agents that came after their step's complete-by: they are ignored once the supervisor has given
/// the attempt up, and the step is done again. The model does not follow that.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Late {
    /// Their share of all answers.
    pub share: f64,
    /// When the first came, in seconds from the beginning.
    pub from_s: Option<f64>,
}

/// What it costs, in dollars.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Cost {
    /// What a task uses.
    pub usage: Usage,
    /// A million tasks.
    pub per_million: Dollars,
    /// An hour at the rate.
    pub an_hour: f64,
    /// An hour at the spike's rate.
    pub an_hour_of_spike: f64,
    /// This load.
    pub of_this_load: f64,
}

impl Report {
    pub(super) fn of(
        settings: &Settings,
        model: &Model,
        counted: &cost::Report,
        prices: &Prices,
        ran: &Ran,
    ) -> Self {
        let limits = bounds::rows(settings, model);
        let lasts_s = settings.load.lasts_s;
        let by_arithmetic_s = bounds::done_by_s(settings, model) - lasts_s;
        let late_share = if ran.answers > 0.0 { ran.late / ran.answers } else { 0.0 };
        Self {
            workflow: counted.workflow.clone(),
            version: counted.version,
            load: settings.load,
            deployment: settings.deployment,
            stages: model
                .stages
                .iter()
                .zip(&ran.stages)
                .map(|(stage, ran)| stage_row(settings, model, stage, ran))
                .collect(),
            binds: binds(ran),
            bears: limits.iter().map(|row| row.bears).fold(f64::MAX, f64::min),
            submitted: ran.submitted,
            left: if ran.done_at_s.is_some() { 0.0 } else { ran.left },
            drained_after_s: ran.done_at_s.map(|at_s| at_s - lasts_s),
            drained_after_by_arithmetic_s: by_arithmetic_s,
            latency: latency(model, ran),
            late: Late { share: late_share, from_s: ran.first_late_s },
            let_in: let_in(settings, model, &limits).filter(|_| ran.late > 0.0),
            raises: raise::raises(settings, model, &limits, ran),
            limits,
            cost: cost(settings, model, counted, prices),
            assumes: assumes(settings, prices),
        }
    }
}

fn stage_row(settings: &Settings, model: &Model, stage: &Stage, ran: &StageRan) -> StageRow {
    let peak = settings.load.peak();
    let needed = peak * stage.busy_s(model.batch);
    StageRow {
        stage: stage.role.to_string(),
        messages: stage.messages,
        invocation_ms: stage.invocation_s * 1_000.0,
        messages_a_second: peak * stage.messages,
        needed,
        set: stage.at_once,
        utilisation: needed / stage.at_once,
        pollers_after_s: Pollers::of(settings).reach(needed),
        longest: ran.longest,
        longest_at_s: ran.longest_at_s,
        oldest_s: ran.oldest_s,
        behind_s: ran.behind,
        held_by: ran.behind.and_then(|_| most(&ran.held)).map(|(bound, _)| bound.to_string()),
        busy_s: ran.busy_s,
    }
}

/// How many invocations of the submission function let in what all others bear, if more than that comes.
/// The least that can be set is 2.
fn let_in(settings: &Settings, model: &Model, limits: &[Row]) -> Option<f64> {
    let rest = limits.iter().filter(|row| row.bound != Bound::AtOnce(Role::Submission));
    let borne = rest.map(|row| row.bears).fold(f64::MAX, f64::min);
    let submission = model.stages.iter().find(|stage| stage.role == Role::Submission);
    let busy_s = submission.map_or(0.0, |stage| stage.busy_s(model.batch));
    (borne < settings.load.peak()).then(|| (borne * busy_s).floor().max(2.0))
}

/// What most of the waiting was for, over the stages that fell behind, and its share of all waiting.
fn binds(ran: &Ran) -> Option<(String, f64)> {
    ran.stages.iter().find(|stage| stage.behind.is_some())?;
    let (bound, share) = most(&ran.held)?;
    Some((bound.to_string(), share))
}

fn most(held: &BTreeMap<Bound, f64>) -> Option<(&Bound, f64)> {
    let all: f64 = held.values().sum();
    let (bound, most) = held.iter().max_by(|(_, one), (_, other)| one.total_cmp(other))?;
    (all > 0.0).then_some((bound, most / all))
}

fn latency(model: &Model, ran: &Ran) -> Latency {
    let all: f64 = ran.took.values().sum();
    let at = |share: f64| {
        let mut so_far = 0.0;
        let found = ran.took.iter().find(|(_, tasks)| {
            so_far += **tasks;
            so_far >= all * share
        });
        found.map_or(0.0, |(took, _)| *took as f64 * 10.0)
    };
    let max_ms = ran.took.keys().next_back().map_or(0.0, |took| *took as f64 * 10.0);
    let unloaded_ms = model.unloaded_s() * 1_000.0;
    Latency { unloaded_ms, p50_ms: at(0.5), p99_ms: at(0.99), max_ms }
}

fn cost(settings: &Settings, model: &Model, counted: &cost::Report, prices: &Prices) -> Cost {
    let load = &settings.load;
    let usage = Usage { gb_seconds: model.busy_s() * cost::MEMORY_GB, ..counted.usage };
    let per_million = prices.of(&usage);
    let of = |tasks: f64| per_million.total * tasks / 1_000_000.0;
    Cost {
        usage,
        per_million,
        an_hour: of(load.rate * 3_600.0),
        an_hour_of_spike: of(load.peak() * 3_600.0),
        of_this_load: of(load.total()),
    }
}

fn assumes(settings: &Settings, prices: &Prices) -> Vec<String> {
    let limits = settings.limits.all();
    let unread = limits.filter(|(_, limit)| limit.verified.is_none()).map(|(name, _)| name);
    let unread = unread.collect::<Vec<_>>().join(", ");
    vec![
        format!(
            "batches of {} (--batch), {:.1} ms of processor for a message (--compute, an estimate), {:.0} MB",
            settings.forecast.batch,
            settings.compute_s * 1_000.0,
            cost::MEMORY_GB * 1_024.0
        ),
        "every task goes well: no faults, no retries, no duplicates; what is throttled waits"
            .to_owned(),
        format!(
            "list prices of {}, {}, without storage, logs, warm throughput, provisioned pollers",
            prices.region, prices.as_of
        ),
        format!("AWS's limits as in limits.yaml; not found in AWS's own words: {unread}"),
        "nothing was measured on AWS".to_owned(),
    ]
}
