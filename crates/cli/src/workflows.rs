//! `steward workflow`: check and publish definitions.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::Subcommand;
use steward_local::definitions::read_file;

use crate::client::Deployment;

mod forecast;

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
    /// Run tasks on a virtual clock, with the odds that you give: how they end, and what they cost.
    Simulate(Box<forecast::ForecastArgs>),
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
            let definitions = deployment.definitions().await;
            for file in files {
                let workflow = read_file(&file)?;
                let published = definitions.publish(&workflow).await;
                published.with_context(|| file.display().to_string())?;
                println!("{} version {}: published", workflow.name, workflow.version);
            }
        }
        WorkflowCommand::Simulate(args) => forecast::run(*args).await?,
    }
    Ok(())
}
