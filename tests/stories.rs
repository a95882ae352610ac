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
mod script;
mod world;

use std::{collections::BTreeSet, fs, path::PathBuf};

use steward_core::{
    messages::Outcome,
    names::StepName,
    task::{ProcessState, StepState, Task},
    transition::{Event, Transition},
};

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
fn every_arrow_of_the_table_is_walked() {
    let (table, walk) = (table(), walk_all());
    assert!(table.len() > 10, "the table of transition.rs was not found: {table:?}");
    let left: Vec<_> = table.difference(&walk.arrows).collect();
    assert!(left.is_empty(), "no story walks:\n{left:#?}");
}

#[test]
fn every_arrow_that_is_walked_is_in_the_table() {
    let (table, walk) = (table(), walk_all());
    let left: Vec<_> = walk.arrows.difference(&table).collect();
    assert!(left.is_empty(), "not in the table of transition.rs:\n{left:#?}");
}

#[test]
fn every_reason_to_ignore_is_told() {
    let reasons = ["DuplicateReply", "Ended", "LateReply", "NotDue", "NothingReady", "StaleReply"];
    assert_eq!(walk_all().reasons, BTreeSet::from(reasons.map(str::to_owned)));
}

/// What the stories have walked over.
#[derive(Default)]
struct Walk {
    arrows: BTreeSet<Arrow>,
    reasons: BTreeSet<String>,
}

/// A row of the table at the top of transition.rs: state, event, what it becomes.
type Arrow = (String, String, String);

fn walk_all() -> Walk {
    let mut walk = Walk::default();
    for story in STORIES.iter().filter_map(|name| read(name).ok()) {
        let mut world = World::new(&story);
        for line in &story.lines {
            // A story that is not right says so in its own test.
            let _ = world.play(line);
        }
        walk.arrows.extend(world.walk.arrows);
        walk.reasons.extend(world.walk.reasons);
    }
    walk
}

/// The rows of the table. `same, x` stands for the event of the row above, and x.
fn table() -> BTreeSet<Arrow> {
    let source = include_str!("../crates/core/src/transition.rs");
    let rows = source.lines().filter_map(|line| line.strip_prefix("//! | "));
    let mut above = String::new();
    rows.skip(2)
        .filter_map(|row| {
            let mut cells = row.split('|').map(str::trim);
            let (state, event, becomes) = (cells.next()?, cells.next()?, cells.next()?);
            above = event
                .strip_prefix("same")
                .map_or(event.to_owned(), |rest| format!("{above}{rest}"));
            Some((state.to_owned(), above.clone(), becomes.to_owned()))
        })
        .collect()
}

/// The arrow that was walked, in the table's words. What is ignored has none.
fn arrow(before: &Task, event: &Event, answer: &Transition) -> Option<Arrow> {
    let row = |words: &str, becomes: &str| {
        Some((before.process_state.to_string(), words.to_owned(), becomes.to_owned()))
    };
    match answer {
        Transition::Apply { task, .. } => {
            row(words(before, event, task), &task.process_state.to_string())
        }
        Transition::Illegal(_) if before.process_state == ProcessState::Pending => {
            event.step().and_then(|_| row("reply", "illegal"))
        }
        Transition::Illegal(_) | Transition::Ignore { .. } => None,
    }
}

fn words(before: &Task, event: &Event, after: &Task) -> &'static str {
    let has_failed = |task: &Task, step: &StepName| {
        task.steps.get(step).is_some_and(|step| matches!(step.state, StepState::Failed { .. }))
    };
    let mut failed =
        after.steps.keys().filter(|step| has_failed(after, step) && !has_failed(before, step));
    let failed = failed.next();
    match event {
        Event::Wake if failed.is_some() => "wake, request impossible",
        Event::Wake => "wake",
        Event::Swept => match (before.process_state, after.process_state) {
            (ProcessState::Pending, ProcessState::Pending) => "swept, past due",
            (ProcessState::Error, _) => "swept, alert unsent",
            (_, ProcessState::Error) if failed.is_some() => {
                "swept, step past due, attempts used up"
            }
            (_, ProcessState::Error) => "swept, task past due",
            _ if after.failure_count > before.failure_count => "swept, step past due",
            _ => "swept, nothing past due",
        },
        Event::Replied(reply) => match (&reply.outcome, failed) {
            (Outcome::Failed { .. }, _) => "reply failed",
            (Outcome::Completed { .. }, Some(step)) if *step == reply.step => {
                "reply completed, too large"
            }
            (Outcome::Completed { .. }, Some(_)) => "reply completed, next impossible",
            (Outcome::Completed { .. }, None) if after.process_state == ProcessState::Processed => {
                "reply completed, last"
            }
            (Outcome::Completed { .. }, None) => "reply completed",
        },
        Event::AlertSent => "alert sent",
    }
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
