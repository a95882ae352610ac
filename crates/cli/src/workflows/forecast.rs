//! `steward workflow simulate`: forecasts how a workflow's tasks end, how long they take and what they cost,
//! before the workflow is deployed.

use std::time::Duration;

use anyhow::Result;
use clap::Args;
use steward_forecast::cost::{
    DurationValue, ForecastReport, ForecastSettings, RUNS, Share, StepOption,
};

use crate::{
    assumptions::{AssumptionArgs, RandomArgs, forecast},
    cost::show_price,
    table::table,
};

/// Options of `steward workflow simulate`. STEP is a step's name, WORKFLOW.STEP for a step of another
/// workflow, or `*` for all steps.
#[derive(Debug, Args)]
pub(crate) struct ForecastArgs {
    #[command(flatten)]
    assumptions: AssumptionArgs,
    #[command(flatten)]
    random: RandomArgs,
    /// How many tasks to run.
    #[arg(long, default_value_t = RUNS)]
    runs: u32,
    /// The share of attempts at a step that fail permanently.
    #[arg(long, value_name = "STEP=SHARE")]
    fail: Vec<StepOption<Share>>,
    /// The share of a step's calls that fail temporarily, so that a retry may succeed.
    #[arg(long, value_name = "STEP=SHARE")]
    flaky: Vec<StepOption<Share>>,
    /// The share of attempts that get no reply.
    #[arg(long, value_name = "STEP=SHARE")]
    silent: Vec<StepOption<Share>>,
    /// The share of attempts to undo a step that fail permanently.
    #[arg(long, value_name = "STEP=SHARE")]
    fail_undo: Vec<StepOption<Share>>,
    /// How long a step's service is down, from the task's submission on.
    #[arg(long, value_name = "STEP=DURATION")]
    down: Vec<StepOption<DurationValue>>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: ForecastArgs) -> Result<()> {
    let json = args.json;
    let report = forecast(settings(args)?).await?;
    match json {
        true => outln!("{}", serde_json::to_string_pretty(&report)?),
        false => show(&report),
    }
    Ok(())
}

fn settings(args: ForecastArgs) -> Result<ForecastSettings> {
    Ok(ForecastSettings {
        fail: args.fail,
        flaky: args.flaky,
        silent: args.silent,
        fail_undo: args.fail_undo,
        down: args.down,
        ..args.random.with(args.assumptions.settings(args.runs)?)
    })
}

fn show(report: &ForecastReport) {
    let ForecastReport { workflow, version, runs, seed, .. } = report;
    outln!("{workflow} version {version}: {runs} tasks, seed {seed}");
    outln!("{}", outcomes(report));
    for reason in &report.reasons {
        outln!("{} tasks: {}", reason.tasks, reason.reason);
    }
    outln!("{}", steps(report));
    outln!("alerts: {}; tasks that need an operator: {}", report.alerts, report.need_operator);
    match report.require_processed() {
        Ok(()) => show_price(report),
        // The price of failures is none of successful tasks.
        Err(error) => outln!("no price: {error}"),
    }
}

fn outcomes(report: &ForecastReport) -> comfy_table::Table {
    let mut table = table(&["outcome", "tasks", "share", "p50", "p90", "p99", "longest"]);
    for outcome in &report.outcomes {
        table.add_row([
            outcome.state.clone(),
            outcome.tasks.to_string(),
            format!("{:.2}%", outcome.share * 100.0),
            time(outcome.p50_ms),
            time(outcome.p90_ms),
            time(outcome.p99_ms),
            time(outcome.max_ms),
        ]);
    }
    table
}

/// Formats a duration with about three digits: `140ms`, `6.48s`, `2m 3s`, `1h 5m`.
pub(crate) fn time(millis: u64) -> String {
    match millis {
        0..1_000 => format!("{millis}ms"),
        1_000..60_000 => format!("{:.2}s", millis as f64 / 1_000.0),
        60_000..3_600_000 => format!("{}m {}s", millis / 60_000, millis % 60_000 / 1_000),
        _ => {
            let minutes = Duration::from_secs(millis / 60_000 * 60);
            humantime::format_duration(minutes).to_string()
        }
    }
}

fn steps(report: &ForecastReport) -> comfy_table::Table {
    let mut table = table(&[
        "step",
        "started",
        "attempts",
        "calls",
        "retries",
        "failed",
        "skipped",
        "undone",
        "undo attempts",
        "undo failed",
    ]);
    for step in &report.steps {
        let counts = [
            step.started,
            step.attempts,
            step.calls,
            step.retries,
            step.failed,
            step.skipped,
            step.undone,
            step.undo_attempts,
            step.undo_failed,
        ];
        let counts = counts.iter().map(ToString::to_string);
        table.add_row(std::iter::once(step.step.clone()).chain(counts));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_short() {
        let formatted: Vec<_> = [7, 6_480, 123_000, 3_900_000].map(time).into();
        assert_eq!(formatted, ["7ms", "6.48s", "2m 3s", "1h 5m"]);
    }
}
