//! The arrows of the core: which row of the table at the top of `transition.rs` a decision walked.
//! Stories and the exploration both walk them; between them none is left out, and none is unknown.

use std::{collections::BTreeSet, fmt};

use steward_core::{
    engine::{decision::Transition, event::Event},
    model::{
        attempt::Action,
        command::Order,
        messages::{Answer, Outcome, StepReply},
        names::Part,
        step::{Progress, StepState},
        task::Task,
    },
};

/// A row of the table: state, event, what it becomes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Arrow {
    pub(crate) state: String,
    pub(crate) event: String,
    pub(crate) becomes: String,
}

impl fmt::Display for Arrow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} | {} | {}", self.state, self.event, self.becomes)
    }
}

/// The rows of the table, each cell taken apart into what it stands for.
pub(crate) fn table() -> BTreeSet<Arrow> {
    let source = include_str!("../crates/core/src/engine/transition.rs");
    let rows = source.lines().filter_map(|line| line.strip_prefix("//! | ")).skip(2);
    let mut arrows = BTreeSet::new();
    for row in rows {
        let cells: Vec<_> = row.split('|').map(str::trim).collect();
        let [state, event, becomes, ..] = cells.as_slice() else { continue };
        for state in states(state) {
            for event in events(event) {
                let becomes = if *becomes == "the same" { vec![state] } else { states(becomes) };
                arrows.extend(becomes.into_iter().map(|becomes| Arrow {
                    state: state.to_owned(),
                    event: event.clone(),
                    becomes: becomes.to_owned(),
                }));
            }
        }
    }
    arrows
}

/// All states, as the table calls them.
pub(crate) const STATES: [&str; 6] =
    ["Pending", "Processing", "Undoing", "Processed", "Undone", "Error"];

fn states(cell: &str) -> Vec<&str> {
    match cell {
        "any" => STATES.to_vec(),
        "any but Pending" => STATES.into_iter().filter(|state| *state != "Pending").collect(),
        _ => cell.split(", ").collect(),
    }
}

/// `skip/complete, impossible` stands for two events, `any reply` for all eight.
fn events(cell: &str) -> Vec<String> {
    let (said, rest) =
        cell.split_once(", ").map_or((cell, None), |(said, rest)| (said, Some(rest)));
    let is_reply = |kind: &&str| kind.starts_with("step ") || kind.starts_with("undo ");
    let replies = KINDS.into_iter().filter(is_reply);
    let said: Vec<_> =
        if said == "any reply" { replies.collect() } else { said.split('/').collect() };
    let rest = rest.map(|rest| format!(", {rest}")).unwrap_or_default();
    said.into_iter().map(|said| format!("{said}{rest}")).collect()
}

/// The arrow that was walked, in the table's words. What is ignored has none.
pub(crate) fn arrow(before: &Task, event: &Event, answer: &Transition) -> Option<Arrow> {
    let state = before.process_state.to_string();
    match answer {
        Transition::Apply { task, .. } => {
            Some(Arrow { state, event: words(before, event, task), becomes: becomes(task) })
        }
        Transition::Illegal(_) => {
            Some(Arrow { state, event: "corrupt reply".to_owned(), becomes: "illegal".to_owned() })
        }
        Transition::Ignore { .. } => None,
    }
}

/// What kind of event it is, whatever comes of it.
pub(crate) fn kind(event: &Event) -> &'static str {
    match event {
        Event::Wake => "wake",
        Event::Swept => "swept",
        Event::AlertSent { .. } => "alert sent",
        Event::Replied(reply) => match (reply.action, &reply.outcome) {
            (Action::Do, Outcome::Completed { .. }) => "step completed",
            (Action::Do, Outcome::Failed { .. }) => "step failed",
            (Action::Do, Outcome::Deferred { .. }) => "step deferred",
            (Action::Do, Outcome::Unknown { .. }) => "step unknown",
            (Action::Undo, Outcome::Completed { .. }) => "undo completed",
            (Action::Undo, Outcome::Failed { .. }) => "undo failed",
            (Action::Undo, Outcome::Deferred { .. }) => "undo deferred",
            (Action::Undo, Outcome::Unknown { .. }) => "undo unknown",
        },
        Event::Answered { answer: Answer::Heartbeat, .. } => "heartbeat",
        Event::Answered { .. } => "answered",
        Event::Asked(Action::Do) => "asked for",
        Event::Asked(Action::Undo) => "asked to be undone",
        Event::ChildEnded { .. } => "its task ended",
        Event::Commanded(command) => match command.order {
            Order::Resubmit { .. } => "resubmit",
            Order::Skip { .. } => "skip",
            Order::Complete { .. } => "complete",
            Order::Undo => "undo",
            Order::Cancel => "cancel",
            Order::Pause => "pause",
            Order::Resume => "resume",
        },
    }
}

