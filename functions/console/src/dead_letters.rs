//! Dead-letter queues: how many messages they contain, summaries of the messages with the causes of failure, and sending
//! messages back to their queues. Viewing loses no message, but counts as a receive: the page of a queue therefore does not
//! refresh itself.

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
use futures_util::{StreamExt, TryStreamExt, future::try_join_all, stream};
use jiff::Timestamp;
use serde::Deserialize;
use steward_aws::dead_letters::{
    DeadLetter, DeadLetterQueue, DeadLettersError, QueueContents, RedriveRequest,
};
use steward_core::model::{
    names::{Part, TaskId},
    task::{ProcessState, Task},
};
use steward_operator::{
    dead_letter::{MessageSummary, summarize},
    mask,
};
use steward_runtime::{
    agents,
    dispatch::REFUSAL_ATTRIBUTE,
    ports::{Clock, Definitions, PortError, Ports, Queue, StateStore},
};

use crate::{
    caller::ConsoleCaller,
    console::Console,
    page::{Failure, Frame, render, required_reason},
};

/// The number of queues whose messages are counted concurrently.
const QUEUES_AT_ONCE: usize = 16;

/// The largest number of messages on a page.
const SHOWN_MAX: usize = 50;

/// The largest number of messages that one request sends back.
const REDRIVE_MAX: usize = 1_000;

/// The time limit for sending messages back in one request, below the timeout of the function.
const REDRIVE_TIMEOUT: Duration = Duration::from_secs(20);

impl From<DeadLettersError> for Failure {
    fn from(error: DeadLettersError) -> Self {
        match error {
            DeadLettersError::Port(error) => Self::Unavailable(error),
            DeadLettersError::NoQueue(name) | DeadLettersError::NotADeadLetterQueue(name) => {
                Self::NotFound(format!("dead-letter queue {name}"))
            }
            error @ (DeadLettersError::HasRedrivePolicy { .. }
            | DeadLettersError::UnknownSource
            | DeadLettersError::ArrivedLater) => Self::BadRequest(error.to_string()),
        }
    }
}

#[derive(Template)]
#[template(path = "dead_letters.html")]
struct QueueListPage {
    frame: Frame,
    queues: Vec<QueueRow>,
}

impl QueueListPage {
    fn is_clear(&self) -> bool {
        self.queues.iter().all(|queue| queue.holds.waiting + queue.holds.in_flight == 0)
    }
}

/// A dead-letter queue and its message counts.
struct QueueRow {
    queue: DeadLetterQueue,
    holds: QueueContents,
}

pub(crate) async fn list(
    State(console): State<Console>,
    Extension(caller): Extension<ConsoleCaller>,
    uri: Uri,
) -> Result<Response, Failure> {
    let watched = watched(&console).await?;
    let queues = console.ports.channel().dead_letter_queues(&watched).await?.into_iter();
    let rows = queues.map(|queue| async move {
        let holds = queue.contents().await?;
        Ok::<_, Failure>(QueueRow { queue, holds })
    });
    let queues = stream::iter(rows).buffered(QUEUES_AT_ONCE).try_collect().await?;
    let frame = Frame::new("Dead letters", "dead-letters", &caller).refreshed(&uri);
    Ok(render(&QueueListPage { frame, queues }))
}

/// The names or URLs of the deployment's dead-letter queues, and of the queue of rejected submissions.
async fn watched(console: &Console) -> Result<Vec<String>, PortError> {
    let agents = agents::registered(console.ports.store()).await?;
    let channel = console.ports.channel();
    let mut queues = agents::dead_letter_queues(channel, &agents);
    queues.push(channel.rejected_queue().to_owned());
    Ok(queues)
}

/// The deployment's dead-letter queue with this name.
async fn queue(console: &Console, name: &str) -> Result<DeadLetterQueue, Failure> {
    let watched = watched(console).await?;
    Ok(console.ports.channel().dead_letter_queue(&watched, name).await?)
}

/// The result of sending messages back, in the query string after the redirect.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct RedriveResult {
    /// How many messages were sent; `None` if the page was not opened by a redirect.
    sent: Option<usize>,
    /// How many could not be sent.
    #[serde(default)]
    kept: usize,
    /// How many were sent but could not be deleted.
    #[serde(default)]
    doubled: usize,
}

#[derive(Template)]
#[template(path = "dead_letter_queue.html")]
struct QueuePage {
    frame: Frame,
    queue: DeadLetterQueue,
    holds: QueueContents,
    redrive_result: RedriveResult,
    letters: Vec<LetterRow>,
}

impl QueuePage {
    /// The approximate number of messages that are not shown.
    fn more(&self) -> u64 {
        self.holds.waiting.saturating_sub(self.letters.len() as u64)
    }
}

/// A dead letter, as the page shows it.
struct LetterRow {
    letter: DeadLetter,
    what: String,
    /// The task's id, and its state if the task exists.
    task: Option<(TaskId, Option<ProcessState>)>,
    step: Option<Part>,
    why: Vec<String>,
    /// The masked input of a submission.
    submitted_input: Option<String>,
}

pub(crate) async fn show(
    State(console): State<Console>,
    Extension(caller): Extension<ConsoleCaller>,
    Path(name): Path<String>,
    Query(redrive_result): Query<RedriveResult>,
) -> Result<Response, Failure> {
    let queue = queue(&console, &name).await?;
    let holds = queue.contents().await?;
    let letters = match holds.receives_max {
        // Viewing would use up receives. The page says so.
        Some(_) => Vec::new(),
        None => queue.peek(SHOWN_MAX).await?,
    };
    let letters = letter_rows(&console, letters).await?;
    let frame = Frame::new(name, "dead-letters", &caller);
    Ok(render(&QueuePage { frame, queue, holds, redrive_result, letters }))
}

