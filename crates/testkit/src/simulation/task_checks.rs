//! The oracle's checks of each stored task by itself: its invariants, and its size. In no run may an item be larger than the
//! size computed from its definition, may a task stop because of its size, or may the store refuse an item because of its
//! size.

use std::time::Duration;

use steward_core::{
    definition::{plan::Plan, size, workflow::Workflow},
    model::{
        items::ItemRecords,
        names::TaskId,
        step::StepRecord,
        task::Task,
        time::{Timing, later},
    },
};
use steward_runtime::ports::{PortError, Ports};

use super::deployment::SimulatedDeployment;

/// How long a save may take.
const SAVE_TAKES: Duration = Duration::from_secs(1);

/// The beginning of the error of a task that stopped because of its size.
const STOPPED: &str = "the task's record would be larger than";

impl SimulatedDeployment {
    /// Checks a task that was recorded, or saved in place of `before`.
    pub(super) fn check_task(&self, before: Option<&Task>, task: &Task) {
        let workflow = self.plan.workflows.iter().find(|workflow| workflow.name == task.workflow);
        let bytes = self.memory.store().task_bytes(&task.task_id).unwrap_or_default();
        let found = [
            workflow.and_then(|workflow| self.violated(workflow, task)),
            stopped(task),
            workflow.and_then(|workflow| too_large(workflow, task, bytes)),
            workflow.and_then(|workflow| large_part(workflow, before, task)),
        ];
        let mut state = self.state();
        for finding in found.into_iter().flatten() {
            state.oracle.add_finding(format!("{}: {finding}", task.task_id));
        }
    }

    /// The invariant that a task violates. A save takes time, and the clock of a scheduler may be ahead.
    fn violated(&self, plan: &Plan, task: &Task) -> Option<String> {
        let Timing { clock_skew, pickup_within, .. } = self.plan.timing;
        let now = later(self.time(), clock_skew + SAVE_TAKES);
        task.check(plan, now, pickup_within).err().map(|violated| violated.to_string())
    }

    /// Checks the error of a write: it must not be the size limit.
    pub(super) fn check_write_error(&self, id: &TaskId, error: PortError) -> PortError {
        if error.is_too_large() {
            self.state().oracle.add_finding(format!(
                "{id}: the store refused an item because of its size: {}",
                error.operation
            ));
        }
        error
    }
}

fn stopped(task: &Task) -> Option<String> {
    let error = task.error.as_ref().filter(|error| error.starts_with(STOPPED))?;
    Some(format!("stopped because of its size: {error}"))
}

fn too_large(workflow: &Workflow, task: &Task, bytes: usize) -> Option<String> {
    let max = workflow.largest_task_with_parts_of(task);
    (bytes > max).then(|| format!("its item has {bytes} bytes, more than the computed {max}"))
}

/// A changed record that is larger than the size computed for its part.
fn large_part(workflow: &Workflow, before: Option<&Task>, task: &Task) -> Option<String> {
    task.steps.iter().find_map(|(name, record)| {
        let old = before.and_then(|before| before.steps.get(name));
        let max = workflow.steps.get(name).map(size::largest_part)?;
        let old = old.into_iter().flat_map(parts).map(Some).chain(std::iter::repeat(None));
        let changed = parts(record).zip(old).filter(|(record, old)| {
            old.is_none_or(|old| (&old.forward, &old.undo) != (&record.forward, &record.undo))
        });
        let largest = changed.map(|(record, _)| size::part_bytes(record)).max()?;
        let what =
            format!("a record of step {name} has {largest} bytes, more than the computed {max}");
        (largest > max).then_some(what)
    })
}

/// The records of a step and of its items.
fn parts(record: &StepRecord) -> impl Iterator<Item = &StepRecord> {
    let items = record.items.iter().flat_map(ItemRecords::iter);
    std::iter::once(record).chain(items)
}
