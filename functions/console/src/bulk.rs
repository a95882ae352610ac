//! One order for many tasks: picked by a filter, seen, and then commanded with a reason. The run is
//! recorded before its commands are sent, and its page tells of each task what became of its command; if
//! this dies in between, the page has a button that sends again to those without an answer, which is
//! harmless: a task carries a command out once.

use std::{cmp::Ordering, collections::BTreeMap};

use askama::Template;
use axum::{
    Extension, Form,
    extract::{Path, Query, State},
    http::Uri,
    response::{IntoResponse, Redirect, Response},
};
use jiff::SignedDuration;
use serde::Deserialize;
use steward_core::{
    limits::BULK_TASKS_MAX,
    model::{
        command::{CommandId, Order},
        names::{Part, TaskId},
        task::Task,
    },
};
use steward_runtime::{
    bulk::Bulk,
    ports::{Clock, PortError, Ports, chain},
};
use uuid::Uuid;

use crate::{
    Console,
    access::Caller,
    filter::{Filter, Found, Place},
    page::{Failure, Frame, page, reason},
};

/// How long a run's page refreshes itself while an answer is missing, or a task goes on. Later the answer
/// is lost, or the scheduler stands still.
const REFRESHED_FOR: SignedDuration = SignedDuration::from_mins(10);

/// Tasks looked at for those that a filter finds.
const LOOK_AT: usize = 10_000;

/// What can be asked of many tasks, and what it does to each.
const ACTIONS: [(&str, &str); 6] = [
    ("resubmit", "try again what failed or waits, with its attempts renewed"),
    ("skip", "go on without the step that the filter names, where it failed or waits"),
    ("undo", "undo the whole task"),
    ("cancel", "stop the task where it stands: nothing more is sent, nothing is undone"),
    ("pause", "start nothing more, until it is resumed"),
    ("resume", "go on after a pause"),
];

/// The order of an action.
fn order(action: &str, step: Option<Part>) -> Result<Order, Failure> {
    let did_not_run = false;
    Ok(match (action, step) {
        ("resubmit", step) => Order::Resubmit { step, input: None, did_not_run },
        ("skip", step @ Some(_)) => Order::Skip { step, did_not_run },
        ("skip", None) => {
            return Err(Failure::BadRequest("say which step to skip: filter by it".to_owned()));
        }
        ("undo", _) => Order::Undo,
        ("cancel", _) => Order::Cancel,
        ("pause", _) => Order::Pause,
        ("resume", _) => Order::Resume,
        (other, _) => {
            return Err(Failure::BadRequest(format!("there is no action `{other}`")));
        }
    })
}

/// What is asked for beside the filter.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Beside {
    action: String,
    before: String,
}

#[derive(Template)]
#[template(path = "bulk_confirm.html")]
struct Confirm {
    frame: Frame,
    filter: Filter,
    /// The id of the run that this page would make: the same, however often its form is sent.
    id: String,
    action: String,
    tasks: Vec<Task>,
    looked_at: usize,
    /// The address of the page for what follows.
    next: Option<String>,
}

impl Confirm {
    /// The filter, as an address has it.
    fn query(&self) -> String {
        self.filter.query(&[])
    }

    /// What can be asked of them, and which is chosen.
    fn actions(&self) -> impl Iterator<Item = (&'static str, &'static str, bool)> {
        let possible = |action| action != "skip" || self.filter.step.is_some();
        let actions = ACTIONS.into_iter().filter(move |(action, _)| possible(*action));
        actions.map(|(action, effect)| (action, effect, action == self.action))
    }
}

pub(crate) async fn confirm(
    State(console): State<Console>,
    Extension(caller): Extension<Caller>,
    Query(Beside { action, before }): Query<Beside>,
    uri: Uri,
) -> Result<Response, Failure> {
    let filter = Filter::of(&uri)?;
    let from = (!before.is_empty()).then(|| before.parse::<Place>().map_err(Failure::BadRequest));
    let found = filter.find(console.ports.store(), from.transpose()?, BULK_TASKS_MAX, LOOK_AT);
    let Found { tasks, looked_at, next } = Box::pin(found).await?;
    let next =
        next.map(|next| filter.query(&[("action", action.clone()), ("before", next.to_string())]));
    let (frame, id) =
        (Frame::new("Act on many tasks", "tasks", &caller), Uuid::new_v4().to_string());
    Ok(page(&Confirm { frame, filter, id, action, tasks, looked_at, next }))
}

pub(crate) async fn act(
    State(console): State<Console>,
    Extension(caller): Extension<Caller>,
    Form(form): Form<Vec<(String, String)>>,
) -> Result<Response, Failure> {
    let run = asked(&console, caller, &form)?;
    // The same form again, by an impatient hand: the run is there.
    if run.record(&*console.ports).await? {
        tracing::info!(bulk_id = %run.id, by = run.by, tasks = run.tasks.len(), "run recorded");
        return Ok(sent(&console, &run, &run.tasks).await);
    }
    Ok(Redirect::to(&address(&run.id)).into_response())
}

/// What a form asks for.
fn asked(console: &Console, caller: Caller, form: &[(String, String)]) -> Result<Bulk, Failure> {
    let said = |name: &str| {
        let field = form.iter().find(|(field, _)| field == name);
        field.map_or("", |(_, value)| value.as_str())
    };
    let invalid = |error: &dyn std::fmt::Display| Failure::BadRequest(error.to_string());
    let step = Some(said("step")).filter(|step| !step.is_empty());
    let step: Option<Part> = step.map(str::parse).transpose().map_err(|error| invalid(&error))?;
    let tasks = form.iter().filter(|(name, _)| name == "task");
    let tasks: Result<Vec<TaskId>, _> = tasks.map(|(_, id)| id.parse()).collect();
    let run = Bulk {
        id: said("id").parse().map_err(|error| invalid(&error))?,
        order: order(said("action"), step)?,
        by: caller.name,
        why: reason(said("reason"))?,
        at: console.ports.clock().now(),
        found_by: said("found_by").to_owned(),
        tasks: tasks.map_err(|error| invalid(&error))?,
    };
    run.checked().map_err(|error| invalid(&error))
}

