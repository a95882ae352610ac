//! Stories of the pure core, as text tables: left what happens, right what the core answers.
//!
//! ```text
//! # The first line says it in one sentence.
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
//!                                request charge #1 by 82s with "r-7"; told: complete reserve
//! agent fails charge #1 "card declined"
//!                             => Undoing because "step charge: card declined"; task by 622s;
//!                                charge failed (failures 1, reason kept);
//!                                request undo of reserve #1 by 82s at /release
//! ```
//!
//! The clock starts at 0s and moves only where a story says so; every time is counted from that
//! start. Each `submit` begins another task. An answer first says what is saved (the task's new
//! state and why it is undone, its own complete-by as `task by`, its steps and undos with the documents
//! kept beside it, when it is due), then what is sent, and only what changed. A line that is indented
//! by four goes on with the one before it.
//!
//! **Workflow.** A step may also say `extended wait 15m 2 times`, `then undo` (or `alert`), `backoff ...
//! with jitter`, `not idempotent`, `point of no return`; its `undo (...)` says `within`, `attempts`,
//! `backoff from`, `extended wait`, `path`, `body`. What a story does not say is `clock skew 2s, pickup
//! within 30s`, `within 60s, attempts 3, backoff from 0s rate 2 up to 60s, then alert`, and no undo. Other
//! kinds of steps say `when ${ }`, `for each ${ } 2 at once`, `wait 10m`, `callback within 1h heard every
//! 10m`, `workflow packing` (whose input is the `body`); the workflow itself, `output`.
//!
//! **What happens.** `wake`, `sweep`, `alert sent`; `agent completes charge #1 with {...}`,
//! `agent fails undo of charge #1 "gone"`, `agent defers charge #1 for 10s "breaker open"`, the first perhaps
//! `, and an earlier call may continue` and the last two perhaps `, may have run`;
//! `agent cuts charge #1 "too slow"` (its outcome is unknown). `someone completes charge #1 with {...}`,
//! `someone fails charge #1 "no"`, `someone is still at charge #1` answer what was handed out, with a token that names an attempt;
//! `token o-1/charge/i0 completes with {...}` answers with that token; `task of pack is Processed with {...}` (or
//! `Undone "..."`, `in Error "..."`, `refused "..."`) tells of a step's own task, and `task o-1:pack at 3 of
//! pack is ...` says which task that is and its revision. `submit for pack of p-1`
//! submits a task that runs for another, which is then `asked to be done` or `asked to be undone`. An
//! operator's name and a verb make a command: `ann resubmits charge with
//! input {...}, it did not run because "..."`, `skips`, `completes ... with`, `undoes`, `cancels`,
//! `pauses`, `resumes`; `the same command` delivers the last one again. `(redelivered)` at the end says
//! that the queue has delivered the message before.
//!
//! The runner takes the place of the drive loop: it passes the documents that the transition wants and no
//! others, saves, and stores documents. After every line it also checks the laws that hold in every
//! story: [`laws`].

mod laws;
mod left;
mod said;
mod script;
mod world;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::PathBuf,
};

use steward_core::{
    engine::{decision::Transition, event::Event},
    model::task::Task,
};

use crate::arrows::{Arrow, KINDS, STATES, arrow, kind, table};
use script::{Line, read};
use world::World;

macro_rules! stories {
    ($($name:ident)+) => {
        const STORIES: &[&str] = &[$(stringify!($name)),+];

        $(
            #[test]
            fn $name() {
                if let Err(report) = tell(stringify!($name)) {
                    panic!("{report}");
                }
            }
        )+
    };
}

