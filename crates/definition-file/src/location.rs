//! The location of a problem in a definition file.

use std::ops::Range;

use serde_saphyr::Location;
use steward_core::definition::problem::DefinitionProblem;

/// A problem of a definition file, with its location.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocatedProblem {
    /// The problem.
    pub problem: DefinitionProblem,
    /// The location; `None` if the YAML parser gives none.
    pub location: Option<SourceLocation>,
}

/// A location in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceLocation {
    /// The line, starting from 1.
    pub line: u64,
    /// The column in characters, starting from 1.
    pub column: u64,
    /// The byte range of the key or value.
    pub bytes: Range<usize>,
}

impl SourceLocation {
    /// The location that the parser gives; `None` if it gives none.
    pub(crate) fn new(location: Location) -> Option<Self> {
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
