//! The laws of a callback: whose answer counts, and until when it is waited for.

use steward_core::{
    engine::event::Event,
    model::{
        attempt::Action,
        messages::{Answer, Outcome},
        names::{CallbackFence, Part},
        step::StepState,
        task::{ProcessState, Task},
        time::later,
    },
};

use super::Change;
use crate::exploration::states::{awaited_by, is_failed, is_running};

impl Change<'_> {
    /// What is handed out stays so until there is an answer, and no longer than was said.
    pub(super) fn of_what_is_handed_out(
        &self,
        before: &Task,
        after: &Task,
        broken: &mut Vec<String>,
    ) {
        let now = self.after.now;
        for (step, action, progress) in after.actions() {
            let StepState::HandedOut { attempt, complete_by, answer_by } = progress.state else {
                continue;
            };
            let mut law = |text: &str, holds: bool| {
                if !holds {
                    broken.push(format!("{step} #{attempt}: {text}"));
                }
            };
            law("only a step with a callback is handed out", action == Action::Do);
            law("a heartbeat never reaches past the answer", complete_by <= answer_by);
            law("an answer comes within the task's time", answer_by <= after.complete_by);
            let definition = &self.setting.workflow.steps[&step.step];
            let waits = definition.point_of_no_return;
            let backward = after.process_state == ProcessState::Undoing;
            law("nobody is waited for on the way back", waits || !backward);
            let old = before.progress(&step, action).map(|old| &old.state);
            if let Some(StepState::HandedOut { complete_by: by, answer_by: last, .. }) = old {
                law("by when the answer comes stays", *last == answer_by);
                law("a heartbeat only gives more time", *by <= complete_by);
                let heartbeat = matches!(self.event, Event::Answered { answer: Answer::Heartbeat, step: of, .. } if *of == step);
                law("nothing but a heartbeat gives more time", heartbeat || *by == complete_by);
            } else {
                let callback = definition.callback.as_ref().unwrap();
                let last = later(now, callback.within).min(after.complete_by);
                law("an answer has as long as was said", answer_by == last);
                let first = callback.heartbeat.map_or(last, |every| later(now, every).min(last));
                law("the first heartbeat is soon", complete_by == first);
            }
        }
    }

    /// Nothing but an answer, its time or an operator ends what is handed out and is the point of no
    /// return.
    pub(super) fn of_what_returns(&self, before: &Task, after: &Task, broken: &mut Vec<String>) {
        for (step, action, old) in before.actions() {
            let StepState::HandedOut { complete_by, .. } = old.state else { continue };
            let ends = match self.event {
                Event::Answered { step: of, .. } => *of == step,
                Event::Swept => {
                    later(complete_by, self.setting.timing.clock_skew) <= self.after.now
                }
                Event::Commanded(_) => true,
                Event::Wake
                | Event::Replied(_)
                | Event::Asked(_)
                | Event::ChildEnded { .. }
                | Event::AlertSent { .. } => false,
            };
            let waits = after.progress(&step, action).is_some_and(|new| new.state == old.state);
            if self.returns(&step) && !ends && !waits {
                broken.push(format!("{step}: a point of no return is waited for"));
            }
        }
    }

    /// An answer in time, of the newest attempt, is taken, and no other; that it completed also between two attempts.
    pub(super) fn of_answers(&self, before: &Task, after: &Task, broken: &mut Vec<String>) {
        self.of_the_reply_that_hands_out(before, after, broken);
        let Event::Answered { step, fence: CallbackFence::Attempt(attempt), answer } = self.event
        else {
            return;
        };
        let state = before.progress(step, Action::Do).map(|progress| &progress.state);
        let awaited = before.progress(step, Action::Do).and_then(awaited_by);
        let is_between = matches!(state, Some(StepState::Waiting { .. }))
            && matches!(answer, Answer::Completed { .. });
        let in_time = (awaited.is_some() || is_between)
            && state.is_some_and(|state| state.attempt() == *attempt);
        // That somebody has the token says that the call ran.
        let may_have_run = |task: &Task| {
            task.progress(step, Action::Do).is_some_and(|progress| progress.may_have_run)
        };
        let is_news = may_have_run(after) && !may_have_run(before);
        if self.applied && !in_time && !is_news {
            broken.push(format!("{step} #{attempt}: an answer is taken that nobody waits for"));
        }
        let now = after.progress(step, Action::Do);
        let taken = match answer {
            Answer::Completed { .. } => {
                now.is_some_and(|now| matches!(now.state, StepState::Completed { .. }))
            }
            Answer::Failed { .. } => now.is_some_and(|now| is_failed(now) && now.may_have_run),
            Answer::Heartbeat => true,
        };
        if in_time && !taken {
            broken.push(format!("{step} #{attempt}: an answer in time is taken"));
        }
        let heard_by = match (state, self.setting.callback(step).and_then(|c| c.heartbeat)) {
            (Some(StepState::HandedOut { answer_by, .. }), Some(every)) => {
                Some(later(self.after.now, every).min(*answer_by))
            }
            _ => None,
        };
        let is_heartbeat = *answer == Answer::Heartbeat && in_time;
        if is_heartbeat && heard_by.is_some() && now.and_then(awaited_by) != heard_by {
            broken.push(format!("{step} #{attempt}: a heartbeat gives more time"));
        }
    }

    /// The call of a step with a callback does not complete it.
    fn of_the_reply_that_hands_out(&self, before: &Task, after: &Task, broken: &mut Vec<String>) {
        let Event::Replied(reply) = self.event else { return };
        let completed = matches!(reply.outcome, Outcome::Completed { .. });
        let hands_out = reply.action == Action::Do && self.setting.callback(&reply.step).is_some();
        // It was not waited for any more: all that it says is that it took effect.
        let old = before.progress(&reply.step, reply.action);
        let late = !old.is_some_and(|old| is_running(old) && old.state.attempt() == reply.attempt);
        if !self.applied || !completed || !hands_out || late {
            return;
        }
        let state = after.progress(&reply.step, Action::Do).map(|progress| &progress.state);
        let returns = self.returns(&reply.step);
        let waits = before.process_state != ProcessState::Undoing || returns;
        let handed_out = matches!(state, Some(StepState::HandedOut { .. }));
        if handed_out != waits {
            broken.push(format!("{}: its call hands it out, unless it is given up", reply.step));
        }
    }

    fn returns(&self, part: &Part) -> bool {
        self.setting.workflow.steps[&part.step].point_of_no_return
    }
}
