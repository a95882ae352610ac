//! The invariants: what holds whatever happens. Each is a sentence and a predicate.
//!
//! | of | module | checked |
//! | --- | --- | --- |
//! | a task by itself, between two decisions | this one | after each decision; by the exploration in each state, by the simulation at each save |
//! | a decision: the change of the task, and what is sent | [`decision`], `attempts`, `messages` | after each decision |
//! | a task that has ended, with its side effects and alerts | [`ending`] | by the exploration and the audit of the demo; its side effects also by the simulation, drills and outages |
//!
//! In debug builds the engine asserts the first two after each decision. So every story, exploration, simulation, crash point, drill
//! and workflow test checks all of them, and a new invariant is one edit.
//!
//! The invariants read the records, and do not call the functions by which the engine decides what is ready, left to
//! undo, or due.

use std::time::Duration;

use jiff::Timestamp;

use self::{
    decision::Decision,
    record::{ViolatedInvariant, awaited_by, has_passed, is_awaited, is_left_to_undo, require},
};
use crate::{
    definition::plan::{CompiledStep, Plan},
    limits,
    model::{
        attempt::Action,
        items::ItemRecords,
        names::StepName,
        part_span::PartSpan,
        step::{Progress, StepRecord, StepState},
        task::{ProcessState, StopCause, Task},
        time::later,
    },
};

mod attempts;
pub mod decision;
pub mod ending;
mod messages;
mod part_change;
mod record;

/// Checks a decision, and the task that it leaves. A violation does not count if the task before the decision violates one.
///
/// # Errors
/// The first invariant that is violated.
pub fn check_decision(decision: &Decision<'_>) -> Result<(), ViolatedInvariant> {
    let Decision { plan, before, after, ignored, context, .. } = decision;
    let check = |task: &Task| task.check(plan, context.now, context.timing.pickup_within);
    let check_saved = || {
        check(after)?;
        decision.check_change()?;
        attempts::check(decision)
    };
    let checked = messages::check(decision)
        .and_then(|()| attempts::check_event(decision))
        .and_then(|()| if ignored.is_some() { Ok(()) } else { check_saved() });
    checked.or_else(|violated| check(before).map_or(Ok(()), |()| Err(violated)))
}

impl Task {
    /// Checks the task as a decision at `now` left it, or a later look at it finds it. `pickup_within` is how long the
    /// scheduler may take to handle a wake.
    ///
    /// # Errors
    /// The first invariant that the task violates.
    pub fn check(
        &self,
        plan: &Plan,
        now: Timestamp,
        pickup_within: Duration,
    ) -> Result<(), ViolatedInvariant> {
        let subject = || format!("task {}", self.task_id);
        require(subject, &state_invariants(self))?;
        require(subject, &end_invariants(self, plan))?;
        require(subject, &due_invariants(self, plan, now, pickup_within))?;
        for (name, record) in &self.steps {
            let subject = || format!("step {name}");
            let Some(step) = plan.find(name) else {
                return require(subject, &[("the workflow has the step", false)]);
            };
            require(subject, &list_invariants(self, step, record))?;
            for (PartSpan { items, .. }, part) in record.part_spans(name) {
                let items =
                    || items.as_ref().map_or_else(String::new, |items| format!("{items:?}"));
                let subject = || format!("step {name}{}", items());
                require(subject, &part_invariants(self, plan, name, step, part))?;
                require(subject, &progress_invariants(self, step, Action::Do, &part.forward))?;
                if let Some(undo) = &part.undo {
                    let subject = || format!("undo of step {name}{}", items());
                    require(subject, &progress_invariants(self, step, Action::Undo, undo))?;
                }
            }
        }
        Ok(())
    }
}

