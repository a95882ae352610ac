//! `steward resubmit`, `skip`, `complete`, `undo`, `cancel`, `pause`, `resume`: sends a command to the
//! commands queue, and waits until the scheduler has recorded its outcome in the task.
//!
//! ```text
//! steward ── Command ──► commands queue ──► scheduler ──► task.commands
//!    └──────── polls the task until the outcome is recorded ───┘
//! ```

use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use backon::{ExponentialBuilder, Retryable};
use clap::{Args, builder::NonEmptyStringValueParser};
use serde::Serialize;
use serde_json::{Value, json};
use steward_aws::store::DynamoStore;
use steward_core::model::{
    command::{Command, CommandAction, CommandId, CommandRecord},
    integers::check_integers,
    messages::SchedulerMessage,
    names::{Part, TaskId},
    task::{ProcessState, Task},
};
use steward_operator::view::TaskView;
use steward_runtime::ports::{PortError, StateStore};

use crate::client::{DeploymentArgs, QueuedText};

/// The first and the longest pause between two reads of the task.
const POLL_PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

/// Who sends the command, and why. Both are recorded in the task and published in an event.
#[derive(Debug, Args)]
pub(crate) struct CommandReason {
    /// The reason, for the audit record; it is shortened to 200 characters.
    #[arg(long, value_parser = NonEmptyStringValueParser::new())]
    pub(crate) why: String,
    /// Who sends the command, for the audit record.
    #[arg(long, default_value_t = operator_name(), value_parser = NonEmptyStringValueParser::new())]
    pub(crate) by: String,
}

/// Who uses this command: `$USER` or `$LOGNAME`. In a container, which has neither, its host name.
pub(crate) fn operator_name() -> String {
    let variable = |name| std::env::var(name).ok().filter(|text| !text.is_empty());
    let host = || {
        let host = variable("HOSTNAME").or_else(|| std::fs::read_to_string("/etc/hostname").ok());
        format!("unknown@{}", host.as_deref().map_or("unknown", str::trim))
    };
    variable("USER").or_else(|| variable("LOGNAME")).unwrap_or_else(host)
}

/// The arguments that all commands for a task have.
#[derive(Debug, Args)]
pub(crate) struct TaskCommandArgs {
    /// The task's id.
    pub(crate) task: TaskId,
    #[command(flatten)]
    pub(crate) options: CommandOptions,
}

/// Options of `steward resolve`.
#[derive(Debug, Args)]
pub(crate) struct ResolveArgs {
    /// The ids of the tasks.
    #[arg(required = true, value_name = "TASK")]
    tasks: Vec<TaskId>,
    #[command(flatten)]
    options: CommandOptions,
}

/// The options that all commands for a task have.
#[derive(Debug, Args)]
pub(crate) struct CommandOptions {
    #[command(flatten)]
    reason: CommandReason,
    /// How long to wait for the outcome.
    #[arg(long, default_value = "30s", value_parser = humantime::parse_duration)]
    wait: Duration,
    /// Send the command without waiting for its outcome.
    #[arg(long)]
    no_wait: bool,
    /// Print one JSON object. The exit code says whether the command was carried out.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) deployment: DeploymentArgs,
}

/// Options of `steward resubmit`.
#[derive(Debug, Args)]
pub(crate) struct ResubmitArgs {
    #[command(flatten)]
    target: TaskCommandArgs,
    /// The step to retry. If absent: all failed steps, and steps that pause before a retry.
    #[arg(long)]
    step: Option<Part>,
    /// A JSON merge patch for the task's input, or @FILE with one; null removes a field.
    #[arg(long, value_name = "JSON|@FILE", value_parser = read_json)]
    input: Option<Value>,
    /// Send another idempotency key, for a service that repeats a stored error under the old one.
    #[arg(long, conflicts_with = "input")]
    new_key: bool,
    /// Confirm that no earlier attempt took effect at the service. Needed if one may have, and --input or --new-key is given
    /// or the step is not idempotent. If it is wrong, the service acts twice.
    #[arg(long)]
    did_not_run: bool,
}

/// Options of `steward skip`.
#[derive(Debug, Args)]
pub(crate) struct SkipArgs {
    #[command(flatten)]
    target: TaskCommandArgs,
    /// The step; may be absent if only one step failed.
    #[arg(long)]
    step: Option<Part>,
    /// Confirm that no attempt took effect at the service. Otherwise, a step that may have run is undone with the others if
    /// the task is undone later.
    #[arg(long)]
    did_not_run: bool,
}

/// Options of `steward complete`.
#[derive(Debug, Args)]
pub(crate) struct CompleteArgs {
    #[command(flatten)]
    target: TaskCommandArgs,
    /// The step; may be absent if only one step failed.
    #[arg(long)]
    step: Option<Part>,
    /// The output of the step, which later steps read, as JSON or @FILE.
    #[arg(long, value_name = "JSON|@FILE", value_parser = read_json, default_value = "null")]
    output: Value,
}

