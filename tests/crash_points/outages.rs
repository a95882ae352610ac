//! Outages at every call: the process dies, no function runs for ten days, and what has expired is deleted.

use super::{
    campaign::cut_everywhere,
    outage::{Deletes, Lasts, Outage, Resumes},
    scenarios::{self, Scenario},
    wire::Cut,
};

/// Every kind of outage.
fn every_outage() -> impl Iterator<Item = Outage> {
    let lasts = [Lasts::TenDays, Lasts::FiveDaysTwice];
    let deletes = [
        Deletes::Everything,
        Deletes::Documents,
        Deletes::Tasks,
        Deletes::FirstOfTwo,
        Deletes::SecondOfTwo,
    ];
    let resumes = [Resumes::Messages, Resumes::Supervisor];
    lasts.into_iter().flat_map(move |lasts| {
        deletes.into_iter().flat_map(move |deletes| {
            resumes.into_iter().map(move |resumes| Outage { lasts, deletes, resumes })
        })
    })
}

fn cut_by(scenario: &Scenario, outages: impl IntoIterator<Item = Outage>) {
    for outage in outages {
        cut_everywhere(&scenario.clone().with(outage), &[Cut::Outage], &[]);
    }
}

#[test]
fn undone_task_survives_an_outage_in_which_its_documents_expire() {
    let outage =
        Outage { lasts: Lasts::TenDays, deletes: Deletes::Documents, resumes: Resumes::Messages };
    cut_by(&scenarios::undone(), [outage]);
}

#[test]
fn overdue_task_keeps_its_documents_if_the_supervisor_sweeps_once_in_an_outage() {
    let outage = Outage {
        lasts: Lasts::FiveDaysTwice,
        deletes: Deletes::Everything,
        resumes: Resumes::Supervisor,
    };
    cut_by(&scenarios::overdue_and_undone(), [outage]);
}

#[test]
fn parent_is_not_undone_if_its_child_expires_in_an_outage() {
    let outage =
        Outage { lasts: Lasts::TenDays, deletes: Deletes::Tasks, resumes: Resumes::Supervisor };
    cut_by(&scenarios::child_undone(), [outage]);
}

#[test]
#[ignore = "takes minutes"]
fn completed_task_survives_any_outage() {
    cut_by(&scenarios::completed(), every_outage());
}

#[test]
#[ignore = "takes minutes"]
fn undone_task_survives_any_outage() {
    cut_by(&scenarios::undone(), every_outage());
}

#[test]
#[ignore = "takes minutes"]
fn task_whose_agent_is_silent_at_first_survives_any_outage() {
    cut_by(&scenarios::silent_at_first(), every_outage());
}

#[test]
#[ignore = "takes minutes"]
fn task_whose_undo_fails_survives_any_outage() {
    cut_by(&scenarios::undo_refused(), every_outage());
}

#[test]
#[ignore = "takes minutes"]
fn task_that_is_overdue_and_undone_survives_any_outage() {
    cut_by(&scenarios::overdue_and_undone(), every_outage());
}

#[test]
#[ignore = "takes minutes"]
fn task_with_a_child_survives_any_outage() {
    cut_by(&scenarios::child_completed(), every_outage());
}

#[test]
#[ignore = "takes minutes"]
fn task_whose_child_is_undone_survives_any_outage() {
    cut_by(&scenarios::child_undone(), every_outage());
}
