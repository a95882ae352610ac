//! The agent that a part uses, if its step has several.
//!
//! Agents in order: the part moves on to the next agent only after a reply that is certain that no delivery of the
//! request ran the step or will run it. As soon as an attempt may have run, the part stays with its agent, because services
//! do not share idempotency keys. After the last agent the part waits for the one that asked for the shortest pause, and goes on from
//! there. No agent gets a request before its pause is over, unless an operator resubmits the step.
//!
//! An agent by expression: it is chosen when the first request is rendered, and again only after an edit of the input.
//!
//! In both cases the undo goes to the agent of the run.

use std::{iter, time::Duration};

use crate::{
    definition::step_agents::StepAgents,
    engine::{
        task_change::{TaskChange, pause_until},
        values::ValueError,
    },
    limits,
    model::{
        attempt::{Action, AttemptId},
        names::{AgentName, Part},
        step::{AgentPause, StepRecord, StepState},
        time::later,
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

/// Moves on to the next agent in order whose pause is over, and which gets a request at once. Returns its name. If there is none,
/// returns how long the step has to wait until the first pause is over. The agent in use asked for `pause`.
pub(crate) fn move_on<'a>(
    change: &mut TaskChange<'a>,
    attempt: &AttemptId,
    pause: Duration,
) -> Result<&'a AgentName, Duration> {
    let now = change.now();
    let agents = change.plan().step(&attempt.step.step).agents();
    let (Some(agents), Some(record)) = (agents, change.task.part_record_mut(&attempt.step)) else {
        return Err(pause);
    };
    let run = &mut record.forward;
    let in_use = run.agent.unwrap_or(0);
    let others = run.agent_pauses().iter();
    let others = others.filter(|paused| paused.until > now && paused.agent != in_use);
    let until = later(now, pause.min(limits::TASK_WITHIN_MAX));
    let own = AgentPause { agent: in_use, until };
    let pauses: Vec<_> = others.copied().chain([own]).collect();
    run.set_agent_pauses(pauses.clone());
    let free_at = |agent: u32| {
        pauses.iter().find(|paused| paused.agent == agent).map_or(now, |paused| paused.until)
    };
    let mut following = iter::successors(agents.next(run.agent), |next| agents.next(Some(*next)));
    if let Some(next) = following.find(|next| free_at(*next) <= now) {
        record.change_key(Some(next), record.forward.input_edit_id.clone());
        record.forward.state = StepState::waiting(Some(attempt.number), now);
        return agents.at(Some(next)).ok_or(pause);
    }
    let all = iter::successors(Some(0), |next| agents.next(Some(*next)));
    let first = all.min_by_key(|agent| free_at(*agent)).unwrap_or(in_use);
    if first != in_use {
        record.change_key((first > 0).then_some(first), record.forward.input_edit_id.clone());
    }
    Err(pause_until(free_at(first), now))
}
