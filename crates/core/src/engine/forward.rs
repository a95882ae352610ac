//! Forward execution: decides which steps start, and starts them.
//!
//! A step whose `when` is false is skipped. A step with `for_each` starts its items. A step that waits until a time starts
//! to wait. Every other step sends a request; a step that waits for an event sends its subscription. A step that completes or is skipped immediately may unblock others, so
//! [`advance`] repeats until no step does.

use serde_json::Value;

use crate::{
    definition::{
        plan::CompiledStep,
        step::{ForEach, StepWork, wait_until},
    },
    engine::{
        graph,
        item_list::{slice_documents, slices_of},
        notify::result_key,
        passed_payloads::check_payloads,
        request::size_error,
        rounds::add_round,
        task_change::{TaskChange, pause_until},
        values::{ValueError, json_type_name},
    },
    expression::template::Template,
    limits,
    model::{
        attempt::Action,
        document::{Document, ItemListVersion},
        items::ItemRecords,
        names::{Part, StepName},
        step::{StepRecord, StepState},
        task::ProcessState,
    },
};

/// Starts the steps that can start, and ends the task once every step has completed or was skipped. Nothing starts
/// after the task's complete-by.
pub(crate) fn advance(change: &mut TaskChange<'_>) {
    if change.now() < change.task.complete_by {
        while start_ready_steps(change) | end_waits(change) | advance_items(change) {}
        for part in change.parts_ready_to_start(Action::Do) {
            change.start(part, Action::Do);
        }
    } else {
        while advance_items(change) {}
    }
    // A list without room for another round has stopped the task.
    if change.task.error.is_some() {
        return;
    }
    if !change.task.steps.is_empty() {
        change.task.process_state = ProcessState::Processing;
    }
    if graph::is_complete(change.plan(), &change.task) {
        finish(change);
    }
}

/// Starts the steps that are ready. Returns whether one of them completed or was skipped immediately.
fn start_ready_steps(change: &mut TaskChange<'_>) -> bool {
    let plan = change.plan();
    let ready: Vec<_> = graph::ready_steps(plan, &change.task).cloned().collect();
    let mut passed = false;
    for name in ready {
        match start_step(change, &name, plan.step(&name)) {
            Ok(has_passed) => passed |= has_passed,
            Err(ValueError::NotLoaded) => {}
            Err(ValueError::Invalid(reason)) => {
                // The step has not started. If an operator resubmits it, it starts from here.
                let not_started = StepRecord::new(StepState::Failed { attempt: None });
                change.task.steps.insert(name.clone(), not_started);
                change.unrenderable.push((name.into(), Action::Do, reason));
            }
        }
    }
    passed
}

/// Starts a step. Returns whether it completed or was skipped immediately. A kept step of a rerun is skipped, and has an output.
fn start_step(
    change: &mut TaskChange<'_>,
    name: &StepName,
    step: &CompiledStep,
) -> Result<bool, ValueError> {
    let is_false = |when| evaluate_when(change, when).map(|value| !value);
    if change.task.keeps(name)
        || step.definition.when.as_ref().map(is_false).transpose()?.unwrap_or_default()
    {
        let skipped = StepRecord::new(StepState::Skipped { attempt: None });
        change.task.steps.insert(name.clone(), skipped);
        return Ok(true);
    }
    if let Some(each) = &step.definition.for_each {
        return start_items(change, name, each);
    }
    if step.definition.repeat.is_some() {
        start_list(change, name, ItemRecords::new(1));
        return Ok(true);
    }
    if let Some(reason) = &step.definition.fail {
        return Err(reason.as_literal().and_then(Value::as_str).unwrap_or_default().into());
    }
    match step.work() {
        StepWork::Wait(wait) => start_wait(change, name, wait),
        StepWork::Call { .. } | StepWork::Child(_) | StepWork::Event(_) => {
            change.start(name.clone().into(), Action::Do);
            Ok(false)
        }
    }
}

fn evaluate_when(change: &TaskChange<'_>, when: &Template) -> Result<bool, ValueError> {
    match change.sources().render(when)? {
        Value::Bool(value) => Ok(value),
        other @ (Value::Null
        | Value::Number(_)
        | Value::String(_)
        | Value::Array(_)
        | Value::Object(_)) => {
            Err(format!("`when` evaluates to {}, not to a boolean", json_type_name(&other)).into())
        }
    }
}

fn start_items(
    change: &mut TaskChange<'_>,
    name: &StepName,
    each: &ForEach,
) -> Result<bool, ValueError> {
    let input = change.task.input_edit_id.clone();
    let items = change.sources().items(name, each, input.as_ref())?;
    let max = limits::ITEMS_MAX;
    let count = u32::try_from(items.len()).unwrap_or(u32::MAX);
    if count > max {
        return Err(format!("{count} items; the limit is {max}").into());
    }
    let slices = slices_of(&items);
    if let Some(slices) = slices {
        let version = ItemListVersion::Started(slices.fingerprint);
        change.documents.extend(slice_documents(name, &version, slices, &items, change.now())?);
    }
    start_list(change, name, ItemRecords::new(count).with_slices(slices));
    Ok(true)
}

