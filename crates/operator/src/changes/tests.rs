//! One test for each kind of change; what is expected reads as it is printed.

use serde_json::{Value, json};

use super::*;

fn base() -> Value {
    json!({
        "name": "order", "version": 1, "complete_within": "10m", "retention": "30d",
        "input": {
            "type": "object", "required": ["amount"],
            "properties": { "amount": { "type": "integer", "maximum": 100 }, "note": { "type": "string" } },
        },
        "trigger": { "source": "shop", "detail_type": "Order Placed" },
        "output": "${ steps.ship.output }",
        "steps": {
            "reserve": {
                "agent": "stock", "complete_within": "10s",
                "recovery": { "attempts": 5, "extended_wait": { "wait": "15m", "times": 2 }, "then": "undo" },
                "request": { "path": "/reservations" },
                "undo": { "complete_within": "20s", "request": { "path": "/releases" } },
            },
            "pack": {
                "agent": "stock", "after": ["reserve"], "request": { "path": "/packs" },
                "for_each": { "items": "${ input.items }", "at_once": 5 },
            },
            "pause": { "after": ["pack"], "wait": "5m" },
            "ship": {
                "agent": "carrier", "after": ["pause"], "point_of_no_return": true,
                "callback": { "within": "1h", "heartbeat": "5m" },
                "request": { "path": "/parcels", "body": "${ callback.token }" },
            },
            "tell": { "after": ["pause"], "workflow": { "name": "tell", "version": 1 } },
        },
    })
}

/// What a merge patch (RFC 7396) of the definition changes, in the version after it; without the
/// version's own line.
fn said(patch: Value) -> Vec<String> {
    let read = |value: &Value| -> Workflow { serde_json::from_value(value.clone()).unwrap() };
    let mut new = base();
    merge(&mut new, &json!({ "version": 2 }));
    merge(&mut new, &patch);
    let lines = changes(&read(&base()), &read(&new)).into_iter().map(|change| {
        let Change { at, what, safe, why } = change;
        format!("{} {at}: {what} ({why})", if safe { "safe" } else { "look" })
    });
    lines
        .filter(|line| {
            line != "safe version: 1 became 2 (new tasks take it unless they name another)"
        })
        .collect()
}

fn merge(value: &mut Value, patch: &Value) {
    let Some(patch) = patch.as_object() else {
        *value = patch.clone();
        return;
    };
    if !value.is_object() {
        *value = json!({});
    }
    for (key, patch) in patch {
        if patch.is_null() {
            value.as_object_mut().unwrap().shift_remove(key);
        } else {
            merge(&mut value[key], patch);
        }
    }
}

fn step(name: &str, patch: Value) -> Vec<String> {
    said(json!({ "steps": { name: patch } }))
}

const NARROWER: &str = "clients whose inputs were taken before may be refused";
const WIDER: &str = "what was taken before still is; can the steps bear what is new?";

#[test]
fn what_did_not_change_is_not_said() {
    assert_eq!(said(json!({})), [""; 0]);
    let same: Workflow = serde_json::from_value(base()).unwrap();
    assert_eq!(changes(&same, &same), []);
}

#[test]
fn what_a_call_may_take_and_what_responses_mean_needs_a_look() {
    let bound = "no call may take longer at the service, also after its agent gave it up";
    let meaning = "does the service mean that by these statuses?";
    let patch = json!({ "call_within": "40s", "responses": { "409": "failed" } });
    assert_eq!(
        step(
            "reserve",
            json!({ "call_within": "40s", "responses": { "409": "failed" }, "undo": patch })
        ),
        [
            format!("look steps.reserve.call_within: 10s became 40s ({bound})"),
            format!("look steps.reserve.responses: changed ({meaning})"),
            format!("look steps.reserve.undo.call_within: 20s became 40s ({bound})"),
            format!("look steps.reserve.undo.responses: changed ({meaning})"),
        ]
    );
    assert_eq!(step("reserve", json!({ "complete_within": "12s" })).len(), 1);
}

