//! What to raise, where, and to how much.

use serde::Serialize;

use super::{
    bounds::{Bound, Row},
    model::Model,
    run::{BEHIND_S, Ran},
    settings::{SHARDS_MAX, Settings},
    supply::Table,
};
use crate::cost::{Asked, Role};

/// No limit should be used further than this at the highest rate.
pub(super) const USED_AT_MOST: f64 = 0.8;

/// How many shards are thought of, at most.
const SHARDS_CONSIDERED: u32 = 65_536;

/// Something to raise.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Raise {
    /// The limit.
    pub what: String,
    /// What it is.
    pub from: f64,
    /// What it should be.
    pub to: f64,
    /// Where that is said, or whom to ask.
    pub at: String,
    /// The options that try it out here.
    pub options: Vec<String>,
}

/// What the highest rate wants raised, with a fifth to spare.
pub(super) fn raises(settings: &Settings, model: &Model, rows: &[Row], ran: &Ran) -> Vec<Raise> {
    let tight = rows.iter().filter(|row| row.utilisation > USED_AT_MOST);
    let mut raises: Vec<Raise> = tight.filter_map(|row| raise(settings, rows, row)).collect();
    raises.extend(pollers(settings, model, ran));
    raises.extend(instances(settings, model, ran));
    // Several functions or tables may want the same to be raised.
    raises.sort_by(|one, other| {
        (&one.what, other.to)
            .partial_cmp(&(&other.what, one.to))
            .unwrap_or(std::cmp::Ordering::Equal)
    });
    raises.dedup_by(|other, first| other.what == first.what);
    raises
}

/// Two figures, upwards.
pub(super) fn rounded_up(value: f64) -> f64 {
    if value <= 10.0 {
        return value.ceil();
    }
    let unit = 10_f64.powf(value.log10().floor() - 1.0);
    // A value that has two figures stays, whatever its last bit is.
    (value / unit - 1e-9).ceil() * unit
}

fn raise(settings: &Settings, rows: &[Row], row: &Row) -> Option<Raise> {
    let to = rounded_up(row.needed / USED_AT_MOST);
    let raise = |at: String, options: Vec<String>| {
        Some(Raise { what: row.bound.to_string(), from: row.available, to, at, options })
    };
    match &row.bound {
        Bound::AtOnce(role) => {
            let (at, options) = at_once(settings, role, to);
            raise(at, options)
        }
        Bound::Account => raise(
            "Lambda's quota of concurrent executions".to_owned(),
            vec![format!("--account-concurrency {to:.0}")],
        ),
        Bound::Invocations => {
            let account = rounded_up(to / settings.limits.invocations_per_concurrency.value);
            raise(
                format!("Lambda's quota of concurrent executions, to {account:.0}"),
                vec![format!("--account-concurrency {account:.0}")],
            )
        }
        Bound::Warm(asked) => {
            // An index that is warm for more lies on more partitions, and fewer shards on each.
            let to = if *asked == Asked::IndexWrites { warmest(rows) } else { to };
            let (kind, unit) = units(*asked);
            let at = format!(
                "aws dynamodb update-table --warm-throughput {unit}={to:.0}, before the load"
            );
            Some(Raise { to, ..raise(at, vec![format!("--warm-{kind}s {to:.0}")])? })
        }
        Bound::Quota(asked) => raise(
            format!("DynamoDB's quota of {} units of a table", units(*asked).0),
            vec![format!("--table-quota {to:.0}")],
        ),
        Bound::Shards => shards(settings, rows, row),
        Bound::Bus => raise("EventBridge's quota of PutEvents".to_owned(), Vec::new()),
        // A queue that is set to so many at once has too few of these only if they come too slowly; and
        // more messages in hand than that are more than a function should have.
        Bound::InFlight(_) | Bound::Pollers(_) | Bound::Instances(_) => None,
    }
}

/// Where it is said how many of a function run at once, and what tries it out.
fn at_once(settings: &Settings, role: &Role, to: f64) -> (String, Vec<String>) {
    let (limits, deployment) = (&settings.limits, &settings.deployment);
    let (file, name, option) = match role {
        Role::Submission => ("template.yaml", "Submission", "submission"),
        Role::Scheduler => ("template.yaml", "Scheduler", "scheduler"),
        Role::Agent(_) => ("infra/agent.yaml", "Agent", "agent"),
    };
    let mut options = vec![format!("--{option}-concurrency {to:.0}")];
    let most = limits.maximum_concurrency_max.value;
    if to <= most && deployment.pollers <= 0.0 {
        let size = deployment.size;
        return (format!("{file}: Mappings, Concurrency, {size}, {name}"), options);
    }
    let pollers = rounded_up(to / limits.provisioned_poller_holds.value);
    let from_the_start = pollers.min(limits.provisioned_pollers_min_max.value);
    options.push(format!("--pollers {from_the_start:.0}"));
    let at = format!(
        "{file}: ProvisionedPollerConfig with MaximumPollers {pollers:.0}, in place of ScalingConfig, which ends at {most}"
    );
    (at, options)
}

