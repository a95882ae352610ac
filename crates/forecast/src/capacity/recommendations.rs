//! Recommendations: which limits to increase, where, and to which value.

use serde::Serialize;

use super::{
    limit_kind::LimitKind,
    limit_rows::LimitRow,
    load_simulation::LoadResult,
    model::QueueModel,
    scaling_limits::TableThroughput,
    settings::{SHARDS_MAX, ScaleSettings},
    stage_queue::BACKLOG_S,
};
use crate::cost::{FunctionRole, Resource};

/// The highest recommended utilisation of a limit at the peak rate.
pub(super) const UTILISATION_MAX: f64 = 0.8;

/// The largest number of shards in a recommendation.
const SHARDS_RECOMMENDED_MAX: u32 = 65_536;

/// A limit to increase.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Recommendation {
    /// The limit.
    pub what: String,
    /// The current value.
    pub from: f64,
    /// The recommended value.
    pub to: f64,
    /// The setting or the quota to change.
    pub at: String,
    /// The options of `steward scale` that simulate the change.
    pub options: Vec<String>,
}

/// The limits to increase for the peak rate, with a fifth in reserve.
pub(super) fn recommendations(
    settings: &ScaleSettings,
    model: &QueueModel,
    rows: &[LimitRow],
    result: &LoadResult,
) -> Vec<Recommendation> {
    let tight = rows.iter().filter(|row| row.utilisation > UTILISATION_MAX);
    let mut recommendations: Vec<Recommendation> =
        tight.filter_map(|row| recommend(settings, rows, row)).collect();
    recommendations.extend(pollers(settings, model, result));
    recommendations.extend(instances(settings, model, result));
    // Several functions or tables may need the same increase: keep the largest.
    recommendations.sort_by(|one, other| {
        (&one.what, other.to)
            .partial_cmp(&(&other.what, one.to))
            .unwrap_or(std::cmp::Ordering::Equal)
    });
    recommendations.dedup_by(|other, first| other.what == first.what);
    recommendations
}

/// Rounds up to two significant digits.
pub(super) fn rounded_up(value: f64) -> f64 {
    if value <= 10.0 {
        return value.ceil();
    }
    let unit = 10_f64.powf(value.log10().floor() - 1.0);
    // A value with two digits must not change because of a rounding error.
    (value / unit - 1e-9).ceil() * unit
}

fn recommend(
    settings: &ScaleSettings,
    rows: &[LimitRow],
    row: &LimitRow,
) -> Option<Recommendation> {
    let to = rounded_up(row.needed / UTILISATION_MAX);
    let recommend = |at: String, options: Vec<String>| {
        Some(Recommendation { what: row.bound.to_string(), from: row.available, to, at, options })
    };
    match &row.bound {
        LimitKind::Concurrency(role) => {
            let (at, options) = at_once(settings, role, to);
            recommend(at, options)
        }
        LimitKind::Account => recommend(
            "Lambda's quota of concurrent executions".to_owned(),
            vec![format!("--account-concurrency {to:.0}")],
        ),
        LimitKind::Invocations => {
            let account = rounded_up(to / settings.limits.invocations_per_concurrency.value);
            recommend(
                format!("Lambda's quota of concurrent executions, to {account:.0}"),
                vec![format!("--account-concurrency {account:.0}")],
            )
        }
        LimitKind::Warm(resource) => {
            // A higher warm throughput gives the index more partitions, with fewer shards on each.
            let to = if *resource == Resource::IndexWrites { warmest(rows) } else { to };
            let (kind, unit) = units(*resource);
            let at = format!(
                "aws dynamodb update-table --warm-throughput {unit}={to:.0}, before the load"
            );
            Some(Recommendation { to, ..recommend(at, vec![format!("--warm-{kind}s {to:.0}")])? })
        }
        LimitKind::Quota(resource) => recommend(
            format!("DynamoDB's quota of {} units of a table", units(*resource).0),
            vec![format!("--table-quota {to:.0}")],
        ),
        LimitKind::Shards => shards(settings, rows, row),
        LimitKind::Bus => recommend("EventBridge's quota of PutEvents".to_owned(), Vec::new()),
        // Pollers and instances are only too few if they start too slowly, see below. Messages in flight are limited by
        // the batch size and the concurrency of the function.
        LimitKind::InFlight(_) | LimitKind::Pollers(_) | LimitKind::Instances(_) => None,
    }
}

