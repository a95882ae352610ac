//! The parts that a decision changes.

use std::ops::Range;

use jiff::Timestamp;

use super::record::{awaited_by, is_awaited};
use crate::{
    definition::plan::{CompiledStep, Plan},
    model::{
        attempt::Action,
        items::ItemRecords,
        names::Part,
        part_span::PartSpan,
        step::{Progress, StepRecord},
        task::Task,
    },
};

/// The change of a part, or of its undo.
pub(super) struct PartChange<'a> {
    pub(super) part: Part,
    pub(super) action: Action,
    pub(super) step: &'a CompiledStep,
    pub(super) old: Option<&'a Progress>,
    pub(super) new: &'a Progress,
}

impl PartChange<'_> {
    pub(super) fn old_number(&self) -> u32 {
        self.old.map_or(0, |old| old.state.attempt_count())
    }

    pub(super) fn number(&self) -> u32 {
        self.new.state.attempt_count()
    }

    pub(super) fn begins(&self) -> bool {
        self.new.state.is_running() && self.number() > self.old_number()
    }

    /// The deadline of the attempt that was awaited before, and is not awaited any more.
    pub(super) fn was_awaited_by(&self) -> Option<Timestamp> {
        let is_same = is_awaited(&self.new.state) && self.number() == self.old_number();
        self.old.and_then(|old| awaited_by(&old.state)).filter(|_| !is_same)
    }
}

/// The parts, and their undos, whose records differ. Of items with equal records only those that differ are looked at.
pub(super) fn part_changes<'a>(
    plan: &'a Plan,
    before: &'a Task,
    after: &'a Task,
) -> impl Iterator<Item = PartChange<'a>> {
    let changed = after.steps.iter().filter_map(|(name, new)| {
        let old = before.steps.get(name);
        (old != Some(new)).then_some((name, plan.find(name)?, old, new))
    });
    let parts = changed.flat_map(|(name, step, old, new)| {
        record_changes(old, new).into_iter().flat_map(move |(items, old, new)| {
            let parts = PartSpan { step: name, items }.parts();
            parts.map(move |part| (part, step, old, new))
        })
    });
    parts.flat_map(|(part, step, old, new)| {
        [Action::Do, Action::Undo].into_iter().filter_map(move |action| {
            let (old, new) = (old.and_then(|old| old.progress(action)), new.progress(action)?);
            let part = part.clone();
            (old != Some(new)).then_some(PartChange { part, action, step, old, new })
        })
    })
}

/// The changed record of a step, or those of its items, with the record before.
type RecordChange<'a> = (Option<Range<u32>>, Option<&'a StepRecord>, &'a StepRecord);

fn record_changes<'a>(old: Option<&'a StepRecord>, new: &'a StepRecord) -> Vec<RecordChange<'a>> {
    let Some(items) = &new.items else { return vec![(None, old, new)] };
    let old = old.and_then(|old| old.items.as_ref());
    let old_end = old.map_or(0, ItemRecords::started);
    let old_spans: Vec<_> = old.into_iter().flat_map(ItemRecords::spans).collect();
    let changes = items.spans().flat_map(|(range, new)| {
        let first = old_spans.partition_point(|(of, _)| of.end <= range.start);
        let overlap = old_spans.iter().skip(first).take_while(|(of, _)| of.start < range.end);
        let changed = overlap
            .filter(|(_, old)| *old != new)
            .map(|(of, old)| (range.start.max(of.start)..range.end.min(of.end), Some(*old), new));
        let added = range.start.max(old_end)..range.end;
        changed.chain([(added, None, new)]).collect::<Vec<_>>()
    });
    let changes = changes.filter(|(range, ..)| !range.is_empty());
    changes.map(|(range, old, new)| (Some(range), old, new)).collect()
}
