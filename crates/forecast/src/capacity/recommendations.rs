//! Recommendations: which limits to increase, where, and to which value.

use serde::Serialize;

use super::{
    limit_kind::LimitKind,
    limit_rows::LimitRow,
    scaling_limits,
    settings::{DeploymentSizing, SHARDS_MAX, ScaleSettings},
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
    /// The options of `steward scale` that compute the change.
    pub options: Vec<String>,
}

/// The limits to increase for the peak rate, with a fifth in reserve.
pub(super) fn recommendations(settings: &ScaleSettings, rows: &[LimitRow]) -> Vec<Recommendation> {
    let tight = rows.iter().filter(|row| row.utilisation > UTILISATION_MAX);
    let mut recommendations: Vec<Recommendation> =
        tight.filter_map(|row| recommend(settings, rows, row)).collect();
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
        // The concurrency of the function, or the batch size, limits both first.
        LimitKind::InFlight(_) | LimitKind::Pollers(_) => None,
    }
}

/// The setting of a function's concurrency, and the options that compute it.
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
    match resource.is_read() {
        true => ("read", "ReadUnitsPerSecond"),
        false => ("write", "WriteUnitsPerSecond"),
    }
}

/// The recommended warm throughput in write units: the need of the busiest table.
fn warmest(rows: &[LimitRow]) -> f64 {
    let warm =
        |row: &&LimitRow| matches!(row.bound, LimitKind::Warm(resource) if !resource.is_read());
    let warm = rows.iter().filter(warm).map(|row| rounded_up(row.needed / UTILISATION_MAX));
    warm.fold(0.0, f64::max)
}

/// The number of shards with which the busiest partition sustains the load, with the recommended warm throughput.
fn shards(settings: &ScaleSettings, rows: &[LimitRow], row: &LimitRow) -> Option<Recommendation> {
    let wanted = row.needed / UTILISATION_MAX;
    let warm = settings.deployment.warm_writes.max(warmest(rows));
    let sustained_rate = |shards: u32| {
        let deployment = DeploymentSizing { shards, warm_writes: warm, ..settings.deployment };
        scaling_limits::index_writes_max(&ScaleSettings { deployment, ..settings.clone() })
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
