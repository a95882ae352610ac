//! Bulk commands: one command for many tasks, which the operator selects with a filter and confirms with a reason.
//!
//! A bulk run is recorded before its commands are sent. The page of the run shows the result of each task. If the function
//! dies before all commands are sent, the operator can resend them from that page. That is harmless: a task carries a
//! command out once.

use std::cmp::Ordering;

use askama::Template;
use axum::{
    Extension, Form,
    extract::{Path, Query, State},
    http::Uri,
    response::{IntoResponse, Redirect, Response},
};
use jiff::SignedDuration;
use serde::Deserialize;
use steward_aws::store::{PageCursor, SearchResult, TaskFilter};
use steward_core::{
    limits::BULK_TASKS_MAX,
    model::{
        command::{CommandAction, CommandId},
        names::{Part, TaskId},
        task::{ProcessState, Task},
    },
};
use steward_runtime::{
    bulk::BulkCommand,
    ports::{Clock, PortError, Ports, error_chain},
};
use uuid::Uuid;

use crate::{
    caller::ConsoleCaller,
    console::Console,
    filter::{self, query_of},
    page::{Failure, Frame, render, required_reason},
};

/// How long the page of a run refreshes itself while commands are pending or tasks continue. After that time a command was
/// probably lost, or the scheduler does not run.
const REFRESH_PERIOD: SignedDuration = SignedDuration::from_mins(10);

/// The largest number of tasks that are examined for a run.
const EXAMINED_MAX: usize = 10_000;

/// The commands for many tasks, with their effect on each task.
const ACTIONS: [(&str, &str); 7] = [
    ("resubmit", "retry failed steps with new attempts, and end the pause before a retry"),
    (
        "skip",
        "continue without the step of the filter, or without its undo, unless it is running or awaits a callback",
    ),
    ("undo", "undo the whole task"),
    (
        "cancel",
        "stop the task and put it in Error: nothing more is sent, nothing is undone; resubmit or undo continue from there",
    ),
    ("resolve", "record that the Error is settled: the task is reported no more, and expires"),
    ("pause", "start nothing more until the task is resumed"),
    ("resume", "continue a paused task"),
];

/// The action that `name` names.
fn action_named(name: &str, step: Option<Part>) -> Result<CommandAction, Failure> {
    let did_not_run = false;
    Ok(match (name, step) {
        ("resubmit", step) => CommandAction::Resubmit { step, input: None, did_not_run },
        ("skip", step @ Some(_)) => CommandAction::Skip { step, did_not_run },
        ("skip", None) => {
            return Err(Failure::BadRequest(
                "no step to skip: filter the tasks by a step first".to_owned(),
            ));
        }
        ("undo", _) => CommandAction::Undo,
        ("cancel", _) => CommandAction::Cancel,
        ("resolve", _) => CommandAction::Resolve,
        ("pause", _) => CommandAction::Pause,
        ("resume", _) => CommandAction::Resume,
        (other, _) => {
            return Err(Failure::BadRequest(format!("there is no command `{other}`")));
        }
    })
}

/// The query parameters beside the filter.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct BulkQuery {
    action: String,
    before: String,
}

#[derive(Template)]
#[template(path = "bulk_form.html")]
struct BulkFormPage {
    frame: Frame,
    filter: TaskFilter,
    /// The id of the run that the form creates. Sending the form twice creates one run.
    id: String,
    action: String,
    tasks: Vec<Task>,
    examined: usize,
    /// The query string of the page for the following tasks.
    next: Option<String>,
}

impl BulkFormPage {
    /// The filter as a query string.
    fn query(&self) -> String {
        query_of(&self.filter, &[])
    }

    /// The possible commands: name, effect, and whether it is selected.
    fn actions(&self) -> impl Iterator<Item = (&'static str, &'static str, bool)> {
        let possible = |action| action != "skip" || self.filter.step.is_some();
        let actions = ACTIONS.into_iter().filter(move |(action, _)| possible(*action));
        actions.map(|(action, effect)| (action, effect, action == self.action))
    }
}

