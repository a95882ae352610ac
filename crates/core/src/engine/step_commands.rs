//! Commands on single steps: resubmit, skip and complete.

use jiff::Timestamp;
use serde_json::Value;

use crate::{
    definition::{plan::CompiledStep, step_agents::StepAgents},
    engine::{
        command_executor::{CommandExecutor, RefusalReason},
        graph::{self, PointOfNoReturn},
        outcome,
        request::{child_id, size_error},
        task_change::started_progress,
    },
    model::{
        attempt::{Action, AttemptId},
        command::CommandId,
        earlier_key::Ran,
        messages::CallbackOutcome,
        names::Part,
        step::{Progress, StepRecord, StepState},
        task::ProcessState,
        time::later,
    },
};

/// Returns the parts that are called again although no service recognises the repeated call: the operator states that they did not
/// run.
pub(super) fn resubmit(
    executor: &mut CommandExecutor<'_, '_>,
    only: Option<&Part>,
    did_not_run: bool,
    edited: bool,
) -> Result<Vec<Part>, RefusalReason> {
    executor.check_is_open()?;
    let direction = executor.change.task.direction();
    let plan = executor.change.plan();
    // A wait is shortened only if the operator names it.
    let only_waits = |part: &Part| only.is_none() && plan.step(&part.step).waits();
    let task = &executor.change.task;
    // Only a child task itself can report that it is undone, so a statement about the whole task is none about it.
    let is_excepted = |part: &Part| only.is_none() && plan.step(&part.step).runs_child();
    let settles = |part: &Part| {
        did_not_run
            && !edited
            && !is_excepted(part)
            && task.record(part).is_some_and(StepRecord::has_stray_effect)
    };
    let is_eligible = |part: &Part, progress: &Progress| match progress.state {
        StepState::Failed { .. } => true,
        StepState::Waiting { .. } => !only_waits(part),
        // It waits for its event again, with another subscription.
        StepState::Running { .. } if plan.step(&part.step).awaits_event() => only == Some(part),
        StepState::Running { .. }
        | StepState::AwaitingCallback { .. }
        | StepState::Completed { .. } => settles(part),
        StepState::RunningItems | StepState::Skipped { .. } => false,
    };
    let steps: Vec<_> = executor
        .change
        .task
        .started_actions()
        .filter(|(name, action, progress)| {
            *action == direction
                && is_eligible(name, progress)
                && only.is_none_or(|only| is_covered_by(only, name))
        })
        .map(|(name, ..)| name)
        .collect();
    if let (Some(step), true) = (only, steps.is_empty()) {
        let state =
            state_of_part(executor, step, direction)?.map_or("not started", StepState::name);
        return Err(format!(
            "step {step} is {state}: only a failed or waiting step can be resubmitted"
        ));
    }
    if steps.is_empty() && executor.change.task.process_state != ProcessState::Error {
        return Err("no step failed or is waiting".to_owned());
    }
    // The operator has seen the error, which names these effects.
    if direction == Action::Undo && only.is_none() {
        executor.change.settle_effects_beside_completions();
    }
    let mut calls_again = Vec::new();
    for step in &steps {
        if retry_part(executor, step, direction, did_not_run && !is_excepted(step), edited)? {
            calls_again.push(step.clone());
        }
    }
    executor.steps = steps;
    executor.reopen_task();
    Ok(calls_again)
}

pub(super) fn skip(
    executor: &mut CommandExecutor<'_, '_>,
    step: Option<&Part>,
    did_not_run: bool,
) -> Result<(), RefusalReason> {
    let (step, direction) = part_to_decide_by_hand(executor, step)?;
    let now = executor.change.now();
    let until = deferred_call_until(executor, &step, direction);
    if did_not_run {
        check_outcome_is_known(executor, &step, direction)?;
        check_run_is_over(executor, &step, direction)?;
    }
    let progress = started_progress(&mut executor.change.task, &step, direction, now);
    let progress = progress.ok_or_else(|| not_started_reason(&step))?;
    if did_not_run {
        check_call_is_over(&step, progress, until, now)?;
    }
    // A deferred request may have been delivered twice, and the other delivery may still make a call.
    let deferred = progress.state.deferred_by();
    progress.state = StepState::Skipped { attempt: progress.state.newest_attempt() };
    progress.may_have_run |= deferred.is_some();
    let known = ran_before(progress);
    progress.may_have_run &= !did_not_run;
    if let Some(record) = executor.change.task.part_record_mut(&step) {
        match direction {
            Action::Do => {
                if did_not_run {
                    record.deny_earlier_keys();
                }
                record.deny_key_in_use(known);
            }
            Action::Undo => record.complete_undo(),
        }
    }
    if let Some(complete_by) = deferred {
        executor.change.block_undo_on_call_started_by(complete_by, &step, direction);
    }
    executor.steps.push(step);
    executor.reopen_task();
    Ok(())
}

