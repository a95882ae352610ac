//! The steps that await a callback: which task waits for whom, and until when.

use askama::Template;
use axum::{
    Extension,
    extract::{Query, State},
    http::Uri,
    response::Response,
};
use jiff::Timestamp;
use serde::Deserialize;
use steward_aws::store::{PageCursor, SearchResult, TaskFilter};
use steward_core::{
    definition::plan::Plan,
    engine::{
        awaited_callback::callback_from,
        documents::{LoadedDocuments, NeededDocuments},
    },
    model::{names::Part, task::Task},
};
use steward_operator::masked_documents::{HiddenValues, masked_document};
use steward_runtime::ports::{Definitions, Ports, StateStore};

use crate::{
    caller::ConsoleCaller,
    console::Console,
    page::{Failure, Frame, render},
};

/// The largest number of tasks on a page.
const PAGE_SIZE: usize = 25;

/// The largest number of tasks that are examined for a page.
const EXAMINED_MAX: usize = 1_000;

/// The largest number of rows for one task.
const PARTS_MAX: usize = 10;

/// The query parameters.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct CallbacksQuery {
    before: String,
}

#[derive(Template)]
#[template(path = "callbacks.html")]
struct CallbacksPage {
    frame: Frame,
    rows: Vec<AwaitedCallback>,
    examined: usize,
    is_first: bool,
    next: Option<String>,
}

/// A step or item that awaits a callback.
struct AwaitedCallback {
    task: Task,
    part: Part,
    /// The deadline of the callback or of its next heartbeat.
    until: Timestamp,
    /// Who is to answer; empty if the definition does not say it.
    from: String,
    /// How many further parts of the task await a callback and are not shown.
    more: usize,
}

pub(crate) async fn list(
    State(console): State<Console>,
    Extension(caller): Extension<ConsoleCaller>,
    Query(query): Query<CallbacksQuery>,
    uri: Uri,
) -> Result<Response, Failure> {
    let from = Some(query.before).filter(|before| !before.is_empty());
    let from = from.map(|before| before.parse::<PageCursor>().map_err(Failure::BadRequest));
    let from = from.transpose()?;
    let is_first = from.is_none();
    let found = TaskFilter::awaiting_callback()
        .find(console.ports.store(), from, PAGE_SIZE, EXAMINED_MAX)
        .await?;
    let SearchResult { tasks, examined, next } = found;
    let mut rows = Vec::new();
    for task in tasks {
        rows.extend(rows_of(&console, task).await?);
    }
    let frame = Frame::new("Awaited callbacks", "callbacks", &caller).refreshed(&uri);
    let next = next.map(|next| next.to_string());
    Ok(render(&CallbacksPage { frame, rows, examined, is_first, next }))
}

/// The awaited callbacks of a task.
async fn rows_of(console: &Console, task: Task) -> Result<Vec<AwaitedCallback>, Failure> {
    let parts: Vec<_> = awaited(&task).collect();
    let more = parts.len().saturating_sub(PARTS_MAX);
    let definitions = console.ports.definitions();
    let plan = definitions.workflow(&task.workflow, Some(task.version)).await?;
    let mut rows = Vec::new();
    for (part, until) in parts.into_iter().take(PARTS_MAX) {
        let from = match &plan {
            Some(plan) => who_answers(console, plan, &task, &part).await?,
            None => String::new(),
        };
        rows.push(AwaitedCallback { task: task.clone(), part, until, from, more });
    }
    Ok(rows)
}

/// The parts that await a callback, with their deadlines.
fn awaited(task: &Task) -> impl Iterator<Item = (Part, Timestamp)> {
    task.started_parts().filter_map(|(part, record)| {
        let state = &record.forward.state;
        state.awaiting_callback().and(state.reply_due_by()).map(|complete_by| (part, complete_by))
    })
}

/// Who is to answer, from masked documents.
async fn who_answers(
    console: &Console,
    plan: &Plan,
    task: &Task,
    part: &Part,
) -> Result<String, Failure> {
    let mut loaded = LoadedDocuments::new();
    loop {
        // What the item of the task contains is not masked, so all documents are read.
        match callback_from(plan, &without_documents(task), &loaded, part) {
            Ok(from) => return Ok(from.unwrap_or_default()),
            Err(NeededDocuments(keys)) => {
                let keys: Vec<_> = keys.into_iter().collect();
                let found = console.ports.store().documents_of(task, &keys).await?;
                let hidden = HiddenValues::of(&plan.mask, &found);
                for document in &found {
                    let body = masked_document(&plan.mask, &hidden, document);
                    loaded.extend([(document.key.clone(), body)]);
                }
                for key in keys {
                    if !loaded.contains_key(&key) {
                        loaded.mark_absent(key);
                    }
                }
            }
        }
    }
}

/// The task, as if none of its documents were in its item.
fn without_documents(task: &Task) -> Task {
    Task { documents: Default::default(), ..task.clone() }
}
