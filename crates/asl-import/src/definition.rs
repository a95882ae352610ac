//! The definition that an import writes: steps with comments and marks, as YAML.

use std::fmt::Write as _;

use indexmap::IndexMap;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::{report::Level, resource::AgentKind};

/// A definition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Definition {
    /// The name of the workflow.
    pub name: String,
    /// The definition.
    pub yaml: String,
}

/// A line about a part that is not complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mark {
    /// The number of its line in the report.
    pub(crate) number: usize,
    pub(crate) level: Level,
    pub(crate) message: String,
    /// Whether a placeholder in an expression already makes `check` fail.
    pub(crate) is_placeholder: bool,
}

/// A step.
#[derive(Debug, Clone, Default)]
pub(crate) struct Step {
    pub(crate) keys: Map<String, Value>,
    pub(crate) marks: Vec<Mark>,
    /// The kind of its agent, to find out whether it can also make the call of an undo.
    pub(crate) kind: Option<AgentKind>,
}

/// A definition before it is written as YAML.
#[derive(Debug, Clone, Default)]
pub(crate) struct Draft {
    pub(crate) name: String,
    pub(crate) head: Map<String, Value>,
    pub(crate) steps: IndexMap<String, Step>,
    pub(crate) output: Option<Value>,
    pub(crate) marks: Vec<Mark>,
}

/// The name of a mark: a key that definitions do not have, and that no expression can read.
pub(crate) fn mark_name(level: Level, number: usize) -> String {
    match level {
        Level::Cannot => format!("cannot_translate_{number}"),
        Level::Translated | Level::Note | Level::Decision => format!("decide_{number}"),
    }
}

impl Draft {
    /// The definition as YAML.
    ///
    /// # Errors
    /// The YAML serialiser fails.
    pub(crate) fn yaml(&self) -> Result<String, String> {
        let mut yaml = String::new();
        write_mapping(&mut yaml, "", &self.head)?;
        write_marks(&mut yaml, "", &self.marks)?;
        yaml.push_str("steps:\n");
        for (name, step) in &self.steps {
            let _ = writeln!(yaml, "  {name}:");
            write_marks(&mut yaml, "    ", &step.marks)?;
            write_mapping(&mut yaml, "    ", &step.keys)?;
        }
        if let Some(output) = &self.output {
            let keys = [("output".to_owned(), output.clone())].into_iter().collect();
            write_mapping(&mut yaml, "", &keys)?;
        }
        Ok(yaml)
    }
}

/// Writes each mark as a comment, and as a key that `steward workflow check` refuses.
fn write_marks(yaml: &mut String, indent: &str, marks: &[Mark]) -> Result<(), String> {
    for mark in marks {
        let name = mark_name(mark.level, mark.number);
        let message = crate::source::printable(&mark.message);
        if mark.is_placeholder {
            let _ = writeln!(yaml, "{indent}# {name}: {message}");
        } else {
            let keys = [(name, Value::String(message))].into_iter().collect();
            write_mapping(yaml, indent, &keys)?;
        }
    }
    Ok(())
}

fn write_mapping(yaml: &mut String, indent: &str, keys: &Map<String, Value>) -> Result<(), String> {
    if keys.is_empty() {
        return Ok(());
    }
    let text = serde_saphyr::to_string(keys).map_err(|error| error.to_string())?;
    for line in text.lines() {
        match line.is_empty() {
            true => yaml.push('\n'),
            false => {
                let _ = writeln!(yaml, "{indent}{line}");
            }
        }
    }
    Ok(())
}
