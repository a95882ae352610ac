//! The arithmetic: what a rate needs of each limit, and what rate each limit bears. No time passes here;
//! [`run`](super::run) is where it does, and a test holds the two against each other.

use std::fmt;

use serde::Serialize;

use super::{model::Model, settings::Settings, supply};
use crate::cost::{Asked, Role};

/// What has a limit.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bound {
    /// What a function is set to.
    AtOnce(Role),
    /// The pollers of a queue: how many there are by now.
    Pollers(Role),
    /// How fast a function gets instances.
    Instances(Role),
    /// Messages of a queue in the hands of functions.
    InFlight(Role),
    /// The account's concurrent executions.
    Account,
    /// The account's invocations a second.
    Invocations,
    /// What a table or index takes by now: its warm throughput.
    Warm(Asked),
    /// What a table or index may take.
    Quota(Asked),
    /// The busiest partition of the due index.
    Shards,
    /// Requests to the bus.
    Bus,
}

impl fmt::Display for Asked {
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

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtOnce(role) => write!(f, "{role}: invocations at once"),
            Self::Pollers(role) => write!(f, "{role}: pollers of its queue"),
            Self::Instances(role) => write!(f, "{role}: new instances"),
            Self::InFlight(role) => write!(f, "{role}: messages in flight"),
            Self::Account => f.write_str("account: invocations at once"),
            Self::Invocations => f.write_str("account: invocations a second"),
            Self::Warm(asked) => write!(f, "{asked}: warm throughput"),
            Self::Quota(asked) => write!(f, "{asked}: quota"),
            Self::Shards => f.write_str("index due, write units: busiest partition"),
            Self::Bus => f.write_str("event bus: requests"),
        }
    }
}

/// A limit, and what the highest rate needs of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// What has the limit.
    #[serde(serialize_with = "as_text")]
    pub bound: Bound,
    /// What the highest rate needs.
    pub needed: f64,
    /// What there is.
    pub available: f64,
    /// The one by the other.
    pub utilisation: f64,
    /// Submissions a second that it bears.
    pub bears: f64,
}

fn as_text<S: serde::Serializer>(bound: &Bound, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(bound)
}

/// All limits that a task has to do with, the tightest first.
pub(super) fn rows(settings: &Settings, model: &Model) -> Vec<Row> {
    let peak = settings.load.peak();
    let mut rows = Vec::new();
    let mut row = |bound: Bound, of_a_task: f64, available: f64| {
        if of_a_task > 0.0 {
            let needed = peak * of_a_task;
            let (utilisation, bears) = (needed / available, available / of_a_task);
            rows.push(Row { bound, needed, available, utilisation, bears });
        }
    };
    let limits = &settings.limits;
    for stage in &model.stages {
        let (role, busy_s) = (&stage.role, stage.busy_s(model.batch));
        row(Bound::AtOnce(role.clone()), busy_s, stage.at_once);
        row(Bound::Pollers(role.clone()), busy_s, supply::Pollers::of(settings).max);
        let in_flight = stage.messages * stage.invocation_s;
        row(Bound::InFlight(role.clone()), in_flight, limits.queue_in_flight.value);
    }
    let account = limits.account_concurrency.value;
    row(Bound::Account, model.busy_s(), account);
    let a_second = account * limits.invocations_per_concurrency.value;
    row(Bound::Invocations, model.invocations(), a_second);
    for asked in supply::TABLES {
        let table = supply::Table::of(settings, asked);
        row(Bound::Warm(asked), model.asks(asked), table.warm);
        row(Bound::Quota(asked), model.asks(asked), table.quota);
        if let Some(hot) = table.hot() {
            row(Bound::Shards, model.asks(asked), hot);
        }
    }
    let requests = model.asks(Asked::Events) / limits.events_per_request.value;
    row(Bound::Bus, requests, limits.events_per_second.value);
    rows.sort_by(|one, other| one.bears.total_cmp(&other.bears));
    rows
}

/// When the last task is done, in seconds from the beginning: when the last limit has borne all of them,
/// pollers growing from the first second, tables not at all. In time it may take longer: what one limit
/// holds back comes to the next one late.
pub(super) fn done_by_s(settings: &Settings, model: &Model) -> f64 {
    let total = settings.load.total();
    let steady = rows(settings, model)
        .into_iter()
        .filter(|row| !matches!(row.bound, Bound::AtOnce(_) | Bound::Pollers(_)));
    let shared = steady.map(|row| total / row.bears);
    let pollers = supply::Pollers::of(settings);
    let stages = model.stages.iter().map(|stage| {
        let work_s = total * stage.busy_s(model.batch);
        pollers.time_for(work_s, stage.at_once)
    });
    shared.chain(stages).fold(settings.load.lasts_s, f64::max) + model.unloaded_s()
}
