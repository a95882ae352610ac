//! The `steward` command.

use std::{process::ExitCode, time::Duration};

use anyhow::{Context, Result};
use clap::{FromArgMatches, Parser, Subcommand};
use steward_core::model::{
    command::CommandAction,
    names::{Part, TaskId},
    payload::PayloadKey,
};
use tokio::runtime::Builder;

#[macro_use]
mod stdout;

mod agent_check;
mod agents;
mod assumptions;
mod bench;
mod bulk;
mod callback;
mod client;
mod console_server;
mod cost;
mod dead_letters;
mod demo;
mod endpoint;
mod env_args;
mod failure;
mod forget;
mod help;
mod local;
mod log;
mod new;
mod operate;
mod payloads;
mod redrive;
mod rerun;
mod restore;
mod retry_all;
mod scale;
mod show;
mod stop_signal;
mod submit;
mod table;
mod tasks;
mod tenants;
mod workflows;

/// The AWS SDK allocates a lot: this allocator cuts the CPU time of a step by a quarter (docs/performance.md).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Durable, multi-step business tasks on AWS Lambda: each task completes or is undone.
#[derive(Debug, Parser)]
#[command(name = "steward", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run tasks against services with injected faults, all in this process, and audit the result.
    Demo(demo::DemoArgs),
    /// Run your workflows against your services, with AWS emulated in this process, until Ctrl-C.
    Local(local::LocalArgs),
    /// Write a project of your own: a workflow with tests, an agent, and what deploys it and checks it.
    New(new::NewArgs),
    /// Submit tasks from JSON files, and wait for their end if asked to.
    Submit(submit::SubmitArgs),
    /// Benchmark Steward on this machine, with AWS emulated: throughput, latency, CPU, memory, AWS requests.
    Bench(bench::BenchArgs),
    /// Estimate the cost of a million successful tasks of a workflow, by function and by step, and
    /// compare it with other services.
    Cost(Box<cost::CostArgs>),
    /// Show a task: its state, all attempts and commands, and what happens next.
    Show {
        /// The task's id.
        task: TaskId,
        /// Show the attempts at this item too, for example `ship[1234]`. Of a step with more than 200 items, only those at 50
        /// items are shown: first those that failed, wait or run.
        #[arg(long)]
        part: Option<Part>,
        /// Show what the services said in the bodies of their errors too. They may contain data of the task; values that
        /// the workflow masks are hidden.
        #[arg(long)]
        errors: bool,
        /// Write the payload with this key to the standard output, instead of the task. Without this option, the keys are
        /// shown. Reading needs the right to read the bucket of payloads.
        #[arg(long, value_name = "KEY", value_parser = |key: &str| PayloadKey::try_from(key.to_owned()))]
        payload: Option<PayloadKey>,
        /// Print one JSON object.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        deployment: client::DeploymentArgs,
    },
    /// List tasks, or count those that failed by cause.
    List(tasks::ListArgs),
    /// Count the stored tasks of each tenant. Scans the whole table.
    Tenants(tenants::TenantsArgs),
    /// Retry failed steps with new attempts, and end the pause before a retry. With --step, it also ends a
    /// `wait`.
    Resubmit(operate::ResubmitArgs),
    /// Continue the task without a step, or without its undo.
    Skip(operate::SkipArgs),
    /// Record that a step, or its undo, was done by hand.
    Complete(operate::CompleteArgs),
    /// Answer the callback of a step that awaits one: the step completes.
    Approve(operate::ApproveArgs),
    /// Answer the callback of a step that awaits one: the step fails, with your reason.
    Reject(operate::RejectArgs),
    /// Undo the whole task.
    Undo(operate::TaskCommandArgs),
    /// Stop a task and put it in Error. Nothing more is sent, nothing is undone. `resubmit` or `undo` continue
    /// from there.
    Cancel(operate::TaskCommandArgs),
    /// Record that the Error of tasks is settled: they are reported no more, and expire after their retention time.
    Resolve(operate::ResolveArgs),
    /// Pause a task: it starts no further steps until it is resumed.
    Pause(operate::TaskCommandArgs),
    /// Resume a paused task.
    Resume(operate::TaskCommandArgs),
    /// Submit a new task that repeats one that has ended: as a whole, or from a step on with the outputs of the steps before.
    Rerun(rerun::RerunArgs),
    /// Submit new tasks that repeat all tasks of a workflow that ended in a state.
    RerunAll(rerun::RerunAllArgs),
    /// Erase the data of a task that has ended: its documents in both tables, and its payloads. Needs the right to delete them.
    Forget(forget::ForgetArgs),
    /// Copy the items of restored tables into those of the deployment. Items that the deployment has stay as they are.
    Restore(restore::RestoreArgs),
    /// Complete, fail or extend a step that awaits a callback, with its callback token.
    #[command(subcommand)]
    Callback(callback::CallbackCommand),
    /// Resubmit all tasks of a workflow that are in Error.
    RetryAll(bulk::BulkArgs),
    /// List the agents of a deployment: registration, circuit breaker, queue, dead letters, last reply. Subcommands for
    /// authors of agents: `contract`, `check`.
    #[command(visible_alias = "agent")]
    Agents(Box<agents::AgentsArgs>),
    /// Serve the operator console on this machine, for a deployment or for its console function behind IAM.
    Console(Box<console_server::ConsoleArgs>),
    /// Show the names of the parts of a deployment. Every command that reads one takes these options.
    Deployment(client::DeploymentArgs),
    /// List dead-letter queues, show their messages, or redrive them.
    #[command(subcommand)]
    Dlq(dead_letters::DlqCommand),
    /// Predict how a deployment handles a load: backlogs, the bottleneck, which limits to raise, cost.
    /// A calculation only: no load is sent.
    Scale(Box<scale::ScaleArgs>),
    /// Check, publish, compare, draw and forecast workflow definitions.
    #[command(subcommand)]
    Workflow(workflows::WorkflowCommand),
}

