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
    model::{
        document::Document, inline_documents::InlineDocument, items::ItemRecords, step::StepRecord,
        task::Task,
    },
};

/// Bytes that the item of a task in progress may grow by longer numbers, and at its end.
const GROWTH_BYTES: usize = 32;

/// Bytes of each of the attributes `locked_by` and `saved_by`, which the first save adds. An instance has a name such as
/// `scheduler-0badcafe`.
const INSTANCE_BYTES: usize = 30;

/// Bytes of an item in progress: its record, its span, and a span of passed items beside it.
const OPEN_ITEM_BYTES: usize = 30;

/// Bytes of the items of a step without the items in progress: the names of the fields, their numbers, and the records of
/// passed items.
const PASSED_ITEMS_BYTES: usize = 80;

/// Bytes that a record takes in addition while a callback is awaited, and after one that came before the agent's reply.
const CALLBACK_BYTES: usize = 20;

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
    place_within(task, 0, vec![document]).pop()
}

fn place_within(task: &mut Task, reserved: usize, documents: Vec<Document>) -> Vec<Document> {
    // A task with many records is not measured.
    let at_least = reserved + least_bytes(task);
    let used = if at_least > INLINE_DOCUMENTS_BYTES_MAX {
        at_least
    } else {
        reserved + size::item_bytes(task) + map_bytes(task)
    };
    let Some(mut free) = INLINE_DOCUMENTS_BYTES_MAX.checked_sub(used) else { return documents };
    let mut separate = Vec::new();
    for document in documents {
        // A document is written once: the first one counts.
        if task.documents.contains(&document.key) {
            continue;
        }
        let inline = InlineDocument::from(&document);
        let bytes = size::inline_bytes(&document.key, &inline);
        if bytes <= free {
            free -= bytes;
            task.documents.insert(document.key, inline);
        } else {
            separate.push(document);
        }
    }
    separate
}

/// A lower bound of the bytes of a task's records: each step has a record of at least this size, and each run of items has
/// a letter.
fn least_bytes(task: &Task) -> usize {
    let runs = |items: &ItemRecords<StepRecord>| items.spans().count();
    let steps = task.steps.values();
    steps.map(|record| COMPLETED_RECORD_BYTES + record.items.as_ref().map_or(0, runs)).sum()
}

/// The bytes of the attribute that the first document adds.
fn map_bytes(task: &Task) -> usize {
    if task.documents.is_empty() { "d".len() + 3 } else { 0 }
}

/// The bytes that the steps still need in the item.
fn reserved_bytes(task: &Task, plan: &Plan) -> usize {
    let has_stopped = task.process_state.has_stopped();
    let locked_by = if task.locked_by.is_some() || has_stopped { 0 } else { INSTANCE_BYTES };
    let saved_by = if task.saved_by.is_some() { 0 } else { INSTANCE_BYTES };
    if has_stopped {
        return saved_by;
    }
    let mut reserved = GROWTH_BYTES + locked_by + saved_by;
    let mut steps_to_start = 0;
    for (name, step) in &plan.steps {
        let items_at_once = step.items_at_once().map_or(0, |at_once| at_once as usize);
        if step.callback.is_some() && !task.has_passed(name) {
            reserved += CALLBACK_BYTES * items_at_once.max(1);
        }
        reserved += match task.steps.get(name) {
            Some(record) => {
                record.items.as_ref().map_or(0, |items| reserved_for_items(items, items_at_once))
            }
            None => {
                steps_to_start += 1;
                let items = match items_at_once {
                    0 => 0,
                    at_once => PASSED_ITEMS_BYTES + at_once * OPEN_ITEM_BYTES,
                };
                name.as_str().len() + COMPLETED_RECORD_BYTES + 1 + items
            }
        };
    }
    let running = plan.steps_at_once().min(steps_to_start);
    reserved + running * (RUNNING_RECORD_BYTES - COMPLETED_RECORD_BYTES)
}