async fn letter_rows(
    console: &Console,
    letters: Vec<DeadLetter>,
) -> Result<Vec<LetterRow>, PortError> {
    let summarized = |letter: DeadLetter| {
        let source = letter.source().and_then(|name| console.ports.channel().queue(name));
        let summary = source.as_ref().map(|queue| summarize(queue, letter.body()));
        (letter, source, summary.unwrap_or_default())
    };
    let letters: Vec<_> = letters.into_iter().map(summarized).collect();
    let ids: BTreeSet<_> =
        letters.iter().filter_map(|(.., summary)| summary.task_id.clone()).collect();
    let tasks = tasks(console, ids).await?;
    let mut rows = Vec::new();
    for (letter, source, summary) in letters {
        let task = summary.task_id.as_ref().and_then(|id| tasks.get(id));
        let why = causes(&letter, source.as_ref(), &summary, task, console.ports.clock().now());
        let submitted_input = submitted_input(console, &summary).await?;
        let state = task.map(|task| task.process_state);
        let MessageSummary { what, task_id, step, .. } = summary;
        let what = if what.is_empty() { "message".to_owned() } else { what };
        let task = task_id.map(|id| (id, state));
        rows.push(LetterRow { letter, what, task, step, why, submitted_input });
    }
    Ok(rows)
}

/// The existing tasks among these ids.
async fn tasks(
    console: &Console,
    ids: BTreeSet<TaskId>,
) -> Result<BTreeMap<TaskId, Task>, PortError> {
    let store = console.ports.store();
    let tasks = try_join_all(ids.iter().map(|id| store.load(id))).await?;
    Ok(tasks.into_iter().flatten().map(|task| (task.task_id.clone(), task)).collect())
}

/// The known causes why a message is in the dead-letter queue, and whether sending it back would help.
fn causes(
    letter: &DeadLetter,
    source: Option<&Queue>,
    summary: &MessageSummary,
    task: Option<&Task>,
    now: Timestamp,
) -> Vec<String> {
    let mut why = Vec::new();
    if letter.source().is_none() {
        why.push(
            "several queues use this dead-letter queue, and the message does not name its own"
                .to_owned(),
        );
    }
    // The attributes that EventBridge adds to an event that it could not deliver.
    let errors =
        letter.attributes().filter(|(name, _)| matches!(*name, "ERROR_CODE" | REFUSAL_ATTRIBUTE));
    why.extend(errors.map(|(_, text)| text.to_owned()));
    why.extend(summary.problem.iter().map(|problem| format!("the message is invalid: {problem}")));
    let is_rejected = letter.attributes().any(|(name, _)| name == REFUSAL_ATTRIBUTE);
    match (source, &summary.task_id, task) {
        (Some(Queue::Submissions), _, Some(_)) if !is_rejected => {
            why.push(
                "the task exists; if the submission is sent back, it is accepted again".to_owned(),
            );
        }
        (
            Some(Queue::Scheduler | Queue::Commands | Queue::Events | Queue::Agent(_)),
            Some(_),
            None,
        ) => {
            why.push("the task does not exist, or has expired".to_owned());
        }
        (Some(Queue::Submissions), ..)
        | (
            Some(Queue::Scheduler | Queue::Commands | Queue::Events | Queue::Agent(_)),
            Some(_),
            Some(_),
        )
        | (Some(Queue::Scheduler | Queue::Commands | Queue::Events | Queue::Agent(_)), None, _)
        | (Some(Queue::Rejected | Queue::Client(_) | Queue::Sweeps) | None, _, _) => {}
    }
    if summary.complete_by.is_some_and(|complete_by| complete_by < now) {
        why.push(
            "its deadline has passed; if the request is sent back, the agent drops it".to_owned(),
        );
    }
    if why.is_empty() {
        why.push(
            "unknown; the log of the function that reads the queue has an entry for each receive"
                .to_owned(),
        );
    }
    why
}

/// The masked input of a submission; `None` if the definition of its workflow, which says what to mask, does not exist.
async fn submitted_input(
    console: &Console,
    summary: &MessageSummary,
) -> Result<Option<String>, PortError> {
    let Some(submission) = &summary.submission else { return Ok(None) };
    let definitions = console.ports.definitions();
    let workflow = definitions.workflow(&submission.workflow, submission.version).await?;
    let Some(workflow) = workflow else { return Ok(None) };
    Ok(serde_json::to_string_pretty(&mask::apply(&workflow.mask, &submission.input)).ok())
}

/// The form that sends messages back.
#[derive(Debug, Deserialize)]
pub(crate) struct RedriveForm {
    #[serde(default)]
    reason: String,
}

pub(crate) async fn redrive(
    State(console): State<Console>,
    Extension(caller): Extension<ConsoleCaller>,
    Path(name): Path<String>,
    Form(form): Form<RedriveForm>,
) -> Result<Response, Failure> {
    let why = required_reason(&form.reason)?;
    let queue = queue(&console, &name).await?;
    let redrive = RedriveRequest { max: REDRIVE_MAX, to: None, by: caller.name, why };
    let (start, now) = (Instant::now(), console.ports.clock().now());
    let goes_on = |_| start.elapsed() < REDRIVE_TIMEOUT;
    let redriven = Box::pin(queue.redrive(console.ports.bus(), now, &redrive, goes_on)).await?;
    let (sent, doubled) = (redriven.count(), redriven.duplicated);
    let kept: usize = redriven.reasons.values().sum();
    let url = format!("/console/dead-letters/{name}?sent={sent}&kept={kept}&doubled={doubled}");
    Ok(Redirect::to(&url).into_response())
}
