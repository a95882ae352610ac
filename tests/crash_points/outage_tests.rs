//! An outage at every call: the process crashes, no function runs for ten days, and expired items are deleted.

use super::{
    campaign::inject_at_calls,
    fault_injection::InjectedFault,
    outage::{ExpiredDeletion, FirstAfterOutage, Outage, OutageDuration},
    scenarios::{self, Scenario},
};

/// Every kind of outage.
fn every_outage() -> impl Iterator<Item = Outage> {
    let durations = [OutageDuration::TenDays, OutageDuration::FiveDaysTwice];
    let deletions = [
        ExpiredDeletion::Everything,
        ExpiredDeletion::Documents,
        ExpiredDeletion::Tasks,
        ExpiredDeletion::FirstOfTwo,
        ExpiredDeletion::SecondOfTwo,
    ];
    let firsts = [FirstAfterOutage::Messages, FirstAfterOutage::Supervisor];
    durations.into_iter().flat_map(move |duration| {
        deletions.into_iter().flat_map(move |deletion| {
            firsts.into_iter().map(move |first| Outage { duration, deletion, first })
        })
    })
}

fn inject_outages(scenario: &Scenario, outages: impl IntoIterator<Item = Outage>) {
    for outage in outages {
        inject_at_calls(&scenario.clone().with_outage(outage), &[InjectedFault::Outage], &[]);
    }
}

#[test]
fn undone_task_survives_an_outage_in_which_its_documents_expire() {
    let outage = Outage {
        duration: OutageDuration::TenDays,
        deletion: ExpiredDeletion::Documents,
        first: FirstAfterOutage::Messages,
    };
    inject_outages(&scenarios::undone(), [outage]);
}

#[test]
fn overdue_task_keeps_its_documents_if_the_supervisor_sweeps_once_in_an_outage() {
    let outage = Outage {
        duration: OutageDuration::FiveDaysTwice,
        deletion: ExpiredDeletion::Everything,
        first: FirstAfterOutage::Supervisor,
    };
    inject_outages(&scenarios::overdue_and_undone(), [outage]);
}

#[test]
fn parent_is_not_undone_if_its_child_expires_in_an_outage() {
    let outage = Outage {
        duration: OutageDuration::TenDays,
        deletion: ExpiredDeletion::Tasks,
        first: FirstAfterOutage::Supervisor,
    };
    inject_outages(&scenarios::child_undone(), [outage]);
}

#[test]
#[ignore = "takes minutes"]
fn completed_task_survives_any_outage() {
    inject_outages(&scenarios::completed(), every_outage());
}

#[test]
#[ignore = "takes minutes"]
fn undone_task_survives_any_outage() {
    inject_outages(&scenarios::undone(), every_outage());
}

#[test]
#[ignore = "takes minutes"]
fn task_with_an_agent_that_is_silent_at_first_survives_any_outage() {
    inject_outages(&scenarios::silent_at_first(), every_outage());
}

#[test]
#[ignore = "takes minutes"]
fn task_with_a_failing_undo_survives_any_outage() {
    inject_outages(&scenarios::undo_refused(), every_outage());
}

#[test]
#[ignore = "takes minutes"]
fn overdue_and_undone_task_survives_any_outage() {
    inject_outages(&scenarios::overdue_and_undone(), every_outage());
}

#[test]
#[ignore = "takes minutes"]
fn task_with_a_child_survives_any_outage() {
    inject_outages(&scenarios::child_completed(), every_outage());
}

#[test]
#[ignore = "takes minutes"]
fn task_with_an_undone_child_survives_any_outage() {
    inject_outages(&scenarios::child_undone(), every_outage());
}
