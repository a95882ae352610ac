//! The list of tasks, with a filter and pagination.

use askama::Template;
use axum::{
    Extension,
    extract::{Query, State},
    http::Uri,
    response::{IntoResponse, Redirect, Response},
};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use steward_aws::store::{PageCursor, SearchResult, StateFilter, TaskFilter};
use steward_core::model::{names::TaskId, task::Task};
use steward_runtime::ports::{Ports, StateStore};

use crate::{
    caller::ConsoleCaller,
    console::Console,
    filter::{self, query_of},
    page::{Failure, Frame, render},
};

/// The number of tasks on a page.
pub(crate) const PAGE_SIZE: usize = 50;

/// The largest number of tasks that are examined for a page.
const EXAMINED_MAX: usize = 1_000;

/// The query parameters beside the filter.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct TaskListQuery {
    id: String,
    before: String,
}

#[derive(Template)]
#[template(path = "tasks.html")]
struct TaskListPage {
    frame: Frame,
    filter: TaskFilter,
    /// The searched id, if there is no task with it.
    missing: Option<String>,
    tasks: Vec<Task>,
    examined: usize,
    /// Whether this is the first page.
    is_first: bool,
    /// The query string of the next page.
    next: Option<String>,
    /// The query string of the page that sends a command to all tasks that match the filter.
    bulk: Option<String>,
}

impl TaskListPage {
    /// The options of the state filter, with the attribute `selected` for the chosen one.
    fn states(&self) -> impl Iterator<Item = (StateFilter, &'static str)> {
        let selected = |state| if self.filter.state == Some(state) { " selected" } else { "" };
        StateFilter::all().map(move |state| (state, selected(state)))
    }

    /// The value of a field of the filter form.
    fn field(&self, name: &str) -> String {
        let pairs = self.filter.pairs();
        pairs.into_iter().find(|(of, _)| *of == name).map(|(_, value)| value).unwrap_or_default()
    }
}

pub(crate) async fn list(
    State(console): State<Console>,
    Extension(caller): Extension<ConsoleCaller>,
    uri: Uri,
) -> Result<Response, Failure> {
    let query = Query::<TaskListQuery>::try_from_uri(&uri);
    let Query(TaskListQuery { id, before }) =
        query.map_err(|e| Failure::BadRequest(e.body_text()))?;
    let filter = filter::of(&uri)?;
    let store = console.ports.store();
    let id = id.trim();
    if let Ok(id) = id.parse::<TaskId>()
        && store.load(&id).await?.is_some()
    {
        return Ok(Redirect::to(&task_url(&id)).into_response());
    }
    let from =
        (!before.is_empty()).then(|| before.parse::<PageCursor>().map_err(Failure::BadRequest));
    let from = from.transpose()?;
    let is_first = from.is_none();
    let SearchResult { tasks, examined, next } =
        filter.find(store, from, PAGE_SIZE, EXAMINED_MAX).await?;
    let next = next.map(|next| query_of(&filter, &[("before", next.to_string())]));
    let frame = Frame::new("Tasks", "tasks", &caller).refreshed(&uri);
    let bulk = (frame.may_act() && !tasks.is_empty()).then(|| query_of(&filter, &[]));
    let missing = (!id.is_empty()).then(|| id.to_owned());
    Ok(render(&TaskListPage { frame, filter, missing, tasks, examined, is_first, next, bulk }))
}

/// The URL of a task's page. The id is percent-encoded.
pub(crate) fn task_url(id: &TaskId) -> String {
    format!("/console/tasks/{}", utf8_percent_encode(id.as_str(), NON_ALPHANUMERIC))
}
