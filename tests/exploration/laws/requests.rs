//! The laws of what is asked of agents and of other tasks: what begins, and what is undone when.

use serde_json::Value;
use steward_core::{
    engine::event::Event,
    model::{
        attempt::{Action, Attempt},
        command::Order,
        json_text::JsonText,
        messages::{Outcome, StepRequest},
        names::{Part, StepName},
        step::{Progress, StepRecord, StepState},
        task::Task,
    },
};

use super::{Change, followers, is_left};
use crate::exploration::{
    states::{awaited_by, has_passed, is_awaited, is_completed, is_final, is_running},
    world::{Dispatch, Truth},
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
                let has_begun = before.progress(step, Action::Undo).is_some();
                // What came after it may have taken effect after all once its undo had begun.
                self.of_undo(step, after, has_begun && self.after.late_news, &mut law);
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
                steps[&step.step].idempotent || *action == Action::Undo || !repeated || !is_new,
            );
        }
        for StepRequest { step, action, attempt, complete_by, idempotency_key, body, .. } in
            self.requests()
        {
            let state = after.progress(step, *action).map(|progress| &progress.state);
            let is_saved = matches!(state, Some(StepState::Running { attempt: number, complete_by: by })
                if number == attempt && by == complete_by);
            let body = body.as_ref().map(JsonText::value);
            if body.is_some_and(|body| body.is_null()) {
                broken.push(format!("a request says what is read; that of {step} says nothing"));
            }
            let key = format!("t/{step}/{}", action.name());
            if !is_saved || !idempotency_key.starts_with(&key) {
                broken.push(format!("a request says what is saved; that of {step} does not"));
            }
        }
    }

    /// What an agent says of the newest attempt at doing a part, however late, stays on record: that it
    /// took effect, or may have.
    pub(super) fn of_what_took_effect(
        &self,
        before: &Task,
        after: &Task,
        broken: &mut Vec<String>,
    ) {
        let Event::Replied(reply) = self.event else { return };
        let old = before.progress(&reply.step, Action::Do);
        let is_newest = old.is_some_and(|old| old.state.attempt() == reply.attempt);
        // A second refusal says nothing new.
        let is_proof = matches!(reply.outcome, Outcome::Completed { .. } | Outcome::Unknown { .. });
        let is_settled = old.is_some_and(|old| {
            matches!(old.state, StepState::Failed { .. } | StepState::Skipped { .. })
        });
        if is_settled && !is_proof {
            return;
        }
        if reply.action == Action::Undo || !reply.outcome.may_have_run() || !is_newest {
            return;
        }
        let kept = after
            .progress(&reply.step, Action::Do)
            .is_some_and(|new| is_completed(new) || new.may_have_run || awaited_by(new).is_some());
        if !kept {
            broken
                .push(format!("{} #{}: what took effect is on record", reply.step, reply.attempt));
        }
    }

    /// An operator cannot know that a part did not run while a call of it may be in progress.
    pub(super) fn of_what_is_said_not_to_have_run(
        &self,
        before: &Task,
        after: &Task,
        broken: &mut Vec<String>,
    ) {
        let Some((
            Order::Resubmit { did_not_run: true, .. } | Order::Skip { did_not_run: true, .. },
            steps,
        )) = self.obeyed(before, after)
        else {
            return;
        };
        for part in steps {
            let until = self.before.in_progress_until(self.setting, &part, before.direction());
            if until.is_some() {
                broken.push(format!(
                    "{part}: nobody knows that it did not run while it may be called"
                ));
            }
        }
    }

    /// No part is asked for with another content that may have run, or may yet, with the old one.
    pub(super) fn of_edits(&self, before: &Task, after: &Task, broken: &mut Vec<String>) {
        if !matches!(self.event, Event::Commanded(_)) {
            return;
        }
        for (part, action, progress) in after.actions() {
            let Some(old) = before.progress(&part, action) else { continue };
            let ran = |(attempt, dispatch): (&Attempt, &Dispatch)| {
                (&attempt.step, attempt.action) == (&part, action)
                    && dispatch.sent
                    && dispatch.truth != Truth::DidNotRun
                    && attempt.number <= old.state.attempt()
            };
            if old.input != progress.input && self.after.dispatches.iter().any(ran) {
                broken.push(format!("{} {part}: the old input may have acted", action.name()));
            }
        }
    }

    /// An edit of the whole input leaves the items that are done in their places.
    pub(super) fn of_edited_lists(&self, before: &Task, after: &Task, broken: &mut Vec<String>) {
        let Some((Order::Resubmit { step: None, input: Some(input), .. }, _)) =
            self.obeyed(before, after)
        else {
            return;
        };
        let Some(list) = input.get("list").and_then(Value::as_array) else { return };
        for (part, record) in after.parts().filter(|(_, record)| is_completed(&record.run)) {
            let Some(place) = part.item else { continue };
            let own = self.after.items(record).and_then(|list| list.get(place as usize));
            if own != list.get(place as usize) {
                broken.push(format!("{part} is done, and the edited list says otherwise"));
            }
        }
    }

    /// The order that was obeyed, and the parts that it was about: those that were resubmitted or skipped.
    fn obeyed(&self, before: &Task, after: &Task) -> Option<(&Order, Vec<Part>)> {
        let Event::Commanded(command) = self.event else { return None };
        let is_new = after.commands.len() > before.commands.len();
        let obeyed = is_new && after.commands.last().is_some_and(|record| record.refused.is_none());
        let settled = |part: &Part, old: &Progress| {
            let new = after.progress(part, before.direction());
            new.is_some_and(|new| match command.order {
                Order::Resubmit { .. } => new.state.attempt() > old.state.attempt(),
                Order::Skip { .. }
                | Order::Complete { .. }
                | Order::Undo
                | Order::Cancel
                | Order::Pause
                | Order::Resume => {
                    matches!(new.state, StepState::Skipped { .. }) && !has_passed(old)
                }
            })
        };
        let parts = before.actions().filter(|(part, action, old)| {
            *action == before.direction() && !is_awaited(old) && settled(part, old)
        });
        obeyed.then(|| (&command.order, parts.map(|(part, ..)| part).collect()))
    }

    /// An undo starts when all that came after its step is settled, and never past the point of no
    /// return.
    fn of_undo(
        &self,
        part: &Part,
        after: &Task,
        is_surprised: bool,
        law: &mut impl FnMut(&str, bool),
    ) {
        let mut followers = followers(self.setting, &part.step);
        if is_surprised {
            followers.clear();
        }
        let is_awaited = |record: &StepRecord| is_awaited(&record.run);
        for (other, record) in after.parts().filter(|(other, _)| followers.contains(&other.step)) {
            let left = is_left(self.setting, self.after, &other);
            law("an undo waits for what came after it", !is_awaited(record) && !left);
        }
        let may_last = |part: &Part| self.after.is_in_progress(self.setting, part);
        let mut later = after.parts().filter(|(other, _)| followers.contains(&other.step));
        law("an undo waits for the calls of what came after it", later.all(|(o, _)| !may_last(&o)));
        law("an undo waits for the calls that it undoes", !may_last(part));
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
