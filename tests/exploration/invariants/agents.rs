//! Invariants of steps with several agents: a step never runs at two of them.

use steward_core::model::{attempt::Action, messages::StepRequest};

use super::CheckedTransition;
use crate::exploration::model_state::{Dispatch, KnownOutcome};

impl CheckedTransition<'_> {
    /// A request goes to another agent only if no attempt at an earlier agent may have run. That also holds for an undo: it
    /// goes to the only agent that may have run the step. If an agent contradicted itself, an operator decides.
    pub(super) fn check_agents(&self, violated: &mut Vec<String>) {
        for StepRequest { step, action, attempt, agent, .. } in self.requests() {
            let sent = self.before.dispatches.iter().filter(|(of, dispatch)| {
                (&of.step, of.action) == (step, Action::Do) && dispatch.sent
            });
            // An operator may state that an attempt did not run.
            let may_have_run = |dispatch: &Dispatch| {
                !dispatch.refused && dispatch.known_outcome != KnownOutcome::DidNotRun
            };
            let own = self.workflow.definition.steps[&step.step].undo.as_ref();
            let own = own.and_then(|undo| undo.agent.as_ref()).filter(|_| *action == Action::Undo);
            if own.is_some_and(|own| own.names() == [agent.clone()]) {
                continue;
            }
            let is_other = |dispatch: &Dispatch| dispatch.agent.as_ref() != Some(agent);
            let may_have_run_elsewhere =
                sent.filter(|(of, _)| *action == Action::Undo || of.number < *attempt).any(
                    |(of, dispatch)| is_other(dispatch) && may_have_run(&self.after.dispatches[of]),
                );
            let mut check = |text: &str, holds: bool| {
                if !holds {
                    violated.push(format!("{} {step} #{attempt}: {text}", action.name()));
                }
            };
            check(
                "no request while an earlier one may have run at another agent",
                !may_have_run_elsewhere || self.before.ran_at_two_agents,
            );
        }
    }
}
