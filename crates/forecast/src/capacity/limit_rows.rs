//! Arithmetic on limits: what the peak rate needs of each limit, and the rate that each limit sustains. The behaviour
//! over time is in [`load_simulation`](super::load_simulation); a test compares the two.

use std::fmt;

use serde::Serialize;

use super::{model::QueueModel, scaling_limits, settings::ScaleSettings};
use crate::cost::{FunctionRole, Resource};

/// The kind of a limit.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum LimitKind {
    /// The configured concurrency of a function.
    Concurrency(FunctionRole),
    /// The current number of pollers of a queue.
    Pollers(FunctionRole),
    /// How fast new instances of a function start.
    Instances(FunctionRole),
    /// Messages of a queue that are received, but not deleted.
    InFlight(FunctionRole),
    /// The account's concurrent executions.
    Account,
    /// The account's invocations per second.
    Invocations,
    /// The warm throughput of a table or index.
    Warm(Resource),
    /// The quota of a table or index.
    Quota(Resource),
    /// The busiest partition of the due index.
    Shards,
    /// Requests to the event bus.
    Bus,
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TasksWrites => "tasks, write units",
            Self::TasksReads => "tasks, read units",
            Self::IndexWrites => "index due, write units",
            Self::DocumentsWrites => "documents, write units",
            Self::DocumentsReads => "documents, read units",
            Self::Events => "events",
        })
    }
}

impl fmt::Display for LimitKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Concurrency(role) => write!(f, "{role}: concurrent invocations"),
            Self::Pollers(role) => write!(f, "{role}: pollers of its queue"),
            Self::Instances(role) => write!(f, "{role}: new instances"),
            Self::InFlight(role) => write!(f, "{role}: messages in flight"),
            Self::Account => f.write_str("account: concurrent invocations"),
            Self::Invocations => f.write_str("account: invocations per second"),
            Self::Warm(resource) => write!(f, "{resource}: warm throughput"),
            Self::Quota(resource) => write!(f, "{resource}: quota"),
            Self::Shards => f.write_str("index due, write units: busiest partition"),
            Self::Bus => f.write_str("event bus: requests per second"),
        }
    }
}

/// A limit, and what the peak rate needs of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LimitRow {
    /// The limit.
    #[serde(serialize_with = "as_text")]
    pub bound: LimitKind,
    /// What the peak rate needs.
    pub needed: f64,
    /// What is available.
    pub available: f64,
    /// The needed share of what is available.
    pub utilisation: f64,
    /// The submissions per second that the limit sustains.
    pub bears: f64,
}

fn as_text<S: serde::Serializer>(bound: &LimitKind, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(bound)
}

/// All limits that affect a task, the tightest first.
pub(super) fn rows(settings: &ScaleSettings, model: &QueueModel) -> Vec<LimitRow> {
    let peak = settings.load.peak();
    let mut rows = Vec::new();
    let mut row = |bound: LimitKind, of_a_task: f64, available: f64| {
        if of_a_task > 0.0 {
            let needed = peak * of_a_task;
            let (utilisation, bears) = (needed / available, available / of_a_task);
            rows.push(LimitRow { bound, needed, available, utilisation, bears });
        }
    };
    let limits = &settings.limits;
    for stage in &model.stages {
        let (role, busy_s) = (&stage.role, stage.busy_s(model.batch));
        row(LimitKind::Concurrency(role.clone()), busy_s, stage.concurrency);
        row(
            LimitKind::Pollers(role.clone()),
            busy_s,
            scaling_limits::PollerScaling::of(settings).max,
        );
        let in_flight = stage.messages * stage.invocation_s;
        row(LimitKind::InFlight(role.clone()), in_flight, limits.queue_in_flight.value);
    }
    let account = limits.account_concurrency.value;
    row(LimitKind::Account, model.busy_s(), account);
    let a_second = account * limits.invocations_per_concurrency.value;
    row(LimitKind::Invocations, model.invocations(), a_second);
    for resource in scaling_limits::TABLES {
        let table = scaling_limits::TableThroughput::of(settings, resource);
        row(LimitKind::Warm(resource), model.units_per_task(resource), table.warm);
        row(LimitKind::Quota(resource), model.units_per_task(resource), table.quota);
        if let Some(partition_limit) = table.partition_limit() {
            row(LimitKind::Shards, model.units_per_task(resource), partition_limit);
        }
    }
    let requests = model.units_per_task(Resource::Events) / limits.events_per_request.value;
    row(LimitKind::Bus, requests, limits.events_per_second.value);
    rows.sort_by(|one, other| one.bears.total_cmp(&other.bears));
    rows
}

/// When the last task is done, in seconds from the start, by arithmetic: the time that the slowest limit needs for all
/// tasks. Pollers are added from the first second; tables do not grow. The simulation may take longer, since messages
/// that wait for one limit reach the next limit late.
pub(super) fn done_by_s(settings: &ScaleSettings, model: &QueueModel) -> f64 {
    let total = settings.load.total();
    let steady = rows(settings, model)
        .into_iter()
        .filter(|row| !matches!(row.bound, LimitKind::Concurrency(_) | LimitKind::Pollers(_)));
    let shared = steady.map(|row| total / row.bears);
    let pollers = scaling_limits::PollerScaling::of(settings);
    let stages = model.stages.iter().map(|stage| {
        let work_s = total * stage.busy_s(model.batch);
        pollers.time_for(work_s, stage.concurrency)
    });
    shared.chain(stages).fold(settings.load.lasts_s, f64::max) + model.unloaded_s()
}
