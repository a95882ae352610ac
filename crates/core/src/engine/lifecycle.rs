//! The lifecycle events that a decision publishes, if the workflow of the task chose them.
//!
//! They are derived from the states of the task before and after the decision. So a decision that was not saved publishes
//! nothing, and the events of a decision that was saved can be derived again from the state, without its event. That is
//! done if an earlier delivery of a message, or an earlier sweep, may have lost them. A repeated event has the same id.
//!
//! | event | when |
//! | --- | --- |
//! | submitted | the task leaves Pending |
//! | step completed | the state of a step becomes Completed |
//! | step failed | the state of a step, or of an item, becomes Failed |
//! | processed, undone, error | the task ends, also each time that it ends again |

use crate::{
    definition::plan::Plan,
    engine::effect::Effect,
    limits,
    model::{
        attempt::Action,
        events::BusEvent,
        items::ItemRecords,
        lifecycle::{
            LifecycleEvent, LifecycleEventContent, LifecycleEventKind, StepCompletedData,
            StepFailedData, TaskData, TaskErrorData,
        },
        names::{Part, StepName},
        step::{StepRecord, StepState},
        task::{ProcessState, Task},
    },
    submission::is_tombstone,
};
use jiff::Timestamp;

/// The step events that an earlier handling of a message, or of a task that is due, may have lost.
pub(crate) enum MayHaveLost<'a> {
    /// A sweep fails steps, and may begin the undo of a task that never started.
    Sweep,
    /// A wake completes waits, and steps with `for_each` that have no items. What cannot start, fails.
    Wake,
    /// A reply or callback also completes its own step.
    Reply(&'a StepName),
    /// A command also completes steps.
    Command,
}

/// The events of a change from `before` to `after`, other than the end of the task.
pub(crate) fn events_of_change(
    plan: &Plan,
    before: &Task,
    after: &Task,
    now: Timestamp,
) -> Vec<Effect> {
    if plan.lifecycle_events.is_empty() {
        return Vec::new();
    }
    let is_new_start = before.process_state == ProcessState::Pending
        && after.process_state != ProcessState::Pending;
    let completed = completed_steps(after).filter(|(name, record)| {
        before.steps.get(*name).is_none_or(|old| old.forward.state != record.forward.state)
    });
    let failed = failed_parts(after).filter(|(part, record)| {
        before.record(part).is_none_or(|old| old.forward.state != record.forward.state)
    });
    let events = Events { plan, task: after, now };
    let submitted = is_new_start.then(|| events.submitted()).flatten();
    submitted.into_iter().chain(events.of_steps(completed, failed)).collect()
}

/// The events, other than the end of the task, that may have been lost, as far as the state of the task still shows them.
pub(crate) fn lost_events(
    plan: &Plan,
    task: &Task,
    cause: &MayHaveLost<'_>,
    now: Timestamp,
) -> Vec<Effect> {
    if plan.lifecycle_events.is_empty() || task.process_state == ProcessState::Pending {
        return Vec::new();
    }
    let may_have_started = match cause {
        MayHaveLost::Sweep => task.steps.is_empty(),
        MayHaveLost::Wake | MayHaveLost::Command => true,
        MayHaveLost::Reply(_) => false,
    };
    let completed = completed_steps(task).filter(|(name, record)| match cause {
        MayHaveLost::Sweep => false,
        MayHaveLost::Wake => record.forward.state.newest_attempt().is_none(),
        MayHaveLost::Reply(of) => record.forward.state.newest_attempt().is_none() || name == of,
        MayHaveLost::Command => {
            record.forward.state.newest_attempt().is_none()
                || record.forward.completed_by_hand.is_some()
        }
    });
    let events = Events { plan, task, now };
    let submitted = may_have_started.then(|| events.submitted()).flatten();
    submitted.into_iter().chain(events.of_steps(completed, failed_parts(task))).collect()
}

/// Whether the task is the record of a child task that was undone before it began: no decision ended it.
pub(crate) fn never_began(task: &Task) -> bool {
    is_tombstone(task) && task.ended_at == Some(task.submitted_at)
}

