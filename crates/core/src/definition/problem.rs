//! A problem of a definition: its location and a message.

use std::fmt;

/// A problem of a definition.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct DefinitionProblem {
    /// The key that has the problem, such as `steps.charge.after`. Empty for the definition as a whole.
    pub at: String,
    /// The message.
    pub message: String,
    /// A suggestion how to fix it, if there is one.
    pub hint: Option<String>,
}

impl fmt::Display for DefinitionProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.at.is_empty() {
            write!(f, "{}: ", self.at)?;
        }
        f.write_str(&self.message)?;
        match &self.hint {
            Some(hint) => write!(f, "; {hint}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for DefinitionProblem {}
