//! Decides which new documents are stored in the task's item, and which as items of their own.
//!
//! DynamoDB charges a write unit for each kilobyte of an item. A document that fits into the first kilobyte of the
//! task's item costs nothing, because each save writes this kilobyte anyway. Beyond it, a document would make every later
//! save more expensive, so it is written once, as an item of its own. The records of the steps that have not started yet
//! keep their room, so that an item in the first kilobyte stays there until the end of the task.
//!
//! A document never moves. An item may still grow beyond the kilobyte: by undos, retries and operators' commands.

use crate::{
    definition::{
        plan::Plan,
        size::{self, COMPLETED_RECORD_BYTES, RUNNING_RECORD_BYTES},
    },
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
    plan: &Plan,
    documents: Vec<Document>,
) -> Vec<Document> {
    if documents.is_empty() {
        return documents;
    }
    place_within(task, reserved_bytes(task, plan), documents)
}

/// Stores the document in a task that never runs a step, if it fits. Returns it otherwise.
pub(crate) fn place_only_document(task: &mut Task, document: Document) -> Option<Document> {
    place_within(task, Some(0), vec![document]).pop()
}

fn place_within(
    task: &mut Task,
    reserved: Option<usize>,
    documents: Vec<Document>,
) -> Vec<Document> {
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
fn reserved_bytes(task: &Task, plan: &Plan) -> Option<usize> {
    if task.process_state.is_final() {
        return Some(0);
    }
    let instances = [&task.locked_by, &task.saved_by].into_iter().filter(|name| name.is_none());
    let mut reserved = GROWTH_BYTES + instances.count() * INSTANCE_BYTES;
    let mut steps_to_start = 0;
    for (name, step) in &plan.steps {
        reserved += match task.steps.get(name) {
            Some(StepRecord { items: Some(items), .. }) => {
                items.count().saturating_sub(items.started()) as usize
                    * (COMPLETED_RECORD_BYTES + 1)
            }
            Some(_) => 0,
            None if step.for_each.is_some() => return None,
            None => {
                steps_to_start += 1;
                name.as_str().len() + COMPLETED_RECORD_BYTES + 1
            }
        };
    }
    let running = plan.steps_at_once().min(steps_to_start);
    Some(reserved + running * (RUNNING_RECORD_BYTES - COMPLETED_RECORD_BYTES))
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::{Value, json};

    use super::*;
    use crate::{
        definition::plan::Plan,
        model::{document::DocumentKey, step::StepState, time::Timing},
        submission::{accept, parse},
    };

    fn plan(steps: &Value) -> Plan {
        serde_json::from_value(json!({ "name": "w", "version": 1, "steps": steps })).unwrap()
    }

    fn call(after: &[&str]) -> Value {
        json!({ "agent": "a", "after": after, "request": { "path": "/" } })
    }

    /// A new task whose submission has an input of this many bytes.
    fn submitted(plan: &Plan, bytes: usize) -> (Task, Option<Document>) {
        let (zero, now) = (std::time::Duration::ZERO, Timestamp::UNIX_EPOCH);
        let timing = Timing { pickup_within: zero, clock_skew: zero, retention: Timing::RETENTION };
        let text = json!({ "task_id": "t", "workflow": "w", "input": "x".repeat(bytes) });
        accept(&parse(&text.to_string()).unwrap(), plan, None, now, timing)
    }

    fn output(number: u32, bytes: usize) -> Document {
        let key: DocumentKey = format!("step/a/{number}/output").parse().unwrap();
        Document::new(key, Timestamp::UNIX_EPOCH, "x".repeat(bytes).into())
    }

    #[test]
    fn the_largest_documents_that_fit_fill_the_kilobyte() {
        let plan = plan(&json!({ "a": call(&[]) }));
        let fits = |bytes: &usize| submitted(&plan, *bytes).1.is_none();
        let largest = (0..1_024).take_while(fits).last().unwrap();
        let (mut task, _) = submitted(&plan, largest);
        // The item of the new task has room for the names of instances and for the record of the step.
        let free = INLINE_DOCUMENTS_BYTES_MAX - size::item_bytes(&task);
        assert!((80..140).contains(&free), "{free}");
        task.steps.insert(
            "a".parse().unwrap(),
            StepRecord::new(StepState::Completed { attempt: Some(1) }),
        );
        task.process_state = crate::model::task::ProcessState::Processed;
        let free = INLINE_DOCUMENTS_BYTES_MAX - size::item_bytes(&task);
        let bytes = free - size::inline_bytes(&output(1, 0));
        for (bytes, fits) in [(bytes, true), (bytes + 1, false)] {
            let mut task = task.clone();
            let separate = place_documents(&mut task, &plan, vec![output(1, bytes)]);
            assert_eq!(separate.is_empty(), fits);
            let expected =
                if fits { INLINE_DOCUMENTS_BYTES_MAX } else { INLINE_DOCUMENTS_BYTES_MAX - free };
            assert_eq!(size::item_bytes(&task), expected);
        }
    }

    #[test]
    fn a_document_after_one_that_does_not_fit_may_fit() {
        let plan = plan(&json!({ "a": call(&[]) }));
        let (mut task, _) = submitted(&plan, 0);
        let separate = place_documents(&mut task, &plan, vec![output(1, 1_024), output(2, 10)]);
        assert_eq!(separate, [output(1, 1_024)]);
        assert_eq!(task.documents.get(&output(2, 10).key), Some(output(2, 10)));
    }

    #[test]
    fn the_records_of_later_steps_keep_their_room() {
        let names: Vec<_> = (0..30).map(|n| format!("step_{n:02}")).collect();
        let steps: Value = names.iter().map(|name| (name.clone(), call(&[]))).collect();
        let plan = plan(&steps);
        let running = StepState::Running { attempt: 1, complete_by: Timestamp::MAX };
        let fits = |bytes: &usize| submitted(&plan, *bytes).1.is_none();
        let largest = (0..1_024).take_while(fits).last().unwrap();
        let (mut task, _) = submitted(&plan, largest);
        task.steps =
            names.iter().map(|n| (n.parse().unwrap(), StepRecord::new(running.clone()))).collect();
        let name = || Some("scheduler-0badcafe".to_owned());
        (task.locked_by, task.saved_by) = (name(), name());
        let bytes = size::item_bytes(&task);
        assert!((990..=INLINE_DOCUMENTS_BYTES_MAX).contains(&bytes), "{bytes}");
    }

    /// Every item would make each later save more expensive.
    #[test]
    fn nothing_is_inline_before_the_number_of_items_is_known() {
        let mut each = call(&[]);
        each["for_each"] = json!({ "items": "${ input }" });
        let plan = plan(&json!({ "a": each }));
        let (task, separate) = submitted(&plan, 1);
        assert!(task.documents.is_empty() && separate.is_some());
    }
}
