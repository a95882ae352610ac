//! The demo's audit: what the state store says of each order against what the remote services' own
//! ledgers say.

use std::collections::{BTreeMap, BTreeSet};

use steward_core::task::{ProcessState, Task};
use steward_local::services::{Ledger, Service};

/// What the audit found.
#[derive(Debug, Default)]
pub(crate) struct Audit {
    /// Orders by final state.
    pub(crate) by_state: BTreeMap<ProcessState, u64>,
    /// Everything that should not be. Empty: passed.
    pub(crate) findings: Vec<String>,
}

impl Audit {
    /// Whether nothing was found.
    pub(crate) fn passed(&self) -> bool {
        self.findings.is_empty()
    }

    /// Holds one order against the ledgers. `alerted` are the tasks for which an alert was seen.
    pub(crate) fn check(
        &mut self,
        order: &str,
        task: Option<&Task>,
        ledger: &Ledger,
        alerted: &BTreeSet<String>,
    ) {
        let Some(task) = task else {
            self.findings.push(format!("{order}: submitted, and not recorded"));
            return;
        };
        *self.by_state.entry(task.process_state).or_default() += 1;
        let effects = |service| ledger.effects(service, order);
        match task.process_state {
            ProcessState::Pending | ProcessState::Processing => {
                self.findings.push(format!("{order}: still {}", task.process_state));
            }
            ProcessState::Processed => {
                for service in Service::ALL {
                    let count = effects(service);
                    if count != 1 {
                        self.findings
                            .push(format!("{order}: Processed, with {count} effects in {service}"));
                    }
                }
            }
            ProcessState::Error => {
                for service in Service::ALL {
                    let count = effects(service);
                    if count > 1 {
                        self.findings
                            .push(format!("{order}: Error, with {count} effects in {service}"));
                    }
                }
                if !alerted.contains(order) {
                    self.findings.push(format!("{order}: Error, and no alert"));
                }
            }
        }
    }

    /// Holds the ledgers against the orders: no service may know one that was never submitted.
    pub(crate) fn check_foreign(&mut self, submitted: &BTreeSet<String>, ledger: &Ledger) {
        for service in Service::ALL {
            for order in ledger.orders(service).filter(|order| !submitted.contains(*order)) {
                self.findings.push(format!("{order}: known to {service}, never submitted"));
            }
        }
    }
}
