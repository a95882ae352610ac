//! The report of an import: one line for each part of the state machine.

use std::fmt;

use serde::Serialize;

use crate::position::Position;

/// What became of a part of the state machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// It was translated with the same meaning.
    Translated,
    /// It was translated. There is a difference to know of, which needs no change of the definition.
    Note,
    /// A person has to decide. The definition has a mark there, which `steward workflow check` refuses.
    Decision,
    /// The language of definitions cannot say it. The definition has a mark there, too.
    Cannot,
}

impl Level {
    fn word(self) -> &'static str {
        match self {
            Self::Translated => "translated",
            Self::Note => "note",
            Self::Decision => "needs a decision",
            Self::Cannot => "cannot be translated",
        }
    }
}

/// One line of the report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ImportFinding {
    /// Its number. The marks in the definition have the same number.
    pub number: usize,
    /// What became of the part.
    pub level: Level,
    /// The JSON pointer of the part.
    pub pointer: String,
    /// The line of the part.
    pub line: u64,
    /// The column of the part.
    pub column: u64,
    /// What it became, or what to decide.
    pub message: String,
}

/// The outcome of an import.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// All of the state machine was translated, and the definition is valid.
    Complete,
    /// Nothing is missing that the language cannot say, but a person has to decide something.
    NeedsDecisions,
    /// A part of the state machine cannot be translated.
    Incomplete,
}

/// The report of an import.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The lines, in the order of the state machine.
    pub findings: Vec<ImportFinding>,
}

impl Report {
    /// The outcome.
    #[must_use]
    pub fn status(&self) -> Status {
        match self.findings.iter().map(|finding| finding.level).max() {
            None | Some(Level::Translated | Level::Note) => Status::Complete,
            Some(Level::Decision) => Status::NeedsDecisions,
            Some(Level::Cannot) => Status::Incomplete,
        }
    }

    /// The number of lines with this level.
    #[must_use]
    pub fn count(&self, level: Level) -> usize {
        self.findings.iter().filter(|finding| finding.level == level).count()
    }

    /// Adds a line, and returns its number.
    pub(crate) fn add(
        &mut self,
        level: Level,
        pointer: &str,
        position: Position,
        message: String,
    ) -> usize {
        let number = self.findings.len() + 1;
        let Position { line, column } = position;
        let pointer = pointer.to_owned();
        self.findings.push(ImportFinding { number, level, pointer, line, column, message });
        number
    }
}

impl fmt::Display for ImportFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { number, level, line, column, pointer, message } = self;
        let pointer = crate::source::printable(pointer);
        let message = crate::source::printable(message);
        write!(f, "{line}:{column}: [{number}] {}: {pointer}: {message}", level.word())
    }
}
