//! `steward cost`: the cost of a million successful tasks of a workflow, by function and by step, and
//! what other services would charge. With the number of tasks a month also what that month costs, including all that a
//! deployment costs without tasks.

use std::collections::BTreeSet;

use anyhow::Result;
use clap::Args;
use serde::Serialize;
use steward_forecast::cost::{
    AlternativePrice, CostLedgerEntry, ForecastReport, ForecastSettings,
    idle_month::{IdleMonth, MonthlyCost},
    prices::Prices,
};

use crate::{
    assumptions::{AssumptionArgs, RandomArgs, forecast},
    client::DeploymentArgs,
    table::table,
    tenants,
};

/// The default number of tasks to run. Tasks differ in the random outcome of `when` and in call durations.
const RUNS: u32 = 1_000;

/// Options of `steward cost`.
#[derive(Debug, Args)]
pub(crate) struct CostArgs {
    #[command(flatten)]
    assumptions: AssumptionArgs,
    #[command(flatten)]
    random: RandomArgs,
    /// How many tasks to run.
    #[arg(long, default_value_t = RUNS)]
    runs: u32,
    /// Also show what a month with this many tasks costs, here and elsewhere, including what a deployment costs without tasks.
    #[arg(long, value_name = "TASKS")]
    per_month: Option<u64>,
    /// How many agents the deployment has. By default those of the workflow.
    #[arg(long, requires = "per_month")]
    agents: Option<u32>,
    /// Also show the cost of the tasks of this workflow that a deployment stores, by tenant. Scans the whole table.
    #[arg(long, conflicts_with = "json")]
    tenants: bool,
    #[command(flatten)]
    deployment: DeploymentArgs,
    /// Print one JSON object: the report of `steward workflow simulate`, and `month` with `--per-month`.
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: CostArgs) -> Result<()> {
    let batch = args.assumptions.batch;
    let settings = args.random.with(args.assumptions.settings(args.runs)?);
    let agents = args.agents.unwrap_or_else(|| agents_of(&settings));
    let report = forecast(settings).await?;
    report.require_processed()?;
    let monthly = |tasks| anyhow::Ok(MonthlyCost::of(&report, &Prices::listed()?, tasks, agents));
    let monthly = args.per_month.map(monthly).transpose()?;
    if args.json {
        let report = ReportOfMonth { report: &report, month: monthly.as_ref() };
        outln!("{}", serde_json::to_string_pretty(&report)?);
        return Ok(());
    }
    let ForecastReport { workflow, version, runs, .. } = &report;
    outln!("{workflow} version {version}: {runs} simulated tasks, {batch} messages per batch");
    for outcome in report.outcomes.iter().filter(|outcome| outcome.state != "Processed") {
        outln!("{} tasks ended {}", outcome.tasks, outcome.state);
    }
    for reason in &report.reasons {
        outln!("{} tasks: {}", reason.tasks, reason.reason);
    }
    outln!("{}", entries("function", &report.ledger.functions));
    outln!("{}", entries("step", &report.ledger.steps));
    show_price(&report);
    if let Some(monthly) = &monthly {
        show_month(monthly);
    }
    if args.tenants {
        outln!("{}", by_tenant(&report, &args.deployment).await?);
    }
    Ok(())
}

/// The JSON of `--per-month`.
#[derive(Serialize)]
struct ReportOfMonth<'r> {
    #[serde(flatten)]
    report: &'r ForecastReport,
    #[serde(skip_serializing_if = "Option::is_none")]
    month: Option<&'r MonthlyCost>,
}

/// The number of agents that the workflow and its child workflows name.
fn agents_of(settings: &ForecastSettings) -> u32 {
    let workflows = std::iter::once(&settings.workflow).chain(&settings.with);
    let agents: BTreeSet<_> =
        workflows.flat_map(|workflow| workflow.agents().into_keys()).collect();
    u32::try_from(agents.len()).unwrap_or(u32::MAX)
}

