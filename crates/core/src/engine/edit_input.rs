//! Edits of the task's input. An operator resubmits a step with an edited input.

use serde_json::{Value, json};

use crate::{
    definition::step::ForEach,
    engine::{
        command_executor::{CommandExecutor, RefusalReason},
        item_list::slice_documents,
        request::size_error,
        values::ValueError,
    },
    limits,
    model::{
        attempt::Action,
        command::{Command, CommandId},
        document::{Document, DocumentKey, ItemListVersion},
        names::{Part, StepName},
        step::{Progress, StepState},
    },
};

/// Changes the input of these resubmitted parts, and of all parts that start from now on.
pub(super) fn edit(
    executor: &mut CommandExecutor<'_, '_>,
    command: &Command,
    patch: &Value,
    parts: &[Part],
) -> Result<(), RefusalReason> {
    if let Some(reason) = size_error("edit of the input", patch) {
        return Err(reason);
    }
    // A missing document is loaded next, and the decision is repeated.
    let input = match executor.change.sources().input(executor.change.task.input_edit_id.as_ref()) {
        Ok(input) => input,
        Err(ValueError::NotLoaded) => return Ok(()),
        Err(ValueError::Invalid(reason)) => return Err(reason),
    };
    let mut input = input.into_owned();
    // An empty patch, which only asks for another key, would make an object of any other input.
    if *patch != json!({}) {
        json_patch::merge(&mut input, patch);
    }
    if let Some(reason) = size_error("edited input", &input) {
        return Err(reason);
    }
    if let Some(schema) = &executor.change.plan().input {
        schema.validate("input", &input)?;
    }
    let (id, at) = (command.command_id.clone(), executor.change.now());
    let (key, body) = (DocumentKey::Input(id.clone()), json!({ "input": input }));
    executor.change.documents.push(Document::new(key, at, body));
    for (name, step) in executor.change.plan().steps() {
        if let Some(each) = &step.definition.for_each {
            check_items_unchanged(executor, name, each, &id)?;
            store_slices(executor, name, each, &id)?;
        }
    }
    check_stored_documents(executor)?;
    let plan = executor.change.plan();
    let task = &mut executor.change.task;
    let direction = task.direction();
    task.input_edit_id = Some(id.clone());
    for part in parts {
        let Some(record) = task.part_record_mut(part) else { continue };
        if direction == Action::Undo {
            if let Some(undo) = &mut record.undo {
                undo.input_edit_id = Some(id.clone());
            }
            continue;
        }
        if record.earlier.len() >= limits::EARLIER_KEYS_MAX {
            return Err(format!(
                "the input of step {part} was edited too often: complete it, or undo the task"
            ));
        }
        let agents = plan.step(&part.step).agents();
        let is_chosen = agents.is_some_and(|agents| agents.choice().is_some());
        let agent = record.forward.agent.filter(|_| !is_chosen);
        record.change_key(agent, Some(id.clone()));
    }
    Ok(())
}

/// Refuses an edit that changes the items of a started step with `for_each`. It may change only items that it resubmits,
/// and that cannot have run. The other items are completed or in progress, or would go on with their old value.
fn check_items_unchanged(
    executor: &CommandExecutor<'_, '_>,
    name: &StepName,
    each: &ForEach,
    edit: &CommandId,
) -> Result<(), RefusalReason> {
    let (task, sources) = (&executor.change.task, executor.change.sources());
    let Some(record) = task.steps.get(name) else { return Ok(()) };
    let Some(items) = &record.items else { return Ok(()) };
    let list = |edit: Option<&CommandId>| match sources.items(name, each, edit) {
        Ok(list) => Ok(Some(list)),
        // A missing document is loaded next, and the decision is repeated.
        Err(ValueError::NotLoaded) => Ok(None),
        Err(ValueError::Invalid(reason)) => Err(format!("step {name}: {reason}")),
    };
    let Some(new) = list(Some(edit))? else { return Ok(()) };
    if new.len() != items.count() as usize {
        return Err(format!(
            "step {name} started with {} items, but the edited input has {}: an edit can only \
             replace items that it resubmits and that have not run, at the same index",
            items.count(),
            new.len()
        ));
    }
    for ((index, item), record) in (0_u32..).zip(new.iter()).zip(items.iter()) {
        let Some(old) = list(record.forward.input_edit_id.as_ref())? else { return Ok(()) };
        let part = Part { step: name.clone(), item: Some(index) };
        let is_replaced =
            executor.steps.contains(&part) && can_be_replaced(executor, &record.forward);
        if old.get(index as usize) == Some(item) || is_replaced {
            continue;
        }
        return Err(format!(
            "step {name}: item {name}[{index}] is {}{}, but the edited input changes it: an edit can \
             only replace items that it resubmits and that have not run, at the same index",
            record.forward.state.name(),
            if record.forward.may_have_run { " and may have run" } else { "" },
        ));
    }
    Ok(())
}

/// Refuses the command if an earlier decision on it stored other documents, and its save lost a race: another command has
/// changed the input since. A stored document never changes, so this command cannot store its own.
fn check_stored_documents(executor: &CommandExecutor<'_, '_>) -> Result<(), RefusalReason> {
    let loaded = executor.change.inputs.documents;
    let differs =
        |new: &Document| loaded.loaded(&new.key).is_some_and(|stored| *stored != new.body);
    match executor.change.documents.iter().any(differs) {
        true => Err("another change came first; send the command again".to_owned()),
        false => Ok(()),
    }
}

/// Stores the edited list of a step whose items run, if its list is stored in slices.
fn store_slices(
    executor: &mut CommandExecutor<'_, '_>,
    name: &StepName,
    each: &ForEach,
    edit: &CommandId,
) -> Result<(), RefusalReason> {
    let record = executor.change.task.steps.get(name);
    let running = record.filter(|record| record.forward.state == StepState::RunningItems);
    let slices = running.and_then(|record| record.items.as_ref()?.slices());
    let Some(slices) = slices else { return Ok(()) };
    let list = match executor.change.sources().items(name, each, Some(edit)) {
        Ok(list) => list,
        // A missing document is loaded next, and the decision is repeated.
        Err(ValueError::NotLoaded) => return Ok(()),
        Err(ValueError::Invalid(reason)) => return Err(format!("step {name}: {reason}")),
    };
    let version = ItemListVersion::Edited(edit.clone());
    let documents = slice_documents(name, &version, slices, &list, executor.change.now());
    executor.change.documents.extend(documents.map_err(|reason| format!("step {name}: {reason}"))?);
    Ok(())
}

/// Whether an item has not completed and cannot have run.
fn can_be_replaced(executor: &CommandExecutor<'_, '_>, run: &Progress) -> bool {
    let may_act = run.may_have_run || run.in_progress(executor.change.now()).is_some();
    match run.state {
        StepState::Waiting { .. } | StepState::Failed { .. } => !may_act,
        StepState::Running { .. }
        | StepState::AwaitingCallback { .. }
        | StepState::RunningItems
        | StepState::Completed { .. }
        | StepState::Skipped { .. } => false,
    }
}