/// Records the items of a step. They start in the next pass. If there are none, the step completes in that pass.
fn start_list(change: &mut TaskChange<'_>, name: &StepName, items: ItemRecords<StepRecord>) {
    let mut record = StepRecord::new(StepState::RunningItems);
    record.forward.input_edit_id = change.task.input_edit_id.clone();
    record.items = Some(items);
    change.task.steps.insert(name.clone(), record);
}

fn start_wait(
    change: &mut TaskChange<'_>,
    name: &StepName,
    wait: &Template,
) -> Result<bool, ValueError> {
    let now = change.now();
    let until = wait_until(&change.sources().render(wait)?, now);
    let until = until.map_err(|error| error.to_string())?;
    let state = if until <= now {
        StepState::Completed { attempt: None }
    } else {
        change.wakes.after(pause_until(until, now));
        StepState::waiting(None, until)
    };
    let has_passed = state.is_completed_or_skipped();
    change.task.steps.insert(name.clone(), StepRecord::new(state));
    Ok(has_passed)
}

/// Completes the steps with `wait` whose wait has ended. Returns whether there were any.
fn end_waits(change: &mut TaskChange<'_>) -> bool {
    let plan = change.plan();
    let over = change
        .parts_ready_to_start(Action::Do)
        .into_iter()
        .filter(|part| plan.step(&part.step).waits());
    let mut any = false;
    for part in over.collect::<Vec<_>>() {
        if let Some(progress) = change.task.progress_mut(&part, Action::Do) {
            progress.state = StepState::Completed { attempt: None };
            any = true;
        }
    }
    any
}

/// Starts as many items as may run at once, and completes the steps whose items have all completed. Returns whether
/// there were any such steps.
fn advance_items(change: &mut TaskChange<'_>) -> bool {
    let may_start = change.now() < change.task.complete_by;
    let mut any = false;
    for (name, step) in change.plan().steps() {
        let Some(at_once) = step.definition.items_at_once() else { continue };
        if let Some(repeat) = &step.definition.repeat {
            add_round(change, name, repeat);
        }
        if may_start {
            for index in next_items(change, name, at_once) {
                start_item(change, name, index);
            }
        }
        let Some(record) = change.task.steps.get_mut(name) else { continue };
        let have_passed = record.items.as_ref().is_some_and(ItemRecords::are_completed_or_skipped);
        if record.forward.state == StepState::RunningItems && have_passed {
            record.forward.state = StepState::Completed { attempt: None };
            any = true;
        }
    }
    any
}

/// The indices of the items that can start now.
fn next_items(change: &TaskChange<'_>, name: &StepName, at_once: u32) -> std::ops::Range<u32> {
    let record = change.task.steps.get(name);
    let Some(items) = record
        .filter(|r| r.forward.state == StepState::RunningItems)
        .and_then(|r| r.items.as_ref())
    else {
        return 0..0;
    };
    let started = items.started();
    let is_open = |record: &StepRecord| {
        !record.forward.state.is_completed_or_skipped() && !record.forward.state.is_failed()
    };
    let open = items.spans().filter(|(_, record)| is_open(record));
    let open: u32 = open.map(|(items, _)| items.end.saturating_sub(items.start)).sum();
    started..items.count().min(started.saturating_add(at_once.saturating_sub(open)))
}

fn start_item(change: &mut TaskChange<'_>, name: &StepName, index: u32) {
    let now = change.now();
    let record = change.task.steps.get_mut(name).and_then(|record| record.items.as_mut());
    let Some(items) = record else { return };
    items.push(StepRecord::new(StepState::waiting(None, now)));
    change.start(Part { step: name.clone(), item: Some(index) }, Action::Do);
}

/// Ends the task after all steps have completed or were skipped, and stores the output that its workflow defines.
fn finish(change: &mut TaskChange<'_>) {
    let Some(output) = &change.plan().output else {
        change.task.process_state = ProcessState::Processed;
        return;
    };
    let rendered = match change.sources().render(output) {
        Ok(value) => match size_error("output of the task", &value) {
            Some(reason) => Err(reason),
            None => check_payloads(&value, &change.task).map(|()| value),
        },
        Err(ValueError::NotLoaded) => return,
        Err(ValueError::Invalid(reason)) => Err(reason),
    };
    match rendered {
        Ok(body) => {
            let key = result_key(&change.task);
            change.documents.push(Document::new(key, change.now(), body));
            change.task.process_state = ProcessState::Processed;
        }
        Err(reason) => change.fail_task(&format!("output: {reason}")),
    }
}
