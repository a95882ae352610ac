//! Small workflows of the other kinds of steps.

use std::time::Duration;

use serde_json::{Value, json};
use steward_core::model::command::Order;

use super::{Budget, Ending, QUIET, Setting, setting, step, undoable, with};

const BACKWARD: [Ending; 3] = [Ending::Processed, Ending::Undone, Ending::UndoFailed];
const FORWARD: [Ending; 2] = [Ending::Processed, Ending::TaskInError];
const BOTH: [Ending; 4] =
    [Ending::Processed, Ending::TaskInError, Ending::Undone, Ending::UndoFailed];

/// What one path may see of an operator.
const COMMANDED: Budget = Budget { commands: 2, losses: 1, deferrals: 0, jumps: 0 };

/// All of them.
pub(super) fn all() -> Vec<Setting> {
    let conditions = [when(), when_chain(), cannot_begin()];
    let items = [one_by_one(), two_at_once(), none_and_one(), items_commanded(), item_impossible()];
    let waits = [wait_beside(), wait_for_long(), wait_commanded(), wait_beside_return()];
    let callbacks = [callback(), callback_beside(), callback_returns(), callback_commanded()];
    let children = [
        child(),
        child_beside(),
        child_returns(),
        child_commanded(),
        children_each(),
        child_for_weeks(),
    ];
    let asked = [asked(), asked_returns(), asked_commanded()];
    let all = conditions.into_iter().chain(items).chain(waits).chain(callbacks);
    all.chain(children).chain(asked).chain([output()]).collect()
}

fn resubmit(input: Option<Value>) -> Order {
    Order::Resubmit { step: None, input, did_not_run: false }
}

fn skip(step: Option<&str>) -> Order {
    Order::Skip { step: step.map(|step| step.parse().unwrap()), did_not_run: false }
}

fn complete(step: Option<&str>) -> Order {
    let step = step.map(|step| step.parse().unwrap());
    Order::Complete { step, output: json!({ "id": "by hand" }) }
}

/// `b` and `c` are done or skipped by what `a` returns, which may say nothing about it.
fn when() -> Setting {
    let on = "${ steps.a.output.ok }";
    let steps = json!({
        "a": undoable(&[], 1, "undo"),
        "b": with(undoable(&["a"], 1, "undo"), "when", json!(on)),
        "c": with(undoable(&["a"], 1, "undo"), "when", json!(on)),
        "d": step(&["b", "c"], 1, "undo"),
    });
    let outputs = vec![json!({ "ok": true }), json!({ "ok": false }), json!({ "ok": "maybe" })];
    let whens = vec![("b", "a"), ("c", "a")];
    Setting { outputs, whens, ..setting("when", steps, QUIET, &BACKWARD) }
}

/// All of it may be skipped in one save, up to the end.
fn when_chain() -> Setting {
    let on = json!("${ steps.a.output.ok }");
    let steps = json!({
        "a": undoable(&[], 2, "undo"),
        "b": with(undoable(&["a"], 1, "undo"), "when", on.clone()),
        "c": with(undoable(&["b"], 1, "undo"), "when", on),
    });
    let outputs = vec![json!({ "ok": true }), json!({ "ok": false })];
    let whens = vec![("b", "a"), ("c", "a")];
    Setting { outputs, whens, ..setting("when_chain", steps, QUIET, &BACKWARD) }
}

/// What makes the steps begin is useless, until an operator edits it.
fn cannot_begin() -> Setting {
    let mut items = step(&["a"], 1, "alert");
    items["for_each"] = json!({ "items": "${ input.list }" });
    items["request"]["body"] = json!({ "item": "${ item }" });
    let steps = json!({
        "a": with(step(&[], 1, "alert"), "when", json!("${ input.ok }")),
        "g": items,
        "w": { "after": ["a"], "wait": "${ input.pause }" },
    });
    let edit = |ok| resubmit(Some(json!({ "ok": ok, "list": ["x"], "pause": "30s" })));
    let orders = vec![resubmit(None), edit(true), edit(false), skip(None), complete(Some("a"))];
    let budget = Budget { commands: 3, ..QUIET };
    let input = json!({ "ok": "maybe", "list": "none", "pause": "soon" });
    let (whens, waits) = (vec![("a", "input")], vec![("w", Duration::from_secs(30))]);
    Setting { orders, input, whens, waits, ..setting("cannot_begin", steps, budget, &FORWARD) }
}

