//! Workflows with payloads.

use serde_json::{Value, json};

use super::{
    Ending, ExploredWorkflow, ONE_CRASH, step, step_kinds::runs, undoable, with, workflow,
};

/// A child task whose input is a payload. The agent answers with a payload of the task, or with one of another task.
pub(super) fn payload() -> ExploredWorkflow {
    let reference = |key: &str| {
        let sha256 = "0".repeat(64);
        json!({ "$payload": {
            "version": 1, "key": key, "bytes": 200_000, "sha256": sha256, "content_type": "text/plain",
        } })
    };
    let sends =
        |step: Value, body: &str| with(step, "request", json!({ "path": "/", "body": body }));
    let mut child = runs(&["b"], 1, "undo");
    child["workflow"]["input"] = json!("${ steps.a.output }");
    let steps = json!({
        "a": sends(undoable(&[], 1, "undo"), "${ input }"),
        "b": sends(step(&["a"], 1, "undo"), "${ steps.a.output }"),
        "k": child,
    });
    let own = reference("tasks/p@000000007/t@000000000/output/a/do/1");
    let foreign = reference("tasks/q@000000007/output/a/do/1");
    let workflow = workflow(
        "payload",
        steps,
        ONE_CRASH,
        &[Ending::Processed, Ending::Undone, Ending::UndoFailed],
    );
    let input = reference("uploads/1");
    ExploredWorkflow { input, outputs: vec![own, foreign], is_child: true, ..workflow }
}
