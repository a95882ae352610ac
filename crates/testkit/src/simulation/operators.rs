//! The operators. They send the planned commands. Once the run is quiet, they resolve tasks in Error and undo some
//! Processed tasks. They know the task's record and, where a command requires it, the services' ledger.

use jiff::Timestamp;
use steward_core::model::{
    command::{Command, CommandAction},
    names::TaskId,
    step::StepState,
    task::{ProcessState, Task},
};

use super::{
    deployment::{ScheduledEvent, SimulatedDeployment},
    large_tasks, list_edits,
    plan::operator_output,
    random_plan::random_action,
    task_record::has_stopped,
    virtual_time::MINUTE,
};

impl SimulatedDeployment {
    /// Schedules the planned commands.
    pub(super) fn schedule_commands(&self) {
        for (n, planned) in self.plan.commands.iter().enumerate() {
            let action = planned.action.clone();
            if let Some(command) = self.command_of(&planned.task_id, format!("planned-{n}"), action)
            {
                self.schedule(planned.at, ScheduledEvent::Command(command, planned.copies));
            }
        }
    }

    /// Resumes all paused tasks, and schedules the next round.
    pub(super) fn resume_paused(&self) {
        let now = self.now();
        let paused: Vec<_> = {
            let state = self.state();
            let tasks = state.oracle.tasks.values();
            tasks.filter(|task| task.paused_at.is_some() && !has_stopped(task)).cloned().collect()
        };
        for task in paused {
            let id = format!("resume-{now}");
            if let Some(command) = self.command_of(&task.task_id, id, CommandAction::Resume) {
                self.schedule(now, ScheduledEvent::Command(command, 1));
            }
        }
        self.schedule(self.next_round(now, 10 * MINUTE), ScheduledEvent::ResumePaused);
    }

    /// Once the run is quiet, schedules commands for tasks in Error, an undo for some Processed tasks, and the reuse of some
    /// task ids. Returns whether a command was scheduled.
    pub(super) fn resolve_errors(&self, round: u32) -> bool {
        let at = self.now() + self.plan.operator_delay;
        let tasks: Vec<_> = self.state().oracle.tasks.values().cloned().collect();
        let mut sends_commands = false;
        for task in tasks {
            let action = match task.process_state {
                ProcessState::Error => self.action_for(&task),
                ProcessState::Processed => {
                    self.state().random.chance(0.1).then_some(CommandAction::Undo)
                }
                ProcessState::Pending
                | ProcessState::Processing
                | ProcessState::Undoing
                | ProcessState::Undone => None,
            };
            let id = format!("attended-{round}");
            let command = action.and_then(|action| self.command_of(&task.task_id, id, action));
            if let Some(command) = command {
                self.schedule(at, ScheduledEvent::Command(command, 1));
                sends_commands = true;
            }
        }
        for (index, _) in self.plan.tasks.iter().enumerate().filter(|(_, task)| !task.id_collision)
        {
            if self.state().random.chance(0.3) {
                self.schedule(at, ScheduledEvent::ReuseTaskId(index));
            }
        }
        sends_commands
    }

    /// The tasks in Error that nobody has settled, also those that have the id of an earlier task.
    pub(super) fn unresolved(&self) -> Vec<Task> {
        let ids: Vec<_> = self.state().oracle.tasks.keys().cloned().collect();
        let tasks = ids.iter().filter_map(|id| self.present(id));
        tasks.filter(Task::is_unresolved).collect()
    }

    /// Schedules a command that settles each Error, so that all tasks expire. Returns whether there is one.
    pub(super) fn settle_errors(&self) -> bool {
        let unresolved = self.unresolved();
        for task in &unresolved {
            let id = "settled".to_owned();
            let command = self.command_of(&task.task_id, id, CommandAction::Resolve);
            let command = command.map(|command| ScheduledEvent::Command(command, 1));
            command.into_iter().for_each(|command| self.schedule(self.now(), command));
        }
        !unresolved.is_empty()
    }

    fn command_of(&self, task_id: &TaskId, id: String, action: CommandAction) -> Option<Command> {
        let (id, by, why) = if self.plan.tasks_near_size_limits {
            large_tasks::longest_command_texts(&id)
        } else {
            (id, "simulation".to_owned(), "drawn at random".to_owned())
        };
        let (command_id, task_id) = (id.parse().ok()?, task_id.clone());
        // It is issued when it is sent.
        let issued_at = Timestamp::UNIX_EPOCH;
        Some(Command { command_id, task_id, by, why, action, issued_at })
    }

    /// A command that may resolve a task in Error. `did_not_run` is only set when it is true.
    fn action_for(&self, task: &Task) -> Option<CommandAction> {
        let blueprint = self.plan.blueprints.iter().find(|b| b.name == task.workflow)?;
        let state = &mut *self.state();
        if self.plan.operators_edit_lists && task.undo_reason.is_none() && state.random.chance(0.7)
        {
            let edit = list_edits::resubmit_with_edited_list(
                &state.oracle,
                &state.ledger,
                task,
                &mut state.random,
            );
            if edit.is_some() {
                return edit;
            }
        }
        let failed: Vec<_> = task
            .started_actions()
            .filter(|(.., progress)| {
                matches!(progress.state, StepState::Failed { .. } | StepState::Waiting { .. })
            })
            .map(|(step, ..)| step.clone())
            .collect();
        let step = state.random.index(failed.len()).and_then(|index| failed.get(index)).cloned();
        let did_not_run = step.as_ref().is_some_and(|step| {
            task.undo_reason.is_none() && state.oracle.had_no_effect(&state.ledger, task, step)
        });
        Some(match state.random.within(0..=5) {
            0 => CommandAction::Resubmit { step, input: None, did_not_run },
            1 => CommandAction::Resubmit { step: None, input: None, did_not_run: false },
            2 => CommandAction::Skip { step, did_not_run },
            3 => CommandAction::Complete { step, output: operator_output() },
            4 => CommandAction::Undo,
            _ => random_action(blueprint, &mut state.random),
        })
    }
}