pub(super) fn complete(
    executor: &mut CommandExecutor<'_, '_>,
    id: &CommandId,
    step: Option<&Part>,
    output: &Value,
) -> Result<(), RefusalReason> {
    let (step, action) = part_to_decide_by_hand(executor, step)?;
    check_run_is_over(executor, &step, action)?;
    if let Some(reason) = size_error("output", output) {
        return Err(reason);
    }
    let definition = &executor.change.plan().step(&step.step).definition;
    if step.item.is_none() && definition.items_at_once().is_some() {
        return Err(format!("step {step} has items or rounds: complete them, such as {step}[0]"));
    }
    let (now, plan) = (executor.change.now(), executor.change.plan());
    let progress = started_progress(&mut executor.change.task, &step, action, now);
    let progress = progress.ok_or_else(|| not_started_reason(&step))?;
    if action == Action::Do {
        plan.step(&step.step).record_start(progress, now);
    }
    // The completion counts as a new attempt, so a late reply of an agent belongs to an earlier one.
    let number = progress.state.attempt_count() + 1;
    let deferred = progress.state.deferred_by();
    let known = if deferred.is_some() { Ran::Maybe } else { ran_before(progress) };
    if let Some(complete_by) = deferred {
        executor.change.block_undo_on_call_started_by(complete_by, &step, action);
    }
    executor.steps.push(step.clone());
    let attempt = AttemptId { step: step.clone(), action, number };
    outcome::complete(executor.change, attempt, output, Some(id));
    // The completion accounts for what was known of the calls.
    if let Some(record) = executor.change.task.part_record_mut(&step)
        && action == Action::Do
    {
        record.deny_key_in_use(known);
    }
    executor.reopen_task();
    Ok(())
}

/// Answers the callback of a step that awaits one.
pub(super) fn answer(
    executor: &mut CommandExecutor<'_, '_>,
    id: &CommandId,
    step: Option<&Part>,
    answer: &CallbackOutcome,
) -> Result<(), RefusalReason> {
    executor.check_is_open()?;
    let (step, number) = awaiting_part(executor, step)?;
    let definition = executor.change.plan().find(&step.step).and_then(|step| step.callback());
    if let (Some(callback), CallbackOutcome::Completed { output }) = (definition, answer) {
        callback.check_answer(output)?;
        if let Some(reason) = size_error("answer", output) {
            return Err(reason);
        }
    }
    executor.steps.push(step.clone());
    let attempt = AttemptId { step, action: Action::Do, number };
    outcome::record_callback(executor.change, attempt, answer, Some(id));
    Ok(())
}

/// Returns the part whose callback an operator answers, and its attempt: the named part, or the only one that awaits a
/// callback.
fn awaiting_part(
    executor: &CommandExecutor<'_, '_>,
    named: Option<&Part>,
) -> Result<(Part, u32), RefusalReason> {
    let task = &executor.change.task;
    if let Some(step) = named.filter(|step| !has_items(executor, step)) {
        let state = state_of_part(executor, step, Action::Do)?;
        let attempt = state.and_then(StepState::awaiting_callback);
        return attempt.map(|attempt| (step.clone(), attempt)).ok_or_else(|| {
            let state = state.map_or("not started", StepState::name);
            format!("step {step} is {state}: it awaits no callback")
        });
    }
    let awaiting = task.started_actions().filter_map(|(part, action, progress)| {
        let is_covered = named.is_none_or(|named| is_covered_by(named, &part));
        let attempt = progress.state.awaiting_callback()?;
        (action == Action::Do && is_covered).then_some((part, attempt))
    });
    let mut awaiting = awaiting.take(2);
    match (awaiting.next(), awaiting.next()) {
        (Some(only), None) => Ok(only),
        (None, _) => Err("no step awaits a callback".to_owned()),
        (Some((first, _)), Some((second, _))) => {
            Err(format!("several steps await a callback, such as {first} and {second}: name one"))
        }
    }
}

