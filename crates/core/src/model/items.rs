//! The records of the items of a step with `for_each`, for any type of record.
//!
//! Most items of a long list have equal records: they completed at the first attempt. So the records are kept as *spans*:
//! a span is a number of successive items, and the one record that they share. A task with thousands of items so stays
//! small in memory and in the state store (`text.rs`).

use std::{num::NonZeroU32, ops::Range};

pub(crate) mod text;

/// The items of a step with `for_each`.
#[derive(Debug, Clone)]
pub struct ItemRecords<R> {
    /// The number of items.
    count: u32,
    /// How the list is stored. `None` if it is short.
    slices: Option<ListSlices>,
    /// The estimated bytes of memory that the outputs of the items take.
    output_memory_bytes: u64,
    /// The records of the items that have started. Items start in order.
    spans: Vec<Span<R>>,
}

/// How the list of a step with `for_each` is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListSlices {
    /// The number of items in one slice.
    pub len: NonZeroU32,
    /// Distinguishes the list, and its division into slices, from those of decisions that were not saved.
    pub fingerprint: u32,
}

/// Successive items with equal records.
#[derive(Debug, Clone)]
struct Span<R> {
    len: u32,
    record: R,
}

impl<R: Clone + PartialEq> ItemRecords<R> {
    /// The records of `count` items, none of which has started.
    #[must_use]
    pub fn new(count: u32) -> Self {
        Self { count, slices: None, output_memory_bytes: 0, spans: Vec::new() }
    }

    /// Sets how the list is stored.
    #[must_use]
    pub fn with_slices(self, slices: Option<ListSlices>) -> Self {
        Self { slices, ..self }
    }

    /// How the list is stored. `None` if it is short.
    #[must_use]
    pub fn slices(&self) -> Option<ListSlices> {
        self.slices
    }

    /// The estimated bytes of memory that the outputs of the items take.
    #[must_use]
    pub fn output_memory_bytes(&self) -> u64 {
        self.output_memory_bytes
    }

    /// Counts an output that takes this many bytes of memory.
    pub fn add_output(&mut self, memory_bytes: usize) {
        self.output_memory_bytes = self.output_memory_bytes.saturating_add(memory_bytes as u64);
    }

    /// The records of `count` items, of which the first have started.
    #[must_use]
    pub fn with_started(count: u32, started: impl IntoIterator<Item = R>) -> Self {
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
        self.spans.iter().map(|span| span.len).sum()
    }

    /// The record of an item. `None` if it has not started.
    #[must_use]
    pub fn get(&self, index: u32) -> Option<&R> {
        self.spans().find(|(items, _)| items.contains(&index)).map(|(_, record)| record)
    }

    /// The record of an item, mutable. A change affects no other item.
    #[must_use]
    pub fn get_mut(&mut self, index: u32) -> Option<&mut R> {
        let position = self.isolate(index)?;
        self.spans.get_mut(position).map(|span| &mut span.record)
    }

    /// Starts the next item.
    pub fn push(&mut self, record: R) {
        self.append(Span { len: 1, record });
    }

    /// Adds an item that has not started to the end of the list.
    pub fn grow(&mut self) {
        self.count = self.count.saturating_add(1);
    }

    /// The records of the items that have started, in the order of the list.
    pub fn iter(&self) -> impl Iterator<Item = &R> + Clone {
        self.spans.iter().flat_map(|span| std::iter::repeat_n(&span.record, span.len as usize))
    }

    /// The items that have started, in the order of the list: successive items, and the record that they share.
    pub fn spans(&self) -> impl Iterator<Item = (Range<u32>, &R)> + Clone {
        self.spans.iter().scan(0, |end, span| {
            let start = *end;
            *end += span.len;
            Some((start..*end, &span.record))
        })
    }

    /// The records that successive items share, mutable. A change affects all items of a span.
    pub fn spans_mut(&mut self) -> impl Iterator<Item = &mut R> {
        self.spans.iter_mut().map(|span| &mut span.record)
    }

    /// Replaces each record, and joins the spans whose records are equal then.
    pub(crate) fn replace_records(&mut self, replace: impl Fn(&mut R)) {
        for Span { len, mut record } in std::mem::take(&mut self.spans) {
            replace(&mut record);
            self.append(Span { len, record });
        }
    }

