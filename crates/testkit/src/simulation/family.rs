//! What the oracle holds against what tasks say to each other: submissions for steps, tasks recorded
//! for them, and what those say of their end.

use jiff::Timestamp;
use serde_json::Value;
use steward_core::model::{
    attempt::Action,
    messages::{ChildEnded, ChildOutcome, Submission},
    names::Part,
    step::{Progress, StepState},
    task::{ProcessState, Task},
};

use super::{
    blueprint::WorkPlan,
    ledger::Ledger,
    oracle::{Oracle, describe, is_edited, is_final, is_touched},
    plan::since_start,
    sense::Sense,
};

/// A task was submitted for a step: what is sent must have been stored, and is always the same.
pub(super) fn submitted(oracle: &mut Oracle, ledger: &Ledger, body: &str) -> Option<String> {
    let Ok(submission) = serde_json::from_str::<Submission>(body) else {
        return Some(format!("a submission that cannot be read: {body}"));
    };
    let Some(parent) = &submission.parent else {
        return Some(format!("a submission for nobody: {body}"));
    };
    let action = if submission.undo { Action::Undo } else { Action::Do };
    let of = describe(&parent.task_id, &parent.step, action);
    let of_life = (submission.task_id.clone(), parent.incarnation);
    let known = oracle.submitted.get(&of_life);
    if known.is_some_and(|known| *known != submission.input) {
        return Some(format!("{of}: submits {} with other content", submission.task_id));
    }
    oracle.submitted.insert(of_life, submission.input.clone());
    let Some(sense) = Sense::of(oracle, ledger, &parent.task_id) else {
        return Some(format!("{of}: submits a task, and there is none that it is for"));
    };
    let stored = sense.task.progress(&parent.step, action);
    if stored.is_none_or(|progress| progress.state.attempt() == 0) {
        return Some(format!("{of}: its task was submitted before it was saved"));
    }
    if submission.undo && submission.input.is_null() && sense.is_by_hand(&parent.step) {
        return None;
    }
    let amount = amount(&parent.step, sense)?;
    (submission.input.get("amount") != Some(&amount))
        .then(|| format!("{of}: its task was submitted with {}", submission.input))
}

/// The amount that a step's task is submitted with, if it can be told.
fn amount(part: &Part, sense: Sense<'_>) -> Option<Value> {
    let step = sense.graph.step(&part.step)?;
    match part.item {
        Some(place) => sense.items(step).is()??.get(place as usize).cloned(),
        None if is_edited(sense.task) => None,
        None => sense.oracle.input(sense.task)?.get("amount").cloned(),
    }
}

/// A step's task was recorded: one of the right workflow, for a step that ought to run, and not more at
/// once than may be.
pub(super) fn recorded(oracle: &Oracle, ledger: &Ledger, task: &Task) -> Vec<String> {
    let Some(parent) = &task.parent else { return Vec::new() };
    let part = &parent.step;
    let of = describe(&parent.task_id, part, Action::Do);
    let Some(sense) = Sense::of(oracle, ledger, &parent.task_id) else {
        return vec![format!("{of}: a task was recorded for no task")];
    };
    let mut found = Vec::new();
    let Some(step) = sense.graph.step(&part.step) else {
        return vec![format!("{of}: no such step")];
    };
    if !matches!(step.work, WorkPlan::Child(name) if name == task.workflow.as_str()) {
        found.push(format!("runs {}", task.workflow));
    }
    let id = task.task_id.as_str();
    let item = part.item.map(|place| format!(":{place}")).unwrap_or_default();
    if !id.starts_with(&format!("{}:{}{item}", parent.task_id, part.step)) {
        found.push(format!("its task is {id}"));
    }
    // Of what was never to be done, nothing is begun.
    if !is_final(task) {
        found.extend(sense.ought_not(part));
        let under_way = oracle
            .children_of(&parent.task_id)
            .filter(|(other, child)| other.step == part.step && *other != part && !is_final(child));
        let count = under_way.count() + 1;
        let at_once = step.each.as_ref().map_or(1, |each| each.at_once);
        if count > at_once && !is_touched(sense.task) {
            found.push(format!("{count} of its tasks are under way; at once only {at_once}"));
        }
    }
    found.into_iter().map(|finding| format!("{of}: {finding}")).collect()
}

