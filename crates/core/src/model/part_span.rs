//! Parts of a task that have equal records.
//!
//! A step with ten thousand items has few different records. A decision looks at each record once, and expands only those
//! parts that it changes or sends.

use std::ops::Range;

use crate::model::names::{Part, StepName};

/// A step without items, or successive items of a step that have equal records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartSpan<'t> {
    /// The step.
    pub step: &'t StepName,
    /// The items. `None` for a step as a whole.
    pub items: Option<Range<u32>>,
}

impl<'t> PartSpan<'t> {
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