/// Sends the commands, and goes to the run's page, which says how many could not be sent.
async fn sent(console: &Console, run: &Bulk, tasks: &[TaskId]) -> Response {
    let sent = run.send(&*console.ports, tasks).await;
    let errors: Vec<PortError> = sent.into_iter().filter_map(Result::err).collect();
    if let Some(error) = errors.first() {
        let (bulk_id, unsent) = (&run.id, errors.len());
        tracing::warn!(%bulk_id, unsent, error = chain(error), "commands not sent");
    }
    let unsent =
        if errors.is_empty() { String::new() } else { format!("?unsent={}", errors.len()) };
    Redirect::to(&format!("{}{unsent}", address(&run.id))).into_response()
}

fn address(id: &CommandId) -> String {
    format!("/console/bulk/{id}")
}

#[derive(Debug, Default, Deserialize)]
pub(crate) struct Unsent {
    #[serde(default)]
    unsent: usize,
}

#[derive(Template)]
#[template(path = "bulk.html")]
struct Progress {
    frame: Frame,
    run: Bulk,
    unsent: usize,
    rows: Vec<Row>,
}

impl Progress {
    fn count(&self, fate: &Fate) -> usize {
        let same = |row: &&Row| std::mem::discriminant(&row.fate) == std::mem::discriminant(fate);
        self.rows.iter().filter(same).count()
    }

    fn done(&self) -> usize {
        self.count(&Fate::Done)
    }

    fn refused(&self) -> usize {
        self.count(&Fate::Refused(String::new()))
    }

    fn unanswered(&self) -> usize {
        self.count(&Fate::Unanswered)
    }

    /// How many tasks are in each state now.
    fn states(&self) -> BTreeMap<&str, usize> {
        let mut states = BTreeMap::new();
        for state in self.rows.iter().filter_map(|row| row.state.as_deref()) {
            *states.entry(state).or_default() += 1;
        }
        states
    }

    fn gone(&self) -> usize {
        self.count(&Fate::Gone)
    }
}

/// A task of a run.
struct Row {
    id: TaskId,
    state: Option<String>,
    fate: Fate,
    /// Whether it was carried out, and what came of it is still to be seen.
    goes_on: bool,
}

/// What became of a task's command. What needs a look comes first.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fate {
    Refused(String),
    Gone,
    Unanswered,
    Done,
}

pub(crate) async fn progress(
    State(console): State<Console>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    Query(Unsent { unsent }): Query<Unsent>,
    uri: Uri,
) -> Result<Response, Failure> {
    let run = read(&console, &id).await?;
    let rows = rows(&console, &run).await?;
    let frame = Frame::new(title(&run), "tasks", &caller);
    let is_young = frame.now.duration_since(run.at) < REFRESHED_FOR;
    let waits = is_young && rows.iter().any(|row| row.goes_on || row.fate == Fate::Unanswered);
    let frame = if waits { frame.refreshed(&uri) } else { frame };
    Ok(page(&Progress { frame, run, unsent, rows }))
}

fn title(run: &Bulk) -> String {
    let tasks = if run.tasks.len() == 1 { "task" } else { "tasks" };
    format!("{} of {} {tasks}", run.order.describe(&[]), run.tasks.len())
}

pub(crate) async fn send_again(
    State(console): State<Console>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> Result<Response, Failure> {
    let run = read(&console, &id).await?;
    let rows = rows(&console, &run).await?.into_iter();
    let unanswered = rows.filter(|row| row.fate == Fate::Unanswered).map(|row| row.id);
    let unanswered: Vec<_> = unanswered.collect();
    let (bulk_id, by, tasks) = (&run.id, caller.name, unanswered.len());
    tracing::info!(%bulk_id, by, tasks, "run sent again");
    Ok(sent(&console, &run, &unanswered).await)
}

async fn read(console: &Console, id: &str) -> Result<Bulk, Failure> {
    let missing = || Failure::NotFound(format!("run {id}, or it has expired"));
    let id = id.parse().map_err(|_| missing())?;
    Bulk::read(&*console.ports, &id).await?.ok_or_else(missing)
}

/// What became of each task's command.
async fn rows(console: &Console, run: &Bulk) -> Result<Vec<Row>, PortError> {
    let tasks = Box::pin(run.load(&*console.ports)).await?;
    let row = |(id, task): (&TaskId, Option<Task>)| {
        let fate = match task.as_ref().map(|task| run.answer(task)) {
            None => Fate::Gone,
            Some(None) => Fate::Unanswered,
            Some(Some(record)) => record.refused.clone().map_or(Fate::Done, Fate::Refused),
        };
        let moves = |task: &Task| !task.process_state.is_final() && task.paused_at.is_none();
        let goes_on = fate == Fate::Done && task.as_ref().is_some_and(moves);
        let state = task.map(|task| task.process_state.to_string());
        Row { id: id.clone(), state, fate, goes_on }
    };
    let mut rows: Vec<_> = run.tasks.iter().zip(tasks).map(row).collect();
    rows.sort_by(|a, b| match (&a.fate, &b.fate) {
        (Fate::Refused(_), Fate::Refused(_)) => Ordering::Equal,
        (a, b) => a.cmp(b),
    });
    Ok(rows)
}