stories! {
    alert_lost_in_a_crash_is_sent_again
    alert_of_a_revived_task_is_not_confirmed_late
    answer_that_fails_or_is_too_large
    answer_to_a_callback_waits_for_its_call
    answers_and_tasks_that_nobody_waits_for
    branches_run_side_by_side_and_join
    call_in_progress_holds_back_the_undo
    call_of_an_undo_holds_back_what_came_before
    callback_completes_between_two_attempts
    callback_token_is_the_same_for_all_attempts
    cancelled_undo_that_finished_by_itself
    chain_of_skipped_steps_ends_the_task
    client_hears_processed_and_error
    clock_skew_is_waited_out
    command_is_carried_out_once
    commands_where_they_make_no_sense_are_refused
    deferred_for_long_is_found_by_the_supervisor
    deferred_request_may_act_beside_the_next_attempt
    deferred_step_burns_no_attempts
    deferred_step_is_waited_for_before_its_undo
    deferred_step_that_must_not_be_repeated_is_a_failure
    did_not_run_is_refused_while_a_call_may_be_in_progress
    duplicate_reply_is_ignored_and_its_effects_are_sent_again_only_if_redelivered
    earlier_call_that_may_continue_holds_back_the_undo
    edit_is_refused_while_a_deferred_request_may_act
    edit_that_makes_the_request_impossible
    edited_input_is_refused_if_an_attempt_may_have_run
    edited_input_makes_another_request
    edited_items_stay_in_their_places
    example_in_the_header
    extended_wait_then_undo
    extended_waits_then_alert
    failure_before_the_point_of_no_return_is_undone
    failure_of_an_agent_that_does_not_know_is_undone_too
    failure_while_paused_ends_the_pause
    heartbeats_keep_an_answer_awaited
    illegal_events_are_refused
    impossible_item_holds_back_those_beside_it
    impossible_step_leaves_those_beside_it_waiting
    impossible_undo_holds_back_those_beside_it
    items_are_undone_one_by_one
    items_go_so_many_at_once
    items_that_are_no_list_fail_the_step
    jitter_takes_up_to_half_of_a_pause
    last_running_branch_ends_an_undo
    late_branch_is_still_recorded_after_error
    late_reply_counts_until_its_attempt_is_superseded
    late_reply_does_not_hand_out_a_callback_again
    late_reply_to_a_deferred_attempt_may_have_run
    late_success_after_a_refusal_is_undone
    late_success_of_a_child_is_undone
    late_success_of_the_point_of_no_return_ends_the_undo
    lifecycle_event_if_wanted
    long_wait_sends_no_wake_and_is_found_by_the_supervisor
    lost_recovery_wake_is_made_good
    lost_wake_after_a_resumed_pause_is_made_good
    lost_wake_after_an_impossible_request_is_made_good
    lost_wake_is_made_good_by_the_supervisor
    newest_twenty_commands_are_kept
    next_request_that_cannot_be_made
    next_request_that_cannot_be_made_undoes_the_task
    no_items_pass_at_once
    not_idempotent_step_is_never_repeated_by_itself
    not_idempotent_step_may_be_undone
    nothing_starts_past_the_tasks_complete_by
    nothing_to_undo_for_another
    nothing_to_undo_for_the_operator
    nothing_to_undo_is_undone_at_once
    only_the_task_of_a_step_says_that_it_did_not_run
    operator_cancels_a_task
    operator_completes_a_step_by_hand
    operator_ends_a_task_at_once
    operator_makes_a_waiting_step_run_at_once
    operator_resubmits_a_failed_step
    operator_settles_an_undo_by_hand
    operator_settles_one_item
    operator_settles_one_of_several_failed_steps
    operator_skips_a_step
    operator_undoes_a_task
    outcome_that_is_unknown_is_counted_at_once
    output_of_the_task_is_told
    output_of_the_task_that_cannot_be_made
    overdue_task_is_undone_if_the_workflow_says_so
    overdue_undo_is_an_error
    oversized_output_is_a_failure
    oversized_output_of_an_undo_is_a_failure
    oversized_request_is_a_failure
    pause_that_comes_too_late
    paused_task_starts_nothing_until_it_is_resumed
    paused_undo_waits_too
    pauses_grow_to_their_cap
    permanent_failure_alerts_at_once
    permanent_failure_undoes_at_once
    point_of_no_return_is_only_driven_forward
    point_of_no_return_that_is_handed_out_is_waited_for
    redelivered_wake_alerts_again
    redelivered_wake_sends_its_effects_again
    refusal_of_an_earlier_attempt_is_ignored
    replies_after_the_end_are_ignored
    report_of_an_earlier_child_is_ignored
    request_of_an_undo_that_cannot_be_made
    request_that_cannot_be_made_fails_its_step
    request_that_cannot_be_made_starts_no_other_branch
    running_branch_is_waited_for_before_what_came_before_it_is_undone
    running_point_of_no_return_holds_back_every_undo
    running_point_of_no_return_is_waited_for
    scheduler_with_a_clock_behind_goes_on_at_complete_by
    scheduler_with_a_clock_behind_repeats_the_step_at_once
    scheduler_with_a_clock_behind_undoes_at_complete_by
    second_supervisor_counts_nothing
    short_pause_is_kept_although_clocks_disagree
    silent_agent_is_repeated_then_error_and_alert
    silent_point_of_no_return_may_be_passed
    silent_step_may_have_run_and_is_undone_too
    skipped_deferred_step_may_still_run
    someone_answers_later
    stale_attempt_is_fenced
    step_whose_when_is_false_is_skipped
    step_with_items_is_not_completed_as_a_whole
    straight_way_to_processed
    supervisor_tells_what_its_own_save_decided
    supervisor_too_early_only_moves_due
    task_of_a_step_fails
    task_of_a_step_is_done
    task_of_a_step_is_undone_while_it_runs
    task_of_a_step_may_still_end_after_error
    task_past_its_own_complete_by_is_an_error
    task_past_its_return_is_not_undone_for_another
    task_that_another_counts_on_is_not_undone_by_itself
    task_that_runs_for_another_is_asked_for
    task_that_runs_for_another_is_undone
    undo_cannot_be_requested_if_its_step_never_returned
    undo_goes_backward_through_a_line
    undo_is_deferred_too
    undo_is_fenced_by_its_own_attempts
    undo_of_a_diamond_goes_side_by_side
    undo_takes_the_input_of_its_step
    undo_that_cannot_be_done_is_an_error_at_once
    undo_that_fails_is_tried_again_then_an_error
    undo_that_is_called_off_leaves_a_wait_running
    wait_goes_on_beside_a_deferred_point_of_no_return
    wait_is_cut_short
    wait_is_over_after_its_time
    wait_until_a_time_that_a_task_names
    waiting_branch_is_given_up_when_the_task_is_undone
    waiting_step_whose_edited_request_cannot_be_made
    waits_end_early_only_if_they_are_named
    what_is_handed_out_is_undone_at_once
    when_that_is_neither_true_nor_false_fails_the_step
}

