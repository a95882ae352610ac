//! Forward: which steps begin, and how.
//!
//! A step whose `when` is false is skipped. One with `for_each` runs item by item. One with `wait` begins to wait. For
//! every other step a request is sent. A step that passes at once lets others begin, so [`advance`] repeats until none does.

use serde_json::Value;

use crate::{
    definition::{
        plan::Step,
        step::{ForEach, Work, wait_until},
    },
    engine::{
        change::{Change, pause_until},
        notify::result_key,
        order,
        request::too_large,
        values::{NoValue, kind},
    },
    expression::template::Template,
    limits,
    model::{
        attempt::Action,
        document::Document,
        names::{Part, StepName},
        step::{Items, StepRecord, StepState},
        task::ProcessState,
    },
};

/// Starts what can start, and ends the task once every step has passed. Nothing starts past the task's complete-by.
pub(crate) fn advance(change: &mut Change<'_>) {
    if change.now() < change.task.complete_by {
        while begin_ready(change) | end_waits(change) | advance_items(change) {}
        for part in change.waited(Action::Do) {
            change.start(part, Action::Do);
        }
    } else {
        while advance_items(change) {}
    }
    if !change.task.steps.is_empty() {
        change.task.process_state = ProcessState::Processing;
    }
    if order::is_complete(change.plan(), &change.task) {
        finish(change);
    }
}

/// Begins the steps that are ready. Returns whether one passed at once.
fn begin_ready(change: &mut Change<'_>) -> bool {
    let plan = change.plan();
    let ready: Vec<_> = order::ready_steps(plan, &change.task).cloned().collect();
    let mut passed = false;
    for name in ready {
        match begin(change, &name, plan.step(&name)) {
            Ok(has_passed) => passed |= has_passed,
            Err(NoValue::Wanted) => {}
            Err(NoValue::Because(reason)) => {
                // It has not begun: an operator who resubmits it has it begin from here.
                let not_begun = StepRecord::new(StepState::Failed { attempt: 0 });
                change.task.steps.insert(name.clone(), not_begun);
                change.impossible.push((name.into(), Action::Do, reason));
            }
        }
    }
    passed
}

/// Begins a step. Returns whether it passed at once.
fn begin(change: &mut Change<'_>, name: &StepName, step: &Step) -> Result<bool, NoValue> {
    if let Some(when) = &step.definition.when
        && !holds(change, when)?
    {
        let skipped = StepRecord::new(StepState::Skipped { attempt: 0 });
        change.task.steps.insert(name.clone(), skipped);
        return Ok(true);
    }
    if let Some(each) = &step.definition.for_each {
        return begin_items(change, name, each);
    }
    if let Work::Wait(wait) = step.work() {
        return begin_wait(change, name, wait);
    }
    change.start(name.clone().into(), Action::Do);
    Ok(false)
}

fn holds(change: &Change<'_>, when: &Template) -> Result<bool, NoValue> {
    match change.sources().render(when)? {
        Value::Bool(holds) => Ok(holds),
        other @ (Value::Null
        | Value::Number(_)
        | Value::String(_)
        | Value::Array(_)
        | Value::Object(_)) => {
            Err(format!("`when` gives {}, not true or false", kind(&other)).into())
        }
    }
}

fn begin_items(change: &mut Change<'_>, name: &StepName, each: &ForEach) -> Result<bool, NoValue> {
    let input = change.task.input.clone();
    let items = change.sources().items(name, each, input.as_ref())?;
    let max = limits::ITEMS_MAX;
    let count = u32::try_from(items.len()).unwrap_or(u32::MAX);
    if count > max {
        return Err(format!("{count} items; the limit is {max}").into());
    }
    let mut record = StepRecord::new(StepState::Each);
    record.run.input = input;
    record.items = Some(Items { count, begun: Vec::new() });
    change.task.steps.insert(name.clone(), record);
    // The items begin in the next round; or there are none, and the step passes then.
    Ok(true)
}

fn begin_wait(change: &mut Change<'_>, name: &StepName, wait: &Template) -> Result<bool, NoValue> {
    let now = change.now();
    let until = wait_until(&change.sources().render(wait)?, now)?;
    let state = if until <= now {
        StepState::Completed { attempt: 0 }
    } else {
        change.wakes.after(pause_until(until, now));
        StepState::waiting(0, until)
    };
    let has_passed = state.has_passed();
    change.task.steps.insert(name.clone(), StepRecord::new(state));
    Ok(has_passed)
}

/// Completes the steps with `wait` whose time is over. Returns whether there were any.
fn end_waits(change: &mut Change<'_>) -> bool {
    let plan = change.plan();
    let over = change.waited(Action::Do).into_iter().filter(|part| plan.step(&part.step).waits());
    let mut any = false;
    for part in over.collect::<Vec<_>>() {
        if let Some(progress) = change.task.progress_mut(&part, Action::Do) {
            progress.state = StepState::Completed { attempt: 0 };
            any = true;
        }
    }
    any
}

/// Begins as many items as may run at once, and completes the steps whose items have all passed.
/// Returns whether there were any such steps.
fn advance_items(change: &mut Change<'_>) -> bool {
    let may_begin = change.now() < change.task.complete_by;
    let mut any = false;
    for (name, step) in change.plan().steps() {
        let Some(each) = &step.definition.for_each else { continue };
        if may_begin {
            for place in next_items(change, name, each.at_once) {
                begin_item(change, name, place);
            }
        }
        let Some(record) = change.task.steps.get_mut(name) else { continue };
        let have_passed = record.items.as_ref().is_some_and(Items::have_passed);
        if record.run.state == StepState::Each && have_passed {
            record.run.state = StepState::Completed { attempt: 0 };
            any = true;
        }
    }
    any
}

/// The places of the items that can begin now.
fn next_items(change: &Change<'_>, name: &StepName, at_once: u32) -> std::ops::Range<u32> {
    let record = change.task.steps.get(name);
    let Some(items) =
        record.filter(|r| r.run.state == StepState::Each).and_then(|r| r.items.as_ref())
    else {
        return 0..0;
    };
    let begun = u32::try_from(items.begun.len()).unwrap_or(u32::MAX);
    let is_open =
        |record: &&StepRecord| !record.run.state.has_passed() && !record.run.state.is_failed();
    let open = u32::try_from(items.begun.iter().filter(is_open).count()).unwrap_or(u32::MAX);
    begun..items.count.min(begun.saturating_add(at_once.saturating_sub(open)))
}

fn begin_item(change: &mut Change<'_>, name: &StepName, place: u32) {
    let now = change.now();
    let record = change.task.steps.get_mut(name).and_then(|record| record.items.as_mut());
    let Some(items) = record else { return };
    items.begun.push(StepRecord::new(StepState::waiting(0, now)));
    change.start(Part { step: name.clone(), item: Some(place) }, Action::Do);
}

/// Ends the task: every step has passed, and the task returns what its workflow says.
fn finish(change: &mut Change<'_>) {
    let Some(output) = &change.plan().output else {
        change.task.process_state = ProcessState::Processed;
        return;
    };
    let rendered = match change.sources().render(output) {
        Ok(value) => too_large("output of the task", &value).map_or(Ok(value), Err),
        Err(NoValue::Wanted) => return,
        Err(NoValue::Because(reason)) => Err(reason),
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
