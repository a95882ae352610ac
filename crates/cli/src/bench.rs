//! `steward bench`: benchmarks of Steward on this machine, with AWS emulated. Each case runs in a separate process, so
//! that it does not share memory, threads or caches with other cases. The cases take turns in rounds, so that noise on
//! the machine affects all of them. The report has the median, minimum and maximum of the rounds.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::process::Command;

use crate::table::table;

mod client;
mod cold_start;
mod console;
mod ingest;
mod measured_thread;
mod measurements;
mod recovery;
mod saga;
mod service;

use self::console::ConsoleBench;
use cold_start::ColdStartBench;
use ingest::IngestBench;
use measurements::Measurements;
use recovery::RecoveryBench;
use saga::SagaBench;

/// Options of `steward bench`.
#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// The suites to run; by default all but `full`, and cold starts only if the functions are built.
    suites: Vec<Suite>,
    /// The folder of the built functions for cold starts, as infra/build creates it.
    #[arg(long, value_name = "FOLDER", default_value = cold_start::BUILT)]
    functions: PathBuf,
    /// How often to run each case.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Print one JSON object instead of tables.
    #[arg(long)]
    json: bool,
    /// Run one case, given as JSON. The command uses this to run each case in a separate process.
    #[arg(long, hide = true, exclusive = true)]
    case: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Suite {
    /// Sagas of five steps: 16, 128 and 1,024 in flight, service latency of 0 and 20 ms, state on file and
    /// in memory.
    Saga,
    /// Submissions at a steady rate, with a spike at five times the rate.
    Ingest,
    /// Time from the crash of an agent, and from a call without an answer, to the next call of the step, with the
    /// template's settings; four minutes a round.
    Recovery,
    /// Time from the start of each function's process to its first request for an event. Run infra/build first.
    ColdStart,
    /// Cost of a step with more steps per task, and with more tasks in the store.
    Growth,
    /// Latency of the console's pages with many tasks in the store.
    Console,
    /// Long cases: 10,000 sagas of each kind, up to 10,000 submissions per second for a minute, a million
    /// tasks in the store.
    Full,
}

/// One benchmark case.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum BenchCase {
    Saga(SagaBench),
    Ingest(IngestBench),
    Recovery(RecoveryBench),
    ColdStart(ColdStartBench),
    Console(ConsoleBench),
}

/// One measured value over all rounds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
struct MedianRange {
    median: f64,
    min: f64,
    max: f64,
}

pub(crate) async fn run(args: BenchArgs) -> Result<()> {
    if let Some(case) = &args.case {
        let case = serde_json::from_str(case).context("--case is not a valid case")?;
        return print(&serde_json::to_string(&Box::pin(measure(case)).await?)?);
    }
    let cases = cases(&args)?;
    let progress = progress_bar((cases.len() * args.rounds) as u64)?;
    let mut rounds: Vec<Vec<Measurements>> = cases.iter().map(|_| Vec::new()).collect();
    for _ in 0..args.rounds {
        for (case, measurements) in cases.iter().zip(&mut rounds) {
            progress.set_message(case.name());
            measurements.push(run_in_process(case).await?);
            progress.inc(1);
        }
    }
    progress.finish_and_clear();
    let ranges: Vec<_> = rounds.iter().map(|rounds| median_ranges(rounds)).collect();
    if args.json { print(&as_json(&cases, &ranges)?) } else { print(&as_tables(&cases, &ranges)) }
}

fn cases(args: &BenchArgs) -> Result<Vec<BenchCase>> {
    let mut all = vec![Suite::Saga, Suite::Ingest, Suite::Recovery, Suite::Growth, Suite::Console];
    all.extend(args.functions.is_dir().then_some(Suite::ColdStart));
    let suites = if args.suites.is_empty() { &all } else { &args.suites };
    let mut cases = Vec::new();
    for suite in suites {
        match suite {
            Suite::Saga => cases.extend(saga::grid(2_000).into_iter().map(BenchCase::Saga)),
            Suite::Ingest => cases.push(BenchCase::Ingest(IngestBench::short())),
            Suite::Recovery => cases.extend(recovery::cases().map(BenchCase::Recovery)),
            Suite::ColdStart => {
                let functions = cold_start::built(&args.functions)?;
                cases.extend(functions.into_iter().map(BenchCase::ColdStart));
            }
            Suite::Growth => cases.extend(saga::growth(100_000).into_iter().map(BenchCase::Saga)),
            Suite::Console => cases.push(BenchCase::Console(ConsoleBench::default())),
            Suite::Full => {
                let sagas = saga::grid(10_000).into_iter().chain(saga::growth(1_000_000));
                cases.extend(
                    sagas.map(BenchCase::Saga).chain(IngestBench::full().map(BenchCase::Ingest)),
                );
            }
        }
    }
    Ok(cases)
}

