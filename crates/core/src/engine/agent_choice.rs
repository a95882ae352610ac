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
    definition::step_agents::StepAgents,
    engine::{task_change::TaskChange, values::ValueError},
    model::{
        attempt::{Action, AttemptId},
        names::{AgentName, Part},
        step::{StepRecord, StepState},
    },
};

/// Chooses the agent of a part by the expression of its step, and records it. The undo goes to the same agent, so it is
/// not chosen again.
pub(crate) fn choose(
    change: &mut TaskChange<'_>,
    part: &Part,
    action: Action,
) -> Result<(), ValueError> {
    let step = change.plan().step(&part.step);
    let undo = step.definition.undo.as_ref().filter(|_| action == Action::Undo);
    if undo.is_some_and(|undo| undo.agent.is_some()) {
        return Ok(());
    }
    let agents = step.agents();
    let Some(choice) = agents.and_then(StepAgents::choice) else { return Ok(()) };
    let is_chosen =
        |record: &StepRecord| record.forward.agent.is_some() || record.key_of_undo().is_some();
    if change.task.record(part).is_none_or(is_chosen) {
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
    let record = change.task.record(&attempt.step);
    agents.is_some_and(falls_back)
        && record.is_some_and(|record| {
            let StepRecord { forward, .. } = record;
            !forward.may_have_run && !forward.second_delivery_may_act && !record.has_stray_effect()
        })
}

/// Moves on to the next agent, which gets a request at once. Returns its name. If there is none, the step has to wait, and
/// starts again with the first.
pub(crate) fn move_on<'a>(
    change: &mut TaskChange<'a>,
    attempt: &AttemptId,
) -> Option<&'a AgentName> {
    let agents = change.plan().step(&attempt.step.step).agents()?;
    let now = change.now();
    let record = change.task.part_record_mut(&attempt.step)?;
    let next = agents.next(record.forward.agent);
    record.change_key(next, record.forward.input_edit_id.clone());
    let name = agents.at(Some(next?))?;
    record.forward.state = StepState::waiting(Some(attempt.number), now);
    Some(name)
}
