//! Decides which new documents are stored in the task's item, and which as items of their own.
//!
//! DynamoDB charges a write unit for each kilobyte of an item. A document that fits into the first kilobyte of the
//! task's item costs nothing, because each save writes this kilobyte anyway. Beyond it, a document would make every later
//! save more expensive, so it is written once, as an item of its own. The records of the steps that have not started yet
//! keep their room, so that an item in the first kilobyte stays there until the end of the task.
//!
//! A document never moves. An item may still grow beyond the kilobyte: by undos, retries and operators' commands.

use crate::{
    definition::{size, workflow::Workflow},
    limits::INLINE_DOCUMENTS_BYTES_MAX,
    model::{document::Document, step::StepRecord, task::Task},
};

/// Bytes that the item of a task in progress may grow by longer numbers, and at its end.
const GROWTH_BYTES: usize = 32;

/// Bytes of each of the attributes `locked_by` and `saved_by`, which the first save adds. An instance has a name such as
/// `scheduler-0badcafe`.
const INSTANCE_BYTES: usize = 30;

/// Stores those of the new documents in `task` that fit. Returns the others.
pub(crate) fn place_documents(
    task: &mut Task,
    workflow: &Workflow,
    documents: Vec<Document>,
) -> Vec<Document> {
    if documents.is_empty() {
        return documents;
    }
    place_within(task, reserved_bytes(task, workflow), documents)
}

/// Stores the document in a task that never runs a step, if it fits. Returns it otherwise.
pub(crate) fn place_only_document(task: &mut Task, document: Document) -> Option<Document> {
    place_within(task, Some(0), vec![document]).pop()
}

fn place_within(task: &mut Task, reserved: Option<usize>, documents: Vec<Document>) -> Vec<Document> {
    let free = reserved.and_then(|reserved| {
        let used = size::item_bytes(task) + map_bytes(task) + reserved;
        INLINE_DOCUMENTS_BYTES_MAX.checked_sub(used)
    });
    let Some(mut free) = free else { return documents };
    let mut separate = Vec::new();
    for document in documents {
        let bytes = size::inline_bytes(&document);
        if bytes <= free {
            free -= bytes;
            task.documents.insert(document);
        } else {
            separate.push(document);
        }
    }
    separate
}

/// The bytes of the attribute that the first document adds.
fn map_bytes(task: &Task) -> usize {
    if task.documents.is_empty() { "d".len() + 3 } else { 0 }
}

/// The bytes that the steps still need in the item. `None` if their number is not known: a step with `for_each` that has
/// not started.
fn reserved_bytes(task: &Task, workflow: &Workflow) -> Option<usize> {
    if task.process_state.is_final() {
        return Some(0);
    }
    let instances = [&task.locked_by, &task.saved_by].into_iter().filter(|name| name.is_none());
    let mut reserved = GROWTH_BYTES + instances.count() * INSTANCE_BYTES;
    for (name, step) in &workflow.steps {
        let record_bytes = size::running_step_bytes(name);
        reserved += match task.steps.get(name) {
            Some(StepRecord { items: Some(items), .. }) => {
                let started = u32::try_from(items.started.len()).unwrap_or(u32::MAX);
                items.count.saturating_sub(started) as usize * record_bytes
            }
            Some(_) => 0,
            None if step.for_each.is_some() => return None,
            None => record_bytes,
        };
    }
    Some(reserved)
}
