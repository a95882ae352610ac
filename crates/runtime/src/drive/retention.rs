//! Extends the expiry of what a task refers to: its documents, and the child tasks of its steps. Their expiry was
//! computed from the latest possible end of the task at the time when they were written. A pause, an undo or an
//! operator's command may move that end. Most tasks never need an extension.

use super::error::DriveError;
use crate::{
    dispatch::extend_retention_message,
    ports::{Channel, Clock, Definitions, PortError, Ports, SaveOutcome, StateStore},
};
use steward_core::{
    definition::plan::{CompiledStep, Plan},
    engine::request::child_ids,
    limits,
    model::{messages::ExtendRetention, names::TaskId, task::Task},
    submission::is_tombstone,
};

/// Messages to child tasks that are sent together. A step may run ten thousand of them.
const MESSAGES_AT_ONCE: usize = 1_000;

/// Extends the expiry of the documents of `task`, and sends messages to its child tasks so that they do the same. The
/// caller saves the task afterwards: if the process crashes in between, the extension is repeated.
pub(super) async fn extend<P: Ports>(ports: &P, plan: &Plan, task: &Task) -> Result<(), PortError> {
    let retention = task.document_retention();
    ports.store().extend_documents(task).await?;
    let request = |child| ExtendRetention {
        task_id: child,
        parent: task.task_id.clone(),
        incarnation: task.incarnation,
        retention,
    };
    let children: Vec<_> = children(plan, task).collect();
    for chunk in children.chunks(MESSAGES_AT_ONCE) {
        let message =
            |child: &TaskId| extend_retention_message(request(child.clone()), task.tenant.clone());
        let messages = chunk.iter().map(message);
        ports.channel().send(messages.collect()).await.into_iter().collect::<Result<(), _>>()?;
    }
    Ok(())
}

/// The ids of all child tasks that `task` may have submitted.
fn children(plan: &Plan, task: &Task) -> impl Iterator<Item = TaskId> {
    let parts = task
        .started_parts()
        .filter(move |(part, _)| plan.find(&part.step).is_some_and(CompiledStep::runs_child));
    parts.flat_map(|(part, _)| child_ids(task, &part).collect::<Vec<_>>())
}

/// Extends the expiry of a child task because its parent needs it for longer. Does nothing if the child does not exist:
/// its submission was refused, or is not recorded yet.
///
/// # Errors
/// A port failed, or other writers won too many races for the task in a row.
pub async fn extend_for_parent<P: Ports>(
    ports: &P,
    request: &ExtendRetention,
) -> Result<(), DriveError> {
    let extended = |task: &Task| task.with_extended_retention(request);
    save_extended(ports, &request.task_id, extended).await.map(drop)
}

/// Extends the expiry of what a task in Error refers to, twice a day, until an operator has settled the Error. Returns the task, if
/// there is one.
///
/// # Errors
/// As for [`extend_for_parent`].
pub async fn keep_until_resolved<P: Ports>(
    ports: &P,
    task_id: &TaskId,
) -> Result<Option<Task>, DriveError> {
    let now = ports.clock().now();
    save_extended(ports, task_id, |task| task.kept_until_resolved(now)).await
}

/// Saves a task with a longer retention, and extends the expiry of its documents and child tasks first. `extended` returns `None` if
/// there is nothing to extend. Returns the task, if there is one.
async fn save_extended<P: Ports>(
    ports: &P,
    task_id: &TaskId,
    extended: impl Fn(&Task) -> Option<Task>,
) -> Result<Option<Task>, DriveError> {
    let port = DriveError::port(task_id);
    for _ in 0..limits::SAVE_CONFLICTS_MAX {
        let Some(task) = ports.store().load(task_id).await.map_err(port)? else { return Ok(None) };
        let Some(mut extended) = extended(&task) else { return Ok(Some(task)) };
        extended.saved_by = Some(ports.instance().to_owned());
        let (name, version) = (&task.workflow, Some(task.version));
        let plan = ports.definitions().workflow(name, version).await.map_err(port)?;
        match plan {
            Some(plan) => extend(ports, &plan, &extended).await.map_err(port)?,
            // A tombstone may belong to a workflow that does not exist.
            None if is_tombstone(&task) => {
                ports.store().extend_documents(&extended).await.map_err(port)?;
            }
            None => {
                let what = format!("workflow `{name}` in version {}", task.version);
                return Err(DriveError::missing(task_id, what));
            }
        }
        match ports.store().save(&extended).await.map_err(port)? {
            SaveOutcome::Saved => {
                tracing::info!(%task_id, "expiry extended");
                return Ok(Some(extended));
            }
            SaveOutcome::Conflict(_) => {}
        }
    }
    Err(DriveError::Contended { task_id: task_id.clone(), lost: limits::SAVE_CONFLICTS_MAX })
}