pub(crate) async fn show_form(
    State(console): State<Console>,
    Extension(caller): Extension<ConsoleCaller>,
    Query(BulkQuery { action, before }): Query<BulkQuery>,
    uri: Uri,
) -> Result<Response, Failure> {
    let filter = filter::of(&uri)?;
    let from =
        (!before.is_empty()).then(|| before.parse::<PageCursor>().map_err(Failure::BadRequest));
    let found = filter.find(console.ports.store(), from.transpose()?, BULK_TASKS_MAX, EXAMINED_MAX);
    let SearchResult { tasks, examined, next } = Box::pin(found).await?;
    let next = next
        .map(|next| query_of(&filter, &[("action", action.clone()), ("before", next.to_string())]));
    let (frame, id) =
        (Frame::new("Act on many tasks", "tasks", &caller), Uuid::new_v4().to_string());
    Ok(render(&BulkFormPage { frame, filter, id, action, tasks, examined, next }))
}

pub(crate) async fn create_run(
    State(console): State<Console>,
    Extension(caller): Extension<ConsoleCaller>,
    Form(form): Form<Vec<(String, String)>>,
) -> Result<Response, Failure> {
    let run = run_of_form(&console, caller, &form)?;
    // If the form was sent before, the run exists and its commands were sent.
    if run.record(&*console.ports).await? {
        tracing::info!(bulk_id = %run.id, by = run.by, tasks = run.tasks.len(), "bulk run recorded");
        return Ok(send_and_redirect(&console, &run, &run.tasks).await);
    }
    Ok(Redirect::to(&run_url(&run.id)).into_response())
}

/// The run that a form describes.
fn run_of_form(
    console: &Console,
    caller: ConsoleCaller,
    form: &[(String, String)],
) -> Result<BulkCommand, Failure> {
    let field = |name: &str| {
        let found = form.iter().find(|(other, _)| other == name);
        found.map_or("", |(_, value)| value.as_str())
    };
    let invalid = |error: &dyn std::fmt::Display| Failure::BadRequest(error.to_string());
    let step = Some(field("step")).filter(|step| !step.is_empty());
    let step: Option<Part> = step.map(str::parse).transpose().map_err(|error| invalid(&error))?;
    let tasks = form.iter().filter(|(name, _)| name == "task");
    let tasks: Result<Vec<TaskId>, _> = tasks.map(|(_, id)| id.parse()).collect();
    let run = BulkCommand {
        id: field("id").parse().map_err(|error| invalid(&error))?,
        action: action_named(field("action"), step)?,
        by: caller.name,
        why: required_reason(field("reason"))?,
        at: console.ports.clock().now(),
        found_by: field("found_by").to_owned(),
        tasks: tasks.map_err(|error| invalid(&error))?,
    };
    run.validated().map_err(|error| invalid(&error))
}

/// Sends the commands and redirects to the page of the run, which shows how many could not be sent.
async fn send_and_redirect(console: &Console, run: &BulkCommand, tasks: &[TaskId]) -> Response {
    let sent = run.send(&*console.ports, tasks).await;
    let errors: Vec<PortError> = sent.into_iter().filter_map(Result::err).collect();
    if let Some(error) = errors.first() {
        let (bulk_id, unsent) = (&run.id, errors.len());
        tracing::warn!(%bulk_id, unsent, error = error_chain(error), "commands of a bulk run not sent");
    }
    let unsent =
        if errors.is_empty() { String::new() } else { format!("?unsent={}", errors.len()) };
    Redirect::to(&format!("{}{unsent}", run_url(&run.id))).into_response()
}

fn run_url(id: &CommandId) -> String {
    format!("/console/bulk/{id}")
}

/// The query parameters of the page of a run.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct RunQuery {
    /// How many commands could not be sent.
    #[serde(default)]
    unsent: usize,
}

#[derive(Template)]
#[template(path = "bulk_run.html")]
struct BulkRunPage {
    frame: Frame,
    run: BulkCommand,
    unsent: usize,
    rows: Vec<BulkRow>,
}

impl BulkRunPage {
    fn count(&self, result: &CommandResult) -> usize {
        let same =
            |row: &&BulkRow| std::mem::discriminant(&row.result) == std::mem::discriminant(result);
        self.rows.iter().filter(same).count()
    }

    fn done(&self) -> usize {
        self.count(&CommandResult::CarriedOut)
    }

    fn refused(&self) -> usize {
        self.count(&CommandResult::Refused(String::new()))
    }

    fn pending(&self) -> usize {
        self.count(&CommandResult::Pending)
    }

