//! Explored workflows with other kinds of steps: `when`, `for_each`, `repeat`, `wait`, `callback`, `workflow`, and an `output`.

use std::time::Duration;

use serde_json::{Value, json};
use steward_core::model::command::CommandAction;

use super::{Budget, Ending, ExploredWorkflow, ONE_CRASH, step, undoable, with, workflow};

const BACKWARD: [Ending; 3] = [Ending::Processed, Ending::Undone, Ending::UndoFailed];
const FORWARD: [Ending; 2] = [Ending::Processed, Ending::TaskInError];
const BOTH: [Ending; 4] =
    [Ending::Processed, Ending::TaskInError, Ending::Undone, Ending::UndoFailed];

/// Two commands and one crash.
const COMMANDED: Budget = Budget { commands: 2, crashes: 1, deferrals: 0, long_pauses: 0 };

/// All workflows of this module.
pub(super) fn all() -> Vec<ExploredWorkflow> {
    let conditions = [when(), when_chain(), cannot_begin()];
    let items = [
        one_by_one(),
        two_at_once(),
        none_and_one(),
        items_commanded(),
        items_sliced(),
        item_impossible(),
        rounds(),
        rounds_commanded(),
    ];
    let waits = [wait_beside(), wait_for_long(), wait_commanded(), wait_beside_return()];
    let events = [event(), event_commanded(), event_items()];
    let callbacks = [callback(), callback_beside(), callback_returns(), callback_commanded()];
    let children = [
        child(),
        child_beside(),
        child_returns(),
        child_commanded(),
        children_each(),
        child_for_weeks(),
    ];
    let as_children = [as_child(), as_child_with_point_of_no_return(), as_child_commanded()];
    let all = conditions.into_iter().chain(items).chain(waits).chain(events).chain(callbacks);
    all.chain(children).chain(as_children).chain([output()]).collect()
}

fn resubmit(input: Option<Value>) -> CommandAction {
    CommandAction::Resubmit { step: None, input, did_not_run: false }
}

fn skip(step: Option<&str>) -> CommandAction {
    CommandAction::Skip { step: step.map(|step| step.parse().unwrap()), did_not_run: false }
}

fn complete(step: Option<&str>) -> CommandAction {
    let step = step.map(|step| step.parse().unwrap());
    CommandAction::Complete { step, output: json!({ "id": "by hand" }) }
}

/// A step that waits for an event.
fn wait_for_event(after: &[&str], equals: &str, then: &str) -> Value {
    let event = json!({
        "source": "shop", "detail_type": "Paid", "key": "${ event.detail.id }", "equals": equals,
    });
    json!({ "after": after, "wait": { "event": event, "within": "10s" }, "recovery": { "then": then } })
}

/// `b` waits for an event between steps that are undone, and beside one that may fail.
fn event() -> ExploredWorkflow {
    let steps = json!({
        "a": undoable(&[], 1, "undo"), "b": wait_for_event(&["a"], "${ task.id }", "undo"),
        "c": undoable(&["a"], 1, "undo"), "d": step(&["b"], 1, "undo"),
    });
    workflow("event", steps, ONE_CRASH, &BACKWARD)
}

/// The event that `b` waits for does not come, or `b` cannot wait for it, and operators act.
fn event_commanded() -> ExploredWorkflow {
    let b = wait_for_event(&["a"], "${ steps.a.output.id }", "alert");
    let steps = json!({ "a": undoable(&[], 1, "alert"), "b": b });
    let commands = vec![
        resubmit(None),
        resubmit(Some(json!({ "n": 2 }))),
        skip(Some("b")),
        complete(Some("b")),
        CommandAction::Undo,
        CommandAction::Pause,
        CommandAction::Resume,
    ];
    let outputs = vec![Value::Null];
    ExploredWorkflow { commands, outputs, ..workflow("event_commanded", steps, COMMANDED, &BOTH) }
}

