//! `steward retry-all`: resubmits all tasks of a workflow that are in Error, for example after an outage.

use std::{fmt, time::Duration};

use anyhow::{Result, bail};
use clap::Args;
use futures_util::{StreamExt, future::join_all, stream};
use indicatif::{ProgressBar, ProgressStyle};
use jiff::Timestamp;
use serde_json::{Value, json};
use steward_aws::store::{DynamoStore, TaskFilter};
use steward_core::model::{
    command::{CommandAction, CommandId},
    names::{StepName, TaskId, WorkflowName},
    task::{ProcessState, Task},
};

use crate::{
    client::{BATCH, DeploymentArgs, QueueSender},
    operate::{CommandOutcome, CommandReason, await_outcome},
    table::table,
    tenants::since,
};

/// Concurrent batches of commands. Five batches of ten tasks do not overload the scheduler.
const CONCURRENT_BATCHES: usize = 5;

/// Options of `steward retry-all`.
#[derive(Debug, Args)]
pub(crate) struct RetryAllArgs {
    /// Only tasks of this workflow.
    #[arg(long)]
    workflow: WorkflowName,
    /// Only tasks that ended after this: a time such as 2026-11-20T19:00:00Z, or a duration before now, such as `2h`.
    #[arg(long, value_name = "DURATION|TIME", value_parser = since)]
    since: Timestamp,
    /// Only tasks with this step, if it or its undo has failed and is not done.
    #[arg(long)]
    step: Option<StepName>,
    /// Only tasks whose error contains this text.
    #[arg(long)]
    reason_contains: Option<String>,
    /// The maximum number of tasks. If more match, those that ended last are taken.
    #[arg(long, default_value_t = 10_000)]
    limit: usize,
    /// Only list the tasks that would be resubmitted.
    #[arg(long)]
    dry_run: bool,
    /// Print a JSON list.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    reason: CommandReason,
    /// How long to wait for the outcome of each task's command.
    #[arg(long, default_value = "30s", value_parser = humantime::parse_duration)]
    wait: Duration,
    #[command(flatten)]
    deployment: DeploymentArgs,
}

/// The result of one task's command.
enum ResubmitResult {
    Resubmitted(ProcessState),
    Refused(String, ProcessState),
    NoOutcome(String),
    NotSent(String),
}

impl fmt::Display for ResubmitResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Resubmitted(_) => f.write_str("resubmitted"),
            Self::Refused(reason, _) => write!(f, "refused: {reason}"),
            Self::NoOutcome(reason) => write!(f, "no outcome: {reason}"),
            Self::NotSent(reason) => write!(f, "not sent: {reason}"),
        }
    }
}

impl ResubmitResult {
    /// The task's state after the command, if it is known.
    fn process_state(&self) -> Option<ProcessState> {
        match self {
            Self::Resubmitted(state) | Self::Refused(_, state) => Some(*state),
            Self::NoOutcome(_) | Self::NotSent(_) => None,
        }
    }
}

/// Resubmits the tasks, and prints a result for each. Returns an error if a command was refused, was not
/// sent or has no outcome.
pub(crate) async fn run(args: RetryAllArgs) -> Result<()> {
    let store = args.deployment.store().await;
    let tasks = in_error(&args, &store).await?;
    if tasks.len() == args.limit && !args.json {
        outln!(
            "stopped at --limit {}: the matching tasks that ended last; run the command again for the rest",
            args.limit
        );
    }
    if tasks.is_empty() && !args.json {
        outln!("no matching task in Error");
        return Ok(());
    }
    if args.dry_run {
        return print_tasks(&tasks, args.json);
    }
    let queue = args.deployment.commands().await?;
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} tasks processed, {elapsed} ")?;
    // The bar draws nothing if standard error is not a terminal.
    let bar = ProgressBar::new(tasks.len() as u64).with_style(style);
    let results: Vec<_> = stream::iter(tasks.chunks(BATCH))
        .map(|batch| retry(&args, &store, &queue, batch, &bar))
        .buffered(CONCURRENT_BATCHES)
        .collect()
        .await;
    bar.finish_and_clear();
    let results: Vec<ResubmitResult> = results.into_iter().flatten().collect();
    let mut rows = table(&["task", "result", "state"]);
    for (task, result) in tasks.iter().zip(&results) {
        let state = result.process_state().map_or_else(|| "-".to_owned(), |s| s.to_string());
        rows.add_row([task.task_id.to_string(), result.to_string(), state]);
    }
    let resubmitted =
        results.iter().filter(|result| matches!(result, ResubmitResult::Resubmitted(_))).count();
    if args.json {
        let listed = tasks.iter().zip(&results).map(|(task, result)| {
            json!({
                "task_id": task.task_id, "result": result.to_string(),
                "resubmitted": matches!(result, ResubmitResult::Resubmitted(_)),
                "process_state": result.process_state(),
            })
        });
        outln!("{:#}", Value::Array(listed.collect()));
    } else {
        outln!("{rows}\nresubmitted: {resubmitted} of {}", results.len());
    }
    if resubmitted < results.len() {
        bail!("not resubmitted: {} of {}", results.len() - resubmitted, results.len());
    }
    Ok(())
}

