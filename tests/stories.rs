//! Stories of the decision engine: text files with an event on the left and the expected decision on the right. Each file
//! in `tests/stories/` is a test:
//!
//! ```text
//! cargo test -p steward-core --test stories              # all stories
//! cargo test -p steward-core --test stories callback     # those with `callback` in their name
//! ```
//!
//! ```text
//! # The first comment describes the story in one sentence.
//! timing   clock skew 2s, pickup within 30s
//! workflow within 10m, overdue undo
//!   reserve: within 20s, attempts 2, backoff from 2s rate 3 up to 20s, undo (path /release)
//!   charge:  after reserve, body ${ steps.reserve.output.id }, then undo
//!
//! submit                      => Pending; due 20s
//! wake                        => Processing; request reserve #1 by 20s
//! clock +22s
//! sweep                       => reserve waiting until 24s (failures 1, may have run, reason kept);
//!                                unlocked; due 54s; wake scheduler in 2s
//! ann completes reserve with {"id":"r-7"} because "done on the phone"
//!                             => reserve completed (output kept); due 82s;
//!                                request charge #1 by 82s with "r-7"; published: complete reserve
//! agent fails charge #1 "card declined"
//!                             => Undoing because "step charge: card declined"; task by 622s;
//!                                charge failed (failures 1, reason kept);
//!                                request undo of reserve #1 by 82s at /release
//! ```
//!
//! The clock starts at 0s, and only `clock` advances it. All times are relative to that start. Each `submit` starts a new
//! task. A line that is indented by four spaces continues the previous line.
//!
//! # Decisions
//!
//! The right side contains only changes. First come the changes that are saved: the task's new state with the reason of
//! an undo, its complete-by (`task by`), its steps and undos with the documents that are kept for them, its due time. Then
//! come the effects: requests, notifications (`notification to QUEUE: STATUS`), alerts, published commands
//! (`published: ...`, or `refused: ...` with the reason), reports to a parent task (`report to STEP of TASK: ...`), wakes.
//!
//! # Workflow
//!
//! A step may have the options `extended wait 15m 2 times`, `then undo` (or `alert`), `backoff ... with jitter`,
//! `not idempotent`, `gives up after 20m`, `key valid for 1d`, and `point of no return`. Its `undo (...)` may have `within`, `attempts`,
//! `backoff from`, `extended wait`, `gives up after`, `key valid for`, `path` and `body`. The defaults are `clock skew 2s, pickup within 30s`,
//! `within 60s, attempts 3, backoff from 0s rate 2 up to 60s, then alert`, and no undo. Other kinds of steps have the
//! options `when ${ }`, `for each ${ } 2 at once`, `wait 10m`, `callback within 1h heartbeat every 10m`, and
//! `workflow packing` (with the `body` as its input). The workflow may have an `output`.
//!
//! # Events
//!
//! - `wake`, `sweep`, and `alert sent`, or `alert of 20s sent` for the alert of the end at that time. Before
//!   a command, an alert counts as sent, except after `alert lost`.
//! - Replies: `agent completes charge #1 with {...}`, `agent fails undo of charge #1 "gone"`,
//!   `agent defers charge #1 for 10s "breaker open"`, `agent cuts charge #1 "too slow"` (unknown outcome). The first may
//!   end in `, and an earlier call may continue`, the second and third in `, may have run`.
//! - Callbacks: `callback completes charge with {...}`, `callback fails charge "no"`, `callback heartbeat for charge`. With
//!   the token of the request after an edit of the input: `callback of c-9 completes charge with {...}`.
//! - Reports of child tasks: `child of pack is Processed with {...}` (or `Undone "..."`, `in Error "..."`,
//!   `refused "..."`), and `child o-1:pack at revision 3 of pack is ...` with the id and revision of the child.
//! - A task that runs for a parent: `submit for pack of p-1`, and then `parent requests do` or `parent requests undo`.
//! - Commands, with an operator's name: `ann resubmits charge with input {...}, it did not run because "..."`, `skips`,
//!   `completes ... with`, `undoes`, `cancels`, `pauses`, `resumes`. `repeat command` delivers the last command again.
//! - `(redelivered)` at the end: the queue has delivered the message before.
//!
//! The engine asserts its invariants after each decision. After every line the runner also checks the documents.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "clippy.toml allows these in tests, and means test functions, not their helpers"
)]

#[path = "stories/harness.rs"]
mod harness;

use std::path::Path;

/// Runs one story. The error lists all differences with file and line.
fn story(file: &Path) -> datatest_stable::Result<()> {
    Ok(harness::check(file, |_, _, _| {})?)
}

datatest_stable::harness! {
    { test = story, root = "../../tests/stories", pattern = r"\.story$" },
}