/// Each item waits for an event of its own.
fn event_items() -> ExploredWorkflow {
    let a = wait_for_event(&[], "${ item }", "undo");
    let a = with(a, "for_each", json!({ "items": "${ input.list }", "at_once": 2 }));
    let steps = json!({ "a": a, "b": undoable(&[], 1, "undo") });
    let input = json!({ "list": ["x", "y"] });
    ExploredWorkflow { input, ..workflow("event_items", steps, ONE_CRASH, &BACKWARD) }
}

/// The output of `a` decides whether `b` and `c` are skipped. It may lack the value.
fn when() -> ExploredWorkflow {
    let on = "${ steps.a.output.ok }";
    let steps = json!({
        "a": undoable(&[], 1, "undo"),
        "b": with(undoable(&["a"], 1, "undo"), "when", json!(on)),
        "c": with(undoable(&["a"], 1, "undo"), "when", json!(on)),
        "d": step(&["b", "c"], 1, "undo"),
    });
    let outputs = vec![json!({ "ok": true }), json!({ "ok": false }), json!({ "ok": "maybe" })];
    let whens = vec![("b", "a"), ("c", "a")];
    ExploredWorkflow { outputs, whens, ..workflow("when", steps, ONE_CRASH, &BACKWARD) }
}

/// All later steps may be skipped in one save.
fn when_chain() -> ExploredWorkflow {
    let on = json!("${ steps.a.output.ok }");
    let steps = json!({
        "a": undoable(&[], 2, "undo"),
        "b": with(undoable(&["a"], 1, "undo"), "when", on.clone()),
        "c": with(undoable(&["b"], 1, "undo"), "when", on),
    });
    let outputs = vec![json!({ "ok": true }), json!({ "ok": false })];
    let whens = vec![("b", "a"), ("c", "a")];
    ExploredWorkflow { outputs, whens, ..workflow("when_chain", steps, ONE_CRASH, &BACKWARD) }
}

/// The input's values for `when`, `for_each` and `wait` are invalid until an operator edits them.
fn cannot_begin() -> ExploredWorkflow {
    let mut items = step(&["a"], 1, "alert");
    items["for_each"] = json!({ "items": "${ input.list }" });
    items["request"]["body"] = json!({ "item": "${ item }" });
    let steps = json!({
        "a": with(step(&[], 1, "alert"), "when", json!("${ input.ok }")),
        "g": items,
        "w": { "after": ["a"], "wait": "${ input.pause }" },
    });
    let edit = |ok| resubmit(Some(json!({ "ok": ok, "list": ["x"], "pause": "30s" })));
    let commands = vec![resubmit(None), edit(true), edit(false), skip(None), complete(Some("a"))];
    let budget = Budget { commands: 3, ..ONE_CRASH };
    let input = json!({ "ok": "maybe", "list": "none", "pause": "soon" });
    let (whens, waits) = (vec![("a", "input")], vec![("w", Duration::from_secs(30))]);
    ExploredWorkflow {
        commands,
        input,
        whens,
        waits,
        ..workflow("cannot_begin", steps, budget, &FORWARD)
    }
}

/// A step with items.
fn each(after: &[&str], attempts: u32, then: &str, at_once: u32) -> Value {
    let mut step = undoable(after, attempts, then);
    step["for_each"] = json!({ "items": "${ input.list }", "at_once": at_once });
    step["request"]["body"] = json!({ "item": "${ item }" });
    step["undo"]["request"]["body"] = json!({ "item": "${ item }" });
    step
}

/// A step that reads the outputs of the items of `g`.
fn reader(after: &[&str], then: &str) -> Value {
    let mut step = step(after, 1, then);
    step["request"]["body"] = json!({ "all": "${ steps.g.output }" });
    step
}

fn one_by_one() -> ExploredWorkflow {
    let steps = json!({
        "a": undoable(&[], 1, "undo"), "g": each(&["a"], 1, "undo", 1), "z": reader(&["g"], "undo"),
    });
    let input = json!({ "list": ["x", "y", "z"] });
    ExploredWorkflow { input, ..workflow("items_one_by_one", steps, ONE_CRASH, &BACKWARD) }
}