#[test]
fn a_version_is_raised_or_it_needs_a_look() {
    let again = said(json!({ "version": 1, "description": "new" }));
    assert_eq!(
        again,
        [
            "look version: still 1 (a published version never changes: raise it)",
            "safe description: changed (it is for people)",
        ]
    );
    let mut newer = base();
    newer["version"] = json!(3);
    let (old, new) =
        (serde_json::from_value(newer).unwrap(), serde_json::from_value(base()).unwrap());
    let lowered = changes(&old, &new);
    assert_eq!(
        (lowered.len(), lowered[0].safe, lowered[0].what.as_str()),
        (1, false, "3 became 1")
    );
    assert_eq!(
        said(json!({ "name": "orders" })),
        [
            "look name: `order` became `orders` (another workflow: the old one stays published beside it)"
        ]
    );
}

#[test]
fn a_schema_that_takes_less_needs_a_look() {
    for (input, expected) in [
        (
            json!({ "required": ["amount", "note"] }),
            format!("look input.required: `note` is required now ({NARROWER})"),
        ),
        (
            json!({ "required": [] }),
            format!("safe input.required: `amount` is no longer required ({WIDER})"),
        ),
        (
            json!({ "properties": { "amount": { "type": "string" } } }),
            format!("look input.amount.type: integer became string ({NARROWER})"),
        ),
        (
            json!({ "properties": { "amount": { "type": "number" } } }),
            format!("safe input.amount.type: integer became number ({WIDER})"),
        ),
        (
            json!({ "properties": { "note": { "type": ["string", "null"] } } }),
            format!("safe input.note.type: string became null or string ({WIDER})"),
        ),
        (
            json!({ "properties": { "amount": { "maximum": 99 } } }),
            format!("look input.amount.maximum: 100 became 99 ({NARROWER})"),
        ),
        (
            json!({ "properties": { "amount": { "maximum": 101 } } }),
            format!("safe input.amount.maximum: 100 became 101 ({WIDER})"),
        ),
        (
            json!({ "properties": { "amount": { "minimum": 1 } } }),
            format!("look input.amount.minimum: added ({NARROWER})"),
        ),
        (
            json!({ "properties": { "amount": { "maximum": null } } }),
            format!("safe input.amount.maximum: removed ({WIDER})"),
        ),
        (
            json!({ "properties": { "note": { "enum": ["a"] } } }),
            format!("look input.note.enum: added ({NARROWER})"),
        ),
        (
            json!({ "additionalProperties": false }),
            format!("look input.additionalProperties: unknown keys are refused ({NARROWER})"),
        ),
        (json!({ "additionalProperties": true }), String::new()),
        (
            json!({ "properties": { "to": { "type": "string" } } }),
            "safe input.to: described now (clients who do not send it are not concerned)"
                .to_owned(),
        ),
        (
            json!({ "properties": { "note": null } }),
            format!("safe input.note: no longer described ({WIDER})"),
        ),
        (json!({ "title": "An order" }), "safe input.title: changed (it is for people)".to_owned()),
        (json!({ "oneOf": [{}] }), format!("look input.oneOf: added ({NARROWER})")),
    ] {
        let expected: Vec<_> = Some(expected).into_iter().filter(|line| !line.is_empty()).collect();
        assert_eq!(said(json!({ "input": input.clone() })), expected, "{input}");
    }
    assert_eq!(
        said(json!({ "input": null })),
        [format!("safe input: no schema any more ({WIDER})")]
    );
}

#[test]
fn enums_lists_and_closed_objects_are_compared_too() {
    let compare = |old: Value, new: Value| {
        let mut found = Changes::default();
        let (old, new) = (
            Some(steward_core::definition::schema::InputSchema::new(old)),
            steward_core::definition::schema::InputSchema::new(new),
        );
        schema::compare(&mut found, old.as_ref(), Some(&new));
        let lines = found.0.into_iter();
        lines.map(|change| (change.safe, change.at, change.what)).collect::<Vec<_>>()
    };
    let line = |safe, at: &str, what: &str| vec![(safe, at.to_owned(), what.to_owned())];
    assert_eq!(
        compare(json!({ "enum": [1, 2] }), json!({ "enum": [1] })),
        line(false, "input.enum", "values removed")
    );
    assert_eq!(
        compare(json!({ "enum": [1] }), json!({ "enum": [2, 1] })),
        line(true, "input.enum", "values added")
    );
    assert_eq!(
        compare(json!({ "items": { "minLength": 2 } }), json!({ "items": { "minLength": 1 } })),
        line(true, "input.items.minLength", "2 became 1")
    );
    let closed = |fields: Value| json!({ "additionalProperties": false, "properties": fields });
    assert_eq!(
        compare(closed(json!({ "a": {}, "b": {} })), closed(json!({ "a": {} }))),
        line(false, "input.b", "removed, so it is refused")
    );
    assert_eq!(compare(json!(true), json!(false)), line(false, "input", "changed"));
    let mut found = Changes::default();
    let schema = steward_core::definition::schema::InputSchema::new(json!({}));
    schema::compare(&mut found, None, Some(&schema));
    assert_eq!(found.0[0].what, "a schema, where anything was taken");
}

