//! A command to many tasks that have ended: selects them, sends one command to each, and waits for the outcomes.

use std::{fmt, time::Duration};

use anyhow::Result;
use clap::Args;
use futures_util::{StreamExt, future::join_all, stream};
use indicatif::{ProgressBar, ProgressStyle};
use jiff::Timestamp;
use steward_aws::store::{DynamoStore, StateFilter, TaskFilter};
use steward_core::model::{
    command::{CommandAction, CommandId},
    names::{StepName, TaskId, WorkflowName},
    task::{ProcessState, Task},
};

use crate::{
    client::{BATCH, DeploymentArgs, QueueSender},
    operate::{CommandOutcome, CommandReason, await_outcome},
    tenants::since,
};

/// Concurrent batches of commands. Five batches of ten tasks do not overload the scheduler.
const CONCURRENT_BATCHES: usize = 5;

/// Options of a command to many tasks.
#[derive(Debug, Args)]
pub(crate) struct BulkArgs {
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
    /// Only list the tasks, and send nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Print a JSON list.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    reason: CommandReason,
    /// How long to wait for the outcome of each task's command.
    #[arg(long, default_value = "30s", value_parser = humantime::parse_duration)]
    wait: Duration,
    #[command(flatten)]
    pub(crate) deployment: DeploymentArgs,
}

/// The result of one task's command.
pub(crate) enum BulkResult {
    Done(ProcessState),
    Refused(String, ProcessState),
    NoOutcome(String),
    NotSent(String),
}

impl fmt::Display for BulkResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done(_) => f.write_str("done"),
            Self::Refused(reason, _) => write!(f, "refused: {reason}"),
            Self::NoOutcome(reason) => write!(f, "no outcome: {reason}"),
            Self::NotSent(reason) => write!(f, "not sent: {reason}"),
        }
    }
}

impl BulkResult {
    /// Whether the command was carried out.
    pub(crate) fn is_done(&self) -> bool {
        matches!(self, Self::Done(_))
    }

    /// The task's state after the command, if it is known.
    pub(crate) fn process_state(&self) -> Option<ProcessState> {
        match self {
            Self::Done(state) | Self::Refused(_, state) => Some(*state),
            Self::NoOutcome(_) | Self::NotSent(_) => None,
        }
    }
}

impl BulkArgs {
    /// The matching tasks in this state, in the order in which they ended. Says when the limit is reached.
    pub(crate) async fn tasks(&self, store: &DynamoStore, state: StateFilter) -> Result<Vec<Task>> {
        let filter = TaskFilter {
            workflow: Some(self.workflow.clone()),
            step: self.step.clone(),
            error: self.reason_contains.clone(),
            state: Some(state),
            ..TaskFilter::default()
        };
        let mut tasks = filter.find(store, None, self.limit, usize::MAX).await?.tasks;
        let contains = |task: &Task| match &self.reason_contains {
            Some(wanted) => task.error.as_ref().is_some_and(|error| error.contains(wanted)),
            None => true,
        };
        tasks.retain(|task| task.ended_at.is_some_and(|at| at >= self.since) && contains(task));
        tasks.sort_by_key(|task| task.ended_at);
        if tasks.len() == self.limit && !self.json {
            outln!(
                "stopped at --limit {}: the matching tasks that ended last; run the command again for the rest",
                self.limit
            );
        }
        if tasks.is_empty() && !self.json {
            outln!("no matching task");
        }
        Ok(tasks)
    }

    /// Sends a command to each task. The results are in the order of the tasks.
    pub(crate) async fn command(
        &self,
        store: &DynamoStore,
        tasks: &[Task],
        action: &CommandAction,
    ) -> Result<Vec<BulkResult>> {
        let queue = self.deployment.commands().await?;
        let style =
            ProgressStyle::with_template("{bar:40} {pos}/{len} tasks processed, {elapsed} ")?;
        // The bar draws nothing if standard error is not a terminal.
        let bar = ProgressBar::new(tasks.len() as u64).with_style(style);
        let results: Vec<_> = stream::iter(tasks.chunks(BATCH))
            .map(|batch| self.command_batch(store, &queue, batch, action, &bar))
            .buffered(CONCURRENT_BATCHES)
            .collect()
            .await;
        bar.finish_and_clear();
        Ok(results.into_iter().flatten().collect())
    }

    /// Sends a batch of commands, and waits for their outcomes.
    async fn command_batch(
        &self,
        store: &DynamoStore,
        queue: &QueueSender,
        batch: &[Task],
        action: &CommandAction,
        bar: &ProgressBar,
    ) -> Vec<BulkResult> {
        let commands: Result<Vec<_>> =
            batch.iter().map(|task| self.reason.command(task, action)).collect();
        let sent = async {
            let (ids, messages): (Vec<_>, Vec<_>) = commands?.into_iter().unzip();
            anyhow::Ok((ids, queue.send(&messages).await?))
        };
        let (commands, refusals) = match sent.await {
            Ok(sent) => sent,
            Err(error) => {
                bar.inc(batch.len() as u64);
                return batch.iter().map(|_| BulkResult::NotSent(format!("{error:#}"))).collect();
            }
        };
        let results =
            batch.iter().zip(commands).zip(refusals).map(|((task, command), refusal)| async move {
                let result = match refusal {
                    Some(reason) => BulkResult::NotSent(reason),
                    None => result(store, &task.task_id, &command, self.wait).await,
                };
                bar.inc(1);
                result
            });
        join_all(results).await
    }
}

async fn result(
    store: &DynamoStore,
    id: &TaskId,
    command: &CommandId,
    wait: Duration,
) -> BulkResult {
    match await_outcome(store, id, command, wait).await {
        Ok(CommandOutcome::Done { task, .. }) => BulkResult::Done(task.process_state),
        Ok(CommandOutcome::Refused { reason, task }) => {
            BulkResult::Refused(reason, task.process_state)
        }
        Ok(CommandOutcome::Timeout) => {
            BulkResult::NoOutcome(format!("waited {}", humantime::format_duration(wait)))
        }
        Err(error) => BulkResult::NoOutcome(format!("{error:#}")),
    }
}