fn two_at_once() -> ExploredWorkflow {
    let steps = json!({ "g": each(&[], 2, "undo", 2), "z": reader(&["g"], "undo") });
    let input = json!({ "list": ["x", "y", "z"] });
    let budget = Budget { deferrals: 1, ..ONE_CRASH };
    ExploredWorkflow { input, ..workflow("items_two_at_once", steps, budget, &BACKWARD) }
}

/// An empty list completes its step at once, and the next step starts in the same save.
fn none_and_one() -> ExploredWorkflow {
    let mut none = each(&[], 1, "undo", 1);
    none["for_each"]["items"] = json!("${ input.list.filter(x, x == 'none') }");
    none.as_object_mut().unwrap().remove("undo");
    let steps = json!({
        "g": with(each(&["n"], 1, "undo", 2), "after", json!([])),
        "n": with(none, "after", json!(["g"])), "z": reader(&["n", "g"], "undo"),
    });
    let input = json!({ "list": ["x"] });
    let empty_list = Some("n");
    ExploredWorkflow {
        input,
        empty_list,
        ..workflow("items_none_and_one", steps, ONE_CRASH, &BACKWARD)
    }
}

fn items_commanded() -> ExploredWorkflow {
    let steps = json!({ "g": each(&[], 1, "alert", 1), "z": reader(&["g"], "alert") });
    let commands = vec![
        resubmit(None),
        CommandAction::Resubmit {
            step: Some("g[0]".parse().unwrap()),
            input: Some(json!({ "list": ["v", "w"] })),
            did_not_run: true,
        },
        resubmit(Some(json!({ "list": ["w", "x"] }))),
        resubmit(Some(json!({ "list": ["x", "w"] }))),
        skip(Some("g")),
        skip(Some("g[1]")),
        complete(None),
        complete(Some("g[1]")),
        CommandAction::Undo,
        CommandAction::Pause,
        CommandAction::Resume,
    ];
    let input = json!({ "list": ["x", "y"] });
    ExploredWorkflow { commands, input, ..workflow("items_commanded", steps, COMMANDED, &BOTH) }
}

/// At most two rounds, which end with an output that says so. If none does, there are too few.
fn round(then: &str) -> Value {
    let mut step = each(&[], 1, then, 1);
    step.as_object_mut().unwrap().remove("for_each");
    with(step, "repeat", json!({ "until": "${ has(item.ok) }", "at_most": 2 }))
}

fn rounds() -> ExploredWorkflow {
    let steps = json!({ "g": round("undo"), "z": reader(&["g"], "undo") });
    let outputs = vec![json!({ "ok": true })];
    ExploredWorkflow { outputs, ..workflow("rounds", steps, ONE_CRASH, &BACKWARD) }
}

fn rounds_commanded() -> ExploredWorkflow {
    let steps = json!({ "g": round("alert"), "z": reader(&["g"], "alert") });
    let commands = vec![
        resubmit(None),
        skip(Some("g")),
        skip(Some("g[1]")),
        complete(None),
        CommandAction::Undo,
        CommandAction::Pause,
        CommandAction::Resume,
    ];
    let outputs = vec![json!({ "ok": true })];
    ExploredWorkflow { commands, outputs, ..workflow("rounds_commanded", steps, COMMANDED, &BOTH) }
}

/// The list is stored in slices of two items. An edit replaces the first item, or the last one.
fn items_sliced() -> ExploredWorkflow {
    let steps = json!({ "g": each(&[], 1, "alert", 2) });
    let item = |name: &str| format!("{name}{}", "-".repeat(1_700));
    let list = |names: [&str; 3]| json!({ "list": names.map(item) });
    let edit = |part: &str, names| CommandAction::Resubmit {
        step: Some(part.parse().unwrap()),
        input: Some(list(names)),
        did_not_run: true,
    };
    let commands = vec![
        edit("g[0]", ["v", "y", "z"]),
        edit("g[2]", ["x", "y", "w"]),
        resubmit(None),
        CommandAction::Undo,
    ];
    let input = list(["x", "y", "z"]);
    let budget = Budget { commands: 2, ..ONE_CRASH };
    ExploredWorkflow { commands, input, ..workflow("items_sliced", steps, budget, &BOTH) }
}

