//! The simulated world: all roles, several instances each, run by the real handlers on the in-memory
//! ports, on a virtual clock, through a storm that comes from a seed. The same seed gives the same
//! storm, event for event.
//!
//! ```text
//! plan (drawn from the seed)                        oracle (reads definitions, ledger, what is
//!   │ clients, operators                              ▲     stored, sent and published)
//!   ▼                                                 │ every save, send, call and effect
//! network ──► instances: submission, scheduler ×3, agents ×2 each, supervisor ×2
//!   ▲ late,      │ every port call passes one seam: slow, fails before or after,
//!   └ twice ─────┘ or is the last thing that the instance does
//!                ▼
//!             remote services: slow, flaky, down, refusing, lying; their ledger
//! ```
//!
//! The storm ends; then the world must come to rest: every task ended, every client told, every
//! effect done once or undone, every Error alerted. An operator may then attend to what is in Error,
//! and it must come to rest again.

use std::{collections::BTreeMap, sync::Arc};

use anyhow::{Context, Result};
use steward_runtime::ports::Ports;

mod bend;
mod blueprint;
mod callbacks;
mod calls;
mod dice;
mod edits;
mod expiry;
mod family;
mod graph;
mod http;
mod large;
mod late;
mod ledger;
mod network;
mod operator;
mod oracle;
mod plan;
mod ports;
mod roles;
mod run;
mod sense;
mod service;
mod sizes;
mod trace;
mod verdict;
mod watch;
mod workflows;
mod world;

#[cfg(test)]
mod backlog;
#[cfg(test)]
mod tests;

/// What came of one seed.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SimulationReport {
    /// The seed.
    pub seed: u64,
    /// What was wrong; empty if nothing was.
    pub findings: Vec<String>,
    /// What happened, one line an event; empty unless asked for.
    pub trace: Vec<String>,
    /// What was simulated.
    pub totals: SimulationTotals,
}

/// What was simulated, over one seed or many.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SimulationTotals {
    /// Worlds.
    pub seeds: u64,
    /// Tasks, by the state in which they ended.
    pub tasks: BTreeMap<String, u64>,
    /// Faults injected: by the network, the ports, the services, and deaths of instances.
    pub faults: u64,
    /// Messages received from queues.
    pub messages: u64,
    /// Effects at remote services.
    pub effects: u64,
    /// What steps came to: how many, by their kind and by what became of them.
    pub steps: BTreeMap<String, u64>,
    /// From submission to end, summed over the tasks, in virtual milliseconds.
    pub task_ms: u64,
}

impl SimulationTotals {
    /// Adds those of another seed.
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

/// Runs one seed, on this thread, in a runtime of its own: it must not be called from within one.
///
/// # Errors
/// The runtime or the seed's definitions could not be made; never what the seed found.
pub fn simulate(seed: u64, traced: bool) -> Result<SimulationReport> {
    simulate_plan(seed, plan::Plan::of(seed)?, traced)
}

fn simulate_plan(seed: u64, plan: plan::Plan, traced: bool) -> Result<SimulationReport> {
    // The agents' pauses draw from this thread's own generator.
    fastrand::seed(seed);
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build().context("no runtime")?;
    runtime.block_on(async {
        let world = Arc::new(world::World::new(seed, plan, traced));
        for workflow in &world.plan.workflows {
            world.memory.definitions().publish(workflow).context("a random workflow")?;
        }
        Ok(run::Run::new(world).through(seed).await)
    })
}