#[test]
fn a_trigger_that_changes_needs_a_look() {
    for (trigger, expected) in [
        (
            json!(null),
            "look trigger: removed: events `Order Placed` of `shop` (they submit no tasks any more)",
        ),
        (
            json!({ "detail_type": "Order Paid" }),
            "look trigger: `Order Placed` of `shop` became `Order Paid` of `shop` (the former submit no tasks \
             any more, the latter do)",
        ),
        (
            json!({ "task_id": "order-${ event.id }" }),
            "look trigger.task_id: changed (an event that is delivered again after publication makes a second task)",
        ),
        (
            json!({ "input": { "order": "${ event.detail }" } }),
            "look trigger.input: changed (events give new tasks another input: does it fit the schema and the steps?)",
        ),
    ] {
        assert_eq!(said(json!({ "trigger": trigger })), [expected]);
    }
    let mut without = base();
    without.as_object_mut().unwrap().shift_remove("trigger");
    let (old, new): (Workflow, Workflow) =
        (serde_json::from_value(without).unwrap(), serde_json::from_value(base()).unwrap());
    let added = changes(&old, &new).into_iter().find(|change| change.at == "trigger").unwrap();
    assert_eq!(
        (added.safe, added.what.as_str()),
        (false, "added: events `Order Placed` of `shop`")
    );
}

#[test]
fn less_time_and_shorter_retention_need_a_look() {
    let late = "what took longer was in time before, and is too late now";
    let early = "tasks and their documents may go earlier: can whoever looks them up bear it?";
    for (patch, expected) in [
        (json!({ "complete_within": "5m" }), format!("look complete_within: shortened: 10m became 5m ({late})")),
        (json!({ "complete_within": "20m" }), "safe complete_within: lengthened: 10m became 20m (what was in time still is)".to_owned()),
        (json!({ "retention": "1d" }), format!("look retention: 30d became 1d ({early})")),
        (json!({ "retention": null }), format!("look retention: 30d became the deployment's ({early})")),
        (json!({ "retention": "60d" }), "safe retention: lengthened: 30d became 60d (costs storage, nothing else)".to_owned()),
        (json!({ "overdue": "undo" }), "look overdue: alert became undo (a task past its time is undone by itself, where it waited for an operator)".to_owned()),
        (json!({ "lifecycle_events": true }), "safe lifecycle_events: turned on (each task's end is an event, and costs one)".to_owned()),
    ] {
        assert_eq!(said(patch), [expected]);
    }
}

#[test]
fn what_people_see_more_of_needs_a_look() {
    let new: Workflow = serde_json::from_value(base()).unwrap();
    let mut old = base();
    old["mask"] = json!(["/card", "/items/*/secret"]);
    let mut new_mask = base();
    new_mask["mask"] = json!(["/card", "/pin"]);
    let of = |value: &Value| serde_json::from_value::<Workflow>(value.clone()).unwrap();
    let masks = |old: &Workflow, new: &Workflow| -> Vec<_> {
        let found = changes(old, new).into_iter().filter(|change| change.at == "mask");
        found.map(|change| (change.what, change.safe)).collect()
    };
    let removed = ("`/items/*/secret` removed".to_owned(), false);
    assert_eq!(
        masks(&of(&old), &of(&new_mask)),
        [("`/pin` added".to_owned(), true), removed.clone()]
    );
    assert_eq!(masks(&of(&old), &new), [("`/card` removed".to_owned(), false), removed]);
}

