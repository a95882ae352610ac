//! Randomised simulation of all roles. Several instances of each role run the real handlers on the in-memory ports
//! and a virtual clock, while faults are injected. A seed determines everything: the same seed gives the same run,
//! event for event.
//!
//! ```text
//! plan (drawn from the seed)                        oracle (reads definitions, ledger, and everything
//!   │ clients, operators                              ▲     stored, sent and published)
//!   ▼                                                 │ every save, send, call and effect
//! network ──► instances: submission, scheduler ×3, agents ×2 each, supervisor ×2
//!   ▲ late,      │ every port call passes the fault injector: it may be slow, fail before or after
//!   └ twice ─────┘ it took effect, or kill its instance
//!                ▼
//!             remote services: slow, flaky, down, refusing, reporting false errors; their ledger
//! ```
//!
//! Faults stop at a time that the plan sets. Then the run must become quiet: every task has ended, every client was
//! notified, every effect happened once or was undone, and every task in Error has an alert. Operators may then
//! resolve the tasks in Error, and the run must become quiet again.

use std::sync::Arc;

use anyhow::{Context, Result};
use steward_runtime::ports::Ports;

mod agent_checks;
mod agents_plan;
mod awaited_event_checks;
mod awaited_events;
mod blueprint;
mod call_checks;
mod callbacks;
mod child_checks;
mod clients;
mod deployment;
mod event_wait;
mod event_wait_plan;
mod expectations;
mod expiry;
mod fault_injector;
mod final_checks;
mod handlers;
mod large_tasks;
mod late_message_plan;
mod late_messages;
mod lifecycle_checks;
mod list_edit_plan;
mod list_edits;
mod mutation;
mod network;
mod observations;
mod operators;
mod oracle;
mod outputs;
mod panics;
mod passed_over_plan;
mod payload_bucket;
mod payload_checks;
mod payload_forgery;
mod payload_plan;
mod payload_records;
mod payload_sweeps;
mod payload_values;
mod plan;
mod provider_rules;
mod published_events;
mod random;
mod random_plan;
mod random_workflows;
mod rate_limits;
mod report;
mod rounds_plan;
mod runner;
mod save_checks;
mod service;
mod task_checks;
mod task_record;
mod trace_checks;
mod virtual_time;
mod wide_lists;
mod workflow_model;

#[cfg(test)]
mod backlog;
#[cfg(test)]
mod forgotten_keys;
#[cfg(test)]
mod limited_rate;
#[cfg(test)]
mod tests;

pub use report::{SimulationReport, SimulationTotals};

/// Runs one seed on this thread, in a new runtime: the caller must not be inside a runtime. `traced` requests the trace.
///
/// # Errors
/// The runtime or the definitions of the seed could not be created. Findings are in the report, not an error.
pub fn simulate(seed: u64, traced: bool) -> Result<SimulationReport> {
    simulate_plan(seed, plan::SimulationPlan::of(seed)?, traced)
}

fn simulate_plan(seed: u64, plan: plan::SimulationPlan, traced: bool) -> Result<SimulationReport> {
    // The pauses of the agents use the random generator of this thread.
    fastrand::seed(seed);
    panics::record();
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build().context("no runtime")?;
    runtime.block_on(async {
        let deployment = Arc::new(deployment::SimulatedDeployment::new(seed, plan, traced));
        for workflow in &deployment.plan.workflows {
            deployment.memory.definitions().publish(workflow).context("a random workflow")?;
        }
        Ok(runner::Runner::new(deployment).run(seed).await)
    })
}