    fn append(&mut self, span: Span<R>) {
        match self.spans.last_mut() {
            Some(last) if last.record == span.record => last.len += span.len,
            Some(_) | None => self.spans.push(span),
        }
    }

    /// Divides the span that contains an item, so that the item is a span of its own. Returns the position of that span.
    fn isolate(&mut self, index: u32) -> Option<usize> {
        let mut before = index;
        for position in 0..self.spans.len() {
            let span = self.spans.get(position)?;
            if before >= span.len {
                before -= span.len;
                continue;
            }
            if span.len == 1 {
                return Some(position);
            }
            let lens = [before, 1, span.len - before - 1].into_iter().filter(|len| *len > 0);
            let divided: Vec<_> =
                lens.map(|len| Span { len, record: span.record.clone() }).collect();
            self.spans.splice(position..=position, divided);
            return Some(position + usize::from(before > 0));
        }
        None
    }

    /// The spans with their lengths, where successive spans differ.
    fn joined(&self) -> impl Iterator<Item = (u32, &R)> {
        let mut spans = self.spans.iter().peekable();
        std::iter::from_fn(move || {
            let first = spans.next()?;
            let mut len = first.len;
            while let Some(next) = spans.next_if(|next| next.record == first.record) {
                len += next.len;
            }
            Some((len, &first.record))
        })
    }
}

/// Equal records of items may be divided into spans in several ways. That makes no difference.
impl<R: Clone + PartialEq> PartialEq for ItemRecords<R> {
    fn eq(&self, other: &Self) -> bool {
        let Self { count, slices, output_memory_bytes, spans: _ } = self;
        (count, slices, output_memory_bytes)
            == (&other.count, &other.slices, &other.output_memory_bytes)
            && self.joined().eq(other.joined())
    }
}

impl<R: Clone + Eq> Eq for ItemRecords<R> {}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::Timestamp;

    use crate::model::step::{Progress, StepRecord, StepState};

    fn completed(attempt: u32) -> StepRecord {
        StepRecord::new(StepState::Completed { attempt: Some(attempt) })
    }

    #[test]
    fn get_mut_changes_one_item() {
        for index in 0..5 {
            let mut items = ItemRecords::with_started(9, (0..5).map(|_| completed(1)));
            assert_eq!(items.spans().count(), 1);
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
        assert_eq!((joined.spans().count(), divided.spans().count()), (1, 3));
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

    #[test]
    fn the_latest_call_in_progress_is_shared_by_passed_items() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let with_call = |state: StepState, until: Option<i64>| {
            let mut record = StepRecord::new(state);
            record.forward.call_may_run_until = until.map(at);
            record
        };
        let done = || StepState::Completed { attempt: Some(1) };
        let waiting = || StepState::waiting(Some(1), at(900));
        let mut undone = with_call(done(), Some(99));
        undone.undo = Some(Progress::new(done()));
        undone.undo.as_mut().unwrap().call_may_run_until = Some(at(140));
        let mut undo_runs = with_call(done(), Some(150));
        undo_runs.undo = Some(Progress::new(waiting()));
        let mut items = ItemRecords::with_started(
            9,
            [
                with_call(done(), Some(110)),
                with_call(done(), Some(100)),
                with_call(done(), Some(130)),
                with_call(done(), Some(120)),
                with_call(done(), None),
                with_call(waiting(), Some(160)),
                undone,
                undo_runs.clone(),
            ],
        );
        items.compact(at(100));
        let untils: Vec<_> = items
            .iter()
            .map(|item| item.forward.call_may_run_until.map(Timestamp::as_second))
            .collect();
        let (latest, own) = (Some(130), Some(160));
        assert_eq!(untils, [latest, None, latest, latest, None, own, None, Some(150)]);
        let undos: Vec<_> = items.iter().filter_map(|item| item.undo.clone()).collect();
        assert_eq!(undos[0].call_may_run_until, Some(at(140)));
        assert_eq!(undos[1], undo_runs.undo.unwrap());
        assert_eq!(items.spans().count(), 7);
        items.compact(at(130));
        let lens: Vec<_> = items.spans().map(|(items, _)| items.len()).collect();
        assert_eq!(lens, [5, 1, 1, 1]);
    }
}
