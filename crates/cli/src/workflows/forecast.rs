//! `steward workflow simulate`: what will become of a workflow's tasks, and what they will cost, before
//! it is deployed.

use std::{io::IsTerminal, path::PathBuf, str::FromStr, time::Duration};

use anyhow::{Context, Result};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::Value;
use steward_local::{
    definitions::read_file,
    forecast::{
        BATCH_MAX, Json, RUNS, Report, Said, Settings, Share, Span, forecast,
        prices::{AS_OF, REGION},
    },
};

use crate::table::table;

/// What to assume of a workflow's world. STEP is a step's name, WORKFLOW.STEP for one of another
/// workflow, or `*` for all.
#[derive(Debug, Args)]
pub(crate) struct ForecastArgs {
    /// The definition.
    file: PathBuf,
    /// Definitions of the workflows that its steps run; one that is not given is taken as a call.
    #[arg(long, value_name = "FILE")]
    with: Vec<PathBuf>,
    /// How many tasks to run.
    #[arg(long, default_value_t = RUNS)]
    runs: u32,
    /// What chance begins with: the same seed gives the same report.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// What is submitted: a file, or JSON. Made up if absent.
    #[arg(long, value_name = "FILE|JSON")]
    input: Option<Input>,
    /// What a step returns; what each of its items does if it has items. Made up if absent.
    #[arg(long, value_name = "STEP=JSON")]
    output: Vec<Said<Json>>,
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
    /// How long a step's calls take on average; 100ms unless said.
    #[arg(long, value_name = "STEP=DURATION")]
    slow: Vec<Said<Span>>,
    /// For how long, from the submission on, a step's service refuses every call.
    #[arg(long, value_name = "STEP=DURATION")]
    down: Vec<Said<Span>>,
    /// How long the answer to a step with a callback takes on average; 1m, or a tenth of what it may
    /// take, unless said.
    #[arg(long, value_name = "STEP=DURATION")]
    answer: Vec<Said<Span>>,
    /// How many messages share a request and an invocation: ten under load, one if tasks are rare.
    #[arg(long, default_value_t = BATCH_MAX)]
    batch: u32,
    /// How long an agent's call may take before it is made again, as the agent is deployed.
    #[arg(long, default_value = "30s", value_parser = humantime::parse_duration)]
    call_timeout: Duration,
    /// As one JSON object.
    #[arg(long)]
    json: bool,
}

/// JSON, or the file that it is in.
#[derive(Debug, Clone)]
pub(crate) struct Input(pub(crate) Value);

impl FromStr for Input {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let inline = text.trim_start().starts_with(['{', '[', '"']);
        let json = match serde_json::from_str(text) {
            Ok(value) => return Ok(Self(value)),
            Err(error) if inline => return Err(error).context("not JSON"),
            Err(_) => std::fs::read_to_string(text).context("neither JSON nor a file")?,
        };
        Ok(Self(serde_json::from_str(&json).context("the file is not JSON")?))
    }
}

#[expect(clippy::print_stdout, reason = "a command's output")]
pub(crate) async fn run(args: ForecastArgs) -> Result<()> {
    let json = args.json;
    let settings = settings(args)?;
    let progress = progress_bar(settings.runs);
    let report = {
        let progress = progress.clone();
        // Each run has a runtime of its own, which cannot be started within this one.
        tokio::task::spawn_blocking(move || forecast(settings, &|| progress.inc(1))).await?
    };
    progress.finish_and_clear();
    let report = report?;
    match json {
        true => println!("{}", serde_json::to_string_pretty(&report)?),
        false => show(&report),
    }
    Ok(())
}

fn settings(args: ForecastArgs) -> Result<Settings> {
    let with = args.with.iter().map(|file| read_file(file)).collect::<Result<_, _>>()?;
    Ok(Settings {
        with,
        runs: args.runs,
        seed: args.seed,
        batch: args.batch,
        call_timeout: args.call_timeout,
        input: args.input.map(|input| input.0),
        output: args.output,
        fail: args.fail,
        flaky: args.flaky,
        silent: args.silent,
        fail_undo: args.fail_undo,
        slow: args.slow,
        down: args.down,
        answer: args.answer,
        ..Settings::new(read_file(&args.file)?)
    })
}

fn progress_bar(runs: u32) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} tasks, {per_sec}, {eta} left");
    ProgressBar::new(runs.into()).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

#[expect(clippy::print_stdout, reason = "a command's output")]
fn show(report: &Report) {
    let Report { workflow, version, runs, seed, .. } = report;
    println!("{workflow} version {version}: {runs} tasks, seed {seed}");
    println!("{}", outcomes(report));
    for reason in &report.reasons {
        println!("{} tasks: {}", reason.tasks, reason.reason);
    }
    println!("{}", steps(report));
    println!("alerts {}, tasks that need an operator {}", report.alerts, report.need_operator);
    println!("{}", costs(report));
    let (transitions, dollars) = (report.transitions, report.step_functions_dollars_per_million);
    println!(
        "Step Functions Standard, {transitions:.2} state transitions a task: ${dollars:.2} a million tasks, {:.1} times as much",
        dollars / report.dollars_per_million.total
    );
    println!("assumed:");
    report.assumes.iter().for_each(|assumed| println!("- {assumed}"));
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

fn costs(report: &Report) -> comfy_table::Table {
    let (usage, dollars) = (&report.usage, &report.dollars_per_million);
    let million = format!("$ a million tasks ({REGION}, {AS_OF})");
    let mut table = table(&["service", "a task, on average", million.as_str()]);
    let dynamodb =
        format!("{:.2} write units, {:.2} read units", usage.write_units, usage.read_units);
    let lambda =
        format!("{:.2} invocations, {:.4} GB-seconds", usage.invocations, usage.gb_seconds);
    for (service, used, dollars) in [
        ("DynamoDB", dynamodb, dollars.dynamodb),
        ("SQS", format!("{:.2} requests", usage.sqs_requests), dollars.sqs),
        ("Lambda", lambda, dollars.lambda),
        ("EventBridge", format!("{:.4} events", usage.events), dollars.eventbridge),
        ("all", String::new(), dollars.total),
    ] {
        table.add_row([service.to_owned(), used, format!("{dollars:.2}")]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_input_is_json_or_a_file() {
        let read = |text: &str| text.parse::<Input>().map(|input| input.0);
        assert_eq!(read(r#"{"a":1}"#).unwrap(), serde_json::json!({ "a": 1 }));
        assert_eq!(read("{").unwrap_err().to_string(), "not JSON");
        assert_eq!(read("no/such/file").unwrap_err().to_string(), "neither JSON nor a file");
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().to_str().unwrap().to_owned();
        assert_eq!(read(&path).unwrap_err().to_string(), "the file is not JSON");
        std::fs::write(&path, "[1]").unwrap();
        assert_eq!(read(&path).unwrap(), serde_json::json!([1]));
    }

    #[test]
    fn times_have_three_figures() {
        let said: Vec<_> = [7, 6_480, 123_000, 3_900_000].map(time).into();
        assert_eq!(said, ["7ms", "6.48s", "2m 3s", "1h 5m"]);
    }
}
