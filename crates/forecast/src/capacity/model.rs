//! A deployment as a network of queues: its stages, the demand of a task on each, and the order in which its messages
//! pass them.

use std::collections::BTreeMap;

use super::settings::ScaleSettings;
use crate::cost::{DELIVERY_LATENCY, Demand, FunctionRole, Resource};

/// A queue and its function.
#[derive(Debug, Clone)]
pub(super) struct Stage {
    pub(super) role: FunctionRole,
    /// Messages of a task, over all hops.
    pub(super) messages: f64,
    /// The duration of an invocation with a full batch, in seconds.
    pub(super) invocation_s: f64,
    /// The units of each resource that a message uses.
    pub(super) units: BTreeMap<Resource, f64>,
    /// The configured number of concurrent invocations.
    pub(super) concurrency: f64,
}

/// The routes of the messages of one hop.
#[derive(Debug, Clone, Default)]
pub(super) struct HopRoutes {
    pub(super) routes: Vec<Route>,
}

/// One route of a hop.
#[derive(Debug, Clone, Copy)]
pub(super) struct Route {
    /// The index of the stage.
    pub(super) stage: usize,
    /// Seconds until the function can receive them.
    pub(super) delay_s: f64,
}

#[derive(Debug, Clone)]
pub(super) struct QueueModel {
    pub(super) stages: Vec<Stage>,
    pub(super) hops: Vec<HopRoutes>,
    /// The number of messages that share an invocation.
    pub(super) batch: f64,
}

impl QueueModel {
    pub(super) fn of(settings: &ScaleSettings, demand: &Demand) -> Self {
        let batch = f64::from(settings.forecast.batch);
        let stages: Vec<_> =
            demand.roles.keys().map(|role| stage(settings, demand, role, batch)).collect();
        let hops = demand.hops.iter().map(|by_role| {
            let routes = by_role.iter().filter_map(|(role, hop)| {
                let stage = stages.iter().position(|stage| stage.role == *role)?;
                let delay_s = DELIVERY_LATENCY.as_secs_f64() + hop.delay_ms / 1_000.0;
                Some(Route { stage, delay_s })
            });
            HopRoutes { routes: routes.collect() }
        });
        let hops = hops.collect();
        Self { stages, hops, batch }
    }

    /// The units of a resource that a task uses, over all stages.
    pub(super) fn units_per_task(&self, resource: Resource) -> f64 {
        self.stages.iter().map(|stage| stage.messages * stage.units_of(resource)).sum()
    }

    /// Invocations of a task.
    pub(super) fn invocations(&self) -> f64 {
        self.stages.iter().map(|stage| stage.messages / self.batch).sum()
    }

    /// Seconds of invocations of a task.
    pub(super) fn busy_s(&self) -> f64 {
        self.stages.iter().map(|stage| stage.busy_s(self.batch)).sum()
    }

    /// The duration of a task in seconds, if nothing waits: the sum of the slowest route of each hop.
    pub(super) fn unloaded_s(&self) -> f64 {
        let slowest = |hop: &HopRoutes| {
            let ways = hop
                .routes
                .iter()
                .filter_map(|to| Some(to.delay_s + self.stages.get(to.stage)?.invocation_s));
            ways.fold(0.0, f64::max)
        };
        self.hops.iter().map(slowest).sum()
    }
}

impl Stage {
    pub(super) fn units_of(&self, resource: Resource) -> f64 {
        self.units.get(&resource).copied().unwrap_or(0.0)
    }

    /// Seconds of invocations of a task.
    pub(super) fn busy_s(&self, batch: f64) -> f64 {
        self.messages / batch * self.invocation_s
    }
}

fn stage(settings: &ScaleSettings, demand: &Demand, role: &FunctionRole, batch: f64) -> Stage {
    let handling = demand.roles.get(role).cloned().unwrap_or_default();
    let deployment = &settings.deployment;
    let concurrency = match role {
        FunctionRole::Submission => deployment.submission,
        FunctionRole::Scheduler => deployment.scheduler,
        FunctionRole::Agent(_) => deployment.agent,
    };
    Stage {
        role: role.clone(),
        messages: demand.messages(role),
        invocation_s: handling.invocation_ms / 1_000.0 + settings.compute_s * batch,
        units: handling.units,
        concurrency,
    }
}
