//! Executes or refuses an operator's command. Each command, also a refused one, is recorded on the task with its
//! operator and reason, and published as an event.

use jiff::Timestamp;
use serde_json::json;

use crate::{
    engine::{
        advance::advance,
        command_executor::{CommandExecutor, RefusalReason},
        edit_input,
        effect::Effect,
        graph::{self, PointOfNoReturn},
        rerun::{check_rerun, rerun_id, submission},
        step_commands,
        task_change::TaskChange,
        undo,
        values::ValueError,
    },
    limits::{self, short_line},
    model::{
        command::{Command, CommandAction, CommandRecord, ReceivedCommand},
        events::{BusEvent, EventData},
        messages::CallbackOutcome,
        names::Part,
        task::{ProcessState, StopCause, Task},
        time::{earlier, later},
    },
};

/// Executes a command, or records why it was refused. `change` creates a change that does not change anything yet.
pub(crate) fn apply_command<'a>(
    received: &ReceivedCommand,
    change: impl Fn() -> Box<TaskChange<'a>>,
) -> Box<TaskChange<'a>> {
    let mut changed = change();
    let mut executor = CommandExecutor { change: &mut changed, steps: Vec::new() };
    let refused = execute(&mut executor, &received.command).err();
    let steps = executor.steps;
    match refused {
        None => record_command(&mut changed, received, &steps, None),
        Some(reason) => {
            changed = change();
            record_command(&mut changed, received, &[], Some(&reason));
        }
    }
    changed
}

fn record_command(
    change: &mut TaskChange<'_>,
    ReceivedCommand { command, caller }: &ReceivedCommand,
    steps: &[Part],
    refused: Option<&str>,
) {
    let short = |text: &str| short_line(text, limits::COMMAND_TEXT_CHARS_MAX);
    let submits = refused.is_none() && matches!(command.action, CommandAction::Rerun { .. });
    let submitted = submits.then(|| rerun_id(&change.task, &command.action).ok()).flatten();
    let record = CommandRecord {
        id: command.command_id.clone(),
        command: short(&command.action.describe(steps)),
        by: short(&command.by),
        caller: caller.clone(),
        why: short(&command.why),
        at: change.now(),
        refused: refused.map(short),
        submitted,
    };
    change.notifications.push(command_event(&change.task, &record));
    let commands = &mut change.task.commands;
    commands.push(record);
    let surplus = commands.len().saturating_sub(limits::COMMAND_RECORDS_MAX);
    commands.drain(..surplus);
}

/// Returns the record of a refused command.
pub(crate) fn refused_record(
    ReceivedCommand { command, caller }: &ReceivedCommand,
    reason: &str,
    at: Timestamp,
) -> CommandRecord {
    let short = |text: &str| short_line(text, limits::COMMAND_TEXT_CHARS_MAX);
    CommandRecord {
        id: command.command_id.clone(),
        command: short(&command.action.describe(&[])),
        by: short(&command.by),
        caller: caller.clone(),
        why: short(&command.why),
        at,
        refused: Some(short(reason)),
        submitted: None,
    }
}

/// Returns the event that publishes a recorded command.
pub(crate) fn command_event(task: &Task, record: &CommandRecord) -> Effect {
    let CommandRecord { id, command, by, caller, why, at, refused, submitted: _ } = record.clone();
    let data = EventData::OperatorCommand {
        task_id: task.task_id.clone(),
        command_id: id,
        command,
        by,
        caller: Some(caller),
        why,
        refused,
    };
    let subject = format!("{}/{}", task.task_id, record.id);
    Effect::Publish(BusEvent::new(&subject, at, data))
}

fn execute(executor: &mut CommandExecutor<'_, '_>, command: &Command) -> Result<(), RefusalReason> {
    check_is_new(executor, command)?;
    executor.change.recompute_due = true;
    match &command.action {
        CommandAction::Resubmit { step, input, did_not_run } => {
            let calls_again =
                step_commands::resubmit(executor, step.as_ref(), *did_not_run, input.is_some())?;
            if let Some(patch) = input {
                edit_input::edit(executor, command, patch, &executor.steps.clone())?;
            } else if !calls_again.is_empty() {
                // Their calls are effects of their own. An edit that changes nothing has another key.
                edit_input::edit(executor, command, &json!({}), &calls_again)?;
            }
        }
        CommandAction::Skip { step, did_not_run } => {
            step_commands::skip(executor, step.as_ref(), *did_not_run)?
        }
        CommandAction::Complete { step, output } => {
            step_commands::complete(executor, &command.command_id, step.as_ref(), output)?
        }
        CommandAction::Approve { step, answer } => {
            let answer = CallbackOutcome::Completed { output: answer.clone() };
            step_commands::answer(executor, &command.command_id, step.as_ref(), &answer)?;
        }
        CommandAction::Reject { step } => {
            let reason = format!("rejected by {}: {}", command.by, command.why);
            let answer = CallbackOutcome::Failed { reason };
            step_commands::answer(executor, &command.command_id, step.as_ref(), &answer)?;
        }
        CommandAction::Undo => undo(executor, command)?,
        CommandAction::Cancel => cancel(executor, command)?,
        CommandAction::Resolve => resolve(executor)?,
        CommandAction::Pause => pause(executor)?,
        CommandAction::Resume => resume(executor)?,
        CommandAction::Rerun { .. } => return rerun(executor, &command.action),
    }
    advance(executor.change);
    Ok(())
}

