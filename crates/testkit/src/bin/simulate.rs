//! Runs the randomised simulation from many seeds until a seed produces findings, or replays one seed with its
//! whole trace.
//!
//! ```sh
//! cargo run -p steward-testkit --bin simulate -- --seeds 1000
//! cargo run -p steward-testkit --bin simulate -- --seed 342
//! ```

use std::{
    fmt,
    io::{self, IsTerminal, Write},
    process::{ExitCode, exit},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Result, anyhow, bail};
use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use steward_testkit::simulation::{SimulationReport, SimulationTotals, simulate};
use tracing_subscriber::EnvFilter;

/// How many of the last trace lines of a failing seed are printed.
const TRACE_TAIL_LINES: usize = 40;

/// Run the randomised simulation from many seeds until one fails, or replay one seed.
#[derive(Debug, Parser)]
#[command(name = "simulate")]
struct SimulateArgs {
    /// How many seeds to run.
    #[arg(long, default_value_t = 1_000)]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Replay only this seed, and print its whole trace.
    #[arg(long, conflicts_with_all = ["seeds", "from"])]
    seed: Option<u64>,
}

/// Prints a line to standard output. Unlike `println!`, it ends the command when the reader has closed the pipe.
macro_rules! print_line {
    ($($text:tt)*) => { write_line(format_args!($($text)*)) };
}

#[expect(clippy::print_stderr, reason = "a command's output")]
fn write_line(line: fmt::Arguments<'_>) {
    match writeln!(io::stdout().lock(), "{line}") {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => exit(0),
        Err(error) => {
            eprintln!("error: standard output: {error}");
            exit(1)
        }
    }
}

#[expect(clippy::print_stderr, reason = "a command's output")]
fn main() -> ExitCode {
    let args = SimulateArgs::parse();
    // Logs are off by default: the simulation causes errors deliberately.
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("off"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).init();
    let result = match args.seed {
        Some(seed) => replay(seed),
        None => run_many(args.from, args.seeds),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn replay(seed: u64) -> Result<()> {
    let report = simulate(seed, true)?;
    report.trace.iter().for_each(|line| print_line!("{line}"));
    print_findings(&report);
    print_totals(&report.totals, None);
    if report.findings.is_empty() { Ok(()) } else { bail!("seed {seed} failed") }
}

/// Runs `seeds` seeds on all processors, starting with seed `from`.
///
/// # Errors
/// The lowest failing seed, after its trace and findings were printed.
fn run_many(from: u64, seeds: u64) -> Result<()> {
    let began = Instant::now();
    let progress = progress_bar(seeds);
    let (next, last) = (AtomicU64::new(from), from.saturating_add(seeds));
    let failed: Mutex<Option<u64>> = Mutex::new(None);
    let totals: Mutex<SimulationTotals> = Mutex::default();
    let work = || -> Result<()> {
        let mut thread_totals = SimulationTotals::default();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            let first_failed = *failed.lock().unwrap_or_else(PoisonError::into_inner);
            // Seeds below a failed one still run: the lowest failing seed is the one to report.
            if seed >= last || first_failed.is_some_and(|failed| failed < seed) {
                totals.lock().unwrap_or_else(PoisonError::into_inner).add(&thread_totals);
                return Ok(());
            }
            let report = simulate(seed, false)?;
            thread_totals.add(&report.totals);
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
        workers
            .into_iter()
            .try_for_each(|worker| worker.join().map_err(|_| anyhow!("a simulation panicked"))?)
    })?;
    progress.finish_and_clear();
    let failed = *failed.lock().unwrap_or_else(PoisonError::into_inner);
    match failed {
        Some(seed) => report_failure(seed),
        None => {
            let totals = totals.lock().unwrap_or_else(PoisonError::into_inner);
            print_totals(&totals, Some(began.elapsed()));
            Ok(())
        }
    }
}

fn progress_bar(seeds: u64) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} seeds, {per_sec}, {eta} left");
    ProgressBar::new(seeds).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// Runs the failing seed again to get its trace: the same seed always gives the same run.
fn report_failure(seed: u64) -> Result<()> {
    let report = simulate(seed, true)?;
    let skipped = report.trace.len().saturating_sub(TRACE_TAIL_LINES);
    print_line!("seed {seed}, after {skipped} more lines:");
    report.trace.iter().skip(skipped).for_each(|line| print_line!("{line}"));
    print_findings(&report);
    print_line!("replay with: cargo run -p steward-testkit --bin simulate -- --seed {seed}");
    bail!("seed {seed} failed")
}

fn print_findings(report: &SimulationReport) {
    report.findings.iter().for_each(|finding| print_line!("found: {finding}"));
}

fn print_totals(totals: &SimulationTotals, took: Option<Duration>) {
    let SimulationTotals {
        seeds,
        tasks,
        faults,
        messages,
        effects,
        steps,
        rate_deferrals,
        agent_moves,
        payload_tasks,
        payloads_sent,
        payloads_stored,
        forgeries_refused,
        task_ms,
    } = totals;
    let count: u64 = tasks.values().sum();
    let states: Vec<_> = tasks.iter().map(|(state, count)| format!("{count} {state}")).collect();
    let hours = task_ms / 3_600_000;
    print_line!("seeds             {seeds}");
    print_line!("tasks             {count}: {}", states.join(", "));
    print_line!("faults injected   {faults}");
    print_line!("messages          {messages}");
    print_line!("effects           {effects}");
    print_line!("rate deferrals    {rate_deferrals}");
    print_line!("agent moves       {agent_moves}");
    print_line!(
        "payloads          {payload_tasks} tasks: {payloads_stored} responses stored, {payloads_sent} sent, {forgeries_refused} forged or expired refused"
    );
    print_line!("task-hours        {hours}");
    let completed = steps
        .iter()
        .filter_map(|(kind, count)| Some(format!("{count} {}", kind.strip_suffix(" completed")?)));
    print_line!("steps completed   {}", completed.collect::<Vec<_>>().join(", "));
    if let Some(took) = took {
        print_line!("seconds           {:.1}", took.as_secs_f64());
    }
}
