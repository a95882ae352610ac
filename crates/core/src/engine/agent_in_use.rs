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
    definition::{plan::CompiledStep, step_agents::StepAgents},
    engine::{decision_input::DecisionInput, task_change::TaskChange, values::ValueError},
    limits,
    model::{
        attempt::{Action, AttemptId},
        messages::{ReplyOutcome, StepReply},
        names::{AgentName, Part},
        step::StepState,
        task::{ProcessState, Task},
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
    agents.is_some_and(falls_back) && progress.is_some_and(|progress| !progress.may_have_run)
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

/// Whether the reply shows that an agent ran the step, or may have, although the step has moved on to another agent because
/// the first certainly would not run it.
pub(crate) fn contradicts_refusal(case: &DecisionInput<'_, '_>, reply: &StepReply) -> bool {
    let progress = case.task.progress(&reply.step, Action::Do);
    let since = progress.and_then(|progress| progress.agent_since);
    let is_of_earlier_agent = since.is_some_and(|since| (1..since).contains(&reply.attempt));
    let agents = case.inputs.plan.find(&reply.step.step).and_then(CompiledStep::agents);
    // The newest refusal. An attempt before it may have failed, and an operator repeated it: then a failure of another
    // delivery says nothing new. The same holds for a request to a chosen agent, which is not exclusive.
    let is_refused = since.and_then(|since| since.checked_sub(1)) == Some(reply.attempt)
        && agents.is_some_and(StepAgents::falls_back);
    let proves = match reply.outcome {
        ReplyOutcome::Completed { .. } | ReplyOutcome::Unknown { .. } => true,
        ReplyOutcome::Failed { .. } | ReplyOutcome::Deferred { .. } => {
            reply.outcome.may_have_run() && is_refused
        }
    };
    reply.action == Action::Do && is_of_earlier_agent && proves
}

/// Whether an earlier delivery of this deferral may have started the newest attempt, at the next agent.
pub(crate) fn may_have_moved_on(task: &Task, reply: &StepReply) -> bool {
    let progress = task.progress(&reply.step, reply.action);
    matches!(reply.outcome, ReplyOutcome::Deferred { certain: true, .. })
        && progress
            .is_some_and(|progress| reply.attempt.checked_add(1) == progress.state.newest_attempt())
}

/// Records that an agent ran a step, or may have, although it had certainly refused an earlier attempt, and the step has
/// moved on to another agent since. Two services may have run the step, so the task stops in Error, also if it had ended.
pub(crate) fn record_contradiction(change: &mut TaskChange<'_>, reply: &StepReply) {
    let StepReply { step, attempt, agent, .. } = reply;
    let Some(progress) = change.task.progress_mut(step, Action::Do) else { return };
    progress.may_have_run = true;
    // A redelivery of the reply is not recorded again.
    progress.agent_since = Some(*attempt);
    let position = progress.agent;
    let agents = change.plan().step(&step.step).agents();
    let in_use = agents.and_then(|agents| agents.at(position)).map(AgentName::as_str);
    let by = agent.as_ref().map_or("another agent", AgentName::as_str);
    let reason = format!(
        "step {step} may have run at {}, and also at {by}, which had refused attempt {attempt}",
        in_use.unwrap_or("another agent")
    );
    let earlier = change.task.error.take().map(|error| format!("{error}; "));
    let reason = format!("{}{reason}", earlier.unwrap_or_default());
    change.task.process_state = ProcessState::Error;
    change.task.error = Some(limits::short_line(&reason, limits::ERROR_CHARS_MAX));
    change.reports_end_again = true;
}

#[cfg(test)]
mod tests;
