//! The history of a task in chronological order, followed by its open attempts. Made from the task's item and its
//! documents.

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;
use steward_core::model::{
    attempt::{Action, AttemptId, AttemptTimes},
    command::{Caller, CommandId, CommandRecord},
    document::{Document, DocumentKey},
    names::Part,
    step::{Progress, StepState},
    task::Task,
};

use crate::caller_text::described;

/// One entry of a task's timeline. Fields that do not apply are absent.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TimelineEntry {
    /// When it happened. For an open attempt: its deadline, or the start of the next attempt.
    pub at: Timestamp,
    /// The step or item.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<Part>,
    /// Whether the attempt was at the step or at its undo.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action: Option<Action>,
    /// The number of the attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// What happened.
    pub what: String,
    /// The operator who sent the command, as stated by the sender.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Who sent the command, as far as it is verified.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub caller: Option<Caller>,
    /// Why the attempt failed, or the operator's reason for the command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// What the recovery policy decided after a failure, or whether a command was carried out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verdict: Option<String>,
    /// When the attempt was queued, called and answered.
    #[serde(flatten)]
    pub times: AttemptTimes,
    /// Whether `at` is in the future: the attempt has not ended.
    #[serde(skip)]
    pub is_open: bool,
}

impl TimelineEntry {
    fn new(at: Timestamp, what: impl Into<String>) -> Self {
        let what = what.into();
        Self {
            at,
            step: None,
            action: None,
            attempt: None,
            what,
            by: None,
            caller: None,
            why: None,
            verdict: None,
            times: AttemptTimes::default(),
            is_open: false,
        }
    }

    fn of_attempt(at: Timestamp, attempt: &AttemptId, what: impl Into<String>) -> Self {
        Self {
            step: Some(attempt.step.clone()),
            action: Some(attempt.action),
            attempt: Some(attempt.number),
            ..Self::new(at, what)
        }
    }

    fn of_command(record: &CommandRecord) -> Self {
        let CommandRecord { command, by, caller, why, at, refused, .. } = record;
        let verdict = refused
            .as_ref()
            .map_or_else(|| "carried out".to_owned(), |reason| format!("refused: {reason}"));
        let (by, why, verdict) = (Some(by.clone()), Some(why.clone()), Some(verdict));
        Self { by, caller: Some(caller.clone()), why, verdict, ..Self::new(*at, command) }
    }

    /// The attempt for a table cell: `2`, or `undo 2` for an attempt at an undo. Empty if there is none.
    #[must_use]
    pub fn attempt(&self) -> String {
        match (self.attempt, self.action) {
            (Some(attempt), Some(Action::Undo)) => format!("undo {attempt}"),
            (Some(attempt), Some(Action::Do) | None) => attempt.to_string(),
            (None, _) => String::new(),
        }
    }

    /// What happened, which operator requested it, and who sent the command.
    #[must_use]
    pub fn description(&self) -> String {
        match self.by.as_ref().zip(self.caller.as_ref()) {
            Some((by, caller)) => format!("{} by {}", self.what, described(by, caller)),
            None => self.what.clone(),
        }
    }
}

/// The past entries in chronological order, then one entry for each open attempt. `documents` are the task's.
#[must_use]
pub fn timeline(task: &Task, documents: &[Document]) -> Vec<TimelineEntry> {
    let mut lines: Vec<_> = task.commands.iter().map(TimelineEntry::of_command).collect();
    lines.extend(documents.iter().filter_map(|document| past_entry(task, document)));
    lines.extend(task.ended_at.map(|at| TimelineEntry::new(at, task.process_state.to_string())));
    // The sort is stable: effects of a command stay after it, and the end of the task stays last.
    lines.sort_by_key(|line| line.at);
    lines.extend(
        task.started_actions()
            .filter_map(|(step, action, progress)| open_entry(step, action, progress)),
    );
    lines
}

/// The entry for a document. `None` if it does not record an event.
fn past_entry(task: &Task, document: &Document) -> Option<TimelineEntry> {
    let at = document.at;
    let line = match &document.key {
        DocumentKey::Submission => TimelineEntry::new(
            at,
            match &task.rerun {
                Some(rerun) => format!("submitted as a rerun of {}", rerun.of),
                None => "submitted".to_owned(),
            },
        ),
        DocumentKey::Input(id) => {
            TimelineEntry::new(at, format!("input edited by {}", editor(task, id)))
        }
        DocumentKey::Output(attempt) | DocumentKey::OperatorOutput(attempt, _) => {
            let what = match attempt.action {
                Action::Do => "completed",
                Action::Undo => "undone",
            };
            TimelineEntry::of_attempt(at, attempt, what)
        }
        DocumentKey::Items { .. } => return None,
        DocumentKey::Result(_) => TimelineEntry::new(at, "returned its output"),
        DocumentKey::Claim(attempt) => {
            TimelineEntry::of_attempt(at, attempt, "about to call the service")
        }
        DocumentKey::Failure(attempt) => unsuccessful(at, attempt, "failed", &document.body),
        DocumentKey::Deferral(attempt) => unsuccessful(at, attempt, "deferred", &document.body),
    };
    Some(TimelineEntry { times: document.times, ..line })
}

/// An attempt that failed or was deferred, with the reason and the verdict of the recovery policy.
fn unsuccessful(at: Timestamp, attempt: &AttemptId, what: &str, body: &Value) -> TimelineEntry {
    let text = |field| body.get(field).and_then(Value::as_str).map(str::to_owned);
    let (why, verdict) = (text("reason"), text("verdict"));
    TimelineEntry { why, verdict, ..TimelineEntry::of_attempt(at, attempt, what) }
}

/// The operator who edited the input with this command. A task keeps only its newest commands: for an older one, the
/// command's id.
fn editor<'a>(task: &'a Task, id: &'a CommandId) -> &'a str {
    let record = task.commands.iter().find(|record| record.id == *id);
    record.map_or(id.as_str(), |record| &record.by)
}

/// The entry for an open attempt; `None` if nothing is open.
fn open_entry(step: Part, action: Action, progress: &Progress) -> Option<TimelineEntry> {
    let (number, at, what) = match &progress.state {
        StepState::Running { attempt, complete_by } => {
            (*attempt, *complete_by, "running; deadline")
        }
        StepState::Waiting { until, .. } => {
            (progress.state.attempt_count(), *until, "waiting; next attempt")
        }
        StepState::AwaitingCallback { attempt, complete_by, .. } => {
            (*attempt, *complete_by, "awaiting callback; deadline")
        }
        StepState::RunningItems
        | StepState::Completed { .. }
        | StepState::Failed { .. }
        | StepState::Skipped { .. } => return None,
    };
    let attempt = AttemptId { step, action, number };
    Some(TimelineEntry { is_open: true, ..TimelineEntry::of_attempt(at, &attempt, what) })
}
