//! `steward resubmit`, `skip`, `complete`, `undo`, `cancel`, `pause`, `resume`: a command goes to the
//! scheduler's queue like any other message; its answer is what the scheduler puts on the task's
//! record.
//!
//! ```text
//! steward ── Command ──► scheduler queue ──► scheduler ──► task.commands
//!    └──────────────── reads the task until it is there ───────┘
//! ```

use std::time::Duration;

use anyhow::{Context, Result, bail};
use backon::{ExponentialBuilder, Retryable};
use clap::{Args, builder::NonEmptyStringValueParser};
use serde_json::Value;
use steward_aws::store::DynamoStore;
use steward_core::model::{
    command::{Command, CommandId, CommandRecord, Order},
    integers::check_integers,
    messages::SchedulerMessage,
    names::{Part, TaskId},
    task::Task,
};
use steward_operator::view::TaskView;
use steward_runtime::ports::{PortError, StateStore};

use crate::client::Deployment;

/// The first and the longest pause between two looks at a task.
const LOOK_EVERY: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

/// Who commands, and why: it goes on the task's record and into an event.
#[derive(Debug, Args)]
pub(crate) struct Reason {
    /// Why, for the record; 200 characters are kept.
    #[arg(long, value_parser = NonEmptyStringValueParser::new())]
    why: String,
    /// Who asks, for the record.
    #[arg(long, env = "USER", value_parser = NonEmptyStringValueParser::new())]
    by: String,
}

/// A task, and how to command it.
#[derive(Debug, Args)]
pub(crate) struct Target {
    /// The task's id.
    task: TaskId,
    #[command(flatten)]
    reason: Reason,
    /// How long to wait for the scheduler's answer.
    #[arg(long, default_value = "30s", value_parser = humantime::parse_duration)]
    wait: Duration,
    /// Only send the command.
    #[arg(long)]
    no_wait: bool,
    #[command(flatten)]
    deployment: Deployment,
}

/// Which step to try again, and how.
#[derive(Debug, Args)]
pub(crate) struct ResubmitArgs {
    #[command(flatten)]
    target: Target,
    /// Which step; all that failed or wait if absent.
    #[arg(long)]
    step: Option<Part>,
    /// A JSON merge patch for the task's input, or @FILE with one; a field that is null is removed.
    #[arg(long, value_name = "JSON|@FILE", value_parser = read_json)]
    input: Option<Value>,
    /// You have seen that no earlier attempt took effect.
    #[arg(long)]
    did_not_run: bool,
}

/// Which step to go on without.
#[derive(Debug, Args)]
pub(crate) struct SkipArgs {
    #[command(flatten)]
    target: Target,
    /// Which step; the only one that failed if absent.
    #[arg(long)]
    step: Option<Part>,
    /// You have seen that no attempt took effect.
    #[arg(long)]
    did_not_run: bool,
}

/// Which step was done by hand.
#[derive(Debug, Args)]
pub(crate) struct CompleteArgs {
    #[command(flatten)]
    target: Target,
    /// Which step; the only one that failed if absent.
    #[arg(long)]
    step: Option<Part>,
    /// What later steps read as its output, as JSON, or @FILE with it.
    #[arg(long, value_name = "JSON|@FILE", value_parser = read_json, default_value = "null")]
    output: Value,
}

/// JSON, or that in a file if it starts with `@`.
pub(crate) fn read_json(text: &str) -> Result<Value> {
    let read;
    let text = match text.strip_prefix('@') {
        Some(file) => {
            read = std::fs::read_to_string(file).with_context(|| file.to_owned())?;
            &read
        }
        None => text,
    };
    check_integers(text)?;
    Ok(serde_json::from_str(text)?)
}

/// `steward resubmit`.
pub(crate) async fn resubmit(args: ResubmitArgs) -> Result<()> {
    let ResubmitArgs { target, step, input, did_not_run } = args;
    command(target, Order::Resubmit { step, input, did_not_run }).await
}

/// `steward skip`.
pub(crate) async fn skip(args: SkipArgs) -> Result<()> {
    let SkipArgs { target, step, did_not_run } = args;
    command(target, Order::Skip { step, did_not_run }).await
}

