//! A problem of a file, as `steward workflow check` reports it in each of its formats.

use std::path::PathBuf;

use steward_core::definition::lint::Severity;
use steward_definition_file::LocatedProblem;

/// A mistake or a warning in a file.
#[derive(Debug, Clone)]
pub(super) struct FileProblem {
    pub(super) file: PathBuf,
    pub(super) severity: Severity,
    pub(super) located: LocatedProblem,
}
