//! Invariants of callbacks: which answer counts, and how long it is awaited.

use steward_core::{
    engine::event::Event,
    model::{
        attempt::Action,
        messages::{CallbackOutcome, ReplyOutcome},
        names::Part,
        step::StepState,
        task::{ProcessState, Task},
        time::later,
    },
};

use super::CheckedTransition;
use crate::exploration::progress::{awaited_by, is_failed, is_running};

impl CheckedTransition<'_> {
    /// A step awaits its callback until the deadline, which only heartbeats extend.
    pub(super) fn check_awaited_callbacks(
        &self,
        before: &Task,
        after: &Task,
        violated: &mut Vec<String>,
    ) {
        let now = self.after.now;
        for (step, action, progress) in after.started_actions() {
            let StepState::AwaitingCallback { attempt, complete_by, answer_by } = progress.state
            else {
                continue;
            };
            let mut check = |text: &str, holds: bool| {
                if !holds {
                    violated.push(format!("{step} #{attempt}: {text}"));
                }
            };
            let definition = &self.workflow.definition.steps[&step.step];
            let old = before.progress(&step, action).map(|old| &old.state);
            if let Some(StepState::AwaitingCallback { complete_by: by, answer_by: last, .. }) = old
            {
                check("the callback's deadline does not change", *last == answer_by);
                check("a heartbeat only extends the deadline", *by <= complete_by);
                let heartbeat = matches!(self.event, Event::CallbackReceived { outcome: CallbackOutcome::Heartbeat, step: of, .. } if *of == step);
                check("only a heartbeat extends the deadline", heartbeat || *by == complete_by);
            } else {
                let callback = definition.callback.as_ref().unwrap();
                let last = later(now, callback.within).min(after.complete_by);
                check("the callback's deadline is as defined", answer_by == last);
                let first = callback.heartbeat.map_or(last, |every| later(now, every).min(last));
                check("the first heartbeat deadline is as defined", complete_by == first);
            }
        }
    }

    /// Only a callback, its deadline or an operator ends the wait for a callback at the point of no return.
    pub(super) fn check_point_of_no_return_callbacks(
        &self,
        before: &Task,
        after: &Task,
        violated: &mut Vec<String>,
    ) {
        for (step, action, old) in before.started_actions() {
            let StepState::AwaitingCallback { complete_by, .. } = old.state else { continue };
            let ends = match self.event {
                Event::CallbackReceived { step: of, .. } => *of == step,
                Event::Swept => {
                    later(complete_by, self.workflow.timing.clock_skew) <= self.after.now
                }
                Event::CommandReceived(_) => true,
                Event::Wake
                | Event::ReplyReceived(_)
                | Event::ParentRequested(_)
                | Event::ChildEnded { .. }
                | Event::AlertPublished { .. } => false,
            };
            let waits = after.progress(&step, action).is_some_and(|new| new.state == old.state);
            if self.is_point_of_no_return(&step) && !ends && !waits {
                violated.push(format!("{step}: the callback of a point of no return is awaited"));
            }
        }
    }

    /// A callback in time with the token of the newest request is accepted, and no other. A callback that completes the step is also
    /// accepted between two attempts.
    pub(super) fn check_callbacks(&self, before: &Task, after: &Task, violated: &mut Vec<String>) {
        self.check_reply_before_callback(before, after, violated);
        let Event::CallbackReceived { step, edit, outcome } = self.event else { return };
        let progress = before.progress(step, Action::Do);
        let (state, awaited) = (progress.map(|run| &run.state), progress.and_then(awaited_by));
        let is_between = matches!(state, Some(StepState::Waiting { .. }))
            && matches!(outcome, CallbackOutcome::Completed { .. });
        let in_time = (awaited.is_some() || is_between)
            && progress.is_some_and(|run| run.input_edit_id == *edit);
        // A callback proves that the call took place, because its sender has the token.
        let may_have_run = |task: &Task| {
            task.progress(step, Action::Do).is_some_and(|progress| progress.may_have_run)
        };
        let is_news = may_have_run(after) && !may_have_run(before);
        if self.applied && !in_time && !is_news {
            violated.push(format!("{step}: only an awaited callback is accepted"));
        }
        let now = after.progress(step, Action::Do);
        let taken = match outcome {
            CallbackOutcome::Completed { .. } => {
                now.is_some_and(|now| matches!(now.state, StepState::Completed { .. }))
            }
            CallbackOutcome::Failed { .. } => {
                now.is_some_and(|now| is_failed(now) && now.may_have_run)
            }
            CallbackOutcome::Heartbeat => true,
        };
        if in_time && !taken {
            violated.push(format!("{step}: a callback in time is accepted"));
        }
        let extended_deadline =
            match (state, self.workflow.callback(step).and_then(|c| c.heartbeat)) {
                (Some(StepState::AwaitingCallback { answer_by, .. }), Some(every)) => {
                    Some(later(self.after.now, every).min(*answer_by))
                }
                _ => None,
            };
        let is_heartbeat = *outcome == CallbackOutcome::Heartbeat && in_time;
        if is_heartbeat
            && extended_deadline.is_some()
            && now.and_then(awaited_by) != extended_deadline
        {
            violated.push(format!("{step}: a heartbeat extends the deadline"));
        }
    }

    /// A reply to the call of a step with a callback does not complete the step.
    fn check_reply_before_callback(&self, before: &Task, after: &Task, violated: &mut Vec<String>) {
        let Event::ReplyReceived(reply) = self.event else { return };
        let completed = matches!(reply.outcome, ReplyOutcome::Completed { .. });
        let has_callback =
            reply.action == Action::Do && self.workflow.callback(&reply.step).is_some();
        // A reply that was not awaited any more only reports that the call took effect.
        let old = before.progress(&reply.step, reply.action);
        let late =
            !old.is_some_and(|old| is_running(old) && old.state.attempt_count() == reply.attempt);
        if !self.applied || !completed || !has_callback || late {
            return;
        }
        let state = after.progress(&reply.step, Action::Do).map(|progress| &progress.state);
        let is_point_of_no_return = self.is_point_of_no_return(&reply.step);
        let waits = before.process_state != ProcessState::Undoing || is_point_of_no_return;
        let awaits_callback = matches!(state, Some(StepState::AwaitingCallback { .. }));
        if awaits_callback != waits {
            violated.push(format!(
                "{}: after its call it awaits the callback, unless it was given up",
                reply.step
            ));
        }
    }

    fn is_point_of_no_return(&self, part: &Part) -> bool {
        self.workflow.definition.steps[&part.step].point_of_no_return
    }
}