#[test]
fn every_story_in_the_folder_is_told() {
    let mut found: Vec<_> = fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| !name.ends_with(".rs"))
        .collect();
    found.sort();
    let listed: Vec<_> = STORIES.iter().map(|name| format!("{name}.story")).collect();
    assert_eq!(found, listed);
}

#[test]
fn every_arrow_of_the_table_is_walked() {
    let (table, walk) = (table(), walk_all());
    assert!(table.len() > 10, "the table of transition.rs was not found: {table:?}");
    let left: Vec<_> = table.difference(&walk.arrows).map(Arrow::to_string).collect();
    assert!(left.is_empty(), "no story walks:\n{left:#?}");
}

#[test]
fn every_arrow_that_is_walked_is_in_the_table() {
    let (table, walk) = (table(), walk_all());
    let left: Vec<_> = walk.arrows.difference(&table).map(Arrow::to_string).collect();
    assert!(left.is_empty(), "not in the table of transition.rs:\n{left:#?}");
}

#[test]
fn every_event_is_told_in_every_state() {
    let told = walk_all().answers;
    let all = STATES.iter().flat_map(|state| KINDS.map(|kind| (*state, kind)));
    let left: Vec<_> = all
        .filter(|(state, kind)| !told.contains_key(&((*state).to_owned(), *kind)))
        .map(|(state, kind)| format!("{state}: {kind}"))
        .collect();
    assert!(left.is_empty(), "no story tells what comes of:\n{left:#?}");
}

#[test]
fn every_reason_to_ignore_is_told() {
    let reasons = [
        "DuplicateCommand",
        "DuplicateReply",
        "Ended",
        "NotDue",
        "NothingReady",
        "StaleReply",
        "StillAwaited",
    ];
    let told: BTreeSet<_> = walk_all().answers.into_values().flatten().collect();
    let ignored: Vec<_> = told.iter().filter_map(|said| said.strip_prefix("ignored: ")).collect();
    assert_eq!(ignored, reasons);
}

/// What comes of every event in every state, by all stories: `cargo test arrows_report -- --ignored
/// --nocapture`.
#[test]
#[ignore = "prints a report"]
fn arrows_report() {
    for ((state, kind), answers) in walk_all().answers {
        let answers: Vec<_> = answers.into_iter().collect();
        println!("{state:<10} | {kind:<14} | {}", answers.join(", "));
    }
}

/// What the stories have walked over.
#[derive(Default)]
struct Walk {
    arrows: BTreeSet<Arrow>,
    /// By state and kind of event.
    answers: BTreeMap<(String, &'static str), BTreeSet<String>>,
}

impl Walk {
    fn step(&mut self, before: &Task, event: &Event, answer: &Transition) {
        self.arrows.extend(arrow(before, event, answer));
        let said = match answer {
            Transition::Apply { task, .. } => task.process_state.to_string(),
            Transition::Ignore { reason, .. } => format!("ignored: {reason:?}"),
            Transition::Illegal(_) => "illegal".to_owned(),
        };
        let key = (before.process_state.to_string(), kind(event));
        self.answers.entry(key).or_default().insert(said);
    }
}

fn walk_all() -> Walk {
    let mut walk = Walk::default();
    for story in STORIES.iter().filter_map(|name| read(name).ok()) {
        let mut world = World::new(&story);
        for line in &story.lines {
            // A story that is not right says so in its own test.
            let _ = world.play(line);
        }
        walk.arrows.extend(world.walk.arrows);
        for (key, answers) in world.walk.answers {
            walk.answers.entry(key).or_default().extend(answers);
        }
    }
    walk
}

fn folder() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "../../tests/stories"].iter().collect()
}

/// Tells one story; all that is not as it says, with file and line.
fn tell(name: &str) -> Result<(), String> {
    let story = read(name)?;
    let mut world = World::new(&story);
    let mut wrong = Vec::new();
    for line in &story.lines {
        let Line { number, left, right } = line;
        let said = world.play(line);
        let mut problems: Vec<_> =
            world.broken.drain(..).map(|law| format!("\n  broken:   {law}")).collect();
        match said {
            Ok(said) if said == *right => {}
            Ok(said) => problems.push(format!("\n  expected: {right}\n  got:      {said}")),
            Err(problem) => problems.push(format!("\n  {problem}")),
        }
        if !problems.is_empty() {
            wrong.push(format!(
                "tests/stories/{name}.story:{number}\n  {left}{}",
                problems.concat()
            ));
        }
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n")) }
}
