//! Parts of a task that have equal records.
//!
//! A step with ten thousand items has few different records. A decision looks at each record once, and expands only those
//! parts that it changes or sends.

use std::ops::Range;

use crate::model::{
    attempt::Action,
    names::{Part, StepName},
    step::{Progress, StepRecord},
    task::Task,
};

/// A step without items, or successive items of a step that have equal records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartRun<'t> {
    /// The step.
    pub step: &'t StepName,
    /// The items. `None` for a step as a whole.
    pub items: Option<Range<u32>>,
}

impl<'t> PartRun<'t> {
    /// The number of parts.
    #[must_use]
    pub fn count(&self) -> usize {
        self.items.as_ref().map_or(1, ExactSizeIterator::len)
    }

    /// The parts, in the order of the list.
    pub fn parts(self) -> impl Iterator<Item = Part> + use<'t> {
        let step = self.step;
        let whole = self.items.is_none().then(|| Part::from(step.clone()));
        let items = self.items.into_iter().flatten();
        whole.into_iter().chain(items.map(|item| Part { step: step.clone(), item: Some(item) }))
    }
}

impl StepRecord {
    /// The parts of the step with their records: its started items, or the step itself.
    pub fn part_runs<'t>(
        &'t self,
        step: &'t StepName,
    ) -> impl Iterator<Item = (PartRun<'t>, &'t Self)> {
        let whole = self.items.is_none().then_some((PartRun { step, items: None }, self));
        let items = self.items.iter().flat_map(|items| items.runs());
        let items = items.map(|(items, record)| (PartRun { step, items: Some(items) }, record));
        whole.into_iter().chain(items)
    }
}

impl Task {
    /// The parts that have started, with their records.
    pub fn part_runs(&self) -> impl Iterator<Item = (PartRun<'_>, &StepRecord)> {
        self.steps.iter().flat_map(|(name, record)| record.part_runs(name))
    }

    /// Everything that has started: the parts, and their undos.
    pub fn action_runs(&self) -> impl Iterator<Item = (PartRun<'_>, Action, &Progress)> {
        self.part_runs().flat_map(|(run, record)| {
            let undo = record.undo.iter().map({
                let run = run.clone();
                move |undo| (run.clone(), Action::Undo, undo)
            });
            std::iter::once((run, Action::Do, &record.run)).chain(undo)
        })
    }
}