/// Prints what a month costs here and elsewhere.
fn show_month(MonthlyCost { tasks, idle, tasks_dollars, dollars, elsewhere }: &MonthlyCost) {
    let IdleMonth { agents, parts, dollars: idle_dollars } = idle;
    let mut month = table(&["a month", "$"]);
    for part in parts {
        month.add_row([part.what.to_owned(), format!("{:.2}", part.dollars)]);
    }
    month.add_row([format!("without tasks, with {agents} agents"), format!("{idle_dollars:.2}")]);
    month.add_row([format!("{tasks} tasks"), format!("{tasks_dollars:.2}")]);
    month.add_row(["together".to_owned(), format!("{dollars:.2}")]);
    outln!("{month}");
    let mut others = table(&["other service", "$ a month", "costs more than Steward from"]);
    for other in elsewhere {
        let price = other.dollars.map(|dollars| format!("{dollars:.2}")).unwrap_or_default();
        let from = other.break_even.map(|tasks| format!("{tasks} tasks a month"));
        let from = from.unwrap_or_else(|| "never".to_owned());
        others.add_row([other.service.to_owned(), price, from]);
    }
    outln!("{others}");
}

/// The cost of the stored tasks of each tenant, each at the average of the simulated tasks.
async fn by_tenant(
    report: &ForecastReport,
    deployment: &DeploymentArgs,
) -> Result<comfy_table::Table> {
    let workflow = report.workflow.parse()?;
    let counts = tenants::count(deployment, Some(&workflow), None).await?;
    let all: u64 = counts.values().map(|counts| counts.tasks).sum();
    let mut table = table(&["tenant", "stored tasks", "share", "$ at the average of a task"]);
    for (tenant, counts) in &counts {
        let share = counts.tasks as f64 / all as f64;
        let dollars = counts.tasks as f64 * report.dollars_per_million.total / 1e6;
        table.add_row([
            tenants::name(tenant.as_ref()).to_owned(),
            counts.tasks.to_string(),
            format!("{:.1}%", share * 100.0),
            format!("{dollars:.4}"),
        ]);
    }
    Ok(table)
}

/// Prints the price by AWS service, what other services would charge, and the assumptions.
pub(crate) fn show_price(report: &ForecastReport) {
    outln!("{}", services(report));
    outln!("{}", elsewhere(report));
    outln!("assumptions:");
    report.assumes.iter().for_each(|assumption| outln!("- {assumption}"));
}

/// A table of usage and cost, one row for each function or step.
fn entries(of: &str, entries: &[CostLedgerEntry]) -> comfy_table::Table {
    let mut table = table(&[
        of,
        "write units",
        "read units",
        "SQS requests",
        "invocations",
        "GB-seconds",
        "events",
        "$ per million tasks",
    ]);
    for CostLedgerEntry { of, usage, dollars_per_million } in entries {
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

fn services(report: &ForecastReport) -> comfy_table::Table {
    let (usage, dollars) = (&report.usage, &report.dollars_per_million);
    let million = format!("$ per million tasks ({}, {})", report.region, report.prices_as_of);
    let mut table = table(&["service", "average per task", &million]);
    let dynamodb =
        format!("{:.2} write units, {:.2} read units", usage.write_units, usage.read_units);
    let lambda =
        format!("{:.2} invocations, {:.4} GB-seconds", usage.invocations, usage.gb_seconds);
    for (service, used, dollars) in [
        ("DynamoDB", dynamodb, dollars.dynamodb),
        ("SQS", format!("{:.2} requests", usage.sqs_requests), dollars.sqs),
        ("Lambda", lambda, dollars.lambda),
        ("EventBridge", format!("{:.4} events", usage.events), dollars.eventbridge),
        ("total", String::new(), dollars.total),
    ] {
        table.add_row([service.to_owned(), used, format!("{dollars:.2}")]);
    }
    table
}

fn elsewhere(report: &ForecastReport) -> comfy_table::Table {
    let header = ["other service", "average per task", "$ per million tasks", "ratio to Steward"];
    let mut table = table(&header);
    let steward = report.dollars_per_million.total;
    for AlternativePrice { service, counts, dollars_per_million, cannot } in &report.elsewhere {
        let counts = counts.iter().map(|(what, count)| format!("{count:.2} {what}"));
        let price = dollars_per_million.map(|dollars| format!("{dollars:.2}"));
        let times = dollars_per_million.map(|dollars| format!("{:.1}", dollars / steward));
        table.add_row([
            (*service).to_owned(),
            counts.collect::<Vec<_>>().join(", "),
            price.or(cannot.map(str::to_owned)).unwrap_or_default(),
            times.unwrap_or_default(),
        ]);
    }
    table
}
