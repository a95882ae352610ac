//! `steward scale`: what a load needs of the limits of a deployment, which limit is the bottleneck, and what to raise.

use std::{path::PathBuf, time::Duration};

use anyhow::Result;
use clap::Args;
use steward_core::definition::workflow::Workflow;
use steward_definition_file::{parse, read_file};
use steward_forecast::{
    capacity::{
        DeploymentSizing, Limits, Load, RUNS, ScaleError, ScaleReport, ScaleSettings, Size,
        StageRow, scale,
    },
    cost::{self, BATCH_MAX, DurationValue, Json, StepOption, StepSelector},
};

use self::text::{load_text, number, percent, seconds};
use crate::{assumptions::JsonOrFile, table::table, workflows::forecast::time};

mod text;

/// The table leaves out limits with a lower utilisation.
const UTILISATION_SHOWN_MIN: f64 = 0.1;

/// Options of `steward scale`: a workflow, a load and a deployment.
#[derive(Debug, Args)]
pub(crate) struct ScaleArgs {
    /// The workflow definition; a saga of --steps steps if absent.
    file: Option<PathBuf>,
    /// The definition of a child workflow; a child workflow without one counts as a call. Repeatable.
    #[arg(long, value_name = "FILE", requires = "file")]
    with: Vec<PathBuf>,
    /// The number of sequential steps of the saga, each with its own agent.
    #[arg(long, default_value_t = 5, conflicts_with = "file", value_parser = clap::value_parser!(u32).range(1..=20))]
    steps: u32,
    #[command(flatten)]
    load: LoadArgs,
    #[command(flatten)]
    deployment: CapacityArgs,
    /// The average duration of a call.
    #[arg(long, default_value = "100ms", value_parser = humantime::parse_duration)]
    call: Duration,
    /// The average duration of one step's calls, if it differs.
    #[arg(long, value_name = "STEP=DURATION")]
    slow: Vec<StepOption<DurationValue>>,
    /// The task's input, as a file or JSON. Generated if absent.
    #[arg(long, value_name = "FILE|JSON")]
    input: Option<JsonOrFile>,
    /// The output of a step. Generated if absent.
    #[arg(long, value_name = "STEP=JSON")]
    output: Vec<StepOption<Json>>,
    /// How many tasks are run to count what one needs.
    #[arg(long, default_value_t = RUNS)]
    runs: u32,
    /// How many messages share an SQS request and an invocation.
    #[arg(long, default_value_t = BATCH_MAX)]
    batch: u32,
    /// The CPU time that a function needs for a message, at its configured memory.
    #[arg(long, default_value = "3ms", value_parser = humantime::parse_duration)]
    compute: Duration,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct LoadArgs {
    /// Submissions per second.
    #[arg(long, default_value_t = 10_000.0)]
    rate: f64,
    /// How long the load lasts.
    #[arg(long = "for", default_value = "1m", value_parser = humantime::parse_duration)]
    lasts: Duration,
    /// Submissions per second during a spike in the middle of the load.
    #[arg(long, requires = "spike_for")]
    spike: Option<f64>,
    /// How long the spike lasts.
    #[arg(long, requires = "spike", value_parser = humantime::parse_duration)]
    spike_for: Option<Duration>,
}

#[derive(Debug, Args)]
struct CapacityArgs {
    /// The `Size` parameter of the templates: small, medium or large.
    #[arg(long, default_value = "medium")]
    size: Size,
    /// Concurrent invocations of the submission function; by default as --size sets it.
    #[arg(long, value_name = "N")]
    submission_concurrency: Option<f64>,
    /// Concurrent invocations of the scheduler; by default as --size sets it.
    #[arg(long, value_name = "N")]
    scheduler_concurrency: Option<f64>,
    /// Concurrent invocations of each agent; by default as --size sets it.
    #[arg(long, value_name = "N")]
    agent_concurrency: Option<f64>,
    /// Provisioned event pollers of each queue.
    #[arg(long, value_name = "N")]
    pollers: Option<f64>,
    /// The `Shards` parameter of the template.
    #[arg(long, default_value_t = steward_forecast::capacity::SHARDS)]
    shards: u32,
    /// Warm throughput of each table and the index, in write units per second.
    #[arg(long, value_name = "N")]
    warm_writes: Option<f64>,
    /// Warm throughput of each table and the index, in read units per second.
    #[arg(long, value_name = "N")]
    warm_reads: Option<f64>,
    /// Assume that DynamoDB has already split the index `due` into one partition per shard, after an earlier load of this
    /// size.
    #[arg(long)]
    rehearsed: bool,
    /// The account's quota of concurrent Lambda executions.
    #[arg(long, value_name = "N")]
    account_concurrency: Option<f64>,
    /// The quota of read units, and of write units, per second of a table or an index.
    #[arg(long, value_name = "N")]
    table_quota: Option<f64>,
}

pub(crate) async fn run(args: ScaleArgs) -> Result<()> {
    let json = args.json;
    let settings = settings(args)?;
    // The forecast creates its own tokio runtimes, which is not possible inside this one.
    let report = tokio::task::spawn_blocking(move || scale(&settings)).await??;
    match json {
        true => outln!("{}", serde_json::to_string_pretty(&report)?),
        false => show(&report),
    }
    Ok(())
}

fn settings(args: ScaleArgs) -> Result<ScaleSettings> {
    let workflow = match &args.file {
        Some(file) => read_file(file)?,
        None => saga(args.steps)?,
    };
    let with = args.with.iter().map(|file| read_file(file)).collect::<Result<_, _>>()?;
    let every_step = StepOption { at: StepSelector::All, value: DurationValue(args.call) };
    let forecast = cost::ForecastSettings {
        with,
        runs: args.runs,
        batch: args.batch,
        slow: std::iter::once(every_step).chain(args.slow).collect(),
        input: args.input.map(|input| input.0),
        output: args.output,
        ..cost::ForecastSettings::new(workflow)
    };
    let LoadArgs { rate, lasts, spike, spike_for } = args.load;
    let load = Load {
        spike: spike.unwrap_or(rate),
        spike_lasts_s: spike_for.unwrap_or_default().as_secs_f64(),
        ..Load::steady(rate, lasts.as_secs_f64())
    };
    let (deployment, limits) = args.deployment.deployment_and_limits()?;
    Ok(ScaleSettings { forecast, load, deployment, limits, compute_s: args.compute.as_secs_f64() })
}

impl CapacityArgs {
    fn deployment_and_limits(&self) -> Result<(DeploymentSizing, Limits), ScaleError> {
        let mut limits = Limits::load().map_err(ScaleError::Limits)?;
        if let Some(quota) = self.account_concurrency {
            limits.account_concurrency.value = quota;
        }
        if let Some(quota) = self.table_quota {
            limits.table_writes_quota.value = quota;
            limits.table_reads_quota.value = quota;
        }
        let size = DeploymentSizing::of(self.size);
        let deployment = DeploymentSizing {
            submission: self.submission_concurrency.unwrap_or(size.submission),
            scheduler: self.scheduler_concurrency.unwrap_or(size.scheduler),
            agent: self.agent_concurrency.unwrap_or(size.agent),
            pollers: self.pollers.unwrap_or(size.pollers),
            shards: self.shards,
            warm_writes: self.warm_writes.unwrap_or(size.warm_writes),
            warm_reads: self.warm_reads.unwrap_or(size.warm_reads),
            rehearsed: self.rehearsed,
            ..size
        };
        Ok((deployment, limits))
    }
}

/// A workflow of sequential steps, each with a request and an undo.
fn saga(steps: u32) -> Result<Workflow> {
    let step = |number: u32| {
        let mut step = serde_json::json!({
            "agent": format!("agent-{number}"),
            "request": { "path": "/do", "body": { "task": "${ task.id }", "input": "${ input }" } },
            "undo": { "request": { "path": "/undo", "body": { "task": "${ task.id }" } } },
        });
        if let Some(fields) = step.as_object_mut().filter(|_| number > 1) {
            fields.insert("after".to_owned(), serde_json::json!([format!("step_{}", number - 1)]));
        }
        (format!("step_{number}"), step)
    };
    let steps: serde_json::Map<_, _> = (1..=steps).map(step).collect();
    let text = serde_json::json!({ "name": "saga", "version": 1, "steps": steps }).to_string();
    Ok(parse(std::path::Path::new("saga.json"), &text)?)
}

fn show(report: &ScaleReport) {
    let ScaleReport { workflow, version, load, deployment, .. } = report;
    outln!("{workflow} version {version}, size {}: {}", deployment.size, load_text(load));
    outln!("{}", stages(report));
    outln!("{}", limits(report));
    verdict(report).iter().for_each(|line| outln!("{line}"));
    if !report.raises.is_empty() {
        outln!("{}", raises(report));
    }
    let options = report.raises.iter().flat_map(|raise| &raise.options);
    let options = largest(options.map(String::as_str));
    if !options.is_empty() {
        outln!("next, run: steward scale … {}", options.join(" "));
    }
    outln!("assumptions:");
    report.assumes.iter().for_each(|assumption| outln!("- {assumption}"));
}

/// Merges options that occur several times, such as `--shards 8`: keeps the largest value of each.
fn largest<'r>(options: impl Iterator<Item = &'r str>) -> Vec<String> {
    let mut largest = std::collections::BTreeMap::<&str, f64>::new();
    for (name, value) in options.filter_map(|option| option.split_once(' ')) {
        let value = value.parse().unwrap_or(0.0);
        let most = largest.entry(name).or_insert(value);
        *most = most.max(value);
    }
    largest.into_iter().map(|(name, value)| format!("{name} {value:.0}")).collect()
}

