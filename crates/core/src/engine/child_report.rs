//! Decisions on the report of a child task about its end. A child knows its own effects, so its newest report says what is
//! true. The reports of a child are ordered by its revision.

use serde_json::Value;

use crate::{
    engine::{
        advance::advance,
        decision::IgnoreReason,
        decision_input::{DecisionInput, PendingDecision},
        late_effect::{
            LateReport, judge, key_of_child, record_late_effect, report_of_earlier_child,
        },
        outcome::{complete, complete_if_it_fits, fail},
        request::child_id,
        task_change::TaskChange,
    },
    model::{
        attempt::{Action, AttemptId},
        earlier_key::{EarlierKey, Ran},
        messages::ChildOutcome,
        names::{Part, TaskId},
        step::{Progress, StepRecord, StepState},
        task::Task,
    },
};

/// What a child task reports about its end, and what the message says about its sender.
#[derive(Clone, Copy)]
pub(crate) struct ChildReport<'e> {
    /// How it ended.
    pub(crate) outcome: &'e ChildOutcome,
    /// For a refusal: the attempt whose submission was refused.
    pub(crate) refused: Option<u32>,
    /// The child task, if the message names it.
    pub(crate) child: Option<&'e TaskId>,
    /// The revision of the child task, if the message has it.
    pub(crate) revision: Option<u64>,
}

/// Decides on the end of a child task. The report counts for all attempts that submitted this child, and no matter
/// how late it arrives. It does not count if the child has sent a later one. A refusal concerns one submission only, and a
/// later one may have been accepted.
pub(crate) fn child_ended<'a>(
    input: &DecisionInput<'a, '_>,
    part: &Part,
    report: ChildReport<'_>,
) -> PendingDecision<'a> {
    let ChildReport { outcome, child, revision, .. } = report;
    let runs_task = input.inputs.plan.find(&part.step).is_some_and(|step| step.runs_child());
    let Some(record) = input.task.record(part).filter(|_| runs_task) else {
        return PendingDecision::Illegal(format!("step `{part}` runs no child task"));
    };
    let earlier = child.and_then(|child| key_of_child(input, part, child));
    // While the child of an earlier key is undone, the child in use may still report its own end.
    let is_of_other_key = child.is_some() && earlier.is_none() && record.key_of_undo().is_some();
    let undo = record.undo.as_ref().filter(|_| !is_of_other_key);
    let (action, progress) =
        undo.map_or((Action::Do, &record.forward), |undo| (Action::Undo, undo));
    let is_open = matches!(progress.state, StepState::Running { .. } | StepState::Waiting { .. });
    let is_undone_now = |key: &EarlierKey| {
        is_open && action == Action::Undo && progress.key_since == Some(key.since)
    };
    let is_older = |key: &EarlierKey| revision.is_some() && revision < key.child_revision;
    match earlier {
        Some(key) if is_undone_now(key) && is_older(key) => return input.stale(part, action),
        Some(key) if is_undone_now(key) => {}
        Some(key) => return report_of_earlier_child(input, part, key, outcome, revision),
        None if is_stale(input, part, &report, action, record) => {
            return input.stale(part, action);
        }
        None => {}
    }
    if !is_open {
        return child_changed(input, part, action, outcome, revision);
    }
    if action == Action::Undo && is_from_before_undo(outcome) {
        return match input.redelivered() {
            true => input.duplicate(part),
            false => PendingDecision::ignore(IgnoreReason::StaleReply),
        };
    }
    // The report counts as the first attempt if it arrives before the request to the child.
    let number = progress.state.attempt_count().max(1);
    let mut change = input.change();
    record_end(&mut change, AttemptId { step: part.clone(), action, number }, outcome, revision);
    advance(&mut change);
    PendingDecision::Change(change)
}

/// Whether the child in use has sent a later report, another child runs for the step, or the submission of another attempt was
/// refused.
fn is_stale(
    input: &DecisionInput<'_, '_>,
    part: &Part,
    report: &ChildReport<'_>,
    action: Action,
    record: &StepRecord,
) -> bool {
    let ChildReport { outcome, refused, child, revision } = report;
    let run = &record.forward;
    let is_older = run.child_revision.is_some_and(|last| revision.is_some_and(|now| now < last));
    let is_another =
        child.is_some_and(|child| child_id(input.task, part).ok().as_ref() != Some(child));
    let is_another_submission = matches!(outcome, ChildOutcome::Refused { .. })
        && action == Action::Do
        && refused.is_some_and(|number| Some(number) != run.state.newest_attempt());
    is_older || is_another || is_another_submission
}

