//! The result of a simulation.

use std::collections::BTreeMap;

use steward_core::model::attempt::Action;

use super::oracle::Oracle;

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
    /// The attempts that were deferred because of a rate limit.
    pub rate_deferrals: u64,
    /// How often a step with several agents moved on to its next agent.
    pub agent_moves: u64,
    /// The tasks whose documents refer to payloads.
    pub payload_tasks: u64,
    /// The payloads that services received in place of a body.
    pub payloads_sent: u64,
    /// How often an agent stored a large response.
    pub payloads_stored: u64,
    /// The clients' submissions that were refused because of a forged reference, or of an upload that had expired.
    pub forgeries_refused: u64,
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
        self.rate_deferrals += other.rate_deferrals;
        self.agent_moves += other.agent_moves;
        self.payload_tasks += other.payload_tasks;
        self.payloads_sent += other.payloads_sent;
        self.payloads_stored += other.payloads_stored;
        self.forgeries_refused += other.forgeries_refused;
        self.task_ms += other.task_ms;
        for (state, count) in &other.tasks {
            *self.tasks.entry(state.clone()).or_default() += count;
        }
        for (kind, count) in &other.steps {
            *self.steps.entry(kind.clone()).or_default() += count;
        }
    }
}

/// The number of steps of all tasks by kind and state.
pub(super) fn count_steps(oracle: &Oracle) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for task in oracle.tasks.values() {
        let Some(model) = oracle.model(&task.task_id) else { continue };
        for (part, action, progress) in task.started_actions() {
            let kind = model.step(&part.step).map_or("unknown", |step| step.work.name());
            let item = if part.item.is_some() { " item" } else { "" };
            let undo = if action == Action::Undo { " undo" } else { "" };
            let state = progress.state.name();
            *counts.entry(format!("{kind}{item}{undo} {state}")).or_default() += 1;
        }
    }
    counts
}
