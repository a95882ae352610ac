//! The oracle's checks of steps with several agents: the services share no idempotency keys, so a step may take effect at
//! one agent's service only, and its undo goes to the same agent. A step moves on to the next agent only after a certain
//! refusal, which is never because of a rate limit.

use steward_core::model::{
    attempt::Action,
    earlier_key::EarlierKey,
    messages::{ReplyOutcome, StepReply, StepRequest},
    names::Part,
    step::Progress,
    task::Task,
};
use steward_test_world::ledger::EffectLedger;

use super::{
    agents_plan::AgentsPlan,
    blueprint::WorkPlan,
    expectations::{Expected, TaskExpectations},
    oracle::Oracle,
    task_record::describe,
};

impl Oracle {
    /// Records a reply that certainly refuses an attempt.
    pub(super) fn observe_refusal(&mut self, reply: &StepReply) {
        let ReplyOutcome::Deferred { reason, certain: true, .. } = &reply.outcome else { return };
        let StepReply { task_id, step, action, attempt, .. } = reply;
        if reason.starts_with("rate limit") {
            let of = describe(task_id, step, *action);
            self.add_finding(format!("{of}: a rate limit must not move the step on"));
        }
        self.certain_refusals.insert((task_id.clone(), step.clone(), *action, *attempt));
    }

    /// Counts the moves of a save to the next agent, and checks them.
    pub(super) fn observe_agents(&mut self, before: &Task, after: &Task, ledger: &EffectLedger) {
        let mut found = Vec::new();
        for (part, action, new) in after.started_actions() {
            if self.agents(after, &part).is_none_or(|agents| !is_in_order(agents)) {
                continue;
            }
            let of = describe(&after.task_id, &part, action);
            // The key in use may have one beside the command of an operator.
            let contradicted = after.record(&part).and_then(|record| {
                let in_use = (record.forward.agent, &record.forward.input_edit_id);
                let is_other = |key: &&EarlierKey| (key.agent, &key.input_edit_id) != in_use;
                record.earlier.iter().filter(is_other).find(|key| key.has_effect())
            });
            if let Some(key) = contradicted {
                let since = key.since;
                found.push(format!(
                    "{of}: an agent contradicted its refusal of attempt {since} or later"
                ));
            }
            let old = before.progress(&part, action);
            let Some(old) = old.filter(|old| old.agent != new.agent) else { continue };
            self.agent_moves += u64::from(new.agent.is_some());
            let wrong = self.wrong_move(after, (&part, action), (old, new), ledger);
            found.extend(wrong.map(|wrong| format!("{of}: {wrong}")));
        }
        self.violations.extend(found);
    }

    fn agents<'a>(&'a self, task: &Task, part: &Part) -> Option<&'a AgentsPlan> {
        match &self.model(&task.task_id)?.step(&part.step)?.work {
            WorkPlan::Call { agents, .. } => Some(agents),
            WorkPlan::Wait(_) | WorkPlan::Event(_) | WorkPlan::Child(_) => None,
        }
    }

    /// Why a step must not use another agent from now on.
    fn wrong_move(
        &self,
        task: &Task,
        (part, action): (&Part, Action),
        (old, new): (&Progress, &Progress),
        ledger: &EffectLedger,
    ) -> Option<String> {
        let id = &task.task_id;
        // A part that fails forgets the pauses.
        let pauses = || old.agent_pauses().iter().chain(new.agent_pauses());
        let is_paused = |agent| pauses().any(|paused| paused.agent == agent);
        // After the last agent it goes on with any of them.
        let mut passed_over = old.agent.unwrap_or(0) + 1..new.agent.unwrap_or(0);
        if passed_over.any(|agent| !is_paused(agent)) {
            return Some(format!("moved on from agent {:?} to {:?}", old.agent, new.agent));
        }
        let refused = new.key_since.unwrap_or(0).saturating_sub(1);
        if !self.certain_refusals.contains(&(id.clone(), part.clone(), action, refused)) {
            return Some(format!(
                "moved on after attempt {refused}, which was not refused for certain"
            ));
        }
        let ran = ledger.account(id, part).is_some_and(|account| !account.effects.is_empty());
        let will_run = ledger.pending_calls(id).any(|call| call.request.step == *part);
        (ran || will_run).then(|| "moved on although it ran, or will run".to_owned())
    }
}

fn is_in_order(agents: &AgentsPlan) -> bool {
    matches!(agents, AgentsPlan::InOrder(_))
}

/// Checks that a call is made by the right agent: one of the step's, the one that its expression names, and the one at
/// whose service the step took effect or will.
pub(super) fn check_agent(
    request: &StepRequest,
    work: &WorkPlan,
    expected: TaskExpectations<'_>,
) -> Option<String> {
    let (agent, part) = (request.agent.as_str(), &request.step);
    let WorkPlan::Call { agents, .. } = work else { return None };
    if !agents.names().contains(&agent) {
        return Some(format!("was called by agent {agent}, which is not its agent"));
    }
    if let Expected::Value(chosen) = expected.chosen_agent(work)
        && chosen != agent
    {
        return Some(format!("was called by agent {agent}, but its expression names {chosen}"));
    }
    let effects = expected.account(part).into_iter().flat_map(|account| &account.effects);
    let calls = expected.ledger.pending_calls(expected.id());
    let calls =
        calls.filter(|call| call.request.step == *part && call.request.action == Action::Do);
    let mut agents = effects
        .filter_map(|effect| effect.agent.as_ref())
        .chain(calls.map(|call| &call.request.agent));
    let other = agents.find(|other| **other != request.agent)?;
    Some(format!("was called by agent {agent}, although it takes effect at the service of {other}"))
}

impl TaskExpectations<'_> {
    /// The agent that an expression names. Not determined for a step without one.
    pub(super) fn chosen_agent(&self, work: &WorkPlan) -> Expected<&'static str> {
        let WorkPlan::Call { agents, .. } = work else { return Expected::Undetermined };
        let (below, [low, high]) = match agents {
            AgentsPlan::ByAmount { below, of } => (below, of),
            AgentsPlan::Broken(_) => return Expected::NoValue,
            AgentsPlan::One(_) | AgentsPlan::InOrder(_) => return Expected::Undetermined,
        };
        match self.input("amount") {
            Expected::Value(amount) => match amount.as_u64() {
                Some(amount) => Expected::Value(if amount < *below { low } else { high }),
                None => Expected::NoValue,
            },
            Expected::NoValue => Expected::NoValue,
            Expected::Undetermined => Expected::Undetermined,
        }
    }
}
