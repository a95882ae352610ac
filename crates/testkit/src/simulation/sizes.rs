//! What the oracle holds against sizes: in no world is an item larger than what is computed for its
//! definition, does a task stop for its size, or does the store refuse an item for its size.

use steward_core::{
    definition::{size, workflow::Workflow},
    model::{names::TaskId, step::StepRecord, task::Task},
};
use steward_runtime::ports::{PortError, Ports};

use super::world::World;

/// What a task says that stopped for its size.
const STOPPED: &str = "the task's record would be larger than";

impl World {
    /// A task was recorded, or saved over `before`.
    pub(super) fn judge_size(&self, before: Option<&Task>, task: &Task) {
        let workflow = self.plan.workflows.iter().find(|workflow| workflow.name == task.workflow);
        let bytes = self.memory.store().task_bytes(&task.task_id).unwrap_or_default();
        let found = [
            stopped(task),
            workflow.and_then(|workflow| too_large(workflow, task, bytes)),
            workflow.and_then(|workflow| large_part(workflow, before, task)),
        ];
        let mut state = self.state();
        for finding in found.into_iter().flatten() {
            state.oracle.find(format!("{}: {finding}", task.task_id));
        }
    }

    /// A write was refused.
    pub(super) fn judge_refusal(&self, id: &TaskId, error: PortError) -> PortError {
        if error.is_too_large() {
            self.state().oracle.find(format!("{id}: the store refused {}", error.operation));
        }
        error
    }
}

fn stopped(task: &Task) -> Option<String> {
    let error = task.error.as_ref().filter(|error| error.starts_with(STOPPED))?;
    Some(format!("stopped for its size: {error}"))
}

fn too_large(workflow: &Workflow, task: &Task, bytes: usize) -> Option<String> {
    let max = workflow.largest_task_with_parts_of(task);
    (bytes > max).then(|| format!("its item has {bytes} bytes, and {max} are computed"))
}

/// A record that changed and is larger than what is computed for its part.
fn large_part(workflow: &Workflow, before: Option<&Task>, task: &Task) -> Option<String> {
    task.steps.iter().find_map(|(name, record)| {
        let old = before.and_then(|before| before.steps.get(name));
        let max = workflow.steps.get(name).map(size::largest_part)?;
        let changed = parts(record).enumerate().filter(|(place, record)| {
            let old = old.and_then(|old| parts(old).nth(*place));
            old.is_none_or(|old| (&old.run, &old.undo) != (&record.run, &record.undo))
        });
        let largest = changed.map(|(_, record)| size::part_bytes(record)).max()?;
        let what = format!("a record of step {name} has {largest} bytes, and {max} are computed");
        (largest > max).then_some(what)
    })
}

/// The record of a step itself, and those of its items.
fn parts(record: &StepRecord) -> impl Iterator<Item = &StepRecord> {
    let items = record.items.iter().flat_map(|items| &items.begun);
    std::iter::once(record).chain(items)
}