/// The request of one item cannot be created.
fn item_impossible() -> ExploredWorkflow {
    let mut items = each(&[], 1, "undo", 2);
    items["request"]["path"] = json!("/do/${ item.id }");
    let steps = json!({ "g": items, "z": reader(&["g"], "undo") });
    let commands = vec![resubmit(None), skip(None), CommandAction::Undo];
    let input = json!({ "list": [{ "id": "x" }, { "id": "y" }, {}, { "id": "z" }] });
    let budget = Budget { commands: 1, ..ONE_CRASH };
    let endings = [Ending::Undone, Ending::UndoFailed];
    ExploredWorkflow { commands, input, ..workflow("item_impossible", steps, budget, &endings) }
}

/// A wait, and a concurrent step whose reply may be the event that ends the wait.
fn wait_beside() -> ExploredWorkflow {
    let steps = json!({
        "a": undoable(&[], 1, "undo"), "w": { "after": ["a"], "wait": "30s" },
        "b": undoable(&["w"], 1, "undo"), "c": undoable(&["a"], 2, "undo"),
    });
    let waits = vec![("w", Duration::from_secs(30))];
    ExploredWorkflow { waits, ..workflow("wait_beside", steps, ONE_CRASH, &BACKWARD) }
}

/// A wait that is longer than a queue can delay a message, and a wait that is over when it starts.
fn wait_for_long() -> ExploredWorkflow {
    let steps = json!({
        "a": step(&[], 1, "alert"), "v": { "after": ["a"], "wait": "20m" },
        "w": { "after": ["v"], "wait": "1970-01-01T00:00:00Z" },
        "b": step(&["w"], 1, "alert"),
    });
    let waits = vec![("v", Duration::from_secs(20 * 60))];
    let mut workflow =
        ExploredWorkflow { waits, ..workflow("wait_for_long", steps, ONE_CRASH, &FORWARD) };
    workflow.edit(|definition| definition.complete_within = Duration::from_secs(2 * 3600));
    workflow
}

fn wait_commanded() -> ExploredWorkflow {
    let steps = json!({
        "a": undoable(&[], 1, "undo"), "w": { "after": ["a"], "wait": "30s" },
        "b": undoable(&["w"], 1, "undo"),
    });
    let commands = vec![
        resubmit(None),
        CommandAction::Resubmit {
            step: Some("w".parse().unwrap()),
            input: None,
            did_not_run: false,
        },
        skip(Some("w")),
        complete(Some("w")),
        CommandAction::Undo,
        CommandAction::Cancel,
        CommandAction::Pause,
        CommandAction::Resume,
    ];
    let waits = vec![("w", Duration::from_secs(30))];
    ExploredWorkflow { commands, waits, ..workflow("wait_commanded", steps, COMMANDED, &BOTH) }
}

/// While `p` runs, `c` may fail and start an undo, which is abandoned when `p` completes. The wait is unchanged.
fn wait_beside_return() -> ExploredWorkflow {
    let p = with(step(&[], 1, "undo"), "point_of_no_return", json!(true));
    let steps = json!({ "p": p, "c": undoable(&[], 1, "undo"), "w": { "wait": "30s" } });
    let waits = vec![("w", Duration::from_secs(30))];
    let endings = [Ending::Processed, Ending::Undone, Ending::UndoFailed, Ending::PastReturn];
    let budget = Budget { crashes: 0, deferrals: 1, ..ONE_CRASH };
    ExploredWorkflow { waits, ..workflow("wait_beside_return", steps, budget, &endings) }
}

