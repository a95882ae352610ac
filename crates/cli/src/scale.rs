//! `steward scale`: how a deployment fares under a load that nobody has sent it yet.

use std::{path::PathBuf, time::Duration};

use anyhow::Result;
use clap::Args;
use steward_core::definition::workflow::Workflow;
use steward_definition_file::{parse, read_file};
use steward_forecast::{
    capacity::{
        Deployment, Limits, Load, RUNS, Report, ScaleError, Settings, Size, StageRow, scale,
    },
    cost::{self, At, BATCH_MAX, Json, Said, Span},
};

use crate::{assumed::Input, table::table, workflows::forecast::time};

/// Limits of which less than this is used are left out of the table.
const SHOWN_FROM: f64 = 0.1;

/// What comes, and what it comes to.
#[derive(Debug, Args)]
pub(crate) struct ScaleArgs {
    /// The definition; a saga of --steps steps if absent.
    file: Option<PathBuf>,
    /// Definitions of the workflows that its steps run; one that is not given is taken as a call.
    #[arg(long, value_name = "FILE", requires = "file")]
    with: Vec<PathBuf>,
    /// Steps of the saga: one after the other, each by an agent of its own.
    #[arg(long, default_value_t = 5, conflicts_with = "file", value_parser = clap::value_parser!(u32).range(1..=20))]
    steps: u32,
    #[command(flatten)]
    load: LoadArgs,
    #[command(flatten)]
    deployment: DeploymentArgs,
    /// How long a call takes on average.
    #[arg(long, default_value = "100ms", value_parser = humantime::parse_duration)]
    call: Duration,
    /// How long a step's calls take on average, if not as long as the others.
    #[arg(long, value_name = "STEP=DURATION")]
    slow: Vec<Said<Span>>,
    /// What is submitted: a file, or JSON. Made up if absent.
    #[arg(long, value_name = "FILE|JSON")]
    input: Option<Input>,
    /// What a step returns. Made up if absent.
    #[arg(long, value_name = "STEP=JSON")]
    output: Vec<Said<Json>>,
    /// How many messages share a request and an invocation.
    #[arg(long, default_value_t = BATCH_MAX)]
    batch: u32,
    /// What a message takes of the processor, at the functions' memory.
    #[arg(long, default_value = "3ms", value_parser = humantime::parse_duration)]
    compute: Duration,
    /// As one JSON object.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct LoadArgs {
    /// Submissions a second.
    #[arg(long, default_value_t = 10_000.0)]
    rate: f64,
    /// For how long.
    #[arg(long = "for", default_value = "1m", value_parser = humantime::parse_duration)]
    lasts: Duration,
    /// Submissions a second in the middle of it.
    #[arg(long, requires = "spike_for")]
    spike: Option<f64>,
    /// How long that lasts.
    #[arg(long, requires = "spike", value_parser = humantime::parse_duration)]
    spike_for: Option<Duration>,
}

#[derive(Debug, Args)]
struct DeploymentArgs {
    /// `Size` of the templates: small, medium or large.
    #[arg(long, default_value = "medium")]
    size: Size,
    /// Invocations of the submission function at once, in place of the size's.
    #[arg(long, value_name = "N")]
    submission_concurrency: Option<f64>,
    /// Invocations of the scheduler at once, in place of the size's.
    #[arg(long, value_name = "N")]
    scheduler_concurrency: Option<f64>,
    /// Invocations of each agent at once, in place of the size's.
    #[arg(long, value_name = "N")]
    agent_concurrency: Option<f64>,
    /// Pollers of each queue from the start, in provisioned mode.
    #[arg(long, value_name = "N")]
    pollers: Option<f64>,
    /// `Shards` of the template.
    #[arg(long, default_value_t = steward_forecast::capacity::SHARDS)]
    shards: u32,
    /// Write units a second that each table and the index are warm for.
    #[arg(long, value_name = "N")]
    warm_writes: Option<f64>,
    /// Read units a second that each table and the index are warm for.
    #[arg(long, value_name = "N")]
    warm_reads: Option<f64>,
    /// The index has borne this load before: each shard has a partition to itself.
    #[arg(long)]
    rehearsed: bool,
    /// The account's quota of concurrent executions.
    #[arg(long, value_name = "N")]
    account_concurrency: Option<f64>,
    /// The quota of read and of write units a second of a table, and of an index.
    #[arg(long, value_name = "N")]
    table_quota: Option<f64>,
}