/// Prepares the next attempt at a part. Returns whether it repeats a call that the service does not recognise.
fn retry_part(
    executor: &mut CommandExecutor<'_, '_>,
    step: &Part,
    action: Action,
    did_not_run: bool,
    edited: bool,
) -> Result<bool, RefusalReason> {
    let definition = executor.change.plan().step(&step.step);
    let repeatable = definition.is_repeatable(action);
    let now = executor.change.now();
    let until = deferred_call_until(executor, step, action);
    if did_not_run {
        check_outcome_is_known(executor, step, action)?;
    }
    if let Some(progress) = executor.change.task.progress(step, action).filter(|_| did_not_run) {
        check_call_is_over(step, progress, until, now)?;
    }
    let Some(record) = executor.change.task.part_record_mut(step) else { return Ok(false) };
    if did_not_run && action == Action::Do {
        record.deny_earlier_keys();
    }
    let has_stray_effect = action == Action::Do && record.has_stray_effect();
    let Some(progress) = record.progress_mut(action) else { return Ok(false) };
    if matches!(progress.state, StepState::Completed { .. }) {
        // The statement was about the earlier keys.
        return Ok(false);
    }
    let within = definition.action(action).map(|action| action.complete_within);
    let is_forgotten = progress.key_valid_until.zip(within);
    let is_forgotten = is_forgotten.is_some_and(|(until, within)| until < later(now, within));
    // While an attempt is in progress, the statement is about the agents before. What may have run at the agent in use stays.
    let goes_on = progress.state.reply_due_by().is_some() && !definition.awaits_event();
    let falls_back = definition.agents().is_some_and(StepAgents::falls_back);
    let known = ran_before(progress);
    let may_have_run_at_agent_in_use = goes_on && (progress.second_delivery_may_act || !falls_back);
    progress.may_have_run &= !did_not_run || may_have_run_at_agent_in_use;
    if goes_on {
        return Ok(false);
    }
    // An edited request has another idempotency key, so the service does not recognise the first call by it.
    // Neither does the service of another agent than the one that ran it.
    let another_key = edited || !repeatable;
    let deferred = progress.state.deferred_by().filter(|_| !did_not_run);
    let may_have_run = progress.may_have_run || edited && deferred.is_some();
    if has_stray_effect || another_key && may_have_run {
        return Err(format!(
            "an attempt at step {step} may have taken effect: check the service, then complete \
             the step, or resubmit it with the statement that it did not run"
        ));
    }
    if let Some(until) = progress.no_repeat_from().filter(|until| *until <= now && !did_not_run) {
        return Err(format!(
            "step {step} may have run, and its service may have forgotten the key since {until}: check there, then complete the \
             step, or state that it did not run"
        ));
    }
    let attempt = progress.state.newest_attempt();
    if attempt.is_none() && progress.state.is_failed() && step.item.is_none() {
        // The step could not start. From now on it counts as never tried.
        executor.change.task.steps.remove(&step.step);
        return Ok(false);
    }
    // Its service does not recognise the key any more, or not for a whole attempt.
    let has_another_key = is_forgotten && !progress.is_in_doubt() || !repeatable && known > Ran::No;
    progress.state = StepState::Waiting { attempt, until: now, complete_by: deferred };
    progress.failure_count = 0;
    progress.give_up_at = None;
    progress.set_agent_pauses(Vec::new());
    if did_not_run && action == Action::Do {
        record.deny_key_in_use(known);
    }
    Ok(action == Action::Do && has_another_key)
}

/// What is known of the attempts before an operator ends the part, or states that they did not run.
fn ran_before(progress: &Progress) -> Ran {
    if progress.may_have_run { Ran::Maybe } else { Ran::No }
}

/// Returns the time until which a call of a deferred request may be in progress, because another delivery may
/// make one.
fn deferred_call_until(
    executor: &CommandExecutor<'_, '_>,
    part: &Part,
    action: Action,
) -> Option<Timestamp> {
    let deferred = executor.change.task.progress(part, action)?.state.deferred_by()?;
    let within = executor.change.plan().step(&part.step).action(action)?.call_within;
    let latest_start = later(deferred, executor.change.inputs.context.timing.clock_skew);
    Some(later(latest_start, within))
}

/// Refuses the statement that a step did not run if a child task runs for it: the child may run now, or start
/// later. Only the child itself can report that it is undone.
fn check_outcome_is_known(
    executor: &CommandExecutor<'_, '_>,
    part: &Part,
    action: Action,
) -> Result<(), RefusalReason> {
    let runs_task = executor.change.plan().step(&part.step).runs_child();
    let progress = executor.change.task.progress(part, Action::Do);
    let may_have_run = progress.is_some_and(|progress| progress.may_have_run);
    if !runs_task || !may_have_run || action == Action::Undo {
        return Ok(());
    }
    let child = child_id(&executor.change.task, part).map_err(|error| error.to_string())?;
    Err(format!(
        "step {part} runs task `{child}`, which may be running or completed: undo that task, or this task as a whole"
    ))
}

