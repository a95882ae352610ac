//! The rows of the table at the top of `transition.rs`: reads them, and assigns each decision to its row. Tests check that
//! the stories cover every row, and that every decision of a story has a row.

use std::{collections::BTreeSet, fmt};

use steward_core::{
    engine::{decision::Transition, event::Event},
    model::{
        attempt::Action,
        command::{CommandAction, ReceivedCommand},
        earlier_key::{EarlierKey, Ran},
        messages::{CallbackOutcome, ChildOutcome, ReplyOutcome, StepReply},
        names::Part,
        step::{Progress, StepRecord, StepState},
        task::Task,
    },
};

/// A row of the table: state, event, next state.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TransitionRow {
    state: String,
    event: String,
    next: String,
}

impl fmt::Display for TransitionRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} | {} | {}", self.state, self.event, self.next)
    }
}

/// The rows of the table. A cell that stands for several states or events is expanded to one row for each.
pub(crate) fn documented_rows() -> BTreeSet<TransitionRow> {
    let source = include_str!("../crates/core/src/engine/transition.rs");
    let lines = source.lines().filter_map(|line| line.strip_prefix("//! | ")).skip(2);
    let mut rows = BTreeSet::new();
    for line in lines {
        let cells: Vec<_> = line.split('|').map(str::trim).collect();
        let [state, event, next, ..] = cells.as_slice() else { continue };
        for state in states(state) {
            for event in events(event) {
                let next = if *next == "the same" { vec![state] } else { states(next) };
                rows.extend(next.into_iter().map(|next| TransitionRow {
                    state: state.to_owned(),
                    event: event.clone(),
                    next: next.to_owned(),
                }));
            }
        }
    }
    rows
}

/// The names of all states in the table.
pub(crate) const STATES: [&str; 6] =
    ["Pending", "Processing", "Undoing", "Processed", "Undone", "Error"];

fn states(cell: &str) -> Vec<&str> {
    match cell {
        "any" => STATES.to_vec(),
        "any but Pending" => STATES.into_iter().filter(|state| *state != "Pending").collect(),
        _ => cell.split(", ").collect(),
    }
}

/// Expands a cell: `skip/complete, impossible` stands for two events, `any reply` for eight.
fn events(cell: &str) -> Vec<String> {
    let (names, detail) =
        cell.split_once(", ").map_or((cell, None), |(names, detail)| (names, Some(detail)));
    let is_reply = |kind: &&str| kind.starts_with("step ") || kind.starts_with("undo ");
    let expand = |name| match name {
        "any reply" => KINDS.into_iter().filter(is_reply).collect(),
        _ => vec![name],
    };
    let detail = detail.map(|detail| format!(", {detail}")).unwrap_or_default();
    names.split('/').flat_map(expand).map(|name| format!("{name}{detail}")).collect()
}

/// The row of a decision. An ignored event has none, nor has a child's report that changes nothing but its revision or a doubt.
pub(crate) fn row_of(before: &Task, event: &Event, answer: &Transition) -> Option<TransitionRow> {
    let state = before.process_state.to_string();
    match answer {
        Transition::Apply { task, .. } if only_records_report(before, event, task) => None,
        Transition::Apply { task, .. } => Some(TransitionRow {
            state,
            event: event_in_table(before, event, task),
            next: task.process_state.to_string(),
        }),
        Transition::Illegal(_) => Some(TransitionRow {
            state,
            event: "corrupt reply".to_owned(),
            next: "illegal".to_owned(),
        }),
        Transition::Ignore { .. } => None,
    }
}

/// Whether the task only keeps the revision of a child's report, or that the child has no effect after all.
fn only_records_report(before: &Task, event: &Event, after: &Task) -> bool {
    let Event::ChildEnded { step, outcome, .. } = event else { return false };
    let (Some(old), Some(new)) = (before.record(step), after.record(step)) else { return false };
    let has_no_effect =
        matches!(outcome, ChildOutcome::Undone { .. } | ChildOutcome::Refused { .. });
    let (old_doubt, new_doubt) = (old.forward.may_have_run, new.forward.may_have_run);
    let same = |(a, b): (&EarlierKey, &EarlierKey)| (a.ran, &a.denied) == (b.ran, &b.denied);
    before.process_state == after.process_state
        && before.error == after.error
        && (&old.forward.state, &old.undo) == (&new.forward.state, &new.undo)
        && (new_doubt == old_doubt || old_doubt && has_no_effect)
        && old.earlier.len() == new.earlier.len()
        && old.earlier.iter().zip(&new.earlier).all(same)
}

