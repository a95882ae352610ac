//! Definition files: YAML or JSON in, a workflow that can run out, or every reason why not, each with
//! its line and column.
//!
//! | layer | finds |
//! | --- | --- |
//! | YAML | what is not YAML, keys that are there twice: the first mistake only |
//! | `structure` | unknown and missing keys, wrong types, names, numbers, durations |
//! | [`Workflow::problems`] | expressions, and what does not fit together |

use std::{
    borrow::Cow,
    fmt,
    ops::Range,
    path::{Path, PathBuf},
};

use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_saphyr::{Error, Localizer, Location, MessageFormatter, UserMessageFormatter};
use steward_core::{
    definition::{lint::Severity, problem::Problem, workflow::Workflow},
    limits,
};

use outline::Outline;

mod outline;
mod structure;

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
    /// It is not a definition that can run.
    #[error("{}", Lines { path, found })]
    Invalid {
        /// The file.
        path: PathBuf,
        /// What is in it.
        text: String,
        /// All that is wrong, in the order of the lines.
        found: Vec<Found>,
    },
}

/// Something wrong with a definition file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// What.
    pub problem: Problem,
    /// Where, unless it is about the file as a whole.
    pub place: Option<Place>,
}

/// A place in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The line, counted from 1.
    pub line: u64,
    /// The column, in characters, counted from 1.
    pub column: u64,
    /// The bytes of the text that are meant.
    pub bytes: Range<usize>,
}

impl Place {
    fn of(location: Location) -> Option<Self> {
        if location == Location::UNKNOWN {
            return None;
        }
        let span = location.span();
        let start = usize::try_from(span.byte_offset().unwrap_or(0)).unwrap_or(0);
        let length = usize::try_from(span.byte_len().unwrap_or(0)).unwrap_or(0);
        let (line, column) = (location.line(), location.column());
        Some(Self { line, column, bytes: start..start.saturating_add(length) })
    }
}

/// As terminals and editors know to follow it: `file:line:column`.
struct Lines<'a> {
    path: &'a Path,
    found: &'a [Found],
}

impl fmt::Display for Lines<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, Found { problem, place }) in self.found.iter().enumerate() {
            let newline = if n == 0 { "" } else { "\n" };
            write!(f, "{newline}{}", self.path.display())?;
            if let Some(Place { line, column, .. }) = place {
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
    check(text).map_err(|mut found| {
        let key = |found: &Found| {
            let place = found.place.as_ref();
            (place.map(|place| (place.line, place.column)), found.problem.clone())
        };
        for Found { problem, .. } in &mut found {
            // An expression is quoted as it stands: no terminal shall obey it.
            problem.message = printable(&problem.message);
        }
        found.sort_by_key(key);
        found.dedup();
        DefinitionError::Invalid { path, text: text.to_owned(), found }
    })
}

fn check(text: &str) -> Result<Workflow, Vec<Found>> {
    let mut definition: Value = read(text).map_err(|error| vec![not_yaml(&error)])?;
    let mut outline: Outline = read(text).map_err(|error| vec![not_yaml(&error)])?;
    let structure = structure::check(&mut definition, &mut outline);
    let placed = |problem: Problem| Found { place: outline.place(&problem.at), problem };
    let read = Workflow::read(definition).map_err(|problem| vec![problem]);
    let problems = match &read {
        Ok(workflow) => workflow.problems(),
        // What could be mended has been told; the rest may be but a consequence.
        Err(problems) if structure.found.is_empty() => problems.iter().map(plain).collect(),
        Err(_) => Vec::new(),
    };
    let problems = problems.into_iter().filter(|problem| !structure.explains(problem));
    let mut found: Vec<_> = problems.map(placed).collect();
    found.extend(structure.found);
    if let Ok(workflow) = &read
        && found.is_empty()
    {
        let findings = workflow.lint().into_iter();
        let errors = findings.filter(|finding| finding.severity == Severity::Error);
        found.extend(errors.map(|finding| placed(finding.problem)));
    }
    match read {
        Ok(workflow) if found.is_empty() => Ok(workflow),
        Ok(_) | Err(_) => Err(found),
    }
}

/// JSON Schema takes `1.0` for a whole number, the types do not.
fn plain(problem: &Problem) -> Problem {
    match problem.message.starts_with("invalid type: floating point") {
        true => {
            Problem { message: "must be a whole number, without `.0`".into(), ..problem.clone() }
        }
        false => problem.clone(),
    }
}

/// `text` with its control characters written out.
fn printable(text: &str) -> String {
    let shown = |c: char| if c.is_control() { c.escape_debug().to_string() } else { c.to_string() };
    text.chars().map(shown).collect()
}

/// JSON is YAML, so one parser reads both.
fn read<T: DeserializeOwned>(text: &str) -> Result<T, Error> {
    // YAML 1.1 takes the country code `NO` for false; 1.2 knows better.
    serde_saphyr::from_str_with_options(text, serde_saphyr::options! { strict_booleans: true })
}

fn not_yaml(error: &Error) -> Found {
    let message = error.without_snippet().render_with_formatter(&Messages);
    let problem = Problem { at: String::new(), message, hint: None };
    Found { problem, place: error.location().and_then(Place::of) }
}

/// The library's messages in the words of YAML's users, without the place.
struct Messages;

impl MessageFormatter for Messages {
    fn localizer(&self) -> &dyn Localizer {
        self
    }

    fn format_message<'a>(&self, error: &'a Error) -> Cow<'a, str> {
        #[expect(clippy::wildcard_enum_match_arm, reason = "a foreign, non-exhaustive enum")]
        match error {
            Error::DuplicateMappingKey { key: Some(key), .. } => {
                format!("key `{key}` is there twice").into()
            }
            _ => UserMessageFormatter.format_message(error),
        }
    }
}

impl Localizer for Messages {
    fn attach_location<'a>(&self, message: Cow<'a, str>, _: Location) -> Cow<'a, str> {
        message
    }
}

#[cfg(test)]
mod tests;
