//! The oracle's model of a workflow: its steps, their order and their policies. It is built from the blueprint and
//! shares no code with the core, so that it does not repeat a mistake of the core.

use std::collections::BTreeSet;

use steward_core::model::{attempt::Action, names::StepName};

use super::{
    blueprint::{Blueprint, StepPlan, WorkPlan},
    virtual_time::{MINUTE, Millis, SECOND},
};

/// The longest time that any call may take.
const CALL_WITHIN_MAX: Millis = 100 * SECOND;

/// The steps of a workflow and the order between them.
#[derive(Debug)]
pub(super) struct WorkflowModel {
    pub(super) blueprint: Blueprint,
}

impl WorkflowModel {
    pub(super) fn of(blueprint: &Blueprint) -> Self {
        Self { blueprint: blueprint.clone() }
    }

    pub(super) fn steps(&self) -> impl Iterator<Item = (&StepName, &StepPlan)> {
        self.blueprint.steps.iter()
    }

    pub(super) fn step(&self, step: &StepName) -> Option<&StepPlan> {
        self.blueprint.steps.get(step)
    }

    /// Whether a step is undone with its task: a child task always is, a wait never is.
    pub(super) fn has_undo(&self, step: &StepName) -> bool {
        self.step(step).is_some_and(|step| match step.work {
            WorkPlan::Call { .. } => step.undo.is_some(),
            WorkPlan::Wait(_) | WorkPlan::Event(_) => false,
            WorkPlan::Child(_) => true,
        })
    }

    /// How long one call of a step, or of its undo, may take at its service: as long as its attempt, up to the agents'
    /// maximum.
    pub(super) fn call_within(&self, step: &StepName, action: Action) -> Millis {
        self.complete_within(step, action).min(CALL_WITHIN_MAX)
    }

    /// How long one attempt at a step, or at its undo, may take.
    pub(super) fn complete_within(&self, step: &StepName, action: Action) -> Millis {
        let default = self.blueprint.defaults.as_ref();
        let of = |pointer: &str| default.and_then(|default| default.pointer(pointer)?.as_str());
        let (configured, default) = match (self.step(step), action) {
            (None, _) => (None, None),
            (Some(step), Action::Do) => (step.complete_within, of("/complete_within")),
            (Some(step), Action::Undo) => (
                step.undo.as_ref().and_then(|undo| undo.complete_within),
                of("/undo/complete_within"),
            ),
        };
        configured.or(default).and_then(duration).unwrap_or(MINUTE)
    }

    /// How long the service of a step keeps the idempotency keys of the step, or of its undo; `None` if for ever. No
    /// defaults have it.
    pub(super) fn key_valid_for(&self, step: &StepName, action: Action) -> Option<Millis> {
        let step = self.step(step)?;
        let recovery = match action {
            Action::Do => step.recovery.as_ref(),
            Action::Undo => step.undo.as_ref()?.recovery.as_ref(),
        };
        duration(recovery?.get("key_valid_for")?.as_str()?)
    }

    /// The steps after which a task is never undone.
    pub(super) fn points_of_no_return(&self) -> impl Iterator<Item = &StepName> {
        self.steps().filter(|(_, step)| step.point_of_no_return).map(|(name, _)| name)
    }

    /// The steps in `after` of `step`.
    pub(super) fn directly_before(&self, step: &StepName) -> &[StepName] {
        self.step(step).map_or(&[], |step| &step.after)
    }

    /// All steps before `step`, directly or indirectly.
    pub(super) fn before(&self, step: &StepName) -> BTreeSet<&StepName> {
        let mut found = BTreeSet::new();
        let mut open = vec![self.directly_before(step)];
        while let Some(names) = open.pop() {
            for name in names {
                if found.insert(name) {
                    open.push(self.directly_before(name));
                }
            }
        }
        found
    }
}

fn duration(text: &str) -> Option<Millis> {
    Some(humantime::parse_duration(text).ok()?.as_millis() as Millis)
}