/// The kind of an event, independent of the decision.
pub(crate) fn kind(event: &Event) -> &'static str {
    match event {
        Event::Wake => "wake",
        Event::Swept => "swept",
        Event::AlertPublished { .. } => "alert sent",
        Event::ReplyReceived(reply) => match (reply.action, &reply.outcome) {
            (Action::Do, ReplyOutcome::Completed { .. }) => "step completed",
            (Action::Do, ReplyOutcome::Failed { .. }) => "step failed",
            (Action::Do, ReplyOutcome::Deferred { .. }) => "step deferred",
            (Action::Do, ReplyOutcome::Unknown { .. }) => "step unknown",
            (Action::Undo, ReplyOutcome::Completed { .. }) => "undo completed",
            (Action::Undo, ReplyOutcome::Failed { .. }) => "undo failed",
            (Action::Undo, ReplyOutcome::Deferred { .. }) => "undo deferred",
            (Action::Undo, ReplyOutcome::Unknown { .. }) => "undo unknown",
        },
        Event::CallbackReceived { outcome: CallbackOutcome::Heartbeat, .. } => "heartbeat",
        Event::CallbackReceived { .. } => "answered",
        Event::ParentRequested(Action::Do) => "asked for",
        Event::ParentRequested(Action::Undo) => "asked to be undone",
        Event::ChildEnded { .. } => "its task ended",
        Event::CommandReceived(ReceivedCommand { command, .. }) => match command.action {
            CommandAction::Resubmit { .. } => "resubmit",
            CommandAction::Skip { .. } => "skip",
            CommandAction::Complete { .. } => "complete",
            CommandAction::Approve { .. } | CommandAction::Reject { .. } => "answered",
            CommandAction::Undo => "undo",
            CommandAction::Cancel => "cancel",
            CommandAction::Resolve => "resolve",
            CommandAction::Pause => "pause",
            CommandAction::Resume => "resume",
            CommandAction::Rerun { .. } => "rerun",
        },
    }
}

/// All kinds of events.
pub(crate) const KINDS: [&str; 25] = [
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
    "resolve",
    "pause",
    "resume",
    "rerun",
];

/// The name of an event in the table, which depends on the decision.
fn event_in_table(before: &Task, event: &Event, after: &Task) -> String {
    let impossible = if is_impossible(before, event, after) { ", impossible" } else { "" };
    let name = match event {
        Event::ReplyReceived(StepReply { step, action: Action::Do, .. })
        | Event::CallbackReceived { step, .. }
        | Event::ChildEnded { step, .. }
            if has_run_after_all(before, after, step) =>
        {
            "step ran after all"
        }
        Event::Swept => swept(before, after),
        Event::ReplyReceived(reply) => {
            let now = after.progress(&reply.step, reply.action).map(|progress| &progress.state);
            match (now.is_some_and(StepState::is_failed), reply.action) {
                // A reply that reports no failure makes the step fail too, if it is over a limit or if
                // the step must not be repeated.
                (true, Action::Do) => "step failed",
                (true, Action::Undo) => "undo failed",
                (false, _) => kind(event),
            }
        }
        Event::CommandReceived(_) if is_refused(after) => "command refused",
        // An operator decides a step in the same way as a callback.
        Event::CommandReceived(command) if let Some(step) = answered_part(before, command) => {
            outcome_of(before, after, &step)
        }
        Event::CallbackReceived { outcome: CallbackOutcome::Heartbeat, .. } => kind(event),
        // Callbacks and child tasks complete or fail a step in the same way as an agent.
        Event::CallbackReceived { step, .. } | Event::ChildEnded { step, .. } => {
            outcome_of(before, after, step)
        }
        Event::ParentRequested(Action::Do) => "wake",
        Event::Wake
        | Event::AlertPublished { .. }
        | Event::CommandReceived(_)
        | Event::ParentRequested(Action::Undo) => kind(event),
    };
    format!("{name}{impossible}")
}

