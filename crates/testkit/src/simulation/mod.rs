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

use std::{collections::BTreeMap, sync::Arc};

use anyhow::{Context, Result};
use steward_runtime::ports::Ports;

mod blueprint;
mod call_checks;
mod callbacks;
mod child_checks;
mod deployment;
mod due_check;
mod expectations;
mod expiry;
mod fault_injector;
mod final_checks;
mod handlers;
mod http;
mod large_tasks;
mod late_messages;
mod ledger;
mod list_edits;
mod mutation;
mod network;
mod operators;
mod oracle;
mod plan;
mod random;
mod random_workflows;
mod runner;
mod save_checks;
mod service;
mod size_checks;
mod task_record;
mod trace_checks;
mod workflow_model;

#[cfg(test)]
mod backlog;
#[cfg(test)]
mod tests;

/// The result of one seed.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SimulationReport {
    /// The seed.
    pub seed: u64,
    /// The violated invariants; empty if the run was correct.
    pub findings: Vec<String>,
    /// One line for each event; empty unless a trace was requested.
    pub trace: Vec<String>,
    /// Counts of what was simulated.
    pub totals: SimulationTotals,
}

/// Counts of what was simulated, over one seed or many.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SimulationTotals {
    /// The number of seeds.
    pub seeds: u64,
    /// The number of tasks by final state.
    pub tasks: BTreeMap<String, u64>,
    /// The number of injected faults: in the network, the ports, the services, and killed instances.
    pub faults: u64,
    /// The number of messages received from queues.
    pub messages: u64,
    /// The number of effects at remote services.
    pub effects: u64,
    /// The number of steps by kind and final state, as `call item completed`.
    pub steps: BTreeMap<String, u64>,
    /// The virtual milliseconds from submission to end, summed over all tasks.
    pub task_ms: u64,
}

impl SimulationTotals {
    /// Adds the counts of another seed.
    pub fn add(&mut self, other: &Self) {
        self.seeds += other.seeds;
        self.faults += other.faults;
        self.messages += other.messages;
        self.effects += other.effects;
        self.task_ms += other.task_ms;
        for (state, count) in &other.tasks {
            *self.tasks.entry(state.clone()).or_default() += count;
        }
        for (kind, count) in &other.steps {
            *self.steps.entry(kind.clone()).or_default() += count;
        }
    }
}

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
