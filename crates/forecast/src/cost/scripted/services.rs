//! The script of a run, with what the run has logged and counted.
//!
//! Knows nothing of the simulation that the run is in: the simulation says when something happens.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use serde_json::Value;
use steward_core::model::{
    attempt::Action,
    messages::{ChildOutcome, ParentStep, Submission},
    names::{Part, TaskId},
};

use super::script::{ChildCall, LogEntry, LogItem, Script, StepKeyRef};
use crate::cost::plan::StepKey;

/// The script of a run, with what it has logged.
#[derive(Debug)]
pub(in crate::cost) struct ScriptedServices {
    pub(super) script: Arc<dyn Script>,
    log: Mutex<Vec<LogEntry>>,
    counts: Mutex<BTreeMap<(TaskId, Part, Action), u32>>,
}

impl ScriptedServices {
    pub(super) fn new(script: Arc<dyn Script>) -> Self {
        Self { script, log: Mutex::default(), counts: Mutex::default() }
    }

    pub(in crate::cost) fn log(&self, at: Duration, item: LogItem) {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).push(LogEntry { at, item });
    }

    /// Removes and returns all entries of the log.
    pub(super) fn take_log(&self) -> Vec<LogEntry> {
        std::mem::take(&mut *self.log.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Counts a call of this part and action. Returns its number, from 1.
    pub(in crate::cost) fn count(&self, task_id: &TaskId, part: &Part, action: Action) -> u32 {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry((task_id.clone(), part.clone(), action)).or_default();
        *count += 1;
        *count
    }

    /// How the requested child task ends, whose workflow is not given, and after which time. `None` if it never ends.
    /// `sample` is an output with the fields that the workflow's expressions read.
    pub(in crate::cost) fn child_end(
        &self,
        submission: &Submission,
        parent: &ParentStep,
        key: &StepKey,
        at: Duration,
        sample: Value,
    ) -> Option<(Duration, ChildOutcome)> {
        let action = if submission.undo { Action::Undo } else { Action::Do };
        let number = self.count(&submission.task_id, &parent.step, action);
        self.log(at, LogItem::ChildRequested(parent.step.clone(), action));
        let (step, part, task_id) = (step_ref(key), &parent.step, &submission.task_id);
        self.script.child(&ChildCall { step, part, task_id, at, action, number, sample })
    }

    /// After which time an event arrives for a step that begins to wait for one at `at`.
    pub(in crate::cost) fn event_after(
        &self,
        key: &StepKey,
        part: &Part,
        at: Duration,
    ) -> Option<Duration> {
        self.script.event_after(&step_ref(key), part, at)
    }
}

/// The step, as scripts name it.
pub(super) fn step_ref((workflow, step): &StepKey) -> StepKeyRef<'_> {
    StepKeyRef { workflow, step }
}