#[test]
fn an_output_that_changes_needs_a_look() {
    let why = "clients and the workflows that run this one read it";
    assert_eq!(said(json!({ "output": null })), [format!("look output: removed ({why})")]);
    assert_eq!(said(json!({ "output": { "id": 1 } })), [format!("look output: changed ({why})")]);
}

#[test]
fn steps_are_added_removed_and_renamed() {
    let mut renamed = base();
    let pause = renamed["steps"].as_object_mut().unwrap().shift_remove("pause").unwrap();
    renamed["steps"]["rest"] = pause;
    for step in ["ship", "tell"] {
        renamed["steps"][step]["after"] = json!(["rest"]);
    }
    renamed["version"] = json!(2);
    let read = |value: Value| -> Workflow { serde_json::from_value(value).unwrap() };
    let found = changes(&read(base()), &read(renamed));
    assert_eq!(found.len(), 2, "{found:?}");
    assert_eq!(
        (found[1].at.as_str(), found[1].what.as_str()),
        ("steps.pause", "renamed to `rest`")
    );
    assert!(!found[1].safe);

    assert_eq!(
        step("tell", json!(null)),
        ["look steps.tell: removed (new tasks do it no more: does anything rely on it?)"]
    );
    let bill = json!({ "agent": "billing", "after": ["pack"], "request": { "path": "/bills" } });
    assert_eq!(
        step("bill", bill),
        [
            "look steps.bill.agent: new agent `billing` (it needs a queue and a deployment before this is published)",
            "safe steps.bill: added (new tasks do one thing more)",
        ]
    );
}

#[test]
fn the_order_of_steps_may_be_tightened_and_not_loosened() {
    assert_eq!(
        step("ship", json!({ "after": ["pause", "pack"] })),
        ["safe steps.ship.after: changed (it still comes after all that it came after)"]
    );
    assert_eq!(
        step("tell", json!({ "after": ["reserve"] })),
        [
            "look steps.tell.after: no longer after `pack`, `pause` (it may run before it, or beside it)"
        ]
    );
}

#[test]
fn what_a_step_does_is_compared_key_by_key() {
    let both = "the service gets both calls while tasks of both versions run";
    let other = "it does something else now";
    for (name, patch, expected) in [
        ("reserve", json!({ "description": "x" }), "safe steps.reserve.description: changed (it is for people)".to_owned()),
        ("reserve", json!({ "agent": "carrier" }), "look steps.reserve.agent: `stock` became `carrier` (another service gets its calls)".to_owned()),
        ("reserve", json!({ "request": { "method": "PUT" } }), format!("look steps.reserve.request.method: changed ({both})")),
        ("reserve", json!({ "request": { "path": "/r" } }), format!("look steps.reserve.request.path: changed ({both})")),
        ("reserve", json!({ "request": { "body": 1 } }), format!("look steps.reserve.request.body: changed ({both})")),
        ("reserve", json!({ "when": "${ input.amount > 0 }" }), "look steps.reserve.when: added (it may be skipped where it was done: can those that read its output bear null?)".to_owned()),
        ("pause", json!({ "wait": "6m" }), "safe steps.pause.wait: changed (new tasks wait as it says now)".to_owned()),
        ("pack", json!({ "for_each": { "at_once": 6 } }), "look steps.pack.for_each.at_once: 5 became 6 (more calls at once: can the service bear them?)".to_owned()),
        ("pack", json!({ "for_each": { "at_once": 4 } }), "safe steps.pack.for_each.at_once: 5 became 4 (fewer calls at once)".to_owned()),
        ("pack", json!({ "for_each": { "items": "${ input.all }" } }), "look steps.pack.for_each.items: changed (it is done for other items)".to_owned()),
        ("pack", json!({ "for_each": null }), "look steps.pack.for_each: removed (its output is no longer a list, for all that read it)".to_owned()),
        ("reserve", json!({ "for_each": { "items": "${ input.all }" } }), "look steps.reserve.for_each: added (its output is a list now, for all that read it)".to_owned()),
        ("ship", json!({ "callback": null }), "look steps.ship.callback: removed (its call completes it: later answers are ignored)".to_owned()),
        ("pack", json!({ "callback": { "within": "1h" } }), "look steps.pack.callback: added (its call no longer completes it: somebody must answer with the token)".to_owned()),
        ("ship", json!({ "callback": { "within": "30m" } }), "look steps.ship.callback.within: shortened: 1h became 30m (what took longer was in time before, and is too late now)".to_owned()),
        ("ship", json!({ "callback": { "heartbeat": null } }), "safe steps.ship.callback.heartbeat: removed (nobody has to send them)".to_owned()),
        ("tell", json!({ "workflow": { "name": "shout" } }), "look steps.tell.workflow.name: `tell` became `shout` (it must be published before this is)".to_owned()),
        ("tell", json!({ "workflow": { "version": 2 } }), "look steps.tell.workflow.version: changed (is it published, and does it return what is read of it?)".to_owned()),
        ("tell", json!({ "workflow": { "input": 1 } }), "look steps.tell.workflow.input: changed (does it fit the schema of that workflow?)".to_owned()),
    ] {
        assert_eq!(step(name, patch), [expected]);
    }
    let waits =
        step("pack", json!({ "agent": null, "request": null, "for_each": null, "wait": "1m" }));
    assert!(waits.contains(&format!("look steps.pack.agent: removed ({other})")), "{waits:?}");
    assert!(waits.contains(&format!("look steps.pack.wait: added ({other})")), "{waits:?}");
}

