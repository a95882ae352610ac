//! `steward bench`: what Steward does on this machine, everything embedded. Each case runs in a process of
//! its own, so that none finds the memory, the threads or the caches of another; the cases take turns in
//! rounds, so that a noisy minute touches them alike; medians are told with their spread.

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

mod cold_start;
mod console;
mod ingest;
mod load;
mod mock;
mod recovery;
mod saga;
mod thread;

use self::console::Console;
use cold_start::ColdStart;
use ingest::Ingest;
use recovery::Recovery;
use saga::Saga;

/// What to measure.
#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// What to measure; all but `full` unless said, and cold starts only if there are functions.
    suites: Vec<Suite>,
    /// Where the functions are whose starts are measured, as infra/build leaves them.
    #[arg(long, value_name = "FOLDER", default_value = cold_start::BUILT)]
    functions: PathBuf,
    /// How often each case is run.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// One JSON object on standard output instead of the table.
    #[arg(long)]
    json: bool,
    /// One case, as JSON: what this command runs in a process of its own.
    #[arg(long, hide = true, exclusive = true)]
    case: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Suite {
    /// Sagas of five steps: 16, 128 and 1,024 at once, a service that takes 0 and 20 ms, state on file and
    /// in memory.
    Saga,
    /// Submissions at a steady rate with a spike of five times as many.
    Ingest,
    /// From the end of an agent to the next call of the step that it had in hand.
    Recovery,
    /// From the start of each function's process to its first request for work; infra/build builds them.
    ColdStart,
    /// Steps of a task, and tasks in the store: what a step costs then.
    Growth,
    /// The console's pages, with many tasks in the store.
    Console,
    /// What takes long: 10,000 sagas of each kind, 10,000 submissions a second for a minute, a million
    /// tasks in the store.
    Full,
}

/// One thing to measure.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Case {
    Saga(Saga),
    Ingest(Ingest),
    Recovery(Recovery),
    ColdStart(ColdStart),
    Console(Console),
}

/// What was measured, by name with its unit.
type Figures = BTreeMap<String, f64>;

/// The figures of a case, over the rounds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
struct Spread {
    median: f64,
    min: f64,
    max: f64,
}

pub(crate) async fn run(args: BenchArgs) -> Result<()> {
    if let Some(case) = &args.case {
        let case = serde_json::from_str(case).context("not a case")?;
        return print(&serde_json::to_string(&measure(case).await?)?);
    }
    let cases = cases(&args)?;
    let progress = progress_bar((cases.len() * args.rounds) as u64)?;
    let mut rounds: Vec<Vec<Figures>> = cases.iter().map(|_| Vec::new()).collect();
    for _ in 0..args.rounds {
        for (case, figures) in cases.iter().zip(&mut rounds) {
            progress.set_message(case.name());
            figures.push(apart(case).await?);
            progress.inc(1);
        }
    }
    progress.finish_and_clear();
    let spreads: Vec<_> = rounds.iter().map(|figures| spread(figures)).collect();
    if args.json { print(&as_json(&cases, &spreads)?) } else { print(&as_tables(&cases, &spreads)) }
}

fn cases(args: &BenchArgs) -> Result<Vec<Case>> {
    let mut all = vec![Suite::Saga, Suite::Ingest, Suite::Recovery, Suite::Growth, Suite::Console];
    all.extend(args.functions.is_dir().then_some(Suite::ColdStart));
    let suites = if args.suites.is_empty() { &all } else { &args.suites };
    let mut cases = Vec::new();
    for suite in suites {
        match suite {
            Suite::Saga => cases.extend(saga::grid(2_000).into_iter().map(Case::Saga)),
            Suite::Ingest => cases.push(Case::Ingest(Ingest::short())),
            Suite::Recovery => cases.push(Case::Recovery(Recovery::default())),
            Suite::ColdStart => {
                let functions = cold_start::built(&args.functions)?;
                cases.extend(functions.into_iter().map(Case::ColdStart));
            }
            Suite::Growth => cases.extend(saga::growth(100_000).into_iter().map(Case::Saga)),
            Suite::Console => cases.push(Case::Console(Console::default())),
            Suite::Full => {
                let sagas = saga::grid(10_000).into_iter().chain(saga::growth(1_000_000));
                cases.extend(sagas.map(Case::Saga).chain(Ingest::full().map(Case::Ingest)));
            }
        }
    }
    Ok(cases)
}

