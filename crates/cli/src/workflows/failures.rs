//! `steward workflow failures`: what a task does for every way in which a step can fail.

use std::time::Duration;

use anyhow::Result;
use clap::Args;
use steward_scripted_runs::failures::{
    CASES_MAX, FailureCase, FailureReport, FailureSettings, FindingKind, VARIANTS_MAX, analyse,
    rows,
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
    /// Exit with 1 if there is such a finding: leftovers, no-undo, half-done, short-deadline, never-runs. Repeatable, or
    /// separated by commas. Also exit with 1 if cases or variants were not run.
    #[arg(long, value_name = "FINDING", value_delimiter = ',')]
    fail_on: Vec<FindingKind>,
    /// The largest number of cases: single failures first, then pairs.
    #[arg(long, default_value_t = CASES_MAX)]
    cases: usize,
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
    let FailureArgs { assumptions, fail_on, cases, variants, sweep_every, pairs, singles, json } =
        args;
    let settings = FailureSettings {
        cases_max: cases,
        variants_max: variants,
        pairs: !singles,
        sweep_every,
        ..FailureSettings::new(assumptions.settings(1)?)
    };
    let progress = progress_bar(0);
    let counted = progress.clone();
    // Each case creates its own tokio runtime, which is not possible inside this one.
    let report =
        tokio::task::spawn_blocking(move || analyse(settings, &|| counted.inc(1))).await??;
    progress.finish_and_clear();
    match json {
        true => outln!("{}", serde_json::to_string_pretty(&report)?),
        false => show(&report, pairs),
    }
    gate(&report, &fail_on)
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
            "{cases_cut} cases and {variants_cut} variants were not run: raise --cases and --variants"
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
    if report.cases_cut > 0 || report.variants_cut > 0 {
        outln!(
            "not run: {} cases beyond --cases, {} variants beyond --variants",
            report.cases_cut,
            report.variants_cut
        );
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
