//! For each invariant, a task that violates it.

use serde_json::{Value, json};

use super::*;

fn plan() -> Plan {
    let call = |more: Value| {
        let mut step = json!({ "agent": "x", "request": { "path": "/x" }, "undo": { "request": { "path": "/u" } } });
        step.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        step
    };
    let plan = json!({ "name": "w", "version": 1, "steps": {
        "a": call(json!({})),
        "b": call(json!({ "after": ["a"], "recovery": { "attempts": 2 } })),
        "g": call(json!({ "recovery": { "give_up_after": "1m" } })),
        "v": call(json!({ "recovery": { "key_valid_for": "1m" } })),
        "l": call(json!({ "for_each": { "items": "${ input.list }", "at_once": 2 } })),
        "p": call(json!({ "after": ["b"], "point_of_no_return": true, "callback": { "within": "1m" },
            "request": { "path": "/x", "body": "${ callback.token }" } })),
        "q": { "wait": "1m" },
        "r": call(json!({ "callback": { "within": "1m" }, "request": { "path": "/x", "body": "${ callback.token }" } })),
    } });
    serde_json::from_value(plan).unwrap()
}

/// The invariant that a task in Processing violates if it has these fields besides.
fn violated(fields: Value) -> Option<String> {
    let mut task = json!({
        "task_id": "t", "workflow": "w", "v": 1, "i": 0, "k": 0, "process_state": "Processing", "revision": 1,
        "complete_by": 100_000, "submitted_at": 0, "failure_count": 9, "due": 0,
    });
    task.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    let task: Task = serde_json::from_value(task).unwrap();
    let checked = task.check(&plan(), Timestamp::UNIX_EPOCH, Duration::from_secs(10));
    checked.err().map(|violated| violated.to_string())
}

fn ended(state: &str, fields: Value) -> Value {
    let mut all = json!({ "process_state": state, "ended_at": 50_000, "due": null });
    all.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    all
}

fn step(name: &str, record: Value) -> Value {
    json!({ "steps": { name: record } })
}

fn undoing(steps: Value) -> Value {
    json!({ "process_state": "Undoing", "undo_reason": "no", "steps": steps })
}

#[test]
fn a_task_that_violates_no_invariant_is_accepted() {
    let item = |attempt| json!({ "s": "r", "a": attempt, "b": 60_000 });
    for fields in [
        json!({}),
        json!({ "process_state": "Pending", "due": 10_000 }),
        json!({ "paused_at": 0, "due": 10_000 }),
        ended("Error", json!({ "error": "no", "steps": { "a": { "s": "f", "a": 1, "f": 1 } } })),
        ended(
            "Undone",
            json!({ "undo_reason": "no", "steps": {
            "a": { "s": "c", "a": 1, "x": { "s": "c", "a": 2 }, "w": 40_000 },
        } }),
        ),
        undoing(
            json!({ "a": { "s": "c", "a": 1 }, "b": { "s": "f", "a": 2, "f": 2, "m": true, "x": item(1) } }),
        ),
        step("l", json!({ "s": "e", "p": { "n": 3, "d": [item(1)], "l": "2a" } })),
        step("p", json!({ "s": "h", "a": 1, "b": 60_000, "u": 60_000 })),
        step("q", json!({ "s": "w", "a": 0, "u": 60_000 })),
        step("g", json!({ "s": "r", "a": 1, "b": 60_000, "l": 60_000 })),
    ] {
        assert_eq!(violated(fields.clone()), None, "{fields}");
    }
}

