//! Reads workflow definitions from YAML or JSON files. The result is a valid workflow, or all problems of the
//! file with their lines and columns.
//!
//! | layer | finds |
//! | --- | --- |
//! | YAML | syntax errors and duplicate keys: the first one only |
//! | `structure` | unknown and missing keys; invalid types, names, numbers and durations |
//! | [`Workflow::problems`] | invalid expressions, and settings that contradict each other |

use std::{
    borrow::Cow,
    fmt,
    path::{Path, PathBuf},
};

use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_saphyr::{Error, Localizer, Location, MessageFormatter, UserMessageFormatter};
use steward_core::{
    definition::{lint::Severity, problem::DefinitionProblem, workflow::Workflow},
    limits,
};

pub use document::{ParsedFile, read_parsed};
pub use location::{LocatedProblem, SourceLocation};
use source_map::SourceMap;
pub use structure::FileFormat;

mod document;
mod location;
mod source_map;
mod structure;

/// Why a definition file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DefinitionError {
    /// The file cannot be read.
    #[error("{}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The file is too large to be published.
    #[error("{}: {bytes} bytes; the limit is {max}", path.display(), max = limits::DEFINITION_BYTES_MAX)]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The size of the file in bytes.
        bytes: usize,
    },
    /// The file is not a valid definition.
    #[error("{}", ProblemLines { path, problems })]
    Invalid {
        /// The file.
        path: PathBuf,
        /// The content of the file.
        text: String,
        /// All problems, in the order of their lines.
        problems: Vec<LocatedProblem>,
    },
}

/// Formats problems as `file:line:column: problem`, which terminals and editors can open.
struct ProblemLines<'a> {
    path: &'a Path,
    problems: &'a [LocatedProblem],
}

impl fmt::Display for ProblemLines<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, LocatedProblem { problem, location }) in self.problems.iter().enumerate() {
            let newline = if n == 0 { "" } else { "\n" };
            write!(f, "{newline}{}", self.path.display())?;
            if let Some(SourceLocation { line, column, .. }) = location {
                write!(f, ":{line}:{column}")?;
            }
            write!(f, ": {problem}")?;
        }
        Ok(())
    }
}

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
    check(text).map_err(|problems| invalid(path, text, problems))
}

/// The error for a file with these problems, in the order of their lines.
fn invalid(path: PathBuf, text: &str, mut problems: Vec<LocatedProblem>) -> DefinitionError {
    let key = |located: &LocatedProblem| {
        let location = located.location.as_ref();
        (location.map(|at| (at.line, at.column)), located.problem.clone())
    };
    for LocatedProblem { problem, .. } in &mut problems {
        // Messages quote the file: a terminal must not execute its control characters.
        problem.message = printable(&problem.message);
    }
    problems.sort_by_key(key);
    problems.dedup();
    DefinitionError::Invalid { path, text: text.to_owned(), problems }
}

/// The location of a finding, such as a warning, in the definition that it is about.
#[must_use]
pub fn locate(text: &str, problem: DefinitionProblem) -> LocatedProblem {
    let source_map: Option<SourceMap> = read(text).ok();
    LocatedProblem {
        location: source_map.and_then(|source_map| source_map.location(&problem.at)),
        problem,
    }
}

fn check(text: &str) -> Result<Workflow, Vec<LocatedProblem>> {
    let mut definition: Value = read(text).map_err(|error| vec![syntax_problem(&error)])?;
    let mut source_map: SourceMap = read(text).map_err(|error| vec![syntax_problem(&error)])?;
    let structure = structure::check(&structure::DEFINITIONS, &mut definition, &mut source_map);
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

/// `text` with its control characters escaped.
fn printable(text: &str) -> String {
    let escaped =
        |c: char| if c.is_control() { c.escape_debug().to_string() } else { c.to_string() };
    text.chars().map(escaped).collect()
}

/// Parses YAML or JSON: JSON is a subset of YAML, so one parser is enough.
fn read<T: DeserializeOwned>(text: &str) -> Result<T, Error> {
    // YAML 1.1 reads the country code `NO` as false; YAML 1.2 reads it as a string.
    serde_saphyr::from_str_with_options(text, serde_saphyr::options! { strict_booleans: true })
}

fn syntax_problem(error: &Error) -> LocatedProblem {
    let message = error.without_snippet().render_with_formatter(&PlainMessages);
    let problem = DefinitionProblem { at: String::new(), message, hint: None };
    LocatedProblem { problem, location: error.location().and_then(SourceLocation::new) }
}

/// The parser's messages, without the location.
struct PlainMessages;

impl MessageFormatter for PlainMessages {
    fn localizer(&self) -> &dyn Localizer {
        self
    }

    fn format_message<'a>(&self, error: &'a Error) -> Cow<'a, str> {
        #[expect(clippy::wildcard_enum_match_arm, reason = "a foreign, non-exhaustive enum")]
        match error {
            Error::DuplicateMappingKey { key: Some(key), .. } => {
                format!("duplicate key `{key}`").into()
            }
            _ => UserMessageFormatter.format_message(error),
        }
    }
}

impl Localizer for PlainMessages {
    fn attach_location<'a>(&self, message: Cow<'a, str>, _: Location) -> Cow<'a, str> {
        message
    }
}

#[cfg(test)]
mod tests;
