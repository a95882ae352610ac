//! The p99 of quiet tenants beside a noisy one.

use super::*;
use crate::{
    capacity::{DeploymentSizing, Limits, Load, Size},
    cost,
};

fn settings(size: Size) -> ScaleSettings {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../workflows/order.yaml");
    let workflow = steward_definition_file::read_file(std::path::Path::new(file)).unwrap();
    ScaleSettings {
        forecast: cost::ForecastSettings { runs: 20, ..cost::ForecastSettings::new(workflow) },
        load: Load::steady(1.0, 1.0),
        deployment: DeploymentSizing::of(size),
        limits: Limits::load().unwrap(),
        compute_s: 0.003,
    }
}

/// The claim: a tenant with 90 % of the load raises the p99 of others by at most half.
const RAISED_MAX: f64 = 1.5;

#[test]
fn a_noisy_tenant_does_not_raise_the_p99_of_others_by_more_than_half() {
    for (size, factor) in
        [(Size::Medium, 0.8), (Size::Medium, NOISY_LOAD_FACTOR), (Size::Medium, 3.0)]
    {
        let report = noisy_tenant(&settings(size), 0.9, factor).unwrap();
        let NoisyTenantReport { alone, fair, in_order, .. } = &report;
        assert!(alone.tasks > 1_000 && fair.tasks == alone.tasks, "{report:?}");
        assert!(fair.p99_s <= RAISED_MAX * alone.p99_s, "{size}, {factor}: {report:?}");
        if factor > 1.0 {
            assert!(in_order.p99_s > 2.0 * RAISED_MAX * alone.p99_s, "in order: {report:?}");
        }
    }
}
