//! Runs the cases of a test file.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use serde::Serialize;
use steward_core::model::names::TaskId;
use steward_forecast::cost::{
    ForecastSettings,
    scripted::{ScriptedPlan, ScriptedTask},
};

use super::{
    compare::{Difference, differences},
    file::TestCase,
    observed::Observed,
    script::{CaseScript, messages},
    timeline::TimelineLine,
    workflow_tests::{WorkflowTests, definition},
};
use crate::parallel::in_parallel;

/// The id of a task whose case names none.
const TASK_ID: &str = "test";

/// The steps whose services answer with bodies, from which the agent selects the output.
type StepsWithBody = BTreeSet<(String, String)>;

/// The result of a test file.
#[derive(Debug, Clone, Serialize)]
pub struct FileResult {
    /// The path of the test file.
    pub file: String,
    /// The results of its cases, in their order.
    pub cases: Vec<CaseResult>,
}

impl FileResult {
    /// The result of a test file that cannot be read.
    #[must_use]
    pub fn not_read(file: &Path, reason: String) -> Self {
        let case = CaseResult {
            name: "the test file is valid".to_owned(),
            line: 1,
            outcome: CaseOutcome::NotRun { reason },
            task_ms: None,
            timeline: Vec::new(),
            ran_for: Duration::ZERO,
            observed: None,
        };
        Self { file: file.display().to_string(), cases: vec![case] }
    }
}

/// The result of a case.
#[derive(Debug, Clone, Serialize)]
pub struct CaseResult {
    /// The name of the case.
    pub name: String,
    /// Its line in the test file.
    pub line: u64,
    /// What was found.
    pub outcome: CaseOutcome,
    /// How long the task took, in milliseconds of virtual time. Absent if it has not ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task_ms: Option<u64>,
    /// What happened.
    pub timeline: Vec<TimelineLine>,
    /// How long the case took to run.
    #[serde(skip)]
    pub ran_for: Duration,
    #[serde(skip)]
    pub(super) observed: Option<Box<Observed>>,
}

/// The outcome of a case.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "result", rename_all = "snake_case")]
pub enum CaseOutcome {
    /// The run is as expected.
    Passed,
    /// The case says nothing about what to expect.
    NothingExpected,
    /// The run differs from the expectation.
    Failed {
        /// The differences.
        differences: Vec<Difference>,
    },
    /// The case could not be run.
    NotRun {
        /// Why.
        reason: String,
    },
}

impl CaseOutcome {
    /// Whether the case is in order.
    #[must_use]
    pub fn is_passed(&self) -> bool {
        match self {
            Self::Passed => true,
            Self::NothingExpected | Self::Failed { .. } | Self::NotRun { .. } => false,
        }
    }
}

impl FileResult {
    /// The number of cases that did not pass.
    #[must_use]
    pub fn failed(&self) -> usize {
        self.cases.iter().filter(|case| !case.outcome.is_passed()).count()
    }
}

/// Runs all cases of a test file, on all processors. The caller must not be inside a runtime.
#[must_use]
pub fn run_tests(tests: &WorkflowTests) -> FileResult {
    let bodies: Vec<_> = tests.cases().iter().map(|case| steps_with_body(tests, case)).collect();
    let plans: BTreeMap<&StepsWithBody, Result<ScriptedPlan, String>> = bodies
        .iter()
        .collect::<BTreeSet<_>>()
        .into_iter()
        .map(|set| (set, plan(tests, set)))
        .collect();
    let cases = in_parallel(bodies.len(), |n| {
        let plan = bodies.get(n).and_then(|set| plans.get(set));
        let case = tests.cases().get(n);
        case.zip(plan).map(|(case, plan)| {
            let started = Instant::now();
            let mut result = match plan {
                Ok(plan) => run_case(tests, n, case, plan),
                Err(reason) => CaseResult::not_run(tests, n, case, reason.clone()),
            };
            result.ran_for = started.elapsed();
            result
        })
    });
    FileResult {
        file: tests.path().display().to_string(),
        cases: cases.into_iter().flatten().collect(),
    }
}

/// The steps with `output` whose services the case or the file scripts.
fn steps_with_body(tests: &WorkflowTests, case: &TestCase) -> StepsWithBody {
    let labels = tests.labels();
    let scripted = labels.iter().filter(|label| tests.script(case, label).is_some());
    let named = scripted.filter_map(|label| tests.step(label));
    let with_output =
        named.filter(|step| definition(*step).is_some_and(|step| step.output.is_some()));
    with_output.map(|(workflow, step, _)| (workflow.name.to_string(), step.to_string())).collect()
}

fn plan(tests: &WorkflowTests, bodies: &StepsWithBody) -> Result<ScriptedPlan, String> {
    let settings = ForecastSettings {
        with: tests.with.clone(),
        ..ForecastSettings::new(tests.workflow.clone())
    };
    let has_body = |workflow: &steward_core::model::names::WorkflowName,
                    step: &steward_core::model::names::StepName| {
        bodies.contains(&(workflow.to_string(), step.to_string()))
    };
    ScriptedPlan::new(settings, has_body).map_err(|error| error.to_string())
}

fn run_case(tests: &WorkflowTests, n: usize, case: &TestCase, plan: &ScriptedPlan) -> CaseResult {
    let task_id = case.task_id.as_deref().unwrap_or(TASK_ID);
    let Ok(task_id) = task_id.parse::<TaskId>() else {
        return CaseResult::not_run(tests, n, case, "the id of the task is not valid".to_owned());
    };
    let task = ScriptedTask {
        input: case.input.clone().or_else(|| tests.file.content.input.clone()),
        messages: messages(case, &task_id),
        until: case.until.map(|until| until.0),
        seed: 0,
        task_id: Some(task_id),
    };
    let run = match plan.run(&task, Arc::new(CaseScript::new(tests, case))) {
        Ok(run) => run,
        Err(error) => return CaseResult::not_run(tests, n, case, error.to_string()),
    };
    let observed = Observed::of(plan, &run);
    let outcome = match &case.expect {
        None => CaseOutcome::NothingExpected,
        Some(expect) => match differences(expect, &observed) {
            found if found.is_empty() => CaseOutcome::Passed,
            differences => CaseOutcome::Failed { differences },
        },
    };
    CaseResult {
        name: case.name.clone(),
        line: tests.line(n),
        outcome,
        task_ms: observed.took.and_then(|took| u64::try_from(took.as_millis()).ok()),
        timeline: observed.timeline.clone(),
        ran_for: Duration::ZERO,
        observed: Some(Box::new(observed)),
    }
}

impl CaseResult {
    fn not_run(tests: &WorkflowTests, n: usize, case: &TestCase, reason: String) -> Self {
        Self {
            name: case.name.clone(),
            line: tests.line(n),
            outcome: CaseOutcome::NotRun { reason },
            task_ms: None,
            timeline: Vec::new(),
            ran_for: Duration::ZERO,
            observed: None,
        }
    }
}