pub(crate) async fn run(args: ScaleArgs) -> Result<()> {
    let json = args.json;
    let settings = settings(args)?;
    // The forecast within has runtimes of its own, which cannot be started within this one.
    let report = tokio::task::spawn_blocking(move || scale(&settings)).await??;
    match json {
        true => say!("{}", serde_json::to_string_pretty(&report)?),
        false => show(&report),
    }
    Ok(())
}

fn settings(args: ScaleArgs) -> Result<Settings> {
    let workflow = match &args.file {
        Some(file) => read_file(file)?,
        None => saga(args.steps)?,
    };
    let with = args.with.iter().map(|file| read_file(file)).collect::<Result<_, _>>()?;
    let every = Said { at: At::All, value: Span(args.call) };
    let forecast = cost::Settings {
        with,
        runs: RUNS,
        batch: args.batch,
        slow: std::iter::once(every).chain(args.slow).collect(),
        input: args.input.map(|input| input.0),
        output: args.output,
        ..cost::Settings::new(workflow)
    };
    let LoadArgs { rate, lasts, spike, spike_for } = args.load;
    let load = Load {
        spike: spike.unwrap_or(rate),
        spike_lasts_s: spike_for.unwrap_or_default().as_secs_f64(),
        ..Load::steady(rate, lasts.as_secs_f64())
    };
    let (deployment, limits) = args.deployment.given()?;
    Ok(Settings { forecast, load, deployment, limits, compute_s: args.compute.as_secs_f64() })
}

