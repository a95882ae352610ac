//! Effects that come to light late: of a request that was recorded as one that did not run the step, or that had another
//! idempotency key.
//!
//! A message first says what is known of a key ([`learn`](StepRecord::learn)). Then [`judge`] decides what the task does about
//! it:
//!
//! | the task | then |
//! | --- | --- |
//! | runs forward, has completed, or is in Error; the key is not in use | the task stops in Error, with an alert, before the effect becomes two |
//! | runs forward; the key is in use | the next attempt has the same key |
//! | is being undone | the effect is undone too |
//! | is in Error, and was being undone | another alert, which names the step |
//! | is Undone, and the step has an undo | it is undone further |
//! | is Undone, and the step has no undo; or is being undone, and the step is the point of no return | the effect remains: Error |
//! | goes forward or has completed, and the step was skipped | the effect is not accounted for: Error |
//! | has the step completed by an operator | only an operator can tell the two effects apart: Error |

use serde_json::Value;

use crate::{
    definition::plan::CompiledStep,
    engine::{
        advance::advance,
        decision_input::{DecisionInput, PendingDecision},
        graph, outcome,
        redelivery::may_have_started_next,
        request::{child_id_of_edit, size_error},
        task_change::TaskChange,
    },
    model::{
        attempt::{Action, AttemptId},
        command::CommandId,
        document::{Document, DocumentKey},
        earlier_key::{EarlierKey, News, Ran, Report},
        messages::{ChildOutcome, ReplyOutcome, StepReply},
        names::{Part, TaskId},
        step::StepState,
        task::ProcessState,
    },
};

/// An earlier key of a part, and what a message says about it.
struct Fact<'e> {
    part: &'e Part,
    /// The first attempt with the key.
    since: u32,
    attempt: u32,
    ran: Ran,
    /// The output, if it ran the step.
    output: Option<&'e Value>,
    /// Whether a call with the key may be in progress.
    may_continue: bool,
    /// The revision of the child task that reports it.
    revision: Option<u64>,
}

/// Decides on a reply to an attempt with another idempotency key: at an agent that the step does not use any more, or before an
/// edit of the input. `None` if the key is in use.
pub(crate) fn reply_of_earlier_key<'a>(
    input: &DecisionInput<'a, '_>,
    reply: &StepReply,
) -> Option<PendingDecision<'a>> {
    let StepReply { step: part, action, attempt, outcome, agent, .. } = reply;
    let step = input.inputs.plan.find(&part.step).filter(|step| !step.awaits_event())?;
    let record = input.task.record(part).filter(|_| *action == Action::Do)?;
    let position = agent.as_ref().and_then(|agent| step.agents()?.position(agent));
    let key = record.earlier_key_of(*attempt, position)?;
    let begins_callback = step.callback().is_some();
    let (ran, output) = match outcome {
        // The call of a step with a callback only begins it.
        ReplyOutcome::Completed { .. } if begins_callback => (Ran::Maybe, None),
        ReplyOutcome::Completed { output, .. } => (Ran::Yes, Some(output)),
        _ if outcome.has_call_in_doubt() => (Ran::Maybe, None),
        // A second refusal says no more than the first, except of an agent of which one delivery alone calls.
        ReplyOutcome::Failed { may_have_run: true, .. } if is_exclusive(step) => (Ran::Maybe, None),
        ReplyOutcome::Failed { .. }
        | ReplyOutcome::Deferred { .. }
        | ReplyOutcome::Unknown { .. } => (Ran::No, None),
    };
    let may_continue = !matches!(outcome, ReplyOutcome::Completed { may_continue: false, .. });
    let (since, attempt, revision) = (key.since, *attempt, None);
    let fact = Fact { part, since, attempt, ran, output, may_continue, revision };
    Some(record_fact(input, &fact).unwrap_or_else(|| {
        if may_have_started_next(input.task, reply) {
            input.stale_and_own_next(part, *action)
        } else {
            input.stale(part, *action)
        }
    }))
}

/// Decides on an answer to a callback whose token is from before an edit of the input. An answer that the step failed does not
/// count: the task knew it, or nothing is left. `None` if it shows nothing new.
pub(crate) fn callback_of_earlier_key<'a>(
    input: &DecisionInput<'a, '_>,
    part: &Part,
    edit: Option<&CommandId>,
    output: &Value,
) -> Option<PendingDecision<'a>> {
    let of_edit = |key: &&EarlierKey| key.input_edit_id.as_ref() == edit;
    let key = input.task.record(part)?.other_keys().filter(of_edit).max_by_key(|key| key.since)?;
    let (since, attempt, output) = (key.since, key.since, Some(output));
    let (ran, may_continue, revision) = (Ran::Yes, true, None);
    let fact = Fact { part, since, attempt, ran, output, may_continue, revision };
    record_fact(input, &fact)
}

