//! What happened to a task, in order of time, and what is under way: from its record and the documents
//! beside it.

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;
use steward_core::model::{
    attempt::{Action, Attempt, AttemptTimes},
    command::{CommandId, CommandRecord},
    document::{Document, DocumentKey},
    names::Part,
    step::{Progress, StepState},
    task::Task,
};

/// One line of a task's timeline. What does not apply is absent.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Line {
    /// When it happened; of what is under way, until when.
    pub at: Timestamp,
    /// The step, or its item.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<Part>,
    /// Whether it was done or undone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action: Option<Action>,
    /// Which attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// What happened.
    pub what: String,
    /// Who asked for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Why an attempt failed, or what the operator gave as a reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// What the recovery policy made of a failure, or the task of a command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verdict: Option<String>,
    /// When the attempt got how far.
    #[serde(flatten)]
    pub times: AttemptTimes,
    /// Whether it is still to come.
    #[serde(skip)]
    pub is_open: bool,
}

impl Line {
    fn new(at: Timestamp, what: impl Into<String>) -> Self {
        let what = what.into();
        Self {
            at,
            step: None,
            action: None,
            attempt: None,
            what,
            by: None,
            why: None,
            verdict: None,
            times: AttemptTimes::default(),
            is_open: false,
        }
    }

    fn of_attempt(at: Timestamp, of: &Attempt, what: impl Into<String>) -> Self {
        let (step, action, attempt) = (Some(of.step.clone()), Some(of.action), Some(of.number));
        Self { step, action, attempt, ..Self::new(at, what) }
    }

    fn of_command(record: &CommandRecord) -> Self {
        let CommandRecord { command, by, why, at, refused, .. } = record;
        let verdict = refused
            .as_ref()
            .map_or_else(|| "carried out".to_owned(), |reason| format!("refused: {reason}"));
        let (by, why, verdict) = (Some(by.clone()), Some(why.clone()), Some(verdict));
        Self { by, why, verdict, ..Self::new(*at, command) }
    }

    /// The attempt as people say it: an undo's is `undo 2`.
    #[must_use]
    pub fn attempt(&self) -> String {
        match (self.attempt, self.action) {
            (Some(attempt), Some(Action::Undo)) => format!("undo {attempt}"),
            (Some(attempt), Some(Action::Do) | None) => attempt.to_string(),
            (None, _) => String::new(),
        }
    }

    /// What happened, and at whose wish.
    #[must_use]
    pub fn said(&self) -> String {
        match &self.by {
            Some(by) => format!("{} by {by}", self.what),
            None => self.what.clone(),
        }
    }
}

/// What happened, in order of time, and then what is going on.
#[must_use]
pub fn timeline(task: &Task, documents: &[Document]) -> Vec<Line> {
    let mut lines: Vec<_> = task.commands.iter().map(Line::of_command).collect();
    lines.extend(documents.iter().map(|document| recorded(task, document)));
    lines.extend(task.ended_at.map(|at| Line::new(at, task.process_state.to_string())));
    // Stable: what a command brought about comes after it, and the end after what ended it.
    lines.sort_by_key(|line| line.at);
    lines
        .extend(task.actions().filter_map(|(step, action, progress)| open(step, action, progress)));
    lines
}

/// What a document says of what happened.
fn recorded(task: &Task, document: &Document) -> Line {
    let at = document.at;
    let line = match &document.key {
        DocumentKey::Submission => Line::new(at, "submitted"),
        DocumentKey::Input(id) => Line::new(at, format!("input edited by {}", editor(task, id))),
        DocumentKey::Output(of) | DocumentKey::ByHand(of, _) => {
            let what = match of.action {
                Action::Do => "completed",
                Action::Undo => "undone",
            };
            Line::of_attempt(at, of, what)
        }
        DocumentKey::Result(_) => Line::new(at, "returned its output"),
        DocumentKey::Claim(of) => Line::of_attempt(at, of, "about to call the service"),
        DocumentKey::Failure(of) => told(at, of, "failed", &document.body),
        DocumentKey::Deferral(of) => told(at, of, "deferred", &document.body),
    };
    Line { times: document.times, ..line }
}

/// An attempt that came to nothing: why, and what the policy made of it.
fn told(at: Timestamp, of: &Attempt, what: &str, body: &Value) -> Line {
    let said = |field| body.get(field).and_then(Value::as_str).map(str::to_owned);
    let (why, verdict) = (said("reason"), said("verdict"));
    Line { why, verdict, ..Line::of_attempt(at, of, what) }
}

/// Who edited the input: only the newest commands are kept on a task.
fn editor<'a>(task: &'a Task, id: &'a CommandId) -> &'a str {
    let record = task.commands.iter().find(|record| record.id == *id);
    record.map_or(id.as_str(), |record| &record.by)
}

/// What is under way, and until when.
fn open(step: Part, action: Action, progress: &Progress) -> Option<Line> {
    let (number, at, what) = match &progress.state {
        StepState::Running { attempt, complete_by } => {
            (*attempt, *complete_by, "running, must be done by then")
        }
        StepState::Waiting { attempt, until, .. } => {
            (*attempt, *until, "waiting, next attempt from then on")
        }
        StepState::HandedOut { attempt, complete_by, .. } => {
            (*attempt, *complete_by, "handed out, to be answered by then")
        }
        StepState::Each
        | StepState::Completed { .. }
        | StepState::Failed { .. }
        | StepState::Skipped { .. } => return None,
    };
    let attempt = Attempt { step, action, number };
    Some(Line { is_open: true, ..Line::of_attempt(at, &attempt, what) })
}