/// The setting of a function's concurrency, and the options that simulate it.
fn at_once(settings: &ScaleSettings, role: &FunctionRole, to: f64) -> (String, Vec<String>) {
    let (limits, deployment) = (&settings.limits, &settings.deployment);
    let (file, name, option) = match role {
        FunctionRole::Submission => ("template.yaml", "Submission", "submission"),
        FunctionRole::Scheduler => ("template.yaml", "Scheduler", "scheduler"),
        FunctionRole::Agent(_) => ("infra/agent.yaml", "Agent", "agent"),
    };
    let mut options = vec![format!("--{option}-concurrency {to:.0}")];
    let most = limits.maximum_concurrency_max.value;
    if to <= most && deployment.pollers <= 0.0 {
        let size = deployment.size;
        return (format!("{file}: Mappings, Concurrency, {size}, {name}"), options);
    }
    let pollers = rounded_up(to / limits.provisioned_invocations_per_poller.value);
    let from_the_start = pollers.min(limits.minimum_pollers_max.value);
    options.push(format!("--pollers {from_the_start:.0}"));
    let at = format!(
        "{file}: ProvisionedPollerConfig with MaximumPollers {pollers:.0}, in place of ScalingConfig, whose maximum is {most}"
    );
    (at, options)
}

fn units(resource: Resource) -> (&'static str, &'static str) {
    match resource {
        Resource::TasksReads | Resource::DocumentsReads => ("read", "ReadUnitsPerSecond"),
        Resource::TasksWrites
        | Resource::IndexWrites
        | Resource::DocumentsWrites
        | Resource::Events => ("write", "WriteUnitsPerSecond"),
    }
}

/// The recommended warm throughput in write units: the need of the busiest table.
fn warmest(rows: &[LimitRow]) -> f64 {
    let warm = |row: &&LimitRow| matches!(row.bound, LimitKind::Warm(resource) if units(resource).0 == "write");
    let warm = rows.iter().filter(warm).map(|row| rounded_up(row.needed / UTILISATION_MAX));
    warm.fold(0.0, f64::max)
}

/// The number of shards with which the busiest partition sustains the load, with the recommended warm throughput.
fn shards(settings: &ScaleSettings, rows: &[LimitRow], row: &LimitRow) -> Option<Recommendation> {
    let wanted = row.needed / UTILISATION_MAX;
    let warm = settings.deployment.warm_writes.max(warmest(rows));
    let sustained_rate = |shards: u32| {
        let mut settings = settings.clone();
        settings.deployment.shards = shards;
        settings.deployment.warm_writes = warm;
        TableThroughput::of(&settings, Resource::IndexWrites).partition_limit().unwrap_or(f64::MAX)
    };
    let mut to = settings.deployment.shards.next_power_of_two();
    while to < SHARDS_RECOMMENDED_MAX && sustained_rate(to) < wanted {
        to *= 2;
    }
    let most = match to > SHARDS_MAX {
        true => format!(", whose MaxValue is {SHARDS_MAX}"),
        false => String::new(),
    };
    Some(Recommendation {
        what: row.bound.to_string(),
        from: f64::from(settings.deployment.shards),
        to: f64::from(to),
        at: format!(
            "template.yaml: Shards{most}, with a warm throughput of {warm:.0} for the index; or increase the load in steps beforehand (--rehearsed)"
        ),
        options: vec![format!("--shards {to}")],
    })
}

/// The minimum number of pollers, if messages waited because pollers were added too slowly.
fn pollers(
    settings: &ScaleSettings,
    model: &QueueModel,
    result: &LoadResult,
) -> Option<Recommendation> {
    let needed =
        needed_where(settings, model, result, |bound| matches!(bound, LimitKind::Pollers(_)));
    let holds = settings.limits.provisioned_invocations_per_poller.value;
    let most = settings.limits.minimum_pollers_max.value;
    let to = rounded_up(needed / UTILISATION_MAX / holds).min(most);
    let from = settings.deployment.pollers;
    (to > from).then(|| Recommendation {
        what: "pollers of each queue from the start".to_owned(),
        from,
        to,
        at: "ProvisionedPollerConfig, MinimumPollers, in place of ScalingConfig; or increase the load slowly".to_owned(),
        options: vec![format!("--pollers {to:.0}")],
    })
}

/// The number of instances from the start, if messages waited because instances started too slowly.
fn instances(
    settings: &ScaleSettings,
    model: &QueueModel,
    result: &LoadResult,
) -> Option<Recommendation> {
    let needed =
        needed_where(settings, model, result, |bound| matches!(bound, LimitKind::Instances(_)));
    let from = settings.limits.instances_at_once.value;
    let to = rounded_up(needed);
    (to > from).then(|| Recommendation {
        what: "instances of a function from the start".to_owned(),
        from,
        to,
        at: "provisioned concurrency, which the templates do not have; or increase the load slowly"
            .to_owned(),
        options: Vec::new(),
    })
}

/// The largest need of concurrent invocations over all stages with a backlog for such a reason.
fn needed_where(
    settings: &ScaleSettings,
    model: &QueueModel,
    result: &LoadResult,
    reason: impl Fn(&LimitKind) -> bool,
) -> f64 {
    let behind = model.stages.iter().zip(&result.stages).filter(|(_, result)| {
        let waited =
            result.waiting_s_by_limit.iter().any(|(bound, waited)| reason(bound) && *waited > 0.0);
        waited && result.max_age_s > BACKLOG_S
    });
    let needed = behind.map(|(stage, _)| settings.load.peak() * stage.busy_s(model.batch));
    needed.fold(0.0, f64::max)
}
