//! Which documents of a task people read. A step with thousands of items has thousands of documents, which would make a
//! page slow and expensive: DynamoDB bills at least one read unit for each 8 KB. So only some of its items are read.

use std::{collections::BTreeSet, ops::RangeInclusive};

use steward_core::model::{
    attempt::Action,
    items::ItemRecords,
    names::{Part, StepName},
    task::Task,
};

use crate::view::{ITEMS_SHOWN_MAX, items_by_attention};

/// The maximum number of items of one step whose documents are read, if the step has more than [`ITEMS_SHOWN_MAX`].
const ITEMS_READ_MAX: usize = 50;

/// Below the first character of every key.
const BEFORE_KEYS: &str = "!";
/// Above every character of a key.
const AFTER_KEYS: &str = "~";

/// The keys of lists of items. Their content is in the submission or in an output too.
const ITEM_LISTS: &str = "items/";

/// The documents of a task that are read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownDocuments {
    /// Ranges of the texts of [`DocumentKey`](steward_core::model::document::DocumentKey), which do not overlap.
    pub ranges: Vec<RangeInclusive<String>>,
    /// The steps of which only some items are read.
    pub cut: Vec<CutStep>,
}

/// A step with so many items that not all are read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CutStep {
    /// The step.
    pub step: StepName,
    /// The items that are read: first those that failed, then those that wait or run, then the others.
    pub items: BTreeSet<Part>,
    /// The number of items that have started.
    pub started: u32,
}

impl ShownDocuments {
    /// Selects the documents of a task. Those of `part` are among them.
    #[must_use]
    pub fn of(task: &Task, part: Option<&Part>) -> Self {
        let cut: Vec<_> = task
            .steps
            .iter()
            .filter_map(|(step, record)| {
                let started = record.items.as_ref().map_or(0, ItemRecords::started);
                if usize::try_from(started).is_ok_and(|started| started <= ITEMS_SHOWN_MAX) {
                    return None;
                }
                let first = items_by_attention(step, record).map(|(item, _)| item);
                let chosen = part.filter(|part| part.step == *step && part.item.is_some());
                let items = first.take(ITEMS_READ_MAX).chain(chosen.cloned()).collect();
                Some(CutStep { step: step.clone(), items, started })
            })
            .collect();
        let has_items = task.steps.values().any(|record| record.items.is_some());
        let mut ranges = ranges_without(&cut, has_items);
        ranges.extend(cut.iter().flat_map(|cut| &cut.items).flat_map(|item| {
            [Action::Do, Action::Undo].map(|action| {
                let prefix = format!("{}{item}/", prefix(action));
                prefix.clone()..=prefix + AFTER_KEYS
            })
        }));
        Self { ranges, cut }
    }
}

/// The ranges of all keys but those of the items of these steps, and of lists of items if the task has some.
fn ranges_without(cut: &[CutStep], has_items: bool) -> Vec<RangeInclusive<String>> {
    let items =
        |action| cut.iter().map(move |CutStep { step, .. }| format!("{}{step}[", prefix(action)));
    let mut left_out: Vec<_> = items(Action::Do).chain(items(Action::Undo)).collect();
    left_out.extend(has_items.then(|| ITEM_LISTS.to_owned()));
    left_out.sort();
    let mut from = BEFORE_KEYS.to_owned();
    let mut ranges = Vec::new();
    for prefix in left_out {
        ranges.push(std::mem::replace(&mut from, format!("{prefix}{AFTER_KEYS}"))..=prefix);
    }
    ranges.push(from..=AFTER_KEYS.to_owned());
    ranges
}

fn prefix(action: Action) -> &'static str {
    match action {
        Action::Do => "step/",
        Action::Undo => "undo/",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use steward_core::model::step::{StepRecord, StepState};

    use super::*;

    fn items(started: u32, failed: Option<u32>) -> StepRecord {
        let state = |item| match failed == Some(item) {
            true => StepState::Failed { attempt: Some(3) },
            false => StepState::Completed { attempt: Some(1) },
        };
        let records = (0..started).map(|item| StepRecord::new(state(item)));
        let mut record = StepRecord::new(StepState::RunningItems);
        record.items = Some(ItemRecords::with_started(10_000, records));
        record
    }

    fn task(steps: impl IntoIterator<Item = (&'static str, StepRecord)>) -> Task {
        let mut task: Task = serde_json::from_value(json!({
            "task_id": "42", "workflow": "w", "v": 1, "i": 0, "k": 0, "process_state": "Error", "revision": 7,
            "submitted_at": 0, "complete_by": 0, "steps": {},
        }))
        .unwrap();
        let steps = steps.into_iter().map(|(name, record)| (name.parse().unwrap(), record));
        task.steps = steps.collect();
        task
    }

    fn ranges_with(shown: &ShownDocuments, key: &str) -> usize {
        shown.ranges.iter().filter(|range| range.contains(&key.to_owned())).count()
    }

    const OTHERS: [&str; 8] = [
        "submission",
        "input/c-1",
        "result/00000000",
        "step/pack/1/output",
        "step/pack[7]/1/output",
        "step/ship/1/failure",
        "step/shipping[8]/1/output",
        "undo/pack[7]/2/deferral",
    ];

    #[test]
    fn all_documents_of_a_narrow_task_are_read_but_lists_of_items() {
        let shown = ShownDocuments::of(&task([("ship", items(200, None))]), None);
        assert!(shown.cut.is_empty());
        for key in OTHERS.into_iter().chain(["step/ship[199]/1/output", "undo/ship[0]/1/output"]) {
            assert_eq!(ranges_with(&shown, key), 1, "{key}");
        }
        assert_eq!(ranges_with(&shown, "items/ship/0"), 0);
    }

    #[test]
    fn of_a_wide_step_the_items_that_need_attention_are_read() {
        let narrow = ("pack", items(8, None));
        let wide = ("ship", items(5_000, Some(4_000)));
        let wide_too = ("check", items(201, None));
        let part = "ship[4500]".parse().unwrap();
        let shown = ShownDocuments::of(&task([narrow, wide, wide_too]), Some(&part));
        let cut: Vec<_> =
            shown.cut.iter().map(|cut| (cut.step.as_str(), cut.items.len(), cut.started)).collect();
        assert_eq!(cut, [("check", 50, 201), ("ship", 51, 5_000)]);
        for item in [0, 48, 4_000, 4_500] {
            for key in [format!("step/ship[{item}]/1/output"), format!("undo/ship[{item}]/2/claim")]
            {
                assert_eq!(ranges_with(&shown, &key), 1, "{key}");
            }
        }
        for item in [49, 3_999, 4_001, 40] {
            let key = format!("step/ship[{item}]/1/output");
            assert_eq!(ranges_with(&shown, &key), usize::from(item == 40), "{key}");
        }
        for key in OTHERS {
            assert_eq!(ranges_with(&shown, key), 1, "{key}");
        }
    }
}
