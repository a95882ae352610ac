//! The audit: how each task ended, as the state store has it, against its side effects, as the remote
//! services' own ledgers have them.
//!
//! | a task that ended | is as it should be if |
//! | --- | --- |
//! | Processed | each effect was had exactly once, and none is undone |
//! | Undone | no effect is left |
//! | Processed or Undone | no call was in progress at a service, or began there, after the reported end |
//! | Error | it was alerted, and no effect was had twice |
//!
//! Times are compared only with each other: the services and the scheduler run on one machine, and read
//! one clock. A call that a service answers from memory, refuses or fails is not in progress: it has no effect.

use std::collections::{BTreeMap, BTreeSet};

use steward_core::model::task::{ProcessState, Task};

use crate::{
    scenario::Scenario,
    services::{Call, Ledger},
};

/// What the audit found.
pub struct Audit {
    scenario: &'static dyn Scenario,
    /// Tasks by final state.
    pub by_state: BTreeMap<ProcessState, u64>,
    /// Everything that should not be. Empty: passed.
    pub findings: Vec<String>,
}

impl Audit {
    /// An audit that has looked at nothing yet.
    #[must_use]
    pub fn of(scenario: &'static dyn Scenario) -> Self {
        Self { scenario, by_state: BTreeMap::new(), findings: Vec::new() }
    }

    /// Whether nothing was found.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.findings.is_empty()
    }

    /// Holds one task against the ledgers. `alerted` are the tasks for which an alert was seen.
    pub fn check(
        &mut self,
        number: usize,
        task: Option<&Task>,
        ledger: &Ledger,
        alerted: &BTreeSet<String>,
    ) {
        let id = self.scenario.task_id(number);
        let Some(task) = task else {
            self.findings.push(format!("{id}: submitted, and not recorded"));
            return;
        };
        let ended = task.process_state;
        *self.by_state.entry(ended).or_default() += 1;
        match ended {
            ProcessState::Pending | ProcessState::Processing | ProcessState::Undoing => {
                self.findings.push(format!("{id}: still {ended}"));
                return;
            }
            ProcessState::Error if !alerted.contains(&id) => {
                self.findings.push(format!("{id}: Error, and no alert"));
            }
            ProcessState::Processed | ProcessState::Undone | ProcessState::Error => {}
        }
        self.check_effects(number, ended, ledger);
        self.check_calls(number, task, ledger);
        let objections = self.scenario.objections(number, ended, ledger);
        self.findings.extend(objections.into_iter().map(|what| format!("{id}: {what}")));
    }

    /// Each effect there once, and standing, if it was to be; nothing standing of what is undone; and
    /// nothing ever twice.
    fn check_effects(&mut self, number: usize, ended: ProcessState, ledger: &Ledger) {
        let id = self.scenario.task_id(number);
        for &service in self.scenario.services() {
            let page = self.scenario.page(service, number);
            let (count, standing) =
                (ledger.effects(service, &page), ledger.standing(service, &page));
            let wanted = self.scenario.wanted(service, number);
            let is_right = match ended {
                ProcessState::Processed => (count, standing) == (wanted, wanted),
                ProcessState::Undone => count <= 1 && standing == 0,
                ProcessState::Error
                | ProcessState::Pending
                | ProcessState::Processing
                | ProcessState::Undoing => count <= 1,
            };
            if !is_right {
                self.findings.push(format!(
                    "{id}: {ended}, with {count} effects in {service}, {standing} of them standing"
                ));
            }
        }
    }

    /// No call in progress when the end was reported: what it does later would be nobody's.
    fn check_calls(&mut self, number: usize, task: &Task, ledger: &Ledger) {
        let id = self.scenario.task_id(number);
        let ended = task.process_state;
        let Some(ended_at) = task.ended_at else {
            self.findings.push(format!("{id}: {ended}, and without the time of its end"));
            return;
        };
        match ended {
            ProcessState::Processed | ProcessState::Undone => {}
            // What is left of it is listed in its alert.
            ProcessState::Error
            | ProcessState::Pending
            | ProcessState::Processing
            | ProcessState::Undoing => return,
        }
        for &service in self.scenario.services() {
            let page = ledger.page(service, &self.scenario.page(service, number));
            for call in page.into_iter().flat_map(|page| page.calls_after(ended_at)) {
                let Call { key, began_at, ended_at: call_ended } = call;
                let until = call_ended.map_or_else(|| "now".to_owned(), |at| at.to_string());
                self.findings.push(format!(
                    "{id}: {ended} at {ended_at}, with a call in progress in {service}: {key}, \
                     from {began_at} until {until}"
                ));
            }
        }
    }

    /// Holds the ledgers against the tasks: no service may know one that was never submitted.
    pub fn check_foreign(&mut self, submitted: usize, ledger: &Ledger) {
        for &service in self.scenario.services() {
            let known: BTreeSet<_> =
                (0..submitted).map(|number| self.scenario.page(service, number)).collect();
            for page in ledger.pages(service).filter(|page| !known.contains(*page)) {
                self.findings.push(format!("{page}: known to {service}, never submitted"));
            }
        }
    }
}

#[cfg(test)]
mod tests;
