//! `steward forget`: erases the labels, documents and payloads of one task, for example because a customer requests it.
//!
//! It acts with the permissions of its caller, because no function of a deployment may delete items
//! (docs/adr/0055-data-is-erased-by-the-operator-and-the-record-stays.md). The event `operator_command` is published
//! before anything is deleted.

use anyhow::{Context, Result, bail};
use clap::Args;
use jiff::Timestamp;
use serde_json::json;
use steward_core::{
    limits::{COMMAND_TEXT_CHARS_MAX, short_line},
    model::{
        events::{BusEvent, EventData},
        names::TaskId,
        task::{ProcessState, Task},
    },
};
use steward_runtime::ports::{EventBus, StateStore};

use crate::{client::DeploymentArgs, operate::CommandReason};

mod erasure;

use erasure::{Erased, ErasureStores, TaskRecord, erase, payloads_of};

/// Options of `steward forget`.
#[derive(Debug, Args)]
pub(crate) struct ForgetArgs {
    /// The task's id.
    task: TaskId,
    #[command(flatten)]
    reason: CommandReason,
    /// Also erase a task in Error, which can then be neither resubmitted nor undone, and a child task whose parent may still
    /// need it. A task in progress is never erased: cancel or undo it first.
    #[arg(long)]
    force: bool,
    /// Delete the task's record too, for example because its id is personal data. The same id can then be submitted again,
    /// and a late duplicate of its submission starts it again: submissions stay in their queue for at most 4 days.
    #[arg(long)]
    delete_record: bool,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    deployment: DeploymentArgs,
}

/// Erases documents and payloads, and prints what remains elsewhere.
pub(crate) async fn run(args: ForgetArgs) -> Result<()> {
    let ForgetArgs { task: id, reason, force, delete_record, json, deployment } = args;
    let store = deployment.store().await;
    let Some(task) = store.load(&id).await? else {
        bail!("task `{id}` does not exist");
    };
    if let Some(reason) = refusal(&task, force) {
        bail!("{id}: {reason}");
    }
    let bucket = deployment.payloads().await;
    let payloads = payloads_of(&bucket, &task).await?;
    let short = |text: &str| short_line(text, COMMAND_TEXT_CHARS_MAX);
    let data = EventData::OperatorCommand {
        task_id: id.clone(),
        command_id: uuid::Uuid::new_v4().to_string().parse()?,
        command: if delete_record { "forget, with the record" } else { "forget" }.to_owned(),
        by: short(&reason.by),
        // No function saw a sender: AWS CloudTrail records who deletes items.
        caller: None,
        why: short(&reason.why),
        refused: None,
    };
    let event = BusEvent::new(id.as_str(), Timestamp::now(), data);
    let published = deployment.bus().await.publish(vec![event]).await;
    published
        .into_iter()
        .collect::<Result<(), _>>()
        .context("nothing was erased, because the event `operator_command` was not published")?;
    let (tasks, documents) = deployment.task_tables();
    let record = if delete_record { TaskRecord::Deleted } else { TaskRecord::Kept };
    let stores = ErasureStores { tasks, documents, payloads: &bucket, store: &store };
    let erased = erase(&deployment.dynamodb().await, stores, &task, &payloads, record).await?;
    let Erased { documents, payloads } = erased;
    if json {
        let report = json!({
            "task_id": id, "documents_deleted": documents, "payloads_deleted": payloads, "record_deleted": delete_record,
        });
        outln!("{report:#}");
        return Ok(());
    }
    let kept =
        if delete_record { "its record is deleted" } else { "its record stays until it expires" };
    outln!(
        "{id}: erased, {documents} items in the documents table and {payloads} in the bucket; {kept}"
    );
    outln!(
        "still to do: child tasks (`{id}:STEP`), dead letters, rejected submissions, backups (docs/operations/data.md)"
    );
    Ok(())
}

/// Why the task is not erased, and what to do.
fn refusal(task: &Task, force: bool) -> Option<String> {
    match task.process_state {
        ProcessState::Pending | ProcessState::Processing | ProcessState::Undoing => {
            return Some(format!(
                "it is {}, and its steps need its documents; wait for its end, or `steward undo` or `steward cancel` it first",
                task.process_state
            ));
        }
        ProcessState::Error if !force => {
            return Some(
                "it is in Error; without its documents it can be neither resubmitted nor undone. Undo it first, or use --force"
                    .to_owned(),
            );
        }
        ProcessState::Error | ProcessState::Processed | ProcessState::Undone => {}
    }
    let parent = task.parent.as_ref().filter(|_| !force)?;
    Some(format!(
        "it is a child of task {}, which may read its output or undo it. Forget the parent first, then use --force",
        parent.task_id
    ))
}
