//! Arithmetic on limits: what the peak rate needs of each limit, and the rate that each limit sustains.

use serde::Serialize;

use super::{
    limit_kind::LimitKind,
    model::QueueModel,
    scaling_limits::{self, PollerScaling, TableThroughput},
    settings::ScaleSettings,
};
use crate::cost::Resource;

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
    pub sustained_rate: f64,
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
            let (utilisation, sustained_rate) = (needed / available, available / of_a_task);
            rows.push(LimitRow { bound, needed, available, utilisation, sustained_rate });
        }
    };
    let limits = &settings.limits;
    let pollers = PollerScaling::of(settings);
    for stage in &model.stages {
        let (role, busy_s) = (&stage.role, stage.busy_s(model.batch));
        row(LimitKind::Concurrency(role.clone()), busy_s, stage.concurrency);
        row(LimitKind::Pollers(role.clone()), busy_s, pollers.max);
        let in_flight = stage.messages * stage.invocation_s;
        row(LimitKind::InFlight(role.clone()), in_flight, limits.queue_in_flight.value);
    }
    let account = limits.account_concurrency.value;
    row(LimitKind::Account, model.busy_s(), account);
    let a_second = account * limits.invocations_per_concurrency.value;
    row(LimitKind::Invocations, model.invocations(), a_second);
    for resource in scaling_limits::TABLES {
        let (units, table) =
            (model.units_per_task(resource), TableThroughput::of(settings, resource));
        row(LimitKind::Warm(resource), units, table.warm);
        row(LimitKind::Quota(resource), units, table.quota);
    }
    let index_writes = model.units_per_task(Resource::IndexWrites);
    row(LimitKind::Shards, index_writes, scaling_limits::index_writes_max(settings));
    let requests = model.units_per_task(Resource::Events) / limits.events_per_request.value;
    row(LimitKind::Bus, requests, limits.events_per_second.value);
    rows.sort_by(|one, other| one.sustained_rate.total_cmp(&other.sustained_rate));
    rows
}

/// When the last task is done, in seconds from the start, by arithmetic: the time that the slowest limit needs for all
/// tasks. Pollers are added from the first second; tables do not grow. A backlog may last longer, since messages that wait
/// for one limit reach the next limit late.
pub(super) fn done_by_s(settings: &ScaleSettings, model: &QueueModel) -> f64 {
    let total = settings.load.total();
    let steady = rows(settings, model)
        .into_iter()
        .filter(|row| !matches!(row.bound, LimitKind::Concurrency(_) | LimitKind::Pollers(_)));
    let shared = steady.map(|row| total / row.sustained_rate);
    let pollers = PollerScaling::of(settings);
    let stages = model.stages.iter().map(|stage| {
        let work_s = total * stage.busy_s(model.batch);
        pollers.time_for(work_s, stage.concurrency)
    });
    shared.chain(stages).fold(settings.load.lasts_s, f64::max) + model.unloaded_s
}