async fn measure(case: Case) -> Result<Figures> {
    match case {
        Case::Saga(saga) => saga::run(&saga).await,
        Case::Ingest(ingest) => ingest::run(&ingest).await,
        Case::Recovery(recovery) => recovery::run(&recovery).await,
        Case::ColdStart(start) => cold_start::run(&start).await,
        Case::Console(console) => console::run(&console).await,
    }
}

/// Runs a case in a process of its own, with a folder of its own.
async fn apart(case: &Case) -> Result<Figures> {
    let folder = tempfile::tempdir().context("a folder for the state")?;
    let case = serde_json::to_string(&case.in_folder(folder.path()))?;
    let program = std::env::current_exe().context("this program")?;
    let output = Command::new(program).args(["bench", "--case", &case]).output().await?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{case}: {said}");
    serde_json::from_slice(&output.stdout).with_context(|| format!("{case}: not figures"))
}

impl Case {
    fn name(&self) -> String {
        match self {
            Self::Saga(saga) => saga.name(),
            Self::Ingest(ingest) => ingest.name(),
            Self::Recovery(recovery) => recovery.name(),
            Self::ColdStart(start) => start.name(),
            Self::Console(console) => console.name(),
        }
    }

    /// The same with its state in this folder, if it keeps it on file.
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

/// The most memory that a process has had, by its id or as `self`. Linux says it; others do not.
fn peak_mib(process: &str) -> Option<f64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: f64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib / 1_024.0)
}

fn spread(rounds: &[Figures]) -> BTreeMap<String, Spread> {
    let names = rounds.first().into_iter().flat_map(BTreeMap::keys);
    let spreads = names.filter_map(|name| {
        let mut values: Vec<_> = rounds.iter().filter_map(|figures| figures.get(name)).collect();
        values.sort_by(|a, b| a.total_cmp(b));
        let (min, max) = (**values.first()?, **values.last()?);
        let median = **values.get(values.len() / 2)?;
        Some((name.clone(), Spread { median, min, max }))
    });
    spreads.collect()
}

fn as_json(cases: &[Case], spreads: &[BTreeMap<String, Spread>]) -> Result<String> {
    let cases = cases
        .iter()
        .zip(spreads)
        .map(|(case, figures)| json!({ "name": case.name(), "case": case, "figures": figures }));
    let report = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "processors": std::thread::available_parallelism().map_or(0, usize::from),
        "cases": cases.collect::<Vec<_>>(),
    });
    Ok(serde_json::to_string_pretty(&report)?)
}

fn as_tables(cases: &[Case], spreads: &[BTreeMap<String, Spread>]) -> String {
    let tables = cases.iter().zip(spreads).map(|(case, figures)| {
        let mut rows = table(&[&case.name(), "median", "min", "max"]);
        for (name, Spread { median, min, max }) in figures {
            rows.add_row([name.clone(), rounded(*median), rounded(*min), rounded(*max)]);
        }
        rows.to_string()
    });
    tables.collect::<Vec<_>>().join("\n")
}

/// Three digits that matter.
fn rounded(value: f64) -> String {
    let decimals = if value >= 100.0 { 0 } else { 1 + usize::from(value < 10.0) };
    format!("{value:.decimals$}")
}

fn progress_bar(cases: u64) -> Result<ProgressBar> {
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len}, {elapsed}: {msg}")?;
    Ok(ProgressBar::new(cases).with_style(style))
}

fn print(text: &str) -> Result<()> {
    say!("{text}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_is_of_the_rounds() {
        let rounds = [3.0, 1.0, 2.0].map(|value| Figures::from([("x".to_owned(), value)]));
        let x = Spread { median: 2.0, min: 1.0, max: 3.0 };
        assert_eq!(spread(&rounds), BTreeMap::from([("x".to_owned(), x)]));
    }
}
