//! The `steward` command.

use std::{path::PathBuf, process::ExitCode};

use anyhow::Result;
use clap::{Parser, Subcommand};
use tracing_subscriber::EnvFilter;

mod audit;
mod client;
mod demo;
mod local;
mod simulate;
mod table;
mod tasks;
mod workflows;

/// Durable, multi-step business tasks on AWS Lambda: each one completes or is undone.
#[derive(Debug, Parser)]
#[command(name = "steward", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run orders through misbehaving services, everything embedded, and audit the result.
    Demo(demo::DemoArgs),
    /// Host your own workflows and services in this process, until Ctrl-C.
    Local(local::LocalArgs),
    /// Submit tasks from JSON files: an object, an array, or one object a line; `-` is stdin.
    Submit {
        /// The files.
        #[arg(required = true)]
        files: Vec<PathBuf>,
        #[command(flatten)]
        deployment: client::Deployment,
    },
    /// Run simulated worlds from their seeds until one fails, or replay one.
    Simulate(simulate::SimulateArgs),
    /// Show a task: where it stands, and the timeline of its attempts.
    Show {
        /// The task's id.
        task: String,
        /// As one JSON object.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        deployment: client::Deployment,
    },
    /// List tasks. Reads the whole table: for small deployments.
    List(tasks::ListArgs),
    /// Check or publish definitions.
    #[command(subcommand)]
    Workflow(workflows::WorkflowCommand),
}

#[tokio::main]
#[expect(clippy::print_stderr, reason = "a command's output")]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<()> {
    let cli = Cli::parse();
    // These break things on purpose; what comes of it is in their tables.
    let breaks = matches!(cli.command, Command::Demo(_) | Command::Simulate(_));
    let level = if breaks { "off" } else { "warn" };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    match cli.command {
        Command::Demo(args) => demo::run(args).await,
        Command::Local(args) => local::run(args).await,
        Command::Simulate(args) => simulate::run(args).await,
        Command::Submit { files, deployment } => tasks::submit(&files, &deployment).await,
        Command::Show { task, json, deployment } => tasks::show(&task, json, &deployment).await,
        Command::List(args) => tasks::list(args).await,
        Command::Workflow(command) => workflows::run(command).await,
    }
}
