//! `steward workflow list` and `show`: the stored definitions.

use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::json;
use steward_aws::definitions::StoredDefinition;
use steward_core::{definition::workflow::Workflow, model::names::WorkflowName};

use crate::{client::DeploymentArgs, table::table};

/// Options of `steward workflow list`.
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Print a JSON array.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    deployment: DeploymentArgs,
}

/// Options of `steward workflow show`.
#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// The name of the workflow.
    name: WorkflowName,
    /// The version; the newest published version by default.
    #[arg(long = "version", value_name = "N")]
    of_version: Option<u32>,
    /// Print JSON instead of YAML.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    deployment: DeploymentArgs,
}

/// One workflow of the list.
struct WorkflowRow<'a> {
    name: &'a WorkflowName,
    published: Vec<u32>,
    unpublished: Vec<u32>,
    /// The newest published version.
    newest: Option<&'a Workflow>,
}

impl<'a> WorkflowRow<'a> {
    fn of(versions: &'a [StoredDefinition]) -> Option<Self> {
        let numbers = |is_published| {
            let wanted = versions.iter().filter(move |stored| stored.is_published == is_published);
            wanted.map(|stored| stored.workflow.version).collect()
        };
        let newest = versions.iter().rfind(|stored| stored.is_published);
        Some(Self {
            name: &versions.first()?.workflow.name,
            published: numbers(true),
            unpublished: numbers(false),
            newest: newest.map(|stored| &stored.workflow),
        })
    }
}

/// Prints the workflows, ordered by name.
pub(super) async fn list(args: ListArgs) -> Result<()> {
    let all = args.deployment.definitions().await.all().await?;
    let rows = all.chunk_by(|a, b| a.workflow.name == b.workflow.name).filter_map(WorkflowRow::of);
    if args.json {
        let rows = rows.map(|row| {
            let newest = row.newest.map(|workflow| workflow.version);
            let trigger = row.newest.and_then(|workflow| workflow.trigger.as_ref());
            json!({
                "name": row.name, "newest": newest, "published": row.published,
                "unpublished": row.unpublished, "trigger": trigger,
            })
        });
        outln!("{}", serde_json::to_string_pretty(&rows.collect::<Vec<_>>())?);
        return Ok(());
    }
    let mut table = table(&["workflow", "newest", "published", "unpublished", "trigger"]);
    for row in rows {
        let trigger = row.newest.and_then(|workflow| workflow.trigger.as_ref());
        table.add_row([
            row.name.to_string(),
            row.newest.map_or_else(|| "-".to_owned(), |workflow| workflow.version.to_string()),
            joined(&row.published),
            joined(&row.unpublished),
            trigger.map_or_else(String::new, |on| format!("{}: {}", on.source, on.detail_type)),
        ]);
    }
    outln!("{table}");
    Ok(())
}

fn joined(versions: &[u32]) -> String {
    versions.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
}

/// Prints a definition.
pub(super) async fn show(args: ShowArgs) -> Result<()> {
    let stored = find(&args.deployment, &args.name, args.of_version).await?;
    let StoredDefinition { workflow, is_published } = &stored;
    if args.json {
        outln!("{}", serde_json::to_string_pretty(workflow)?);
        return Ok(());
    }
    let state = if *is_published { "published" } else { "unpublished" };
    let yaml = serde_saphyr::to_string(workflow).context("write as YAML")?;
    outln!("# {} version {}, {state}\n{}", workflow.name, workflow.version, yaml.trim_end());
    Ok(())
}

/// Finds the given version; without one, the newest published version, or else the newest version.
pub(super) async fn find(
    deployment: &DeploymentArgs,
    name: &WorkflowName,
    version: Option<u32>,
) -> Result<StoredDefinition> {
    let versions = deployment.definitions().await.definitions_of(name).await?;
    if versions.is_empty() {
        bail!("there is no workflow `{name}`");
    }
    let matches = |stored: &&StoredDefinition| match version {
        Some(version) => stored.workflow.version == version,
        None => stored.is_published,
    };
    let unpublished = || version.is_none().then(|| versions.last()).flatten();
    let found = versions.iter().rfind(matches).or_else(unpublished);
    let known: Vec<_> = versions.iter().map(|stored| stored.workflow.version).collect();
    found.cloned().with_context(|| {
        let version = version.unwrap_or_default();
        format!("workflow `{name}` has no version {version}; stored versions: {}", joined(&known))
    })
}
