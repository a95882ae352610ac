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
            ProcessState::Pending | ProcessState::Processing | ProcessState::Undoing => {
                self.findings.push(format!("{order}: still {}", task.process_state));
            }
            ProcessState::Processed => {
                for service in Service::ALL {
                    let (count, standing) = (effects(service), ledger.standing(service, order));
                    if (count, standing) != (1, 1) {
                        self.findings.push(format!(
                            "{order}: Processed, with {count} effects in {service}, {standing} of them standing"
                        ));
                    }
                }
            }
            ProcessState::Undone => {
                for service in Service::ALL {
                    let (count, standing) = (effects(service), ledger.standing(service, order));
                    if count > 1 || standing > 0 {
                        self.findings.push(format!(
                            "{order}: Undone, with {count} effects in {service}, {standing} of them standing"
                        ));
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

#[cfg(test)]
mod tests {
    use super::*;
    use steward_core::{ports::Timing, submission};
    use steward_local::services::{FaultPlan, MockServices};

    fn task(state: ProcessState) -> Task {
        let text = r#"{ "task_id": "o-1", "workflow": "order" }"#;
        let workflow = include_str!("../../../workflows/order.yaml");
        let workflow = steward_local::definitions::parse("order.yaml".as_ref(), workflow).unwrap();
        let timing = Timing {
            pickup_within: std::time::Duration::ZERO,
            clock_skew: std::time::Duration::ZERO,
        };
        let now = jiff::Timestamp::UNIX_EPOCH;
        let submission = submission::parse(text).unwrap();
        let (task, _) = submission::accept(&submission, &workflow, None, now, timing);
        Task { process_state: state, ..task }
    }

    fn findings(task: Option<&Task>, ledger: &Ledger) -> Vec<String> {
        let mut audit = Audit::default();
        audit.check("o-1", task, ledger, &BTreeSet::new());
        assert_eq!(audit.passed(), audit.findings.is_empty());
        audit.findings
    }

    #[test]
    fn whatever_should_not_be_is_found() {
        let nothing = Ledger::default();
        assert_eq!(findings(None, &nothing), ["o-1: submitted, and not recorded"]);
        assert_eq!(findings(Some(&task(ProcessState::Pending)), &nothing), ["o-1: still Pending"]);
        assert_eq!(
            findings(Some(&task(ProcessState::Error)), &nothing),
            ["o-1: Error, and no alert"]
        );
        assert_eq!(
            findings(Some(&task(ProcessState::Processed)), &nothing),
            Service::ALL.map(|service| format!(
                "o-1: Processed, with 0 effects in {service}, 0 of them standing"
            ))
        );
    }

    #[tokio::test]
    async fn a_second_charge_is_found() {
        let services = MockServices::start(FaultPlan::none(1)).await.unwrap();
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        for key in ["o-1/charge/do", "o-1/charge/again"] {
            let url = format!("{}/charges", services.base_url(Service::Payment));
            let call = client.post(url).header("idempotency-key", key).body(r#"{"order":"o-1"}"#);
            assert!(
                call.header("content-type", "application/json")
                    .send()
                    .await
                    .unwrap()
                    .status()
                    .is_success()
            );
        }
        let found = findings(Some(&task(ProcessState::Processed)), &services.ledger());
        assert!(
            found.contains(
                &"o-1: Processed, with 2 effects in payment, 2 of them standing".to_owned()
            ),
            "{found:?}"
        );
        let found = findings(Some(&task(ProcessState::Undone)), &services.ledger());
        assert_eq!(found, ["o-1: Undone, with 2 effects in payment, 2 of them standing"]);
        let mut audit = Audit::default();
        audit.check_foreign(&BTreeSet::new(), &services.ledger());
        assert_eq!(audit.findings, ["o-1: known to payment, never submitted"]);
    }
}