fn stages(report: &ScaleReport) -> comfy_table::Table {
    let mut table = table(&[
        "stage",
        "messages/s",
        "invocation",
        "concurrency needed",
        "configured",
        "utilisation",
        "pollers ready after",
    ]);
    for stage in &report.stages {
        let StageRow { needed, set, utilisation, .. } = stage;
        table.add_row([
            stage.stage.clone(),
            number(stage.messages_a_second),
            time(stage.invocation_ms.round() as u64),
            number(*needed),
            number(*set),
            percent(*utilisation),
            stage.pollers_after_s.map_or("never".to_owned(), seconds),
        ]);
    }
    table
}

fn limits(report: &ScaleReport) -> comfy_table::Table {
    let mut table = table(&["limit", "needed", "available", "utilisation", "max submissions/s"]);
    for row in report.limits.iter().filter(|row| row.utilisation >= UTILISATION_SHOWN_MIN) {
        table.add_row([
            row.bound.to_string(),
            number(row.needed),
            number(row.available),
            percent(row.utilisation),
            number(row.sustained_rate),
        ]);
    }
    table
}

fn raises(report: &ScaleReport) -> comfy_table::Table {
    let mut table = table(&["limit to raise", "from", "to", "setting"]);
    for raise in &report.raises {
        table.add_row([raise.what.clone(), number(raise.from), number(raise.to), raise.at.clone()]);
    }
    table
}

