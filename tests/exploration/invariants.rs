//! What the exploration checks besides the invariants of the engine, which the engine asserts after each decision: what the
//! records of a task do not show. That is what was really sent and lost, which effects the services may have had, the documents,
//! and the child tasks.

use std::collections::BTreeSet;

use jiff::Timestamp;
use steward_core::{
    engine::{
        effect::Effect,
        event::Event,
        invariants::{
            decision::requested_attempt,
            ending::{PartEnding, TaskEnding},
        },
    },
    model::{
        attempt::AttemptId,
        document::DocumentKey,
        events::{BusEvent, EventData},
        messages::StepRequest,
        names::{Part, StepName},
        step::StepRecord,
        task::{ProcessState, Task},
        time::later,
    },
};

use super::{
    model_state::{LostEffects, ModelState},
    progress::{has_passed, has_stopped, is_completed},
    workflows::{Ending, ExploredWorkflow},
};

mod agents;
mod attempts;
mod children;
mod items;
mod payloads;
mod redelivery;
mod requests;
mod waits;

/// A transition to check: an event, the states before and after it, and its effects.
pub(super) struct CheckedTransition<'a> {
    pub(super) workflow: &'a ExploredWorkflow,
    pub(super) before: &'a ModelState,
    /// The state in which all effects are sent.
    pub(super) after: &'a ModelState,
    pub(super) event: &'a Event,
    /// The effects that were lost at the first delivery of this event.
    pub(super) lost: Option<&'a LostEffects>,
    pub(super) effects: &'a [Effect],
    /// Whether anything was saved.
    pub(super) applied: bool,
}

/// All direct and indirect successors of `step`.
fn successors(workflow: &ExploredWorkflow, step: &StepName) -> BTreeSet<StepName> {
    let mut found = BTreeSet::from([step.clone()]);
    for _ in 0..workflow.definition.steps.len() {
        let more = workflow.definition.steps.iter();
        let more = more.filter(|(_, other)| other.after.iter().any(|name| found.contains(name)));
        let more: Vec<_> = more.map(|(name, _)| name.clone()).collect();
        found.extend(more);
    }
    found.remove(step);
    found
}

/// Whether a part has an undo.
fn has_undo(workflow: &ExploredWorkflow, part: &Part) -> bool {
    let step = &workflow.definition.steps[&part.step];
    step.undo.is_some() || step.workflow.is_some()
}

/// Whether `part` has an undo, may have taken effect, and is not undone yet.
fn is_left_to_undo(workflow: &ExploredWorkflow, model: &ModelState, part: &Part) -> bool {
    let record = model.task.as_ref().and_then(|task| task.record(part));
    let completed = record.is_some_and(|record| is_completed(&record.forward));
    let undone = record.and_then(|record| record.undo.as_ref()).is_some_and(has_passed);
    // For a child task, the model knows whether it has effects.
    let may_have_effect = model.children.get(part).is_none_or(|child| child.is_open(model.now));
    has_undo(workflow, part)
        && (completed || model.may_have_run(part))
        && !undone
        && may_have_effect
}

/// The invariants that a state violates.
pub(super) fn violated_in_state(workflow: &ExploredWorkflow, model: &ModelState) -> Vec<String> {
    let Some(task) = &model.task else { return Vec::new() };
    let state = task.process_state;
    let steps = &workflow.definition.steps;
    let checked = task.check(&workflow.definition, model.now, workflow.timing.pickup_within);
    let mut violated: Vec<_> = checked.err().iter().map(ToString::to_string).collect();
    let mut check = |text: &str, holds: bool| {
        if !holds {
            violated.push(text.to_owned());
        }
    };
    let passed_point_of_no_return = |name: &StepName| {
        let mut parts = task.started_parts().filter(|(part, _)| part.step == *name);
        steps[name].point_of_no_return && parts.any(|(_, record)| is_completed(&record.forward))
    };
    check(
        "past the point of no return nothing is undone",
        !matches!(state, ProcessState::Undoing | ProcessState::Undone)
            || !steps.keys().any(passed_point_of_no_return),
    );
    violated.extend(ending_violations(workflow, model, task));
    violated.extend(children::child_violations(workflow, model, task));
    let mut check = |text: &str, holds: bool| {
        if !holds {
            violated.push(text.to_owned());
        }
    };
    for (step, action, progress) in task.started_actions() {
        let output = progress.output(&step, action);
        check(
            "a completed step refers to an existing output",
            output.is_none_or(|key| model.document(&key).is_some() || model.lacks(&key)),
        );
        let input = progress.input_edit_id.clone().map(DocumentKey::Input);
        check(
            "a step refers to an existing input",
            input.is_none_or(|key| model.document(&key).is_some() || model.lacks(&key)),
        );
    }
    violated
}

