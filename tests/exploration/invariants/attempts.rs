//! Invariants of attempts and failures: numbering, acceptance of replies, recovery policy.

use jiff::Timestamp;
use steward_core::{
    engine::event::Event,
    model::{
        attempt::{Action, AttemptId},
        messages::ReplyOutcome,
        step::{Progress, StepState},
        task::{ProcessState, Task},
        time::later,
    },
};

use super::CheckedTransition;
use crate::exploration::progress::{
    awaited_by, has_passed, has_stopped, is_awaited, is_failed, is_running,
};

impl CheckedTransition<'_> {
    /// Attempt numbers increase by at most one, and attempts start only when they may.
    pub(super) fn check_attempts(&self, before: &Task, after: &Task, violated: &mut Vec<String>) {
        for (step, action, progress) in after.started_actions() {
            let old = before.progress(&step, action);
            let (number, old_number) =
                (progress.state.attempt_count(), old.map_or(0, |old| old.state.attempt_count()));
            let of = format!("{} {step} #{number}", action.name());
            let mut check = |text: &str, holds: bool| {
                if !holds {
                    violated.push(format!("{of}: {text}"));
                }
            };
            check(
                "attempt numbers increase by at most one",
                (old_number..=old_number + 1).contains(&number),
            );
            let by_hand = matches!(self.event, Event::CommandReceived(_)) && has_passed(progress);
            if number == old_number || by_hand {
                continue;
            }
            if let (Action::Undo, 1) = (action, number) {
                let done =
                    after.progress(&step, Action::Do).and_then(|run| run.input_edit_id.as_ref());
                check(
                    "an undo uses the input of its step",
                    progress.input_edit_id.as_ref() == done,
                );
            }
            // After a certain refusal the request to the next agent starts at once, although the refused attempt was awaited.
            let is_refused = matches!(self.event, Event::ReplyReceived(reply)
                if reply.step == step
                    && matches!(reply.outcome, ReplyOutcome::Deferred { certain: true, .. }));
            check("one attempt at a time", is_refused || !old.is_some_and(is_awaited));
            check("nothing starts in a paused task", after.paused_at.is_none());
            let attempt = AttemptId { step: step.clone(), action, number };
            let requested_attempt = self.requested_attempts().contains(&attempt);
            check("an attempt that starts is requested", requested_attempt || is_failed(progress));
            if let StepState::Running { complete_by, .. } = progress.state {
                let in_time = complete_by > self.after.now && complete_by <= after.complete_by;
                check("an attempt ends by the task's complete-by", in_time);
            }
        }
        // A step that never started may get items when it starts.
        let begun = |progress: &Progress| progress.state != StepState::Failed { attempt: None };
        let mut begun = before.started_actions().filter(|(.., progress)| begun(progress));
        if let Some((step, ..)) = begun.find(|(s, a, _)| after.progress(s, *a).is_none()) {
            violated.push(format!("the record of {step} is kept"));
        }
    }

    /// Replies are accepted in time, and deferrals are not counted as failures.
    pub(super) fn check_reply(&self, before: &Task, after: &Task, violated: &mut Vec<String>) {
        let Event::ReplyReceived(reply) = self.event else { return };
        let mut check = |text: &str, holds: bool| {
            if !holds {
                violated.push(text.to_owned());
            }
        };
        let old = before.progress(&reply.step, reply.action);
        let state = old.map(|old| &old.state);
        let newest = state.is_some_and(|state| state.attempt_count() == reply.attempt);
        let completed = matches!(reply.outcome, ReplyOutcome::Completed { .. });
        let ran = reply.outcome.may_have_run() && reply.action == Action::Do;
        let is_news = ran && old.is_some_and(|old| !old.may_have_run);
        // A second failure reports nothing new.
        let is_effect =
            matches!(reply.outcome, ReplyOutcome::Completed { .. } | ReplyOutcome::Unknown { .. });
        let is_earlier = state.is_some_and(|state| reply.attempt < state.attempt_count());
        let counts = match state {
            Some(StepState::Running { .. }) => true,
            // The attempt was given up, and the next one has not started.
            Some(StepState::Waiting { .. }) => completed || is_news,
            // A failed or skipped step counts as one that did not run, until it is known better.
            Some(StepState::Failed { .. } | StepState::Skipped { .. }) => is_news && is_effect,
            Some(
                StepState::AwaitingCallback { .. }
                | StepState::RunningItems
                | StepState::Completed { .. },
            )
            | None => false,
        };
        // An effect at another agent's service is news, even if the step may have run at this one.
        let is_elsewhere = self.before.is_effect_elsewhere(self.workflow, reply);
        check(
            "a reply to the newest attempt is accepted until the attempt is given up",
            newest && counts || is_earlier && (is_effect && is_news || is_elsewhere),
        );
        let count =
            |task: &Task| task.progress(&reply.step, reply.action).map_or(0, |p| p.failure_count);
        let failed = after.progress(&reply.step, reply.action).is_some_and(is_failed);
        let deferred = matches!(reply.outcome, ReplyOutcome::Deferred { .. }) && !failed;
        check("a deferral is not counted", !deferred || count(before) == count(after));
    }

    /// An overdue attempt is given up, its failure is counted once, and the recovery policy is followed.
    pub(super) fn check_overdue(&self, before: &Task, after: &Task, violated: &mut Vec<String>) {
        if *self.event != Event::Swept || has_stopped(before) {
            return;
        }
        let mut check = |text: &str, holds: bool| {
            if !holds {
                violated.push(text.to_owned());
            }
        };
        let now = self.after.now;
        let past = |at: Timestamp| later(at, self.workflow.timing.clock_skew) <= now;
        for (step, action, old) in before.started_actions() {
            let Some(new) = after.progress(&step, action) else { continue };
            let Some(complete_by) = awaited_by(old) else { continue };
            // When an undo starts, only agents and callbacks of a point of no return are still awaited.
            let changes_direction = before.direction() != after.direction();
            let is_dropped = changes_direction
                && (!is_running(old)
                    || self.workflow.runs_child(&step)
                    || self.workflow.awaits_event(&step));
            if is_awaited(new) || (is_dropped && !past(complete_by)) {
                check("an overdue attempt is given up", !past(complete_by));
                continue;
            }
            check("only an overdue attempt is given up", past(complete_by));
            let awaits_event = self.workflow.awaits_event(&step);
            check("a silent attempt may have run", new.may_have_run != awaits_event);
            check("a failure is counted once", new.failure_count == old.failure_count + 1);
            let definition = &self.workflow.definition.steps[&step.step];
            let repeatable = definition.idempotent && !awaits_event || action == Action::Undo;
            let wanted = before.process_state != ProcessState::Undoing || action == Action::Undo;
            let policy = definition.action(action).unwrap().recovery;
            let waits = policy.extended_wait.as_ref().map_or(0, |wait| wait.times);
            let allowed = policy.attempts.0 * (waits + 1);
            let again = repeatable && wanted && new.failure_count < allowed;
            let ended = before.process_state != ProcessState::Undoing
                && (after.undo_reason.is_some() || has_stopped(after));
            check(
                "all attempts of the recovery policy are made, and no more",
                is_failed(new) != again || ended,
            );
        }
    }
}
