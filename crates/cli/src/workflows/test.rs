//! `steward workflow test`: runs the tests beside a workflow.

use std::{path::PathBuf, time::Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::json;
use steward_scripted_runs::workflow_test::{
    CaseOutcome, FileResult, WorkflowTests, describe, json_schema, junit, read_tests, run_tests,
    update,
};

/// Options of `steward workflow test`.
#[derive(Debug, Args)]
pub(crate) struct TestArgs {
    /// Test files, such as `order.test.yaml`.
    #[arg(required_unless_present = "schema")]
    files: Vec<PathBuf>,
    /// Write the results as JUnit XML to this file.
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Write what was seen into the test files: a missing `expect`, and the keys of `expect` that differ.
    #[arg(long)]
    update: bool,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    /// Print the JSON Schema of test files, for use in editors.
    #[arg(long, conflicts_with_all = ["junit", "update", "json"])]
    schema: bool,
}

pub(super) async fn run(args: TestArgs) -> Result<()> {
    if args.schema {
        outln!("{}", serde_json::to_string_pretty(&json_schema())?);
        return Ok(());
    }
    // Each case creates its own tokio runtime, which is not possible inside this one.
    tokio::task::spawn_blocking(move || run_files(&args)).await?
}

fn run_files(args: &TestArgs) -> Result<()> {
    let started = Instant::now();
    // All files are read first, so that a mistake in the last one is found at once.
    let read: Vec<_> = args.files.iter().map(|file| (file, read_tests(file))).collect();
    let not_read = read.iter().filter_map(|(file, tests)| {
        let error = tests.as_ref().err()?;
        Some(FileResult::not_read(file, error.to_string()))
    });
    let not_read: Vec<_> = not_read.collect();
    if !not_read.is_empty() {
        write_junit(args, &not_read)?;
    }
    let tests = read.into_iter().map(|(_, tests)| tests).collect::<Result<Vec<_>, _>>()?;
    let results: Vec<_> = tests.iter().map(run_tests).collect();
    let seconds = started.elapsed().as_secs_f64();
    write_junit(args, &results)?;
    if args.json {
        let failed: usize = results.iter().map(FileResult::failed).sum();
        let report = json!({ "failed": failed, "files": results });
        outln!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        results.iter().for_each(print_file);
    }
    let failed = match args.update {
        true => tests.iter().zip(&results).try_fold(0, |failed, (tests, result)| {
            Ok::<_, anyhow::Error>(failed + write_update(tests, result)?)
        })?,
        false => results.iter().map(FileResult::failed).sum(),
    };
    let cases: usize = results.iter().map(|file| file.cases.len()).sum();
    if failed > 0 {
        bail!("{failed} of {cases} cases failed");
    }
    let words = if cases == 1 { "case" } else { "cases" };
    match (args.json, args.update) {
        (true, _) => {}
        (false, true) => outln!("{cases} {words} as expected now"),
        (false, false) => outln!("{cases} {words} passed in {seconds:.2} s"),
    }
    Ok(())
}

fn write_junit(args: &TestArgs, results: &[FileResult]) -> Result<()> {
    let Some(path) = &args.junit else { return Ok(()) };
    std::fs::write(path, junit(results)?).with_context(|| path.display().to_string())
}

fn print_file(file: &FileResult) {
    for case in &file.cases {
        let word = match case.outcome {
            CaseOutcome::Passed => "ok  ",
            CaseOutcome::NothingExpected | CaseOutcome::Failed { .. } => "FAIL",
            CaseOutcome::NotRun { .. } => "ERROR",
        };
        outln!("{word} {}:{}: {}", file.file, case.line, case.name);
        if !case.outcome.is_passed() {
            outln!("{}", describe(case).trim_end());
        }
    }
}

/// Writes what was seen. Returns the number of cases that could not be written.
fn write_update(tests: &WorkflowTests, result: &FileResult) -> Result<usize> {
    let update = update(tests, result);
    let path = tests.path();
    if !update.changed.is_empty() {
        std::fs::write(path, &update.text).with_context(|| path.display().to_string())?;
    }
    for name in &update.changed {
        outln!("updated {}: {name}", path.display());
    }
    for name in &update.skipped {
        outln!("not updated {}: {name}: write it by hand", path.display());
    }
    Ok(update.skipped.len())
}
