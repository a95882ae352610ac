use serde_json::{Value, json};

use super::*;
use crate::{
    engine::{
        event::Event,
        tests::{TaskDriver, command, failed, reply},
    },
    model::attempt::Action,
};

/// A task of one step that has started.
fn started(more: Value, input: &Value) -> TaskDriver {
    let mut definition = json!({ "steps": { "a": { "agent": "a", "request": { "path": "/a" } } } });
    json_patch::merge(&mut definition, &more);
    let mut driver = TaskDriver::new(definition, input);
    driver.apply(&Event::Wake);
    driver
}

/// Lets an attempt fail, and resubmits the step with an edit of the input. Returns why the edit was refused.
fn fail_and_edit(driver: &mut TaskDriver, attempt: u32, id: &str, patch: Value) -> Option<String> {
    driver.apply(&Event::ReplyReceived(reply("a", Action::Do, attempt, failed(false))));
    let edit = CommandAction::Resubmit { step: None, input: Some(patch), did_not_run: false };
    driver.command(id, edit)
}

#[test]
fn edits_that_together_exceed_the_document_limit_are_refused() {
    let mut driver = started(json!({}), &json!({}));
    let large = || "x".repeat(limits::DOCUMENT_BYTES_MAX * 2 / 3);
    assert_eq!(fail_and_edit(&mut driver, 1, "first", json!({ "first": large() })), None);
    let refused = fail_and_edit(&mut driver, 2, "second", json!({ "second": large() }));
    let reason = "an edited input of 174786 bytes; the limit is 131072";
    assert_eq!(refused.as_deref(), Some(reason));
    assert_eq!(driver.task.input_edit_id, Some("first".parse().unwrap()));
    assert_eq!(driver.task.process_state, ProcessState::Error);
}

#[test]
fn an_old_command_whose_record_was_dropped_is_not_executed_again() {
    let definition = json!({ "steps": { "a": { "agent": "a", "request": { "path": "/a" } } } });
    let mut driver = TaskDriver::new(definition, &Value::Null);
    let mut execute = |id: &str, action, issued_at: i64, now: i64| {
        driver.apply_at(now, &command(id, action, issued_at));
        let task = &driver.task;
        (task.paused_at.is_some(), task.commands.last().unwrap().refused.clone())
    };
    assert_eq!(execute("first", CommandAction::Pause, 1, 2), (true, None));
    for n in 0..20 {
        let action = if n % 2 == 0 { CommandAction::Resume } else { CommandAction::Pause };
        let refused = execute(&format!("c-{n}"), action, 10 + n, 11 + n).1;
        assert_eq!(refused, None, "a new command is executed");
    }
    assert_eq!(execute("newest", CommandAction::Resume, 40, 41), (false, None));
    let (paused, refused) = execute("first", CommandAction::Pause, 1, 50);
    assert!(!paused, "the first command was executed again");
    assert!(refused.unwrap().contains("may have been executed"));
}

#[test]
fn an_edit_that_violates_the_schema_is_refused() {
    let schema =
        json!({ "input": { "required": ["n"], "properties": { "n": { "type": "integer" } } } });
    let mut driver = started(schema, &json!({ "n": 1 }));
    let refused = fail_and_edit(&mut driver, 1, "edit", json!({ "n": "secret" }));
    assert_eq!(refused.as_deref(), Some("input.n: it is not of type \"integer\""));
    assert_eq!(driver.task.process_state, ProcessState::Error);
}
