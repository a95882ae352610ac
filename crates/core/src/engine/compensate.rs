//! Backward: turns a task round, and undoes what was done.

use crate::{
    definition::step::Work,
    engine::{
        change::Change,
        order::{self, PointOfNoReturn},
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

/// Starts the undos that can start, and ends the task once everything is undone. Nothing starts while the point of no return
/// is running, since that may still cancel the undo, nor past the task's complete-by.
pub(crate) fn advance(change: &mut Change<'_>) {
    match order::point_of_no_return(change.plan(), &change.task) {
        PointOfNoReturn::Running => return,
        PointOfNoReturn::Passed(step) => {
            let reason = change.task.undo_reason.clone().unwrap_or_default();
            return fail_past_return(change, &reason, &step);
        }
        PointOfNoReturn::Ahead => end_waits(change),
    }
    change.extend_time_to_undo();
    let now = change.now();
    if now < change.task.complete_by {
        let ready = order::ready_undos(change.plan(), &change.task, now);
        for part in ready.into_iter().chain(change.waited(Action::Undo)) {
            change.start(part, Action::Undo);
        }
    }
    if order::is_undone(change.plan(), &change.task, now) {
        change.task.process_state = ProcessState::Undone;
    }
}

/// Turns the task round, with as much time to undo it as it had to be done; or stops it in Error if it is past its point of
/// no return.
pub(crate) fn begin(change: &mut Change<'_>, reason: &str) {
    if let PointOfNoReturn::Passed(step) = order::point_of_no_return(change.plan(), &change.task) {
        return fail_past_return(change, reason, &step);
    }
    change.task.process_state = ProcessState::Undoing;
    change.task.undo_reason = Some(limits::shorten(reason, limits::ERROR_CHARS_MAX));
    change.task.complete_by = later(change.now(), change.plan().complete_within);
    give_up_forward(change);
    change.extend_time_to_undo();
}

/// Stops everything that goes forward. An attempt that an agent works on is waited for, and so is a deferred one that an
/// agent may still act on. The task of a step is undone in whatever state it is. Callbacks are no longer awaited, except that
/// of the point of no return: while that step runs it can still cancel the undo, so waits continue.
fn give_up_forward(change: &mut Change<'_>) {
    let (plan, now) = (change.plan(), change.now());
    let past_deferrals: Vec<_> = change
        .task
        .parts()
        .filter_map(|(part, record)| {
            let complete_by = record.run.state.deferred_by()?;
            (complete_by <= now).then_some((part, complete_by))
        })
        .collect();
    for (part, complete_by) in past_deferrals {
        change.may_act_until(complete_by, &part, Action::Do);
    }
    for (name, record) in &mut change.task.steps {
        let step = plan.step(name);
        if matches!(step.work(), Work::Wait(_)) {
            continue;
        }
        for StepRecord { run, .. } in record.parts_mut() {
            run.state = match run.state {
                StepState::Waiting { attempt, complete_by: Some(complete_by), .. }
                    if complete_by > now =>
                {
                    StepState::Running { attempt, complete_by }
                }
                StepState::Waiting { attempt, .. } => StepState::Failed { attempt },
                StepState::HandedOut { attempt, .. } | StepState::Running { attempt, .. }
                    if !step.definition.point_of_no_return
                        && (step.runs_child() || !run.state.is_running()) =>
                {
                    run.may_have_run = true;
                    StepState::Failed { attempt }
                }
                StepState::Running { .. }
                | StepState::HandedOut { .. }
                | StepState::Each
                | StepState::Completed { .. }
                | StepState::Failed { .. }
                | StepState::Skipped { .. } => continue,
            };
        }
    }
    if order::point_of_no_return(plan, &change.task) != PointOfNoReturn::Running {
        end_waits(change);
    }
}

/// Skips the steps that only wait: nothing cancels the undo any more.
fn end_waits(change: &mut Change<'_>) {
    let plan = change.plan();
    for (name, record) in &mut change.task.steps {
        if plan.step(name).waits()
            && let StepState::Waiting { attempt, .. } = record.run.state
        {
            record.run.state = StepState::Skipped { attempt };
        }
    }
}

/// Stops the task in Error: it can only be driven forward, by an operator.
fn fail_past_return(change: &mut Change<'_>, reason: &str, step: &StepName) {
    change.task.undo_reason = None;
    change.fail_task(&format!("not undone, past the point of no return {step}: {reason}"));
}