/// Whether the child task has not received the request to undo it yet, or this report started the undo.
fn is_from_before_undo(outcome: &ChildOutcome) -> bool {
    matches!(
        outcome,
        ChildOutcome::Processed { .. }
            // The submission to do it was refused. Another delivery of it may have been accepted.
            | ChildOutcome::Refused { .. }
            | ChildOutcome::Error { not_undone: false, .. }
    )
}

/// Records the end of a child task that is awaited.
fn record_end(
    change: &mut TaskChange<'_>,
    attempt: AttemptId,
    outcome: &ChildOutcome,
    revision: Option<u64>,
) {
    let undoing = attempt.action == Action::Undo;
    let completes = matches!(outcome, ChildOutcome::Processed { .. });
    // An earlier report of the child may arrive later, and must not complete the step then. A completed part
    // stores no revision if it has none yet: equal records of items are stored once.
    if let Some(record) = change.task.part_record_mut(&attempt.step) {
        if record.key_of_undo().is_some() && undoing {
            record.record_revision_of_undone_child(revision);
        } else if !completes || record.forward.child_revision.is_some() {
            record.forward.child_revision = revision.max(record.forward.child_revision);
        }
    }
    match outcome {
        ChildOutcome::Processed { output } => complete_if_it_fits(change, attempt, output, None),
        ChildOutcome::Undone { .. } if undoing => complete(change, attempt, &Value::Null, None),
        ChildOutcome::Undone { reason } => {
            record_undone(change, &attempt.step, revision);
            fail(change, attempt, &format!("its child task was undone: {reason}"), false);
        }
        ChildOutcome::Refused { reason, id_taken } => {
            fail(change, attempt, &format!("its child task was refused: {reason}"), !id_taken);
        }
        ChildOutcome::Error { reason, .. } => {
            fail(change, attempt, &format!("its child task is in Error: {reason}"), true);
        }
    }
}

/// Decides on a report of a child task whose end, or whose undo, the part has recorded: an effect has come to light since, or
/// is gone.
fn child_changed<'a>(
    input: &DecisionInput<'a, '_>,
    part: &Part,
    action: Action,
    outcome: &ChildOutcome,
    revision: Option<u64>,
) -> PendingDecision<'a> {
    use ChildOutcome::{Error, Processed, Undone};
    let Some(record) = input.task.record(part) else { return input.duplicate(part) };
    let run = &record.forward;
    let is_newer =
        revision.is_some() && run.child_revision.is_none_or(|last| revision > Some(last));
    let is_undone =
        record.undo.as_ref().is_some_and(|undo| matches!(undo.state, StepState::Completed { .. }));
    let mut change = input.change();
    match (action, outcome) {
        // Another key was undone since the undo of this child.
        (Action::Do, Processed { .. } | Error { .. })
            if is_newer && record.key_in_use_is_undone() =>
        {
            record_revision(&mut change, part, revision);
            if let Some(record) = change.task.part_record_mut(part) {
                record.reopen_key_in_use();
            }
            judge(
                &mut change,
                part,
                &format!("step {part}: its child task took effect after its undo"),
            );
        }
        (Action::Do, Processed { .. } | Error { .. })
            if counts_as_not_run(run)
                && (!run.may_have_run || is_newer && may_be_news(input.task, record, outcome)) =>
        {
            record_revision(&mut change, part, revision);
            if !record_late_effect(&mut change, part, &LateReport::of_child(outcome)) {
                if !is_newer {
                    return input.duplicate(part);
                }
                advance(&mut change);
            }
        }
        (Action::Do, Undone { .. })
            if matches!(run.state, StepState::Failed { .. } | StepState::Skipped { .. })
                && run.may_have_run =>
        {
            record_undone(&mut change, part, revision);
            advance(&mut change);
        }
        (Action::Do, Error { reason, was_processed: true, .. })
            if matches!(run.state, StepState::Completed { .. }) && is_newer =>
        {
            record_effect_after_end(&mut change, part, reason, revision);
        }
        (Action::Undo, Processed { .. }) if is_undone && is_unrecorded(run, revision) => {
            record_effect_after_undo(&mut change, part, revision);
        }
        // A report about a child that does not exist any more has no revision.
        (Action::Undo, Error { .. }) if is_undone && is_newer => {
            record_effect_after_undo(&mut change, part, revision);
        }
        // An older report must not count after this one.
        (Action::Do, Processed { .. } | Error { .. })
            if is_newer
                && matches!(run.state, StepState::Failed { .. } | StepState::Skipped { .. }) =>
        {
            record_revision(&mut change, part, revision);
            advance(&mut change);
        }
        (Action::Undo, Undone { .. }) if is_newer => record_revision(&mut change, part, revision),
        (Action::Do | Action::Undo, _) => return input.duplicate(part),
    }
    PendingDecision::Change(change)
}

