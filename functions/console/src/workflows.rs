//! The list of workflows, and the page of a workflow: graph, ended tasks, statistics of its steps, versions and their
//! differences.

use std::{sync::Arc, time::Duration};

use askama::Template;
use axum::{
    Extension,
    extract::{Path, Query, State},
    response::Response,
};
use futures_util::{StreamExt, TryStreamExt, stream};
use serde::Deserialize;
use steward_aws::definitions::{DynamoDefinitions, VersionSummary};
use steward_core::{
    definition::plan::Plan,
    model::{names::WorkflowName, task::ProcessState, time::earlier},
};
use steward_operator::{
    changes::{DefinitionChange, compare_definitions},
    graph,
};
use steward_runtime::{
    history::EndedCounts,
    ports::{Definitions, Ports},
};

use crate::{
    caller::ConsoleCaller,
    console::Console,
    history,
    page::{Failure, Frame, render},
};
use statistics::{StepStatistics, read_statistics};

mod statistics;

/// The number of workflows on a page.
const PAGE_SIZE: usize = 100;

/// The largest number of concurrent reads of definitions.
const READS_AT_ONCE: usize = 16;

/// The largest number of versions in the table. The form offers all versions.
const VERSIONS_MAX: usize = 20;

/// The period for which ended tasks are counted.
const COUNTED_PERIOD: Duration = Duration::from_secs(24 * 3_600);

/// The query parameters of the list.
#[derive(Debug, Deserialize)]
pub(crate) struct WorkflowListQuery {
    /// The last workflow of the previous page.
    #[serde(default)]
    after: String,
}

#[derive(Template)]
#[template(path = "workflows.html")]
struct WorkflowListPage {
    frame: Frame,
    rows: Vec<WorkflowRow>,
    /// The last workflow of this page, if there are more.
    next: Option<WorkflowName>,
}

/// A workflow in the list: its newest published version, or its newest version if none is published.
struct WorkflowRow {
    plan: Arc<Plan>,
    is_published: bool,
    versions: usize,
    ended: EndedCounts,
}

/// The number of ended tasks in each final state.
fn by_state(ended: EndedCounts) -> [(ProcessState, u64); 3] {
    [
        (ProcessState::Processed, ended.processed),
        (ProcessState::Error, ended.error),
        (ProcessState::Undone, ended.undone),
    ]
}

/// The list of workflows.
pub(crate) async fn list(
    State(console): State<Console>,
    Extension(caller): Extension<ConsoleCaller>,
    Query(WorkflowListQuery { after }): Query<WorkflowListQuery>,
) -> Result<Response, Failure> {
    let frame = Frame::new("Workflows", "workflows", &caller);
    let (definitions, store) = (console.ports.definitions(), console.ports.store());
    let ended = history::by_workflow(store, earlier(frame.now, COUNTED_PERIOD), frame.now);
    let (ended, mut all) = tokio::try_join!(ended, definitions.list())?;
    all.retain(|listed| listed.name.as_str() > after.as_str());
    let mut found: Vec<_> =
        all.chunk_by(|a, b| a.name == b.name).filter_map(newest_published).collect();
    let more = found.len() > PAGE_SIZE;
    found.truncate(PAGE_SIZE);
    let rows = stream::iter(found).map(|(listed, versions)| {
        let ended = ended.get(&listed.name).copied().unwrap_or_default();
        async move {
            let plan = definition(definitions, &listed).await?;
            let is_published = listed.is_published;
            Ok::<_, Failure>(WorkflowRow { plan, is_published, versions, ended })
        }
    });
    let rows: Vec<_> = rows.buffered(READS_AT_ONCE).try_collect().await?;
    let next = rows.last().filter(|_| more).map(|row| row.plan.name.clone());
    Ok(render(&WorkflowListPage { frame, rows, next }))
}

/// The newest published version, or the newest version if none is published; and the number of versions.
fn newest_published(versions: &[VersionSummary]) -> Option<(VersionSummary, usize)> {
    let newest = versions.iter().rfind(|listed| listed.is_published).or(versions.last())?;
    Some((newest.clone(), versions.len()))
}