/// Refuses the statement that a step was undone or did not run while it, or its undo, may still take effect.
fn check_run_is_over(
    executor: &CommandExecutor<'_, '_>,
    part: &Part,
    action: Action,
) -> Result<(), RefusalReason> {
    let run = executor.change.task.progress(part, Action::Do);
    let Some(run) = run.filter(|_| action == Action::Undo) else { return Ok(()) };
    if run.state.reply_due_by().is_some() {
        return Err(format!("step {part} is {}: wait for its outcome", run.state.name()));
    }
    let undo = executor.change.task.progress(part, Action::Undo);
    let now = executor.change.now();
    // Another delivery of a deferred undo may make a call.
    let deferred = deferred_call_until(executor, part, Action::Undo).filter(|until| *until > now);
    let in_progress = run.in_progress(now).max(undo.and_then(|undo| undo.in_progress(now)));
    match in_progress.max(deferred) {
        None => Ok(()),
        Some(until) => {
            Err(format!("a call of step {part} may be in progress until {until}: wait until then"))
        }
    }
}

/// Returns the part that an operator skips or completes: the named one, or the only one that failed.
fn part_to_decide_by_hand(
    executor: &CommandExecutor<'_, '_>,
    named: Option<&Part>,
) -> Result<(Part, Action), RefusalReason> {
    executor.check_is_open()?;
    let direction = executor.change.task.direction();
    let whole = named.filter(|step| has_items(executor, step));
    let Some(step) = named.filter(|_| whole.is_none()) else {
        let failed: Vec<_> = executor
            .change
            .task
            .started_actions()
            .filter(|(name, action, progress)| {
                *action == direction
                    && progress.state.is_failed()
                    && whole.is_none_or(|whole| is_covered_by(whole, name))
            })
            .map(|(name, ..)| name)
            .collect();
        return match failed.as_slice() {
            [step] => Ok((step.clone(), direction)),
            [] => Err("no step failed: name a step".to_owned()),
            several => {
                let names: Vec<_> = several.iter().map(Part::to_string).collect();
                Err(format!("several steps failed: name one of {}", names.join(", ")))
            }
        };
    };
    let awaits_event =
        executor.change.plan().find(&step.step).is_some_and(CompiledStep::awaits_event);
    match state_of_part(executor, step, direction)? {
        None | Some(StepState::Failed { .. } | StepState::Waiting { .. }) => {
            Ok((step.clone(), direction))
        }
        Some(StepState::Running { .. }) if awaits_event => Ok((step.clone(), direction)),
        Some(
            state @ (StepState::Running { .. }
            | StepState::AwaitingCallback { .. }
            | StepState::RunningItems
            | StepState::Completed { .. }
            | StepState::Skipped { .. }),
        ) => Err(format!("step {step} is {}", state.name())),
    }
}

/// Returns the state of a part in the current direction of the task, or `None` if it has not started.
fn state_of_part<'e>(
    executor: &'e CommandExecutor<'_, '_>,
    step: &Part,
    direction: Action,
) -> Result<Option<&'e StepState>, RefusalReason> {
    let definition = executor.change.plan().find(&step.step);
    let definition = definition.ok_or_else(|| format!("the workflow has no step {step}"))?;
    if step.item.is_some() && definition.definition.items_at_once().is_none() {
        return Err(format!("step {} has no items", step.step));
    }
    let task = &executor.change.task;
    let progress = task.progress(step, direction);
    let is_left = || graph::parts_left_to_undo(executor.change.plan(), task).contains(step);
    if direction == Action::Undo && progress.is_none() {
        if !is_left() {
            return Err(format!("step {step} has nothing to undo"));
        }
        // The first undo, also by hand, would make the undo of the task final.
        if graph::point_of_no_return(executor.change.plan(), task) != PointOfNoReturn::Ahead {
            return Err(format!(
                "the undo of step {step} cannot begin: the point of no return runs or has run"
            ));
        }
    }
    Ok(progress.map(|progress| &progress.state))
}

/// Whether `step` is a whole step that has started its items.
fn has_items(executor: &CommandExecutor<'_, '_>, step: &Part) -> bool {
    let record = executor.change.task.steps.get(&step.step);
    step.item.is_none() && record.is_some_and(|record| record.items.is_some())
}

/// Whether `part` is `named`, or an item of the step `named`.
fn is_covered_by(named: &Part, part: &Part) -> bool {
    named == part || (named.item.is_none() && named.step == part.step)
}

/// Refuses the statement that a part did not run while a call of it may be in progress.
fn check_call_is_over(
    part: &Part,
    progress: &Progress,
    deferred_until: Option<Timestamp>,
    now: Timestamp,
) -> Result<(), RefusalReason> {
    let until = progress.in_progress(now).max(deferred_until.filter(|until| *until > now));
    match until {
        None => Ok(()),
        Some(until) => Err(format!(
            "a call of step {part} may be in progress until {until}: state that it did not run after that time"
        )),
    }
}

fn not_started_reason(step: &Part) -> RefusalReason {
    format!("item {step} has not started")
}
