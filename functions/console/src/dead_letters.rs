//! Dead letters: which queues hold some, what they are about and why they are there, and back to where
//! they came from. To look neither loses nor uses up a message, but each look counts as a receive: so
//! these pages of a queue never refresh themselves.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use askama::Template;
use axum::{
    Extension, Form,
    extract::{Path, Query, State},
    http::Uri,
    response::{IntoResponse, Redirect, Response},
};
use futures_util::future::try_join_all;
use jiff::Timestamp;
use serde::Deserialize;
use steward_aws::dead_letters::{DeadLetter, DeadLetterQueue, DeadLettersError, Holds, Redrive};
use steward_core::model::{
    names::{Part, TaskId},
    task::Task,
};
use steward_operator::dead_letter::{About, about};
use steward_runtime::ports::{Clock, Definitions, PortError, Ports, Queue, StateStore};

use crate::{
    Console,
    access::Caller,
    page::{Failure, Frame, page, reason},
};

/// Messages that a page shows.
const SHOWN_MAX: usize = 50;

/// Messages that one request sends back.
const REDRIVE_MAX: usize = 1_000;

/// How long a request may take to send back: well within what the function has.
const REDRIVE_WITHIN: Duration = Duration::from_secs(20);

impl From<DeadLettersError> for Failure {
    fn from(error: DeadLettersError) -> Self {
        match error {
            DeadLettersError::Port(error) => Self::Unavailable(error),
            DeadLettersError::NoQueue(name) | DeadLettersError::NotOne(name) => {
                Self::NotFound(format!("dead-letter queue {name}"))
            }
            error @ (DeadLettersError::UsedUp { .. } | DeadLettersError::NoSource) => {
                Self::BadRequest(error.to_string())
            }
        }
    }
}

#[derive(Template)]
#[template(path = "dead_letters.html")]
struct List {
    frame: Frame,
    queues: Vec<Counted>,
}

impl List {
    fn is_clear(&self) -> bool {
        self.queues.iter().all(|queue| queue.holds.waiting + queue.holds.in_hand == 0)
    }
}

/// A queue, and what it holds.
struct Counted {
    queue: DeadLetterQueue,
    holds: Holds,
}

pub(crate) async fn list(
    State(console): State<Console>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
) -> Result<Response, Failure> {
    let mut queues = Vec::new();
    for queue in console.ports.channel().dead_letter_queues().await? {
        let holds = queue.holds().await?;
        queues.push(Counted { queue, holds });
    }
    let frame = Frame::new("Dead letters", "dead-letters", &caller).refreshed(&uri);
    Ok(page(&List { frame, queues }))
}

/// What the last attempt to send back came to.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Outcome {
    sent: Option<usize>,
    #[serde(default)]
    kept: usize,
    #[serde(default)]
    doubled: usize,
}

#[derive(Template)]
#[template(path = "dead_letter_queue.html")]
struct Look {
    frame: Frame,
    queue: DeadLetterQueue,
    holds: Holds,
    outcome: Outcome,
    letters: Vec<Shown>,
}

impl Look {
    /// About how many messages there are beside those shown.
    fn more(&self) -> u64 {
        self.holds.waiting.saturating_sub(self.letters.len() as u64)
    }
}

/// A dead letter on the page.
struct Shown {
    letter: DeadLetter,
    what: String,
    task: Option<(TaskId, Option<String>)>,
    step: Option<Part>,
    why: Vec<String>,
    /// What was submitted, as far as it may be shown.
    submitted: Option<String>,
}

pub(crate) async fn look(
    State(console): State<Console>,
    Extension(caller): Extension<Caller>,
    Path(name): Path<String>,
    Query(outcome): Query<Outcome>,
) -> Result<Response, Failure> {
    let queue = console.ports.channel().dead_letter_queue(&name).await?;
    let holds = queue.holds().await?;
    let letters = match holds.receives_max {
        // The page says so.
        Some(_) => Vec::new(),
        None => queue.look(SHOWN_MAX).await?,
    };
    let letters = shown(&console, letters).await?;
    let frame = Frame::new(name, "dead-letters", &caller);
    Ok(page(&Look { frame, queue, holds, outcome, letters }))
}

