//! Reads workflow definitions from YAML or JSON files. The result is a valid workflow, or all problems of the
//! file with their lines and columns.
//!
//! | layer | finds |
//! | --- | --- |
//! | YAML | syntax errors and duplicate keys: the first one only |
//! | `structure` | unknown and missing keys; invalid types, names, numbers and durations |
//! | [`Workflow::problems`] | invalid expressions, and settings that contradict each other |

use std::path::Path;

use serde_json::Value;
use steward_core::{
    definition::{lint::Severity, problem::DefinitionProblem, workflow::Workflow},
    limits,
};

pub use document::{ParsedFile, read_parsed};
pub use error::DefinitionError;
pub use location::{LocatedProblem, SourceLocation};
use source_map::SourceMap;
pub use structure::FileFormat;
use yaml::{read, syntax_problem};

mod document;
mod error;
mod location;
mod source_map;
mod structure;
mod yaml;

/// Reads one definition file.
///
/// # Errors
/// The file cannot be read, is too large or is not a valid definition. The error has all problems.
pub fn read_file(path: &Path) -> Result<Workflow, DefinitionError> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| DefinitionError::Unreadable { path: path.to_owned(), source })?;
    parse(path, &text)
}

/// Whether a file has tests of a workflow, by its name: `order.test.yaml`.
#[must_use]
pub fn is_test_file(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.rsplit_once('.').is_some_and(|(stem, _)| stem.ends_with(".test"))
}

/// Reads the definitions of a folder: all `.yaml`, `.yml` and `.json` files that are not [tests](is_test_file), in the order
/// of their names.
///
/// # Errors
/// As [`read_file`], for the first file that fails.
pub fn read_dir(dir: &Path) -> Result<Vec<Workflow>, DefinitionError> {
    let unreadable = |source| DefinitionError::Unreadable { path: dir.to_owned(), source };
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        let extension = path.extension().and_then(|extension| extension.to_str());
        if matches!(extension, Some("yaml" | "yml" | "json")) && !is_test_file(&path) {
            paths.push(path);
        }
    }
    paths.sort();
    paths.iter().map(|path| read_file(path)).collect()
}

/// Reads a definition from `text`. Errors name `path` as its file.
///
/// # Errors
/// `text` is too large or is not a valid definition. The error has all problems.
pub fn parse(path: &Path, text: &str) -> Result<Workflow, DefinitionError> {
    let path = path.to_owned();
    if text.len() > limits::DEFINITION_BYTES_MAX {
        return Err(DefinitionError::TooLarge { path, bytes: text.len() });
    }
    check(text).map_err(|problems| DefinitionError::invalid(path, text, problems))
}

/// The locations of findings, such as warnings, in the definition that they are about.
#[must_use]
pub fn locate(text: &str, problems: Vec<DefinitionProblem>) -> Vec<LocatedProblem> {
    let source_map: Option<SourceMap> = read(text).ok();
    let located = problems.into_iter().map(|problem| LocatedProblem {
        location: source_map.as_ref().and_then(|source_map| source_map.location(&problem.at)),
        problem,
    });
    located.collect()
}

fn check(text: &str) -> Result<Workflow, Vec<LocatedProblem>> {
    let mut definition: Value = read(text).map_err(|error| vec![syntax_problem(&error)])?;
    let mut source_map: SourceMap = read(text).map_err(|error| vec![syntax_problem(&error)])?;
    let structure = structure::check(&structure::DEFINITIONS, &mut definition, &mut source_map);
    if structure.is_full() {
        return Err(structure.problems);
    }
    let locate = |problem: DefinitionProblem| LocatedProblem {
        location: source_map.location(&problem.at),
        problem,
    };
    let workflow = Workflow::read(definition).map_err(|problem| vec![problem]);
    let problems = match &workflow {
        Ok(workflow) => workflow.problems(),
        Err(problems) if structure.problems.is_empty() => problems.iter().map(reworded).collect(),
        // The structural problems are reported; these may only be their consequences.
        Err(_) => Vec::new(),
    };
    let problems = problems.into_iter().filter(|problem| !structure.is_consequence(problem));
    let mut problems: Vec<_> = problems.map(locate).collect();
    problems.extend(structure.problems);
    if let Ok(workflow) = &workflow
        && problems.is_empty()
    {
        let findings = workflow.lint().into_iter();
        let errors = findings.filter(|finding| finding.severity == Severity::Error);
        problems.extend(errors.map(|finding| locate(finding.problem)));
    }
    match workflow {
        Ok(workflow) if problems.is_empty() => Ok(workflow),
        Ok(_) | Err(_) => Err(problems),
    }
}

/// Rewords serde's message for `1.0` in place of an integer: JSON Schema accepts it, but the types do not.
fn reworded(problem: &DefinitionProblem) -> DefinitionProblem {
    match problem.message.starts_with("invalid type: floating point") {
        true => DefinitionProblem {
            message: "must be an integer, without `.0`".into(),
            ..problem.clone()
        },
        false => problem.clone(),
    }
}

#[cfg(test)]
mod tests;