/// The earlier key of a part for which this child task ran: before an edit of the input.
pub(crate) fn key_of_child<'t>(
    input: &DecisionInput<'_, 't>,
    part: &Part,
    child: &TaskId,
) -> Option<&'t EarlierKey> {
    let ran_for = |key: &&EarlierKey| {
        let id = child_id_of_edit(input.task, part, key.input_edit_id.as_ref());
        id.is_ok_and(|id| id == *child)
    };
    input.task.record(part)?.other_keys().find(ran_for)
}

/// Decides on the report of a child task that ran before an edit of the input.
pub(crate) fn report_of_earlier_child<'a>(
    input: &DecisionInput<'a, '_>,
    part: &Part,
    key: &EarlierKey,
    outcome: &ChildOutcome,
    revision: Option<u64>,
) -> PendingDecision<'a> {
    let LateReport { ran, output, may_continue } = LateReport::of_child(outcome);
    let (since, attempt) = (key.since, key.since);
    // A refusal is about one submission of it.
    let revision = revision.filter(|_| !matches!(outcome, ChildOutcome::Refused { .. }));
    let fact = Fact { part, since, attempt, ran, output, may_continue, revision };
    record_fact(input, &fact).unwrap_or_else(|| input.stale(part, Action::Do))
}

/// Whether one delivery of a request alone acts, because another agent may follow.
fn is_exclusive(step: &CompiledStep) -> bool {
    step.agents().is_some_and(|agents| agents.falls_back())
}

/// Records a fact about an earlier key. `None` if it shows no effect that was not known.
fn record_fact<'a>(input: &DecisionInput<'a, '_>, fact: &Fact<'_>) -> Option<PendingDecision<'a>> {
    let Fact { part, since, attempt, ran, output, may_continue, revision } = fact;
    let mut change = input.change();
    let storable = output.filter(|output| size_error("output", output).is_none());
    let record = change.task.part_record_mut(part)?;
    let (attempt, ran, revision) = (*attempt, *ran, *revision);
    match record.learn(*since, Report { attempt, ran, has_output: storable.is_some(), revision }) {
        News::None => return None,
        News::Recorded => {
            advance(&mut change);
            return Some(PendingDecision::Change(change));
        }
        News::Effect => {}
    }
    // Another delivery of a deferred request may still make a call.
    let deferred = record.forward.state.deferred_by();
    if let Some(output) = storable {
        let step = (*part).clone();
        let key = DocumentKey::Output(AttemptId { step, action: Action::Do, number: attempt });
        change.documents.push(Document::new(key, change.now(), output.clone()));
    }
    if *may_continue {
        change.block_undo_on_call_started_by(change.now(), part, Action::Do);
    }
    if let Some(complete_by) = deferred {
        change.block_undo_on_call_started_by(complete_by, part, Action::Do);
    }
    let place = place_of_key(&change, part, *since);
    let ran = if ran == Ran::Yes { "ran" } else { "may have run" };
    judge(&mut change, part, &format!("step {part}: attempt {attempt} {ran} {place} too"));
    Some(PendingDecision::Change(change))
}

/// Where a request with an earlier key ran: its agent, or its input.
fn place_of_key(change: &TaskChange<'_>, part: &Part, since: u32) -> String {
    let record = change.task.record(part);
    let key = record.and_then(|record| record.earlier.iter().find(|key| key.since == since));
    let (Some(record), Some(key)) = (record, key) else { return String::new() };
    let agents = change.plan().step(&part.step).agents();
    let agent = agents.and_then(|agents| agents.at(key.agent));
    match agent.filter(|_| key.agent != record.forward.agent) {
        Some(agent) => format!("at {agent}"),
        None => "with the input before its edit".to_owned(),
    }
}

/// What a message says about the key in use, which the part does not await.
pub(crate) struct LateReport<'r> {
    pub(crate) ran: Ran,
    /// The output, if it ran the step.
    pub(crate) output: Option<&'r Value>,
    /// Whether a call may be in progress.
    pub(crate) may_continue: bool,
}

impl<'r> LateReport<'r> {
    /// What the end of a child says.
    pub(crate) fn of_child(outcome: &'r ChildOutcome) -> Self {
        let (ran, output) = match outcome {
            ChildOutcome::Processed { output } => (Ran::Yes, Some(output)),
            ChildOutcome::Error { .. } => (Ran::Maybe, None),
            ChildOutcome::Undone { .. } | ChildOutcome::Refused { .. } => (Ran::No, None),
        };
        Self { ran, output, may_continue: false }
    }
}

/// Records that a request with the key in use took effect, or may have, although the part counts as one that did not run:
/// its request was delivered twice. A repeated message shows nothing new.
pub(crate) fn late_effect<'a>(
    input: &DecisionInput<'a, '_>,
    part: &Part,
    report: &LateReport<'_>,
) -> PendingDecision<'a> {
    let mut change = input.change();
    match record_late_effect(&mut change, part, report) {
        true => PendingDecision::Change(change),
        false => input.duplicate(part),
    }
}

