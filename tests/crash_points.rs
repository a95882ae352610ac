//! Crash points: scenarios on the real handlers and adapters, over the embedded AWS, with faults injected at the AWS
//! calls of submission, scheduler, agent and supervisor, singly and in pairs. The acknowledgement of a batch counts as a
//! call too. A usual run injects each fault at every third call; the long run each at every call, and the pairs.
//!
//! With any fault, a run must end like the run without faults: the same states, every effect at the remote service once
//! and in the same order, the same notifications and alerts at least once, and nothing left in queues, dead-letter queues
//! or the due index. It must also end at the same time by the test's clock, because a redelivered message repeats its
//! effects; `checks::may_delay` defines the only exception. After an outage (`outage_tests`), and where two faults leave a doubt
//! (`checks::leaves_a_doubt`), only side effects and alerts are checked.
//!
//! The long run: `CRASH_POINTS=all cargo test -p steward-tests crash_points -- --include-ignored --nocapture`

mod campaign;
mod checks;
mod environment;
mod fault_injection;
mod outage;
mod outage_tests;
mod panics;
mod scenario_run;
mod scenarios;
mod scripted_service;
mod side_effects;

use campaign::inject_at_calls;
use fault_injection::InjectedFault;

/// All faults that crash a process or lose a response.
const CRASHES_AND_LOSSES: &[InjectedFault] = &[
    InjectedFault::DieBefore,
    InjectedFault::DieAfter,
    InjectedFault::FailBefore,
    InjectedFault::FailAfter,
    InjectedFault::RepeatAfter,
];

/// The faults in which a function stops at its deadline: whatever it awaits is abandoned, and its process goes on.
const HANGS: &[InjectedFault] = &[InjectedFault::HangBefore, InjectedFault::HangAfter];

/// The faults in which AWS throttles.
const THROTTLES: &[InjectedFault] =
    &[InjectedFault::Throttle, InjectedFault::ThrottlePart, InjectedFault::ThrottleLong];

/// The faults for pairs: a crash before a call is almost the same as a crash after the previous call.
const PAIR_FAULTS: &[InjectedFault] = &[InjectedFault::DieAfter, InjectedFault::FailAfter];

#[test]
fn completed_task_survives_any_fault() {
    inject_at_calls(&scenarios::completed(), CRASHES_AND_LOSSES, &[]);
}

#[test]
fn completed_task_survives_any_fault_with_immediate_redelivery() {
    inject_at_calls(&scenarios::completed().with_immediate_redelivery(), CRASHES_AND_LOSSES, &[]);
}

#[test]
fn undone_task_survives_any_fault_with_immediate_redelivery() {
    inject_at_calls(&scenarios::undone().with_immediate_redelivery(), CRASHES_AND_LOSSES, &[]);
}

#[test]
fn refused_task_survives_any_fault() {
    inject_at_calls(&scenarios::refused(), CRASHES_AND_LOSSES, &[]);
}

#[test]
fn undone_task_survives_any_fault() {
    inject_at_calls(&scenarios::undone(), CRASHES_AND_LOSSES, &[]);
}

#[test]
fn task_with_an_agent_that_is_silent_at_first_survives_any_fault() {
    inject_at_calls(&scenarios::silent_at_first(), CRASHES_AND_LOSSES, &[]);
}

#[test]
fn task_with_a_silent_agent_survives_any_fault() {
    inject_at_calls(&scenarios::silent_for_good(), CRASHES_AND_LOSSES, &[]);
}

#[test]
fn overdue_task_survives_any_fault() {
    inject_at_calls(&scenarios::overdue(), CRASHES_AND_LOSSES, &[]);
}

#[test]
fn task_with_a_failing_undo_survives_any_fault() {
    inject_at_calls(&scenarios::undo_refused(), CRASHES_AND_LOSSES, &[]);
}

#[test]
fn resubmitted_task_survives_any_fault() {
    inject_at_calls(&scenarios::resubmitted(), CRASHES_AND_LOSSES, &[]);
}

#[test]
fn task_with_an_impossible_request_survives_any_fault() {
    inject_at_calls(&scenarios::request_impossible(), CRASHES_AND_LOSSES, &[]);
}

#[test]
fn task_with_branches_survives_any_fault() {
    inject_at_calls(&scenarios::branches(), CRASHES_AND_LOSSES, &[]);
}

#[test]
fn task_with_a_list_in_slices_survives_any_fault() {
    inject_at_calls(&scenarios::items_undone(), CRASHES_AND_LOSSES, &[]);
}

#[test]
fn two_tasks_in_a_batch_survive_any_fault() {
    inject_at_calls(&scenarios::two_tasks(), CRASHES_AND_LOSSES, &[]);
}

#[test]
fn completed_task_survives_a_stop_at_any_call() {
    inject_at_calls(&scenarios::completed(), HANGS, &[]);
}