fn units(asked: Asked) -> (&'static str, &'static str) {
    match asked {
        Asked::TasksReads | Asked::DocumentsReads => ("read", "ReadUnitsPerSecond"),
        Asked::TasksWrites | Asked::IndexWrites | Asked::DocumentsWrites | Asked::Events => {
            ("write", "WriteUnitsPerSecond")
        }
    }
}

/// Write units that the tables should be warm for: what the busiest of them needs.
fn warmest(rows: &[Row]) -> f64 {
    let warm = |row: &&Row| matches!(row.bound, Bound::Warm(asked) if units(asked).0 == "write");
    let warm = rows.iter().filter(warm).map(|row| rounded_up(row.needed / USED_AT_MOST));
    warm.fold(0.0, f64::max)
}

/// As many shards as the busiest partition takes, once the index is as warm as it should be.
fn shards(settings: &Settings, rows: &[Row], row: &Row) -> Option<Raise> {
    let wanted = row.needed / USED_AT_MOST;
    let warm = settings.deployment.warm_writes.max(warmest(rows));
    let bears = |shards: u32| {
        let mut settings = settings.clone();
        settings.deployment.shards = shards;
        settings.deployment.warm_writes = warm;
        Table::of(&settings, Asked::IndexWrites).hot().unwrap_or(f64::MAX)
    };
    let mut to = settings.deployment.shards.next_power_of_two();
    while to < SHARDS_CONSIDERED && bears(to) < wanted {
        to *= 2;
    }
    let most = match to > SHARDS_MAX {
        true => format!(", whose MaxValue is {SHARDS_MAX}"),
        false => String::new(),
    };
    Some(Raise {
        what: row.bound.to_string(),
        from: f64::from(settings.deployment.shards),
        to: f64::from(to),
        at: format!(
            "template.yaml: Shards{most}, with an index warm for {warm:.0}; or bring the load up in steps before (--rehearsed)"
        ),
        options: vec![format!("--shards {to}")],
    })
}

/// Pollers that are there from the start, if those that come by and by made messages wait.
fn pollers(settings: &Settings, model: &Model, ran: &Ran) -> Option<Raise> {
    let needed = needed_where(settings, model, ran, |bound| matches!(bound, Bound::Pollers(_)));
    let holds = settings.limits.provisioned_poller_holds.value;
    let most = settings.limits.provisioned_pollers_min_max.value;
    let to = rounded_up(needed / USED_AT_MOST / holds).min(most);
    let from = settings.deployment.pollers;
    (to > from).then(|| Raise {
        what: "pollers of each queue from the start".to_owned(),
        from,
        to,
        at: "ProvisionedPollerConfig, MinimumPollers, in place of ScalingConfig; or let the load come slowly".to_owned(),
        options: vec![format!("--pollers {to:.0}")],
    })
}

/// Instances that are there from the start, if those that come by and by made messages wait.
fn instances(settings: &Settings, model: &Model, ran: &Ran) -> Option<Raise> {
    let needed = needed_where(settings, model, ran, |bound| matches!(bound, Bound::Instances(_)));
    let from = settings.limits.instances_at_once.value;
    let to = rounded_up(needed);
    (to > from).then(|| Raise {
        what: "instances of a function from the start".to_owned(),
        from,
        to,
        at: "provisioned concurrency, which the templates have not; or let the load come slowly"
            .to_owned(),
        options: Vec::new(),
    })
}

/// How many invocations at once the largest of those stages needs that fell behind for such a reason.
fn needed_where(
    settings: &Settings,
    model: &Model,
    ran: &Ran,
    reason: impl Fn(&Bound) -> bool,
) -> f64 {
    let behind = model.stages.iter().zip(&ran.stages).filter(|(_, ran)| {
        let held = ran.held.iter().any(|(bound, held)| reason(bound) && *held > 0.0);
        held && ran.oldest_s > BEHIND_S
    });
    let needed = behind.map(|(stage, _)| settings.load.peak() * stage.busy_s(model.batch));
    needed.fold(0.0, f64::max)
}