/// The event of the end of the task, if it has ended.
pub(crate) fn end_event(plan: &Plan, task: &Task) -> Option<Effect> {
    let data = || TaskData::of(task);
    let content = match task.process_state {
        ProcessState::Pending | ProcessState::Processing | ProcessState::Undoing => return None,
        ProcessState::Processed => LifecycleEventContent::Processed(data()),
        ProcessState::Undone => LifecycleEventContent::Undone(data()),
        ProcessState::Error => {
            let undo_failed = task.direction() == Action::Undo;
            LifecycleEventContent::Error(TaskErrorData { task: data(), undo_failed })
        }
    };
    let time = task.ended_at.unwrap_or(task.submitted_at);
    Events { plan, task, now: time }.event(time, content)
}

fn completed_steps(task: &Task) -> impl Iterator<Item = (&StepName, &StepRecord)> {
    let is_completed = |record: &StepRecord| match record.forward.state {
        StepState::Completed { .. } => true,
        StepState::Running { .. }
        | StepState::AwaitingCallback { .. }
        | StepState::RunningItems
        | StepState::Waiting { .. }
        | StepState::Failed { .. }
        | StepState::Skipped { .. } => false,
    };
    task.steps.iter().filter(move |(_, record)| is_completed(record))
}

fn failed_parts(task: &Task) -> impl Iterator<Item = (Part, &StepRecord)> {
    let failed = task.part_spans().filter(|(_, record)| record.forward.state.is_failed());
    failed.flat_map(|(run, record)| run.parts().map(move |part| (part, record)))
}

/// Creates the events of a task that its workflow chose.
#[derive(Clone, Copy)]
struct Events<'a> {
    plan: &'a Plan,
    task: &'a Task,
    now: Timestamp,
}

impl<'a> Events<'a> {
    fn event(self, time: Timestamp, content: LifecycleEventContent) -> Option<Effect> {
        let is_chosen = self.plan.lifecycle_events.contains(content.kind());
        let event = || BusEvent::Lifecycle(Box::new(LifecycleEvent::new(self.task, time, content)));
        is_chosen.then(|| Effect::Publish(event()))
    }

    fn submitted(self) -> Option<Effect> {
        let content = LifecycleEventContent::Submitted(TaskData::of(self.task));
        self.event(self.task.submitted_at, content)
    }

    fn of_steps(
        self,
        completed: impl Iterator<Item = (&'a StepName, &'a StepRecord)>,
        failed: impl Iterator<Item = (Part, &'a StepRecord)>,
    ) -> impl Iterator<Item = Effect> {
        let is_chosen = |kind| self.plan.lifecycle_events.contains(kind);
        let completed = completed
            .filter(move |_| is_chosen(LifecycleEventKind::StepCompleted))
            .filter_map(move |(name, record)| self.event(self.now, self.completed(name, record)));
        let failed = failed
            .filter(move |_| is_chosen(LifecycleEventKind::StepFailed))
            .take(limits::FAILED_PART_EVENTS_MAX)
            .filter_map(move |(part, record)| self.event(self.now, self.failed(part, record)));
        completed.chain(failed)
    }

    fn completed(self, step: &StepName, record: &StepRecord) -> LifecycleEventContent {
        LifecycleEventContent::StepCompleted(StepCompletedData {
            task: TaskData::of(self.task),
            step: step.clone(),
            attempt: record.forward.state.newest_attempt(),
            items: record.items.as_ref().map(ItemRecords::count),
            command_id: record.forward.completed_by_hand.clone(),
        })
    }

    fn failed(self, step: Part, record: &StepRecord) -> LifecycleEventContent {
        LifecycleEventContent::StepFailed(StepFailedData {
            task: TaskData::of(self.task),
            step,
            attempt: record.forward.state.newest_attempt(),
            failed_attempts: record.forward.failure_count,
            may_have_run: record.forward.may_have_run,
        })
    }
}

#[cfg(test)]
mod tests;
