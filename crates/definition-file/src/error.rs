//! Why a file cannot be used, with all its problems.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use steward_core::{definition::problem::DefinitionProblem, limits};

use super::location::{LocatedProblem, SourceLocation};

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

impl DefinitionError {
    /// The error for a file with these problems, in the order of their lines: at most [`PROBLEMS_MAX`](limits::PROBLEMS_MAX), and one
    /// that says that there are more.
    pub(crate) fn invalid(path: PathBuf, text: &str, mut problems: Vec<LocatedProblem>) -> Self {
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
        let max = limits::PROBLEMS_MAX;
        if problems.len() > max {
            problems.truncate(max);
            let location = problems.last().and_then(|last| last.location.clone());
            let message = format!("more than {max} problems; only these are reported");
            let hint = Some("correct them, and check the file again".to_owned());
            let problem = DefinitionProblem { at: String::new(), message, hint };
            problems.push(LocatedProblem { problem, location });
        }
        Self::Invalid { path, text: text.to_owned(), problems }
    }
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

/// `text` with its control characters escaped.
fn printable(text: &str) -> String {
    let escaped =
        |c: char| if c.is_control() { c.escape_debug().to_string() } else { c.to_string() };
    text.chars().map(escaped).collect()
}
