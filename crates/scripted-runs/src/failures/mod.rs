//! The analysis of every way in which a step of a workflow can fail: how the task ends then, which side effects remain, when
//! an operator hears of it, and what it costs.
//!
//! ```text
//! definition ──► variants: which steps run? ──► one run without a failure each: which calls are there?
//!                                                    │ for each call and each way to fail
//!                                                    ▼
//!                        single failures ──► which calls do they lead to? ──► pairs of failures
//!                               └───────────────────┬─────────────────────────────┘
//!                                                   ▼
//!                 report: outcome, side effects that remain, time until an alert, cost ──► findings
//! ```
//!
//! A service is modelled as one that honours the contract for services: it recognises a repeated call by its idempotency
//! key, a refusal has no effect, and an undo of a step that did not run does nothing. If Steward cannot know whether a call
//! took effect, both possibilities are run.

mod analysis;
mod cases;
mod fault;
mod findings;
mod report;
mod run_task;
mod sample;
mod service;
mod variants;

pub use analysis::{
    AnalysisError, AnalysisProgress, FailureSettings, VARIANTS_MAX, WORK_MAX, analyse,
};
pub use cases::{FailureCase, NamedFault};
pub use fault::Fault;
pub use findings::{Finding, FindingKind};
pub use report::{FailureReport, FailureRow, rows};
