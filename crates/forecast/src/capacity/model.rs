//! A deployment as a network of queues: its stages, and the demand of a task on each.

use std::collections::BTreeMap;

use super::settings::ScaleSettings;
use crate::cost::{DELIVERY_LATENCY, Demand, FunctionRole, HopMessages, Resource};

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

#[derive(Debug, Clone)]
pub(super) struct QueueModel {
    pub(super) stages: Vec<Stage>,
    /// The duration of a task in seconds, if nothing waits: the sum of the slowest message of each hop.
    pub(super) unloaded_s: f64,
    /// The number of messages that share an invocation.
    pub(super) batch: f64,
}

impl QueueModel {
    pub(super) fn of(settings: &ScaleSettings, demand: &Demand) -> Self {
        let batch = f64::from(settings.forecast.batch);
        let stages: Vec<_> =
            demand.roles.keys().map(|role| stage(settings, demand, role, batch)).collect();
        let duration_s = |(role, hop): (&FunctionRole, &HopMessages)| {
            let stage = stages.iter().find(|stage| stage.role == *role);
            let delay_s = DELIVERY_LATENCY.as_secs_f64() + hop.delay_ms / 1_000.0;
            delay_s + stage.map_or(0.0, |stage| stage.invocation_s)
        };
        let slowest = |hop: &BTreeMap<_, _>| hop.iter().map(duration_s).fold(0.0, f64::max);
        let unloaded_s = demand.hops.iter().map(slowest).sum();
        Self { stages, unloaded_s, batch }
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
