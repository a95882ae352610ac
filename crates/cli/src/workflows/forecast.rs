//! `steward workflow simulate`: what will become of a workflow's tasks, and what they will cost, before
//! it is deployed.

use std::time::Duration;

use anyhow::Result;
use clap::Args;
use steward_forecast::cost::{RUNS, Report, Said, Settings, Share, Span};

use crate::{
    assumed::{Assumed, forecast},
    cost::show_price,
    table::table,
};

/// What to assume of a workflow's world. STEP is a step's name, WORKFLOW.STEP for one of another
/// workflow, or `*` for all.
#[derive(Debug, Args)]
pub(crate) struct ForecastArgs {
    #[command(flatten)]
    assumed: Assumed,
    /// How many tasks to run.
    #[arg(long, default_value_t = RUNS)]
    runs: u32,
    /// How many attempts at a step fail for good.
    #[arg(long, value_name = "STEP=SHARE")]
    fail: Vec<Said<Share>>,
    /// How many of a step's calls fail, and may succeed when they are made again.
    #[arg(long, value_name = "STEP=SHARE")]
    flaky: Vec<Said<Share>>,
    /// How many attempts nobody answers.
    #[arg(long, value_name = "STEP=SHARE")]
    silent: Vec<Said<Share>>,
    /// How many attempts at undoing a step fail for good.
    #[arg(long, value_name = "STEP=SHARE")]
    fail_undo: Vec<Said<Share>>,
    /// For how long, from the submission on, a step's service refuses every call.
    #[arg(long, value_name = "STEP=DURATION")]
    down: Vec<Said<Span>>,
    /// As one JSON object.
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: ForecastArgs) -> Result<()> {
    let json = args.json;
    let report = forecast(settings(args)?).await?;
    match json {
        true => say!("{}", serde_json::to_string_pretty(&report)?),
        false => show(&report),
    }
    Ok(())
}

fn settings(args: ForecastArgs) -> Result<Settings> {
    Ok(Settings {
        fail: args.fail,
        flaky: args.flaky,
        silent: args.silent,
        fail_undo: args.fail_undo,
        down: args.down,
        ..args.assumed.settings(args.runs)?
    })
}

fn show(report: &Report) {
    let Report { workflow, version, runs, seed, .. } = report;
    say!("{workflow} version {version}: {runs} tasks, seed {seed}");
    say!("{}", outcomes(report));
    for reason in &report.reasons {
        say!("{} tasks: {}", reason.tasks, reason.reason);
    }
    say!("{}", steps(report));
    say!("alerts {}, tasks that need an operator {}", report.alerts, report.need_operator);
    show_price(report);
}

fn outcomes(report: &Report) -> comfy_table::Table {
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

/// Three figures are enough: `140ms`, `6.48s`, `2m 3s`, `1h 5m`.
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

fn steps(report: &Report) -> comfy_table::Table {
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
    fn times_have_three_figures() {
        let said: Vec<_> = [7, 6_480, 123_000, 3_900_000].map(time).into();
        assert_eq!(said, ["7ms", "6.48s", "2m 3s", "1h 5m"]);
    }
}
