//! Deletes payloads that no task needs any more: mark and sweep.
//!
//! An object is deleted if neither the task to which it belongs nor any of that task's parents exists. A task that exists needs its
//! payloads, however long it lives, so nothing that a task needs expires. A child task exists at least as long as its
//! parent's documents, so a parent finds what its child tasks have stored.
//!
//! Each run handles pages of objects until its deadline. At the end of the list, the next pass begins a day later. The place
//! in the list is a shared record, saved after each page: the next run continues there. If two supervisors run at once, the
//! one that loses the race for the record stops.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use futures_util::{StreamExt, TryStreamExt, future::try_join, stream};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use steward_core::{
    limits,
    model::{
        json_text::to_json_value,
        names::{Incarnation, TaskId},
        payload::PayloadKey,
        time::{earlier, later},
    },
};
use steward_runtime::{
    payloads::{PayloadPage, PayloadStore},
    ports::{
        Clock, PortError, Ports, SharedRecord, SharedRecordKey, SharedRecordKind,
        SharedSaveOutcome, StateStore, error_chain,
    },
};

/// The time between two passes.
const PASS_EVERY: Duration = Duration::from_secs(24 * 3600);

/// Tasks that are read at the same time.
const TASKS_AT_ONCE: usize = 64;

/// Where the pass stands.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Pass {
    /// The next page begins after this key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    after: Option<String>,
    /// The next page is not read before this time, in seconds since 1970.
    not_before: i64,
}

fn key() -> SharedRecordKey {
    SharedRecordKey { kind: SharedRecordKind::Payloads, name: "pass".to_owned() }
}

/// Handles pages of objects until `deadline`, or until the end of the list, if it is time for it. Returns the number of deleted
/// objects.
///
/// # Errors
/// The store or the bucket failed. The next run handles the same page again.
pub async fn delete_orphans<P: Ports>(
    ports: &P,
    now: Timestamp,
    deadline: Timestamp,
) -> Result<usize, PortError> {
    let Some(store) = ports.payloads() else { return Ok(0) };
    if ports.clock().now() >= deadline {
        return Ok(0);
    }
    let last = ports.store().shared_record(&key()).await?;
    // A record that cannot be read begins a new pass.
    let pass = last.as_ref().and_then(|last| Pass::deserialize(&last.body).ok());
    let pass = pass.unwrap_or_default();
    if now.as_second() < pass.not_before {
        return Ok(0);
    }
    let stored_before = earlier(now, limits::ORPHANED_PAYLOAD_AGE);
    let (mut deleted, mut revision) = (0, last.map_or(0, |last| last.revision));
    let mut unread = Some(store.task_payloads(pass.after.as_deref()).await?);
    while let Some(PayloadPage { payloads, next }) = unread
        && ports.clock().now() < deadline
    {
        let old = payloads.into_iter().filter(|payload| payload.stored_at < stored_before);
        let deleting = delete_unneeded(ports, store, old.map(|payload| payload.key).collect());
        let (count, following) = try_join(deleting, page_after(store, next.as_deref())).await?;
        deleted += count;
        revision += 1;
        let not_before = if next.is_some() { now } else { later(now, PASS_EVERY) };
        let pass = Pass { after: next, not_before: not_before.as_second() };
        let body = to_json_value(&pass);
        let record = SharedRecord { key: key(), revision, body, expires_at: None };
        unread = match ports.store().save_shared_record(&record).await? {
            SharedSaveOutcome::Saved => following,
            // Another supervisor handles the same pages.
            SharedSaveOutcome::Conflict(_) => None,
        };
    }
    if deleted > 0 {
        tracing::info!(deleted, "payloads of expired tasks deleted");
    }
    Ok(deleted)
}

/// The page that begins after a key, if there is one.
async fn page_after(
    store: &dyn PayloadStore,
    after: Option<&str>,
) -> Result<Option<PayloadPage>, PortError> {
    match after {
        Some(after) => store.task_payloads(Some(after)).await.map(Some),
        None => Ok(None),
    }
}

/// The task that owns a payload.
enum Owner {
    /// The task with this incarnation, if it exists.
    Task(Option<Incarnation>),
    /// A task that cannot be read, also not later. It may need its payloads, and must not stop the deletion of others.
    Unreadable,
}

async fn owner<P: Ports>(ports: &P, task_id: &TaskId) -> Result<Owner, PortError> {
    match ports.store().load(task_id).await {
        Ok(task) => Ok(Owner::Task(task.map(|task| task.incarnation))),
        Err(error) if error.retryable => Err(error),
        Err(error) => {
            tracing::warn!(%task_id, error = error_chain(&error), "payloads of an unreadable task kept");
            Ok(Owner::Unreadable)
        }
    }
}

async fn delete_unneeded<P: Ports>(
    ports: &P,
    store: &dyn PayloadStore,
    keys: Vec<PayloadKey>,
) -> Result<usize, PortError> {
    let owners = keys.iter().flat_map(PayloadKey::owners).map(|(task_id, _)| task_id);
    let task_ids: BTreeSet<TaskId> = owners.collect();
    let tasks = stream::iter(task_ids).map(|task_id| async move {
        let owner = owner(ports, &task_id).await?;
        Ok::<_, PortError>((task_id, owner))
    });
    let tasks: BTreeMap<TaskId, Owner> =
        tasks.buffer_unordered(TASKS_AT_ONCE).try_collect().await?;
    let exists = |(task_id, incarnation): &(TaskId, Incarnation)| match tasks.get(task_id) {
        Some(Owner::Unreadable) => true,
        Some(Owner::Task(found)) => *found == Some(*incarnation),
        None => false,
    };
    let is_unneeded = |key: &PayloadKey| {
        let owners = key.owners();
        !owners.is_empty() && !owners.iter().any(exists)
    };
    let unneeded: Vec<_> = keys.into_iter().filter(is_unneeded).collect();
    store.delete(&unneeded).await?;
    Ok(unneeded.len())
}