/// A step with a callback within a minute and a heartbeat every forty seconds.
fn with_callback(after: &[&str], attempts: u32, then: &str) -> Value {
    let callback = json!({ "within": "60s", "heartbeat": "40s" });
    let mut step = with(undoable(after, attempts, then), "callback", callback);
    step["request"]["body"] = json!({ "token": "${ callback.token }" });
    step
}

fn callback() -> ExploredWorkflow {
    let steps = json!({
        "a": undoable(&[], 1, "undo"), "b": with_callback(&["a"], 2, "undo"),
        "c": step(&["b"], 1, "undo"),
    });
    workflow("callback", steps, Budget { deferrals: 1, ..ONE_CRASH }, &BACKWARD)
}

/// `c` may fail and start an undo while `b` awaits its callback.
fn callback_beside() -> ExploredWorkflow {
    let steps = json!({ "b": with_callback(&[], 1, "undo"), "c": undoable(&[], 1, "undo") });
    workflow("callback_beside", steps, ONE_CRASH, &BACKWARD)
}

fn callback_returns() -> ExploredWorkflow {
    let mut b = with(with_callback(&[], 1, "undo"), "point_of_no_return", json!(true));
    b.as_object_mut().unwrap().remove("undo");
    let steps = json!({ "b": b, "c": undoable(&[], 1, "undo") });
    let endings = [Ending::Processed, Ending::Undone, Ending::UndoFailed, Ending::PastReturn];
    workflow("callback_returns", steps, ONE_CRASH, &endings)
}

/// The callback may take longer than the task.
fn callback_commanded() -> ExploredWorkflow {
    let b = with(with_callback(&[], 1, "alert"), "callback", json!({ "within": "300s" }));
    let steps = json!({ "b": b, "c": undoable(&["b"], 1, "alert") });
    let commands = vec![
        resubmit(None),
        skip(None),
        complete(Some("b")),
        CommandAction::Undo,
        CommandAction::Cancel,
        CommandAction::Pause,
        CommandAction::Resume,
    ];
    ExploredWorkflow { commands, ..workflow("callback_commanded", steps, COMMANDED, &BOTH) }
}

/// A step that runs a child task.
pub(super) fn runs(after: &[&str], attempts: u32, then: &str) -> Value {
    let mut runs = step(after, attempts, then);
    for key in ["agent", "request"] {
        runs.as_object_mut().unwrap().remove(key);
    }
    runs["workflow"] = json!({ "name": "other", "input": "${ input }" });
    runs["undo"] = json!({
        "complete_within": "30s",
        "recovery": { "attempts": 2, "backoff": { "first": "10s", "rate": 1, "max": "10s", "jitter": false } },
    });
    runs
}

fn child() -> ExploredWorkflow {
    let steps = json!({
        "a": undoable(&[], 1, "undo"), "k": runs(&["a"], 2, "undo"), "b": step(&["k"], 1, "undo"),
    });
    workflow("child", steps, ONE_CRASH, &BACKWARD)
}

/// `c` may fail and start an undo while the child runs.
fn child_beside() -> ExploredWorkflow {
    let steps = json!({ "k": runs(&[], 1, "undo"), "c": undoable(&[], 1, "undo") });
    workflow("child_beside", steps, ONE_CRASH, &BACKWARD)
}

fn child_returns() -> ExploredWorkflow {
    let k = with(runs(&[], 1, "undo"), "point_of_no_return", json!(true));
    let steps = json!({ "k": k, "c": undoable(&[], 1, "undo") });
    let endings = [Ending::Processed, Ending::Undone, Ending::UndoFailed, Ending::PastReturn];
    workflow("child_returns", steps, ONE_CRASH, &endings)
}

