//! The audit: compares how each task ended, according to the state store, with its side effects, according to the
//! services' ledgers.
//!
//! | final state | requirement |
//! | --- | --- |
//! | Processed | each expected side effect happened exactly once, and none was undone |
//! | Undone | no side effect is active, except in services whose effects the workflow does not undo |
//! | Processed or Undone | no call was in progress, or began, after the end of the task |
//! | Error | an alert was published, and no side effect happened twice |
//!
//! A service that reads a queue may do so after the end of a task, so the audit comes after all queues have been read.
//!
//! The audit compares times of the services with times of the scheduler. Both run on one machine with one clock. Calls
//! that a service refuses, fails or answers from memory have no side effect, and do not count as in progress.

use std::collections::{BTreeMap, BTreeSet};

use steward_core::model::task::{ProcessState, Task};

use crate::{
    scenario::Scenario,
    services::{CallRecord, ServiceLedgers},
};

/// The audit of a run.
pub struct Audit {
    scenario: &'static dyn Scenario,
    /// The number of tasks by state.
    pub by_state: BTreeMap<ProcessState, u64>,
    /// All violated requirements. The audit has passed if this is empty.
    pub findings: Vec<String>,
}

impl Audit {
    /// An audit without checks.
    #[must_use]
    pub fn of(scenario: &'static dyn Scenario) -> Self {
        Self { scenario, by_state: BTreeMap::new(), findings: Vec::new() }
    }

    /// Whether no requirement is violated.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.findings.is_empty()
    }

    /// Checks one task. `task` is `None` if the state store does not have it; `alerted` are the tasks with an alert.
    pub fn check(
        &mut self,
        number: usize,
        task: Option<&Task>,
        ledgers: &ServiceLedgers,
        alerted: &BTreeSet<String>,
    ) {
        let id = self.scenario.task_id(number);
        let Some(task) = task else {
            self.findings.push(format!("{id}: submitted, but not recorded"));
            return;
        };
        let end = task.process_state;
        *self.by_state.entry(end).or_default() += 1;
        match end {
            ProcessState::Pending | ProcessState::Processing | ProcessState::Undoing => {
                self.findings.push(format!("{id}: still {end}"));
                return;
            }
            ProcessState::Error if !alerted.contains(&id) => {
                self.findings.push(format!("{id}: Error without an alert"));
            }
            ProcessState::Processed | ProcessState::Undone | ProcessState::Error => {}
        }
        self.check_effects(number, end, ledgers);
        self.check_calls(number, task, ledgers);
        let findings = self.scenario.findings(number, end, ledgers);
        self.findings.extend(findings.into_iter().map(|finding| format!("{id}: {finding}")));
    }

    /// Checks the number of side effects, and how many of them are active.
    fn check_effects(&mut self, number: usize, end: ProcessState, ledgers: &ServiceLedgers) {
        let id = self.scenario.task_id(number);
        for &service in self.scenario.services() {
            let subject = self.scenario.subject(service, number);
            let (count, active) =
                (ledgers.effects(service, &subject), ledgers.active_effects(service, &subject));
            let expected = self.scenario.expected_effects(service, number);
            let is_correct = match end {
                ProcessState::Processed => (count, active) == (expected, expected),
                ProcessState::Undone => {
                    count <= 1 && (active == 0 || !self.scenario.is_undone(service))
                }
                ProcessState::Error
                | ProcessState::Pending
                | ProcessState::Processing
                | ProcessState::Undoing => count <= 1,
            };
            if !is_correct {
                self.findings.push(format!(
                    "{id}: {end} with {count} side effects in {service}, {active} of them active"
                ));
            }
        }
    }

    /// Checks that no call was in progress when the task ended: nothing would undo its side effect.
    fn check_calls(&mut self, number: usize, task: &Task, ledgers: &ServiceLedgers) {
        let id = self.scenario.task_id(number);
        let end = task.process_state;
        let Some(ended_at) = task.ended_at else {
            self.findings.push(format!("{id}: {end} without an end time"));
            return;
        };
        match end {
            ProcessState::Processed | ProcessState::Undone => {}
            // The alert lists the steps that are not undone.
            ProcessState::Error
            | ProcessState::Pending
            | ProcessState::Processing
            | ProcessState::Undoing => return,
        }
        let called = self.scenario.services().iter().filter(|service| service.queue().is_none());
        for &service in called {
            let record = ledgers.record(service, &self.scenario.subject(service, number));
            for call in record.into_iter().flat_map(|record| record.calls_after(ended_at)) {
                let CallRecord { key, began_at, ended_at: call_ended } = call;
                let until = call_ended.map_or_else(|| "now".to_owned(), |at| at.to_string());
                self.findings.push(format!(
                    "{id}: {end} at {ended_at} with a call in progress in {service}: {key}, \
                     from {began_at} until {until}"
                ));
            }
        }
    }

    /// Checks that the ledgers have no subjects other than those of the submitted tasks.
    pub fn check_unknown_subjects(&mut self, submitted: usize, ledgers: &ServiceLedgers) {
        for &service in self.scenario.services() {
            let expected: BTreeSet<_> =
                (0..submitted).map(|number| self.scenario.subject(service, number)).collect();
            for subject in ledgers.subjects(service).filter(|name| !expected.contains(*name)) {
                self.findings
                    .push(format!("{subject}: {service} was called, but no task was submitted"));
            }
        }
    }
}

#[cfg(test)]
mod tests;
