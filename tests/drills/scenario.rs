//! The tasks of the drills. Together they reach every kind of step, every state of a step and of a task, and every kind of
//! stored item. What clients, operators and event sources do depends only on the state of the tasks, so that a run can
//! continue from any copy.

use serde_json::{Value, json};
use steward_core::{
    definition::workflow::Workflow,
    model::{lifecycle::LifecycleEventKind, task::ProcessState},
};

/// How the service and the operator treat a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Course {
    /// Nothing goes wrong.
    Plain,
    /// The last step is refused, and an operator undoes the task.
    Undone,
    /// The last step is refused, and an operator resubmits it with an edited input.
    Edited,
    /// The last step is refused, and an operator records it as done by hand.
    ByHand,
    /// The last step is refused, and an operator skips it.
    Skipped,
    /// An operator pauses the task after its first step, and resumes it.
    Paused,
    /// An operator cancels the task after its first step.
    Cancelled,
    /// Inputs and outputs do not fit into the item of the task.
    Large,
}

/// The tasks with their courses.
pub(super) const TASKS: [(&str, Course); 8] = [
    ("plain-1", Course::Plain),
    ("undone-1", Course::Undone),
    ("edited-1", Course::Edited),
    ("by-hand-1", Course::ByHand),
    ("skipped-1", Course::Skipped),
    ("paused-1", Course::Paused),
    ("cancelled-1", Course::Cancelled),
    ("large-1", Course::Large),
];

impl Course {
    /// How a task with this course ends.
    pub(super) const fn end(self) -> ProcessState {
        match self {
            Self::Plain
            | Self::Edited
            | Self::ByHand
            | Self::Skipped
            | Self::Paused
            | Self::Large => ProcessState::Processed,
            Self::Undone => ProcessState::Undone,
            Self::Cancelled => ProcessState::Error,
        }
    }

    /// Whether the service refuses the last step, with the submitted input.
    const fn is_refused(self) -> bool {
        match self {
            Self::Undone | Self::Edited | Self::ByHand | Self::Skipped => true,
            Self::Plain | Self::Paused | Self::Cancelled | Self::Large => false,
        }
    }
}

/// The submission of a task.
pub(super) fn submission(id: &str, course: Course) -> Value {
    let (items, note): (Vec<_>, _) = if course == Course::Large {
        let item = |n| format!("{n}-{}", "x".repeat(250));
        ((0..12).map(item).collect(), "y".repeat(2_000))
    } else {
        (["one", "two", "three"].map(str::to_owned).to_vec(), "s".to_owned())
    };
    let mut submission = json!({
        "task_id": id, "workflow": "drill", "reply_to": "http://127.0.0.1:4566/000000000000/client-drill",
        "input": { "order": id, "items": items, "note": note, "refuse": course.is_refused(), "optional": false },
    });
    if course == Course::Plain {
        submission["tenant"] = json!("acme");
    }
    submission
}

/// The operator's next command to a task, given its state as stored. `None`: the operator does nothing.
pub(super) fn command(id: &str, course: Course, task: &Value) -> Option<Value> {
    let commands = task["commands"].as_array().map_or(0, Vec::len);
    let is_error = task["process_state"] == "Error";
    let is_refused = last_command_was_refused(task);
    let has_begun = task["process_state"] == "Processing" && task["steps"]["reserve"]["s"] == "c";
    let order = match (course, commands) {
        (Course::Undone, 0) if is_error => json!({ "command": "undo" }),
        (Course::Edited, 0) if is_error => {
            json!({ "command": "resubmit", "step": "last", "input": { "refuse": false } })
        }
        // A request of the step was deferred, so it counts as one that may have run.
        (Course::Edited, 1..) if is_error && is_refused => json!({
            "command": "resubmit", "step": "last", "input": { "refuse": false }, "did_not_run": true,
        }),
        (Course::ByHand, 0) if is_error => {
            json!({ "command": "complete", "step": "last", "output": { "id": "by hand" } })
        }
        (Course::Skipped, 0) if is_error => json!({ "command": "skip", "step": "last" }),
        (Course::Paused, 0) if has_begun => json!({ "command": "pause" }),
        (Course::Paused, 1) => json!({ "command": "resume" }),
        (Course::Cancelled, 0) if has_begun => json!({ "command": "cancel" }),
        _ => return None,
    };
    Some(json!({
        "type": "command", "command_id": format!("c-{id}-{commands}"), "task_id": id, "by": "ann",
        "why": "a drill", "order": order, "issued_at": "2100-01-01T12:00:00Z",
    }))
}

