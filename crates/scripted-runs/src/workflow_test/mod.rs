//! Tests of a workflow, as data beside it: `order.test.yaml` for `order.yaml`.
//!
//! ```text
//! order.test.yaml ──► file: structure, with line and column ──► tests: names of steps, contradictions
//!                                                                │ for each case
//!                                                                ▼
//!                     script: what a service answers ──► driver of the forecast ──► observed
//!                                                                                    │
//!                     expectation ──────────────────────────────────────────► compare: differences
//!                                                        report: text, JUnit; update: the file's `expect`
//! ```

mod calls;
mod check;
mod compare;
mod file;
mod junit;
mod observed;
mod partial;
mod report;
mod run;
mod script;
mod tests;
mod timeline;
mod update;

pub use compare::Difference;
pub use file::{TestFile, json_schema};
pub use junit::junit;
pub use report::describe;
pub use run::{CaseOutcome, CaseResult, FileResult, run_tests};
pub use tests::{TestFileError, WorkflowTests, read_tests};
pub(crate) use timeline::text as duration_text;
pub use update::{Update, update};