async fn measure(case: BenchCase) -> Result<Measurements> {
    match case {
        BenchCase::Saga(saga) => Box::pin(saga::run(&saga)).await,
        BenchCase::Ingest(ingest) => Box::pin(ingest::run(&ingest)).await,
        BenchCase::Recovery(recovery) => recovery::run(&recovery).await,
        BenchCase::ColdStart(start) => cold_start::run(&start).await,
        BenchCase::Console(console) => Box::pin(console::run(&console)).await,
    }
}

/// Runs a case in a separate process, with a separate folder for its state.
async fn run_in_process(case: &BenchCase) -> Result<Measurements> {
    let folder = tempfile::tempdir().context("create a folder for the state")?;
    let case = serde_json::to_string(&case.in_folder(folder.path()))?;
    let program = std::env::current_exe().context("find the path of this program")?;
    let output = Command::new(program).args(["bench", "--case", &case]).output().await?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{case}: {stderr}");
    serde_json::from_slice(&output.stdout)
        .with_context(|| format!("{case}: the output is not a JSON object of numbers"))
}

impl BenchCase {
    fn name(&self) -> String {
        match self {
            Self::Saga(saga) => saga.name(),
            Self::Ingest(ingest) => ingest.name(),
            Self::Recovery(recovery) => recovery.name(),
            Self::ColdStart(start) => start.name(),
            Self::Console(console) => console.name(),
        }
    }

    /// This case with its state in `folder`, if it keeps state on file.
    fn in_folder(&self, folder: &Path) -> Self {
        let mut case = self.clone();
        match &mut case {
            Self::Saga(saga) => saga.data = saga.on_file.then(|| folder.to_owned()),
            Self::Ingest(ingest) => ingest.data = Some(folder.to_owned()),
            Self::Console(console) => console.data = Some(folder.to_owned()),
            Self::Recovery(_) | Self::ColdStart(_) => {}
        }
        case
    }
}

fn median_ranges(rounds: &[Measurements]) -> BTreeMap<String, MedianRange> {
    let names = rounds.first().into_iter().flat_map(BTreeMap::keys);
    let ranges = names.filter_map(|name| {
        let mut values: Vec<_> = rounds.iter().filter_map(|round| round.get(name)).collect();
        values.sort_by(|a, b| a.total_cmp(b));
        let (min, max) = (**values.first()?, **values.last()?);
        let median = **values.get(values.len() / 2)?;
        Some((name.clone(), MedianRange { median, min, max }))
    });
    ranges.collect()
}

fn as_json(cases: &[BenchCase], ranges: &[BTreeMap<String, MedianRange>]) -> Result<String> {
    let cases = cases
        .iter()
        .zip(ranges)
        .map(|(case, ranges)| json!({ "name": case.name(), "case": case, "figures": ranges }));
    let report = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "processors": std::thread::available_parallelism().map_or(0, usize::from),
        "cases": cases.collect::<Vec<_>>(),
    });
    Ok(serde_json::to_string_pretty(&report)?)
}

fn as_tables(cases: &[BenchCase], ranges: &[BTreeMap<String, MedianRange>]) -> String {
    let tables = cases.iter().zip(ranges).map(|(case, ranges)| {
        let mut rows = table(&[&case.name(), "median", "min", "max"]);
        for (name, MedianRange { median, min, max }) in ranges {
            rows.add_row([name.clone(), rounded(*median), rounded(*min), rounded(*max)]);
        }
        rows.to_string()
    });
    tables.collect::<Vec<_>>().join("\n")
}

/// Formats a value with about three significant digits.
fn rounded(value: f64) -> String {
    let decimals = if value >= 100.0 { 0 } else { 1 + usize::from(value < 10.0) };
    format!("{value:.decimals$}")
}

fn progress_bar(cases: u64) -> Result<ProgressBar> {
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len}, {elapsed}: {msg}")?;
    Ok(ProgressBar::new(cases).with_style(style))
}

fn print(text: &str) -> Result<()> {
    outln!("{text}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_and_range_are_taken_over_the_rounds() {
        let rounds = [3.0, 1.0, 2.0].map(|value| Measurements::from([("x".to_owned(), value)]));
        let x = MedianRange { median: 2.0, min: 1.0, max: 3.0 };
        assert_eq!(median_ranges(&rounds), BTreeMap::from([("x".to_owned(), x)]));
    }
}
