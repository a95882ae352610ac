//! The analysis of failures of the most expensive workflow: a hundred steps, each after all before it. What it plans by default ends
//! within half a minute, which is what the budget of work stands for.

#![cfg(test)]

use std::{
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    path::Path,
};

use steward_definition_file::parse;
use steward_forecast::cost::ForecastSettings;
use steward_scripted_runs::failures::{AnalysisProgress, FailureSettings, WORK_MAX, analyse};

/// The default settings, for single failures.
fn settings() -> FailureSettings {
    let step = |n: usize| {
        let after: Vec<_> = (0..n).map(|before| format!("s{before}")).collect();
        let after = after.join(", ");
        let undo = "undo: { request: { path: /undo } }";
        format!("  s{n}: {{ agent: a, after: [{after}], request: {{ path: /do }}, {undo} }}\n")
    };
    let steps: String = (0..100).map(step).collect();
    let text =
        format!("name: large\nversion: 1\ncomplete_within: 1h\noverdue: undo\nsteps:\n{steps}");
    let workflow = parse(Path::new("large.yaml"), &text).unwrap();
    FailureSettings { pairs: false, ..FailureSettings::new(ForecastSettings::new(workflow)) }
}

/// The number of cases that the analysis would run. It ends before it runs the first one.
fn planned(settings: FailureSettings) -> (usize, usize) {
    let result = catch_unwind(AssertUnwindSafe(|| {
        analyse(settings, &|progress| {
            let AnalysisProgress::Planned { found, run, .. } = progress else { return };
            resume_unwind(Box::new((found, run)));
        })
    }));
    *result.unwrap_err().downcast().unwrap()
}

#[test]
fn the_planned_cases_of_a_connected_workflow_stay_within_the_budget_of_work() {
    let (found, run) = planned(settings());
    assert!((1..found).contains(&run), "{run} of {found} cases");
    // One case, for its price.
    let one = analyse(FailureSettings { cases_max: Some(1), ..settings() }, &|_| ()).unwrap();
    assert_eq!(one.cases_run, 1);
    let work = run as f64 * one.healthy_dollars_per_million;
    assert!(work <= WORK_MAX, "{run} cases of ${}", one.healthy_dollars_per_million);
    // A case repeats some calls, and has undos.
    let of_case = one.singles.first().unwrap().dollars_per_million;
    assert!(of_case <= 2.0 * one.healthy_dollars_per_million, "${of_case}");
    assert!(
        work > WORK_MAX * 0.9,
        "{run} cases of ${}: fewer than possible",
        one.healthy_dollars_per_million
    );
}
