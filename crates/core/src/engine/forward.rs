//! Forward: which steps begin, and how. A step whose `when` is false is skipped, one with `for_each`
//! goes on item by item, one that waits begins to wait; everything else is asked for. What passes at
//! once lets others begin, so it goes round until nothing does.

use serde_json::Value;

use crate::{
    definition::step::{ForEach, StepDefinition, Work, wait_until},
    engine::{
        change::Change,
        notify::result_key,
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

/// Starts what can start, and finds the end. Nothing starts past the task's complete-by.
pub(crate) fn advance(change: &mut Change<'_>) {
    if change.context.now < change.task.complete_by {
        while begin_ready(change) | end_waits(change) | go_through_items(change) {}
        for part in change.waited(Action::Do) {
            change.start(part, Action::Do);
        }
    } else {
        while go_through_items(change) {}
    }
    if !change.task.steps.is_empty() {
        change.task.process_state = ProcessState::Processing;
    }
    if change.workflow.is_complete(&change.task) {
        finish(change);
    }
}

/// Begins the steps that are ready; whether one passed at once.
fn begin_ready(change: &mut Change<'_>) -> bool {
    let workflow = change.workflow;
    let ready: Vec<_> = workflow.ready(&change.task).cloned().collect();
    let mut passed = false;
    for name in ready {
        let Some(step) = workflow.steps.get(&name) else { continue };
        match begin(change, &name, step) {
            Ok(has_passed) => passed |= has_passed,
            Err(NoValue::Wanted) => {}
            Err(NoValue::Because(reason)) => {
                // It has not begun: an operator who tries again has it begin from here.
                let not_begun = StepRecord::new(StepState::Failed { attempt: 0 });
                change.task.steps.insert(name.clone(), not_begun);
                change.impossible.push((name.into(), Action::Do, reason));
            }
        }
    }
    passed
}

/// Begins a step; whether it passed at once.
fn begin(change: &mut Change<'_>, name: &StepName, step: &StepDefinition) -> Result<bool, NoValue> {
    if let Some(when) = &step.when
        && !holds(change, when)?
    {
        let skipped = StepRecord::new(StepState::Skipped { attempt: 0 });
        change.task.steps.insert(name.clone(), skipped);
        return Ok(true);
    }
    if let Some(each) = &step.for_each {
        return begin_items(change, name, each);
    }
    if let Some(Work::Wait(wait)) = step.work() {
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
    // They begin, or there are none, on the way round.
    Ok(true)
}

fn begin_wait(change: &mut Change<'_>, name: &StepName, wait: &Template) -> Result<bool, NoValue> {
    let now = change.context.now;
    let until = wait_until(&change.sources().render(wait)?, now)?;
    let state = if until <= now {
        StepState::Completed { attempt: 0 }
    } else {
        change.wake_at(until);
        StepState::waiting(0, until)
    };
    let has_passed = state.has_passed();
    change.task.steps.insert(name.clone(), StepRecord::new(state));
    Ok(has_passed)
}

/// Ends the waits that are over; whether there were any.
fn end_waits(change: &mut Change<'_>) -> bool {
    let workflow = change.workflow;
    let over = change.waited(Action::Do).into_iter().filter(|part| {
        let step = workflow.steps.get(&part.step);
        step.is_some_and(|step| matches!(step.work(), Some(Work::Wait(_))))
    });
    let mut any = false;
    for part in over.collect::<Vec<_>>() {
        if let Some(progress) = change.task.progress_mut(&part, Action::Do) {
            progress.state = StepState::Completed { attempt: 0 };
            any = true;
        }
    }
    any
}

/// Begins as many items as may run at once, and completes the steps whose items have all passed;
/// whether there were any such steps.
fn go_through_items(change: &mut Change<'_>) -> bool {
    let workflow = change.workflow;
    let may_begin = change.context.now < change.task.complete_by;
    let mut any = false;
    for (name, step) in &workflow.steps {
        let Some(each) = &step.for_each else { continue };
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
    let record = change.task.steps.get_mut(name).and_then(|record| record.items.as_mut());
    let Some(items) = record else { return };
    items.begun.push(StepRecord::new(StepState::waiting(0, change.context.now)));
    change.start(Part { step: name.clone(), item: Some(place) }, Action::Do);
}

/// Every step is done: the task returns what its workflow says.
fn finish(change: &mut Change<'_>) {
    let Some(output) = &change.workflow.output else {
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
            change.documents.push(Document::new(key, change.context.now, body));
            change.task.process_state = ProcessState::Processed;
        }
        Err(reason) => change.fail_task(&format!("output: {reason}")),
    }
}