/// The same for a change that has begun. Returns whether the effect was not known.
pub(crate) fn record_late_effect(
    change: &mut TaskChange<'_>,
    part: &Part,
    report: &LateReport<'_>,
) -> bool {
    let Some(record) = change.task.part_record_mut(part) else { return false };
    let is_news = record.learn_of_key_in_use(report.ran);
    let beside = match record.forward.completed_by_hand {
        Some(_) => ", and an operator completed it",
        None => ", and so did, or may have, an earlier attempt with another idempotency key",
    };
    let completes = report.output.is_some_and(|output| complete_open(change, part, output));
    if !is_news && !completes {
        return false;
    }
    if report.may_continue {
        change.block_undo_on_call_started_by(change.now(), part, Action::Do);
    }
    if is_news {
        judge(change, part, &format!("step {part} took effect{beside}"));
    } else {
        advance(change);
    }
    true
}

/// Completes a part that ran after all and has failed or goes on with the same key: later steps, or its undo, may read its output,
/// and no operator can end it in another way. Returns whether it is completed.
fn complete_open(change: &mut TaskChange<'_>, part: &Part, output: &Value) -> bool {
    let record = change.task.record(part);
    let Some(record) = record.filter(|record| !record.undo_of_key_in_use_has_begun()) else {
        return false;
    };
    let number = match &record.forward.state {
        StepState::Running { attempt, .. } => Some(*attempt),
        StepState::Waiting { attempt, .. } | StepState::Failed { attempt } => *attempt,
        StepState::AwaitingCallback { .. }
        | StepState::RunningItems
        | StepState::Completed { .. }
        | StepState::Skipped { .. } => None,
    };
    let Some(number) = number.filter(|_| size_error("output", output).is_none()) else {
        return false;
    };
    let attempt = AttemptId { step: part.clone(), action: Action::Do, number };
    // The newest attempt may be calling.
    outcome::block_undo_on_call(change, &attempt);
    outcome::complete(change, attempt, output, None);
    true
}

/// Decides what the task does about an effect that came to light. `effect` describes it, if the task has to stop.
pub(crate) fn judge(change: &mut TaskChange<'_>, part: &Part, effect: &str) {
    let Some(record) = change.task.record(part) else { return };
    let is_beside = record.ran_beside_completion();
    let is_skipped = matches!(record.forward.state, StepState::Skipped { .. });
    let has_other_key = record.has_stray_effect();
    let is_undone = change.task.process_state == ProcessState::Undone;
    let undo_has_failed =
        change.task.process_state == ProcessState::Error && change.task.direction() == Action::Undo;
    let step = change.plan().step(&part.step);
    let remains = match step.definition.point_of_no_return {
        true => graph::is_undo_final(&change.task),
        false => is_undone && step.undo().is_none(),
    };
    if remains || undo_has_failed {
        change.task.undo_is_final |= remains;
        let end = if is_undone { "task was undone" } else { "undo began" };
        change.fail_task_again(&format!("step {part} took effect after the {end}"));
    } else if is_skipped && change.task.direction() == Action::Do {
        change.fail_task_again(&format!("step {part} took effect, and it was skipped"));
    } else if is_beside || has_other_key && change.task.direction() == Action::Do {
        give_up_wait(change, part);
        change.fail_task_again(effect);
    } else if is_undone {
        undo_further(change);
    }
    if goes_on(change, part) {
        advance(change);
    }
}

/// Fails a part that waits for its next attempt, which would have another key.
fn give_up_wait(change: &mut TaskChange<'_>, part: &Part) {
    if let Some(run) = change.task.progress_mut(part, Action::Do)
        && let StepState::Waiting { attempt, .. } = run.state
    {
        run.state = StepState::Failed { attempt };
    }
}

/// Undoes a task further that is Undone. Nothing cancels the undo, because its client knows of it.
fn undo_further(change: &mut TaskChange<'_>) {
    change.task.undo_is_final = true;
    change.reopen();
    change.task.process_state = ProcessState::Undoing;
    change.extend_undo_deadline();
}

/// Whether the task may continue now. A part that waits for its next attempt, which has the same key, goes on when its wait
/// ends, unless it must not run twice.
fn goes_on(change: &mut TaskChange<'_>, part: &Part) -> bool {
    let state = change.task.progress(part, Action::Do).map(|progress| progress.state.clone());
    let Some(StepState::Waiting { attempt: Some(number), .. }) = state else { return true };
    if !change.plan().step(&part.step).definition.idempotent {
        let attempt = AttemptId { step: part.clone(), action: Action::Do, number };
        let reason = "it may have run, and is not retried because the step is not idempotent";
        outcome::fail(change, attempt, reason, true);
        return true;
    }
    // The wake at the end of the wait starts the next attempt. If its request is lost, it is sent again.
    change.task.process_state == ProcessState::Undoing
}

#[cfg(test)]
mod tests;
