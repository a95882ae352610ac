//! `steward scale --noisy-tenant`: the tasks of other tenants while one sends most of the load.

use anyhow::Result;
use steward_forecast::capacity::{
    NOISY_LOAD_FACTOR, NoisyTenantReport, QUIET_TENANTS, QuietTenants, ScaleSettings, noisy_tenant,
};

use super::text::{number, percent};
use crate::table::table;

/// Simulates the scenario, and prints its report.
pub(super) async fn run(settings: ScaleSettings, share: f64, json: bool) -> Result<()> {
    // The forecast creates its own tokio runtimes, which is not possible inside this one.
    let simulate = move || noisy_tenant(&settings, share, NOISY_LOAD_FACTOR);
    let report = tokio::task::spawn_blocking(simulate).await??;
    match json {
        true => outln!("{}", serde_json::to_string_pretty(&report)?),
        false => show(&report),
    }
    Ok(())
}

fn show(report: &NoisyTenantReport) {
    let NoisyTenantReport { workflow, version, deployment, noisy_share, sustains, rate, .. } =
        report;
    outln!(
        "{workflow} version {version}, size {}: {} submissions per second for a minute; the functions sustain {}",
        deployment.size,
        number(*rate),
        number(*sustains)
    );
    outln!(
        "one tenant sends {} of them, and {QUIET_TENANTS} others the rest",
        percent(*noisy_share)
    );
    let mut rows = table(&["the other tenants", "tasks", "p50", "p99", "p99 compared"]);
    for (name, run) in [
        ("alone", &report.alone),
        ("beside the noisy tenant, fair queues", &report.fair),
        ("beside the noisy tenant, queues that deliver in order", &report.in_order),
    ] {
        let QuietTenants { tasks, p50_s, p99_s } = run;
        rows.add_row([
            name.to_owned(),
            number(*tasks as f64),
            format!("{p50_s:.2} s"),
            format!("{p99_s:.2} s"),
            format!("{:.2}", p99_s / report.alone.p99_s),
        ]);
    }
    outln!("{rows}");
    outln!("assumptions:");
    outln!("- simulated, not measured on AWS, with the documented rules of fair queues");
    outln!("- the concurrency of the functions is the only limit");
    outln!(
        "- rate limits and circuit breakers of agents, which all tenants share, are not included"
    );
}
