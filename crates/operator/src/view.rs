//! A task as people and clients see it: the state store's item with its words spelled out.

use std::collections::BTreeMap;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use steward_core::{
    engine::{notify::result_key, request::child_id},
    limits,
    model::{
        attempt::{Action, Attempt},
        command::CommandRecord,
        document::{Document, DocumentKey},
        names::{Part, TaskId, WorkflowName},
        step::{Progress, StepRecord, StepState},
        task::{ProcessState, Task},
    },
};

/// A task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the fields are those of `Task`")]
pub struct TaskView {
    pub task_id: TaskId,
    pub workflow: WorkflowName,
    pub version: u32,
    pub process_state: ProcessState,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub undo_reason: Option<String>,
    #[schemars(with = "Option<String>")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused_at: Option<Timestamp>,
    #[schemars(with = "String")]
    pub submitted_at: Timestamp,
    #[schemars(with = "String")]
    pub complete_by: Timestamp,
    #[schemars(with = "Option<String>")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub locked_by: Option<String>,
    pub failure_count: u32,
    pub revision: u64,
    /// The steps that have started, and their items.
    pub steps: BTreeMap<Part, StepView>,
    /// What operators asked for, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub commands: Vec<CommandRecord>,
    /// What comes next, for people.
    pub next: String,
    /// What it returned, where its documents were read too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
}

/// The document that holds what a task returned, if it is done.
#[must_use]
pub fn result_of(task: &Task) -> Option<DocumentKey> {
    (task.process_state == ProcessState::Processed).then(|| result_key(task))
}

/// The task that runs for a step of another.
#[must_use]
pub fn child_of(task: &Task, part: &Part) -> Option<TaskId> {
    child_id(task, part).ok()
}

/// A step of a task; while it is undone, its undo.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StepView {
    /// running, handed out, waiting, completed, failed, skipped; undoing, undo waiting, undone, undo failed, undo
    /// skipped.
    pub state: String,
    /// The newest attempt.
    pub attempt: u32,
    /// How many attempts failed since the policy began to count.
    pub failure_count: u32,
    /// By when the running attempt must be done, or when the next one may start.
    #[schemars(with = "Option<String>")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// Why the newest failure or deferral, where its document was read too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Whether an attempt that did not complete may have taken effect.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub may_have_run: bool,
    /// Of a step with items: how many there are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub items: Option<u32>,
}

impl StepView {
    fn of(record: &StepRecord) -> Self {
        let Progress { state, failure_count, .. } = record.undo.as_ref().unwrap_or(&record.run);
        let until = state.awaited_by().or(state.waits_until());
        Self {
            state: record.name().to_owned(),
            attempt: state.attempt(),
            failure_count: *failure_count,
            until,
            error: None,
            may_have_run: record.run.may_have_run,
            items: record.items.as_ref().map(|items| items.count),
        }
    }
}

/// Why the newest attempt at a part failed or was deferred, as far as these documents say; shortened.
#[must_use]
pub fn newest_reason(documents: &[Document], part: &Part, action: Action) -> Option<String> {
    let of_attempt = |document: &Document| match &document.key {
        // An attempt that was deferred may fail later on, and then that is the newer.
        DocumentKey::Failure(attempt) => Some((attempt.clone(), true)),
        DocumentKey::Deferral(attempt) => Some((attempt.clone(), false)),
        DocumentKey::Submission
        | DocumentKey::Input(_)
        | DocumentKey::Result(_)
        | DocumentKey::Output(_)
        | DocumentKey::ByHand(..)
        | DocumentKey::Claim(_) => None,
    };
    let of_part = documents.iter().filter_map(|document| {
        let (attempt, failed) = of_attempt(document)?;
        let is_of_part = attempt.step == *part && attempt.action == action;
        is_of_part.then_some(((attempt.number, failed), document))
    });
    let (_, newest) = of_part.max_by_key(|(newness, _)| *newness)?;
    let reason = newest.body.get("reason")?.as_str()?;
    Some(limits::shorten(reason, limits::ERROR_CHARS_MAX))
}

/// The documents that say why parts failed or wait; of so many parts at most.
#[must_use]
pub fn reason_keys(task: &Task) -> Vec<DocumentKey> {
    let troubled = task.actions().filter(|(_, _, progress)| {
        let state = &progress.state;
        state.attempt() > 0 && (state.is_failed() || state.waits_until().is_some())
    });
    let troubled = troubled.take(limits::REASONS_READ_MAX);
    let keys = troubled.flat_map(|(step, action, progress)| {
        let attempt = Attempt { step, action, number: progress.state.attempt() };
        [DocumentKey::Failure(attempt.clone()), DocumentKey::Deferral(attempt)]
    });
    keys.collect()
}

impl TaskView {
    /// The view with why its steps failed or wait, as far as these documents say.
    #[must_use]
    pub fn with_reasons(mut self, task: &Task, documents: &[Document]) -> Self {
        for (part, view) in &mut self.steps {
            let Some(record) = task.steps.get(&part.step) else { continue };
            let record = if part.item.is_some() { task.record(part) } else { Some(record) };
            let Some(record) = record else { continue };
            let (action, progress) = match &record.undo {
                Some(undo) => (Action::Undo, undo),
                None => (Action::Do, &record.run),
            };
            if !matches!(progress.state, StepState::Completed { .. }) {
                view.error = newest_reason(documents, part, action);
            }
        }
        self
    }

    /// The view of a task, as its item says it.
    #[must_use]
    pub fn of(task: &Task) -> Self {
        let whole = task.steps.iter().map(|(name, record)| (Part::from(name.clone()), record));
        let steps: BTreeMap<_, _> =
            whole.chain(task.parts()).map(|(part, record)| (part, StepView::of(record))).collect();
        Self {
            task_id: task.task_id.clone(),
            workflow: task.workflow.clone(),
            version: task.version,
            process_state: task.process_state,
            error: task.error.clone(),
            undo_reason: task.undo_reason.clone(),
            paused_at: task.paused_at,
            submitted_at: task.submitted_at,
            complete_by: task.complete_by,
            ended_at: task.ended_at,
            locked_by: task.locked_by.clone(),
            failure_count: task.failure_count,
            revision: task.revision,
            next: next(task, &steps),
            steps,
            commands: task.commands.clone(),
            output: None,
        }
    }
}

/// What comes next: the task's own moves, or the operator's.
fn next(task: &Task, steps: &BTreeMap<Part, StepView>) -> String {
    match task.process_state {
        ProcessState::Processed | ProcessState::Undone => {
            return "nothing: it has ended".to_owned();
        }
        ProcessState::Error if task.undo_reason.is_some() => {
            return "an operator: resubmit, skip or complete the undo that failed".to_owned();
        }
        ProcessState::Error => {
            return "an operator: resubmit, skip or complete what failed, or undo".to_owned();
        }
        ProcessState::Pending | ProcessState::Processing | ProcessState::Undoing => {}
    }
    if task.paused_at.is_some() {
        return "an operator: resume".to_owned();
    }
    let moves = steps.iter().filter_map(|(name, step)| {
        let until = step.until?;
        Some(match step.state.as_str() {
            "running" | "undoing" => format!("{name} {}, to be done by {until}", step.state),
            "handed out" => format!("{name}: an answer by {until}"),
            _ => format!("{name} again at {until}"),
        })
    });
    let moves: Vec<_> = moves.collect();
    if moves.is_empty() { "the scheduler takes it up".to_owned() } else { moves.join("; ") }
}