#[test]
fn each_invariant_can_be_violated() {
    let command = json!({
        "id": "c", "command": "pause", "by": "ann", "why": "x", "at": 0, "caller": { "sender": "A", "via": "direct" },
    });
    let parent = json!({ "task_id": "p", "step": "s", "depth": 9, "incarnation": 0 });
    let running = |by| json!({ "s": "r", "a": 1, "b": by });
    let completed = json!({ "s": "c", "a": 1 });
    let items =
        |count: u32, record: Value, runs: &str| json!({ "n": count, "d": [record], "l": runs });
    for (fields, invariant) in [
        (ended("Processed", json!({ "locked_by": "x" })), "Processed, Undone: it is not locked"),
        (
            ended("Error", json!({ "error": "no", "paused_at": 0 })),
            "only a task that has not ended is paused",
        ),
        (json!({ "ended_at": 0 }), "it has an end time if and only if it has ended"),
        (json!({ "error": "no" }), "it has an error if and only if it is in Error"),
        (json!({ "alert": true }), "only a task in Error is to be alerted"),
        (json!({ "stop": "h" }), "only a task in Error has a cause of it"),
        (json!({ "process_state": "Undoing" }), "Undoing, Undone: it has an undo reason"),
        (json!({ "undo_reason": "no" }), "Pending, Processing, Processed: it has no undo reason"),
        (json!({ "undo_is_final": true }), "a final undo has a reason"),
        (
            json!({ "process_state": "Pending", "steps": { "a": running(0) } }),
            "Pending: no step has started",
        ),
        (
            step("b", json!({ "s": "w", "a": 1, "u": 0, "f": 10 })),
            "its failure count includes the failures of its steps",
        ),
        (json!({ "commands": vec![command.clone(); 21] }), "it keeps only the newest commands"),
        (json!({ "commands": [command, command] }), "each of its commands is recorded once"),
        (json!({ "parent": parent }), "the depth of a child task is within the limit"),
        (json!({ "kept_for_parent": { "from": 0 } }), "only a child task is kept for a parent"),
        (
            ended("Processed", step("a", completed.clone())),
            "Processed: every step completed or was skipped",
        ),
        (
            ended("Undone", json!({ "undo_reason": "no", "steps": { "a": completed } })),
            "Undone: nothing is left to undo",
        ),
        (
            ended(
                "Undone",
                json!({ "undo_reason": "no", "steps": { "a": { "s": "f", "a": 1, "w": 60_000 } } }),
            ),
            "Undone: no call of unknown outcome may be in progress",
        ),
        (
            ended("Undone", json!({ "undo_reason": "no", "steps": { "a": running(60_000) } })),
            "Processed, Undone: nothing is awaited",
        ),
        (
            ended("Undone", json!({ "undo_reason": "no", "due": 0 })),
            "Processed, Undone: it is not due",
        ),
        (json!({ "due": null }), "it is due if it has not ended, or is to be alerted"),
        (
            ended("Error", json!({ "error": "no", "alert": true })),
            "it is due if it has not ended, or is to be alerted",
        ),
        (
            ended("Error", json!({ "error": "no", "steps": { "a": running(50_000) } })),
            "due by the deadline of each awaited reply or callback",
        ),
        (json!({ "due": 200_000 }), "due by its complete-by"),
        (
            json!({ "due": 50_001, "steps": { "a": running(50_000) } }),
            "due by the deadline of each awaited reply or callback",
        ),
        (
            json!({ "due": 50_000, "steps": { "q": { "s": "w", "a": 0, "u": 30_000 } } }),
            "due soon after the end of each wait",
        ),
        (
            json!({ "process_state": "Undoing", "undo_reason": "no", "due": 50_000, "steps": {
                "a": { "s": "f", "a": 1, "m": true, "w": 30_000 },
            } }),
            "due soon after the last call for which the undo waits",
        ),
        (json!({ "process_state": "Pending", "due": 20_000 }), "Pending: due soon"),
        (json!({ "paused_at": 0, "due": 99_999_999 }), "paused: due within the limit"),
        (step("z", running(0)), "the workflow has the step"),
        (
            step("a", json!({ "s": "c", "a": 0, "p": { "n": 0, "d": [], "l": "" } })),
            "only a step with `for_each` or `repeat` has items",
        ),
        (step("l", json!({ "s": "e" })), "a step whose items run has items"),
        (
            step("l", json!({ "s": "e", "p": items(9, running(0), "3a") })),
            "no more items are in progress than `at_once`",
        ),
        (
            step("l", json!({ "s": "c", "a": 0, "p": items(3, completed.clone(), "2a") })),
            "a step completes when its last item has passed",
        ),
        (
            step("l", json!({ "s": "e", "p": items(2, completed.clone(), "2a") })),
            "a step completes when its last item has passed",
        ),
        (
            step(
                "l",
                json!({ "s": "e", "p": items(3, json!({ "s": "r", "a": 1, "b": 0, "p": items(1, running(0), "1a") }), "1a") }),
            ),
            "an item has no items",
        ),
        (
            undoing(
                json!({ "l": { "s": "e", "x": running(0), "p": { "n": 1, "d": [], "l": "" } } }),
            ),
            "a step with items is not undone as a whole",
        ),
        (step("a", json!({ "s": "f", "a": 1 })), "Processing: it has not failed"),
        (
            undoing(json!({ "a": { "s": "c", "a": 1, "x": { "s": "f", "a": 1 } } })),
            "Undoing: its undo has not failed",
        ),
        (
            undoing(json!({ "q": { "s": "c", "a": 0, "x": running(0) } })),
            "only a step with an undo is undone",
        ),
        (
            step("a", json!({ "s": "c", "a": 1, "x": running(0) })),
            "it is undone only if the task is",
        ),
        (
            undoing(json!({ "a": { "s": "r", "a": 1, "b": 0, "x": running(0) } })),
            "its undo waits for its own attempt",
        ),
        (
            undoing(json!({ "a": { "s": "c", "a": 1, "x": running(0) }, "b": running(0) })),
            "its undo waits for the attempts of later steps",
        ),
        (undoing(json!({ "p": completed })), "past the point of no return no undo begins"),
        (step("a", json!({ "s": "r", "a": 0, "b": 0 })), "attempts are numbered from 1"),
        (step("a", running(100_001)), "it awaits nothing after the task's complete-by"),
        (
            step("a", json!({ "s": "h", "a": 1, "b": 1, "u": 1 })),
            "only a step with a callback awaits one",
        ),
        (
            step("p", json!({ "s": "h", "a": 1, "b": 2, "u": 1 })),
            "the deadlines of a callback are in order",
        ),
        (
            undoing(json!({ "r": { "s": "h", "a": 1, "b": 1, "u": 1 } })),
            "Undoing: only the callback of a point of no return is awaited",
        ),
        (
            step("b", json!({ "s": "w", "a": 4, "u": 0, "f": 4 })),
            "it fails no more often than its policy allows",
        ),
        (
            step("q", json!({ "s": "w", "a": 0, "u": 0, "w": 1 })),
            "only a call may be in progress, or be deferred",
        ),
        (
            step("a", json!({ "s": "r", "a": 1, "b": 0, "n": 1 })),
            "its agent is one of those of the step",
        ),
        (
            step("a", json!({ "s": "r", "a": 1, "b": 0, "q": true })),
            "only of a step with several agents may a second delivery act",
        ),
        (
            step("a", json!({ "s": "r", "a": 1, "b": 0, "r": 1 })),
            "only a step with a child task has a report of one",
        ),
        (
            step("a", json!({ "s": "r", "a": 1, "b": 0, "l": 1 })),
            "only a part that goes on has a time limit, and only with `give_up_after`",
        ),
        (
            step("g", json!({ "s": "c", "a": 1, "l": 1 })),
            "only a part that goes on has a time limit, and only with `give_up_after`",
        ),
        (
            step("g", json!({ "s": "r", "a": 1, "b": 60_000, "l": 59_999 })),
            "it awaits nothing after its time limit",
        ),
        (
            step("a", json!({ "s": "r", "a": 1, "b": 0, "v": 1 })),
            "only a part that has not passed has a valid key, and only with `key_valid_for`",
        ),
        (
            step("v", json!({ "s": "c", "a": 1, "v": 1 })),
            "only a part that has not passed has a valid key, and only with `key_valid_for`",
        ),
        (
            step("v", json!({ "s": "r", "a": 1, "b": 60_000, "v": 59_999 })),
            "it awaits no reply after its service may have forgotten the key",
        ),
        (
            step("a", json!({ "s": "r", "a": 9, "b": 0, "y": [{ "a": 2 }, { "a": 1 }] })),
            "its earlier keys are in the order of their attempts",
        ),
    ] {
        let found = violated(fields.clone());
        assert!(
            found.as_ref().is_some_and(|found| found.ends_with(invariant)),
            "{found:?}, not `{invariant}`: {fields}"
        );
    }
}

#[test]
fn a_list_has_no_more_items_than_it_may_have() {
    let mut task: Task = serde_json::from_value(json!({
        "task_id": "t", "workflow": "w", "v": 1, "i": 0, "k": 0, "process_state": "Processing", "revision": 1,
        "complete_by": 100_000, "submitted_at": 0, "due": 0,
    }))
    .unwrap();
    let mut record = StepRecord::new(StepState::RunningItems);
    record.items = Some(ItemRecords::new(limits::ITEMS_MAX + 1));
    task.steps.insert("l".parse().unwrap(), record);
    let violated = task.check(&plan(), Timestamp::UNIX_EPOCH, Duration::ZERO).unwrap_err();
    assert!(violated.to_string().starts_with("step l: no more items have started"), "{violated}");
}