fn child_commanded() -> ExploredWorkflow {
    let steps = json!({ "k": runs(&[], 1, "alert"), "b": undoable(&["k"], 1, "alert") });
    let commands = vec![
        resubmit(None),
        CommandAction::Resubmit { step: None, input: None, did_not_run: true },
        CommandAction::Skip { step: None, did_not_run: true },
        skip(None),
        complete(None),
        CommandAction::Undo,
        CommandAction::Cancel,
        CommandAction::Pause,
        CommandAction::Resume,
    ];
    ExploredWorkflow { commands, ..workflow("child_commanded", steps, COMMANDED, &BOTH) }
}

/// The child may expire while its parent is stopped.
fn child_for_weeks() -> ExploredWorkflow {
    let k = with(runs(&[], 1, "undo"), "workflow", json!({ "name": "other", "input": {} }));
    let steps = json!({ "k": k, "b": undoable(&["k"], 1, "undo") });
    workflow(
        "child_for_weeks",
        steps,
        Budget { long_pauses: 3, crashes: 0, ..ONE_CRASH },
        &BACKWARD,
    )
}

fn children_each() -> ExploredWorkflow {
    let mut items = runs(&[], 1, "undo");
    items["for_each"] = json!({ "items": "${ input.list }", "at_once": 1 });
    items["workflow"]["input"] = json!({ "it": "${ item }" });
    let steps = json!({ "g": items, "z": reader(&["g"], "undo") });
    let input = json!({ "list": ["x", "y"] });
    ExploredWorkflow { input, ..workflow("children_each", steps, ONE_CRASH, &BACKWARD) }
}

/// A task that is a child itself.
fn as_child() -> ExploredWorkflow {
    let steps = json!({ "a": undoable(&[], 1, "undo"), "b": undoable(&["a"], 1, "undo") });
    let mut workflow = workflow("as_child", steps, ONE_CRASH, &BACKWARD);
    workflow.edit(|definition| {
        definition.output = Some(json_template(json!({ "b": "${ steps.b.output.id }" })))
    });
    ExploredWorkflow { is_child: true, ..workflow }
}

/// A child that may be past its point of no return when its parent requests the undo.
fn as_child_with_point_of_no_return() -> ExploredWorkflow {
    let a = with(step(&[], 1, "alert"), "point_of_no_return", json!(true));
    let steps =
        json!({ "a": a, "b": undoable(&["a"], 1, "alert"), "c": undoable(&[], 1, "alert") });
    let endings = [
        Ending::Processed,
        Ending::TaskInError,
        Ending::Undone,
        Ending::UndoFailed,
        Ending::PastReturn,
    ];
    ExploredWorkflow {
        is_child: true,
        ..workflow("as_child_with_point_of_no_return", steps, ONE_CRASH, &endings)
    }
}

fn as_child_commanded() -> ExploredWorkflow {
    let steps = json!({ "a": undoable(&[], 1, "alert"), "b": step(&["a"], 1, "alert") });
    let commands = vec![
        resubmit(None),
        skip(None),
        CommandAction::Undo,
        CommandAction::Cancel,
        CommandAction::Pause,
        CommandAction::Resume,
    ];
    let budget = Budget { crashes: 0, ..COMMANDED };
    ExploredWorkflow {
        is_child: true,
        commands,
        ..workflow("as_child_commanded", steps, budget, &BOTH)
    }
}

/// The task's output cannot be created until an operator edits the input.
fn output() -> ExploredWorkflow {
    let steps = json!({ "a": undoable(&[], 1, "undo"), "b": step(&[], 1, "undo") });
    let commands = vec![
        resubmit(None),
        resubmit(Some(json!({ "total": 3 }))),
        skip(None),
        CommandAction::Undo,
        CommandAction::Cancel,
    ];
    let mut workflow = workflow("output", steps, COMMANDED, &BOTH);
    workflow.edit(|definition| {
        definition.output = Some(json_template(json!({ "total": "${ input.total }" })))
    });
    ExploredWorkflow { commands, ..workflow }
}

fn json_template(value: Value) -> steward_core::expression::template::Template {
    serde_json::from_value(value).unwrap()
}