/// What the state of the task as a whole excludes.
fn state_invariants(task: &Task) -> [(&'static str, bool); 16] {
    let state = task.process_state;
    let has_stopped = state.has_stopped();
    let failures = task
        .action_spans()
        .map(|(span, _, progress)| u64::from(progress.failure_count) * span.count() as u64);
    let mut ids: Vec<_> = task.commands.iter().map(|record| &record.id).collect();
    ids.sort_unstable();
    let undoes = matches!(state, ProcessState::Undoing | ProcessState::Undone);
    let runs_forward =
        matches!(state, ProcessState::Pending | ProcessState::Processing | ProcessState::Processed);
    let depth = task.parent.as_ref().map(|parent| parent.depth);
    [
        (
            "Processed, Undone: it is not locked",
            !has_stopped || state == ProcessState::Error || task.locked_by.is_none(),
        ),
        ("only a task that has not ended is paused", !has_stopped || task.paused_at.is_none()),
        ("it has an end time if and only if it has ended", task.ended_at.is_some() == has_stopped),
        (
            "it has an error if and only if it is in Error",
            task.error.is_some() == (state == ProcessState::Error),
        ),
        (
            "only a task in Error is to be alerted",
            state == ProcessState::Error || !task.is_alert_due,
        ),
        (
            "only a task in Error has a cause of it",
            state == ProcessState::Error || task.stop_cause == StopCause::Failure,
        ),
        ("only an Error is resolved", state == ProcessState::Error || task.resolved_at.is_none()),
        ("Undoing, Undone: it has an undo reason", !undoes || task.undo_reason.is_some()),
        (
            "Pending, Processing, Processed: it has no undo reason",
            !runs_forward || task.undo_reason.is_none(),
        ),
        ("a final undo has a reason", !task.undo_is_final || task.undo_reason.is_some()),
        ("Pending: no step has started", state != ProcessState::Pending || task.steps.is_empty()),
        (
            "its failure count includes the failures of its steps",
            u64::from(task.failure_count) >= failures.sum::<u64>(),
        ),
        ("it keeps only the newest commands", task.commands.len() <= limits::COMMAND_RECORDS_MAX),
        ("each of its commands is recorded once", ids.is_sorted_by(|a, b| a < b)),
        (
            "the depth of a child task is within the limit",
            depth.is_none_or(|depth| (1..=limits::CHILD_DEPTH_MAX).contains(&depth)),
        ),
        (
            "only a child task is kept for a parent",
            task.retention_for_parent.is_none() || task.parent.is_some(),
        ),
    ]
}

/// What a task has done when it ends.
fn end_invariants(task: &Task, plan: &Plan) -> [(&'static str, bool); 6] {
    let state = task.process_state;
    let without_error = matches!(state, ProcessState::Processed | ProcessState::Undone);
    let mut parts = task.part_spans();
    let mut awaited = task.action_spans().filter(|(.., progress)| is_awaited(&progress.state));
    let is_left = |(span, record): (PartSpan<'_>, &StepRecord)| {
        plan.find(span.step).is_some_and(|step| is_left_to_undo(step, record))
    };
    let may_be_in_progress = |(_, record): (PartSpan<'_>, &StepRecord)| {
        let undo = record.undo.as_ref().filter(|undo| has_passed(&undo.state));
        let until =
            record.forward.call_may_run_until.max(undo.and_then(|undo| undo.call_may_run_until));
        until > task.ended_at
    };
    let has_passed_step =
        |name| task.steps.get(name).is_some_and(|record| has_passed(&record.forward.state));
    [
        (
            "Processed: every step completed or was skipped",
            state != ProcessState::Processed || plan.steps().all(|(name, _)| has_passed_step(name)),
        ),
        ("Undone: nothing is left to undo", state != ProcessState::Undone || !parts.any(is_left)),
        (
            "Undone: no call of unknown outcome may be in progress",
            state != ProcessState::Undone || !task.part_spans().any(may_be_in_progress),
        ),
        ("Processed, Undone: nothing is awaited", !without_error || awaited.next().is_none()),
        ("Processed, Undone: it is not due", !without_error || task.due.is_none()),
        (
            "it is due if it has not ended, or is to be alerted",
            state.has_stopped() && !task.is_alert_due || task.due.is_some(),
        ),
    ]
}

/// Until when a task that has not ended is due at the latest: a lost message delays it, and never strands it.
fn due_invariants(
    task: &Task,
    plan: &Plan,
    now: Timestamp,
    pickup_within: Duration,
) -> [(&'static str, bool); 7] {
    let has_stopped = task.process_state.has_stopped();
    let is_supervised = !has_stopped || task.goes_on();
    let due_by = |time| !is_supervised || task.due.is_some_and(|due| due <= time);
    let soon = later(now, pickup_within);
    let paused = task.paused_at.is_some();
    let backward = task.undo_reason.is_some();
    let states = || task.action_spans().map(|(_, _, progress)| &progress.state);
    let goes_on = |attempt: &Option<u32>, until: &Timestamp| {
        !has_stopped || attempt.is_some() && now.max(*until) < task.complete_by
    };
    let waits = states().filter_map(|state| match state {
        StepState::Waiting { attempt, until, .. } => goes_on(attempt, until).then_some(until),
        StepState::Running { .. }
        | StepState::AwaitingCallback { .. }
        | StepState::RunningItems
        | StepState::Completed { .. }
        | StepState::Failed { .. }
        | StepState::Skipped { .. } => None,
    });
    // By a clock that is behind, the call of the step itself may be in progress although its undo has begun since.
    let calls = task.part_spans().filter_map(|(_, record)| {
        let undo = record.undo.as_ref().filter(|undo| has_passed(&undo.state));
        record.forward.call_may_run_until.max(undo.and_then(|undo| undo.call_may_run_until))
    });
    let mut calls = calls.filter(|until| backward && !has_stopped && *until > now);
    let mut waits = waits.map(|until| later((*until).max(now), pickup_within));
    [
        ("due by its complete-by", paused || has_stopped || due_by(task.complete_by)),
        ("due when it is late", plan.late_from(task).is_none_or(due_by)),
        ("due by the deadline of each awaited reply or callback", {
            states().filter_map(awaited_by).all(due_by)
        }),
        ("due soon after the end of each wait", paused || waits.all(due_by)),
        (
            "due soon after the last call for which the undo waits",
            paused || calls.all(|until| due_by(later(until, pickup_within))),
        ),
        (
            "Pending: due soon",
            paused || task.process_state != ProcessState::Pending || due_by(soon),
        ),
        (
            "paused: due within the limit",
            !paused || due_by(later(now, limits::PAUSED_CHECK_INTERVAL)),
        ),
    ]
}

/// What holds of a step as a whole, and of its list of items.
fn list_invariants(
    task: &Task,
    step: &CompiledStep,
    record: &StepRecord,
) -> [(&'static str, bool); 7] {
    let is_running = record.forward.state == StepState::RunningItems;
    let items = record.items.as_ref();
    let at_once = step.definition.items_at_once();
    let all_passed = items.is_some_and(|items| {
        items.started() == items.count()
            && items.spans().all(|(_, item)| has_passed(&item.forward.state))
    });
    let within_limit = |items: &ItemRecords<StepRecord>, action| {
        let open = items.spans().filter_map(|(range, item)| {
            let state = &item.progress(action)?.state;
            // Late effects make undos fail that had ended, and a command starts all of these again.
            let again = action == Action::Undo && state.attempt_count() > 1;
            let is_open = !has_passed(state) && !state.is_failed() && !again;
            is_open.then_some(range.len() as u64)
        });
        at_once.is_some_and(|at_once| open.sum::<u64>() <= u64::from(at_once))
    };
    let goes_on = task.process_state == ProcessState::Processing && task.paused_at.is_none();
    let completed = matches!(record.forward.state, StepState::Completed { .. });
    // The supervisor passes over an overdue item, and wakes the scheduler, which completes the step.
    let is_over = all_passed && !record.is_passed_over();
    [
        ("only a step with `for_each` or `repeat` has items", items.is_none() || at_once.is_some()),
        ("a step whose items run has items", !is_running || items.is_some()),
        (
            "no more items have started than the list has, or than a list may have",
            items.is_none_or(|items| {
                items.started() <= items.count() && items.count() <= limits::ITEMS_MAX
            }),
        ),
        (
            "no more items are in progress than `at_once`",
            items.is_none_or(|items| {
                within_limit(items, Action::Do) && within_limit(items, Action::Undo)
            }),
        ),
        (
            "a step completes when its last item has passed",
            items.is_none() || (all_passed || !completed) && !(goes_on && is_running && is_over),
        ),
        ("a step with items is not undone as a whole", items.is_none() || record.undo.is_none()),
        (
            "an item has no items",
            items.is_none_or(|items| items.spans().all(|(_, item)| item.items.is_none())),
        ),
    ]
}

/// What holds of a step or an item. A late effect comes to light also while earlier steps are being undone, so the whole
/// order of undos holds only of their requests.
fn part_invariants(
    task: &Task,
    plan: &Plan,
    name: &StepName,
    step: &CompiledStep,
    record: &StepRecord,
) -> [(&'static str, bool); 8] {
    let state = task.process_state;
    let undo = record.undo.as_ref().map(|undo| &undo.state);
    let undo_runs = undo.is_some_and(is_awaited);
    let is_later =
        |span: PartSpan<'_>| plan.find(span.step).is_some_and(|step| step.ancestors.contains(name));
    let mut awaited = task.part_spans().filter(|(_, other)| is_awaited(&other.forward.state));
    let in_order = !undo_runs || !awaited.any(|(span, _)| is_later(span));
    let has_begun_undo = || task.part_spans().any(|(_, other)| other.undo.is_some());
    // The undo of a paused task is cancelled when the task is resumed.
    let undoes =
        matches!(state, ProcessState::Undoing | ProcessState::Undone) && task.paused_at.is_none();
    let is_past_return = step.definition.point_of_no_return
        && matches!(record.forward.state, StepState::Completed { .. });
    [
        (
            "Processing: it has not failed",
            state != ProcessState::Processing || !record.forward.state.is_failed(),
        ),
        (
            "Undoing: its undo has not failed",
            state != ProcessState::Undoing || !undo.is_some_and(StepState::is_failed),
        ),
        ("only a step with an undo is undone", undo.is_none() || step.undo().is_some()),
        ("it is undone only if the task is", undo.is_none() || task.undo_reason.is_some()),
        ("its undo waits for its own attempt", !undo_runs || !is_awaited(&record.forward.state)),
        ("its undo waits for the attempts of later steps", in_order),
        (
            "past the point of no return no undo begins",
            !undoes || !is_past_return || task.undo_is_final || has_begun_undo(),
        ),
        (
            "its earlier keys are in the order of their attempts",
            record.earlier.is_sorted_by(|a, b| a.since < b.since),
        ),
    ]
}

/// What holds of the progress of a part or of its undo.
fn progress_invariants(
    task: &Task,
    step: &CompiledStep,
    action: Action,
    progress: &Progress,
) -> [(&'static str, bool); 14] {
    let Progress { state, agent, give_up_at, .. } = progress;
    let agents = step.agents().map_or(0, |agents| agents.names().len());
    let has_agent = agents > 0;
    let is_deferred = matches!(state, StepState::Waiting { complete_by: Some(_), .. });
    let awaits_callback = match state {
        StepState::AwaitingCallback { complete_by, answer_by, .. } => {
            Some(complete_by <= answer_by && *answer_by <= task.complete_by)
        }
        StepState::Running { .. }
        | StepState::RunningItems
        | StepState::Waiting { .. }
        | StepState::Completed { .. }
        | StepState::Failed { .. }
        | StepState::Skipped { .. } => None,
    };
    let is_undoing = task.process_state == ProcessState::Undoing;
    let goes_on = awaited_by(state).or(state.waiting_until()).is_some();
    let limit = step.action(action).and_then(|definition| definition.recovery.give_up_after);
    let has_valid_key = step.action(action).is_some_and(|of| of.key_valid_for().is_some());
    let allowed = step.action(action).map_or(0, |definition| {
        let recovery = &definition.recovery;
        let waits = recovery.extended_wait.as_ref().map_or(0, |wait| wait.times);
        recovery.attempts.0.max(1).saturating_mul(waits.saturating_add(1))
    });
    [
        ("attempts are numbered from 1", state.newest_attempt() != Some(0)),
        (
            "it awaits nothing after the task's complete-by",
            awaited_by(state).is_none_or(|by| by <= task.complete_by),
        ),
        (
            "only a step with a callback awaits one",
            awaits_callback.is_none() || action == Action::Do && step.callback().is_some(),
        ),
        ("the deadlines of a callback are in order", awaits_callback != Some(false)),
        (
            "Undoing: only the callback of a point of no return is awaited",
            awaits_callback.is_none() || !is_undoing || step.definition.point_of_no_return,
        ),
        // One permanent failure may be added to those that the policy allows.
        ("it fails no more often than its policy allows", progress.failure_count <= allowed + 1),
        (
            "only a call may be in progress, or be deferred",
            has_agent || progress.call_may_run_until.is_none() && !is_deferred,
        ),
        (
            "its agent is one of those of the step",
            agent.is_none_or(|position| (position as usize) < agents),
        ),
        (
            "only of a step with several agents may a second delivery act",
            !progress.second_delivery_may_act || agents > 1,
        ),
        (
            "only a step with a child task has a report of one",
            progress.child_revision.is_none() || step.runs_child(),
        ),
        (
            "only a part that goes on has a time limit, and only with `give_up_after`",
            give_up_at.is_none() || goes_on && limit.is_some(),
        ),
        (
            "it awaits nothing after its time limit",
            give_up_at.is_none_or(|limit| awaited_by(state) <= Some(limit)),
        ),
        (
            "only a part that has not passed has a valid key, and only with `key_valid_for`",
            progress.key_valid_until.is_none() || !state.is_completed_or_skipped() && has_valid_key,
        ),
        (
            "it awaits no reply after its service may have forgotten the key",
            progress.key_valid_until.is_none_or(|limit| {
                state.awaiting_callback().is_some() || awaited_by(state) <= Some(limit)
            }),
        ),
    ]
}

#[cfg(test)]
mod tests;