#[test]
fn how_a_step_fails_and_is_undone_is_compared_key_by_key() {
    let earlier = "gives up earlier on a service that is down";
    for (patch, expected) in [
        (json!({ "complete_within": "5s" }), "look steps.reserve.complete_within: shortened: 10s became 5s (what took longer was in time before, and is too late now)".to_owned()),
        (json!({ "recovery": { "attempts": 2 } }), format!("look steps.reserve.recovery.attempts: 5 became 2 ({earlier})")),
        (json!({ "recovery": { "attempts": 6 } }), "safe steps.reserve.recovery.attempts: 5 became 6 (tries longer)".to_owned()),
        (json!({ "recovery": { "backoff": { "first": "3s" } } }), "safe steps.reserve.recovery.backoff: changed (other pauses between attempts)".to_owned()),
        (json!({ "recovery": { "extended_wait": null } }), format!("look steps.reserve.recovery.extended_wait: 30m in all became 0s ({earlier})")),
        (json!({ "recovery": { "extended_wait": { "times": 4 } } }), "safe steps.reserve.recovery.extended_wait: 30m in all became 1h (waits as long or longer)".to_owned()),
        (json!({ "recovery": { "then": "alert" } }), "look steps.reserve.recovery.then: undo became alert (a task that fails here waits for an operator, where it was undone by itself)".to_owned()),
        (json!({ "idempotent": false }), "look steps.reserve.idempotent: turned off (attempts are no longer repeated: an unknown outcome goes to `then`)".to_owned()),
        (json!({ "undo": null }), "look steps.reserve.undo: removed (what it did stays done when a task is undone)".to_owned()),
        (json!({ "undo": { "request": { "path": "/x" } } }), "look steps.reserve.undo.request: changed (does it still undo what the step does?)".to_owned()),
        (json!({ "undo": { "complete_within": "10s" } }), "look steps.reserve.undo.complete_within: shortened: 20s became 10s (what took longer was in time before, and is too late now)".to_owned()),
        (json!({ "undo": { "recovery": { "attempts": 9 } } }), "safe steps.reserve.undo.recovery.attempts: 3 became 9 (tries longer)".to_owned()),
    ] {
        assert_eq!(step("reserve", patch), [expected]);
    }
    assert_eq!(
        step("pack", json!({ "undo": { "request": { "path": "/unpacks" } } })),
        ["safe steps.pack.undo: added (what it did is undone with the task)"]
    );
    let moved = said(json!({ "steps": {
        "ship": { "point_of_no_return": null }, "pack": { "point_of_no_return": true },
    } }));
    assert_eq!(
        moved,
        [
            "look steps.pack.point_of_no_return: moved here (once it has completed, nothing is undone any more)",
            "look steps.ship.point_of_no_return: taken from here (a task may be undone after it: can what \
             comes before it, and it, be?)",
        ]
    );
}
