//! The records of the items of a step with `for_each`.
//!
//! Most items of a long list have equal records: they completed at the first attempt. So the records are kept as *runs*:
//! a run is a number of successive items, and the one record that they share.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::model::step::StepRecord;

/// The items of a step with `for_each`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(from = "StoredItems", into = "StoredItems")]
pub struct ItemRecords {
    /// The number of items.
    count: u32,
    /// The records of the items that have started. Items start in order.
    runs: Vec<Run>,
}

/// Successive items with equal records.
#[derive(Debug, Clone)]
struct Run {
    len: u32,
    record: StepRecord,
}

/// The items in the format of the state store.
#[derive(Serialize, Deserialize)]
struct StoredItems {
    /// The number of items.
    #[serde(rename = "n")]
    count: u32,
    /// The records of the items that have started.
    #[serde(rename = "l", default, skip_serializing_if = "Vec::is_empty")]
    started: Vec<StepRecord>,
}

impl ItemRecords {
    /// The records of `count` items, none of which has started.
    #[must_use]
    pub fn new(count: u32) -> Self {
        Self { count, runs: Vec::new() }
    }

    /// The records of `count` items, of which the first have started.
    #[must_use]
    pub fn with_started(count: u32, started: impl IntoIterator<Item = StepRecord>) -> Self {
        let mut items = Self::new(count);
        started.into_iter().for_each(|record| items.push(record));
        items
    }

    /// The number of items.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The number of items that have started.
    #[must_use]
    pub fn started(&self) -> u32 {
        self.runs.iter().map(|run| run.len).sum()
    }

    /// The record of an item. `None` if it has not started.
    #[must_use]
    pub fn get(&self, index: u32) -> Option<&StepRecord> {
        self.runs().find(|(items, _)| items.contains(&index)).map(|(_, record)| record)
    }

    /// The record of an item, mutable. A change affects no other item.
    #[must_use]
    pub fn get_mut(&mut self, index: u32) -> Option<&mut StepRecord> {
        let position = self.isolate(index)?;
        self.runs.get_mut(position).map(|run| &mut run.record)
    }

    /// Starts the next item.
    pub fn push(&mut self, record: StepRecord) {
        self.append(Run { len: 1, record });
    }

    /// The records of the items that have started, in the order of the list.
    pub fn iter(&self) -> impl Iterator<Item = &StepRecord> + Clone {
        self.runs.iter().flat_map(|run| std::iter::repeat_n(&run.record, run.len as usize))
    }

    /// The items that have started, in the order of the list: successive items, and the record that they share.
    pub fn runs(&self) -> impl Iterator<Item = (Range<u32>, &StepRecord)> + Clone {
        self.runs.iter().scan(0, |end, run| {
            let start = *end;
            *end += run.len;
            Some((start..*end, &run.record))
        })
    }

    /// The records that successive items share, mutable. A change affects all items of a run.
    pub fn runs_mut(&mut self) -> impl Iterator<Item = &mut StepRecord> {
        self.runs.iter_mut().map(|run| &mut run.record)
    }

    /// Whether every item has completed or was skipped.
    #[must_use]
    pub fn are_completed_or_skipped(&self) -> bool {
        self.started() >= self.count
            && self.runs.iter().all(|run| run.record.run.state.is_completed_or_skipped())
    }

    fn append(&mut self, run: Run) {
        match self.runs.last_mut() {
            Some(last) if last.record == run.record => last.len += run.len,
            Some(_) | None => self.runs.push(run),
        }
    }

    /// Divides the run that contains an item, so that the item is a run of its own. Returns the position of that run.
    fn isolate(&mut self, index: u32) -> Option<usize> {
        let mut before = index;
        for position in 0..self.runs.len() {
            let run = self.runs.get(position)?;
            if before >= run.len {
                before -= run.len;
                continue;
            }
            if run.len == 1 {
                return Some(position);
            }
            let lens = [before, 1, run.len - before - 1].into_iter().filter(|len| *len > 0);
            let divided: Vec<_> = lens.map(|len| Run { len, record: run.record.clone() }).collect();
            self.runs.splice(position..=position, divided);
            return Some(position + usize::from(before > 0));
        }
        None
    }

    /// The runs with their lengths, where successive runs differ.
    fn joined(&self) -> impl Iterator<Item = (u32, &StepRecord)> {
        let mut runs = self.runs.iter().peekable();
        std::iter::from_fn(move || {
            let first = runs.next()?;
            let mut len = first.len;
            while let Some(next) = runs.next_if(|next| next.record == first.record) {
                len += next.len;
            }
            Some((len, &first.record))
        })
    }
}

/// Equal records of items may be divided into runs in several ways. That makes no difference.
impl PartialEq for ItemRecords {
    fn eq(&self, other: &Self) -> bool {
        self.count == other.count && self.joined().eq(other.joined())
    }
}

impl Eq for ItemRecords {}

impl From<StoredItems> for ItemRecords {
    fn from(StoredItems { count, started }: StoredItems) -> Self {
        Self::with_started(count, started)
    }
}

impl From<ItemRecords> for StoredItems {
    fn from(items: ItemRecords) -> Self {
        Self { count: items.count, started: items.iter().cloned().collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::step::StepState;

    fn completed(attempt: u32) -> StepRecord {
        StepRecord::new(StepState::Completed { attempt: Some(attempt) })
    }

    #[test]
    fn get_mut_changes_one_item() {
        for index in 0..5 {
            let mut items = ItemRecords::with_started(9, (0..5).map(|_| completed(1)));
            assert_eq!(items.runs().count(), 1);
            *items.get_mut(index).unwrap() = completed(2);
            for other in 0..5 {
                let attempt = if other == index { 2 } else { 1 };
                assert_eq!(items.get(other), Some(&completed(attempt)), "{index} {other}");
            }
            assert_eq!((items.count(), items.started(), items.iter().count()), (9, 5, 5));
        }
        let mut items = ItemRecords::with_started(9, [completed(1), completed(1)]);
        assert!(items.get(2).is_none() && items.get_mut(2).is_none());
    }

    #[test]
    fn tasks_that_differ_only_in_runs_are_equal() {
        let joined = ItemRecords::with_started(9, (0..5).map(|_| completed(1)));
        let mut divided = joined.clone();
        *divided.get_mut(2).unwrap() = completed(1);
        assert_eq!((joined.runs().count(), divided.runs().count()), (1, 3));
        assert_eq!(joined, divided);
        divided.push(completed(1));
        assert_ne!(joined, divided);
        *divided.get_mut(2).unwrap() = completed(2);
        assert_ne!(joined, divided);
        assert_ne!(joined, ItemRecords::with_started(8, (0..5).map(|_| completed(1))));
    }

    #[test]
    fn every_item_has_passed_only_if_every_item_has_started() {
        let passed = |count, started| {
            ItemRecords::with_started(count, (0..started).map(|_| completed(1)))
                .are_completed_or_skipped()
        };
        assert!(passed(3, 3) && passed(0, 0) && !passed(3, 2));
    }
}