#[test]
fn undone_task_survives_a_stop_at_any_call() {
    inject_at_calls(&scenarios::undone(), HANGS, &[]);
}

#[test]
fn refused_task_survives_a_stop_at_any_call() {
    inject_at_calls(&scenarios::refused(), HANGS, &[]);
}

#[test]
fn task_with_an_agent_that_is_silent_at_first_survives_a_stop_at_any_call() {
    inject_at_calls(&scenarios::silent_at_first(), HANGS, &[]);
}

#[test]
fn overdue_task_survives_a_stop_at_any_call() {
    inject_at_calls(&scenarios::overdue(), HANGS, &[]);
}

#[test]
fn resubmitted_task_survives_a_stop_at_any_call() {
    inject_at_calls(&scenarios::resubmitted(), HANGS, &[]);
}

#[test]
fn task_with_branches_survives_a_stop_at_any_call() {
    inject_at_calls(&scenarios::branches(), HANGS, &[]);
}

#[test]
fn task_with_a_list_in_slices_survives_a_stop_at_any_call() {
    inject_at_calls(&scenarios::items_undone(), HANGS, &[]);
}

#[test]
fn two_tasks_in_a_batch_survive_a_stop_at_any_call() {
    inject_at_calls(&scenarios::two_tasks(), HANGS, &[]);
}

#[test]
fn undone_task_survives_a_stop_at_any_call_with_immediate_redelivery() {
    inject_at_calls(&scenarios::undone().with_immediate_redelivery(), HANGS, &[]);
}

#[test]
fn completed_task_survives_throttling() {
    inject_at_calls(&scenarios::completed(), THROTTLES, &[]);
}

#[test]
fn undone_task_survives_throttling() {
    inject_at_calls(&scenarios::undone(), THROTTLES, &[]);
}

#[test]
fn refused_task_survives_throttling() {
    inject_at_calls(&scenarios::refused(), THROTTLES, &[]);
}

#[test]
fn overdue_task_survives_throttling() {
    inject_at_calls(&scenarios::overdue(), THROTTLES, &[]);
}

#[test]
fn task_with_branches_survives_throttling() {
    inject_at_calls(&scenarios::branches(), THROTTLES, &[]);
}

#[test]
fn two_tasks_in_a_batch_survive_throttling() {
    inject_at_calls(&scenarios::two_tasks(), THROTTLES, &[]);
}

#[test]
fn completed_task_survives_a_kill_of_the_whole_process_at_any_call() {
    inject_at_calls(&scenarios::completed().on_disk(), &[InjectedFault::KillAll], &[]);
}

#[test]
fn undone_task_survives_a_kill_of_the_whole_process_at_any_call() {
    inject_at_calls(&scenarios::undone().on_disk(), &[InjectedFault::KillAll], &[]);
}

#[test]
fn task_with_an_agent_that_is_silent_at_first_survives_a_kill_of_the_whole_process_at_any_call() {
    inject_at_calls(&scenarios::silent_at_first().on_disk(), &[InjectedFault::KillAll], &[]);
}

#[test]
#[ignore = "takes minutes"]
fn refused_task_survives_any_two_faults() {
    inject_at_calls(&scenarios::refused(), PAIR_FAULTS, PAIR_FAULTS);
}

#[test]
#[ignore = "takes minutes"]
fn completed_task_survives_any_two_faults() {
    inject_at_calls(&scenarios::completed(), PAIR_FAULTS, PAIR_FAULTS);
}

#[test]
#[ignore = "takes minutes"]
fn undone_task_survives_any_two_faults() {
    inject_at_calls(&scenarios::undone(), PAIR_FAULTS, PAIR_FAULTS);
}

#[test]
#[ignore = "takes minutes"]
fn task_with_an_agent_that_is_silent_at_first_survives_any_two_faults() {
    inject_at_calls(&scenarios::silent_at_first(), PAIR_FAULTS, PAIR_FAULTS);
}

#[test]
#[ignore = "takes minutes"]
fn overdue_task_survives_any_two_faults() {
    inject_at_calls(&scenarios::overdue(), PAIR_FAULTS, PAIR_FAULTS);
}

#[test]
#[ignore = "takes minutes"]
fn task_with_a_failing_undo_survives_any_two_faults() {
    inject_at_calls(&scenarios::undo_refused(), PAIR_FAULTS, PAIR_FAULTS);
}

#[test]
#[ignore = "takes minutes"]
fn task_with_an_impossible_request_survives_any_two_faults() {
    inject_at_calls(&scenarios::request_impossible(), PAIR_FAULTS, PAIR_FAULTS);
}

#[test]
#[ignore = "takes minutes"]
fn resubmitted_task_survives_any_two_crashes() {
    inject_at_calls(
        &scenarios::resubmitted(),
        &[InjectedFault::DieAfter],
        &[InjectedFault::DieAfter],
    );
}