/// The matching tasks, in the order in which they ended.
async fn in_error(args: &RetryAllArgs, store: &DynamoStore) -> Result<Vec<Task>> {
    let filter = TaskFilter {
        workflow: Some(args.workflow.clone()),
        step: args.step.clone(),
        error: args.reason_contains.clone(),
        ..TaskFilter::unresolved()
    };
    let mut tasks = filter.find(store, None, args.limit, usize::MAX).await?.tasks;
    let contains = |task: &Task| match &args.reason_contains {
        Some(wanted) => task.error.as_ref().is_some_and(|error| error.contains(wanted)),
        None => true,
    };
    tasks.retain(|task| task.ended_at.is_some_and(|at| at >= args.since) && contains(task));
    tasks.sort_by_key(|task| task.ended_at);
    Ok(tasks)
}

fn print_tasks(tasks: &[Task], json: bool) -> Result<()> {
    if json {
        let listed = tasks.iter().map(|task| {
            json!({ "task_id": task.task_id, "ended_at": task.ended_at, "error": task.error })
        });
        outln!("{:#}", Value::Array(listed.collect()));
        return Ok(());
    }
    let mut rows = table(&["task", "ended", "error"]);
    for task in tasks {
        let ended = task.ended_at.map(|at| at.to_string()).unwrap_or_default();
        let error = task.error.clone().unwrap_or_default();
        rows.add_row([task.task_id.to_string(), ended, error]);
    }
    outln!("{rows}\nwould be resubmitted: {}", tasks.len());
    Ok(())
}

/// Sends a batch of commands, and waits for their outcomes.
async fn retry(
    args: &RetryAllArgs,
    store: &DynamoStore,
    queue: &QueueSender,
    batch: &[Task],
    bar: &ProgressBar,
) -> Vec<ResubmitResult> {
    let action = CommandAction::Resubmit { step: None, input: None, did_not_run: false };
    let commands: Result<Vec<_>> =
        batch.iter().map(|task| args.reason.command(task, &action)).collect();
    let sent = async {
        let (ids, messages): (Vec<_>, Vec<_>) = commands?.into_iter().unzip();
        anyhow::Ok((ids, queue.send(&messages).await?))
    };
    let (commands, refusals) = match sent.await {
        Ok(sent) => sent,
        Err(error) => {
            bar.inc(batch.len() as u64);
            return batch.iter().map(|_| ResubmitResult::NotSent(format!("{error:#}"))).collect();
        }
    };
    let results =
        batch.iter().zip(commands).zip(refusals).map(|((task, command), refusal)| async move {
            let result = match refusal {
                Some(reason) => ResubmitResult::NotSent(reason),
                None => result(store, &task.task_id, &command, args.wait).await,
            };
            bar.inc(1);
            result
        });
    join_all(results).await
}

async fn result(
    store: &DynamoStore,
    id: &TaskId,
    command: &CommandId,
    wait: Duration,
) -> ResubmitResult {
    match await_outcome(store, id, command, wait).await {
        Ok(CommandOutcome::Done(task)) => ResubmitResult::Resubmitted(task.process_state),
        Ok(CommandOutcome::Refused { reason, task }) => {
            ResubmitResult::Refused(reason, task.process_state)
        }
        Ok(CommandOutcome::Timeout) => {
            ResubmitResult::NoOutcome(format!("waited {}", humantime::format_duration(wait)))
        }
        Err(error) => ResubmitResult::NoOutcome(format!("{error:#}")),
    }
}
