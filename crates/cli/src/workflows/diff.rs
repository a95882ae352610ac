//! `steward workflow diff`: compares two definitions, and flags risky changes.

use std::path::Path;

use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::json;
use steward_core::definition::workflow::Workflow;
use steward_definition_file::read_file;
use steward_operator::changes::{DefinitionChange, compare_definitions};

use super::stored;
use crate::{client::DeploymentArgs, env_args::EnvArgs, table::table};

/// Options of `steward workflow diff`.
#[derive(Debug, Args)]
pub(crate) struct DiffArgs {
    /// The old definition: a file, or a published workflow as NAME (its newest version) or NAME@VERSION.
    old: String,
    /// The new definition, in the same form.
    new: String,
    #[command(flatten)]
    env: EnvArgs,
    /// Print a JSON array.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    deployment: DeploymentArgs,
}

/// Prints the changes. Returns an error if any of them is risky.
pub(super) async fn run(args: DiffArgs) -> Result<()> {
    let old = read(&args.old, &args).await?;
    let new = read(&args.new, &args).await?;
    args.env.check([&old, &new])?;
    let changes = compare_definitions(&old, &new);
    if args.json {
        let each = changes.iter().map(|DefinitionChange { at, what, safe, why }| {
            json!({ "at": at, "what": what, "safe": safe, "why": why })
        });
        outln!("{}", serde_json::to_string_pretty(&each.collect::<Vec<_>>())?);
    } else if changes.is_empty() {
        outln!("no changes");
    } else {
        print(&changes);
        outln!(
            "the changes apply to new tasks only: running tasks keep the version with which they started"
        );
    }
    match changes.iter().filter(|change| !change.safe).count() {
        0 => Ok(()),
        1 => bail!("1 risky change"),
        count => bail!("{count} risky changes"),
    }
}

fn print(changes: &[DefinitionChange]) {
    let mut rows = table(&["", "key", "change", "reason"]);
    for DefinitionChange { at, what, safe, why } in changes {
        rows.add_row([if *safe { "safe" } else { "risky" }, at, what, why]);
    }
    outln!("{rows}");
}

/// Reads a definition from a deployment, or from a file, with the constants that are given.
async fn read(source: &str, args: &DiffArgs) -> Result<Workflow> {
    let path = Path::new(source);
    let name = source.split_once('@').map_or(source, |(name, _)| name);
    let is_name = name.parse::<steward_core::model::names::WorkflowName>();
    match is_name {
        Ok(name) if !path.exists() => {
            let version = source.split_once('@').map(|(_, version)| version.parse());
            let version = version
                .transpose()
                .with_context(|| format!("`{source}`: the version is not a number"))?;
            Ok(stored::find(&args.deployment, &name, version).await?.workflow)
        }
        Ok(_) | Err(_) => args.env.of_file(read_file(path)?),
    }
}