impl DeploymentArgs {
    fn given(&self) -> Result<(Deployment, Limits), ScaleError> {
        let mut limits = Limits::load().map_err(ScaleError::Limits)?;
        if let Some(quota) = self.account_concurrency {
            limits.account_concurrency.value = quota;
        }
        if let Some(quota) = self.table_quota {
            limits.table_writes_quota.value = quota;
            limits.table_reads_quota.value = quota;
        }
        let size = Deployment::of(self.size);
        let deployment = Deployment {
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

/// So many steps, one after the other, each of which calls and can be undone.
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

fn show(report: &Report) {
    let Report { workflow, version, load, deployment, .. } = report;
    say!("{workflow} version {version}, size {}: {}", deployment.size, load_text(load));
    say!("{}", stages(report));
    say!("{}", limits(report));
    verdict(report).iter().for_each(|line| say!("{line}"));
    if !report.raises.is_empty() {
        say!("{}", raises(report));
    }
    let options = report.raises.iter().flat_map(|raise| &raise.options);
    let options = largest(options.map(String::as_str));
    if !options.is_empty() {
        say!("try: steward scale … {}", options.join(" "));
    }
    say!("assumed:");
    report.assumes.iter().for_each(|assumed| say!("- {assumed}"));
}

/// Of options that are there several times, the largest.
fn largest<'r>(options: impl Iterator<Item = &'r str>) -> Vec<String> {
    let mut largest = std::collections::BTreeMap::<&str, f64>::new();
    for (name, value) in options.filter_map(|option| option.split_once(' ')) {
        let value = value.parse().unwrap_or(0.0);
        let most = largest.entry(name).or_insert(value);
        *most = most.max(value);
    }
    largest.into_iter().map(|(name, value)| format!("{name} {value:.0}")).collect()
}

fn load_text(load: &Load) -> String {
    let seconds = |s: f64| time((s * 1_000.0) as u64);
    let steady =
        format!("{} submissions a second for {}", number(load.rate), seconds(load.lasts_s));
    match load.spike_lasts_s > 0.0 {
        true => {
            format!("{steady}, {} for {}", number(load.spike), seconds(load.spike_lasts_s))
        }
        false => steady,
    }
}

fn stages(report: &Report) -> comfy_table::Table {
    let mut table = table(&[
        "stage",
        "messages/s",
        "invocation",
        "at once: needed",
        "set",
        "used",
        "pollers there after",
        "longest queue",
        "oldest message",
        "behind",
        "waits for",
    ]);
    let seconds = |s: f64| time((s * 1_000.0).round() as u64);
    for stage in &report.stages {
        let StageRow { needed, set, utilisation, .. } = stage;
        let behind =
            stage.behind_s.map(|(from, until)| format!("{}–{}", seconds(from), seconds(until)));
        table.add_row([
            stage.stage.clone(),
            number(stage.messages_a_second),
            time(stage.invocation_ms.round() as u64),
            number(*needed),
            number(*set),
            percent(*utilisation),
            stage.pollers_after_s.map_or("never".to_owned(), seconds),
            number(stage.longest),
            seconds(stage.oldest_s),
            behind.unwrap_or_default(),
            stage.held_by.clone().unwrap_or_default(),
        ]);
    }
    table
}

fn limits(report: &Report) -> comfy_table::Table {
    let mut table = table(&["limit", "needed", "available", "used", "bears submissions/s"]);
    for row in report.limits.iter().filter(|row| row.utilisation >= SHOWN_FROM) {
        table.add_row([
            row.bound.to_string(),
            number(row.needed),
            number(row.available),
            percent(row.utilisation),
            number(row.bears),
        ]);
    }
    table
}

fn raises(report: &Report) -> comfy_table::Table {
    let mut table = table(&["raise", "from", "to", "where"]);
    for raise in &report.raises {
        table.add_row([raise.what.clone(), number(raise.from), number(raise.to), raise.at.clone()]);
    }
    table
}

fn verdict(report: &Report) -> Vec<String> {
    let seconds = |s: f64| time((s.max(0.0) * 1_000.0).round() as u64);
    let Report { latency, late, cost, .. } = report;
    let mut lines = Vec::new();
    lines.push(match &report.binds {
        Some((bound, share)) => format!(
            "binds: {bound} ({} of all waiting); in the long run {} submissions a second are borne",
            percent(*share),
            number(report.bears)
        ),
        None => format!(
            "no queue is behind by more than a second; in the long run {} submissions a second are borne",
            number(report.bears)
        ),
    });
    let by_arithmetic = seconds(report.drained_after_by_arithmetic_s);
    lines.push(match report.drained_after_s {
        Some(after) => format!(
            "all {} tasks done {} after the last submission (by arithmetic {by_arithmetic})",
            number(report.submitted),
            seconds(after)
        ),
        None => format!(
            "{} of {} tasks not done four hours after the last submission",
            number(report.left),
            number(report.submitted)
        ),
    });
    let ms = |ms: f64| time(ms.round() as u64);
    lines.push(format!(
        "from submitted to ended: {} if nothing waits; p50 {}, p99 {}, longest {}",
        ms(latency.unloaded_ms),
        ms(latency.p50_ms),
        ms(latency.p99_ms),
        ms(latency.max_ms)
    ));
    if let Some(from) = late.from_s {
        lines.push(format!(
            "TOO LATE: {} of answers come after their step's complete-by, from {} on: they are ignored and the steps are done again, which is not in these figures",
            percent(late.share),
            seconds(from)
        ));
    }
    if let Some(let_in) = report.let_in {
        lines.push(format!(
            "or let in no more than is borne: --submission-concurrency {let_in:.0}; what waits then waits before it is a task, where no complete-by runs"
        ));
    }
    let spike = match cost.an_hour_of_spike > cost.an_hour {
        true => format!(", ${:.0} in the spike", cost.an_hour_of_spike),
        false => String::new(),
    };
    lines.push(format!(
        "costs ${:.2} a million tasks, ${:.0} an hour{spike}; this load ${:.2}",
        cost.per_million.total, cost.an_hour, cost.of_this_load
    ));
    lines
}

/// Up to three figures after the point, and groups of three before it.
fn number(value: f64) -> String {
    if value < 10.0 && value.fract() != 0.0 {
        return format!("{value:.1}");
    }
    let digits = format!("{value:.0}");
    let mut grouped = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

fn percent(share: f64) -> String {
    format!("{:.0}%", share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped() {
        let said: Vec<_> = [0.4, 7.0, 123.4, 1_234.5, 1_234_567.0].map(number).into();
        assert_eq!(said, ["0.4", "7", "123", "1,234", "1,234,567"]);
    }

    #[test]
    fn the_saga_can_run() {
        let workflow = saga(5).unwrap();
        assert_eq!(workflow.steps.len(), 5);
        assert!(workflow.steps.values().skip(1).all(|step| step.after.len() == 1));
    }

    #[test]
    fn of_several_the_largest_is_tried() {
        let options = ["--warm-writes 5", "--shards 8", "--warm-writes 70"];
        assert_eq!(largest(options.into_iter()), ["--shards 8", "--warm-writes 70"]);
    }
}
