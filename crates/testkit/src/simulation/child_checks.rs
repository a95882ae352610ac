//! The oracle's checks of child tasks: their submissions, their creation, and their reports to the parent.

use jiff::Timestamp;
use serde_json::Value;
use steward_core::model::{
    attempt::Action,
    messages::{ChildEnded, ChildOutcome, Submission},
    names::Part,
    step::{Progress, StepRecord, StepState},
    task::{ProcessState, Task},
};
use steward_test_world::ledger::EffectLedger;

use super::{
    blueprint::WorkPlan,
    expectations::TaskExpectations,
    oracle::Oracle,
    payload_values::is_same,
    task_record::{describe, has_commands, has_edited_input, has_stopped},
    virtual_time::since_start,
};

/// Checks a submission that a function sends. For a child task: the parent was saved before, and repeated submissions are
/// identical. Otherwise the submission was held back: a client sent the same.
pub(super) fn check_submission(
    oracle: &mut Oracle,
    ledger: &EffectLedger,
    body: &str,
) -> Option<String> {
    let Ok(submission) = serde_json::from_str::<Submission>(body) else {
        return Some(format!("a submission cannot be parsed: {body}"));
    };
    let Some(parent) = &submission.parent else {
        let sent = oracle.candidate_inputs.get(&submission.task_id);
        let is_sent = sent.into_iter().flatten().any(|sent| is_same(sent, &submission.input))
            || oracle.payloads.forged_inputs.contains(&submission.input);
        return (!is_sent).then(|| format!("a submission was sent that no client sent: {body}"));
    };
    let action = if submission.undo { Action::Undo } else { Action::Do };
    let of = describe(&parent.task_id, &parent.step, action);
    let of_life = (submission.task_id.clone(), parent.incarnation);
    let known = oracle.child_task_inputs.get(&of_life);
    if known.is_some_and(|known| *known != submission.input) {
        return Some(format!("{of}: submits {} again with other content", submission.task_id));
    }
    oracle.child_task_inputs.insert(of_life, submission.input.clone());
    let Some(expected) = TaskExpectations::of(oracle, ledger, &parent.task_id) else {
        return Some(format!("{of}: submits a child task, but the parent does not exist"));
    };
    let stored = expected.task.progress(&parent.step, action);
    if stored.is_none_or(|progress| progress.state.attempt_count() == 0) {
        return Some(format!("{of}: its child task was submitted before the attempt was saved"));
    }
    if submission.undo
        && submission.input.is_null()
        && expected.is_decided_by_operator(&parent.step)
    {
        return None;
    }
    let amount = amount(&parent.step, expected)?;
    (submission.input.get("amount") != Some(&amount))
        .then(|| format!("{of}: its child task was submitted with {}", submission.input))
}

/// The amount with which a child task must be submitted; `None` if it cannot be determined.
fn amount(part: &Part, expected: TaskExpectations<'_>) -> Option<Value> {
    let step = expected.model.step(&part.step)?;
    match part.item.filter(|_| step.rounds().is_none()) {
        Some(index) => expected.items(step).value()??.get(index as usize).cloned(),
        None if has_edited_input(expected.task) => None,
        None => expected.oracle.input(expected.task)?.get("amount").cloned(),
    }
}

/// Checks a new child task: it has the right workflow, its step must run, and no more than `at_once` are in progress.
pub(super) fn check_creation(oracle: &Oracle, ledger: &EffectLedger, task: &Task) -> Vec<String> {
    let Some(parent) = &task.parent else { return Vec::new() };
    let part = &parent.step;
    let of = describe(&parent.task_id, part, Action::Do);
    let Some(expected) = TaskExpectations::of(oracle, ledger, &parent.task_id) else {
        return vec![format!("{of}: a child task was recorded, but the parent does not exist")];
    };
    let mut found = Vec::new();
    let Some(step) = expected.model.step(&part.step) else {
        return vec![format!("{of}: the step does not exist")];
    };
    if !matches!(step.work, WorkPlan::Child(name) if name == task.workflow.as_str()) {
        found.push(format!("runs {}", task.workflow));
    }
    let id = task.task_id.as_str();
    let item = part.item.map(|index| format!(":{index}")).unwrap_or_default();
    if !id.starts_with(&format!("{}:{}{item}", parent.task_id, part.step)) {
        found.push(format!("its child task has the id {id}"));
    }
    // A child task that is created in a final state never begins.
    if !has_stopped(task) {
        found.extend(expected.reason_not_to_run(part));
        // The list goes on without an item whose child task is too late, and that task goes on, too.
        let is_passed_over =
            |of: &Part| expected.task.record(of).is_some_and(StepRecord::is_passed_over);
        let under_way = oracle.child_tasks(&parent.task_id).filter(|(other, child)| {
            let is_other = other.step == part.step && *other != part;
            is_other && !has_stopped(child) && !is_passed_over(other)
        });
        let count = under_way.count() + 1;
        let at_once = step.each.as_ref().map_or(1, |each| each.at_once);
        if count > at_once && !has_commands(expected.task) {
            found.push(format!("{count} of its child tasks are in progress; at_once is {at_once}"));
        }
    }
    found.into_iter().map(|finding| format!("{of}: {finding}")).collect()
}

