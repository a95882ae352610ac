//! `steward workflow diff`: what changed between two definitions, and whether it is safe.

use std::path::Path;

use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::json;
use steward_core::definition::workflow::Workflow;
use steward_definition_file::read_file;
use steward_operator::changes::{Change, changes};

use super::stored;
use crate::{client::Deployment, table::table};

/// What to compare.
#[derive(Debug, Args)]
pub(crate) struct DiffArgs {
    /// A file; or a published workflow, as NAME for its newest version or NAME@VERSION.
    old: String,
    /// The same, of what takes its place.
    new: String,
    /// As a JSON array.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    deployment: Deployment,
}

/// Prints the changes. It is an error if one needs a look.
pub(super) async fn run(args: DiffArgs) -> Result<()> {
    let old = read(&args.old, &args.deployment).await?;
    let new = read(&args.new, &args.deployment).await?;
    let changes = changes(&old, &new);
    if args.json {
        let each = changes.iter().map(|Change { at, what, safe, why }| {
            json!({ "at": at, "what": what, "safe": safe, "why": why })
        });
        say!("{}", serde_json::to_string_pretty(&each.collect::<Vec<_>>())?);
    } else if changes.is_empty() {
        say!("nothing changed");
    } else {
        print(&changes);
        say!("tasks that run stay with the version that they began with; all this is for new ones");
    }
    match changes.iter().filter(|change| !change.safe).count() {
        0 => Ok(()),
        1 => bail!("1 change needs a look"),
        count => bail!("{count} changes need a look"),
    }
}

fn print(changes: &[Change]) {
    let mut rows = table(&["", "key", "what", "why"]);
    for Change { at, what, safe, why } in changes {
        rows.add_row([if *safe { "safe" } else { "look" }, at, what, why]);
    }
    say!("{rows}");
}

/// A definition from a file or a deployment.
async fn read(given: &str, deployment: &Deployment) -> Result<Workflow> {
    let path = Path::new(given);
    let name = given.split_once('@').map_or(given, |(name, _)| name);
    let is_name = name.parse::<steward_core::model::names::WorkflowName>();
    match is_name {
        Ok(name) if !path.exists() => {
            let version = given.split_once('@').map(|(_, version)| version.parse());
            let version =
                version.transpose().with_context(|| format!("the version of `{given}`"))?;
            Ok(stored::find(deployment, &name, version).await?.workflow)
        }
        Ok(_) | Err(_) => Ok(read_file(path)?),
    }
}