/// A step with items, and what they are.
fn each(after: &[&str], attempts: u32, then: &str, at_once: u32) -> Value {
    let mut step = undoable(after, attempts, then);
    step["for_each"] = json!({ "items": "${ input.list }", "at_once": at_once });
    step["request"]["body"] = json!({ "item": "${ item }" });
    step["undo"]["request"]["body"] = json!({ "item": "${ item }" });
    step
}

/// Reads what the items of `g` returned.
fn reader(after: &[&str], then: &str) -> Value {
    let mut step = step(after, 1, then);
    step["request"]["body"] = json!({ "all": "${ steps.g.output }" });
    step
}

fn one_by_one() -> Setting {
    let steps = json!({
        "a": undoable(&[], 1, "undo"), "g": each(&["a"], 1, "undo", 1), "z": reader(&["g"], "undo"),
    });
    let input = json!({ "list": ["x", "y", "z"] });
    Setting { input, ..setting("items_one_by_one", steps, QUIET, &BACKWARD) }
}

fn two_at_once() -> Setting {
    let steps = json!({ "g": each(&[], 2, "undo", 2), "z": reader(&["g"], "undo") });
    let input = json!({ "list": ["x", "y", "z"] });
    let budget = Budget { deferrals: 1, ..QUIET };
    Setting { input, ..setting("items_two_at_once", steps, budget, &BACKWARD) }
}

/// A list of nothing is done at once; what comes after it begins in the same save.
fn none_and_one() -> Setting {
    let mut none = each(&[], 1, "undo", 1);
    none["for_each"]["items"] = json!("${ input.list.filter(x, x == 'none') }");
    none.as_object_mut().unwrap().remove("undo");
    let steps = json!({
        "g": with(each(&["n"], 1, "undo", 2), "after", json!([])),
        "n": with(none, "after", json!(["g"])), "z": reader(&["n", "g"], "undo"),
    });
    let input = json!({ "list": ["x"] });
    let none = Some("n");
    Setting { input, none, ..setting("items_none_and_one", steps, QUIET, &BACKWARD) }
}

