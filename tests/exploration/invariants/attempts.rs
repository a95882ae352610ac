//! The invariant of replies: which of them are accepted.

use steward_core::{
    engine::event::Event,
    model::{
        attempt::Action,
        messages::ReplyOutcome,
        step::StepState,
        task::{ProcessState, Task},
    },
};

use super::CheckedTransition;

impl CheckedTransition<'_> {
    /// Replies are accepted in time.
    pub(super) fn check_reply(&self, before: &Task, violated: &mut Vec<String>) {
        let Event::ReplyReceived(reply) = self.event else { return };
        let old = before.progress(&reply.step, reply.action);
        let state = old.map(|old| &old.state);
        let newest = state.is_some_and(|state| state.attempt_count() == reply.attempt);
        let completed = matches!(reply.outcome, ReplyOutcome::Completed { .. });
        let ran = reply.outcome.may_have_run() && reply.action == Action::Do;
        let is_news = ran && old.is_some_and(|old| !old.may_have_run);
        // A second failure reports nothing new, unless it has a doubt about its own call.
        let is_effect = completed || reply.outcome.has_call_in_doubt();
        // A success completes a part until the undo of its key is requested. It comes beside what an operator has ended.
        let no_undo = before
            .record(&reply.step)
            .is_some_and(|record| record.undo.as_ref().is_none_or(|undo| undo.key_since.is_some()));
        let is_proof = completed
            && old.is_some_and(|old| match old.state {
                StepState::Failed { .. }
                | StepState::Running { .. }
                | StepState::Waiting { .. } => {
                    no_undo && before.process_state != ProcessState::Undone
                }
                StepState::Skipped { .. } => before.direction() == Action::Do,
                StepState::AwaitingCallback { .. }
                | StepState::RunningItems
                | StepState::Completed { .. } => old.completed_by_hand.is_some(),
            });
        let is_earlier = state.is_some_and(|state| reply.attempt < state.attempt_count());
        let counts = match state {
            Some(StepState::Running { .. }) => true,
            // The attempt was given up, and the next one has not started.
            Some(StepState::Waiting { .. }) => completed || is_news,
            // A failed or skipped step counts as one that did not run, until it is known better.
            Some(StepState::Failed { .. } | StepState::Skipped { .. }) => {
                is_news && is_effect || is_proof
            }
            Some(
                StepState::AwaitingCallback { .. }
                | StepState::RunningItems
                | StepState::Completed { .. },
            )
            | None => false,
        };
        // An effect at another agent's service is news, even if the step may have run at this one.
        let is_elsewhere = self.before.is_effect_elsewhere(self.workflow, reply);
        let is_accepted =
            newest && counts || is_earlier && (is_effect && is_news || is_proof || is_elsewhere);
        if !is_accepted {
            let text = "a reply to the newest attempt is accepted until the attempt is given up";
            violated.push(text.to_owned());
        }
    }
}
