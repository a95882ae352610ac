//! Invariants of `workflow`: how a parent handles its child tasks, and what a child reports to its parent.

use steward_core::{
    engine::{effect::Effect, event::Event},
    model::{
        attempt::{Action, AttemptId},
        document::DocumentKey,
        messages::ChildOutcome,
        step::{StepRecord, StepState},
        task::{ProcessState, Task},
    },
};

use super::{CheckedTransition, has_stopped};
use crate::exploration::{
    children::{ChildState, child_id},
    model_state::ModelState,
    progress::{is_awaited, is_completed, is_failed},
    workflows::ExploredWorkflow,
};

/// The violated invariants between the states of the children and of their parent.
pub(super) fn child_violations(
    workflow: &ExploredWorkflow,
    model: &ModelState,
    task: &Task,
) -> Vec<String> {
    let mut violated = Vec::new();
    let is_in_progress = |state| matches!(state, ChildState::Running | ChildState::Undoing);
    for (name, step) in &workflow.definition.steps {
        let Some(each) = &step.for_each else { continue };
        let children = model.children.iter().filter(|(part, _)| part.step == *name);
        let in_progress = children.filter(|(_, child)| is_in_progress(child.state)).count();
        if in_progress > each.at_once as usize {
            violated.push(format!("{name}: {in_progress} child tasks in progress"));
        }
    }
    for (part, child) in &model.children {
        let mut check = |text: &str, holds: bool| {
            if !holds {
                violated.push(format!("the child of {part}, {:?}: {text}", child.state));
            }
        };
        let record = task.record(part);
        let by_hand = |action, number| {
            let attempt = AttemptId { step: part.clone(), action, number };
            !model.dispatches.contains_key(&attempt)
        };
        let undo = record.and_then(|record| record.undo.as_ref());
        let undo_by_hand = undo.is_some_and(|undo| match undo.state {
            StepState::Completed { attempt } => {
                attempt.is_some_and(|number| by_hand(Action::Undo, number))
            }
            StepState::Skipped { .. } => true,
            StepState::Running { .. }
            | StepState::AwaitingCallback { .. }
            | StepState::RunningItems
            | StepState::Waiting { .. }
            | StepState::Failed { .. } => false,
        });
        let backward = task.process_state == ProcessState::Undoing;
        let is_point_of_no_return = workflow.definition.steps[&part.step].point_of_no_return;
        let waits = record.is_some_and(|record| is_awaited(&record.forward));
        check(
            "not awaited when its parent is Undoing",
            !backward || is_point_of_no_return || !waits,
        );
        let undone = task.process_state == ProcessState::Undone;
        check(
            "has no side effects, and cannot have any, when its parent is Undone",
            !undone || undo_by_hand || !child.is_open(model.now),
        );
        let done_by_hand =
            record.is_some_and(|r| by_hand(Action::Do, r.forward.state.attempt_count()));
        let processed = task.process_state == ProcessState::Processed;
        let completed = record.is_some_and(|record| is_completed(&record.forward)) && !done_by_hand;
        check(
            "Processed if its parent is Processed and no operator completed the step",
            !processed
                || !completed
                || matches!(child.state, ChildState::Processed | ChildState::Expired),
        );
    }
    violated
}

impl CheckedTransition<'_> {
    /// All submissions for a part have the same child id and the same input.
    pub(super) fn check_submissions(&self, violated: &mut Vec<String>) {
        for effect in self.effects {
            let Effect::Submit(submission) = effect else { continue };
            let part = &submission.parent.as_ref().unwrap().step;
            let is_its = submission.task_id.as_str() == child_id(part);
            let child = self.before.children.get(part);
            let content = child.and_then(|child| child.content.as_ref());
            let input = submission.input.to_string();
            let same = content.is_none_or(|content| *content == input);
            if !is_its || !same {
                violated.push(format!("{part}: all submissions have the same child id and input"));
            }
        }
    }

    /// The outcome of a part or of its undo matches the state of its child.
    pub(super) fn check_child_reports(
        &self,
        before: &Task,
        after: &Task,
        violated: &mut Vec<String>,
    ) {
        let Event::ChildEnded { step, .. } = self.event else { return };
        let (Some(old), Some(new)) = (before.record(step), after.record(step)) else { return };
        let Some(child) = self.after.children.get(step) else { return };
        if let Event::ChildEnded { attempt: Some(refused), .. } = self.event
            && *refused != old.forward.state.attempt_count()
            && self.applied
        {
            violated.push(format!("{step}: the refusal of another attempt is ignored"));
        }
        let failed = |record: &StepRecord| record.undo.as_ref().is_some_and(is_failed);
        let undone = |record: &StepRecord| record.undo.as_ref().is_some_and(is_completed);
        // The outcome of a child without a record is unknown.
        if failed(new)
            && !failed(old)
            && child.is_recorded()
            && child.state != ChildState::UndoFailed
        {
            violated.push(format!(
                "{step}: its undo fails only if the undo of its child failed, not in {:?}",
                child.state
            ));
        }
        if undone(new) && !undone(old) && child.is_open(self.after.now) {
            violated.push(format!(
                "{step}: it is undone only if its child has no side effects, not in {:?}",
                child.state
            ));
        }
    }

    /// A child reports its end again if its parent requests it, with its output.
    pub(super) fn check_reports_to_parent(&self, after: &Task, violated: &mut Vec<String>) {
        let reports = self.effects.iter().filter_map(|effect| {
            let Effect::ChildEnded(ended) = effect else { return None };
            Some(ended)
        });
        let mut check = |text: &str, holds: bool| {
            if !holds {
                violated.push(text.to_owned());
            }
        };
        let owes = has_stopped(after) && matches!(self.event, Event::ParentRequested(_));
        check("a child reports its end once", !owes || reports.clone().count() == 1);
        for ended in reports {
            let ChildOutcome::Processed { output } = &ended.outcome else { continue };
            let is_result = |key: &&DocumentKey| matches!(key, DocumentKey::Result(_));
            let keys = self.after.documents.keys().chain(after.documents.keys());
            let mut results = keys.filter(is_result);
            let is_so = output.is_null()
                || results.any(|key| self.after.document(key).as_ref() == Some(output));
            check("the report contains the output", is_so);
        }
        let undo_requested = *self.event == Event::ParentRequested(Action::Undo);
        let backward = after.undo_reason.is_some() || after.process_state == ProcessState::Error;
        let is_point_of_no_return =
            self.workflow.definition.steps.values().any(|step| step.point_of_no_return);
        check(
            "a child whose parent requests the undo is undone or in Error",
            !undo_requested || backward || is_point_of_no_return,
        );
    }
}
