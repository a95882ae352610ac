//! `steward workflow`: checks, tests, analyses, publishes, lists, compares, draws and forecasts workflow definitions.

use std::path::PathBuf;

use anyhow::Result;
use clap::Subcommand;
use steward_core::{definition::workflow::json_schema, model::names::WorkflowName};

use crate::{client::DeploymentArgs, env_args::EnvArgs};

mod check;
mod check_formats;
mod diff;
mod failures;
mod file_problem;
pub(crate) mod forecast;
mod graph;
pub(crate) mod import;
mod publish;
mod stored;
mod test;

/// Subcommands of `steward workflow`.
#[derive(Debug, Subcommand)]
pub(crate) enum WorkflowCommand {
    /// Check definition files and test files, and print all errors and warnings.
    Check(Box<check::CheckArgs>),
    /// Print the JSON Schema of definitions, for use in editors.
    Schema,
    /// Check definition files and publish them. A published version never changes.
    Publish {
        /// Definition files.
        #[arg(required = true)]
        files: Vec<PathBuf>,
        #[command(flatten)]
        env: EnvArgs,
        /// Print JSON: what was published. Warnings and errors are on standard error.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        deployment: DeploymentArgs,
    },
    /// Publish the content of an older version again, as the next version. New tasks use it at once; tasks in progress keep theirs.
    Rollback {
        /// The name of the workflow.
        name: WorkflowName,
        /// The older version, also one that was unpublished.
        #[arg(long, value_name = "VERSION")]
        to: u32,
        /// Print JSON.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        deployment: DeploymentArgs,
    },
    /// Forecast outcomes, durations and cost: runs tasks on a virtual clock, with failure rates that you give.
    Simulate(Box<forecast::ForecastArgs>),
    /// Run the tests beside a workflow: tasks on a virtual clock, whose services answer as the test file says.
    Test(Box<test::TestArgs>),
    /// Analyse every way in which a step can fail, alone and in pairs: how the task ends, which side effects remain, when an
    /// operator is alerted, and the cost.
    Failures(Box<failures::FailureArgs>),
    /// Unpublish a version, so that no new task uses it. Refused unless all its tasks are Processed or Undone.
    /// Scans the whole tasks table.
    Unpublish {
        /// The name of the workflow.
        name: WorkflowName,
        /// The version to unpublish.
        version: u32,
        /// Print JSON.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        deployment: DeploymentArgs,
    },
    /// List workflows with their versions and triggers.
    List(stored::ListArgs),
    /// Print a stored definition.
    Show(stored::ShowArgs),
    /// Compare two definitions, and flag changes that are risky to publish. The exit code is 0 if no change is
    /// flagged.
    Diff(diff::DiffArgs),
    /// Draw a definition as a Mermaid flowchart or as SVG.
    Graph(graph::GraphArgs),
    /// Translate a state machine in Amazon States Language into a definition, with a report. The exit code is 0 if the
    /// import is complete, 3 if a person has to decide something, and 4 if a part cannot be translated.
    Import(import::ImportArgs),
}

pub(crate) async fn run(command: WorkflowCommand) -> Result<()> {
    match command {
        WorkflowCommand::Check(args) => check::run(&args).await?,
        WorkflowCommand::Schema => outln!("{}", serde_json::to_string_pretty(&json_schema())?),
        WorkflowCommand::Publish { files, env, json, deployment } => {
            Box::pin(publish::publish(&files, &env, json, &deployment)).await?;
        }
        WorkflowCommand::Rollback { name, to, json, deployment } => {
            publish::roll_back((&name, to), json, &deployment).await?;
        }
        WorkflowCommand::Simulate(args) => forecast::run(*args).await?,
        WorkflowCommand::Failures(args) => failures::run(*args).await?,
        WorkflowCommand::Test(args) => test::run(*args).await?,
        WorkflowCommand::Unpublish { name, version, json, deployment } => {
            publish::unpublish((&name, version), json, &deployment).await?;
        }
        WorkflowCommand::List(args) => stored::list(args).await?,
        WorkflowCommand::Show(args) => stored::show(args).await?,
        WorkflowCommand::Diff(args) => diff::run(args).await?,
        WorkflowCommand::Graph(args) => graph::run(&args)?,
        WorkflowCommand::Import(args) => import::run(args)?,
    }
    Ok(())
}
