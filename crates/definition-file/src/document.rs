//! Files of other formats than definitions, such as tests of a workflow: a value of a type, or all problems of the file
//! with their lines and columns.

use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde_json::Value;
use steward_core::{definition::problem::DefinitionProblem, limits};

use super::{
    error::DefinitionError,
    location::{LocatedProblem, SourceLocation},
    source_map::SourceMap,
    structure::{self, FileFormat},
    yaml::{read, syntax_problem},
};

/// A file that has been read, with the locations of its keys and values.
#[derive(Debug)]
pub struct ParsedFile<T> {
    /// The file.
    pub path: PathBuf,
    /// Its text.
    pub text: String,
    /// Its content.
    pub content: T,
    source_map: SourceMap,
}

impl<T> ParsedFile<T> {
    /// The location of a key or value by its path, such as `cases.0.name`, or of the closest parent that the file has.
    #[must_use]
    pub fn location(&self, at: &str) -> Option<SourceLocation> {
        self.source_map.location(at)
    }

    /// The error for a file with these problems.
    #[must_use]
    pub fn invalid(&self, problems: Vec<DefinitionProblem>) -> DefinitionError {
        let locate = |problem: DefinitionProblem| LocatedProblem {
            location: self.source_map.location(&problem.at),
            problem,
        };
        DefinitionError::invalid(
            self.path.clone(),
            &self.text,
            problems.into_iter().map(locate).collect(),
        )
    }
}

/// Reads a file of this format. `T` must accept what the format accepts.
///
/// # Errors
/// The file cannot be read, is too large, or is not valid. The error has all problems.
pub fn read_parsed<T: DeserializeOwned>(
    format: &FileFormat,
    path: &Path,
) -> Result<ParsedFile<T>, DefinitionError> {
    let path = path.to_owned();
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(source) => return Err(DefinitionError::Unreadable { path, source }),
    };
    if text.len() > limits::DEFINITION_BYTES_MAX {
        return Err(DefinitionError::TooLarge { path, bytes: text.len() });
    }
    let syntax =
        |error| DefinitionError::invalid(path.clone(), &text, vec![syntax_problem(&error)]);
    let mut value: Value = read(&text).map_err(syntax)?;
    let mut source_map: SourceMap = read(&text).map_err(syntax)?;
    let found = structure::check(format, &mut value, &mut source_map).problems;
    if !found.is_empty() {
        return Err(DefinitionError::invalid(path, &text, found));
    }
    let content = serde_path_to_error::deserialize(value).map_err(|error| {
        let at = error.path().to_string().replace('[', ".").replace(']', "");
        let at = at.trim_start_matches('.').to_owned();
        let location = source_map.location(&at);
        let message = error.into_inner().to_string();
        let problem = DefinitionProblem { at, message, hint: None };
        DefinitionError::invalid(path.clone(), &text, vec![LocatedProblem { problem, location }])
    })?;
    Ok(ParsedFile { path, text, content, source_map })
}
