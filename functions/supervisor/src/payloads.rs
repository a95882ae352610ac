//! Deletes payloads that no task needs any more: mark and sweep.
//!
//! An object is deleted if neither the task to which it belongs nor any of that task's parents exists. A task that exists needs its
//! payloads, however long it lives, so nothing that a task needs expires. A child task exists at least as long as its
//! parent's documents, so a parent finds what its child tasks have stored.
//!
//! Each run handles pages of objects until its deadline, several at once, as fast as S3 lists them. At the end of the list, the
//! next pass begins a day later. The place in the list is a shared record, saved after each page in the order of the list: the
//! next run continues there. If two supervisors run at once, the one that loses the race for the record stops.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use futures_util::{Stream, StreamExt, TryStreamExt, stream};
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

/// Tasks of a page that are read at the same time.
const TASKS_AT_ONCE: usize = 64;

/// Pages that are handled at the same time. A page takes less than four times as long as its list, so the lists limit the rate.
const PAGES_AT_ONCE: usize = 4;

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
    let handle = |page: PayloadPage| async move {
        let old = page.payloads.into_iter().filter(|payload| payload.stored_at < stored_before);
        let keys = old.map(|payload| payload.key).collect();
        Ok((delete_unneeded(ports, store, keys).await?, page.next))
    };
    let pages = pages(store, pass.after, move || ports.clock().now() < deadline);
    let mut handled = Box::pin(pages.map_ok(handle).try_buffered(PAGES_AT_ONCE));
    while let Some((count, next)) = handled.try_next().await? {
        deleted += count;
        revision += 1;
        let not_before = if next.is_some() { now } else { later(now, PASS_EVERY) };
        let pass = Pass { after: next, not_before: not_before.as_second() };
        let body = to_json_value(&pass);
        let record = SharedRecord { key: key(), revision, body, expires_at: None };
        match ports.store().save_shared_record(&record).await? {
            SharedSaveOutcome::Saved => {}
            // Another supervisor handles the same pages.
            SharedSaveOutcome::Conflict(_) => break,
        }
    }
    if deleted > 0 {
        tracing::info!(deleted, "payloads of expired tasks deleted");
    }
    Ok(deleted)
}

/// The pages of the list after a key, while there is time.
fn pages<'s>(
    store: &'s dyn PayloadStore,
    after: Option<String>,
    has_time: impl Fn() -> bool + 's,
) -> impl Stream<Item = Result<PayloadPage, PortError>> + 's {
    stream::try_unfold(Some(after), move |after| {
        let after = after.filter(|_| has_time());
        async move {
            let Some(after) = after else { return Ok(None) };
            let page = store.task_payloads(after.as_deref()).await?;
            let next = page.next.clone().map(Some);
            Ok(Some((page, next)))
        }
    })
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
