//! The submission of a new task that repeats one that has ended, at an operator's command.
//!
//! Without `from`, the new task runs all steps. With it, the new task keeps the outputs of the steps that are neither `from` nor after
//! it, and does not run them. A kept step has no idempotency key in the new task, so the new task never undoes its effect, which
//! belongs to the old one.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::Value;

use crate::{
    callback_url::CallbackUrls,
    definition::plan::{CompiledStep, Plan},
    engine::{
        command_executor::RefusalReason,
        documents::{LoadedDocuments, NeededDocuments},
        request::over_limit,
        values::{DocumentCache, ValueError, ValueSources},
    },
    model::{
        command::{CommandAction, default_rerun_id},
        json_text::{bytes_in_message, to_json_text},
        messages::Submission,
        names::{StepName, TaskId},
        rerun::RerunSource,
        step::StepState,
        task::Task,
    },
    submission::payloads::submitted_payloads,
};

/// The submission that the command would send for this task, or why it would be refused. For a preview.
///
/// # Errors
/// These documents are needed too. Call it again with them.
pub fn rerun_submission(
    plan: &Plan,
    task: &Task,
    documents: &LoadedDocuments,
    action: &CommandAction,
    now: Timestamp,
) -> Result<Result<Submission, RefusalReason>, NeededDocuments> {
    let cache = DocumentCache::new(documents);
    let callback_urls: Option<&CallbackUrls> = None;
    let sources = ValueSources { plan, task, new_documents: &[], cache: &cache, callback_urls };
    let decided = check_rerun(task, action, now).map_err(ValueError::Invalid);
    let decided = decided.and_then(|()| submission(sources, action));
    match decided {
        Ok(submission) => Ok(Ok(submission)),
        Err(ValueError::Invalid(reason)) => Ok(Err(reason)),
        Err(ValueError::NotLoaded) => Err(NeededDocuments(cache.needed())),
    }
}

/// Refuses the rerun of a task that goes on, of a child task, and one that was submitted before.
pub(crate) fn check_rerun(
    task: &Task,
    action: &CommandAction,
    now: Timestamp,
) -> Result<(), RefusalReason> {
    if let Some(parent) = &task.parent {
        let (step, parent) = (&parent.step, &parent.task_id);
        return Err(format!("the task ran for step {step} of task {parent}: run that task again"));
    }
    let state = task.process_state;
    if !state.has_stopped() {
        return Err(format!("the task is {state}: only a task that has ended can be run again"));
    }
    let awaited = task.awaited_attempts().map(|(.., complete_by)| complete_by);
    // The end of what goes on may begin the undo of the task, also after its deadline.
    let awaited = awaited.filter(|complete_by| task.goes_on() || *complete_by > now);
    if let Some(until) = awaited.chain(task.pauses().filter(|_| task.goes_on())).max() {
        return Err(format!(
            "the task is in Error, and what has started goes on, until {until} or longer: wait for its outcome"
        ));
    }
    let id = rerun_id(task, action)?;
    match task.reruns().any(|rerun| *rerun == id) {
        true => Err(format!("the task was run again as {id} already: name another id")),
        false => Ok(()),
    }
}

/// The id of the new task.
pub(crate) fn rerun_id(task: &Task, action: &CommandAction) -> Result<TaskId, RefusalReason> {
    if let CommandAction::Rerun { id: Some(id), .. } = action {
        return Ok(id.clone());
    }
    default_rerun_id(&task.task_id)
        .map_err(|_| "the id of the task is too long for the new one: name an id".to_owned())
}

/// The submission of the new task: with the newest input, and what else the client chose.
pub(crate) fn submission(
    sources: ValueSources<'_>,
    action: &CommandAction,
) -> Result<Submission, ValueError> {
    let task = sources.task;
    let (from, version) = match action {
        CommandAction::Rerun { from, version, .. } => (from.as_ref(), *version),
        CommandAction::Resubmit { .. }
        | CommandAction::Skip { .. }
        | CommandAction::Complete { .. }
        | CommandAction::Approve { .. }
        | CommandAction::Reject { .. }
        | CommandAction::Undo
        | CommandAction::Cancel
        | CommandAction::Resolve
        | CommandAction::Pause
        | CommandAction::Resume => return Err("the command submits no task".into()),
    };
    // Look up all values before returning an error, so that all missing documents are loaded together.
    let input = sources.input(task.input_edit_id.as_ref());
    let kept = from.map(|from| kept_outputs(sources, from)).transpose()?;
    let rerun = RerunSource {
        task_id: task.task_id.clone(),
        incarnation: task.incarnation,
        version: task.version,
        kept: kept.unwrap_or_default(),
    };
    let submission = Submission {
        task_id: rerun_id(task, action)?,
        workflow: task.workflow.clone(),
        version,
        input: input?.into_owned(),
        tenant: task.tenant.clone(),
        reply_to: task.reply_to.clone(),
        parent: None,
        undo: false,
        attempt: None,
        has_begun: false,
        retention: None,
        rerun: Some(rerun),
    };
    let bytes = bytes_in_message(&to_json_text(&submission));
    if let Some(reason) = over_limit(format_args!("a submission with the kept outputs"), bytes) {
        return Err(reason.into());
    }
    submitted_payloads(&submission).map_err(|refusal| refusal.to_string())?;
    Ok(submission)
}

/// The outputs of the steps that are neither `from` nor after it. A step that has not started is not kept: the new task runs it.
fn kept_outputs(
    sources: ValueSources<'_>,
    from: &StepName,
) -> Result<BTreeMap<StepName, Value>, ValueError> {
    let ValueSources { plan, task, .. } = sources;
    if plan.find(from).is_none() {
        return Err(format!("the workflow has no step {from}").into());
    }
    let mut outputs = Vec::new();
    let others =
        plan.steps().filter(|(name, step)| *name != from && !step.ancestors.contains(from));
    for (name, step) in others {
        if is_kept(task, name, step)? {
            outputs.push((name.clone(), sources.output(name, None)));
        }
    }
    let output = |(name, output): (_, Option<Result<std::borrow::Cow<'_, Value>, _>>)| {
        Ok((name, output.transpose()?.map(std::borrow::Cow::into_owned).unwrap_or_default()))
    };
    outputs.into_iter().map(output).collect()
}

/// Whether a step has an output to keep. Refused if it has started, but its effect is not known or was undone.
fn is_kept(task: &Task, name: &StepName, step: &CompiledStep) -> Result<bool, RefusalReason> {
    if task.keeps(name) {
        return Ok(true);
    }
    let Some(record) = task.steps.get(name) else { return Ok(false) };
    if record.part_spans(name).any(|(_, part)| part.undo.is_some()) {
        return Err(format!(
            "step {name} was undone, so that its output cannot be kept: run the task again from it, or as a whole"
        ));
    }
    if record.is_passed_over() {
        return Err(format!(
            "the task went on without step {name}, which failed: run the task again from it, or as a whole"
        ));
    }
    match record.forward.state {
        StepState::Completed { .. } => Ok(true),
        // The undo of the task ends its waits.
        StepState::Skipped { attempt: None } => Ok(task.undo_reason.is_none() || !step.waits()),
        StepState::Running { .. }
        | StepState::AwaitingCallback { .. }
        | StepState::RunningItems
        | StepState::Waiting { .. }
        | StepState::Failed { .. }
        | StepState::Skipped { .. } => Err(format!(
            "step {name} is {}, so that it has no output to keep: run the task again from it, or as a whole",
            record.forward.state.name()
        )),
    }
}

#[cfg(test)]
mod tests;
