//! `steward workflow`: check, publish, compare and draw definitions.

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Subcommand;
use steward_core::names::WorkflowName;
use steward_local::definitions::read_file;

use crate::client::Deployment;

mod changes;
mod diff;
mod graph;
mod publish;
mod stored;

/// What to do with definitions.
#[derive(Debug, Subcommand)]
pub(crate) enum WorkflowCommand {
    /// Say everything that is wrong with definition files.
    Check {
        /// The files.
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
    /// Check definition files and publish them. A published version never changes.
    Publish {
        /// The files.
        #[arg(required = true)]
        files: Vec<PathBuf>,
        #[command(flatten)]
        deployment: Deployment,
    },
    /// End the publication of a version: no new task takes it. Refused while tasks of it are not at
    /// rest. Reads the whole table of tasks.
    Unpublish {
        /// The workflow.
        name: WorkflowName,
        /// The version.
        version: u32,
        #[command(flatten)]
        deployment: Deployment,
    },
    /// List the workflows that are published: their versions and triggers.
    List(stored::ListArgs),
    /// Show a definition as it is stored.
    Show(stored::ShowArgs),
    /// Say what changed between two definitions, and what of it needs a look before publishing. The
    /// exit code is 0 if nothing does.
    Diff(diff::DiffArgs),
    /// Draw a definition, as a Mermaid flowchart or as SVG.
    Graph(graph::GraphArgs),
}

#[expect(clippy::print_stdout, clippy::print_stderr, reason = "a command's output")]
pub(crate) async fn run(command: WorkflowCommand) -> Result<()> {
    match command {
        WorkflowCommand::Check { files } => {
            let mut bad = 0;
            for file in &files {
                match read_file(file) {
                    Ok(workflow) => {
                        let (name, version, steps) =
                            (&workflow.name, workflow.version, workflow.steps.len());
                        println!("{}: {name} version {version}, {steps} steps: ok", file.display());
                    }
                    Err(error) => {
                        bad += 1;
                        eprintln!("{:#}", anyhow::Error::new(error));
                    }
                }
            }
            if bad > 0 {
                bail!("{bad} of {} files cannot be published", files.len());
            }
        }
        WorkflowCommand::Publish { files, deployment } => {
            publish::publish(&files, &deployment).await?;
        }
        WorkflowCommand::Unpublish { name, version, deployment } => {
            publish::unpublish(&name, version, &deployment).await?;
        }
        WorkflowCommand::List(args) => stored::list(args).await?,
        WorkflowCommand::Show(args) => stored::show(args).await?,
        WorkflowCommand::Diff(args) => diff::run(args).await?,
        WorkflowCommand::Graph(args) => graph::run(&args)?,
    }
    Ok(())
}
