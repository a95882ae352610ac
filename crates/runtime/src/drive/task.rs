//! Loads one task, decides about its deliveries and saves it. Decides again after a lost race.

use super::{
    Delivery, DriveError,
    conflict_backoff::ConflictBackoff,
    save::{SaveAttempt, save, use_stored_output},
    transition_log::TransitionLogLine,
    update::{apply_events, apply_size_limit},
};
use crate::{
    dispatch::PreparedEffect,
    metrics,
    ports::{Clock, Definitions, PortError, Ports, StateStore},
    trace,
};
use steward_core::{
    engine::{decision::IgnoreReason, event::Event},
    model::{names::TaskId, task::Task},
    submission::is_tombstone,
};

/// The results for the deliveries of one task, and the effects to send.
pub(super) struct TaskOutcome {
    pub(super) results: Vec<Result<(), DriveError>>,
    pub(super) effects: Vec<PreparedEffect>,
}

impl TaskOutcome {
    /// The outcome for deliveries to a tombstone: the record of a child task that was undone before it began. Its
    /// workflow may not exist, and the record never changes, so all events are ignored.
    fn for_tombstone(task_id: &TaskId, deliveries: &[Delivery]) -> Self {
        for delivery in deliveries {
            let event = delivery.event.name();
            tracing::warn!(%task_id, event, "event ignored: the task was undone before it began");
            metrics::ignored(IgnoreReason::Ended);
        }
        Self { results: deliveries.iter().map(|_| Ok(())).collect(), effects: Vec::new() }
    }

    /// The outcome for deliveries to a task that does not exist. Two kinds of event may arrive after the task has
    /// expired and are ignored: the report of a child task, which is kept for longer than its parent, and the late
    /// answer to a callback.
    fn without_task(task_id: &TaskId, deliveries: &[Delivery]) -> Self {
        let result = |delivery: &Delivery| match delivery.event {
            Event::ChildEnded { .. } | Event::CallbackReceived { .. } => {
                let event = delivery.event.name();
                tracing::warn!(%task_id, event, "event ignored: there is no such task, or it has expired");
                metrics::ignored(IgnoreReason::AnotherIncarnation);
                Ok(())
            }
            Event::Wake
            | Event::ReplyReceived(_)
            | Event::Swept
            | Event::CommandReceived(_)
            | Event::ParentRequested(_)
            | Event::AlertPublished { .. } => {
                Err(DriveError::missing(task_id, "such task".to_owned()))
            }
        };
        Self { results: deliveries.iter().map(result).collect(), effects: Vec::new() }
    }
}

/// Decides about the deliveries of one task and saves the task. Decides again on the newer state if another writer
/// saved the task first.
pub(super) async fn decide_task<P: Ports>(
    ports: &P,
    task_id: &TaskId,
    mut deliveries: Vec<Delivery>,
) -> Result<TaskOutcome, DriveError> {
    let port = DriveError::port(task_id);
    let Some(mut task) = ports.store().load(task_id).await.map_err(port)? else {
        return Ok(TaskOutcome::without_task(task_id, &deliveries));
    };
    let (name, version) = (task.workflow.clone(), task.version);
    let workflow = ports.definitions().workflow(&name, Some(version)).await.map_err(port)?;
    let Some(workflow) = workflow else {
        if is_tombstone(&task) {
            return Ok(TaskOutcome::for_tombstone(task_id, &deliveries));
        }
        return Err(DriveError::missing(
            task_id,
            format!("workflow `{name}` in version {version}"),
        ));
    };
    let spans: Vec<_> =
        deliveries.iter().map(|delivery| trace::decision(delivery, &task)).collect();
    let mut backoff = ConflictBackoff::new(ports.clock().now());
    // Documents that an earlier save attempt wrote. They are not written again.
    let mut stored = Vec::new();
    loop {
        let update = apply_events(ports, &workflow, &task, &deliveries, &spans).await;
        let mut update = update.map_err(port)?;
        let redelivered = deliveries.iter().any(|delivery| delivery.redelivered);
        if !update.changes(&task) {
            return Ok(update.into_outcome(spans, redelivered));
        }
        let mut saved = save(ports, &workflow, &task, &update, &stored).await;
        if saved.as_ref().is_err_and(PortError::is_too_large) {
            // The size limit of a task is below that of the store, so this should not happen. Without this case, the
            // message would be redelivered until it becomes a dead letter.
            update = apply_size_limit(ports, &workflow, &task, &deliveries);
            if !update.changes(&task) {
                return Ok(update.into_outcome(spans, redelivered));
            }
            saved = save(ports, &workflow, &task, &update, &stored).await;
        }
        match saved.map_err(port)? {
            SaveAttempt::Saved => {
                update.log_lines.iter().for_each(TransitionLogLine::log);
                metrics::saved(&task, &update.task);
                return Ok(update.into_outcome(spans, redelivered));
            }
            SaveAttempt::Conflict(current) => {
                metrics::conflict();
                stored.append(&mut update.documents);
                // Frees the memory before a possible pause.
                drop(update);
                task = after_conflict(ports, &task, current, &mut deliveries, &mut backoff).await?;
            }
            // An earlier save attempt wrote the document before it failed. The stored document counts.
            SaveAttempt::DocumentExists(key, body) => {
                deliveries.iter_mut().for_each(|d| use_stored_output(d, &key, &body));
                if !backoff.may_retry_after_stored_document(deliveries.len()) {
                    return Err(contended(task_id, &backoff));
                }
            }
        }
    }
}

/// Handles a lost race: pauses if needed, and returns the task as it is now. `current` is the task that came with the
/// refusal.
async fn after_conflict<P: Ports>(
    ports: &P,
    before: &Task,
    current: Option<Box<Task>>,
    deliveries: &mut [Delivery],
    backoff: &mut ConflictBackoff,
) -> Result<Task, DriveError> {
    let task_id = &before.task_id;
    let deleted = || DriveError::missing(task_id, "such task any more".to_owned());
    let task = *current.ok_or_else(deleted)?;
    // The save that won the race may be our own save whose response was lost, possibly followed by saves of others. In
    // that case the effects are sent again. The effects of another writer's save are sent by that writer.
    let own =
        task.saved_by.as_deref() == Some(ports.instance()) || task.revision > before.revision + 1;
    deliveries.iter_mut().for_each(|delivery| delivery.redelivered |= own);
    let Some(pause) = backoff.lost(ports.instance(), task_id, ports.clock().now()) else {
        return Err(contended(task_id, backoff));
    };
    if pause.is_zero() {
        return Ok(task);
    }
    drop(task);
    ports.clock().sleep(pause).await;
    // Other writers have probably saved during the pause, so the task that came with the refusal is outdated.
    let loaded = ports.store().load(task_id).await.map_err(DriveError::port(task_id))?;
    loaded.ok_or_else(deleted)
}

fn contended(task_id: &TaskId, backoff: &ConflictBackoff) -> DriveError {
    DriveError::Contended { task_id: task_id.clone(), lost: backoff.losses() }
}
