//! Backward execution (compensation): decides which undos start, and starts them.

use crate::{
    engine::{
        graph::{self, PointOfNoReturn},
        task_change::TaskChange,
    },
    limits,
    model::{
        attempt::Action,
        names::StepName,
        step::{StepRecord, StepState},
        task::ProcessState,
        time::later,
    },
};

/// Starts the undos that can start, and ends the task once everything is undone. Nothing starts while the point of no
/// return is running, because its completion cancels the undo. Nothing starts after the task's complete-by either.
pub(crate) fn advance(change: &mut TaskChange<'_>) {
    match graph::point_of_no_return(change.plan(), &change.task) {
        PointOfNoReturn::Running => return,
        PointOfNoReturn::Passed(step) if graph::is_undo_final(&change.task) => {
            change.task.undo_is_final = true;
            return change
                .fail_task_again(&format!("step {step} took effect after the undo began"));
        }
        PointOfNoReturn::Passed(step) => {
            let reason = change.task.undo_reason.clone().unwrap_or_default();
            return fail_past_point_of_no_return(change, &reason, &step);
        }
        PointOfNoReturn::Ahead => {}
    }
    change.extend_undo_deadline();
    let now = change.now();
    if now < change.task.complete_by {
        let ready = graph::ready_undos(change.plan(), &change.task, now);
        let waited = change.parts_ready_to_start(Action::Undo);
        for part in ready.into_iter().chain(waited) {
            change.start(part, Action::Undo);
        }
    }
    if graph::is_undone(change.plan(), &change.task, now) {
        let beside = graph::parts_beside_completions(change.plan(), &change.task).next();
        match beside {
            None => change.task.process_state = ProcessState::Undone,
            Some(part) => change.fail_task(&format!(
                "step {part} ran, and an operator completed it; one of the two is undone: check both, then resubmit"
            )),
        }
    }
    if graph::is_undo_final(&change.task) {
        end_waits(change);
    }
}

/// Starts to undo the task, with `complete_within` of its workflow as the time for it, or what is left of the task's time
/// if that is more: attempts in progress end by it. Stops the task in Error if it is past its point of no return.
pub(crate) fn begin(change: &mut TaskChange<'_>, reason: &str) {
    if let PointOfNoReturn::Passed(step) = graph::point_of_no_return(change.plan(), &change.task) {
        return fail_past_point_of_no_return(change, reason, &step);
    }
    change.task.process_state = ProcessState::Undoing;
    change.task.undo_reason = Some(limits::short_line(reason, limits::ERROR_CHARS_MAX));
    let complete_by = later(change.now(), change.plan().complete_within);
    change.task.complete_by = change.task.complete_by.max(complete_by);
    abandon_forward_steps(change);
    change.extend_undo_deadline();
}

/// Abandons all forward steps. The undo waits for an attempt that an agent is processing, and for a deferred one that
/// an agent may still process. A child task is undone in any state. Callbacks are no longer awaited, except that of
/// the point of no return. Waits go on until the undo is final: until then, a point of no return can cancel it.
fn abandon_forward_steps(change: &mut TaskChange<'_>) {
    let (plan, now) = (change.plan(), change.now());
    let past_deferrals: Vec<_> = change
        .task
        .part_spans()
        .filter_map(|(run, record)| {
            let complete_by = record.forward.state.deferred_by()?;
            (complete_by <= now).then_some((run, complete_by))
        })
        .flat_map(|(run, complete_by)| run.parts().map(move |part| (part, complete_by)))
        .collect();
    for (part, complete_by) in past_deferrals {
        change.block_undo_on_deferred_attempt(complete_by, &part, Action::Do);
    }
    for (name, record) in &mut change.task.steps {
        let step = plan.step(name);
        if step.work().is_wait() {
            continue;
        }
        for StepRecord { forward: run, .. } in record.part_records_mut() {
            run.state = match run.state {
                StepState::Waiting {
                    attempt: Some(attempt),
                    complete_by: Some(complete_by),
                    ..
                } if complete_by > now => StepState::Running { attempt, complete_by },
                StepState::Waiting { attempt, .. } => StepState::Failed { attempt },
                StepState::AwaitingCallback { attempt, .. }
                | StepState::Running { attempt, .. }
                    if !step.definition.point_of_no_return
                        && (step.runs_child()
                            || step.awaits_event()
                            || !run.state.is_running()) =>
                {
                    run.may_have_run |= !step.awaits_event();
                    StepState::Failed { attempt: Some(attempt) }
                }
                StepState::Running { .. }
                | StepState::AwaitingCallback { .. }
                | StepState::RunningItems
                | StepState::Completed { .. }
                | StepState::Failed { .. }
                | StepState::Skipped { .. } => continue,
            };
        }
    }
}

/// Skips the steps with `wait`, because nothing can cancel the undo any more.
fn end_waits(change: &mut TaskChange<'_>) {
    let plan = change.plan();
    for (name, record) in &mut change.task.steps {
        if plan.step(name).waits()
            && let StepState::Waiting { attempt, .. } = record.forward.state
        {
            record.forward.state = StepState::Skipped { attempt };
        }
    }
}

/// Stops the task in Error, because it can no longer be undone. An operator has to complete it.
fn fail_past_point_of_no_return(change: &mut TaskChange<'_>, reason: &str, step: &StepName) {
    change.task.undo_reason = None;
    change.fail_task(&format!("not undone, past the point of no return {step}: {reason}"));
}
