//! Results as JUnit XML, which CI systems read.

use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};

use super::{
    report::describe,
    run::{CaseOutcome, FileResult},
};

/// The XML: a suite for each file, and a test case for each case.
///
/// # Errors
/// The XML cannot be written.
pub fn junit(files: &[FileResult]) -> Result<String, quick_junit::SerializeError> {
    let mut report = Report::new("steward workflow test");
    for file in files {
        let mut suite = TestSuite::new(file.file.clone());
        for case in &file.cases {
            let status = match &case.outcome {
                CaseOutcome::Passed => TestCaseStatus::success(),
                CaseOutcome::Failed { .. } | CaseOutcome::NothingExpected => {
                    let mut status = TestCaseStatus::non_success(NonSuccessKind::Failure);
                    status.set_message("the task did not do what is expected");
                    status.set_description(describe(case));
                    status
                }
                CaseOutcome::NotRun { reason } => {
                    let mut status = TestCaseStatus::non_success(NonSuccessKind::Error);
                    status.set_message(reason.clone());
                    status
                }
            };
            let mut test = TestCase::new(case.name.clone(), status);
            test.set_classname(file.file.clone());
            test.set_time(case.ran_for);
            suite.add_test_case(test);
        }
        report.add_test_suite(suite);
    }
    report.to_string()
}
