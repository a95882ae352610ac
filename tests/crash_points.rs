//! Crash points: whole scenarios on the real handlers and adapters, over embedded AWS, with every AWS
//! call of submission, scheduler, agent and supervisor cut in every way, singly and in pairs. The
//! acknowledgement of a batch counts as a call too.
//!
//! Whatever is cut, a run ends as the uncut one did: the same states, every effect at the remote
//! service once and in the same order, the same told to clients and operators at least once, nothing
//! left in queues, dead letters or the due index; and at the same time by the test's clock, for a
//! message that comes again brings its effects along. The one exception is in `judge::may_wait`. After an outage
//! (`outages`) only side effects are judged.
//!
//! The long run: `cargo test -p steward-tests crash_points -- --ignored --nocapture`

mod campaign;
mod effects;
mod judge;
mod outage;
mod outages;
mod panics;
mod remote;
mod scenarios;
mod site;
mod wire;
mod world;

use campaign::cut_everywhere;
use wire::Cut;

/// Every way to cut a call.
const ALL: &[Cut] =
    &[Cut::DieBefore, Cut::DieAfter, Cut::FailBefore, Cut::FailAfter, Cut::RepeatAfter];

/// The ways in which AWS refuses for now.
const THROTTLES: &[Cut] = &[Cut::Throttle, Cut::ThrottlePart, Cut::ThrottleLong];

/// The ways that differ most: to die before a call is much the same as to die after the one before.
const WORST: &[Cut] = &[Cut::DieAfter, Cut::FailAfter];

#[test]
fn completed_task_survives_any_cut() {
    cut_everywhere(&scenarios::completed(), ALL, &[]);
}

#[test]
fn completed_task_survives_any_cut_whose_message_comes_back_at_once() {
    cut_everywhere(&scenarios::completed().in_haste(), ALL, &[]);
}

#[test]
fn undone_task_survives_any_cut_whose_message_comes_back_at_once() {
    cut_everywhere(&scenarios::undone().in_haste(), ALL, &[]);
}

#[test]
fn refused_task_survives_any_cut() {
    cut_everywhere(&scenarios::refused(), ALL, &[]);
}

#[test]
fn undone_task_survives_any_cut() {
    cut_everywhere(&scenarios::undone(), ALL, &[]);
}

#[test]
fn task_whose_agent_is_silent_at_first_survives_any_cut() {
    cut_everywhere(&scenarios::silent_at_first(), ALL, &[]);
}

#[test]
fn task_whose_agent_stays_silent_survives_any_cut() {
    cut_everywhere(&scenarios::silent_for_good(), ALL, &[]);
}

#[test]
fn task_that_is_late_survives_any_cut() {
    cut_everywhere(&scenarios::overdue(), ALL, &[]);
}

#[test]
fn task_whose_undo_fails_survives_any_cut() {
    cut_everywhere(&scenarios::undo_refused(), ALL, &[]);
}

#[test]
fn resubmitted_task_survives_any_cut() {
    cut_everywhere(&scenarios::resubmitted(), ALL, &[]);
}

#[test]
fn task_whose_request_is_impossible_survives_any_cut() {
    cut_everywhere(&scenarios::request_impossible(), ALL, &[]);
}

#[test]
fn task_with_branches_survives_any_cut() {
    cut_everywhere(&scenarios::side_by_side(), ALL, &[]);
}

#[test]
fn two_tasks_in_a_batch_survive_any_cut() {
    cut_everywhere(&scenarios::two_tasks(), ALL, &[]);
}

#[test]
fn completed_task_survives_throttling() {
    cut_everywhere(&scenarios::completed(), THROTTLES, &[]);
}

#[test]
fn undone_task_survives_throttling() {
    cut_everywhere(&scenarios::undone(), THROTTLES, &[]);
}

#[test]
fn refused_task_survives_throttling() {
    cut_everywhere(&scenarios::refused(), THROTTLES, &[]);
}

#[test]
fn task_that_is_late_survives_throttling() {
    cut_everywhere(&scenarios::overdue(), THROTTLES, &[]);
}

#[test]
fn task_with_branches_survives_throttling() {
    cut_everywhere(&scenarios::side_by_side(), THROTTLES, &[]);
}

#[test]
fn two_tasks_in_a_batch_survive_throttling() {
    cut_everywhere(&scenarios::two_tasks(), THROTTLES, &[]);
}

#[test]
fn completed_task_survives_a_kill_of_the_whole_process_at_any_call() {
    cut_everywhere(&scenarios::completed().on_disk(), &[Cut::KillAll], &[]);
}

#[test]
fn undone_task_survives_a_kill_of_the_whole_process_at_any_call() {
    cut_everywhere(&scenarios::undone().on_disk(), &[Cut::KillAll], &[]);
}

#[test]
fn task_whose_agent_is_silent_at_first_survives_a_kill_of_the_whole_process_at_any_call() {
    cut_everywhere(&scenarios::silent_at_first().on_disk(), &[Cut::KillAll], &[]);
}

#[test]
fn refused_task_survives_any_two_cuts() {
    cut_everywhere(&scenarios::refused(), WORST, WORST);
}

#[test]
#[ignore = "takes minutes"]
fn completed_task_survives_any_two_cuts() {
    cut_everywhere(&scenarios::completed(), WORST, WORST);
}

#[test]
#[ignore = "takes minutes"]
fn undone_task_survives_any_two_cuts() {
    cut_everywhere(&scenarios::undone(), WORST, WORST);
}

#[test]
#[ignore = "takes minutes"]
fn task_whose_agent_is_silent_at_first_survives_any_two_cuts() {
    cut_everywhere(&scenarios::silent_at_first(), WORST, WORST);
}

#[test]
#[ignore = "takes minutes"]
fn task_that_is_late_survives_any_two_cuts() {
    cut_everywhere(&scenarios::overdue(), WORST, WORST);
}

#[test]
#[ignore = "takes minutes"]
fn task_whose_undo_fails_survives_any_two_cuts() {
    cut_everywhere(&scenarios::undo_refused(), WORST, WORST);
}

#[test]
#[ignore = "takes minutes"]
fn task_whose_request_is_impossible_survives_any_two_cuts() {
    cut_everywhere(&scenarios::request_impossible(), WORST, WORST);
}

#[test]
#[ignore = "takes minutes"]
fn resubmitted_task_survives_any_two_deaths() {
    cut_everywhere(&scenarios::resubmitted(), &[Cut::DieAfter], &[Cut::DieAfter]);
}