/// Whether a newer report may show what a part that may have run, and does not await it, does not know. A child that was Processed
/// has another effect.
fn may_be_news(task: &Task, record: &StepRecord, outcome: &ChildOutcome) -> bool {
    let is_completed = record.forward.completed_by_hand.is_some();
    let was_processed = matches!(outcome, ChildOutcome::Error { was_processed: true, .. });
    !was_processed && (is_completed || task.direction() == Action::Do)
}

/// Whether a part counts as one that no child ran: it failed, was skipped, or an operator completed it in another way.
fn counts_as_not_run(run: &Progress) -> bool {
    match run.state {
        StepState::Failed { .. } | StepState::Skipped { .. } => true,
        StepState::Completed { .. } => run.completed_by_hand.is_some(),
        StepState::Running { .. }
        | StepState::Waiting { .. }
        | StepState::AwaitingCallback { .. }
        | StepState::RunningItems => false,
    }
}

/// Whether the part has not recorded this report of Processed. A completed part records such a report without its revision.
fn is_unrecorded(run: &Progress, revision: Option<u64>) -> bool {
    match run.child_revision {
        Some(last) => revision > Some(last),
        None => {
            !matches!(run.state, StepState::Completed { .. }) || run.completed_by_hand.is_some()
        }
    }
}

/// Records that a child task left no side effects. All attempts since the last edit of the input submitted this same
/// child.
fn record_undone(change: &mut TaskChange<'_>, part: &Part, revision: Option<u64>) {
    if let Some(progress) = change.task.progress_mut(part, Action::Do) {
        progress.may_have_run = false;
    }
    record_revision(change, part, revision);
}

/// Records the revision of a report. Older ones are ignored from now on.
fn record_revision(change: &mut TaskChange<'_>, part: &Part, revision: Option<u64>) {
    if let Some(progress) = change.task.progress_mut(part, Action::Do) {
        progress.child_revision = revision.max(progress.child_revision);
    }
}

/// Records that a child task has taken effect since its undo was recorded as done, by the child or by an operator. The effect
/// remains: the undo counts as failed, and the task stops in Error.
fn record_effect_after_undo(change: &mut TaskChange<'_>, part: &Part, revision: Option<u64>) {
    record_revision(change, part, revision);
    if let Some(record) = change.task.part_record_mut(part)
        && let Some(undo) = &mut record.undo
    {
        undo.state = StepState::Failed { attempt: undo.state.newest_attempt() };
        record.reopen_key_in_use();
    }
    change.task.undo_is_final = true;
    change.fail_task_again(&format!("the child task of step {part} took effect after its undo"));
}

/// Records that a completed child task took effect once more. The task stops in Error, unless it is being undone: then the
/// child is undone next, and reports what it cannot undo.
fn record_effect_after_end(
    change: &mut TaskChange<'_>,
    part: &Part,
    reason: &str,
    revision: Option<u64>,
) {
    record_revision(change, part, revision);
    if let Some(record) = change.task.part_record_mut(part) {
        let _ = record.learn_of_key_in_use(Ran::Yes);
    }
    if change.task.direction() == Action::Do {
        change.fail_task_again(&format!("step {part}: its child task is in Error: {reason}"));
    }
}
