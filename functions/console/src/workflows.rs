//! Workflows: which there are; and one, with its graph, how its tasks fare, its versions and what changed
//! between them.

use std::{sync::Arc, time::Duration};
use steward_core::definition::plan::Plan;

use askama::Template;
use axum::{
    Extension,
    extract::{Path, Query, State},
    response::Response,
};
use futures_util::{StreamExt, TryStreamExt, stream};
use serde::Deserialize;
use steward_aws::definitions::{DynamoDefinitions, Listed};
use steward_core::model::{names::WorkflowName, time::earlier};
use steward_operator::{
    changes::{Change, changes},
    graph,
};
use steward_runtime::{
    history::Counts,
    ports::{Definitions, Ports},
};

use crate::{
    Console,
    access::Caller,
    history,
    page::{Failure, Frame, page},
};
use measured::{Measured, measure};

mod measured;

/// Workflows on a page.
const ROWS_MAX: usize = 100;

/// Definitions read at once.
const READS_AT_ONCE: usize = 16;

/// Versions in the table of a workflow; all can be chosen.
const VERSIONS_MAX: usize = 20;

/// How far back ended tasks are counted.
const COUNTED: Duration = Duration::from_secs(24 * 3_600);

/// Where a list goes on.
#[derive(Debug, Deserialize)]
pub(crate) struct After {
    #[serde(default)]
    after: String,
}

#[derive(Template)]
#[template(path = "workflows.html")]
struct ListPage {
    frame: Frame,
    rows: Vec<Row>,
    /// The last one, if there are more.
    next: Option<WorkflowName>,
}

/// One workflow of the list: its newest version that is published, or that was.
struct Row {
    workflow: Arc<Plan>,
    is_published: bool,
    versions: usize,
    ended: Counts,
}

/// How many ended in each final state.
fn by_state(ended: Counts) -> [(&'static str, u64); 3] {
    [("Processed", ended.processed), ("Error", ended.error), ("Undone", ended.undone)]
}

/// The list of workflows.
pub(crate) async fn list(
    State(console): State<Console>,
    Extension(caller): Extension<Caller>,
    Query(After { after }): Query<After>,
) -> Result<Response, Failure> {
    let frame = Frame::new("Workflows", "workflows", &caller);
    let (definitions, store) = (console.ports.definitions(), console.ports.store());
    let ended = history::by_workflow(store, earlier(frame.now, COUNTED), frame.now);
    let (ended, mut all) = tokio::try_join!(ended, definitions.list())?;
    all.retain(|listed| listed.name.as_str() > after.as_str());
    let mut found: Vec<_> = all.chunk_by(|a, b| a.name == b.name).filter_map(newest).collect();
    let more = found.len() > ROWS_MAX;
    found.truncate(ROWS_MAX);
    let rows = stream::iter(found).map(|(listed, versions)| {
        let ended = ended.get(&listed.name).copied().unwrap_or_default();
        async move {
            let workflow = definition(definitions, &listed).await?;
            let is_published = listed.is_published;
            Ok::<_, Failure>(Row { workflow, is_published, versions, ended })
        }
    });
    let rows: Vec<_> = rows.buffered(READS_AT_ONCE).try_collect().await?;
    let next = rows.last().filter(|_| more).map(|row| row.workflow.name.clone());
    Ok(page(&ListPage { frame, rows, next }))
}

/// Of one workflow's versions, the newest that is published, or that was; and how many there are.
fn newest(versions: &[Listed]) -> Option<(Listed, usize)> {
    let newest = versions.iter().rfind(|listed| listed.is_published).or(versions.last())?;
    Some((newest.clone(), versions.len()))
}

/// Which version to show, and which to compare it with. A form leaves empty what was not chosen.
#[derive(Debug, Deserialize)]
pub(crate) struct Chosen {
    #[serde(default)]
    version: String,
    #[serde(default)]
    against: String,
}

#[derive(Template)]
#[template(path = "workflow.html")]
struct ShowPage {
    frame: Frame,
    workflow: Arc<Plan>,
    is_published: bool,
    /// Newest first.
    versions: Vec<Listed>,
    compared: Option<Compared>,
    graph: String,
    ended: Counts,
    measured: Measured,
    yaml: String,
    json: String,
}

impl ShowPage {
    fn in_table(&self) -> impl Iterator<Item = &Listed> {
        self.versions.iter().take(VERSIONS_MAX)
    }

    /// Of all that ended, how many were processed: not all unless it is all.
    fn processed_percent(&self) -> String {
        let per_mille = (self.ended.processed * 1_000).checked_div(self.ended.all());
        let per_mille = per_mille.unwrap_or_default();
        format!("{}.{}%", per_mille / 10, per_mille % 10)
    }

    /// The version before one.
    fn before(&self, version: &u32) -> Option<u32> {
        self.versions.iter().map(|listed| listed.version).find(|older| older < version)
    }
}

/// What changed since a version.
struct Compared {
    with: u32,
    changes: Vec<Change>,
}

/// One workflow.
pub(crate) async fn show(
    State(console): State<Console>,
    Extension(caller): Extension<Caller>,
    Path(name): Path<String>,
    Query(chosen): Query<Chosen>,
) -> Result<Response, Failure> {
    let missing = || Failure::NotFound(format!("workflow {name}"));
    let name: WorkflowName = name.parse().map_err(|_| missing())?;
    let definitions = console.ports.definitions();
    let mut versions = definitions.list_versions(&name).await?;
    let of = |wanted: u32| versions.iter().find(|listed| listed.version == wanted).cloned();
    let newest = || newest(&versions).map(|(newest, _)| newest);
    let shown = number(&chosen.version)?.map_or_else(newest, of).ok_or_else(missing)?;
    let workflow = definition(definitions, &shown).await?;
    let compared = match number(&chosen.against)? {
        Some(with) => {
            let old = definition(definitions, &of(with).ok_or_else(missing)?).await?;
            Some(Compared { with, changes: changes(&old, &workflow) })
        }
        None => None,
    };
    versions.reverse();
    let frame = Frame::new(format!("{name} version {}", shown.version), "workflows", &caller);
    let store = console.ports.store();
    let ended = history::by_workflow(store, earlier(frame.now, COUNTED), frame.now);
    let (ended, measured) = tokio::try_join!(ended, measure(store, &workflow))?;
    Ok(page(&ShowPage {
        frame,
        is_published: shown.is_published,
        compared,
        graph: graph::element(&workflow, None),
        ended: ended.get(&name).copied().unwrap_or_default(),
        measured,
        // What was read as JSON can be written as it, and as YAML.
        yaml: serde_saphyr::to_string(&**workflow).unwrap_or_default(),
        json: serde_json::to_string_pretty(&**workflow).unwrap_or_default(),
        versions,
        workflow,
    }))
}

/// A definition that is listed.
async fn definition(
    definitions: &DynamoDefinitions,
    listed: &Listed,
) -> Result<Arc<Plan>, Failure> {
    let Listed { name, version, .. } = listed;
    let found = definitions.workflow(name, Some(*version)).await?;
    found.ok_or_else(|| Failure::NotFound(format!("workflow {name} version {version}")))
}

/// A version as an address says it.
fn number(text: &str) -> Result<Option<u32>, Failure> {
    let read = Some(text).filter(|text| !text.is_empty()).map(str::parse).transpose();
    read.map_err(|_| Failure::BadRequest(format!("`{text}` is no version")))
}
