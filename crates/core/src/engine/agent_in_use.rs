//! The agent that a part uses, if its step has several.
//!
//! Agents in order: the part moves on to the next agent only after a reply that is certain that no delivery of the
//! request ran the step or will run it. As soon as an attempt may have run, the part stays with its agent, because services
//! do not share idempotency keys. After the last agent the part waits, and starts again with the first.
//!
//! An agent by expression: it is chosen when the first request is rendered, and again only after an edit of the input.
//!
//! In both cases the undo goes to the agent of the run.

use crate::{
    definition::{
        plan::{CompiledStep, Plan},
        step_agents::StepAgents,
    },
    engine::{decision_input::DecisionInput, graph, task_change::TaskChange, values::ValueError},
    limits,
    model::{
        attempt::{Action, AttemptId},
        messages::{CallbackOutcome, ReplyOutcome, StepReply},
        names::{AgentName, Part},
        step::{StepState, StrayEffect},
        task::Task,
    },
};

/// Chooses the agent of a part by the expression of its step, and records it. The undo goes to the same agent, so it is
/// not chosen again.
pub(crate) fn choose(change: &mut TaskChange<'_>, part: &Part) -> Result<(), ValueError> {
    let agents = change.plan().step(&part.step).agents();
    let Some(choice) = agents.and_then(StepAgents::choice) else { return Ok(()) };
    if change.task.progress(part, Action::Do).is_none_or(|run| run.agent.is_some()) {
        return Ok(());
    }
    let template = &choice.choose;
    let values = change.sources().values_for_part(part, Action::Do, [template].into_iter())?;
    let name = template.render(values.scope()).map_err(|error| error.to_string())?;
    let position = choice.position(&name)?;
    if let Some(run) = change.task.progress_mut(part, Action::Do) {
        run.agent = Some(position);
    }
    Ok(())
}

/// Whether another agent may run the step: it has several that are tried in order, and no attempt may have run.
pub(crate) fn may_change(change: &TaskChange<'_>, attempt: &AttemptId) -> bool {
    let falls_back = |agents: &StepAgents| attempt.action == Action::Do && agents.falls_back();
    let agents = change.plan().step(&attempt.step.step).agents();
    let progress = change.task.progress(&attempt.step, attempt.action);
    agents.is_some_and(falls_back)
        && progress
            .is_some_and(|progress| !progress.may_have_run && !progress.second_delivery_may_act)
}

/// Moves on to the next agent, which gets a request at once. Returns its name. If there is none, the step has to wait, and
/// starts again with the first.
pub(crate) fn move_on<'a>(
    change: &mut TaskChange<'a>,
    attempt: &AttemptId,
) -> Option<&'a AgentName> {
    let agents = change.plan().step(&attempt.step.step).agents()?;
    let now = change.now();
    let progress = change.task.progress_mut(&attempt.step, attempt.action)?;
    let next = agents.next(progress.agent);
    progress.use_agent(next);
    let name = agents.at(Some(next?))?;
    progress.state = StepState::waiting(Some(attempt.number), now);
    Some(name)
}

/// Whether the reply is to an attempt with another idempotency key than the step uses now.
pub(crate) fn is_of_earlier_key(task: &Task, reply: &StepReply) -> bool {
    let since = task.progress(&reply.step, Action::Do).and_then(|progress| progress.key_since);
    reply.action == Action::Do && since.is_some_and(|since| (1..since).contains(&reply.attempt))
}

/// Whether the reply to an attempt with an earlier key shows that it ran the step, or may have, although it counts as one
/// that did not. A redelivery of the reply shows nothing new.
pub(crate) fn reveals_stray_effect(input: &DecisionInput<'_, '_>, reply: &StepReply) -> bool {
    let plan = input.inputs.plan;
    let is_refused = is_newest_refusal(input.task, plan, reply);
    let agents = plan.find(&reply.step.step).and_then(CompiledStep::agents);
    // Agents that are tried in order get exclusive requests: one delivery acts. So the task already knows that this attempt may
    // have run, and an operator has decided about it.
    let is_exclusive = agents.is_some_and(StepAgents::falls_back) && !is_refused;
    let proves = match reply.outcome {
        // The call of a step with a callback only begins it, so its completion says no more than that it may have run.
        ReplyOutcome::Completed { .. } => !is_exclusive || !awaits_callback(plan, reply),
        ReplyOutcome::Unknown { .. } => !is_exclusive,
        ReplyOutcome::Failed { may_have_run, .. } => may_have_run && is_refused,
        ReplyOutcome::Deferred { .. } => false,
    };
    let completed = is_completed(reply);
    let says_more = |known: &StrayEffect| completed && !known.completed;
    let known =
        input.task.progress(&reply.step, Action::Do).map(|progress| &*progress.stray_effects);
    let known = known.unwrap_or_default();
    let same = known.iter().find(|known| known.attempt == reply.attempt);
    // Below the attempts that are kept, one may have been dropped.
    let may_be_dropped = known.len() >= limits::STRAY_EFFECTS_MAX
        && known.iter().all(|known| known.attempt > reply.attempt);
    proves && !may_be_dropped && same.is_none_or(says_more)
}

fn is_completed(reply: &StepReply) -> bool {
    matches!(reply.outcome, ReplyOutcome::Completed { .. })
}

