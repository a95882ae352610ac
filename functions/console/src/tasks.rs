//! The list of tasks: which there are, by a filter, page by page.

use askama::Template;
use axum::{
    Extension,
    extract::{Query, State},
    http::Uri,
    response::{IntoResponse, Redirect, Response},
};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use steward_core::model::{names::TaskId, task::Task};
use steward_runtime::ports::{Ports, StateStore};

use crate::{
    Console,
    access::Caller,
    filter::{Filter, Found, Place, Stand},
    page::{Failure, Frame, page},
};

/// Tasks on a page.
pub(crate) const LIMIT: usize = 50;

/// Tasks looked at for a page.
const LOOK_AT: usize = 1_000;

/// What is asked for beside the filter.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Asked {
    id: String,
    before: String,
}

#[derive(Template)]
#[template(path = "tasks.html")]
struct Tasks {
    frame: Frame,
    filter: Filter,
    /// An id that no task has.
    missing: Option<String>,
    tasks: Vec<Task>,
    looked_at: usize,
    /// Whether this is the list's beginning.
    is_first: bool,
    /// The address of what follows.
    next: Option<String>,
    /// The address of an order to all that the filter finds.
    bulk: Option<String>,
}

impl Tasks {
    fn stands(&self) -> impl Iterator<Item = (Stand, &'static str)> {
        let chosen = |stand| if self.filter.state == Some(stand) { " selected" } else { "" };
        Stand::all().map(move |stand| (stand, chosen(stand)))
    }

    /// What a field of the form says.
    fn field(&self, name: &str) -> String {
        let pairs = self.filter.pairs();
        pairs.into_iter().find(|(of, _)| *of == name).map(|(_, value)| value).unwrap_or_default()
    }
}

pub(crate) async fn list(
    State(console): State<Console>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
) -> Result<Response, Failure> {
    let asked = Query::<Asked>::try_from_uri(&uri);
    let Query(Asked { id, before }) = asked.map_err(|e| Failure::BadRequest(e.body_text()))?;
    let filter = Filter::of(&uri)?;
    let store = console.ports.store();
    let id = id.trim();
    if let Ok(id) = id.parse::<TaskId>()
        && store.load(&id).await?.is_some()
    {
        return Ok(Redirect::to(&address(&id)).into_response());
    }
    let from = (!before.is_empty()).then(|| before.parse::<Place>().map_err(Failure::BadRequest));
    let from = from.transpose()?;
    let is_first = from.is_none();
    let Found { tasks, looked_at, next } = filter.find(store, from, LIMIT, LOOK_AT).await?;
    let next = next.map(|next| filter.query(&[("before", next.to_string())]));
    let frame = Frame::new("Tasks", "tasks", &caller).refreshed(&uri);
    let bulk = (frame.may_act() && !tasks.is_empty()).then(|| filter.query(&[]));
    let missing = (!id.is_empty()).then(|| id.to_owned());
    Ok(page(&Tasks { frame, filter, missing, tasks, looked_at, is_first, next, bulk }))
}

/// A task's page. Its id may have any of the characters that addresses give a meaning.
pub(crate) fn address(id: &TaskId) -> String {
    format!("/console/tasks/{}", utf8_percent_encode(id.as_str(), NON_ALPHANUMERIC))
}
