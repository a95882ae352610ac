//! Definition files: YAML or JSON in, a workflow that can run out, or every reason why not, each with
//! its line and column.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use indexmap::IndexMap;
use serde::{Deserialize, de::IgnoredAny};
use serde_saphyr::Spanned;
use steward_core::{limits, workflow::{Problem, Workflow}};

/// Why a definition file is of no use.
#[derive(Debug, thiserror::Error)]
pub enum DefinitionError {
    /// The file cannot be read.
    #[error("{}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// It is too large to be published.
    #[error("{}: {bytes} bytes; the limit is {max}", path.display(), max = limits::DEFINITION_BYTES_MAX)]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Its size.
        bytes: usize,
    },
    /// It is not a definition: YAML, keys, types, expressions.
    #[error("{}: {message}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong, where, and the lines around it.
        message: String,
    },
    /// It is a definition, but cannot run.
    #[error("{}", Places { path, problems })]
    Invalid {
        /// The file.
        path: PathBuf,
        /// Each problem with its line and column.
        problems: Vec<(Problem, Option<Place>)>,
    },
}

/// A place in a file, counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The line.
    pub line: u64,
    /// The column.
    pub column: u64,
}

struct Places<'a> {
    path: &'a Path,
    problems: &'a [(Problem, Option<Place>)],
}

impl fmt::Display for Places<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (problem, place)) in self.problems.iter().enumerate() {
            let newline = if at == 0 { "" } else { "\n" };
            let path = self.path.display();
            match place {
                Some(Place { line, column }) => write!(f, "{newline}{path}:{line}:{column}: {problem}")?,
                None => write!(f, "{newline}{path}: {problem}")?,
            }
        }
        Ok(())
    }
}

/// Reads one definition file.
///
/// # Errors
/// Every reason why it is of no use.
pub fn read_file(path: &Path) -> Result<Workflow, DefinitionError> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| DefinitionError::Unreadable { path: path.to_owned(), source })?;
    parse(path, &text)
}

/// Reads all `.yaml`, `.yml` and `.json` files of a folder, in the order of their names.
///
/// # Errors
/// The first file that is of no use.
pub fn read_dir(dir: &Path) -> Result<Vec<Workflow>, DefinitionError> {
    let unreadable = |source| DefinitionError::Unreadable { path: dir.to_owned(), source };
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        let extension = path.extension().and_then(|extension| extension.to_str());
        if matches!(extension, Some("yaml" | "yml" | "json")) {
            paths.push(path);
        }
    }
    paths.sort();
    paths.iter().map(|path| read_file(path)).collect()
}

/// Reads a definition from `text`, which came from `path`.
///
/// # Errors
/// Every reason why it is of no use.
pub fn parse(path: &Path, text: &str) -> Result<Workflow, DefinitionError> {
    let path = path.to_owned();
    if text.len() > limits::DEFINITION_BYTES_MAX {
        return Err(DefinitionError::TooLarge { path, bytes: text.len() });
    }
    // JSON is YAML, so one parser reads both.
    let workflow: Workflow = serde_saphyr::from_str(text)
        .map_err(|error| DefinitionError::Malformed { path: path.clone(), message: error.to_string() })?;
    let problems = workflow.problems();
    if problems.is_empty() {
        return Ok(workflow);
    }
    let outline = serde_saphyr::from_str(text).unwrap_or_default();
    let placed = |problem: Problem| {
        let place = place(&outline, &problem.at);
        (problem, place)
    };
    Err(DefinitionError::Invalid { path, problems: problems.into_iter().map(placed).collect() })
}

/// Just enough of a definition to know where its keys are.
#[derive(Debug, Default, Deserialize)]
struct Outline {
    version: Option<Spanned<IgnoredAny>>,
    complete_within: Option<Spanned<IgnoredAny>>,
    #[serde(default)]
    steps: Option<Spanned<IndexMap<String, Spanned<IndexMap<String, Spanned<IgnoredAny>>>>>>,
}

/// Where the key is that a problem is about, as `steps.charge.after`.
fn place(outline: &Outline, at: &str) -> Option<Place> {
    fn of<T>(spanned: &Spanned<T>) -> Option<Place> {
        let location = spanned.referenced;
        Some(Place { line: location.line(), column: location.column() })
    }
    let keys: Vec<_> = at.split('.').collect();
    match keys.as_slice() {
        ["version"] => of(outline.version.as_ref()?),
        ["complete_within"] => of(outline.complete_within.as_ref()?),
        ["steps", step, key, ..] => {
            let step = outline.steps.as_ref()?.value.get(*step)?;
            step.value.get(*key).map_or_else(|| of(step), of)
        }
        _ => of(outline.steps.as_ref()?),
    }
}
