//! The audit: compares how each task ended, according to the state store, with its side effects, according to the
//! services' ledgers.
//!
//! [`TaskEnding`] says what must hold.
//!
//! A service that reads a queue may do so after the end of a task, so the audit comes after all queues have been read.
//!
//! The audit compares times of the services with times of the scheduler. Both run on one machine with one clock. Calls
//! that a service refuses, fails or answers from memory have no side effect, and do not count as in progress.

use std::collections::{BTreeMap, BTreeSet};

use steward_core::{
    engine::invariants::ending::{PartEnding, TaskEnding},
    model::task::{ProcessState, Task},
};

use crate::{
    scenario::Scenario,
    services::{CallRecord, DemoService, ServiceLedgers},
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
        let services = self.scenario.services().iter();
        let ending = TaskEnding {
            state: end,
            is_alerted: alerted.contains(&id),
            parts: services.map(|service| self.part(*service, number, task, ledgers)).collect(),
        };
        let mut findings = ending.violations();
        if end.has_stopped() {
            findings.extend(self.scenario.findings(number, end, ledgers));
        }
        if end.has_stopped() && end != ProcessState::Error && task.ended_at.is_none() {
            findings.push(format!("{end} without an end time"));
        }
        self.findings.extend(findings.into_iter().map(|finding| format!("{id}: {finding}")));
    }

    /// The side effects of a task at a service, and the calls that were in progress when the task ended: nothing would undo
    /// their side effects.
    fn part(
        &self,
        service: DemoService,
        number: usize,
        task: &Task,
        ledgers: &ServiceLedgers,
    ) -> PartEnding {
        let subject = self.scenario.subject(service, number);
        let record = ledgers.record(service, &subject).filter(|_| service.queue().is_none());
        let calls = record.zip(task.ended_at).into_iter();
        let calls = calls.flat_map(|(record, ended_at)| record.calls_after(ended_at));
        let in_progress = calls.map(|CallRecord { key, began_at, ended_at }| {
            let until = ended_at.map_or_else(|| "now".to_owned(), |at| at.to_string());
            format!("{key}, from {began_at} until {until}")
        });
        PartEnding {
            name: service.to_string(),
            effects: ledgers.effects(service, &subject),
            active: ledgers.active_effects(service, &subject),
            expected: Some(self.scenario.expected_effects(service, number)),
            may_remain: !self.scenario.is_undone(service),
            in_progress: in_progress.collect(),
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
