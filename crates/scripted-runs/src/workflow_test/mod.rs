//! Tests of a workflow, as data beside it: `order.test.yaml` for `order.yaml`.
//!
//! ```text
//! order.test.yaml ──► file: structure, with line and column ──► check: names of steps, contradictions
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
mod names;
mod observed;
mod partial;
mod read;
mod report;
mod run;
mod script;
mod timeline;
mod update;
mod workflow_tests;

pub use compare::Difference;
pub use file::{TestFile, json_schema};
pub use junit::junit;
pub use read::{TestFileError, read_tests};
pub use report::describe;
pub use run::{CaseOutcome, CaseResult, FileResult, run_tests};
pub(crate) use timeline::text as duration_text;
pub use update::{Update, update};
pub use workflow_tests::WorkflowTests;