/// The version to show and the version to compare it with; empty if the form has none.
#[derive(Debug, Deserialize)]
pub(crate) struct VersionQuery {
    #[serde(default)]
    version: String,
    #[serde(default)]
    against: String,
}

#[derive(Template)]
#[template(path = "workflow.html")]
struct WorkflowPage {
    frame: Frame,
    plan: Arc<Plan>,
    is_published: bool,
    /// Newest first.
    versions: Vec<VersionSummary>,
    compared: Option<VersionComparison>,
    graph: String,
    ended: EndedCounts,
    statistics: StepStatistics,
    yaml: String,
    json: String,
}

impl WorkflowPage {
    /// The versions in the table.
    fn in_table(&self) -> impl Iterator<Item = &VersionSummary> {
        self.versions.iter().take(VERSIONS_MAX)
    }

    /// The percentage of processed tasks among the ended tasks, rounded down: 100% only if all were processed.
    fn processed_percent(&self) -> String {
        let per_mille = (self.ended.processed * 1_000).checked_div(self.ended.all());
        let per_mille = per_mille.unwrap_or_default();
        format!("{}.{}%", per_mille / 10, per_mille % 10)
    }

    /// The version before `version`, if there is one.
    fn before(&self, version: &u32) -> Option<u32> {
        self.versions.iter().map(|listed| listed.version).find(|older| older < version)
    }
}

/// The changes since another version.
struct VersionComparison {
    with: u32,
    changes: Vec<DefinitionChange>,
}

/// The page of a workflow.
pub(crate) async fn show(
    State(console): State<Console>,
    Extension(caller): Extension<ConsoleCaller>,
    Path(name): Path<String>,
    Query(query): Query<VersionQuery>,
) -> Result<Response, Failure> {
    let missing = || Failure::NotFound(format!("workflow {name}"));
    let name: WorkflowName = name.parse().map_err(|_| missing())?;
    let definitions = console.ports.definitions();
    let mut versions = definitions.list_versions(&name).await?;
    let find = |wanted: u32| versions.iter().find(|listed| listed.version == wanted).cloned();
    let newest = || newest_published(&versions).map(|(newest, _)| newest);
    let shown = parse_version(&query.version)?.map_or_else(newest, find).ok_or_else(missing)?;
    let plan = definition(definitions, &shown).await?;
    let compared = match parse_version(&query.against)? {
        Some(with) => {
            let old = definition(definitions, &find(with).ok_or_else(missing)?).await?;
            Some(VersionComparison { with, changes: compare_definitions(&old, &plan) })
        }
        None => None,
    };
    versions.reverse();
    let frame = Frame::new(format!("{name} version {}", shown.version), "workflows", &caller);
    let store = console.ports.store();
    let ended = history::by_workflow(store, earlier(frame.now, COUNTED_PERIOD), frame.now);
    let (ended, statistics) = tokio::try_join!(ended, read_statistics(store, &plan))?;
    Ok(render(&WorkflowPage {
        frame,
        is_published: shown.is_published,
        compared,
        graph: graph::element(&plan, None),
        ended: ended.get(&name).copied().unwrap_or_default(),
        statistics,
        // A definition that was parsed from JSON can be serialised.
        yaml: serde_saphyr::to_string(&**plan).unwrap_or_default(),
        json: serde_json::to_string_pretty(&**plan).unwrap_or_default(),
        versions,
        plan,
    }))
}

/// The definition of a listed version.
async fn definition(
    definitions: &DynamoDefinitions,
    listed: &VersionSummary,
) -> Result<Arc<Plan>, Failure> {
    let VersionSummary { name, version, .. } = listed;
    let found = definitions.workflow(name, Some(*version)).await?;
    found.ok_or_else(|| Failure::NotFound(format!("workflow {name} version {version}")))
}

/// Parses a version in a query string; `None` if it is empty.
fn parse_version(text: &str) -> Result<Option<u32>, Failure> {
    let read = Some(text).filter(|text| !text.is_empty()).map(str::parse).transpose();
    read.map_err(|_| Failure::BadRequest(format!("`{text}` is not a version")))
}
