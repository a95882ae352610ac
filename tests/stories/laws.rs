//! The laws that hold in every story, after every line.

use std::collections::BTreeMap;

use jiff::Timestamp;
use steward_core::{
    effects::Effect,
    messages::{Alert, BusEvent, StepRequest, idempotency_key},
    task::{ProcessState, Task},
    transition::Event,
    workflow::Workflow,
};

/// What every saved task keeps to.
pub(super) fn laws_of_the_task(
    before: Option<&Task>,
    after: &Task,
    effects: &[Effect],
) -> Vec<String> {
    let goes_on = !is_final(after);
    let requests = effects.iter().any(|effect| matches!(effect, Effect::Request(_)));
    let running = after.running().map(|(_, _, complete_by)| complete_by);
    let earliest = running.fold(after.complete_by, Timestamp::min);
    let failures: u32 = after.steps.values().map(|step| step.failure_count).sum();
    let stored = serde_json::to_value(after).ok();
    let again: Option<Task> = stored.and_then(|stored| serde_json::from_value(stored).ok());
    broken([
        ("a task that goes on has a due time", !goes_on || after.due.is_some()),
        (
            "due is no later than the earliest complete-by",
            !goes_on || after.due.is_some_and(|due| due <= earliest),
        ),
        ("what has ended is not locked", goes_on || after.locked_by.is_none()),
        (
            "who sends a request holds the lock",
            !(goes_on && requests) || after.locked_by.as_deref() == Some("scheduler"),
        ),
        ("a failure is counted for its step and for the task", after.failure_count == failures),
        ("a task reads back as it was saved", again.as_ref() == Some(after)),
        (
            "what was submitted stays",
            before.is_none_or(|before| submitted(before) == submitted(after)),
        ),
        (
            "an attempt follows the one before it",
            before.is_none_or(|before| attempts_grow(before, after)),
        ),
    ])
}

/// How a task ends, and that it stays so.
pub(super) fn laws_of_the_end(
    before: &Task,
    after: &Task,
    event: &Event,
    effects: &[Effect],
    now: Timestamp,
) -> Vec<String> {
    let ends = is_final(after) && !is_final(before);
    let in_error = after.process_state == ProcessState::Error;
    let count =
        |wanted: fn(&Effect) -> bool| effects.iter().filter(|effect| wanted(effect)).count();
    let alerts = count(|effect| matches!(effect, Effect::Publish(BusEvent::Alert(_))));
    let notices = count(|effect| matches!(effect, Effect::Notice { .. }));
    let stays = before.process_state == after.process_state && before.ended_at == after.ended_at;
    let was_due = ends || before.due.is_some();
    broken([
        ("a final state is final", !is_final(before) || stays),
        ("the end has a time", after.ended_at.is_some() == is_final(after)),
        ("it is the time of the decision", !ends || after.ended_at == Some(now)),
        ("Error has a reason", after.error.is_some() == in_error),
        ("Error is alerted, and nothing else is", (alerts == 1) == (in_error && ends) || !ends),
        (
            "a task in Error is due until its alert is sent",
            !in_error || !was_due || after.due.is_some() || *event == Event::AlertSent,
        ),
        ("the client hears the end", !ends || notices == usize::from(after.reply_to.is_some())),
    ])
}

/// What is sent says what is saved.
pub(super) fn laws_of_what_is_told(
    workflow: &Workflow,
    task: &Task,
    effects: &[Effect],
) -> Vec<String> {
    let ended = |at: Timestamp| Some(at) == task.ended_at;
    let is_right = |effect: &Effect| match effect {
        Effect::Request(request) => is_saved(workflow, task, request),
        Effect::Notice { notice, .. } => {
            ended(notice.at) && notice.task_id.as_deref() == Some(task.task_id.as_str())
        }
        Effect::Publish(BusEvent::Alert(Alert::TaskInError { task_id, at, .. })) => {
            ended(*at) && *task_id == task.task_id
        }
        Effect::Publish(BusEvent::TaskEnded(event)) => {
            ended(event.at) && event.task_id == task.task_id && event.version == task.version
        }
        Effect::Wake(wake) => wake.task_id == task.task_id,
        Effect::Publish(BusEvent::Alert(_)) | Effect::Reply(_) | Effect::Reject { .. } => false,
    };
    let wrong = effects.iter().filter(|effect| !is_right(effect));
    wrong
        .map(|effect| format!("what is sent says what is saved; this does not: {effect:?}"))
        .collect()
}

pub(super) fn broken<const N: usize>(laws: [(&str, bool); N]) -> Vec<String> {
    laws.into_iter().filter(|(_, holds)| !holds).map(|(law, _)| law.to_owned()).collect()
}

pub(super) fn is_final(task: &Task) -> bool {
    task.process_state.is_final()
}

/// What no decision may change.
pub(super) fn submitted(task: &Task) -> Task {
    Task {
        process_state: ProcessState::Pending,
        revision: 0,
        locked_by: None,
        failure_count: 0,
        ended_at: None,
        due: None,
        error: None,
        steps: BTreeMap::new(),
        ..task.clone()
    }
}

pub(super) fn attempts_grow(before: &Task, after: &Task) -> bool {
    let attempt = |task: &Task, step| task.steps.get(step).map_or(0, |step| step.state.attempt());
    before.steps.keys().chain(after.steps.keys()).all(|step| {
        let (old, new) = (attempt(before, step), attempt(after, step));
        new == old || new == old + 1
    })
}

/// A request is that of the attempt that runs, for the step's own agent, and repeatable.
pub(super) fn is_saved(workflow: &Workflow, task: &Task, request: &StepRequest) -> bool {
    let StepRequest { task_id, step, attempt, complete_by, idempotency_key: key, .. } = request;
    let asks = |agent, method| agent == &request.agent && method == request.method;
    *task_id == task.task_id
        && *key == idempotency_key(task_id, step)
        && workflow.steps.get(step).is_some_and(|step| asks(&step.agent, step.request.method))
        && task.running().any(|running| running == (step, *attempt, *complete_by))
}