/// Checks the report of a child task to its parent: the child has ended so, and its output is possible.
pub(super) fn check_report(
    oracle: &Oracle,
    ledger: &EffectLedger,
    ended: &ChildEnded,
) -> Option<String> {
    let parent = oracle.tasks.get(&ended.task_id);
    if parent.is_some_and(|parent| parent.incarnation != ended.incarnation) {
        // The child ran for an earlier task with the same id.
        return None;
    }
    let of = describe(&ended.task_id, &ended.step, Action::Do);
    let children: Vec<_> = oracle.child_tasks_of_part(&ended.task_id, &ended.step).collect();
    let has_remaining_effect =
        |state: ProcessState| children.iter().any(|child| child.process_state == state);
    match &ended.outcome {
        ChildOutcome::Processed { output } => {
            let may = |child: &&Task| {
                let expected = TaskExpectations::of(oracle, ledger, &child.task_id);
                expected.is_some_and(|expected| expected.is_possible_result(output))
            };
            (!children.iter().any(may))
                .then(|| format!("{of}: {output} is no possible result of its child task"))
        }
        // A scheduler that read the child before its last change may repeat an older report. A newer one follows.
        ChildOutcome::Undone { .. } if children.iter().any(|child| is_older(ended, child)) => None,
        ChildOutcome::Undone { .. } => (!has_remaining_effect(ProcessState::Undone))
            .then(|| format!("{of}: its child task reported Undone, but is not Undone")),
        ChildOutcome::Refused { reason, .. } => {
            let expected = TaskExpectations::of(oracle, ledger, &ended.task_id);
            let wrong = expected.and_then(|of| of.wrong_refusal(&ended.step, reason));
            wrong.map(|wrong| format!("{of}: {wrong}"))
        }
        ChildOutcome::Error { .. } => None,
    }
}

/// Whether a report is about an earlier revision of this child task.
fn is_older(ended: &ChildEnded, child: &Task) -> bool {
    ended.child.as_ref() == Some(&child.task_id)
        && ended.revision.is_some_and(|of| of < child.revision)
}

/// Checks that no attempt is given up after its child task was Processed, once no messages are lost any more.
pub(super) fn check_given_up(
    oracle: &Oracle,
    task: &Task,
    (part, progress, reason): (&Part, &Progress, Option<&str>),
    now: Timestamp,
) -> Option<String> {
    let silent = reason.is_some_and(|reason| reason.starts_with("no reply"));
    let goes_on = matches!(progress.state, StepState::Waiting { .. } | StepState::Failed { .. });
    if !silent || !goes_on || task.undo_reason.is_some() || has_commands(task) {
        return None;
    }
    let ended = oracle.child_tasks_of_part(&task.task_id, part).find_map(|child| {
        let done = child.process_state == ProcessState::Processed && !has_commands(child);
        child.ended_at.filter(|ended| done && since_start(*ended) > oracle.faults_until)
    })?;
    let quiet = now.duration_since(ended).as_secs() > 60;
    quiet.then(|| "was given up, but its child task is Processed".to_owned())
}

/// Checks that an undo does not run out of time before the task asked its child tasks to undo, if the undo began once
/// no messages were lost any more.
pub(super) fn check_overdue_undo(oracle: &Oracle, before: &Task, task: &Task) -> Option<String> {
    let overdue = task.error.as_deref() == Some("the task was not undone by its complete-by");
    let within = oracle.model(&task.task_id)?.blueprint.complete_within;
    let began = since_start(task.complete_by).checked_sub(within)?;
    let known = before.process_state == task.process_state || has_commands(task);
    if !overdue || known || began < oracle.faults_until {
        return None;
    }
    let asks = |part: &Part| {
        let undo = task.progress(part, Action::Undo);
        undo.is_some_and(|undo| !matches!(undo.state, StepState::Completed { .. }))
    };
    let mut children = oracle.child_tasks(&task.task_id);
    let (part, child) = children.find(|(part, child)| asks(part) && child.undo_reason.is_none())?;
    let (id, state) = (&child.task_id, child.process_state);
    Some(format!("{}: gave up the undo of {part}, whose child task {id} is {state}", task.task_id))
}

/// Final check: the states of a part's child tasks match the state of the task.
pub(super) fn check_final(part: &Part, expected: TaskExpectations<'_>) -> Option<String> {
    let step = expected.model.step(&part.step)?;
    if !matches!(step.work, WorkPlan::Child(_)) {
        return None;
    }
    let children: Vec<_> = expected.oracle.child_tasks_of_part(expected.id(), part).collect();
    let touched = children.iter().any(|child| has_commands(child));
    let states = || {
        let states = children.iter().map(|c| format!("{} {}", c.task_id, c.process_state));
        states.collect::<Vec<_>>().join(", ")
    };
    match expected.task.process_state {
        ProcessState::Processed if !touched && !expected.is_decided_by_operator(part) => {
            let standing: Vec<_> =
                children.iter().filter(|c| c.process_state != ProcessState::Undone).collect();
            let done = matches!(standing.as_slice(),
                [one] if one.process_state == ProcessState::Processed);
            (!done)
                .then(|| format!("Processed, but the child tasks of step {part} are: {}", states()))
        }
        ProcessState::Undone
            if !expected.oracle.is_decided_by_operator(expected.id(), part, Action::Undo) =>
        {
            let undone = children.iter().all(|c| c.process_state == ProcessState::Undone);
            (!undone)
                .then(|| format!("Undone, but the child tasks of step {part} are: {}", states()))
        }
        ProcessState::Pending
        | ProcessState::Processing
        | ProcessState::Undoing
        | ProcessState::Processed
        | ProcessState::Undone
        | ProcessState::Error => None,
    }
}