/// Whether the scheduler refused the operator's newest command.
pub(super) fn last_command_was_refused(task: &Value) -> bool {
    let newest = task["commands"].as_array().and_then(|commands| commands.last());
    newest.is_some_and(|command| command["refused"].is_string())
}

/// The event for which a task waits, if it waits for one.
pub(super) fn awaited_event(id: &str, task: &Value) -> Option<Value> {
    (task["steps"]["paid"]["s"] == "r").then(|| {
        json!({
            "version": "0", "id": format!("e-{id}"), "detail-type": "Paid", "source": "shop",
            "account": "000000000000", "time": "2100-01-01T00:00:00Z", "region": "us-east-1",
            "resources": [], "detail": { "order": id },
        })
    })
}

/// The workflow of the tasks, and the one of their child tasks.
pub(super) fn workflows() -> [Workflow; 2] {
    let call = |path: &str, after: &[&str], body: Value| {
        json!({
            "agent": "a", "after": after, "complete_within": "30s", "request": { "path": path, "body": body },
            "recovery": { "attempts": 3, "backoff": { "first": "10s" } },
        })
    };
    let undo = |mut step: Value, id: &str| {
        step["undo"] = json!({ "request": { "path": "/undo", "body": { "id": id } } });
        step
    };
    let of_order = json!({ "order": "${ input.order }", "note": "${ input.note }" });
    let mut ship = call("/ship", &["reserve"], json!({ "item": "${ item }" }));
    ship["for_each"] = json!({ "items": "${ input.items }", "at_once": 2 });
    let mut sign = call("/sign", &["paid"], json!({ "token": "${ callback.token }" }));
    sign["callback"] = json!({ "within": "1h" });
    let mut once = call("/once", &["sign"], json!({ "order": "${ input.order }" }));
    once["idempotent"] = json!(false);
    let mut optional = call("/optional", &["sign"], json!({}));
    optional["when"] = json!("${ input.optional }");
    let steps = json!({
        "reserve": undo(call("/reserve", &[], of_order), "${ steps.reserve.output.id }"),
        "ship": undo(ship, "${ steps.ship.output.id } of ${ item }"),
        "child": { "workflow": { "name": "small", "input": { "n": 1 } }, "after": ["ship"] },
        "cool": { "wait": "30s", "after": ["child"] },
        "paid": { "after": ["cool"], "wait": { "within": "1h", "event": {
            "source": "shop", "detail_type": "Paid", "key": "${ event.detail.order }", "equals": "${ input.order }",
        } } },
        "sign": sign,
        "once": once,
        "optional": optional,
        "doubt": undo(call("/unknown-once", &["once", "optional"], json!({})), "${ steps.doubt.output.id }"),
        "last": call("/refused", &["doubt"], json!({ "refuse": "${ input.refuse }" })),
    });
    let parent = json!({
        "name": "drill", "version": 1, "lifecycle_events": LifecycleEventKind::ALL, "steps": steps,
        "output": { "reserved": "${ steps.reserve.output.id }" },
    });
    let child = json!({
        "name": "small", "version": 1, "output": "${ steps.only.output }",
        "steps": { "only": undo(call("/only", &[], json!({ "n": "${ input.n }" })), "${ steps.only.output.id }") },
    });
    [parent, child].map(|workflow| serde_json::from_value(workflow).unwrap())
}