/// The part whose callback an operator answers.
fn answered_part(before: &Task, received: &ReceivedCommand) -> Option<Part> {
    let step = match &received.command.action {
        CommandAction::Approve { step, .. } | CommandAction::Reject { step } => step,
        CommandAction::Resubmit { .. }
        | CommandAction::Skip { .. }
        | CommandAction::Complete { .. }
        | CommandAction::Undo
        | CommandAction::Cancel
        | CommandAction::Resolve
        | CommandAction::Pause
        | CommandAction::Resume
        | CommandAction::Rerun { .. } => return None,
    };
    let awaiting = |(part, _, progress): (Part, Action, &Progress)| {
        progress.state.awaiting_callback().map(|_| part)
    };
    step.clone().or_else(|| before.started_actions().find_map(awaiting))
}

/// Whether a report only records that a step, which was not awaited any more, took effect or may have.
fn has_run_after_all(before: &Task, after: &Task, step: &Part) -> bool {
    let (Some(old), Some(new)) = (before.record(step), after.record(step)) else { return false };
    let same = old.forward.state == new.forward.state
        && old.forward.failure_count == new.forward.failure_count;
    let known = |record: &StepRecord| -> usize {
        record
            .earlier
            .iter()
            .map(|key| usize::from(key.ran > Ran::No) + usize::from(key.ran == Ran::Yes))
            .sum()
    };
    let is_news = !old.forward.may_have_run && new.forward.may_have_run;
    let has_completed =
        old.forward.state.is_failed() && matches!(new.forward.state, StepState::Completed { .. });
    // A child has had one more effect, and not after its undo.
    let stops = old.undo == new.undo
        && before.process_state != after.process_state
        && new.forward.child_revision > old.forward.child_revision;
    known(old) < known(new) || (same || has_completed) && is_news || same && stops
}

/// The outcome of a step that a callback or a child task reported.
fn outcome_of(before: &Task, after: &Task, step: &Part) -> &'static str {
    let record = after.record(step);
    let undoing = before.record(step).is_some_and(|record| record.undo.is_some());
    let failed = |progress: &Progress| progress.state.is_failed();
    match record.and_then(|record| record.undo.as_ref()).filter(|_| undoing) {
        Some(undo) if failed(undo) => "undo failed",
        Some(_) => "undo completed",
        None if record.is_some_and(|record| failed(&record.forward)) => "step failed",
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
    if changed && overdue {
        "swept, task past due"
    } else if changed {
        "swept, attempts used up"
    } else if after.failure_count > before.failure_count {
        "swept, step past due"
    } else {
        "swept, nothing past due"
    }
}

/// Whether a part failed before its request was sent.
fn is_impossible(before: &Task, event: &Event, after: &Task) -> bool {
    let count = |progress: Option<&Progress>| progress.map_or(0, |p| p.failure_count);
    let answered = |part: &Part, of| match event {
        Event::ReplyReceived(reply) => reply.step == *part && reply.action == of,
        Event::CallbackReceived { step, .. } => step == part && of == Action::Do,
        Event::ChildEnded { step, .. } => step == part,
        Event::CommandReceived(command) => answered_part(before, command).as_ref() == Some(part),
        Event::Wake | Event::Swept | Event::ParentRequested(_) | Event::AlertPublished { .. } => {
            false
        }
    };
    let no_output = |task: &Task| task.error.as_ref().is_some_and(|e| e.starts_with("output: "));
    if no_output(after) && !no_output(before) {
        return true;
    }
    *event != Event::Swept
        && after.started_actions().any(|(step, action, progress)| {
            let old = before.progress(&step, action);
            let renewed =
                old.is_some_and(|old| old.state.attempt_count() < progress.state.attempt_count());
            progress.state.is_failed()
                && (progress.failure_count > count(old) || renewed)
                && !answered(&step, action)
        })
}
