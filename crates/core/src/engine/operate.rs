//! What an operator's command makes of a task, or why it is refused. Each is put on the task's
//! record with who asked and why, and told as an event; so is a refused one.

use crate::engine::operator::Operator;
use crate::engine::operator::Refused;
use jiff::Timestamp;

use crate::engine::{
    advance::advance,
    order::{self, PointOfNoReturn},
};
use crate::{
    engine::{change::Change, compensate, effect::Effect},
    limits::{self, shorten},
    model::{
        command::{Command, CommandRecord, Order},
        events::{BusEvent, Happened},
        names::Part,
        task::{ProcessState, Task},
        time::{earlier, later},
    },
};

/// Carries out a command, or puts on record why it was refused. `change` makes one that changes
/// nothing yet.
pub(crate) fn operate<'a>(
    command: &Command,
    change: impl Fn() -> Box<Change<'a>>,
) -> Box<Change<'a>> {
    let mut changed = change();
    let mut operator = Operator { change: &mut changed, steps: Vec::new() };
    let refused = operator.obey(command).err();
    let steps = operator.steps;
    match refused {
        None => put_on_record(&mut changed, command, &steps, None),
        Some(reason) => {
            changed = change();
            put_on_record(&mut changed, command, &[], Some(&reason));
        }
    }
    changed
}

fn put_on_record(
    change: &mut Change<'_>,
    command: &Command,
    steps: &[Part],
    refused: Option<&str>,
) {
    let short = |text: &str| shorten(text, limits::COMMAND_TEXT_CHARS_MAX);
    let record = CommandRecord {
        id: command.command_id.clone(),
        command: short(&command.order.describe(steps)),
        by: short(&command.by),
        why: short(&command.why),
        at: change.now(),
        refused: refused.map(short),
    };
    change.notifications.push(notification(&change.task, &record));
    let commands = &mut change.task.commands;
    commands.push(record);
    let surplus = commands.len().saturating_sub(limits::COMMANDS_KEPT_MAX);
    commands.drain(..surplus);
}

/// What would be on record of a command that is refused.
pub(crate) fn refused(command: &Command, reason: &str, at: Timestamp) -> CommandRecord {
    let short = |text: &str| shorten(text, limits::COMMAND_TEXT_CHARS_MAX);
    CommandRecord {
        id: command.command_id.clone(),
        command: short(&command.order.describe(&[])),
        by: short(&command.by),
        why: short(&command.why),
        at,
        refused: Some(short(reason)),
    }
}

/// The event that tells of a command on record.
pub(crate) fn notification(task: &Task, record: &CommandRecord) -> Effect {
    let CommandRecord { id, command, by, why, at, refused } = record.clone();
    let data = Happened::OperatorCommand {
        task_id: task.task_id.clone(),
        command_id: id,
        command,
        by,
        why,
        refused,
    };
    let subject = format!("{}/{}", task.task_id, record.id);
    Effect::Publish(BusEvent::new(&subject, at, data))
}

impl Operator<'_, '_> {
    fn obey(&mut self, command: &Command) -> Result<(), Refused> {
        self.is_known_to_be_new(command)?;
        self.change.due_anew = true;
        match &command.order {
            Order::Resubmit { step, input, did_not_run } => {
                self.resubmit(step.as_ref(), *did_not_run, input.is_some())?;
                if let Some(patch) = input {
                    self.edit(command, patch)?;
                }
            }
            Order::Skip { step, did_not_run } => self.skip(step.as_ref(), *did_not_run)?,
            Order::Complete { step, output } => {
                self.complete(&command.command_id, step.as_ref(), output)?
            }
            Order::Undo => self.undo(command)?,
            Order::Cancel => self.cancel(command)?,
            Order::Pause => self.pause()?,
            Order::Resume => self.resume()?,
        }
        advance(self.change);
        Ok(())
    }

    /// Refuses a command that may have been carried out and whose id has been forgotten since: the record
    /// is full, and all commands on it were decided after this one was issued.
    fn is_known_to_be_new(&self, command: &Command) -> Result<(), Refused> {
        let recorded_at =
            earlier(self.change.task.submitted_at, self.change.inputs.context.timing.clock_skew);
        if command.issued_at.is_some_and(|issued_at| issued_at < recorded_at) {
            return Err("it was issued for an earlier task with the same id".to_owned());
        }
        let commands = &self.change.task.commands;
        let is_full = commands.len() >= limits::COMMANDS_KEPT_MAX;
        let oldest = commands.iter().map(|record| record.at).min().filter(|_| is_full);
        match (command.issued_at, oldest) {
            (Some(issued_at), Some(oldest)) if issued_at < oldest => Err(format!(
                "it was issued before the {} commands on the task's record, and may have been carried \
                 out before them: if it was not, send it again",
                limits::COMMANDS_KEPT_MAX
            )),
            (Some(_) | None, Some(_) | None) => Ok(()),
        }
    }

    fn undo(&mut self, command: &Command) -> Result<(), Refused> {
        let task = &self.change.task;
        match task.process_state {
            ProcessState::Undoing => return Err("the task is being undone".to_owned()),
            ProcessState::Undone => return Err("the task is Undone".to_owned()),
            ProcessState::Error if task.undo_reason.is_some() => {
                return Err("the task failed while it was undone: resubmit goes on".to_owned());
            }
            // Its parent goes by its having been done.
            ProcessState::Processed if let Some(parent) = &task.parent => {
                return Err(format!(
                    "it ran for step {} of task {}, which counts on it: undo that task",
                    parent.step, parent.task_id
                ));
            }
            ProcessState::Pending
            | ProcessState::Processing
            | ProcessState::Processed
            | ProcessState::Error => {}
        }
        if let PointOfNoReturn::Passed(step) = order::point_of_no_return(self.change.plan(), task) {
            return Err(format!("past the point of no return, step {step}"));
        }
        self.change.reopen();
        compensate::begin(self.change, &format!("asked for by {}: {}", command.by, command.why));
        Ok(())
    }

    fn cancel(&mut self, command: &Command) -> Result<(), Refused> {
        self.goes_on()?;
        self.change.fail_task(&format!("cancelled by {}: {}", command.by, command.why));
        Ok(())
    }

    fn pause(&mut self) -> Result<(), Refused> {
        self.goes_on()?;
        if self.change.task.paused_at.is_some() {
            return Err("the task is paused".to_owned());
        }
        self.change.task.paused_at = Some(self.change.now());
        Ok(())
    }

    /// The pause does not count: the task has as much time left as it had.
    fn resume(&mut self) -> Result<(), Refused> {
        let Some(paused_at) = self.change.task.paused_at.take() else {
            return Err("the task is not paused".to_owned());
        };
        let paused = self.change.now().duration_since(paused_at);
        let task = &mut self.change.task;
        task.complete_by = later(task.complete_by, paused.try_into().unwrap_or_default());
        self.change.wake_waiting();
        Ok(())
    }
}

#[cfg(test)]
mod tests;