/// `steward complete`.
pub(crate) async fn complete(args: CompleteArgs) -> Result<()> {
    let CompleteArgs { target, step, output } = args;
    command(target, Order::Complete { step, output }).await
}

/// Commands a task, and says what became of it. A command that is refused, or not answered in time,
/// is an error.
pub(crate) async fn command(target: Target, order: Order) -> Result<()> {
    let Target { task: id, reason, wait, no_wait, deployment } = target;
    let store = deployment.store().await;
    if store.load(&id).await?.is_none() {
        bail!("there is no task `{id}`");
    }
    let (command_id, message) = reason.command(&id, &order)?;
    let asked = format!("{id}: {}", order.describe(&[]));
    let refusals = deployment.scheduler().await?.send(&[message]).await?;
    if let Some(reason) = refusals.into_iter().flatten().next() {
        bail!("{asked}: not sent, the queue refused it: {reason}");
    }
    if no_wait {
        say!("{asked}: sent, as command {command_id}");
        return Ok(());
    }
    match answer(&store, &id, &command_id, wait).await? {
        Answer::Done(task) => {
            let TaskView { process_state, next, .. } = TaskView::of(&task);
            say!("{asked}: done; {process_state}, next: {next}");
            Ok(())
        }
        Answer::Refused { reason, .. } => bail!("{asked}: refused: {reason}"),
        Answer::None => bail!(
            "{asked}: no answer within {}; it may still be carried out, see `steward show {id}`",
            humantime::format_duration(wait)
        ),
    }
}

impl Reason {
    /// A new command's id, and its message to the scheduler.
    pub(crate) fn command(&self, task_id: &TaskId, order: &Order) -> Result<(CommandId, String)> {
        let command_id: CommandId = uuid::Uuid::new_v4().to_string().parse()?;
        let (by, why) = (self.by.clone(), self.why.clone());
        let (task_id, order) = (task_id.clone(), order.clone());
        let issued_at = Some(jiff::Timestamp::now());
        let command =
            Command { command_id: command_id.clone(), task_id, by, why, order, issued_at };
        Ok((command_id, serde_json::to_string(&SchedulerMessage::Command(command))?))
    }
}

/// What became of a command.
pub(crate) enum Answer {
    /// It was carried out; the task, then or a little later.
    Done(Box<Task>),
    /// It was refused.
    Refused {
        /// Why.
        reason: String,
        /// The task, then or a little later.
        task: Box<Task>,
    },
    /// It was not decided in time.
    None,
}

/// Why the answer is not there yet.
enum NotYet {
    Undecided,
    Gone,
    Unread(PortError),
}

/// Waits until a command is on the task's record.
pub(crate) async fn answer(
    store: &DynamoStore,
    id: &TaskId,
    command: &CommandId,
    wait: Duration,
) -> Result<Answer> {
    let look = || async {
        let task = store.load(id).await.map_err(NotYet::Unread)?.ok_or(NotYet::Gone)?;
        let record = task.commands.iter().find(|record| record.id == *command).cloned();
        record.map(|record| (record, task)).ok_or(NotYet::Undecided)
    };
    let (first, longest) = LOOK_EVERY;
    let pauses = ExponentialBuilder::default()
        .with_min_delay(first)
        .with_max_delay(longest)
        .without_max_times();
    let may_come = |not_yet: &NotYet| match not_yet {
        NotYet::Undecided => true,
        NotYet::Gone => false,
        NotYet::Unread(error) => error.retryable,
    };
    match tokio::time::timeout(wait, look.retry(pauses).when(may_come)).await {
        Ok(Ok((CommandRecord { refused: None, .. }, task))) => Ok(Answer::Done(Box::new(task))),
        Ok(Ok((CommandRecord { refused: Some(reason), .. }, task))) => {
            Ok(Answer::Refused { reason, task: Box::new(task) })
        }
        Ok(Err(NotYet::Gone)) => bail!("task `{id}` has expired"),
        Ok(Err(NotYet::Unread(error))) => Err(error.into()),
        Ok(Err(NotYet::Undecided)) | Err(_) => Ok(Answer::None),
    }
}
