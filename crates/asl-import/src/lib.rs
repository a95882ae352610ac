//! Translates a state machine in Amazon States Language (<https://states-language.net>) into workflow definitions.
//!
//! Text goes in; definitions as YAML and a report come out. The report has a line for each part of the state machine: what it
//! became, what a person has to decide, and what cannot be translated. The importer never guesses silently: wherever the report
//! asks for a decision, the definition has a mark that `steward workflow check` refuses.

use std::{collections::BTreeSet, path::Path};

use serde::Serialize;
use steward_definition_file::DefinitionError;

pub use agent::Agent;
pub use definition::Definition;
pub use error::{BYTES_MAX, ImportError};
pub use options::Options;
pub use position::Position;
pub use report::{ImportFinding, Level, Report, Status};

use crate::{
    condition::Condition,
    importer::{Importer, Point, Shared},
    scope::ContextParts,
    symbol::Symbol,
};

mod agent;
mod catch;
mod cel;
mod choice;
mod condition;
mod definition;
mod deployment;
mod error;
mod exits;
mod importer;
mod jsonata;
mod jsonpath;
mod machine;
mod names;
mod options;
mod poll;
mod position;
mod recovery;
mod report;
mod resource;
mod scope;
mod source;
mod states;
mod symbol;
mod task;

/// The result of an import.
#[derive(Debug, Clone, Serialize)]
pub struct Import {
    /// The definition, and after it those of its child tasks.
    pub definitions: Vec<Definition>,
    /// The agents that the definitions need.
    pub agents: Vec<Agent>,
    /// What was translated, and what was not.
    pub report: Report,
}

/// Translates a state machine.
///
/// # Errors
/// The text is too large, is neither JSON nor YAML, or is no state machine.
pub fn import(text: &str, options: &Options) -> Result<Import, ImportError> {
    if text.len() > BYTES_MAX {
        return Err(ImportError::TooLarge(text.len()));
    }
    let (mut machine, positions) = source::parse(&deployment::quoted(text))?;
    deployment::substitute(&mut machine, &options.substitutions);
    let mut shared = Shared {
        positions: &positions,
        options,
        constants: deployment::constants(&machine),
        report: Report::default(),
        agents: indexmap::IndexMap::new(),
        workflow_names: BTreeSet::new(),
        children: Vec::new(),
        depth: 0,
        unique_values: std::rc::Rc::default(),
    };
    let name = names::unique(&options.name, "-", &mut shared.workflow_names);
    let input = Symbol::path("input");
    let context = ContextParts { input: Some(input.clone()), item: None };
    let start = Point {
        condition: Condition::Always,
        after: BTreeSet::new(),
        data: input,
        variables: indexmap::IndexMap::new(),
    };
    let main = Importer::new(&mut shared, name, context).definition(&machine, "", false, start)?;
    let mut drafts = vec![main];
    drafts.append(&mut shared.children);
    let definitions = importer::definitions(&drafts)?;
    let Shared { mut report, agents, .. } = shared;
    if report.status() == Status::Complete {
        check(&definitions, &mut report);
    }
    Ok(Import { definitions, agents: agents.into_values().collect(), report })
}

/// Checks definitions whose import is complete. A problem, for example an expression that became too long, makes the import
/// incomplete.
fn check(definitions: &[Definition], report: &mut Report) {
    for definition in definitions {
        let path = format!("{}.yaml", definition.name);
        match steward_definition_file::parse(Path::new(&path), &definition.yaml) {
            Ok(_) => {}
            Err(DefinitionError::Invalid { problems, .. }) => {
                for located in problems {
                    let message = format!("`{path}` is not valid: {}", located.problem);
                    report.add(Level::Cannot, "", Position { line: 1, column: 1 }, message);
                }
            }
            Err(
                error @ (DefinitionError::Unreadable { .. } | DefinitionError::TooLarge { .. }),
            ) => {
                report.add(Level::Cannot, "", Position { line: 1, column: 1 }, error.to_string());
            }
        }
    }
}

#[cfg(test)]
mod tests;