/// The last attempt before an edit of the input, if an answer to a callback with the token of that time shows that it took effect,
/// and this is not known yet. An answer that the step failed does not count: the task knew it, or nothing is left.
pub(crate) fn refused_before_edit(
    task: &Task,
    step: &Part,
    answer: &CallbackOutcome,
) -> Option<u32> {
    let progress = task.progress(step, Action::Do)?;
    let attempt = progress.key_since?.checked_sub(1).filter(|attempt| *attempt > 0)?;
    let is_known = |known: &StrayEffect| known.attempt == attempt && known.completed;
    let is_news = !progress.stray_effects.iter().any(is_known);
    (matches!(answer, CallbackOutcome::Completed { .. }) && is_news).then_some(attempt)
}

/// Whether the attempt of the reply was the last one at the agent before, and that agent refused it.
fn is_newest_refusal(task: &Task, plan: &Plan, reply: &StepReply) -> bool {
    let Some(progress) = task.progress(&reply.step, Action::Do) else { return false };
    let Some(agents) = plan.find(&reply.step.step).and_then(CompiledStep::agents) else {
        return false;
    };
    // At the agent in use, there was an edit of the input in between.
    let is_elsewhere = reply.agent.is_none() || agents.at(progress.agent) != reply.agent.as_ref();
    agents.falls_back()
        && is_elsewhere
        && progress.key_since.and_then(|since| since.checked_sub(1)) == Some(reply.attempt)
}

fn awaits_callback(plan: &Plan, reply: &StepReply) -> bool {
    plan.find(&reply.step.step).is_some_and(|step| step.callback().is_some())
}

/// Whether an earlier delivery of this deferral has started the newest attempt, at the next agent.
pub(crate) fn has_moved_on(task: &Task, reply: &StepReply) -> bool {
    let next = reply.attempt.checked_add(1);
    let progress = task.progress(&reply.step, reply.action);
    matches!(reply.outcome, ReplyOutcome::Deferred { certain: true, .. })
        && progress.is_some_and(|progress| {
            progress.key_since == next && progress.state.newest_attempt() == next
        })
}

/// Records that an earlier agent ran a step, or may have. The undo of the step does not revert that, so the task stops in Error,
/// also if it had ended, and an operator decides before the step is tried again.
pub(crate) fn record_stray_reply(change: &mut TaskChange<'_>, reply: &StepReply) {
    let StepReply { step, attempt, agent, outcome, .. } = reply;
    if !matches!(outcome, ReplyOutcome::Completed { may_continue: false, .. }) {
        change.block_undo_on_call_started_by(change.now(), step, Action::Do);
    }
    let effect = StrayEffect::new(*attempt, is_completed(reply));
    record_stray_effect(change, step, effect, agent.as_ref());
}

/// Records a stray effect, which stops the task in Error. `agent` is the one that reported it.
pub(crate) fn record_stray_effect(
    change: &mut TaskChange<'_>,
    step: &Part,
    stray: StrayEffect,
    agent: Option<&AgentName>,
) {
    let plan = change.plan();
    let agents = plan.step(&step.step).agents();
    let Some(progress) = change.task.progress_mut(step, Action::Do) else { return };
    // Another delivery of a deferred request may still make a call.
    let deferred = progress.state.deferred_by();
    if matches!(progress.state, StepState::Waiting { .. }) {
        progress.state = StepState::Failed { attempt: progress.state.newest_attempt() };
    }
    progress.add_stray_effect(stray);
    let attempt = stray.attempt;
    let in_use = agents.and_then(|agents| agents.at(progress.agent));
    let has_earlier_key = progress.key_since.is_some_and(|since| attempt < since);
    let earlier = match agent {
        _ if progress.completed_by_hand.is_some() && !has_earlier_key => BY_HAND.to_owned(),
        Some(agent) if in_use != Some(agent) => format!("at {agent}"),
        None if agents.is_some_and(|agents| agents.names().len() > 1) => ANOTHER.to_owned(),
        Some(_) | None => BEFORE_EDIT.to_owned(),
    };
    let effect = format!("attempt {attempt} may have run {earlier}");
    // What an operator needs first is not cut off.
    let reason = match agents.filter(|agents| agents.falls_back()) {
        _ if plan.step(&step.step).undo().is_none() => format!("step {step}: {effect}"),
        Some(agents) => {
            let undone_by = agents.shown(progress.agent);
            format!("step {step}: the undo goes to {undone_by}, but {effect}")
        }
        // The idempotency key has changed with an edit of the input.
        None => format!("step {step}: the undo does not revert its earlier call: {effect}"),
    };
    if let Some(complete_by) = deferred {
        change.block_undo_on_call_started_by(complete_by, step, Action::Do);
    }
    change.task.undo_is_final = graph::is_undo_final(&change.task);
    change.fail_task_again(&reason);
}

/// Where an attempt may have run: at an agent whose name is not known.
const ANOTHER: &str = "at another agent";

/// At the agent in use, under another key.
const BEFORE_EDIT: &str = "with the input before its edit";

/// Although an operator completed the step in another way.
const BY_HAND: &str = "beside its completion by hand";

#[cfg(test)]
mod tests;
