//! Why an import fails.

use crate::position::Position;

/// Bytes of a state machine, as in Step Functions.
pub const BYTES_MAX: usize = 1024 * 1024;

/// Why a file is no state machine.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ImportError {
    /// The file is too large.
    #[error("{0} bytes; the limit of a state machine is {BYTES_MAX}")]
    TooLarge(usize),
    /// The file is neither JSON nor YAML.
    #[error("{}:{}: {message}", position.line, position.column)]
    Syntax {
        /// Where.
        position: Position,
        /// The message of the parser.
        message: String,
    },
    /// The file is no state machine.
    #[error("{}:{}: {pointer}: {message}", position.line, position.column)]
    Invalid {
        /// Where.
        position: Position,
        /// The JSON pointer of the place.
        pointer: String,
        /// What is wrong.
        message: String,
    },
    /// The definition could not be written.
    #[error("the definition cannot be written as YAML: {0}")]
    Yaml(String),
}
