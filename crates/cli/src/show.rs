//! `steward show`: where a task stands, everything that happened to it, and what comes next.

use anyhow::{Context, Result};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};
use steward_core::{
    command::{CommandId, CommandRecord},
    messages::Action,
    names::{Part, TaskId},
    ports::{Attempt, Document, DocumentKey, StateStore},
    task::{Progress, StepState, Task},
    view::TaskView,
};

use crate::{client::Deployment, table::table};

/// Prints a task and its timeline.
pub(crate) async fn show(id: &TaskId, as_json: bool, deployment: &Deployment) -> Result<()> {
    let store = deployment.store().await;
    let task = store.load(id).await?.with_context(|| format!("there is no task `{id}`"))?;
    let documents = store.all_documents(id).await?;
    let (lines, view) = (timeline(&task, &documents), TaskView::of(&task));
    if as_json {
        let mut shown = serde_json::to_value(view)?;
        if let Some(fields) = shown.as_object_mut() {
            fields.insert("timeline".to_owned(), json!(lines));
        }
        say!("{}", serde_json::to_string_pretty(&shown)?);
        return Ok(());
    }
    say!("{}", header(&view));
    let mut table = table(&["at", "step", "attempt", "what", "why", "verdict"]);
    for line in lines {
        table.add_row(line.cells());
    }
    say!("{table}\nnext: {}", view.next);
    Ok(())
}

/// The lines above the timeline.
fn header(view: &TaskView) -> String {
    let TaskView { task_id, process_state, workflow, version, .. } = view;
    let mut lines = vec![format!("{task_id}: {process_state} ({workflow} version {version})")];
    lines.extend(view.error.iter().map(|error| format!("error: {error}")));
    lines.extend(view.undo_reason.iter().map(|reason| format!("undone because: {reason}")));
    lines.extend(view.paused_at.iter().map(|at| format!("paused since {at}")));
    lines.push(format!(
        "complete by {}, revision {}, failures {}",
        view.complete_by, view.revision, view.failure_count
    ));
    let steps = view.steps.iter().map(|(name, step)| {
        let unknown = if step.may_have_run { " (may have run)" } else { "" };
        format!("{name} {}{unknown}", step.state)
    });
    let steps: Vec<_> = steps.collect();
    if !steps.is_empty() {
        lines.push(format!("steps: {}", steps.join(", ")));
    }
    lines.join("\n")
}

/// One line of a task's timeline. What does not apply is absent.
#[derive(Serialize)]
struct Line {
    /// When it happened; of what is under way, until when.
    at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    step: Option<Part>,
    #[serde(skip_serializing_if = "Option::is_none")]
    action: Option<Action>,
    #[serde(skip_serializing_if = "Option::is_none")]
    attempt: Option<u32>,
    what: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    by: Option<String>,
    /// Why an attempt failed, or what the operator gave as a reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
    /// What the recovery policy made of a failure, or the task of a command.
    #[serde(skip_serializing_if = "Option::is_none")]
    verdict: Option<String>,
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

    /// The line as a row of the table: an undo's attempt is `undo 2`.
    fn cells(self) -> [String; 6] {
        let attempt = match (self.attempt, self.action) {
            (Some(attempt), Some(Action::Undo)) => format!("undo {attempt}"),
            (Some(attempt), Some(Action::Do) | None) => attempt.to_string(),
            (None, _) => String::new(),
        };
        let what = match self.by {
            Some(by) => format!("{} by {by}", self.what),
            None => self.what,
        };
        let step = self.step.map(|step| step.to_string()).unwrap_or_default();
        let (why, verdict) = (self.why.unwrap_or_default(), self.verdict.unwrap_or_default());
        [format!("{:.3}", self.at), step, attempt, what, why, verdict]
    }
}

/// What happened, in order of time, and then what is going on.
fn timeline(task: &Task, documents: &[Document]) -> Vec<Line> {
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
    match &document.key {
        DocumentKey::Submission => Line::new(at, "submitted"),
        DocumentKey::Input(id) => Line::new(at, format!("input edited by {}", editor(task, id))),
        DocumentKey::Output(of) => {
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
    }
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
    Some(Line::of_attempt(at, &attempt, what))
}