/// Options of `steward approve`.
#[derive(Debug, Args)]
pub(crate) struct ApproveArgs {
    #[command(flatten)]
    target: TaskCommandArgs,
    /// The step or item; may be absent if only one awaits a callback.
    #[arg(long)]
    step: Option<Part>,
    /// The answer, which is the output of the step, as JSON or @FILE.
    #[arg(long, value_name = "JSON|@FILE", value_parser = read_json, default_value = "null")]
    answer: Value,
}

/// Options of `steward reject`.
#[derive(Debug, Args)]
pub(crate) struct RejectArgs {
    #[command(flatten)]
    target: TaskCommandArgs,
    /// The step or item; may be absent if only one awaits a callback.
    #[arg(long)]
    step: Option<Part>,
}

/// Parses JSON, or the JSON in a file if `text` is `@FILE`.
pub(crate) fn read_json(text: &str) -> Result<Value> {
    let contents;
    let text = match text.strip_prefix('@') {
        Some(file) => {
            contents = std::fs::read_to_string(file).with_context(|| file.to_owned())?;
            &contents
        }
        None => text,
    };
    check_integers(text)?;
    Ok(serde_json::from_str(text)?)
}

/// `steward resubmit`.
pub(crate) async fn resubmit(args: ResubmitArgs) -> Result<()> {
    let ResubmitArgs { target, step, input, new_key, did_not_run } = args;
    let input = input.or_else(|| new_key.then(|| json!({})));
    command(target, CommandAction::Resubmit { step, input, did_not_run }).await
}

/// `steward skip`.
pub(crate) async fn skip(args: SkipArgs) -> Result<()> {
    let SkipArgs { target, step, did_not_run } = args;
    command(target, CommandAction::Skip { step, did_not_run }).await
}

/// `steward complete`.
pub(crate) async fn complete(args: CompleteArgs) -> Result<()> {
    let CompleteArgs { target, step, output } = args;
    command(target, CommandAction::Complete { step, output }).await
}

/// `steward approve`.
pub(crate) async fn approve(args: ApproveArgs) -> Result<()> {
    let ApproveArgs { target, step, answer } = args;
    command(target, CommandAction::Approve { step, answer }).await
}

/// `steward reject`.
pub(crate) async fn reject(args: RejectArgs) -> Result<()> {
    let RejectArgs { target, step } = args;
    command(target, CommandAction::Reject { step }).await
}

/// `steward cancel`. Says first what it does not do.
#[expect(clippy::print_stderr, reason = "standard output only has the outcome")]
pub(crate) async fn cancel(args: TaskCommandArgs) -> Result<()> {
    let task = &args.task;
    eprintln!(
        "cancel undoes nothing: what has run keeps its effect. `steward undo {task}` undoes it."
    );
    command(args, CommandAction::Cancel).await
}

/// `steward resolve`. Goes on after a task that refuses it.
pub(crate) async fn resolve(ResolveArgs { tasks, options }: ResolveArgs) -> Result<()> {
    let mut refused = Vec::new();
    for task in &tasks {
        let result = send(task, &options, CommandAction::Resolve).await;
        refused.extend(result.err().map(|error| format!("{error:#}")));
    }
    if refused.is_empty() { Ok(()) } else { bail!("{}", refused.join("\n")) }
}

/// What became of a command, as JSON.
#[derive(Debug, Serialize)]
struct CommandReport<'a> {
    task_id: &'a TaskId,
    command_id: &'a CommandId,
    command: String,
    #[serde(flatten)]
    result: CommandResult,
}

/// What became of a command.
#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case", tag = "outcome")]
enum CommandResult {
    /// It was sent, and its outcome is not awaited.
    Sent,
    /// It was carried out.
    Done {
        process_state: ProcessState,
        next: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        submitted: Option<TaskId>,
    },
    /// The scheduler refused it.
    Refused { process_state: ProcessState, reason: String },
    /// It was sent, and has no outcome yet.
    NoOutcome,
}

/// Sends a command, and prints its outcome.
///
/// # Errors
/// The command is refused, or has no outcome in time.
pub(crate) async fn command(args: TaskCommandArgs, action: CommandAction) -> Result<()> {
    send(&args.task, &args.options, action).await
}

async fn send(id: &TaskId, options: &CommandOptions, action: CommandAction) -> Result<()> {
    let CommandOptions { reason, wait, no_wait, json, deployment } = options;
    let wait = *wait;
    let store = deployment.store().await;
    let Some(task) = store.load(id).await? else { bail!("task `{id}` does not exist") };
    let (command_id, message) = reason.command(&task, &action)?;
    let command = action.describe(&[]);
    let subject = format!("{id}: {command}");
    let refusals = deployment.commands().await?.send(&[message]).await?;
    if let Some(reason) = refusals.into_iter().flatten().next() {
        bail!("{subject}: not sent, because SQS refused it: {reason}");
    }
    let result = match *no_wait {
        true => CommandResult::Sent,
        false => await_outcome(&store, id, &command_id, wait).await?.into(),
    };
    if *json {
        let report = CommandReport { task_id: id, command_id: &command_id, command, result };
        outln!("{}", serde_json::to_string_pretty(&report)?);
        return report.result.failure(&subject, wait).map_or(Ok(()), Err);
    }
    match &result {
        CommandResult::Sent => outln!("{subject}: sent as command {command_id}"),
        CommandResult::Done { submitted: Some(new), .. } => {
            outln!("{subject}: done; task {new} is submitted");
        }
        CommandResult::Done { process_state, next, submitted: None } => {
            outln!("{subject}: done; {process_state}, next: {next}");
        }
        CommandResult::Refused { .. } | CommandResult::NoOutcome => {}
    }
    result.failure(&subject, wait).map_or(Ok(()), Err)
}

