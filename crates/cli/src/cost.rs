//! `steward cost`: what a million tasks of a workflow cost if all goes well, on whose account that is,
//! and what other services would charge.

use anyhow::Result;
use clap::Args;
use steward_forecast::cost::{Elsewhere, Entry, Report};

use crate::{
    assumed::{Assumed, forecast},
    table::table,
};

/// Tasks to count unless said otherwise: they differ by what a `when` draws and by how long calls take.
const RUNS: u32 = 1_000;

/// What to price.
#[derive(Debug, Args)]
pub(crate) struct CostArgs {
    #[command(flatten)]
    assumed: Assumed,
    /// How many tasks to run and count.
    #[arg(long, default_value_t = RUNS)]
    runs: u32,
    /// As one JSON object: the report of `steward workflow simulate`.
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: CostArgs) -> Result<()> {
    let batch = args.assumed.batch;
    let report = forecast(args.assumed.settings(args.runs)?).await?;
    if args.json {
        say!("{}", serde_json::to_string_pretty(&report)?);
        return Ok(());
    }
    let Report { workflow, version, runs, .. } = &report;
    say!("{workflow} version {version}: {runs} tasks counted, {batch} messages a batch");
    for outcome in report.outcomes.iter().filter(|outcome| outcome.state != "Processed") {
        say!("{} of them ended {}", outcome.tasks, outcome.state);
    }
    for reason in &report.reasons {
        say!("{} tasks: {}", reason.tasks, reason.reason);
    }
    say!("{}", entries("function", &report.ledger.functions));
    say!("{}", entries("step", &report.ledger.steps));
    show_price(&report);
    Ok(())
}

/// The price by service, what other services would charge, and what that takes for granted.
pub(crate) fn show_price(report: &Report) {
    say!("{}", services(report));
    say!("{}", elsewhere(report));
    say!("assumed:");
    report.assumes.iter().for_each(|assumed| say!("- {assumed}"));
}

/// Lines of the ledger.
fn entries(of: &str, entries: &[Entry]) -> comfy_table::Table {
    let mut table = table(&[
        of,
        "write units",
        "read units",
        "SQS requests",
        "invocations",
        "GB-seconds",
        "events",
        "$ a million tasks",
    ]);
    for Entry { of, usage, dollars_per_million } in entries {
        table.add_row([
            of.clone(),
            format!("{:.2}", usage.write_units),
            format!("{:.2}", usage.read_units),
            format!("{:.2}", usage.sqs_requests),
            format!("{:.2}", usage.invocations),
            format!("{:.4}", usage.gb_seconds),
            format!("{:.2}", usage.events),
            format!("{:.2}", dollars_per_million.total),
        ]);
    }
    table
}

fn services(report: &Report) -> comfy_table::Table {
    let (usage, dollars) = (&report.usage, &report.dollars_per_million);
    let million = format!("$ a million tasks ({}, {})", report.region, report.prices_as_of);
    let mut table = table(&["service", "a task, on average", &million]);
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

fn elsewhere(report: &Report) -> comfy_table::Table {
    let mut table =
        table(&["elsewhere", "a task, on average", "$ a million tasks", "times as much"]);
    let own = report.dollars_per_million.total;
    for Elsewhere { service, counts, dollars_per_million, cannot } in &report.elsewhere {
        let counts = counts.iter().map(|(what, count)| format!("{count:.2} {what}"));
        let price = dollars_per_million.map(|dollars| format!("{dollars:.2}"));
        let times = dollars_per_million.map(|dollars| format!("{:.1}", dollars / own));
        table.add_row([
            (*service).to_owned(),
            counts.collect::<Vec<_>>().join(", "),
            price.or(cannot.map(str::to_owned)).unwrap_or_default(),
            times.unwrap_or_default(),
        ]);
    }
    table
}
