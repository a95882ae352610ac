//! Loads one task, decides about its deliveries and saves it. Decides again after a lost race.

use super::{
    conflict_backoff::ConflictBackoff,
    delivery::Delivery,
    earlier_attempts::EarlierAttempts,
    error::DriveError,
    save::{SaveAttempt, save, use_stored_output},
    task_outcome::TaskOutcome,
    transition_log::TransitionLogLine,
    update::{TaskUpdate, apply_events, apply_size_limit},
};
use crate::{
    metrics,
    ports::{Clock, Definitions, PortError, Ports, StateStore},
    trace,
};
use steward_core::{
    definition::plan::Plan,
    model::{names::TaskId, task::Task},
    submission::is_tombstone,
};

/// The number of tasks of one batch that are handled concurrently.
pub const TASKS_AT_ONCE: usize = 64;

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
    let plan = ports.definitions().workflow(&name, Some(version)).await.map_err(port)?;
    let Some(plan) = plan else {
        if is_tombstone(&task) {
            return Ok(TaskOutcome::for_tombstone(task_id, &deliveries));
        }
        return Err(DriveError::missing(
            task_id,
            format!("workflow `{name}` in version {version}"),
        ));
    };
    let span = |delivery: &Delivery| {
        trace::decision(&task, &delivery.event, delivery.traceparent.as_deref())
    };
    let spans: Vec<_> = deliveries.iter().map(span).collect();
    let mut backoff = ConflictBackoff::new(ports.clock().now());
    let mut earlier = EarlierAttempts::default();
    loop {
        let update = apply_events(ports, &plan, &task, &deliveries, &earlier, &spans);
        let mut update = update.await.map_err(port)?;
        let saved = save_or_stop(ports, &plan, &task, &deliveries, &mut update, &mut earlier).await;
        let may_have_sent =
            earlier.lost_starts.is_some() || deliveries.iter().any(|delivery| delivery.redelivered);
        match saved.map_err(port)? {
            SaveAttempt::Unchanged => return Ok(update.into_outcome(spans, may_have_sent)),
            SaveAttempt::Saved => {
                update.log_lines.iter().for_each(TransitionLogLine::log);
                metrics::saved(&task, &update.task);
                return Ok(update.into_outcome(spans, may_have_sent));
            }
            SaveAttempt::Conflict(current) => {
                metrics::conflict();
                earlier.stored.append(&mut update.documents);
                let starts = update.starts(&task);
                // Frees the memory before a possible pause.
                drop(update);
                let current = after_conflict(ports, &task, current, &mut backoff).await?;
                let Some((current, may_be_own)) = current else {
                    return Ok(TaskOutcome::without_task(task_id, &deliveries));
                };
                if may_be_own {
                    earlier.lost_starts.get_or_insert_default().extend(starts);
                }
                task = current;
            }
            // An earlier save attempt wrote the document before it failed. The stored document counts.
            SaveAttempt::DocumentExists(key, body) => {
                deliveries.iter_mut().for_each(|d| use_stored_output(d, &key, &body));
                earlier.found.insert(key, body);
                if !backoff.may_retry_after_stored_document(deliveries.len()) {
                    return Err(contended(task_id, &backoff));
                }
            }
        }
    }
}

/// Saves the update. If the task became too large for the store, replaces the update by one that stops the task, and
/// saves that. The size limit of a task is below that of the store, so this should not happen. Without it, the message
/// would be redelivered until it becomes a dead letter.
async fn save_or_stop<P: Ports>(
    ports: &P,
    plan: &Plan,
    task: &Task,
    deliveries: &[Delivery],
    update: &mut TaskUpdate,
    earlier: &mut EarlierAttempts,
) -> Result<SaveAttempt, PortError> {
    let saved = save(ports, plan, task, update, earlier).await;
    if !saved.as_ref().is_err_and(PortError::is_too_large) {
        return saved;
    }
    *update = apply_size_limit(ports, plan, task, deliveries);
    save(ports, plan, task, update, earlier).await
}

/// Handles a lost race: pauses if needed, and returns the task as it is now, if it still exists. `current` is the task that came
/// with the refusal. Also returns whether our own save may have won the race.
async fn after_conflict<P: Ports>(
    ports: &P,
    before: &Task,
    current: Option<Box<Task>>,
    backoff: &mut ConflictBackoff,
) -> Result<Option<(Task, bool)>, DriveError> {
    let task_id = &before.task_id;
    let Some(task) = current else { return Ok(None) };
    // The save that won the race may be our own save whose response was lost, possibly followed by saves of others. In
    // that case its effects are sent again. The effects of another writer's save are sent by that writer.
    let own =
        task.saved_by.as_deref() == Some(ports.instance()) || task.revision > before.revision + 1;
    let Some(pause) = backoff.lost(ports.instance(), task_id, ports.clock().now()) else {
        return Err(contended(task_id, backoff));
    };
    if pause.is_zero() {
        return Ok(Some((*task, own)));
    }
    drop(task);
    ports.clock().sleep(pause).await;
    // Other writers have probably saved during the pause, so the task that came with the refusal is outdated.
    let loaded = ports.store().load(task_id).await.map_err(DriveError::port(task_id))?;
    Ok(loaded.map(|task| (task, own)))
}

fn contended(task_id: &TaskId, backoff: &ConflictBackoff) -> DriveError {
    DriveError::Contended { task_id: task_id.clone(), lost: backoff.losses() }
}