    /// The current states of the tasks, with the number of tasks in each.
    fn states(&self) -> Vec<(ProcessState, usize)> {
        let count = |state| self.rows.iter().filter(|row| row.state == Some(state)).count();
        let counts = ProcessState::ALL.into_iter().map(|state| (state, count(state)));
        counts.filter(|(_, count)| *count > 0).collect()
    }

    fn not_found(&self) -> usize {
        self.count(&CommandResult::TaskNotFound)
    }
}

/// A task of a run, as a row of the table.
struct BulkRow {
    id: TaskId,
    /// The current state; `None` if the task does not exist.
    state: Option<ProcessState>,
    result: CommandResult,
    /// Whether the command was carried out and the task continues.
    goes_on: bool,
}

/// The result of a task's command. The order is that of the table: problems first.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum CommandResult {
    Refused(String),
    TaskNotFound,
    Pending,
    CarriedOut,
}

pub(crate) async fn show_run(
    State(console): State<Console>,
    Extension(caller): Extension<ConsoleCaller>,
    Path(id): Path<String>,
    Query(RunQuery { unsent }): Query<RunQuery>,
    uri: Uri,
) -> Result<Response, Failure> {
    let run = read(&console, &id).await?;
    let rows = rows(&console, &run).await?;
    let frame = Frame::new(title(&run), "tasks", &caller);
    let is_young = frame.now.duration_since(run.at) < REFRESH_PERIOD;
    let is_refreshed =
        is_young && rows.iter().any(|row| row.goes_on || row.result == CommandResult::Pending);
    let frame = if is_refreshed { frame.refreshed(&uri) } else { frame };
    Ok(render(&BulkRunPage { frame, run, unsent, rows }))
}

fn title(run: &BulkCommand) -> String {
    let tasks = if run.tasks.len() == 1 { "task" } else { "tasks" };
    format!("{} of {} {tasks}", run.action.describe(&[]), run.tasks.len())
}

pub(crate) async fn resend(
    State(console): State<Console>,
    Extension(caller): Extension<ConsoleCaller>,
    Path(id): Path<String>,
) -> Result<Response, Failure> {
    // The console vouches for the name of the person who sends now, not for a name that it reads.
    let run = BulkCommand { by: caller.name, ..read(&console, &id).await? };
    let rows = rows(&console, &run).await?.into_iter();
    let pending = rows.filter(|row| row.result == CommandResult::Pending).map(|row| row.id);
    let pending: Vec<_> = pending.collect();
    let (bulk_id, by, tasks) = (&run.id, &run.by, pending.len());
    tracing::info!(%bulk_id, by, tasks, "commands of a bulk run sent again");
    Ok(send_and_redirect(&console, &run, &pending).await)
}

async fn read(console: &Console, id: &str) -> Result<BulkCommand, Failure> {
    let missing = || Failure::NotFound(format!("bulk run {id} (it may have expired)"));
    let id = id.parse().map_err(|_| missing())?;
    BulkCommand::read(&*console.ports, &id).await?.ok_or_else(missing)
}

/// The rows of the table, problems first.
async fn rows(console: &Console, run: &BulkCommand) -> Result<Vec<BulkRow>, PortError> {
    let tasks = Box::pin(run.load(&*console.ports)).await?;
    let row = |(id, task): (&TaskId, Option<Task>)| {
        let result = match task.as_ref().map(|task| run.answer(task)) {
            None => CommandResult::TaskNotFound,
            Some(None) => CommandResult::Pending,
            Some(Some(record)) => {
                record.refused.clone().map_or(CommandResult::CarriedOut, CommandResult::Refused)
            }
        };
        let moves = |task: &Task| !task.process_state.has_stopped() && task.paused_at.is_none();
        let goes_on = result == CommandResult::CarriedOut && task.as_ref().is_some_and(moves);
        let state = task.map(|task| task.process_state);
        BulkRow { id: id.clone(), state, result, goes_on }
    };
    let mut rows: Vec<_> = run.tasks.iter().zip(tasks).map(row).collect();
    rows.sort_by(|a, b| match (&a.result, &b.result) {
        (CommandResult::Refused(_), CommandResult::Refused(_)) => Ordering::Equal,
        (a, b) => a.cmp(b),
    });
    Ok(rows)
}
