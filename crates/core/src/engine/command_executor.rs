//! The common parts of all commands: the change that a command makes, the steps that it affects, and checks of the
//! task's state. The commands themselves are functions over a [`CommandExecutor`]: those on the task in `operate`, those on
//! single steps in `step_commands`, and the edit of the input in `edit_input`.

use crate::{
    engine::task_change::TaskChange,
    model::{attempt::Action, names::Part, step::StepState, task::ProcessState},
};

/// Why a command is refused.
pub(crate) type RefusalReason = String;

/// The execution of one command.
pub(crate) struct CommandExecutor<'c, 'a> {
    pub(crate) change: &'c mut TaskChange<'a>,
    /// The parts that the command affects.
    pub(crate) steps: Vec<Part>,
}

impl CommandExecutor<'_, '_> {
    /// Refuses the command unless the task is in progress or in Error.
    pub(super) fn check_is_open(&self) -> Result<(), RefusalReason> {
        match self.change.task.process_state {
            ProcessState::Processing | ProcessState::Undoing | ProcessState::Error => Ok(()),
            ProcessState::Pending => Err("the task has not started".to_owned()),
            ProcessState::Processed => Err("the task is Processed".to_owned()),
            ProcessState::Undone => Err("the task is Undone".to_owned()),
        }
    }

    /// Refuses the command if the task has ended.
    pub(super) fn check_has_not_ended(&self) -> Result<(), RefusalReason> {
        let state = self.change.task.process_state;
        if state.has_stopped() { Err(format!("the task is {state}")) } else { Ok(()) }
    }

    /// Continues a task in Error if no step is failed any more.
    pub(super) fn reopen_task(&mut self) {
        let task = &self.change.task;
        let direction = task.direction();
        let failed = |action, state: &StepState| action == direction && state.is_failed();
        let stuck =
            task.action_spans().any(|(_, action, progress)| failed(action, &progress.state));
        if task.process_state != ProcessState::Error {
            return;
        }
        if stuck {
            // What the command continues needs time too.
            return self.change.renew_complete_by();
        }
        self.change.reopen();
        self.change.task.process_state = match direction {
            Action::Do => ProcessState::Processing,
            Action::Undo => ProcessState::Undoing,
        };
        if direction == Action::Do {
            self.change.subscribe_again();
        }
    }
}