impl CommandResult {
    /// The error with which `steward` ends, if the command was not carried out.
    fn failure(&self, subject: &str, wait: Duration) -> Option<anyhow::Error> {
        match self {
            Self::Sent | Self::Done { .. } => None,
            Self::Refused { reason, .. } => Some(anyhow!("{subject}: refused: {reason}")),
            Self::NoOutcome => Some(anyhow!(
                "{subject}: no outcome within {}; the command may still be carried out, see `steward show`",
                humantime::format_duration(wait)
            )),
        }
    }
}

impl From<CommandOutcome> for CommandResult {
    fn from(outcome: CommandOutcome) -> Self {
        match outcome {
            CommandOutcome::Done { task, submitted } => {
                let TaskView { process_state, next, .. } = TaskView::of(&task);
                Self::Done { process_state, next, submitted }
            }
            CommandOutcome::Refused { reason, task } => {
                Self::Refused { process_state: task.process_state, reason }
            }
            CommandOutcome::Timeout => Self::NoOutcome,
        }
    }
}

impl CommandReason {
    /// Creates a command: its new id, and the message to the scheduler.
    pub(crate) fn command(
        &self,
        task: &Task,
        action: &CommandAction,
    ) -> Result<(CommandId, QueuedText)> {
        let command_id: CommandId = uuid::Uuid::new_v4().to_string().parse()?;
        let (by, why) = (self.by.clone(), self.why.clone());
        let (task_id, action) = (task.task_id.clone(), action.clone());
        let issued_at = jiff::Timestamp::now();
        let command =
            Command { command_id: command_id.clone(), task_id, by, why, action, issued_at };
        let text = serde_json::to_string(&SchedulerMessage::Command(command))?;
        Ok((command_id, QueuedText { text, tenant: task.tenant.clone() }))
    }
}

/// The outcome of a command.
pub(crate) enum CommandOutcome {
    /// The command was carried out.
    Done {
        /// The task, as read when the outcome was seen.
        task: Box<Task>,
        /// The new task that the command submitted, if any.
        submitted: Option<TaskId>,
    },
    /// The command was refused.
    Refused {
        /// Why.
        reason: String,
        /// The task, as read when the outcome was seen.
        task: Box<Task>,
    },
    /// No outcome was recorded in time.
    Timeout,
}

/// Why one read of the task found no outcome.
enum NoOutcome {
    /// The scheduler has not recorded one.
    NotRecorded,
    /// The task has expired.
    TaskExpired,
    /// The read failed.
    ReadFailed(PortError),
}

/// Waits until the task records the outcome of a command.
pub(crate) async fn await_outcome(
    store: &DynamoStore,
    id: &TaskId,
    command: &CommandId,
    wait: Duration,
) -> Result<CommandOutcome> {
    let read = || async {
        let task =
            store.load(id).await.map_err(NoOutcome::ReadFailed)?.ok_or(NoOutcome::TaskExpired)?;
        let record = task.commands.iter().find(|record| record.id == *command).cloned();
        record.map(|record| (record, task)).ok_or(NoOutcome::NotRecorded)
    };
    let (first, longest) = POLL_PAUSES;
    let pauses = ExponentialBuilder::default()
        .with_min_delay(first)
        .with_max_delay(longest)
        .without_max_times();
    let may_follow = |reason: &NoOutcome| match reason {
        NoOutcome::NotRecorded => true,
        NoOutcome::TaskExpired => false,
        NoOutcome::ReadFailed(error) => error.retryable,
    };
    match tokio::time::timeout(wait, read.retry(pauses).when(may_follow)).await {
        Ok(Ok((CommandRecord { refused: None, submitted, .. }, task))) => {
            Ok(CommandOutcome::Done { task: Box::new(task), submitted })
        }
        Ok(Ok((CommandRecord { refused: Some(reason), .. }, task))) => {
            Ok(CommandOutcome::Refused { reason, task: Box::new(task) })
        }
        Ok(Err(NoOutcome::TaskExpired)) => bail!("task `{id}` has expired"),
        Ok(Err(NoOutcome::ReadFailed(error))) => Err(error.into()),
        Ok(Err(NoOutcome::NotRecorded)) | Err(_) => Ok(CommandOutcome::Timeout),
    }
}
