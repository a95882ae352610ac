//! Tests of whole imports. The state machines are written for these tests.

mod data;
mod deployment;
mod failures;
mod flow;
mod meaning;
mod polls;
mod tasks;

use std::{collections::BTreeMap, path::Path};

use serde_json::{Value, json};
use steward_core::definition::workflow::Workflow;

use crate::{Import, Level, Options, Status, import};

/// The ARN of a function.
fn function(name: &str) -> String {
    format!("arn:aws:lambda:eu-west-1:123456789012:function:{name}")
}

/// A task that calls a function, with more keys.
fn task(name: &str, more: Value) -> Value {
    let mut task = json!({ "Type": "Task", "Resource": function(name) });
    for (key, value) in more.as_object().unwrap() {
        task[key] = value.clone();
    }
    task
}

/// A machine with these states, of which the first is the start.
fn machine(states: Value) -> Value {
    let start = states.as_object().unwrap().keys().next().unwrap().clone();
    json!({ "StartAt": start, "States": states })
}

fn imported(machine: &Value) -> Import {
    let options =
        Options { name: "m".into(), region: "eu-west-1".into(), substitutions: BTreeMap::new() };
    import(&serde_json::to_string_pretty(machine).unwrap(), &options).unwrap()
}

/// The definition of a complete import.
fn complete(machine: &Value) -> Workflow {
    let import = imported(machine);
    let open: Vec<_> =
        import.report.findings.iter().filter(|finding| finding.level >= Level::Decision).collect();
    assert_eq!(
        import.report.status(),
        Status::Complete,
        "{open:#?}\n{}",
        import.definitions[0].yaml
    );
    parsed(&import)
}

fn parsed(import: &Import) -> Workflow {
    let yaml = &import.definitions[0].yaml;
    match steward_definition_file::parse(Path::new("m.yaml"), yaml) {
        Ok(workflow) => workflow,
        Err(error) => panic!("{error}\n{yaml}"),
    }
}

/// The steps of a complete import, as JSON.
fn steps(machine: &Value) -> Value {
    let import = imported(machine);
    complete(machine);
    let yaml: Value = serde_saphyr::from_str(&import.definitions[0].yaml).unwrap();
    yaml["steps"].clone()
}

/// The messages with this level.
fn messages(machine: &Value, level: Level) -> Vec<String> {
    let findings = imported(machine).report.findings;
    findings.into_iter().filter(|finding| finding.level == level).map(|f| f.message).collect()
}

/// Asserts that the import is not complete, that a message at this level contains the text, and that `check` refuses the
/// definition with the number of the message.
fn refused(machine: &Value, level: Level, text: &str) {
    let import = imported(machine);
    let found = import
        .report
        .findings
        .iter()
        .find(|finding| finding.level == level && finding.message.contains(text));
    let finding = found.unwrap_or_else(|| panic!("{text}: {:#?}", import.report.findings));
    let name = crate::definition::mark_name(level, finding.number);
    let errors: Vec<_> = import
        .definitions
        .iter()
        .filter_map(|definition| {
            steward_definition_file::parse(Path::new("m.yaml"), &definition.yaml).err()
        })
        .map(|error| error.to_string())
        .collect();
    assert!(
        errors.iter().any(|error| error.contains(&name)),
        "{name}: {errors:?}\n{}",
        import.definitions[0].yaml
    );
}
