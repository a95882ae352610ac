//! The `steward` command.

use std::{path::PathBuf, process::ExitCode};

use anyhow::Result;
use clap::{Parser, Subcommand};
use steward_core::model::{command::Order, names::TaskId};
use tracing_subscriber::EnvFilter;

#[macro_use]
mod say;

mod assumed;
mod bench;
mod callback;
mod chaos;
mod client;
mod console_server;
mod cost;
mod dead_letters;
mod demo;
mod endpoint;
mod local;
mod operate;
mod redrive;
mod retry_all;
mod scale;
mod show;
mod table;
mod tasks;
mod workflows;

/// The SDK allocates a lot; this takes a quarter off the whole of a step (docs/performance.md).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Durable, multi-step business tasks on AWS Lambda: each one completes or is undone.
#[derive(Debug, Parser)]
#[command(name = "steward", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run tasks through misbehaving services, everything embedded, and audit the result.
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
    /// Measure this machine's Steward: speed, CPU, memory, requests; everything embedded.
    Bench(bench::BenchArgs),
    /// What a million tasks of a workflow cost if all goes well, on whose account, and what other
    /// services would charge.
    Cost(Box<cost::CostArgs>),
    /// Show a task: where it stands, every attempt and command, and what comes next.
    Show {
        /// The task's id.
        task: TaskId,
        /// As one JSON object.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        deployment: client::Deployment,
    },
    /// List tasks. Reads the whole table: for small deployments.
    List(tasks::ListArgs),
    /// Try a step that failed again, with its attempts renewed, or one that waits at once.
    Resubmit(operate::ResubmitArgs),
    /// Go on without a step, or without its undo.
    Skip(operate::SkipArgs),
    /// Take a step, or its undo, as done by hand.
    Complete(operate::CompleteArgs),
    /// Undo the whole task.
    Undo(operate::Target),
    /// Stop a task where it stands: nothing more is sent, nothing is undone.
    Cancel(operate::Target),
    /// Start nothing more of a task, until it is resumed.
    Pause(operate::Target),
    /// Go on after a pause.
    Resume(operate::Target),
    /// Answer a step that waits for someone, with the token that it handed out.
    #[command(subcommand)]
    Callback(callback::CallbackCommand),
    /// Resubmit every task of a workflow that ended in Error. Reads the whole table.
    RetryAll(retry_all::RetryAllArgs),
    /// Serve the operator's console on this machine, of a deployment, or of its function behind IAM.
    Console(Box<console_server::ConsoleArgs>),
    /// List dead-letter queues, show what is in one, or send it back.
    #[command(subcommand)]
    Dlq(dead_letters::DlqCommand),
    /// How a deployment fares under a load: where a backlog forms, what binds, what to raise, what it
    /// costs. On paper: nothing is sent.
    Scale(Box<scale::ScaleArgs>),
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
    // These commands run invented tasks, and most inject faults deliberately. Their tables show the outcome, so logs
    // are off.
    let runs_invented_tasks = matches!(
        cli.command,
        Command::Demo(_)
            | Command::Cost(_)
            | Command::Scale(_)
            | Command::Workflow(workflows::WorkflowCommand::Simulate(_))
    );
    let level = if runs_invented_tasks { "off" } else { "warn" };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    match cli.command {
        Command::Demo(args) => demo::run(args).await,
        Command::Local(args) => local::run(args).await,
        Command::Bench(args) => bench::run(args).await,
        Command::Cost(args) => cost::run(*args).await,
        Command::Submit { files, deployment } => tasks::submit(&files, &deployment).await,
        Command::Show { task, json, deployment } => show::show(&task, json, &deployment).await,
        Command::List(args) => tasks::list(args).await,
        Command::Resubmit(args) => operate::resubmit(args).await,
        Command::Skip(args) => operate::skip(args).await,
        Command::Complete(args) => operate::complete(args).await,
        Command::Undo(target) => operate::command(target, Order::Undo).await,
        Command::Cancel(target) => operate::command(target, Order::Cancel).await,
        Command::Pause(target) => operate::command(target, Order::Pause).await,
        Command::Resume(target) => operate::command(target, Order::Resume).await,
        Command::Callback(command) => callback::run(command).await,
        Command::RetryAll(args) => retry_all::run(args).await,
        Command::Console(args) => console_server::run(*args).await,
        Command::Dlq(command) => dead_letters::run(command).await,
        Command::Scale(args) => scale::run(*args).await,
        Command::Workflow(command) => workflows::run(command).await,
    }
}