/// All kinds of events.
pub(crate) const KINDS: [&str; 23] = [
    "wake",
    "swept",
    "alert sent",
    "step completed",
    "step failed",
    "step deferred",
    "step unknown",
    "undo completed",
    "undo failed",
    "undo deferred",
    "undo unknown",
    "answered",
    "heartbeat",
    "asked for",
    "asked to be undone",
    "its task ended",
    "resubmit",
    "skip",
    "complete",
    "undo",
    "cancel",
    "pause",
    "resume",
];

fn becomes(after: &Task) -> String {
    after.process_state.to_string()
}

fn words(before: &Task, event: &Event, after: &Task) -> String {
    let impossible = if is_impossible(before, event, after) { ", impossible" } else { "" };
    let said = match event {
        Event::Replied(StepReply { step, action: Action::Do, .. })
        | Event::ChildEnded { step, .. }
            if has_run_after_all(before, after, step) =>
        {
            "step ran after all"
        }
        Event::Swept => swept(before, after),
        Event::Replied(reply) => {
            let now = after.progress(&reply.step, reply.action).map(|progress| &progress.state);
            match (now.is_some_and(StepState::is_failed), reply.action) {
                // An answer that is no failure fails too, if it is over a limit, or if the step
                // cannot be repeated.
                (true, Action::Do) => "step failed",
                (true, Action::Undo) => "undo failed",
                (false, _) => kind(event),
            }
        }
        Event::Commanded(_) if is_refused(after) => "command refused",
        Event::Answered { answer: Answer::Heartbeat, .. } => kind(event),
        // Whoever says it: what becomes of the step is the same.
        Event::Answered { step, .. } | Event::ChildEnded { step, .. } => {
            settled(before, after, step)
        }
        Event::Asked(Action::Do) => "wake",
        Event::Wake
        | Event::AlertSent { .. }
        | Event::Commanded(_)
        | Event::Asked(Action::Undo) => kind(event),
    };
    format!("{said}{impossible}")
}

/// Whether a step that nobody waited for any more turned out to have run, or perhaps, and no more came of
/// it.
fn has_run_after_all(before: &Task, after: &Task, step: &Part) -> bool {
    let (Some(old), Some(new)) = (before.record(step), after.record(step)) else { return false };
    let same = old.run.state == new.run.state && old.run.failure_count == new.run.failure_count;
    same && !old.run.state.is_running() && !old.run.may_have_run && new.run.may_have_run
}

/// What became of a step that someone else than an agent spoke of.
fn settled(before: &Task, after: &Task, step: &Part) -> &'static str {
    let record = after.record(step);
    let undoing = before.record(step).is_some_and(|record| record.undo.is_some());
    let failed = |progress: &Progress| progress.state.is_failed();
    match record.and_then(|record| record.undo.as_ref()).filter(|_| undoing) {
        Some(undo) if failed(undo) => "undo failed",
        Some(_) => "undo completed",
        None if record.is_some_and(|record| failed(&record.run)) => "step failed",
        None => "step completed",
    }
}

fn is_refused(after: &Task) -> bool {
    after.commands.last().is_some_and(|record| record.refused.is_some())
}

fn swept(before: &Task, after: &Task) -> &'static str {
    let reason = after.error.as_ref().or(after.undo_reason.as_ref());
    let changed = before.process_state != after.process_state;
    let overdue = reason.is_some_and(|reason| reason.contains("the task was not"));
    if before.process_state.is_final() {
        "swept, alert unsent"
    } else if changed && overdue {
        "swept, task past due"
    } else if changed {
        "swept, attempts used up"
    } else if after.failure_count > before.failure_count {
        "swept, step past due"
    } else {
        "swept, nothing past due"
    }
}

/// Whether something failed that no agent has seen.
fn is_impossible(before: &Task, event: &Event, after: &Task) -> bool {
    let count = |progress: Option<&Progress>| progress.map_or(0, |p| p.failure_count);
    let answered = |part: &Part, of| match event {
        Event::Replied(reply) => reply.step == *part && reply.action == of,
        Event::Answered { step, .. } => step == part && of == Action::Do,
        Event::ChildEnded { step, .. } => step == part,
        Event::Wake
        | Event::Swept
        | Event::Commanded(_)
        | Event::Asked(_)
        | Event::AlertSent { .. } => false,
    };
    let no_output = |task: &Task| task.error.as_ref().is_some_and(|e| e.starts_with("output: "));
    if no_output(after) && !no_output(before) {
        return true;
    }
    *event != Event::Swept
        && after.actions().any(|(step, action, progress)| {
            let old = before.progress(&step, action);
            let renewed = old.is_some_and(|old| old.state.attempt() < progress.state.attempt());
            progress.state.is_failed()
                && (progress.failure_count > count(old) || renewed)
                && !answered(&step, action)
        })
}