/// A task says how it ended: it has, and it may have returned that.
pub(super) fn told(oracle: &Oracle, ledger: &Ledger, ended: &ChildEnded) -> Option<String> {
    let parent = oracle.tasks.get(&ended.task_id);
    let is_another = |parent: &Task| {
        let incarnations = parent.incarnation.zip(ended.incarnation);
        incarnations.is_some_and(|(own, named)| own != named)
    };
    if parent.is_some_and(is_another) {
        // It ran for an earlier task with the same id.
        return None;
    }
    let of = describe(&ended.task_id, &ended.step, Action::Do);
    let children: Vec<_> = oracle.children(&ended.task_id, &ended.step).collect();
    let stands = |state: ProcessState| children.iter().any(|child| child.process_state == state);
    match &ended.outcome {
        ChildOutcome::Processed { output } => {
            let may = |child: &&Task| {
                let sense = Sense::of(oracle, ledger, &child.task_id);
                sense.is_some_and(|sense| sense.may_result_in(output))
            };
            (!children.iter().any(may))
                .then(|| format!("{of}: its task cannot have returned {output}"))
        }
        ChildOutcome::Undone { .. } => (!stands(ProcessState::Undone))
            .then(|| format!("{of}: its task is not Undone, and said so")),
        ChildOutcome::Error { .. } | ChildOutcome::Refused { .. } => None,
    }
}

/// No step is given up whose task ended well, once nothing is lost any more.
pub(super) fn given_up(
    oracle: &Oracle,
    task: &Task,
    (part, progress, reason): (&Part, &Progress, Option<&str>),
    now: Timestamp,
) -> Option<String> {
    let silent = reason.is_some_and(|reason| reason.starts_with("no reply"));
    let goes_on = matches!(progress.state, StepState::Waiting { .. } | StepState::Failed { .. });
    if !silent || !goes_on || task.undo_reason.is_some() || is_touched(task) {
        return None;
    }
    let ended = oracle.children(&task.task_id, part).find_map(|child| {
        let done = child.process_state == ProcessState::Processed && !is_touched(child);
        child.ended_at.filter(|ended| done && since_start(*ended) > oracle.storm_until)
    })?;
    let quiet = now.duration_since(ended).as_secs() > 60;
    quiet.then(|| "was given up, and its task has ended well".to_owned())
}

/// No task runs out of time while it is undone, unless it asked the tasks of its steps for the same; if
/// it began once nothing was lost any more.
pub(super) fn not_undone(oracle: &Oracle, before: &Task, task: &Task) -> Option<String> {
    let overdue = task.error.as_deref() == Some("the task was not undone by its complete-by");
    let within = oracle.graph(&task.task_id)?.blueprint.complete_within;
    let began = since_start(task.complete_by).checked_sub(within)?;
    let known = before.process_state == task.process_state || is_touched(task);
    if !overdue || known || began < oracle.storm_until {
        return None;
    }
    let asks = |part: &Part| {
        let undo = task.progress(part, Action::Undo);
        undo.is_some_and(|undo| !matches!(undo.state, StepState::Completed { .. }))
    };
    let mut children = oracle.children_of(&task.task_id);
    let (part, child) = children.find(|(part, child)| asks(part) && child.undo_reason.is_none())?;
    let (id, state) = (&child.task_id, child.process_state);
    Some(format!("{}: gave up the undo of {part}, whose task {id} is {state}", task.task_id))
}

/// At the end: what ran for a part has come to what the part has.
pub(super) fn judge(part: &Part, sense: Sense<'_>) -> Option<String> {
    let step = sense.graph.step(&part.step)?;
    if !matches!(step.work, WorkPlan::Child(_)) {
        return None;
    }
    let children: Vec<_> = sense.oracle.children(sense.id(), part).collect();
    let touched = children.iter().any(|child| is_touched(child));
    let states = || {
        let states = children.iter().map(|c| format!("{} {}", c.task_id, c.process_state));
        states.collect::<Vec<_>>().join(", ")
    };
    match sense.task.process_state {
        ProcessState::Processed if !touched && !sense.is_by_hand(part) => {
            let standing: Vec<_> =
                children.iter().filter(|c| c.process_state != ProcessState::Undone).collect();
            let done = matches!(standing.as_slice(),
                [one] if one.process_state == ProcessState::Processed);
            (!done).then(|| format!("Processed, and the tasks of step {part} are: {}", states()))
        }
        ProcessState::Undone if !sense.oracle.is_by_hand(sense.id(), part, Action::Undo) => {
            let undone = children.iter().all(|c| c.process_state == ProcessState::Undone);
            (!undone).then(|| format!("Undone, and the tasks of step {part} are: {}", states()))
        }
        ProcessState::Pending
        | ProcessState::Processing
        | ProcessState::Undoing
        | ProcessState::Processed
        | ProcessState::Undone
        | ProcessState::Error => None,
    }
}
