//! `steward simulate`: runs simulated worlds from their seeds until one of them finds something, or
//! replays one of them with its whole trace.

use std::{
    io::IsTerminal,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Result, anyhow, bail};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use steward_testkit::simulation::{Report, Totals, simulate};

/// Lines of the trace that are shown of a seed that found something.
const TAIL: usize = 40;

/// Which worlds to simulate.
#[derive(Debug, Args)]
pub(crate) struct SimulateArgs {
    /// How many seeds to run.
    #[arg(long, default_value_t = 1_000)]
    seeds: u64,
    /// The first of them.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Replay this seed alone, and print its whole trace.
    #[arg(long, conflicts_with_all = ["seeds", "from"])]
    seed: Option<u64>,
}

pub(crate) async fn run(args: SimulateArgs) -> Result<()> {
    // Each world has a runtime of its own, which cannot be started within this one.
    tokio::task::spawn_blocking(move || match args.seed {
        Some(seed) => replay(seed),
        None => run_many(args.from, args.seeds),
    })
    .await?
}

fn replay(seed: u64) -> Result<()> {
    let report = simulate(seed, true)?;
    report.trace.iter().for_each(|line| say!("{line}"));
    show_findings(&report);
    show_totals(&report.totals, None);
    if report.findings.is_empty() { Ok(()) } else { bail!("seed {seed} failed") }
}

fn run_many(from: u64, seeds: u64) -> Result<()> {
    let began = Instant::now();
    let progress = progress_bar(seeds);
    let (next, last) = (AtomicU64::new(from), from.saturating_add(seeds));
    let failed: Mutex<Option<u64>> = Mutex::new(None);
    let totals: Mutex<Totals> = Mutex::default();
    let work = || -> Result<()> {
        let mut own = Totals::default();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            let seen = *failed.lock().unwrap_or_else(PoisonError::into_inner);
            // Seeds before one that failed are still run: the first is the one to show.
            if seed >= last || seen.is_some_and(|failed| failed < seed) {
                totals.lock().unwrap_or_else(PoisonError::into_inner).add(&own);
                return Ok(());
            }
            let report = simulate(seed, false)?;
            own.add(&report.totals);
            progress.inc(1);
            if !report.findings.is_empty() {
                let mut failed = failed.lock().unwrap_or_else(PoisonError::into_inner);
                *failed = Some(failed.map_or(seed, |other| other.min(seed)));
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| {
            worker.join().map_err(|_| anyhow!("a simulated world panicked"))?
        })
    })?;
    progress.finish_and_clear();
    let failed = *failed.lock().unwrap_or_else(PoisonError::into_inner);
    match failed {
        Some(seed) => show_failure(seed),
        None => {
            let totals = totals.lock().unwrap_or_else(PoisonError::into_inner);
            show_totals(&totals, Some(began.elapsed()));
            Ok(())
        }
    }
}

fn progress_bar(seeds: u64) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} seeds, {per_sec}, {eta} left");
    ProgressBar::new(seeds).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// Runs the failing seed again, for its trace: a seed always gives the same.
fn show_failure(seed: u64) -> Result<()> {
    let report = simulate(seed, true)?;
    let skipped = report.trace.len().saturating_sub(TAIL);
    say!("seed {seed}, after {skipped} more lines:");
    report.trace.iter().skip(skipped).for_each(|line| say!("{line}"));
    show_findings(&report);
    say!("replay with: steward simulate --seed {seed}");
    bail!("seed {seed} failed")
}

fn show_findings(report: &Report) {
    report.findings.iter().for_each(|finding| say!("found: {finding}"));
}

fn show_totals(totals: &Totals, took: Option<Duration>) {
    let Totals { seeds, tasks, faults, messages, effects, steps, task_ms } = totals;
    let count: u64 = tasks.values().sum();
    let states: Vec<_> = tasks.iter().map(|(state, count)| format!("{count} {state}")).collect();
    let hours = task_ms / 3_600_000;
    say!("seeds             {seeds}");
    say!("tasks             {count}: {}", states.join(", "));
    say!("faults injected   {faults}");
    say!("messages          {messages}");
    say!("effects           {effects}");
    say!("task-hours        {hours}");
    let completed = steps
        .iter()
        .filter_map(|(kind, count)| Some(format!("{count} {}", kind.strip_suffix(" completed")?)));
    say!("steps completed   {}", completed.collect::<Vec<_>>().join(", "));
    if let Some(took) = took {
        say!("seconds           {:.1}", took.as_secs_f64());
    }
}