/// The bytes that the items of a started step still need. As many items as may be in progress have records of their own
/// in the worst case; the others have passed and share a few records.
fn reserved_for_items(items: &ItemRecords<StepRecord>, at_once: usize) -> usize {
    let (passed, open): (Vec<_>, Vec<_>) =
        items.spans().partition(|(_, record)| record.forward.state.is_completed_or_skipped());
    let passed: usize = passed.iter().map(|(items, _)| items.len()).sum();
    let in_progress = at_once.min((items.count() as usize).saturating_sub(passed));
    PASSED_ITEMS_BYTES + in_progress.saturating_sub(open.len()) * OPEN_ITEM_BYTES
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::{Value, json};

    use super::*;
    use crate::{
        definition::plan::Plan,
        model::{
            document::DocumentKey,
            step::{StepRecord, StepState},
            time::Timing,
        },
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
        accept(&parse(&text.to_string()).unwrap(), plan, None, now, timing).unwrap()
    }

    fn output(number: u32, bytes: usize) -> Document {
        let key: DocumentKey = format!("step/a/{number}/output").parse().unwrap();
        Document::new(key, Timestamp::UNIX_EPOCH, "x".repeat(bytes).into())
    }

    fn inline_bytes(document: &Document) -> usize {
        size::inline_bytes(&document.key, &document.into())
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
        task.saved_by = Some("scheduler-0badcafe".to_owned());
        let free = INLINE_DOCUMENTS_BYTES_MAX - size::item_bytes(&task);
        let bytes = free - inline_bytes(&output(1, 0));
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
        let (attempt, complete_by) = (1, Timestamp::MAX);
        let running = StepState::Running { attempt, complete_by };
        let awaiting = StepState::AwaitingCallback { attempt, complete_by, answer_by: complete_by };
        let mut callback = call(&[]);
        callback["callback"] = json!({ "within": "1h" });
        for (definition, state) in [(call(&[]), running), (callback, awaiting)] {
            let names: Vec<_> = (0..15).map(|n| format!("step_{n:02}")).collect();
            let steps: Value =
                names.iter().map(|name| (name.clone(), definition.clone())).collect();
            let plan = plan(&steps);
            let fits = |bytes: &usize| submitted(&plan, *bytes).1.is_none();
            let largest = (0..1_024).take_while(fits).last().unwrap();
            let (mut task, _) = submitted(&plan, largest);
            let record = |name: &String| (name.parse().unwrap(), StepRecord::new(state.clone()));
            task.steps = names.iter().map(record).collect();
            let name = || Some("scheduler-0badcafe".to_owned());
            (task.locked_by, task.saved_by) = (name(), name());
            let bytes = size::item_bytes(&task);
            assert!((800..=INLINE_DOCUMENTS_BYTES_MAX).contains(&bytes), "{bytes}");
        }
    }

    #[test]
    fn the_first_of_two_documents_with_one_key_counts() {
        let plan = plan(&json!({ "a": call(&[]) }));
        let (mut task, _) = submitted(&plan, 0);
        for (bytes, expected) in [(10, 10), (20, 10), (2_000, 10)] {
            let separate = place_documents(&mut task, &plan, vec![output(1, bytes)]);
            assert_eq!(separate, []);
            assert_eq!(task.documents.get(&output(1, 0).key), Some(output(1, expected)));
        }
    }

    fn with_items(at_once: u32) -> Plan {
        let mut each = call(&[]);
        each["for_each"] = json!({ "items": "${ input }", "at_once": at_once });
        plan(&json!({ "a": each }))
    }

    /// Every other item of the first 2 × `open` is in progress, each since another time. All before are completed.
    fn items_in_progress(count: u32, open: u32) -> ItemRecords<StepRecord> {
        let completed = || StepRecord::new(StepState::Completed { attempt: Some(1) });
        let running = |number: u32| {
            let complete_by = Timestamp::from_second(1_795_000_000 + i64::from(number)).unwrap();
            StepRecord::new(StepState::Running { attempt: 1, complete_by })
        };
        let mixed = (0..open).flat_map(|number| [running(number), completed()]);
        let before = count.saturating_sub(2 * open);
        ItemRecords::with_started(count, (0..before).map(|_| completed()).chain(mixed))
    }

    #[test]
    fn items_in_progress_keep_their_room_and_the_number_of_items_does_not_matter() {
        let plan = with_items(10);
        let fits = |bytes: &usize| submitted(&plan, *bytes).1.is_none();
        let largest = (0..1_024).take_while(fits).last().unwrap();
        assert!(largest > 200, "{largest}");
        for count in [20, 100, 10_000] {
            let (mut task, _) = submitted(&plan, largest);
            task.steps.insert("a".parse().unwrap(), {
                let items = Some(items_in_progress(count, 10));
                StepRecord { items, ..StepRecord::new(StepState::RunningItems) }
            });
            let name = || Some("scheduler-0badcafe".to_owned());
            (task.locked_by, task.saved_by) = (name(), name());
            let bytes = size::item_bytes(&task);
            assert!(bytes <= INLINE_DOCUMENTS_BYTES_MAX, "{count} items: {bytes}");
        }
    }

    /// While nearly all items have passed or not started, those that may still start keep their room.
    #[test]
    fn items_that_may_start_keep_their_room() {
        let plan = with_items(10);
        let (mut task, _) = submitted(&plan, 0);
        task.process_state = crate::model::task::ProcessState::Processing;
        let with = |open: u32| {
            let items = Some(items_in_progress(10_000, open));
            StepRecord { items, ..StepRecord::new(StepState::RunningItems) }
        };
        let mut filled = Vec::new();
        for items in [ItemRecords::new(10_000), items_in_progress(1_000, 2)] {
            let items = ItemRecords::with_started(10_000, items.iter().cloned());
            let begun =
                StepRecord { items: Some(items), ..StepRecord::new(StepState::RunningItems) };
            task.steps.insert("a".parse().unwrap(), begun);
            let mut task = task.clone();
            let fits = |bytes: &usize| {
                place_documents(&mut task.clone(), &plan, vec![output(1, *bytes)]).is_empty()
            };
            let largest = (0..1_024).take_while(fits).last().unwrap();
            assert_eq!(place_documents(&mut task, &plan, vec![output(1, largest)]), []);
            task.steps.insert("a".parse().unwrap(), with(10));
            let name = || Some("scheduler-0badcafe".to_owned());
            (task.locked_by, task.saved_by) = (name(), name());
            filled.push(size::item_bytes(&task));
        }
        let holds = |bytes: &usize| (800..=INLINE_DOCUMENTS_BYTES_MAX).contains(bytes);
        assert!(filled.iter().all(holds), "{filled:?}");
    }

    /// The items in progress would make each later save more expensive.
    #[test]
    fn nothing_is_inline_if_the_items_in_progress_may_fill_the_kilobyte() {
        let (task, separate) = submitted(&with_items(100), 1);
        assert!(task.documents.is_empty() && separate.is_some());
    }
}
