//! A test file together with the definitions that it tests.

use std::path::{Path, PathBuf};

use steward_core::{
    definition::{step::StepDefinition, workflow::Workflow},
    model::names::{StepName, WorkflowName},
};
use steward_definition_file::{DefinitionError, ParsedFile, read_file, read_parsed};

use super::{
    check,
    file::{FORMAT, ServiceScript, TestCase, TestFile},
};

/// Why a test file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TestFileError {
    /// The test file, or a definition that it names, is not valid.
    #[error(transparent)]
    Invalid(#[from] DefinitionError),
    /// The test file does not say which definition it tests.
    #[error(
        "{}: which definition? Name the file `NAME.test.yaml` beside `NAME.yaml`, or add the key `workflow`",
        .0.display()
    )]
    NoWorkflow(PathBuf),
}

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

/// Reads a test file and the definitions that it names.
///
/// # Errors
/// One of the files is not valid. The error has all problems of that file.
pub fn read_tests(path: &Path) -> Result<WorkflowTests, TestFileError> {
    let file: ParsedFile<TestFile> = read_parsed(&FORMAT, path)?;
    let dir = path.parent().unwrap_or(Path::new(""));
    let tested = match &file.content.workflow {
        Some(name) => dir.join(name),
        None => tested_by(path).ok_or_else(|| TestFileError::NoWorkflow(path.to_owned()))?,
    };
    let workflow = read_file(&tested)?;
    let with = file.content.with.iter().map(|name| read_file(&dir.join(name)));
    let with = with.collect::<Result<_, _>>()?;
    let tests = WorkflowTests { file, workflow, with };
    let problems = check::problems(&tests);
    match problems.is_empty() {
        true => Ok(tests),
        false => Err(tests.file.invalid(problems).into()),
    }
}

/// The definition that a test file tests by its name: `order.yaml` for `order.test.yaml`.
fn tested_by(path: &Path) -> Option<PathBuf> {
    let (stem, extension) = path.file_name()?.to_str()?.rsplit_once('.')?;
    let name = stem.strip_suffix(".test").filter(|name| !name.is_empty())?;
    Some(path.with_file_name(format!("{name}.{extension}")))
}

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
