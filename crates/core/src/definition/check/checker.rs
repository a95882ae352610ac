//! The state of a validation: the definition, and the problems found so far.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    definition::{problem::DefinitionProblem, workflow::Workflow},
    hint, limits,
    model::names::StepName,
};

/// A definition that is being validated.
pub(super) struct Checker<'a> {
    pub(super) workflow: &'a Workflow,
    /// The direct and indirect predecessors of each step.
    pub(super) before: BTreeMap<&'a StepName, BTreeSet<&'a StepName>>,
    pub(super) found: Vec<DefinitionProblem>,
}

impl<'a> Checker<'a> {
    pub(super) fn new(workflow: &'a Workflow) -> Self {
        Self { workflow, before: workflow.ancestors(), found: Vec::new() }
    }

    /// Adds a problem of the key `at`.
    pub(super) fn report(&mut self, at: impl Into<String>, message: impl Into<String>) {
        self.report_with_hint(at, message, None);
    }

    /// Whether there are more problems than a check reports.
    pub(super) fn is_full(&self) -> bool {
        self.found.len() > limits::PROBLEMS_MAX
    }

    /// Adds a problem of the key `at`, with a suggestion, unless there are [too many](Self::is_full).
    pub(super) fn report_with_hint(
        &mut self,
        at: impl Into<String>,
        message: impl Into<String>,
        hint: Option<String>,
    ) {
        if !self.is_full() {
            self.found.push(DefinitionProblem { at: at.into(), message: message.into(), hint });
        }
    }

    /// A suggestion for an unknown step name: a similar name, or all names. It compares the name with all steps.
    pub(super) fn similar_step(&self, name: &StepName) -> Option<String> {
        if self.is_full() {
            return None;
        }
        let known: Vec<_> = self.workflow.steps.keys().map(StepName::as_str).collect();
        hint::suggestion(name.as_str(), known)
    }

    /// Whether the same problem is already reported for the defaults from which the step has the value.
    pub(super) fn is_of_defaults(&self, at: &str, message: &str) -> bool {
        let rest = at.strip_prefix("steps.").and_then(|rest| rest.split_once('.'));
        let default = rest.map(|(_, of)| format!("defaults.{of}"));
        self.found
            .iter()
            .any(|known| Some(&known.at) == default.as_ref() && known.message == message)
    }
}