/// Refuses a command that may have been executed before, and whose record may have been dropped since: the task
/// has the maximum number of records, and all of them are newer than this command.
fn check_is_new(
    executor: &CommandExecutor<'_, '_>,
    command: &Command,
) -> Result<(), RefusalReason> {
    let recorded_at = earlier(
        executor.change.task.submitted_at,
        executor.change.inputs.context.timing.clock_skew,
    );
    if command.issued_at < recorded_at {
        return Err("the command was issued for an earlier task with the same id".to_owned());
    }
    let commands = &executor.change.task.commands;
    let is_full = commands.len() >= limits::COMMAND_RECORDS_MAX;
    let oldest = commands.iter().map(|record| record.at).min().filter(|_| is_full);
    match oldest {
        Some(oldest) if command.issued_at < oldest => Err(format!(
            "the command was issued before the {} recorded commands of the task, and may have \
             been executed already: if it was not, send it again",
            limits::COMMAND_RECORDS_MAX
        )),
        Some(_) | None => Ok(()),
    }
}

fn undo(executor: &mut CommandExecutor<'_, '_>, command: &Command) -> Result<(), RefusalReason> {
    let task = &executor.change.task;
    match task.process_state {
        ProcessState::Undoing => return Err("the task is being undone".to_owned()),
        ProcessState::Undone => return Err("the task is Undone".to_owned()),
        ProcessState::Error if task.undo_reason.is_some() => {
            return Err("the undo of the task failed: resubmit to continue it".to_owned());
        }
        // The parent depends on the completed child.
        ProcessState::Processed | ProcessState::Error
            if let Some(parent) = &task.parent
                && (task.process_state == ProcessState::Processed
                    || task.stop_cause == StopCause::AfterProcessed) =>
        {
            return Err(format!(
                "the task ran for step {} of task {}, which depends on it: undo that task instead",
                parent.step, parent.task_id
            ));
        }
        ProcessState::Pending
        | ProcessState::Processing
        | ProcessState::Processed
        | ProcessState::Error => {}
    }
    if let PointOfNoReturn::Passed(step) = graph::point_of_no_return(executor.change.plan(), task) {
        return Err(format!("the task is past its point of no return, step {step}"));
    }
    // The operator has seen the error, which names these effects.
    executor.change.settle_effects_beside_completions();
    executor.change.reopen();
    undo::begin(executor.change, &format!("requested by {}: {}", command.by, command.why));
    Ok(())
}

fn cancel(executor: &mut CommandExecutor<'_, '_>, command: &Command) -> Result<(), RefusalReason> {
    executor.check_has_not_ended()?;
    executor.change.halt_task(&format!("cancelled by {}: {}", command.by, command.why));
    Ok(())
}

/// What has started goes on in Error, and its end is known soon. If a step of a settled task changes nevertheless, it is another Error.
fn resolve(executor: &mut CommandExecutor<'_, '_>) -> Result<(), RefusalReason> {
    let (now, pickup_within) =
        (executor.change.now(), executor.change.inputs.context.timing.pickup_within);
    let task = &mut executor.change.task;
    match task.process_state {
        ProcessState::Error if task.resolved_at.is_some() => {
            return Err("the Error is resolved".to_owned());
        }
        ProcessState::Error if task.deadline_in_error(now, pickup_within).is_some() => {
            return Err("a step that has started goes on: wait for its end".to_owned());
        }
        ProcessState::Error => {}
        state @ (ProcessState::Pending
        | ProcessState::Processing
        | ProcessState::Undoing
        | ProcessState::Processed
        | ProcessState::Undone) => {
            return Err(format!("the task is {state}, and has no Error to resolve"));
        }
    }
    task.resolved_at = Some(now);
    Ok(())
}

fn pause(executor: &mut CommandExecutor<'_, '_>) -> Result<(), RefusalReason> {
    executor.check_has_not_ended()?;
    if executor.change.task.paused_at.is_some() {
        return Err("the task is paused".to_owned());
    }
    executor.change.task.paused_at = Some(executor.change.now());
    Ok(())
}

/// The pause does not count: the task and its parts have as much time left as before the pause.
fn resume(executor: &mut CommandExecutor<'_, '_>) -> Result<(), RefusalReason> {
    let Some(paused_at) = executor.change.task.paused_at.take() else {
        return Err("the task is not paused".to_owned());
    };
    let paused = executor.change.now().duration_since(paused_at).try_into().unwrap_or_default();
    let task = &mut executor.change.task;
    task.complete_by = later(task.complete_by, paused);
    for progress in task.progresses_mut() {
        progress.give_up_at = progress.give_up_at.map(|limit| later(limit, paused));
    }
    executor.change.schedule_wakes_for_waits();
    Ok(())
}

/// Submits the new task. This one stays as it is, but for the record of the command, and an Error, which is settled.
fn rerun(
    executor: &mut CommandExecutor<'_, '_>,
    action: &CommandAction,
) -> Result<(), RefusalReason> {
    check_rerun(&executor.change.task, action, executor.change.now())?;
    match submission(executor.change.sources(), action) {
        Ok(submission) => {
            let (now, task) = (executor.change.now(), &mut executor.change.task);
            if task.is_unresolved() {
                task.resolved_at = Some(now);
            }
            executor.change.notifications.push(Effect::Submit(submission));
        }
        // The documents are loaded next, and the decision is repeated.
        Err(ValueError::NotLoaded) => {}
        Err(ValueError::Invalid(reason)) => return Err(reason),
    }
    Ok(())
}

#[cfg(test)]
mod tests;
