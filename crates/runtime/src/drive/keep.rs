//! Keeping what a task refers to for longer: its documents, and the tasks that run for its steps. Each was
//! to be kept for as long as the task could live when it was written; a pause, an undo or an operator
//! may make that longer. In the ordinary life of a task nothing of this happens.

use std::sync::Arc;
use steward_core::definition::plan::Plan;
use steward_core::definition::plan::Step;

use super::DriveError;
use crate::{
    dispatch::kept,
    ports::{Channel, Definitions, PortError, Ports, Saved, StateStore},
};
use steward_core::{
    engine::request::child_id,
    limits,
    model::{messages::Keep, names::TaskId, task::Task},
    submission::is_tombstone,
};

/// Has the documents of `task` kept for as long as it may live now, and tells the tasks of its steps. To
/// be done before the task is saved: if this process dies in between, it is done again.
pub(super) async fn for_longer<P: Ports>(
    ports: &P,
    workflow: &Plan,
    task: &Task,
) -> Result<(), PortError> {
    let until = task.kept();
    ports.store().extend_documents(&task.owner(), until).await?;
    let keep = |child| Keep {
        task_id: child,
        parent: task.task_id.clone(),
        incarnation: task.incarnation,
        kept: until,
    };
    let messages: Vec<_> = children(workflow, task).map(|child| kept(keep(child))).collect();
    if messages.is_empty() {
        return Ok(());
    }
    ports.channel().send(messages).await.into_iter().collect()
}

/// The tasks that run for steps of `task`, as far as they may have been submitted.
fn children(workflow: &Plan, task: &Task) -> impl Iterator<Item = TaskId> {
    let parts = task
        .parts()
        .filter(move |(part, _)| workflow.find(&part.step).is_some_and(Step::runs_child));
    parts.filter_map(|(part, _)| child_id(task, &part).ok())
}

/// Keeps a task for longer, for the task that it runs for. One that is not there is not kept: it was
/// refused, or has not been recorded yet.
///
/// # Errors
/// A port failed, or the race for the task was lost too many times in a row.
pub async fn keep<P: Ports>(ports: &P, keep: &Keep) -> Result<(), DriveError> {
    let task_id = &keep.task_id;
    let port = |source| DriveError::Port { task_id: task_id.clone(), source: Arc::new(source) };
    for _ in 0..limits::CONFLICTS_MAX {
        let Some(task) = ports.store().load(task_id).await.map_err(port)? else { return Ok(()) };
        let Some(mut longer) = task.kept_for(keep) else { return Ok(()) };
        longer.saved_by = Some(ports.instance().to_owned());
        let (name, version) = (&task.workflow, Some(task.version));
        let workflow = ports.definitions().workflow(name, version).await.map_err(port)?;
        match workflow {
            Some(workflow) => for_longer(ports, &workflow, &longer).await.map_err(port)?,
            // The record that a task was never begun, of a workflow that may not exist.
            None if is_tombstone(&task) => {
                let (owner, until) = (longer.owner(), longer.kept());
                ports.store().extend_documents(&owner, until).await.map_err(port)?;
            }
            None => {
                let what = format!("workflow `{name}` in version {}", task.version);
                return Err(DriveError::Missing { task_id: task_id.clone(), what });
            }
        }
        match ports.store().save(&longer).await.map_err(port)? {
            Saved::Saved => {
                tracing::info!(%task_id, parent = %keep.parent, "kept for longer");
                return Ok(());
            }
            Saved::Conflict(_) => {}
        }
    }
    Err(DriveError::Contended { task_id: task_id.clone(), lost: limits::CONFLICTS_MAX })
}
