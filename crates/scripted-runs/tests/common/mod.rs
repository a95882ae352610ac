//! Writes a workflow and its tests into a temporary folder.

use std::{fs, path::PathBuf};

use steward_scripted_runs::workflow_test::{
    CaseOutcome, FileResult, TestFileError, WorkflowTests, read_tests, run_tests,
};
use tempfile::TempDir;

/// A line of two steps with undos, and a third without.
pub(crate) const ORDER: &str = "\
name: order
version: 1
complete_within: 1h
overdue: undo
defaults:
  complete_within: 10s
  recovery: { attempts: 2, then: undo }
steps:
  reserve:
    agent: inventory
    request: { path: /reservations, body: { order: '${ task.id }', items: '${ input.items }' } }
    undo: { request: { path: /releases } }
  charge:
    agent: payment
    after: [reserve]
    request: { path: /charges, body: { amount: '${ input.amount }' } }
    undo: { request: { path: /refunds } }
  mail:
    agent: mail
    after: [charge]
    request: { path: /mails }
output: { reservation: '${ steps.reserve.output.id }' }
";

/// A folder with `order.yaml` and `order.test.yaml`.
pub(crate) struct Folder {
    dir: TempDir,
}

impl Folder {
    pub(crate) fn new(workflow: &str, tests: &str) -> Self {
        let folder = Self { dir: TempDir::new().unwrap() };
        fs::write(folder.dir.path().join("order.yaml"), workflow).unwrap();
        folder.write(tests);
        folder
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path().join("order.test.yaml")
    }

    pub(crate) fn write(&self, tests: &str) {
        fs::write(self.path(), tests).unwrap();
    }

    pub(crate) fn add(&self, name: &str, text: &str) {
        fs::write(self.dir.path().join(name), text).unwrap();
    }

    pub(crate) fn tests(&self) -> WorkflowTests {
        read_tests(&self.path()).unwrap_or_else(|error| panic!("{error}"))
    }

    pub(crate) fn run(&self) -> FileResult {
        run_tests(&self.tests())
    }

    /// The problems of the test file, without its path.
    pub(crate) fn problems(&self) -> String {
        match read_tests(&self.path()) {
            Ok(_) => String::new(),
            Err(TestFileError::Invalid(error)) => {
                error.to_string().replace(&format!("{}:", self.path().display()), "")
            }
            Err(error) => error.to_string(),
        }
    }
}

/// The differences of the first case, as lines.
pub(crate) fn differences(result: &FileResult) -> Vec<String> {
    match &result.cases[0].outcome {
        CaseOutcome::Failed { differences } => differences
            .iter()
            .flat_map(|difference| {
                difference.lines.iter().map(move |line| format!("{}: {line}", difference.key))
            })
            .collect(),
        CaseOutcome::Passed => Vec::new(),
        other @ (CaseOutcome::NothingExpected | CaseOutcome::NotRun { .. }) => {
            vec![format!("{other:?}")]
        }
    }
}
