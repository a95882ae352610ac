//! The scenario of a noisy tenant: one tenant sends most of the load, and more than the deployment sustains. It is simulated
//! with fair queues, with queues that deliver in order, and without the noisy tenant, for comparison.
//!
//! ```text
//! tasks of each tenant ──► queue ──► invocations ──► queue of the next hop ──► … ──► done
//!                            │          batches, as many as the function's concurrency
//!                            └ delivers by the documented rules of fair queues (`steward_aws::channel::fairness`)
//! ```
//!
//! Every message is an event of a discrete simulation in virtual time. Intake control decides with the functions that the
//! deployment uses. The concurrency of the functions is the only limit here; `load_simulation` has the others. Rate limits
//! and circuit breakers of agents, which all tenants share, are not included.

mod pipeline;
mod tenant_queue;

#[cfg(test)]
mod tests;

use serde::Serialize;

pub use self::pipeline::{QUIET_TENANTS, QuietTenants};
use self::{
    pipeline::{Pipeline, TenantLoad},
    tenant_queue::Delivery,
};
use super::{
    model::QueueModel,
    settings::{DeploymentSizing, ScaleError, ScaleSettings},
};
use crate::cost::forecast;

/// The load of the scenario, as a multiple of what the concurrency of the functions sustains.
pub const NOISY_LOAD_FACTOR: f64 = 1.5;

/// The duration of the load, in seconds.
const LASTS_S: f64 = 60.0;

/// The result of the scenario. All figures are simulated.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct NoisyTenantReport {
    /// The workflow.
    pub workflow: String,
    /// Its version.
    pub version: u32,
    /// The deployment.
    pub deployment: DeploymentSizing,
    /// The share of the noisy tenant in the load.
    pub noisy_share: f64,
    /// The tasks per second that the concurrency of the functions sustains.
    pub sustains: f64,
    /// The tasks per second of all tenants.
    pub rate: f64,
    /// Without the noisy tenant.
    pub alone: QuietTenants,
    /// With the noisy tenant and fair queues.
    pub fair: QuietTenants,
    /// With the noisy tenant, and queues that deliver in order.
    pub in_order: QuietTenants,
}

/// Simulates the scenario. The load of `settings` is ignored. `noisy_share` is from 0 to 1.
///
/// # Errors
/// A setting is outside its limits, or a task could not be counted.
pub fn noisy_tenant(
    settings: &ScaleSettings,
    noisy_share: f64,
    load_factor: f64,
) -> Result<NoisyTenantReport, ScaleError> {
    settings.check()?;
    if !(0.0..1.0).contains(&noisy_share) {
        let (option, min, max, hint) = ("noisy-tenant", 0.0, 0.99, "");
        return Err(ScaleError::OutOfLimits { option, min, max, hint });
    }
    let counted = forecast(settings.forecast.clone(), &|| {})?;
    let model = QueueModel::of(settings, &counted.demand);
    let sustains = sustainable(&model);
    let rate = sustains * load_factor;
    let quiet_rate = rate * (1.0 - noisy_share);
    let load = TenantLoad { noisy_rate: rate - quiet_rate, quiet_rate, lasts_s: LASTS_S, seed: 1 };
    let run =
        |load, delivery| Pipeline::new(&settings.forecast.workflow, &model, load, delivery).run();
    Ok(NoisyTenantReport {
        workflow: counted.workflow.clone(),
        version: counted.version,
        deployment: settings.deployment,
        noisy_share,
        sustains,
        rate,
        alone: run(TenantLoad { noisy_rate: 0.0, ..load }, Delivery::InOrder),
        fair: run(load, Delivery::Fair),
        in_order: run(load, Delivery::InOrder),
    })
}

/// The tasks per second that the concurrency of the functions sustains.
fn sustainable(model: &QueueModel) -> f64 {
    let rates = model.stages.iter().map(|stage| stage.concurrency / stage.busy_s(model.batch));
    rates.fold(f64::MAX, f64::min)
}