/// The invariants of the end that a task violates, by what the agents have told about its attempts.
fn ending_violations(workflow: &ExploredWorkflow, model: &ModelState, task: &Task) -> Vec<String> {
    let state = task.process_state;
    if !state.has_stopped() {
        return Vec::new();
    }
    let part = |(part, record): (Part, &StepRecord)| {
        let completed = is_completed(&record.forward);
        // All steps of a Processed task have passed: a call repeats an idempotency key, or an operator skipped its step.
        let in_progress = state == ProcessState::Undone && model.is_in_progress(workflow, &part);
        PartEnding {
            name: part.to_string(),
            effects: usize::from(completed || model.may_have_run(&part)),
            active: usize::from(is_left_to_undo(workflow, model, &part)),
            in_progress: in_progress
                .then(|| "one that may continue".to_owned())
                .into_iter()
                .collect(),
            ..PartEnding::default()
        }
    };
    let ending = TaskEnding {
        state,
        is_alerted: model.alerted || task.is_alert_due,
        parts: task.started_parts().map(part).collect(),
    };
    ending.violations()
}

/// The invariants that a transition violates.
pub(super) fn violated_by_transition(transition: &CheckedTransition<'_>) -> Vec<String> {
    let mut violated = Vec::new();
    let (before, after) = transition.tasks();
    transition.check_requests(before, after, &mut violated);
    transition.check_agents(&mut violated);
    transition.check_payloads(after, &mut violated);
    transition.check_redelivery(after, &mut violated);
    transition.check_item_requests(after, &mut violated);
    transition.check_submissions(&mut violated);
    transition.check_child_reports(before, after, &mut violated);
    transition.check_recorded_effects(before, after, &mut violated);
    transition.check_reports_to_parent(after, &mut violated);
    if transition.applied {
        violated.extend(transition.after.expires_too_early());
        transition.check_reply(before, &mut violated);
        transition.check_items(after, &mut violated);
        transition.check_when(before, after, &mut violated);
        transition.check_waits(before, after, &mut violated);
        transition.check_did_not_run(before, after, &mut violated);
        transition.check_edits(before, after, &mut violated);
        transition.check_edited_lists(before, after, &mut violated);
    }
    violated
}

impl CheckedTransition<'_> {
    fn tasks(&self) -> (&Task, &Task) {
        (self.before.task.as_ref().unwrap(), self.after.task.as_ref().unwrap())
    }

    fn requests(&self) -> impl Iterator<Item = &StepRequest> {
        self.effects.iter().filter_map(|effect| {
            let Effect::Request(request) = effect else { return None };
            Some(request)
        })
    }

    /// The attempts that are requested from agents and child tasks.
    fn requested_attempts(&self) -> Vec<AttemptId> {
        let task = self.after.task.as_ref().unwrap();
        self.effects.iter().filter_map(|effect| requested_attempt(task, effect)).collect()
    }

    /// The times of the wakes that are sent.
    fn wakes(&self) -> BTreeSet<Timestamp> {
        let wakes = self.effects.iter().filter_map(|effect| {
            let Effect::Wake { after, .. } = effect else { return None };
            Some(later(self.after.now, *after))
        });
        wakes.collect()
    }

    /// Whether the task reached a final state, for the first time or again.
    fn ends(&self, before: &Task, after: &Task) -> bool {
        let end = |task: &Task| (task.process_state, task.ended_at);
        self.applied && has_stopped(after) && end(after) != end(before)
    }

    /// The ending, if the task reached a final state.
    pub(super) fn ending(&self) -> Option<Ending> {
        let (before, after) = self.tasks();
        if !self.ends(before, after) {
            return None;
        }
        let undo_failed = self.effects.iter().any(|effect| {
            matches!(effect, Effect::Publish(BusEvent::Operator(event))
                if matches!(event.data, EventData::UndoFailed(_)))
        });
        let past_return = after.error.iter().any(|text| text.contains("point of no return"));
        match after.process_state {
            ProcessState::Processed => Some(Ending::Processed),
            ProcessState::Undone => Some(Ending::Undone),
            ProcessState::Error if past_return => Some(Ending::PastReturn),
            ProcessState::Error if undo_failed => Some(Ending::UndoFailed),
            ProcessState::Error => Some(Ending::TaskInError),
            ProcessState::Pending | ProcessState::Processing | ProcessState::Undoing => None,
        }
    }
}
