//! The operators: what they do by plan, and how they attend to tasks once it is quiet. They know what
//! the task's record says, and, where they must, what the services' books say.

use steward_core::model::{
    command::{Command, Order},
    names::{Part, TaskId},
    step::StepState,
    task::{ProcessState, Task},
};

use super::{
    edits, large,
    ledger::Ledger,
    oracle::{Oracle, is_final},
    plan::{MINUTE, random_order},
    world::{Happening, World},
};

impl World {
    /// Puts the planned commands on the agenda.
    pub(super) fn plan_commands(&self) {
        for (n, planned) in self.plan.commands.iter().enumerate() {
            let order = planned.order.clone();
            if let Some(command) = self.command_of(&planned.task_id, format!("planned-{n}"), order)
            {
                self.at(planned.at, Happening::Command(command, planned.copies));
            }
        }
    }

    /// Nobody forgets a task that is paused.
    pub(super) fn look_for_paused(&self) {
        let now = self.now();
        let paused: Vec<_> = {
            let state = self.state();
            let tasks = state.oracle.tasks.values();
            tasks.filter(|task| task.paused_at.is_some() && !is_final(task)).cloned().collect()
        };
        for task in paused {
            let id = format!("resume-{now}");
            if let Some(command) = self.command_of(&task.task_id, id, Order::Resume) {
                self.at(now, Happening::Command(command, 1));
            }
        }
        self.at(self.next_round(now, 10 * MINUTE), Happening::Look);
    }

    /// Once it is quiet: does something about tasks in Error, and now and then has one undone that
    /// went well. Answers whether there was anything to do.
    pub(super) fn attend(&self, round: u32) -> bool {
        let at = self.now() + self.plan.operators_late;
        let tasks: Vec<_> = self.state().oracle.tasks.values().cloned().collect();
        let mut attended = false;
        for task in tasks {
            let order = match task.process_state {
                ProcessState::Error => self.order_for(&task),
                ProcessState::Processed => self.state().dice.chance(0.1).then_some(Order::Undo),
                ProcessState::Pending
                | ProcessState::Processing
                | ProcessState::Undoing
                | ProcessState::Undone => None,
            };
            let id = format!("attended-{round}");
            let command = order.and_then(|order| self.command_of(&task.task_id, id, order));
            if let Some(command) = command {
                self.at(at, Happening::Command(command, 1));
                attended = true;
            }
        }
        for (place, _) in self.plan.tasks.iter().enumerate().filter(|(_, task)| !task.rival) {
            if self.state().dice.chance(0.3) {
                self.at(at, Happening::Reuse(place));
            }
        }
        attended
    }

    fn command_of(&self, task_id: &TaskId, id: String, order: Order) -> Option<Command> {
        let (id, by, why) = if self.plan.is_large {
            large::texts_of_command(&id)
        } else {
            (id, "simulation".to_owned(), "to see what comes of it".to_owned())
        };
        let (command_id, task_id) = (id.parse().ok()?, task_id.clone());
        Some(Command { command_id, task_id, by, why, order, issued_at: None })
    }

    /// What may help a task in Error: what the operator says did not run, did not.
    fn order_for(&self, task: &Task) -> Option<Order> {
        let blueprint = self.plan.blueprints.iter().find(|b| b.name == task.workflow)?;
        let state = &mut *self.state();
        if self.plan.edits && task.undo_reason.is_none() && state.dice.chance(0.7) {
            let edit = edits::order(&state.oracle, &state.ledger, task, &mut state.dice);
            if edit.is_some() {
                return edit;
            }
        }
        let failed: Vec<_> = task
            .actions()
            .filter(|(.., progress)| {
                matches!(progress.state, StepState::Failed { .. } | StepState::Waiting { .. })
            })
            .map(|(step, ..)| step.clone())
            .collect();
        let step = state.dice.place(failed.len()).and_then(|place| failed.get(place)).cloned();
        let did_not_run = step.as_ref().is_some_and(|step| {
            task.undo_reason.is_none() && did_not_run(&state.oracle, &state.ledger, task, step)
        });
        Some(match state.dice.within(0..=5) {
            0 => Order::Resubmit { step, input: None, did_not_run },
            1 => Order::Resubmit { step: None, input: None, did_not_run: false },
            2 => Order::Skip { step, did_not_run },
            3 => Order::Complete { step, output: Oracle::by_hand() },
            4 => Order::Undo,
            _ => random_order(blueprint, &mut state.dice),
        })
    }
}

/// Whether a part did nothing, by the services' books and those of the tasks that ran for it.
pub(super) fn did_not_run(oracle: &Oracle, ledger: &Ledger, task: &Task, part: &Part) -> bool {
    let account = ledger.account(&task.task_id, part);
    account.is_none_or(|account| account.effects.is_empty())
        && oracle
            .children(&task.task_id, part)
            .all(|child| child.process_state == ProcessState::Undone)
}
