//! The parts that a decision changes.

use jiff::Timestamp;

use super::record::{awaited_by, is_awaited};
use crate::{
    definition::plan::{CompiledStep, Plan},
    model::{attempt::Action, names::Part, step::Progress, task::Task},
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

/// The parts, and their undos, whose records differ.
pub(super) fn part_changes<'a>(
    plan: &'a Plan,
    before: &'a Task,
    after: &'a Task,
) -> impl Iterator<Item = PartChange<'a>> {
    let changed = after.steps.iter().filter(|(name, new)| before.steps.get(*name) != Some(*new));
    let steps = changed.filter_map(|(name, record)| Some((name, record, plan.find(name)?)));
    let parts = steps.flat_map(|(name, record, step)| {
        record.parts(name).map(move |(part, record)| (part, record, step))
    });
    parts.flat_map(|(part, record, step)| {
        let old = before.record(&part);
        [Action::Do, Action::Undo].into_iter().filter_map(move |action| {
            let new = record.progress(action)?;
            let old = old.and_then(|old| old.progress(action));
            let part = part.clone();
            (old != Some(new)).then_some(PartChange { part, action, step, old, new })
        })
    })
}
