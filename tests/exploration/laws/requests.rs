//! The laws of what is asked of agents and of other tasks: what begins, and what is undone when.

use steward_core::{
    messages::{Action, StepRequest},
    names::{Part, StepName},
    ports::Attempt,
    task::{StepRecord, StepState, Task},
};

use super::{Change, followers, is_left};
use crate::exploration::{
    states::{has_passed, is_awaited, is_completed, is_final, is_running},
    world::Truth,
};

impl Change<'_> {
    /// What agents are asked.
    pub(super) fn of_requests(&self, before: &Task, after: &Task, broken: &mut Vec<String>) {
        let steps = &self.setting.workflow.steps;
        let backward = after.undo_reason.is_some();
        for attempt in &self.asked() {
            let Attempt { step, action, number } = attempt;
            let mut law = |text: &str, holds: bool| {
                if !holds {
                    broken.push(format!("{} {step} #{number}: {text}", action.name()));
                }
            };
            let runs = after.progress(step, *action).is_some_and(|progress| {
                is_running(progress) && progress.state.attempt() == *number
            });
            law("a request is of the attempt that runs", runs);
            law("nothing is asked once the task has ended", !is_final(after));
            law(
                "no step is done while the task goes backward",
                !backward || *action == Action::Undo,
            );
            law("no step is undone while the task goes forward", backward || *action == Action::Do);
            let passed =
                |name: &StepName| after.steps.get(name).is_some_and(|r| has_passed(&r.run));
            let is_next = steps[&step.step].after.iter().all(passed);
            law("a step starts after those before it", *action == Action::Undo || is_next);
            let number_before = before.progress(step, *action).map(|p| p.state.attempt());
            let is_new = number_before != Some(*number);
            law("only what is saved is sent", self.applied || !is_new);
            if *action == Action::Undo {
                self.of_undo(step, after, &mut law);
            }
            let repeated = self.before.dispatches.iter().any(|(other, dispatch)| {
                other.step == *step
                    && other.action == Action::Do
                    && other.number < *number
                    && dispatch.sent
                    && self.after.dispatches[other].truth != Truth::DidNotRun
            });
            law(
                "what must not be repeated is not",
                steps[&step.step].idempotent || *action == Action::Undo || !repeated,
            );
        }
        for StepRequest { step, action, attempt, complete_by, idempotency_key, .. } in
            self.requests()
        {
            let state = after.progress(step, *action).map(|progress| &progress.state);
            let is_saved = matches!(state, Some(StepState::Running { attempt: number, complete_by: by })
                if number == attempt && by == complete_by);
            let key = format!("t/{step}/{}", action.name());
            if !is_saved || !idempotency_key.starts_with(&key) {
                broken.push(format!("a request says what is saved; that of {step} does not"));
            }
        }
    }

    /// An undo starts when all that came after its step is settled, and never past the point of no
    /// return.
    fn of_undo(&self, part: &Part, after: &Task, law: &mut impl FnMut(&str, bool)) {
        let followers = followers(self.setting, &part.step);
        let is_awaited = |record: &StepRecord| is_awaited(&record.run);
        for (other, record) in after.parts().filter(|(other, _)| followers.contains(&other.step)) {
            let left = is_left(self.setting, self.after, &other);
            law("an undo waits for what came after it", !is_awaited(record) && !left);
        }
        let own = after.record(part);
        law("an undo waits for the attempt that it undoes", !own.is_some_and(is_awaited));
        let ran = own.is_some_and(|own| is_completed(&own.run)) || self.after.was_decided(part);
        law("only what may have run is undone", ran);
        for (other, record) in after.parts() {
            let may_have = self.after.may_have_run(&other) || is_awaited(record);
            let returns = !self.setting.workflow.steps[&other.step].point_of_no_return;
            law("no undo past the point of no return", returns || !may_have);
        }
    }
}
