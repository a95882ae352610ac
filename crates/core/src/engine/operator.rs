//! What all commands share: the change that a command makes, the steps that it is about, and the states in which it makes
//! sense.

use crate::{
    engine::change::Change,
    model::{attempt::Action, names::Part, step::StepState, task::ProcessState},
};

/// Why a command is refused.
pub(crate) type Refused = String;

/// Carries out one command.
pub(crate) struct Operator<'c, 'a> {
    pub(crate) change: &'c mut Change<'a>,
    /// The steps that the command is about.
    pub(crate) steps: Vec<Part>,
}

impl Operator<'_, '_> {
    /// Refuses what makes sense only for a task that goes on, or stopped in Error.
    pub(super) fn is_open(&self) -> Result<(), Refused> {
        match self.change.task.process_state {
            ProcessState::Processing | ProcessState::Undoing | ProcessState::Error => Ok(()),
            ProcessState::Pending => Err("the task has not begun".to_owned()),
            ProcessState::Processed => Err("the task is Processed".to_owned()),
            ProcessState::Undone => Err("the task is Undone".to_owned()),
        }
    }

    pub(super) fn goes_on(&self) -> Result<(), Refused> {
        let state = self.change.task.process_state;
        if state.is_final() { Err(format!("the task is {state}")) } else { Ok(()) }
    }

    /// Lets a task in Error go on, once nothing is left that failed.
    pub(super) fn revive(&mut self) {
        let task = &self.change.task;
        let direction = task.direction();
        let failed = |action, state: &StepState| action == direction && state.is_failed();
        let stuck = task.actions().any(|(_, action, progress)| failed(action, &progress.state));
        if task.process_state != ProcessState::Error || stuck {
            return;
        }
        self.change.reopen();
        self.change.task.process_state = match direction {
            Action::Do => ProcessState::Processing,
            Action::Undo => ProcessState::Undoing,
        };
    }
}
