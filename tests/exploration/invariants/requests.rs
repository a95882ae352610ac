//! Invariants of requests to agents and child tasks: when steps and undos start, and which edits are allowed.

use serde_json::Value;
use steward_core::{
    engine::event::Event,
    model::{
        attempt::{Action, AttemptId},
        command::{CommandAction, ReceivedCommand},
        earlier_key::Ran,
        messages::{ReplyOutcome, StepReply, StepRequest},
        names::Part,
        step::{Progress, StepState},
        task::Task,
        time::later,
    },
};

use super::{CheckedTransition, is_left_to_undo, successors};
use crate::exploration::{
    model_state::{Dispatch, KnownOutcome},
    progress::{awaited_by, has_passed, is_awaited, is_completed},
};

impl CheckedTransition<'_> {
    /// An undo starts when nothing is left to undo later, and no call may be in progress, by what was really sent. A step that is
    /// not idempotent is not repeated.
    pub(super) fn check_requests(&self, before: &Task, after: &Task, violated: &mut Vec<String>) {
        for AttemptId { step, action, number } in &self.requested_attempts() {
            let mut check = |text: &str, holds: bool| {
                if !holds {
                    violated.push(format!("{} {step} #{number}: {text}", action.name()));
                }
            };
            if *action == Action::Undo {
                let undo = before.progress(step, Action::Undo);
                // A completed undo is that of another key of the part.
                let has_begun = undo.is_some_and(|undo| !is_completed(undo));
                self.check_undo(step, after, has_begun, &mut check);
            }
            let number_before = before.progress(step, *action).map(|p| p.state.attempt_count());
            let repeated = self.before.dispatches.iter().any(|(other, dispatch)| {
                other.step == *step
                    && other.action == Action::Do
                    && other.number < *number
                    && dispatch.sent
                    && self.after.dispatches[other].known_outcome != KnownOutcome::DidNotRun
            });
            check(
                "what may have run is not called again when its key may be forgotten",
                !self.may_use_forgotten_key(step, *action, *number),
            );
            let may_repeat = self.workflow.definition.step(&step.step).is_repeatable(*action);
            check(
                "a step that is not idempotent is not repeated",
                may_repeat || !repeated || number_before == Some(*number),
            );
        }
        for StepRequest { step, body, .. } in self.requests() {
            if body.as_ref().is_some_and(|body| body.value().is_null()) {
                violated.push(format!("{step}: a request contains the values that it reads"));
            }
        }
    }

    /// Whether a call of this attempt may begin when the service may have forgotten the key of an earlier one that may have run.
    fn may_use_forgotten_key(&self, step: &Part, action: Action, number: u32) -> bool {
        let definition = self.workflow.definition.step(&step.step).action(action);
        let Some(valid) = definition.and_then(|action| action.key_valid_for()) else {
            return false;
        };
        let own = &self.after.dispatches[&AttemptId { step: step.clone(), action, number }];
        self.before.dispatches.iter().any(|(other, dispatch)| {
            (&other.step, other.action, &dispatch.edit) == (step, action, &own.edit)
                && dispatch.sent
                && !dispatch.settled
                && self.after.dispatches[other].known_outcome != KnownOutcome::DidNotRun
                && later(dispatch.decided_at, valid) < own.begins_by
        })
    }

    /// A reply that the newest attempt took effect, or may have, is recorded, however late it is. A repeated reply shows nothing
    /// new if an operator has stated since the first that the attempt did not run.
    pub(super) fn check_recorded_effects(
        &self,
        before: &Task,
        after: &Task,
        violated: &mut Vec<String>,
    ) {
        let Event::ReplyReceived(reply) = self.event else { return };
        let old = before.progress(&reply.step, Action::Do);
        let is_newest = old.is_some_and(|old| old.state.attempt_count() == reply.attempt);
        // A second failure reports nothing new, unless it has a doubt about its own call.
        let is_success = matches!(reply.outcome, ReplyOutcome::Completed { .. });
        let is_proof = is_success || reply.outcome.has_call_in_doubt();
        let completes = is_success
            && !self.workflow.awaits_event(&reply.step)
            && reply.action == Action::Do
            && before.direction() == Action::Do
            && self.workflow.definition.step(&reply.step.step).callback().is_none();
        let new = after.progress(&reply.step, Action::Do);
        let is_open = old.is_some_and(|old| {
            old.key_since.is_none_or(|since| since <= reply.attempt)
                && matches!(
                    old.state,
                    StepState::Running { .. }
                        | StepState::Waiting { .. }
                        | StepState::Failed { .. }
                )
        });
        if completes && is_open && !new.is_some_and(is_completed) {
            violated.push(format!("{}: a success completes an open part", reply.step));
        }
        let has_outcome = old.is_some_and(|old| {
            matches!(old.state, StepState::Failed { .. } | StepState::Skipped { .. })
                || old.key_since.is_some_and(|since| reply.attempt < since)
        });
        if has_outcome && !is_proof {
            return;
        }
        // An event is no effect of the task.
        if self.workflow.awaits_event(&reply.step) {
            return;
        }
        if reply.action == Action::Undo || !reply.outcome.may_have_run() || !is_newest {
            return;
        }
        if self.repeats_what_was_denied(reply, before) {
            return;
        }
        let kept = after
            .record(&reply.step)
            .is_some_and(|new| new.has_effect() || awaited_by(&new.forward).is_some());
        if !kept {
            violated.push(format!(
                "{} #{}: an attempt that took effect is recorded",
                reply.step, reply.attempt
            ));
        }
    }

    /// Whether the reply reports again that an attempt ran, or may have, and an operator has stated since that it did not.
    fn repeats_what_was_denied(&self, reply: &StepReply, before: &Task) -> bool {
        let StepReply { step, action, attempt, outcome, .. } = reply;
        let of = AttemptId { step: step.clone(), action: *action, number: *attempt };
        let is_denied = self.before.dispatches.get(&of).is_some_and(|dispatch| dispatch.denied);
        let ran = match outcome {
            ReplyOutcome::Completed { .. } => Ran::Yes,
            ReplyOutcome::Failed { .. }
            | ReplyOutcome::Deferred { .. }
            | ReplyOutcome::Unknown { .. } => Ran::Maybe,
        };
        let keys = before.record(step).into_iter().flat_map(|record| &record.earlier);
        let mut denials = keys.filter_map(|key| key.denied);
        is_denied && denials.any(|denial| *attempt <= denial.through && ran <= denial.known)
    }

    /// A command cannot state that a part did not run while a call of it may be in progress.
    pub(super) fn check_did_not_run(
        &self,
        before: &Task,
        after: &Task,
        violated: &mut Vec<String>,
    ) {
        let Some((
            CommandAction::Resubmit { did_not_run: true, .. }
            | CommandAction::Skip { did_not_run: true, .. },
            steps,
        )) = self.accepted_command(before, after)
        else {
            return;
        };
        for part in steps {
            let until = self.before.in_progress_until(self.workflow, &part, before.direction());
            if until.is_some() {
                violated.push(format!(
                    "{part}: `did not run` is refused while a call may be in progress"
                ));
            }
        }
    }

    /// A part that may have run, or may still run, with the old input gets no other input.
    pub(super) fn check_edits(&self, before: &Task, after: &Task, violated: &mut Vec<String>) {
        if !matches!(self.event, Event::CommandReceived(_)) {
            return;
        }
        for (part, action, progress) in after.started_actions() {
            let Some(old) = before.progress(&part, action) else { continue };
            let ran = |(attempt, dispatch): (&AttemptId, &Dispatch)| {
                (&attempt.step, attempt.action) == (&part, action)
                    && dispatch.sent
                    && dispatch.known_outcome != KnownOutcome::DidNotRun
                    && attempt.number <= old.state.attempt_count()
            };
            if old.input_edit_id != progress.input_edit_id && self.after.dispatches.iter().any(ran)
            {
                violated.push(format!(
                    "{} {part}: no edit after an attempt that may have run",
                    action.name()
                ));
            }
        }
    }

    /// An edit of the input does not move completed items.
    pub(super) fn check_edited_lists(
        &self,
        before: &Task,
        after: &Task,
        violated: &mut Vec<String>,
    ) {
        let Some((CommandAction::Resubmit { step: None, input: Some(input), .. }, _)) =
            self.accepted_command(before, after)
        else {
            return;
        };
        let Some(list) = input.get("list").and_then(Value::as_array) else { return };
        for (part, record) in
            after.started_parts().filter(|(_, record)| is_completed(&record.forward))
        {
            let Some(position) = part.item else { continue };
            let own = self.after.items(record);
            let own = own.as_ref().and_then(|list| list.get(position as usize));
            if own != list.get(position as usize) {
                violated.push(format!("{part}: an edit does not transition a completed item"));
            }
        }
    }

    /// The accepted command, with the parts that it resubmitted or skipped.
    fn accepted_command(&self, before: &Task, after: &Task) -> Option<(&CommandAction, Vec<Part>)> {
        let Event::CommandReceived(ReceivedCommand { command, .. }) = self.event else {
            return None;
        };
        let is_new = after.commands.len() > before.commands.len();
        let accepted =
            is_new && after.commands.last().is_some_and(|record| record.refused.is_none());
        let has_outcome = |part: &Part, old: &Progress| {
            let new = after.progress(part, before.direction());
            new.is_some_and(|new| match command.action {
                CommandAction::Resubmit { .. } => {
                    new.state.attempt_count() > old.state.attempt_count()
                }
                CommandAction::Skip { .. }
                | CommandAction::Complete { .. }
                | CommandAction::Approve { .. }
                | CommandAction::Reject { .. }
                | CommandAction::Undo
                | CommandAction::Cancel
                | CommandAction::Resolve
                | CommandAction::Pause
                | CommandAction::Resume
                | CommandAction::Rerun { .. } => {
                    matches!(new.state, StepState::Skipped { .. }) && !has_passed(old)
                }
            })
        };
        let parts = before.started_actions().filter(|(part, action, old)| {
            *action == before.direction() && !is_awaited(old) && has_outcome(part, old)
        });
        accepted.then(|| (&command.action, parts.map(|(part, ..)| part).collect()))
    }

    /// An undo starts when all later parts have an outcome, and never past the point of no return.
    fn check_undo(
        &self,
        part: &Part,
        after: &Task,
        has_begun: bool,
        check: &mut impl FnMut(&str, bool),
    ) {
        let mut successors = successors(self.workflow, &part.step);
        // A later part may turn out to have taken effect after this undo has begun.
        if has_begun {
            successors.clear();
        }
        let mut later = after.started_parts().filter(|(other, _)| successors.contains(&other.step));
        check(
            "an undo waits for the undos of later parts",
            later.all(|(other, _)| !is_left_to_undo(self.workflow, self.after, &other)),
        );
        let may_be_in_progress = |part: &Part| self.after.is_in_progress(self.workflow, part);
        let mut later = after.started_parts().filter(|(other, _)| successors.contains(&other.step));
        check(
            "an undo waits for the calls of later parts",
            later.all(|(o, _)| !may_be_in_progress(&o)),
        );
        // A call of the part itself may come to light after its undo has begun.
        check(
            "an undo waits for the calls of its own part",
            has_begun || !may_be_in_progress(part),
        );
        let own = after.record(part);
        let ran = own.is_some_and(|own| is_completed(&own.forward)) || self.after.was_decided(part);
        check("only a part that may have run is undone", ran);
        // Once an undo has begun, nothing cancels it.
        let goes_on = has_begun_undo(self.tasks().0);
        for (other, record) in after.started_parts() {
            let may_have = self.after.may_have_run(&other) || is_awaited(&record.forward);
            let is_point_of_no_return =
                !self.workflow.definition.steps[&other.step].point_of_no_return;
            check(
                "no undo past the point of no return",
                goes_on || is_point_of_no_return || !may_have,
            );
        }
    }
}

fn has_begun_undo(task: &Task) -> bool {
    task.undo_is_final || task.started_parts().any(|(_, record)| record.undo.is_some())
}
