//! A workflow as the oracle reads it: steps, what comes after them, what they promise. It shares no
//! code with the core, so that a mistake there is not repeated here.

use std::collections::{BTreeMap, BTreeSet};

use steward_core::{
    messages::Action,
    names::Part,
    workflow::{StepDefinition, Workflow},
};

/// The steps of a workflow and the order between them.
#[derive(Debug)]
pub(super) struct Graph {
    steps: BTreeMap<Part, Node>,
}

#[derive(Debug)]
struct Node {
    before: Vec<Part>,
    has_undo: bool,
    point_of_no_return: bool,
    failures_max: [u32; 2],
}

impl Graph {
    pub(super) fn of(workflow: &Workflow) -> Self {
        let node = |step: &StepDefinition| Node {
            before: step.after.iter().cloned().map(Part::from).collect(),
            has_undo: step.undo.is_some(),
            point_of_no_return: step.point_of_no_return,
            failures_max: [Action::Do, Action::Undo].map(|action| failures_max(step, action)),
        };
        Self {
            steps: workflow
                .steps
                .iter()
                .map(|(name, step)| (Part::from(name.clone()), node(step)))
                .collect(),
        }
    }

    pub(super) fn steps(&self) -> impl Iterator<Item = &Part> {
        self.steps.keys()
    }

    pub(super) fn has_undo(&self, step: &Part) -> bool {
        self.steps.get(step).is_some_and(|node| node.has_undo)
    }

    /// How often its policy lets a step, or its undo, fail.
    pub(super) fn failures_max(&self, step: &Part, action: Action) -> u32 {
        let [run, undo] = self.steps.get(step).map_or([0, 0], |node| node.failures_max);
        if action == Action::Do { run } else { undo }
    }

    /// The steps past which a task only goes forward.
    pub(super) fn points_of_no_return(&self) -> impl Iterator<Item = &Part> {
        self.steps.iter().filter(|(_, node)| node.point_of_no_return).map(|(name, _)| name)
    }

    /// The steps that `step` names as those it comes after.
    pub(super) fn directly_before(&self, step: &Part) -> &[Part] {
        self.steps.get(step).map_or(&[], |node| &node.before)
    }

    /// All steps that come before `step`, directly or not.
    pub(super) fn before(&self, step: &Part) -> BTreeSet<&Part> {
        let mut found = BTreeSet::new();
        let mut open: Vec<_> = self.steps.get(step).map(|node| &node.before).into_iter().collect();
        while let Some(names) = open.pop() {
            for name in names {
                if found.insert(name) {
                    open.extend(self.steps.get(name).map(|node| &node.before));
                }
            }
        }
        found
    }

    /// All steps that come after `step`, directly or not.
    pub(super) fn after(&self, step: &Part) -> Vec<&Part> {
        self.steps.keys().filter(|other| self.before(other).contains(step)).collect()
    }
}

fn failures_max(step: &StepDefinition, action: Action) -> u32 {
    let (policy, repeated) = match (action, &step.undo) {
        (Action::Do, _) => (&step.recovery, step.idempotent),
        (Action::Undo, Some(undo)) => (&undo.recovery, true),
        (Action::Undo, None) => return 0,
    };
    let rounds = policy.extended_wait.as_ref().map_or(0, |wait| wait.times) + 1;
    if repeated { policy.attempts.0 * rounds } else { 1 }
}
