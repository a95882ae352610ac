//! Stories of the pure core, as text tables: left what happens, right what the core answers.
//!
//! ```text
//! # The first line says it in one sentence.
//! timing   clock skew 2s, pickup within 30s
//! workflow within 10m
//!   reserve: within 20s, attempts 2
//!   charge:  after reserve, body ${ steps.reserve.output.id }
//!
//! submit                      => Pending; due 20s
//! wake                        => Processing; request reserve #1 by 20s
//! clock +22s
//! sweep                       => reserve waiting (failures 1, reason kept); unlocked; due 52s;
//!                                wake scheduler
//! ```
//!
//! The clock starts at 0s and moves only where a story says so; every time is counted from that
//! start. Each `submit` begins another task. An answer first says what is saved (the task's new
//! state, its steps with the documents kept beside it, when it is due), then what is sent, and only
//! what changed. A line that is indented by four goes on with the one before it. What a story does
//! not say of its timing and steps is `clock skew 2s, pickup within 30s`, `within 60s, attempts 3`.
//!
//! The runner plays the shell's part: it hands over the documents that `needs` asked for and no
//! others, saves, and stores documents. After every line it also checks the laws that hold in every
//! story: [`laws_of_the_task`], [`laws_of_the_end`], [`laws_of_what_is_told`].

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
    task::Task,
    transition::{Event, Transition},
};

use crate::arrows::{Arrow, KINDS, arrow, kind, table};
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
    branches_run_side_by_side_and_join
    client_hears_processed_and_error
    clock_skew_is_waited_out
    duplicate_reply_is_ignored_and_its_effects_are_sent_again_only_if_redelivered
    illegal_events_are_refused
    late_branch_is_still_recorded_after_error
    late_reply_is_ignored
    lifecycle_event_if_wanted
    lost_recovery_wake_is_made_good
    lost_wake_is_made_good_by_the_supervisor
    nothing_starts_past_the_tasks_complete_by
    oversized_output_is_a_failure
    oversized_request_is_a_failure
    permanent_failure_alerts_at_once
    redelivered_wake_alerts_again
    redelivered_wake_sends_its_effects_again
    request_that_cannot_be_made_fails_its_step
    request_that_cannot_be_made_starts_no_other_branch
    scheduler_with_a_clock_behind_repeats_the_step_at_once
    second_supervisor_counts_nothing
    silent_agent_is_repeated_then_error_and_alert
    stale_attempt_is_fenced
    straight_way_to_processed
    supervisor_too_early_only_moves_due
    task_past_its_own_complete_by_is_an_error
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
#[ignore = "its stories are being written"]
fn every_arrow_of_the_table_is_walked() {
    let (table, walk) = (table(), walk_all());
    assert!(table.len() > 10, "the table of transition.rs was not found: {table:?}");
    let left: Vec<_> = table.difference(&walk.arrows).map(Arrow::to_string).collect();
    assert!(left.is_empty(), "no story walks:\n{left:#?}");
}

#[test]
#[ignore = "its stories are being written"]
fn every_arrow_that_is_walked_is_in_the_table() {
    let (table, walk) = (table(), walk_all());
    let left: Vec<_> = walk.arrows.difference(&table).map(Arrow::to_string).collect();
    assert!(left.is_empty(), "not in the table of transition.rs:\n{left:#?}");
}

#[test]
#[ignore = "its stories are being written"]
fn every_event_is_told_in_every_state() {
    let told = walk_all().answers;
    let states = ["Pending", "Processing", "Undoing", "Processed", "Undone", "Error"];
    let all = states.iter().flat_map(|state| KINDS.map(|kind| (*state, kind)));
    let left: Vec<_> = all
        .filter(|(state, kind)| !told.contains_key(&((*state).to_owned(), *kind)))
        .map(|(state, kind)| format!("{state}: {kind}"))
        .collect();
    assert!(left.is_empty(), "no story tells what comes of:\n{left:#?}");
}

#[test]
#[ignore = "its stories are being written"]
fn every_reason_to_ignore_is_told() {
    let reasons = [
        "DuplicateCommand",
        "DuplicateReply",
        "Ended",
        "LateReply",
        "NotDue",
        "NothingReady",
        "StaleReply",
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
    [env!("CARGO_MANIFEST_DIR"), "stories"].iter().collect()
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
