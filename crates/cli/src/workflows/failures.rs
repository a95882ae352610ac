//! `steward workflow failures`: what a task does for every way in which a step can fail.

use std::{
    io::IsTerminal,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use anyhow::Result;
use clap::Args;
use indicatif::ProgressBar;
use steward_scripted_runs::failures::{
    AnalysisProgress, FailureCase, FailureReport, FailureSettings, FindingKind, VARIANTS_MAX,
    analyse, rows,
};

use crate::{
    assumptions::{AssumptionArgs, progress_bar},
    failure::UnexpectedOutcome,
    table::table,
    workflows::forecast::time,
};

/// How many rows of pairs are printed without `--pairs`.
const PAIR_ROWS: usize = 10;

/// Options of `steward workflow failures`.
#[derive(Debug, Args)]
pub(crate) struct FailureArgs {
    #[command(flatten)]
    assumptions: AssumptionArgs,
    /// Exit with 1 if there is such a finding: leftovers, repeated, no-undo, half-done, short-deadline, never-runs. Repeatable, or
    /// separated by commas. Also exit with 1 if cases or variants were not run.
    #[arg(long, value_name = "FINDING", value_delimiter = ',')]
    fail_on: Vec<FindingKind>,
    /// The largest number of cases: single failures first, then pairs. Of more, a sample is run. By default as many as take half a
    /// minute.
    #[arg(long, value_name = "N")]
    cases: Option<usize>,
    /// Run all cases, however many there are.
    #[arg(long, conflicts_with = "cases")]
    all: bool,
    /// The seed of the sample: the same seed leaves out the same cases.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// The largest number of variants: different sets of steps that run.
    #[arg(long, default_value_t = VARIANTS_MAX)]
    variants: usize,
    /// How often the deployment's supervisor looks for overdue tasks, its `SweepEvery`. An alert may come that much later for each
    /// time that the task waits for it.
    #[arg(long, default_value = "10s", value_parser = humantime::parse_duration)]
    sweep_every: Duration,
    /// Print all pairs of failures. Without it, only those that leave side effects, and at most ten.
    #[arg(long)]
    pairs: bool,
    /// Analyse single failures only.
    #[arg(long, conflicts_with = "pairs")]
    singles: bool,
    /// Print one JSON object, with every case.
    #[arg(long)]
    json: bool,
}

pub(super) async fn run(args: FailureArgs) -> Result<()> {
    let settings = FailureSettings {
        cases_max: if args.all { Some(usize::MAX) } else { args.cases },
        seed: args.seed,
        variants_max: args.variants,
        pairs: !args.singles,
        sweep_every: args.sweep_every,
        ..FailureSettings::new(args.assumptions.settings(1)?)
    };
    let progress = CaseProgress::new(args.seed);
    // Each case creates its own tokio runtime, which is not possible inside this one.
    let analysis = move || {
        let report = analyse(settings, &|step| progress.show(step));
        progress.bar.finish_and_clear();
        report
    };
    let report = tokio::task::spawn_blocking(analysis).await??;
    match args.json {
        true => outln!("{}", serde_json::to_string_pretty(&report)?),
        false => show(&report, args.pairs),
    }
    gate(&report, &args.fail_on)
}

/// Shows on stderr how many cases there are, and how many have run: as a bar to a person, else as lines.
struct CaseProgress {
    bar: ProgressBar,
    seed: u64,
    planned: AtomicUsize,
    ran: AtomicUsize,
}

/// A line for each tenth of the cases, if there are as many as this.
const CASES_WITH_LINES: usize = 100;

impl CaseProgress {
    fn new(seed: u64) -> Self {
        let (planned, ran) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Self { bar: progress_bar(0), seed, planned, ran }
    }

    #[expect(clippy::print_stderr, reason = "a command's output")]
    fn show(&self, step: AnalysisProgress) {
        let is_terminal = std::io::stderr().is_terminal();
        match step {
            AnalysisProgress::Planned { failures, found, run } => {
                let line = planned_line(failures, found, run, self.seed);
                self.bar.suspend(|| eprintln!("{line}"));
                self.bar.reset();
                self.bar.set_length(u64::try_from(run).unwrap_or(u64::MAX));
                self.planned.store(run, Ordering::Relaxed);
                self.ran.store(0, Ordering::Relaxed);
            }
            AnalysisProgress::Ran if is_terminal => self.bar.inc(1),
            AnalysisProgress::Ran => {
                let planned = self.planned.load(Ordering::Relaxed);
                let ran = self.ran.fetch_add(1, Ordering::Relaxed) + 1;
                if let Some(tenths) = tenths(ran, planned) {
                    eprintln!("{ran} of {planned} cases have run ({tenths}0 %)");
                }
            }
        }
    }
}

/// What is run of the cases with this number of failures.
fn planned_line(failures: usize, found: usize, run: usize, seed: u64) -> String {
    let cases = if failures == 1 { "single failures" } else { "possible pairs of failures" };
    match run == found {
        true => format!("{found} {cases}: all are run"),
        false => {
            format!("{found} {cases}: a sample of {run} is run (--seed {seed}); --all runs all")
        }
    }
}

/// How many tenths have run, if this case completes one of many cases.
fn tenths(ran: usize, planned: usize) -> Option<usize> {
    let tenths = |ran: usize| ran * 10 / planned.max(1);
    let is_next = planned >= CASES_WITH_LINES && tenths(ran) > tenths(ran.saturating_sub(1));
    is_next.then(|| tenths(ran))
}

/// Fails if there is a finding of one of these kinds, or if there could be one in a case that was not run.
fn gate(report: &FailureReport, fail_on: &[FindingKind]) -> Result<()> {
    let found = |kind: &FindingKind| report.findings.iter().any(|finding| finding.kind == *kind);
    let failed: Vec<_> = FindingKind::ALL
        .into_iter()
        .filter(|kind| fail_on.contains(kind) && found(kind))
        .map(FindingKind::name)
        .collect();
    if !failed.is_empty() {
        return Err(UnexpectedOutcome(format!("findings of {}", failed.join(", "))).into());
    }
    let FailureReport { cases_cut, variants_cut, .. } = report;
    if !fail_on.is_empty() && (*cases_cut > 0 || *variants_cut > 0) {
        let cut = format!(
            "{cases_cut} cases and {variants_cut} variants were not run: give --all, and raise --variants"
        );
        return Err(UnexpectedOutcome(cut).into());
    }
    Ok(())
}

fn show(report: &FailureReport, all_pairs: bool) {
    let FailureReport { workflow, version, variants, cases_run, singles, pairs, .. } = report;
    outln!(
        "{workflow} version {version}: {cases_run} cases, {} with one failure and {} with two; variants: {variants}",
        singles.len(),
        pairs.len()
    );
    if report.cases_cut > 0 {
        outln!("{}", sample_line(report));
    }
    if report.variants_cut > 0 {
        outln!("not run: {} variants beyond --variants", report.variants_cut);
    }
    if report.pairs_equivalent > 0 {
        outln!(
            "not run: {} pairs whose first failure has the same consequences as another one",
            report.pairs_equivalent
        );
    }
    outln!(
        "without a failure: Processed after {}, ${:.2} per million tasks",
        time(report.healthy_took_ms),
        report.healthy_dollars_per_million
    );
    outln!("{}", table_of(singles));
    show_pairs(pairs, all_pairs);
    for finding in &report.findings {
        outln!("{}: {}: {}", finding.kind, finding.at, finding.message);
    }
    if report.findings.is_empty() {
        outln!("no findings");
    }
}

/// Which cases a sample leaves out.
fn sample_line(report: &FailureReport) -> String {
    let is_pair = |places: &str| places.contains(" + ");
    let left_out = |pairs: bool| -> usize {
        let of_kind = report.not_run.iter().filter(|(places, _)| is_pair(places) == pairs);
        of_kind.map(|(_, cases)| cases).sum()
    };
    format!(
        "not run: {} single failures and {} pairs, left out of the sample with --seed {}; --all runs them, `not_run` of --json has \
         their steps",
        left_out(false),
        left_out(true),
        report.seed
    )
}

fn show_pairs(pairs: &[FailureCase], all: bool) {
    let count =
        |wanted: &dyn Fn(&FailureCase) -> bool| pairs.iter().filter(|case| wanted(case)).count();
    if pairs.is_empty() {
        return;
    }
    outln!(
        "two failures: {} Processed, {} Undone without side effects, {} Undone with side effects, {} Error with an alert, {} without",
        count(&|case| case.state == "Processed"),
        count(&|case| case.state == "Undone" && case.left_behind.is_empty()),
        count(&FailureCase::leaves_effects_unnoticed),
        count(&|case| case.needs_operator() && case.alerted_within_ms.is_some()),
        count(&|case| case.needs_operator() && case.alerted_within_ms.is_none()),
    );
    let shown: Vec<_> =
        pairs.iter().filter(|case| all || !case.left_behind.is_empty()).cloned().collect();
    let all_rows = rows(&shown);
    let limit = if all { all_rows.len() } else { PAIR_ROWS };
    if !all_rows.is_empty() {
        outln!("{}", table_of_rows(all_rows.iter().take(limit)));
    }
    if all_rows.len() > limit {
        outln!("{} more rows: --pairs", all_rows.len() - limit);
    }
}

fn table_of(cases: &[FailureCase]) -> comfy_table::Table {
    table_of_rows(rows(cases).iter())
}

fn table_of_rows<'a>(
    rows: impl Iterator<Item = &'a steward_scripted_runs::failures::FailureRow>,
) -> comfy_table::Table {
    let mut table = table(&[
        "step",
        "failure",
        "task ends",
        "side effects left",
        "alert within",
        "task takes",
        "$ per million",
    ]);
    for row in rows {
        table.add_row([
            &row.fails,
            &row.how,
            &row.ends,
            &row.left_behind,
            &row.alerted_within,
            &row.took,
            &row.dollars,
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_cases_is_said_before_they_are_run_and_each_tenth_after() {
        assert_eq!(planned_line(1, 21, 21, 0), "21 single failures: all are run");
        assert_eq!(
            planned_line(2, 700, 150, 7),
            "700 possible pairs of failures: a sample of 150 is run (--seed 7); --all runs all"
        );
        let said: Vec<_> = (1..=150).filter_map(|ran| tenths(ran, 150)).collect();
        assert_eq!(said, (1..=10).collect::<Vec<_>>());
        assert!((1..=21).all(|ran| tenths(ran, 21).is_none()), "few cases need no lines");
    }
}