fn items_commanded() -> Setting {
    let steps = json!({ "g": each(&[], 1, "alert", 1), "z": reader(&["g"], "alert") });
    let orders = vec![
        resubmit(None),
        Order::Resubmit {
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
        Order::Undo,
        Order::Pause,
        Order::Resume,
    ];
    let input = json!({ "list": ["x", "y"] });
    Setting { orders, input, ..setting("items_commanded", steps, COMMANDED, &BOTH) }
}

/// The request of the second item cannot be made, and those of the others can.
fn item_impossible() -> Setting {
    let mut items = each(&[], 1, "undo", 2);
    items["request"]["path"] = json!("/do/${ item.id }");
    let steps = json!({ "g": items, "z": reader(&["g"], "undo") });
    let orders = vec![resubmit(None), skip(None), Order::Undo];
    let input = json!({ "list": [{ "id": "x" }, { "id": "y" }, {}, { "id": "z" }] });
    let budget = Budget { commands: 1, ..QUIET };
    let endings = [Ending::Undone, Ending::UndoFailed];
    Setting { orders, input, ..setting("item_impossible", steps, budget, &endings) }
}

/// A wait in the middle, and a step beside it, whose reply may be what ends the wait.
fn wait_beside() -> Setting {
    let steps = json!({
        "a": undoable(&[], 1, "undo"), "w": { "after": ["a"], "wait": "30s" },
        "b": undoable(&["w"], 1, "undo"), "c": undoable(&["a"], 2, "undo"),
    });
    let waits = vec![("w", Duration::from_secs(30))];
    Setting { waits, ..setting("wait_beside", steps, QUIET, &BACKWARD) }
}

/// Longer than a queue can hold a wake back, and then one that is over when it begins.
fn wait_for_long() -> Setting {
    let steps = json!({
        "a": step(&[], 1, "alert"), "v": { "after": ["a"], "wait": "20m" },
        "w": { "after": ["v"], "wait": "1970-01-01T00:00:00Z" },
        "b": step(&["w"], 1, "alert"),
    });
    let waits = vec![("v", Duration::from_secs(20 * 60))];
    let mut setting = Setting { waits, ..setting("wait_for_long", steps, QUIET, &FORWARD) };
    setting.edit(|workflow| workflow.complete_within = Duration::from_secs(2 * 3600));
    setting
}

fn wait_commanded() -> Setting {
    let steps = json!({
        "a": undoable(&[], 1, "undo"), "w": { "after": ["a"], "wait": "30s" },
        "b": undoable(&["w"], 1, "undo"),
    });
    let orders = vec![
        resubmit(None),
        Order::Resubmit { step: Some("w".parse().unwrap()), input: None, did_not_run: false },
        skip(Some("w")),
        complete(Some("w")),
        Order::Undo,
        Order::Cancel,
        Order::Pause,
        Order::Resume,
    ];
    let waits = vec![("w", Duration::from_secs(30))];
    Setting { orders, waits, ..setting("wait_commanded", steps, COMMANDED, &BOTH) }
}

/// While `p` runs, `c` may ask for an undo that `p` then calls off: the wait is as it was.
fn wait_beside_return() -> Setting {
    let p = with(step(&[], 1, "undo"), "point_of_no_return", json!(true));
    let steps = json!({ "p": p, "c": undoable(&[], 1, "undo"), "w": { "wait": "30s" } });
    let waits = vec![("w", Duration::from_secs(30))];
    let endings = [Ending::Processed, Ending::Undone, Ending::UndoFailed, Ending::PastReturn];
    let budget = Budget { losses: 0, deferrals: 1, ..QUIET };
    Setting { waits, ..setting("wait_beside_return", steps, budget, &endings) }
}

/// A step that someone answers, within a minute, and is heard of every forty seconds.
fn answered(after: &[&str], attempts: u32, then: &str) -> Value {
    let callback = json!({ "within": "60s", "heartbeat": "40s" });
    let mut step = with(undoable(after, attempts, then), "callback", callback);
    step["request"]["body"] = json!({ "token": "${ callback.token }" });
    step
}

fn callback() -> Setting {
    let steps = json!({
        "a": undoable(&[], 1, "undo"), "b": answered(&["a"], 2, "undo"),
        "c": step(&["b"], 1, "undo"),
    });
    setting("callback", steps, Budget { deferrals: 1, ..QUIET }, &BACKWARD)
}

/// `c`, beside it, may ask for the undo while `b` is handed out.
fn callback_beside() -> Setting {
    let steps = json!({ "b": answered(&[], 1, "undo"), "c": undoable(&[], 1, "undo") });
    setting("callback_beside", steps, QUIET, &BACKWARD)
}

fn callback_returns() -> Setting {
    let mut b = with(answered(&[], 1, "undo"), "point_of_no_return", json!(true));
    b.as_object_mut().unwrap().remove("undo");
    let steps = json!({ "b": b, "c": undoable(&[], 1, "undo") });
    let endings = [Ending::Processed, Ending::Undone, Ending::UndoFailed, Ending::PastReturn];
    setting("callback_returns", steps, QUIET, &endings)
}

/// Only the answer is awaited, for longer than the task may take.
fn callback_commanded() -> Setting {
    let b = with(answered(&[], 1, "alert"), "callback", json!({ "within": "300s" }));
    let steps = json!({ "b": b, "c": undoable(&["b"], 1, "alert") });
    let orders = vec![
        resubmit(None),
        skip(None),
        complete(Some("b")),
        Order::Undo,
        Order::Cancel,
        Order::Pause,
        Order::Resume,
    ];
    Setting { orders, ..setting("callback_commanded", steps, COMMANDED, &BOTH) }
}

/// A step that runs a task.
fn runs(after: &[&str], attempts: u32, then: &str) -> Value {
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

fn child() -> Setting {
    let steps = json!({
        "a": undoable(&[], 1, "undo"), "k": runs(&["a"], 2, "undo"), "b": step(&["k"], 1, "undo"),
    });
    setting("child", steps, QUIET, &BACKWARD)
}

/// `c`, beside it, may ask for the undo while the task runs.
fn child_beside() -> Setting {
    let steps = json!({ "k": runs(&[], 1, "undo"), "c": undoable(&[], 1, "undo") });
    setting("child_beside", steps, QUIET, &BACKWARD)
}

fn child_returns() -> Setting {
    let k = with(runs(&[], 1, "undo"), "point_of_no_return", json!(true));
    let steps = json!({ "k": k, "c": undoable(&[], 1, "undo") });
    let endings = [Ending::Processed, Ending::Undone, Ending::UndoFailed, Ending::PastReturn];
    setting("child_returns", steps, QUIET, &endings)
}

fn child_commanded() -> Setting {
    let steps = json!({ "k": runs(&[], 1, "alert"), "b": undoable(&["k"], 1, "alert") });
    let orders = vec![
        resubmit(None),
        Order::Resubmit { step: None, input: None, did_not_run: true },
        Order::Skip { step: None, did_not_run: true },
        skip(None),
        complete(None),
        Order::Undo,
        Order::Cancel,
        Order::Pause,
        Order::Resume,
    ];
    Setting { orders, ..setting("child_commanded", steps, COMMANDED, &BOTH) }
}

/// The task of the step may expire while its parent lies.
fn child_for_weeks() -> Setting {
    let k = with(runs(&[], 1, "undo"), "workflow", json!({ "name": "other", "input": {} }));
    let steps = json!({ "k": k, "b": undoable(&["k"], 1, "undo") });
    setting("child_for_weeks", steps, Budget { jumps: 3, losses: 0, ..QUIET }, &BACKWARD)
}

fn children_each() -> Setting {
    let mut items = runs(&[], 1, "undo");
    items["for_each"] = json!({ "items": "${ input.list }", "at_once": 1 });
    items["workflow"]["input"] = json!({ "it": "${ item }" });
    let steps = json!({ "g": items, "z": reader(&["g"], "undo") });
    let input = json!({ "list": ["x", "y"] });
    Setting { input, ..setting("children_each", steps, QUIET, &BACKWARD) }
}

/// The other side: a task that another asks for.
fn asked() -> Setting {
    let steps = json!({ "a": undoable(&[], 1, "undo"), "b": undoable(&["a"], 1, "undo") });
    let mut setting = setting("asked", steps, QUIET, &BACKWARD);
    setting.edit(|workflow| {
        workflow.output = Some(json_template(json!({ "b": "${ steps.b.output.id }" })))
    });
    Setting { is_child: true, ..setting }
}

/// One that may be past its point of no return when it is asked to go back.
fn asked_returns() -> Setting {
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
    Setting { is_child: true, ..setting("asked_returns", steps, QUIET, &endings) }
}

fn asked_commanded() -> Setting {
    let steps = json!({ "a": undoable(&[], 1, "alert"), "b": step(&["a"], 1, "alert") });
    let orders =
        vec![resubmit(None), skip(None), Order::Undo, Order::Cancel, Order::Pause, Order::Resume];
    let budget = Budget { losses: 0, ..COMMANDED };
    Setting { is_child: true, orders, ..setting("asked_commanded", steps, budget, &BOTH) }
}

/// What the task returns cannot be made of what `a` returns, until an operator edits its input.
fn output() -> Setting {
    let steps = json!({ "a": undoable(&[], 1, "undo"), "b": step(&[], 1, "undo") });
    let orders = vec![
        resubmit(None),
        resubmit(Some(json!({ "total": 3 }))),
        skip(None),
        Order::Undo,
        Order::Cancel,
    ];
    let mut setting = setting("output", steps, COMMANDED, &BOTH);
    setting.edit(|workflow| {
        workflow.output = Some(json_template(json!({ "total": "${ input.total }" })))
    });
    Setting { orders, ..setting }
}

fn json_template(value: Value) -> steward_core::expression::template::Template {
    serde_json::from_value(value).unwrap()
}
