//! Writes the new documents of a task, and then the task that refers to them.

use futures_util::{StreamExt, stream};
use serde_json::Value;

use super::{delivery::Delivery, earlier_attempts::EarlierAttempts, retention, update::TaskUpdate};
use crate::ports::{PortError, Ports, PutOutcome, SaveOutcome, StateStore};
use steward_core::{
    definition::plan::Plan,
    engine::event::Event,
    model::{
        document::{Document, DocumentKey},
        messages::{CallbackOutcome, ChildOutcome, ReplyOutcome, StepReply},
        task::Task,
    },
};

/// The number of documents of one task that are written concurrently.
const DOCUMENTS_AT_ONCE: usize = 16;

/// The outcome of one attempt to save an updated task.
pub(super) enum SaveAttempt {
    /// The events changed nothing, so there is nothing to save.
    Unchanged,
    Saved,
    /// Another writer saved the task first. Contains the task as it is now, if it still exists.
    Conflict(Option<Box<Task>>),
    /// A document exists with other content, which counts. Contains its key and body.
    DocumentExists(DocumentKey, Value),
}

/// Writes the new documents, and then saves the task, if it changed. If the task now lives longer, the expiry of what it
/// refers to is extended first. What an earlier attempt wrote or extended is not repeated: that may take long, and others
/// save the task meanwhile.
pub(super) async fn save<P: Ports>(
    ports: &P,
    plan: &Plan,
    before: &Task,
    update: &TaskUpdate,
    earlier: &mut EarlierAttempts,
) -> Result<SaveAttempt, PortError> {
    if !update.changes(before) {
        return Ok(SaveAttempt::Unchanged);
    }
    let (owner, retention) = (update.task.document_owner(), update.task.document_retention());
    let is_longer = update.task.retention_start > before.retention_start;
    if is_longer && !earlier.extended.is_some_and(|done| done.almost_covers(retention)) {
        Box::pin(retention::extend(ports, plan, &update.task)).await?;
        earlier.extended = Some(retention);
    }
    let is_stored = |document: &&Document| {
        earlier.stored.iter().any(|old| old.key == document.key && old.body == document.body)
    };
    let documents: Vec<_> = update.documents.iter().filter(|new| !is_stored(new)).collect();
    let puts =
        documents.iter().map(|document| ports.store().put_document(&owner, retention, document));
    let puts: Vec<_> =
        stream::iter(puts.collect::<Vec<_>>()).buffered(DOCUMENTS_AT_ONCE).collect().await;
    // Another writer may have moved the end of the task since an earlier attempt, or an earlier delivery, wrote a document.
    let mut may_expire = !earlier.kept.get_or_insert(retention).almost_covers(retention);
    for (document, put) in documents.into_iter().zip(puts) {
        match put? {
            PutOutcome::Stored => {}
            PutOutcome::Existing(body) => match document.key {
                DocumentKey::Output(_) | DocumentKey::Input(_) | DocumentKey::Items { .. }
                    if body != document.body =>
                {
                    return Ok(SaveAttempt::DocumentExists(document.key.clone(), body));
                }
                // No decision depends on the reason of a failure, so the first reason that was written counts.
                DocumentKey::Output(_)
                | DocumentKey::OperatorOutput(..)
                | DocumentKey::Result(_)
                | DocumentKey::Failure(_)
                | DocumentKey::Deferral(_)
                | DocumentKey::Claim(_)
                | DocumentKey::Input(_)
                | DocumentKey::Items { .. }
                | DocumentKey::Submission => may_expire = true,
            },
        }
    }
    if may_expire {
        ports.store().extend_documents(&update.task).await?;
        earlier.kept = Some(retention);
    }
    Ok(match ports.store().save(&update.task).await? {
        SaveOutcome::Saved => SaveAttempt::Saved,
        SaveOutcome::Conflict(current) => SaveAttempt::Conflict(current),
    })
}

/// Replaces the output in a delivery by the stored output of the same attempt, which an earlier delivery wrote.
pub(super) fn use_stored_output(delivery: &mut Delivery, key: &DocumentKey, body: &Value) {
    let DocumentKey::Output(stored) = key else { return };
    match &mut delivery.event {
        Event::ReplyReceived(StepReply { step, action, attempt, outcome, .. })
            if (&*step, *action, *attempt) == (&stored.step, stored.action, stored.number) =>
        {
            let may_continue =
                !matches!(outcome, ReplyOutcome::Completed { may_continue: false, .. });
            *outcome = ReplyOutcome::Completed { output: body.clone(), may_continue };
        }
        Event::CallbackReceived {
            step, outcome: CallbackOutcome::Completed { output }, ..
        } if *step == stored.step => {
            *output = body.clone();
        }
        Event::ChildEnded { step, outcome: ChildOutcome::Processed { output }, .. }
            if *step == stored.step =>
        {
            *output = body.clone();
        }
        Event::Wake
        | Event::ReplyReceived(_)
        | Event::Swept
        | Event::CommandReceived(_)
        | Event::CallbackReceived { .. }
        | Event::ParentRequested(_)
        | Event::ChildEnded { .. }
        | Event::AlertPublished { .. } => {}
    }
}
