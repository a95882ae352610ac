//! The laws of `workflow`: what a parent makes of the task of its step; and what such a task owes its
//! parent.

use serde_json::Value;
use steward_core::{
    engine::{effect::Effect, event::Event},
    model::{
        attempt::{Action, Attempt},
        document::DocumentKey,
        messages::ChildOutcome,
        step::{StepRecord, StepState},
        task::{ProcessState, Task},
    },
};

use super::{Change, is_final};
use crate::exploration::{
    children::{Stands, child_id},
    settings::Setting,
    states::{is_awaited, is_completed, is_failed},
    world::World,
};

/// How the tasks of steps stand to their parent, whatever has happened.
pub(super) fn of_children(setting: &Setting, world: &World, task: &Task) -> Vec<String> {
    let mut broken = Vec::new();
    for (part, child) in &world.children {
        let mut law = |text: &str, holds: bool| {
            if !holds {
                broken.push(format!("the task of {part}, {:?}: {text}", child.stands));
            }
        };
        let record = task.record(part);
        let by_hand = |action, number| {
            let attempt = Attempt { step: part.clone(), action, number };
            !world.dispatches.contains_key(&attempt)
        };
        let undo = record.and_then(|record| record.undo.as_ref());
        let undo_by_hand = undo.is_some_and(|undo| match undo.state {
            StepState::Completed { attempt } => by_hand(Action::Undo, attempt),
            StepState::Skipped { .. } => true,
            StepState::Running { .. }
            | StepState::HandedOut { .. }
            | StepState::Each
            | StepState::Waiting { .. }
            | StepState::Failed { .. } => false,
        });
        let backward = task.process_state == ProcessState::Undoing;
        let returns = setting.workflow.steps[&part.step].point_of_no_return;
        let waits = record.is_some_and(|record| is_awaited(&record.run));
        law("not waited for once its parent goes backward", !backward || returns || !waits);
        let undone = task.process_state == ProcessState::Undone;
        law(
            "none stands, nor can come to that, once its parent is Undone",
            !undone || undo_by_hand || !child.is_open(world.now),
        );
        let done_by_hand = record.is_some_and(|r| by_hand(Action::Do, r.run.state.attempt()));
        let processed = task.process_state == ProcessState::Processed;
        let completed = record.is_some_and(|record| is_completed(&record.run)) && !done_by_hand;
        law(
            "Processed, if its parent is and it was not done by hand",
            !processed || !completed || matches!(child.stands, Stands::Processed | Stands::Gone),
        );
    }
    broken
}

impl Change<'_> {
    /// Each submission for a part is of the same task, with the same content.
    pub(super) fn of_submissions(&self, broken: &mut Vec<String>) {
        for effect in self.effects {
            let Effect::Submit(submission) = effect else { continue };
            let part = &submission.parent.as_ref().unwrap().step;
            let is_its = submission.task_id.as_str() == child_id(part);
            let child = self.before.children.get(part);
            let content = child.and_then(|child| child.content.as_ref());
            let input = submission.input.to_string();
            let same = content.is_none_or(|content| *content == input);
            if !is_its || !same {
                broken.push(format!("{part}: the same task, with the same content"));
            }
        }
    }

    /// What its task says of a part is about the way that it was asked to go.
    pub(super) fn of_what_children_say(
        &self,
        before: &Task,
        after: &Task,
        broken: &mut Vec<String>,
    ) {
        let Event::ChildEnded { step, .. } = self.event else { return };
        let (Some(old), Some(new)) = (before.record(step), after.record(step)) else { return };
        let Some(child) = self.after.children.get(step) else { return };
        if let Event::ChildEnded { attempt: Some(refused), .. } = self.event
            && *refused != old.run.state.attempt()
            && self.applied
        {
            broken.push(format!("{step}: the refusal of another attempt changes nothing"));
        }
        let failed = |record: &StepRecord| record.undo.as_ref().is_some_and(is_failed);
        let undone = |record: &StepRecord| record.undo.as_ref().is_some_and(is_completed);
        // Of one that is not there nobody can tell what it did.
        if failed(new) && !failed(old) && child.is_recorded() && child.stands != Stands::Stuck {
            broken.push(format!("{step}: its undo fails, and its task is {:?}", child.stands));
        }
        if undone(new) && !undone(old) && child.is_open(self.after.now) {
            broken.push(format!("{step}: it is undone, and its task is {:?}", child.stands));
        }
    }

    /// A task that runs for another tells it of every end, and again when asked.
    pub(super) fn of_the_parent(&self, after: &Task, broken: &mut Vec<String>) {
        let told = self.effects.iter().filter_map(|effect| match effect {
            Effect::ChildEnded(ended) => Some(ended),
            Effect::Request(_)
            | Effect::Submit(_)
            | Effect::Ask(_)
            | Effect::Reply(_)
            | Effect::Wake { .. }
            | Effect::Notice { .. }
            | Effect::Reject { .. }
            | Effect::Publish(_) => None,
        });
        let told: Vec<_> = told.collect();
        let (before, _) = self.tasks();
        let mut law = |text: &str, holds: bool| {
            if !holds {
                broken.push(text.to_owned());
            }
        };
        let Some(parent) = &after.parent else {
            return law("a task of its own has nobody to tell", told.is_empty());
        };
        let owes =
            self.ends(before, after) || (is_final(after) && matches!(self.event, Event::Asked(_)));
        law("its parent is told of the end, once", !owes || told.len() == 1);
        for ended in told {
            law("its parent is told", ended.task_id == parent.task_id && ended.step == parent.step);
            let is_so = match (&ended.outcome, after.process_state) {
                (ChildOutcome::Processed { output }, ProcessState::Processed) => {
                    let mut documents = self.after.documents.iter();
                    let is_it = |(key, body): (&DocumentKey, &Value)| {
                        matches!(key, DocumentKey::Result(_)) && body == output
                    };
                    output.is_null() || documents.any(is_it)
                }
                (ChildOutcome::Undone { .. }, ProcessState::Undone) => true,
                // Done for good, and asked to be undone.
                (ChildOutcome::Error { .. }, ProcessState::Processed) => {
                    *self.event == Event::Asked(Action::Undo)
                }
                (ChildOutcome::Error { .. }, state) => state == ProcessState::Error,
                (ChildOutcome::Refused { .. }, _) | (_, _) => false,
            };
            law("its parent is told how it ended", is_so);
        }
        let asked = *self.event == Event::Asked(Action::Undo);
        let backward = after.undo_reason.is_some() || after.process_state == ProcessState::Error;
        let returns = self.setting.workflow.steps.values().any(|step| step.point_of_no_return);
        law("asked to be undone, it goes backward", !asked || backward || returns);
    }
}