/// How long the end of the process waits for work in progress, such as the validation of an input.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_millis(100);

fn main() -> ExitCode {
    let ended = Builder::new_multi_thread().enable_all().build().context("start the runtime");
    let ended = ended.and_then(|runtime| {
        let ended = runtime.block_on(Box::pin(run()));
        runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
        ended
    });
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failure::report(&error),
    }
}

async fn run() -> Result<()> {
    let cli = Cli::from_arg_matches(&help::command().get_matches())?;
    // These commands run simulated tasks, most of them with injected faults. Warnings about those
    // faults would only distract from the printed results.
    let is_simulated = matches!(
        cli.command,
        Command::Demo(_)
            | Command::Cost(_)
            | Command::Scale(_)
            | Command::Workflow(
                workflows::WorkflowCommand::Simulate(_)
                    | workflows::WorkflowCommand::Test(_)
                    | workflows::WorkflowCommand::Failures(_)
            )
    );
    // The SDK warns of each source of credentials that it tries; the error says what is missing.
    let level = if is_simulated { "off" } else { "warn,aws_config=off" };
    if let Command::Local(args) = &cli.command {
        log::start_for_functions(args.log_format, level);
    } else {
        log::start_text(level);
    }
    match cli.command {
        Command::Demo(args) => Box::pin(demo::run(args)).await,
        Command::Local(args) => local::run(args).await,
        Command::New(args) => new::run(&args),
        Command::Bench(args) => Box::pin(bench::run(args)).await,
        Command::Cost(args) => cost::run(*args).await,
        Command::Submit(args) => submit::run(args).await,
        Command::Show { task, part, errors, payload, json, deployment } => {
            let (part, payload) = (part.as_ref(), payload.as_ref());
            let options = show::ShowOptions { part, errors, json, payload };
            show::show(&task, options, &deployment).await
        }
        Command::Deployment(names) => names.print(),
        Command::List(args) => tasks::list(args).await,
        Command::Tenants(args) => tenants::run(args).await,
        Command::Resubmit(args) => operate::resubmit(args).await,
        Command::Skip(args) => operate::skip(args).await,
        Command::Complete(args) => operate::complete(args).await,
        Command::Approve(args) => operate::approve(args).await,
        Command::Reject(args) => operate::reject(args).await,
        Command::Undo(args) => operate::command(args, CommandAction::Undo).await,
        Command::Cancel(args) => operate::cancel(args).await,
        Command::Resolve(args) => operate::resolve(args).await,
        Command::Pause(args) => operate::command(args, CommandAction::Pause).await,
        Command::Resume(args) => operate::command(args, CommandAction::Resume).await,
        Command::Rerun(args) => Box::pin(rerun::run(args)).await,
        Command::RerunAll(args) => Box::pin(rerun::run_all(args)).await,
        Command::Forget(args) => forget::run(args).await,
        Command::Restore(args) => restore::run(args).await,
        Command::Callback(command) => callback::run(command).await,
        Command::RetryAll(args) => retry_all::run(args).await,
        Command::Agents(args) => agents::run(*args).await,
        Command::Console(args) => console_server::run(*args).await,
        Command::Dlq(command) => dead_letters::run(command).await,
        Command::Scale(args) => scale::run(*args).await,
        Command::Workflow(command) => Box::pin(workflows::run(command)).await,
    }
}
