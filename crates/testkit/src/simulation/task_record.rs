//! What the oracle reads from the record of a task. It does not use the functions of the core, so that it does not repeat
//! their mistakes.

use jiff::Timestamp;
use steward_core::model::{
    attempt::Action,
    names::{Incarnation, Part, TaskId},
    step::StepState,
    task::{ProcessState, Task},
};

/// A task, distinguished from earlier tasks with the same id.
pub(super) type TaskIncarnation = (TaskId, Incarnation);

/// The part as text: `order-1 undo of charge`.
pub(super) fn describe(task_id: &TaskId, part: &Part, action: Action) -> String {
    match action {
        Action::Do => format!("{task_id} step {part}"),
        Action::Undo => format!("{task_id} undo of {part}"),
    }
}

/// Whether a task is in Error because of an effect that came after it was undone: a redelivery of a refused call, or a child task.
pub(super) fn took_effect_late(task: &Task) -> bool {
    let is_late = |error: &String| error.contains("took effect after");
    match task.process_state {
        ProcessState::Error => task.error.as_ref().is_some_and(is_late),
        // It is undone further.
        ProcessState::Undoing => task.undo_is_final,
        ProcessState::Pending
        | ProcessState::Processing
        | ProcessState::Processed
        | ProcessState::Undone => false,
    }
}

/// Whether the task ended. The oracle does not use the core's definition.
pub(super) fn has_stopped(task: &Task) -> bool {
    use ProcessState::{Error, Pending, Processed, Processing, Undoing, Undone};
    match task.process_state {
        Pending | Processing | Undoing => false,
        Processed | Undone | Error => true,
    }
}

/// Whether a save executes a command of an operator.
pub(super) fn executes_command(before: &Task, after: &Task) -> bool {
    before.commands.last().map(|c| &c.id) != after.commands.last().map(|c| &c.id)
}

/// Whether an operator edited the input of the task.
pub(super) fn has_edited_input(task: &Task) -> bool {
    accepted(task).any(|command| command.ends_with("with edited input"))
}

/// How many resubmit commands the task has accepted.
pub(super) fn resubmit_count(task: &Task) -> usize {
    accepted(task).filter(|command| command.starts_with("resubmit")).count()
}

/// Whether the task has accepted any command of an operator.
pub(super) fn has_commands(task: &Task) -> bool {
    accepted(task).next().is_some()
}

fn accepted(task: &Task) -> impl Iterator<Item = &str> {
    let accepted = task.commands.iter().filter(|record| record.refused.is_none());
    accepted.map(|record| record.command.as_str())
}

/// The time by which the attempt must be answered, if an answer is awaited.
pub(super) fn awaited_by(state: &StepState) -> Option<Timestamp> {
    match state {
        StepState::Running { complete_by, .. }
        | StepState::AwaitingCallback { complete_by, .. } => Some(*complete_by),
        StepState::RunningItems
        | StepState::Waiting { .. }
        | StepState::Completed { .. }
        | StepState::Failed { .. }
        | StepState::Skipped { .. } => None,
    }
}
