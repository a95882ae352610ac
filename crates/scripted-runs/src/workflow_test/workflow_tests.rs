//! A test file together with the definitions that it tests.

use std::path::Path;

use steward_core::{
    definition::{step::StepDefinition, workflow::Workflow},
    model::names::{StepName, WorkflowName},
};
use steward_definition_file::ParsedFile;

use super::file::{ServiceScript, TestCase, TestFile};

/// A test file, with the definitions that it tests.
#[derive(Debug)]
pub struct WorkflowTests {
    pub(super) file: ParsedFile<TestFile>,
    /// The definition that is tested.
    pub workflow: Workflow,
    /// The definitions of child tasks.
    pub(super) with: Vec<Workflow>,
}

/// A step in a test file: its workflow, its name, and the item if the text names one.
pub(super) type NamedStep<'a> = (&'a Workflow, &'a StepName, Option<u32>);

impl WorkflowTests {
    /// The test file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.file.path
    }

    /// The line of a case, from 1.
    #[must_use]
    pub fn line(&self, case: usize) -> u64 {
        self.file.location(&format!("cases.{case}.name")).map_or(1, |location| location.line)
    }

    pub(super) fn cases(&self) -> &[TestCase] {
        &self.file.content.cases
    }

    fn workflows(&self) -> impl Iterator<Item = &Workflow> {
        std::iter::once(&self.workflow).chain(&self.with)
    }

    /// Whether the definition of this workflow is given.
    pub(super) fn is_given(&self, name: &WorkflowName) -> bool {
        self.workflows().any(|workflow| workflow.name == *name)
    }

    /// The step that a text names: `charge`, `ship[2]`, or `packing.pack` for a step of a child workflow.
    pub(super) fn step(&self, text: &str) -> Option<NamedStep<'_>> {
        let (name, item) = match text.strip_suffix(']').and_then(|text| text.split_once('[')) {
            Some((name, item)) => (name, Some(item.parse().ok()?)),
            None => (text, None),
        };
        let (workflow, step) = match name.split_once('.') {
            Some((workflow, step)) => {
                (self.with.iter().find(|with| with.name.as_str() == workflow)?, step)
            }
            None => (&self.workflow, name),
        };
        let (step, _) = workflow.steps.get_key_value(step)?;
        Some((workflow, step, item))
    }

    /// The names of all steps, as a test file writes them.
    pub(super) fn labels(&self) -> Vec<String> {
        let of_child = |workflow: &Workflow| {
            let name = workflow.name.clone();
            workflow.steps.keys().map(move |step| format!("{name}.{step}")).collect::<Vec<_>>()
        };
        let own = self.workflow.steps.keys().map(ToString::to_string);
        own.chain(self.with.iter().flat_map(of_child)).collect()
    }

    /// The script of a step in a case: the one of the case, or the one of the file.
    pub(super) fn script<'a>(
        &'a self,
        case: &'a TestCase,
        label: &str,
    ) -> Option<&'a ServiceScript> {
        case.services.get(label).or_else(|| self.file.content.services.get(label))
    }
}

/// The definition of a named step.
pub(super) fn definition<'a>((workflow, step, _): NamedStep<'a>) -> Option<&'a StepDefinition> {
    workflow.steps.get(step)
}