async fn shown(console: &Console, letters: Vec<DeadLetter>) -> Result<Vec<Shown>, PortError> {
    let read = |letter: DeadLetter| {
        let source = letter.source().and_then(|name| console.ports.channel().queue(name));
        let read = source.as_ref().map(|queue| about(queue, letter.body()));
        (letter, source, read.unwrap_or_default())
    };
    let letters: Vec<_> = letters.into_iter().map(read).collect();
    let ids: BTreeSet<_> = letters.iter().filter_map(|(.., about)| about.task_id.clone()).collect();
    let tasks = tasks(console, ids).await?;
    let mut rows = Vec::new();
    for (letter, source, about) in letters {
        let task = about.task_id.as_ref().and_then(|id| tasks.get(id));
        let why = why(&letter, source.as_ref(), &about, task, console.ports.clock().now());
        let submitted = submitted(console, &about).await?;
        let state = task.map(|task| task.process_state.to_string());
        let About { what, task_id, step, .. } = about;
        let what = if what.is_empty() { "message".to_owned() } else { what };
        let task = task_id.map(|id| (id, state));
        rows.push(Shown { letter, what, task, step, why, submitted });
    }
    Ok(rows)
}

/// Those of these tasks that there are.
async fn tasks(
    console: &Console,
    ids: BTreeSet<TaskId>,
) -> Result<BTreeMap<TaskId, Task>, PortError> {
    let store = console.ports.store();
    let tasks = try_join_all(ids.iter().map(|id| store.load(id))).await?;
    Ok(tasks.into_iter().flatten().map(|task| (task.task_id.clone(), task)).collect())
}

/// Why a message is here, as far as it can be seen, and whether it would help to send it back.
fn why(
    letter: &DeadLetter,
    source: Option<&Queue>,
    about: &About,
    task: Option<&Task>,
    now: Timestamp,
) -> Vec<String> {
    let mut why = Vec::new();
    if letter.source().is_none() {
        why.push("several queues send here, and nothing says which this one was in".to_owned());
    }
    // What EventBridge says of an event that it could not deliver.
    let said = letter.attributes().filter(|(name, _)| matches!(*name, "ERROR_CODE" | "reason"));
    why.extend(said.map(|(_, text)| text.to_owned()));
    why.extend(about.problem.iter().map(|problem| format!("it cannot be read: {problem}")));
    match (source, &about.task_id, task) {
        (Some(Queue::Submissions), _, Some(_)) => {
            why.push("the task is recorded: sent back, it is accepted again".to_owned());
        }
        (Some(Queue::Scheduler | Queue::Agent(_)), Some(_), None) => {
            why.push("there is no such task, or it has expired".to_owned());
        }
        _ => {}
    }
    if about.complete_by.is_some_and(|complete_by| complete_by < now) {
        why.push("its time is over: sent back, the agent drops it".to_owned());
    }
    if why.is_empty() {
        why.push(
            "not known here: the log of whoever reads its queue has a line for each receive"
                .to_owned(),
        );
    }
    why
}

/// What was submitted, for people, if its workflow says what of it to mask.
async fn submitted(console: &Console, about: &About) -> Result<Option<String>, PortError> {
    let Some(submission) = &about.submission else { return Ok(None) };
    let definitions = console.ports.definitions();
    let workflow = definitions.workflow(&submission.workflow, submission.version).await?;
    let Some(workflow) = workflow else { return Ok(None) };
    Ok(serde_json::to_string_pretty(&workflow.mask.over(&submission.input)).ok())
}

#[derive(Debug, Deserialize)]
pub(crate) struct Asked {
    #[serde(default)]
    reason: String,
}

pub(crate) async fn redrive(
    State(console): State<Console>,
    Extension(caller): Extension<Caller>,
    Path(name): Path<String>,
    Form(asked): Form<Asked>,
) -> Result<Response, Failure> {
    let why = reason(&asked.reason)?;
    let queue = console.ports.channel().dead_letter_queue(&name).await?;
    let asked = Redrive { max: REDRIVE_MAX, to: None, by: caller.name, why };
    let (began, now) = (Instant::now(), console.ports.clock().now());
    let goes_on = |_| began.elapsed() < REDRIVE_WITHIN;
    let redriven = Box::pin(queue.redrive(console.ports.bus(), now, &asked, goes_on)).await?;
    let (sent, doubled) = (redriven.count(), redriven.doubled);
    let kept: usize = redriven.reasons.values().sum();
    let address = format!("/console/dead-letters/{name}?sent={sent}&kept={kept}&doubled={doubled}");
    Ok(Redirect::to(&address).into_response())
}
