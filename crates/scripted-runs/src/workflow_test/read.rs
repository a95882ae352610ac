//! Reads a test file together with the definitions that it tests, and checks it.

use std::path::{Path, PathBuf};

use steward_core::definition::workflow::Workflow;
use steward_definition_file::{DefinitionError, ParsedFile, read_file, read_parsed};

use super::{
    check,
    file::{FORMAT, TestFile},
    workflow_tests::WorkflowTests,
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
    let workflow = read_file(&tested)?.with_sample_env();
    let with = file.content.with.iter().map(|name| read_file(&dir.join(name)));
    let with = with.map(|read| read.map(Workflow::with_sample_env)).collect::<Result<_, _>>()?;
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