fn verdict(report: &ScaleReport) -> Vec<String> {
    let cost = &report.cost;
    let rate = number(report.sustained_rate);
    let mut lines = vec![format!(
        "bottleneck: {}; sustainable rate: {rate} submissions per second",
        report.bottleneck.as_deref().unwrap_or("none")
    )];
    if report.backlog_max >= 1.0 {
        lines.push(format!(
            "backlog: up to {} submissions wait in their queue, before the deadline of their task starts",
            number(report.backlog_max.round())
        ));
    }
    lines.push(format!(
        "{} tasks end within {} after the last submission, at the sustainable rate; a task takes {} if nothing waits",
        number(report.submitted),
        seconds(report.drained_after_s),
        time(report.unloaded_ms.round() as u64)
    ));
    if let Some(concurrency) = report.let_in {
        lines.push(format!(
            "without raising limits: cap intake at the sustainable rate, with --submission-concurrency {concurrency:.0}"
        ));
    }
    let spike = match cost.an_hour_of_spike > cost.an_hour {
        true => format!(" (${:.0} during the spike)", cost.an_hour_of_spike),
        false => String::new(),
    };
    lines.push(format!(
        "cost: ${:.2} per million tasks, ${:.0} per hour{spike}; ${:.2} for this load",
        cost.per_million.total, cost.an_hour, cost.of_this_load
    ));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_thousands_separators() {
        let formatted: Vec<_> = [0.4, 7.0, 123.4, 1_234.5, 1_234_567.0].map(number).into();
        assert_eq!(formatted, ["0.4", "7", "123", "1,234", "1,234,567"]);
    }

    #[test]
    fn the_generated_saga_is_valid() {
        let workflow = saga(5).unwrap();
        assert_eq!(workflow.steps.len(), 5);
        assert!(workflow.steps.values().skip(1).all(|step| step.after.len() == 1));
    }

    #[test]
    fn the_largest_value_of_each_option_is_kept() {
        let options = ["--warm-writes 5", "--shards 8", "--warm-writes 70"];
        assert_eq!(largest(options.into_iter()), ["--shards 8", "--warm-writes 70"]);
    }
}
