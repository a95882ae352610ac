//! `steward retry-all`: resubmits every task of a workflow that ended in Error, after an outage say.

use std::{fmt, time::Duration};

use anyhow::{Context, Result, bail};
use clap::Args;
use futures_util::{StreamExt, future::join_all, stream};
use indicatif::{ProgressBar, ProgressStyle};
use jiff::Timestamp;
use steward_aws::store::DynamoStore;
use steward_core::model::{
    command::{CommandId, Order},
    names::{TaskId, WorkflowName},
    task::{ProcessState, Task},
    time::earlier,
};

use crate::{
    client::{BATCH, Deployment, QueueSender},
    operate::{Answer, Reason, answer},
    table::table,
};

/// Batches of commands in hand at once, so that the scheduler is not flooded: fifty tasks.
const BATCHES_AT_ONCE: usize = 5;

/// Which tasks to resubmit.
#[derive(Debug, Args)]
pub(crate) struct RetryAllArgs {
    /// Only tasks of this workflow.
    #[arg(long)]
    workflow: WorkflowName,
    /// Only tasks that ended since then: `2h` ago, or a time such as 2026-11-20T19:00:00Z.
    #[arg(long, value_name = "DURATION|TIME", value_parser = since)]
    since: Timestamp,
    /// Only tasks whose error contains this text.
    #[arg(long)]
    reason_contains: Option<String>,
    /// How many at most.
    #[arg(long, default_value_t = 10_000)]
    limit: usize,
    /// Only show which tasks they are.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    reason: Reason,
    /// How long to wait for the scheduler's answer, task by task.
    #[arg(long, default_value = "30s", value_parser = humantime::parse_duration)]
    wait: Duration,
    #[command(flatten)]
    deployment: Deployment,
}

fn since(text: &str) -> Result<Timestamp> {
    match humantime::parse_duration(text) {
        Ok(ago) => Ok(earlier(Timestamp::now(), ago)),
        Err(_) => text.parse().context("neither a duration such as 2h nor a time"),
    }
}

/// What became of one task's command.
enum Fate {
    Resubmitted(ProcessState),
    Refused(String, ProcessState),
    Unanswered(String),
    NotSent(String),
}

impl fmt::Display for Fate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Resubmitted(_) => f.write_str("resubmitted"),
            Self::Refused(reason, _) => write!(f, "refused: {reason}"),
            Self::Unanswered(reason) => write!(f, "no answer: {reason}"),
            Self::NotSent(reason) => write!(f, "not sent: {reason}"),
        }
    }
}

impl Fate {
    /// The task's state after the command, where it is known.
    fn state(&self) -> String {
        match self {
            Self::Resubmitted(state) | Self::Refused(_, state) => state.to_string(),
            Self::Unanswered(_) | Self::NotSent(_) => "-".to_owned(),
        }
    }
}

/// Resubmits them all, and prints what became of each. It is an error if one was refused, not sent
/// or not answered.
pub(crate) async fn run(args: RetryAllArgs) -> Result<()> {
    let store = args.deployment.store().await;
    let tasks = in_error(&args, &store).await?;
    if tasks.len() == args.limit {
        say!("only the first {} tasks found: there may be more", tasks.len());
    }
    if tasks.is_empty() {
        say!("no such task in Error");
        return Ok(());
    }
    if args.dry_run {
        return print_tasks(&tasks);
    }
    let queue = args.deployment.scheduler().await?;
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} tasks answered, {elapsed} ")?;
    // On a terminal only: a bar draws nothing elsewhere.
    let bar = ProgressBar::new(tasks.len() as u64).with_style(style);
    let ids: Vec<_> = tasks.into_iter().map(|task| task.task_id).collect();
    let fates: Vec<_> = stream::iter(ids.chunks(BATCH))
        .map(|batch| retry(&args, &store, &queue, batch, &bar))
        .buffered(BATCHES_AT_ONCE)
        .collect()
        .await;
    bar.finish_and_clear();
    let fates: Vec<Fate> = fates.into_iter().flatten().collect();
    let mut rows = table(&["task", "result", "state"]);
    for (id, fate) in ids.iter().zip(&fates) {
        rows.add_row([id.to_string(), fate.to_string(), fate.state()]);
    }
    let resubmitted = fates.iter().filter(|fate| matches!(fate, Fate::Resubmitted(_))).count();
    say!("{rows}\nresubmitted: {resubmitted} of {}", fates.len());
    if resubmitted < fates.len() {
        bail!("not resubmitted: {} of {}", fates.len() - resubmitted, fates.len());
    }
    Ok(())
}

/// The tasks that are meant, in the order in which they ended. Reads the whole table.
async fn in_error(args: &RetryAllArgs, store: &DynamoStore) -> Result<Vec<Task>> {
    let matches =
        |error: &str| args.reason_contains.as_ref().is_none_or(|wanted| error.contains(wanted));
    let wanted = |task: &Task| {
        task.process_state == ProcessState::Error
            && task.workflow == args.workflow
            && task.ended_at.is_some_and(|at| at >= args.since)
            && matches(task.error.as_deref().unwrap_or_default())
    };
    let mut tasks = store.scan_tasks(args.limit, wanted).await?;
    tasks.sort_by_key(|task| task.ended_at);
    Ok(tasks)
}

fn print_tasks(tasks: &[Task]) -> Result<()> {
    let mut rows = table(&["task", "ended", "error"]);
    for task in tasks {
        let ended = task.ended_at.map(|at| at.to_string()).unwrap_or_default();
        let error = task.error.clone().unwrap_or_default();
        rows.add_row([task.task_id.to_string(), ended, error]);
    }
    say!("{rows}\nwould be resubmitted: {}", tasks.len());
    Ok(())
}

/// Sends a batch of commands, and waits for the answers.
async fn retry(
    args: &RetryAllArgs,
    store: &DynamoStore,
    queue: &QueueSender,
    batch: &[TaskId],
    bar: &ProgressBar,
) -> Vec<Fate> {
    let order = Order::Resubmit { step: None, input: None, did_not_run: false };
    let commands: Result<Vec<_>> = batch.iter().map(|id| args.reason.command(id, &order)).collect();
    let sent = async {
        let (ids, messages): (Vec<_>, Vec<_>) = commands?.into_iter().unzip();
        anyhow::Ok((ids, queue.send(&messages).await?))
    };
    let (commands, refusals) = match sent.await {
        Ok(sent) => sent,
        Err(error) => {
            bar.inc(batch.len() as u64);
            return batch.iter().map(|_| Fate::NotSent(format!("{error:#}"))).collect();
        }
    };
    let fates =
        batch.iter().zip(commands).zip(refusals).map(|((id, command), refusal)| async move {
            let fate = match refusal {
                Some(reason) => Fate::NotSent(reason),
                None => fate(store, id, &command, args.wait).await,
            };
            bar.inc(1);
            fate
        });
    join_all(fates).await
}

async fn fate(store: &DynamoStore, id: &TaskId, command: &CommandId, wait: Duration) -> Fate {
    match answer(store, id, command, wait).await {
        Ok(Answer::Done(task)) => Fate::Resubmitted(task.process_state),
        Ok(Answer::Refused { reason, task }) => Fate::Refused(reason, task.process_state),
        Ok(Answer::None) => {
            Fate::Unanswered(format!("waited {}", humantime::format_duration(wait)))
        }
        Err(error) => Fate::Unanswered(format!("{error:#}")),
    }
}
