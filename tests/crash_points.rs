//! Crash points: whole scenarios on the real handlers and adapters, over embedded AWS, with every AWS
//! call of submission, scheduler, agent and supervisor cut in every way, singly and in pairs. The
//! acknowledgement of a batch counts as a call too.
//!
//! Whatever is cut, a run ends as the uncut one did: the same states, every effect at the remote
//! service once and in the same order, the same told to clients and operators at least once, nothing
//! left in queues, dead letters or the due index; and at the same time by the test's clock, for a
//! message that comes again brings its effects along. The one exception is in `judge::may_wait`.
//!
//! The long run: `cargo test -p steward-tests crash_points -- --ignored --nocapture`

mod campaign;
mod judge;
mod remote;
mod scenarios;
mod site;
mod wire;
mod world;

use campaign::cut_everywhere;

use crate::support::Cut;

/// Every way to cut a call.
const ALL: &[Cut] =
    &[Cut::DieBefore, Cut::DieAfter, Cut::FailBefore, Cut::FailAfter, Cut::RepeatAfter];

/// The ways that differ most from each other.
const DEADLY: &[Cut] = &[Cut::DieBefore, Cut::DieAfter, Cut::FailAfter];

#[test]
fn every_call_cut_in_every_way_changes_no_ending() {
    cut_everywhere(scenarios::all(), ALL, &[]);
}

#[test]
fn any_two_calls_cut_change_no_ending_of_the_shortest_scenarios() {
    cut_everywhere(vec![scenarios::refused()], DEADLY, DEADLY);
}

#[test]
#[ignore = "takes minutes"]
fn any_two_calls_cut_change_no_ending() {
    cut_everywhere(scenarios::all(), DEADLY, DEADLY);
}
