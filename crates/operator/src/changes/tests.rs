//! One test for each kind of change. Expectations are the printed lines.

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
                "recovery": { "attempts": 5, "extended_wait": { "wait": "15m", "times": 2 }, "give_up_after": "1h", "then": "undo" },
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
            "notify": { "after": ["pause"], "workflow": { "name": "notify", "version": 1 } },
        },
    })
}

/// The printed changes after a merge patch (RFC 7396) of the definition, without the change of its version.
fn changes_by(patch: Value) -> Vec<String> {
    let read = |value: &Value| -> Workflow { serde_json::from_value(value.clone()).unwrap() };
    let mut new = base();
    merge(&mut new, &json!({ "version": 2 }));
    merge(&mut new, &patch);
    let lines = compare_definitions(&read(&base()), &read(&new)).into_iter().map(|change| {
        let DefinitionChange { at, what, safe, why } = change;
        format!("{} {at}: {what} ({why})", if safe { "safe" } else { "risky" })
    });
    lines
        .filter(|line| {
            line != "safe version: 1 became 2 (new tasks use it unless they name another version)"
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
    changes_by(json!({ "steps": { name: patch } }))
}

const NARROWER: &str = "inputs that were accepted before may be rejected";
const WIDER: &str = "accepts more inputs than before; check that the steps can handle them";

#[test]
fn equal_definitions_have_no_changes() {
    assert_eq!(changes_by(json!({})), [""; 0]);
    let same: Workflow = serde_json::from_value(base()).unwrap();
    assert_eq!(compare_definitions(&same, &same), []);
}

#[test]
fn changes_of_call_within_and_responses_are_risky() {
    let bound =
        "the service must end every call within this time, even after the agent has timed out";
    let meaning = "check that the service uses these statuses with this meaning";
    let patch = json!({ "call_within": "40s", "responses": { "409": "failed" } });
    assert_eq!(
        step(
            "reserve",
            json!({ "call_within": "40s", "responses": { "409": "failed" }, "undo": patch })
        ),
        [
            format!("risky steps.reserve.call_within: 10s became 40s ({bound})"),
            format!("risky steps.reserve.responses: changed ({meaning})"),
            format!("risky steps.reserve.undo.call_within: 20s became 40s ({bound})"),
            format!("risky steps.reserve.undo.responses: changed ({meaning})"),
        ]
    );
    assert_eq!(step("reserve", json!({ "complete_within": "12s" })).len(), 1);
}

#[test]
fn a_version_that_is_not_raised_is_risky() {
    let again = changes_by(json!({ "version": 1, "description": "new" }));
    assert_eq!(
        again,
        [
            "risky version: still 1 (a published version cannot change; raise the version)",
            "safe description: changed (has no effect on tasks)",
        ]
    );
    let mut newer = base();
    newer["version"] = json!(3);
    let (old, new) =
        (serde_json::from_value(newer).unwrap(), serde_json::from_value(base()).unwrap());
    let lowered = compare_definitions(&old, &new);
    assert_eq!(
        (lowered.len(), lowered[0].safe, lowered[0].what.as_str()),
        (1, false, "3 became 1")
    );
    assert_eq!(
        changes_by(json!({ "name": "orders" })),
        [
            "risky name: `order` became `orders` (this is a different workflow; the old one stays published)"
        ]
    );
}

#[test]
fn a_schema_that_accepts_less_is_risky() {
    for (input, expected) in [
        (
            json!({ "required": ["amount", "note"] }),
            format!("risky input.required: `note` is now required ({NARROWER})"),
        ),
        (
            json!({ "required": [] }),
            format!("safe input.required: `amount` is no longer required ({WIDER})"),
        ),
        (
            json!({ "properties": { "amount": { "type": "string" } } }),
            format!("risky input.amount.type: integer became string ({NARROWER})"),
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
            format!("risky input.amount.maximum: 100 became 99 ({NARROWER})"),
        ),
        (
            json!({ "properties": { "amount": { "maximum": 101 } } }),
            format!("safe input.amount.maximum: 100 became 101 ({WIDER})"),
        ),
        (
            json!({ "properties": { "amount": { "minimum": 1 } } }),
            format!("risky input.amount.minimum: added ({NARROWER})"),
        ),
        (
            json!({ "properties": { "amount": { "maximum": null } } }),
            format!("safe input.amount.maximum: removed ({WIDER})"),
        ),
        (
            json!({ "properties": { "note": { "enum": ["a"] } } }),
            format!("risky input.note.enum: added ({NARROWER})"),
        ),
        (
            json!({ "additionalProperties": false }),
            format!("risky input.additionalProperties: unknown keys are rejected ({NARROWER})"),
        ),
        (json!({ "additionalProperties": true }), String::new()),
        (
            json!({ "properties": { "to": { "type": "string" } } }),
            "safe input.to: property added (no effect on inputs without this key)".to_owned(),
        ),
        (
            json!({ "properties": { "note": null } }),
            format!("safe input.note: property removed ({WIDER})"),
        ),
        (
            json!({ "title": "An order" }),
            "safe input.title: changed (has no effect on tasks)".to_owned(),
        ),
        (json!({ "oneOf": [{}] }), format!("risky input.oneOf: added ({NARROWER})")),
    ] {
        let expected: Vec<_> = Some(expected).into_iter().filter(|line| !line.is_empty()).collect();
        assert_eq!(changes_by(json!({ "input": input.clone() })), expected, "{input}");
    }
    assert_eq!(
        changes_by(json!({ "input": null })),
        [format!("safe input: schema removed ({WIDER})")]
    );
}

#[test]
fn enums_lists_and_closed_objects_are_compared_too() {
    let compare = |old: Value, new: Value| {
        let mut found = Changes::default();
        let (old, new) = (
            Some(steward_core::definition::schema::PayloadSchema::new(old)),
            steward_core::definition::schema::PayloadSchema::new(new),
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
        line(false, "input.b", "removed; inputs with this key are rejected")
    );
    assert_eq!(compare(json!(true), json!(false)), line(false, "input", "changed"));
    let mut found = Changes::default();
    let schema = steward_core::definition::schema::PayloadSchema::new(json!({}));
    schema::compare(&mut found, None, Some(&schema));
    assert_eq!(found.0[0].what, "schema added; any input was accepted before");
}

#[test]
fn a_changed_trigger_is_risky() {
    for (trigger, expected) in [
        (
            json!(null),
            "risky trigger: removed: events `Order Placed` of `shop` (these events will no longer submit tasks)",
        ),
        (
            json!({ "detail_type": "Order Paid" }),
            "risky trigger: `Order Placed` of `shop` became `Order Paid` of `shop` (the old events will \
             no longer submit tasks; the new ones will)",
        ),
        (
            json!({ "task_id": "order-${ event.id }" }),
            "risky trigger.task_id: changed (an event that is redelivered after publication submits a second task)",
        ),
        (
            json!({ "input": { "order": "${ event.detail }" } }),
            "risky trigger.input: changed (new tasks get a different input; check that it matches the schema and the steps)",
        ),
        (
            json!({ "tenant": "${ event.detail.shop }" }),
            "risky trigger.tenant: changed (an event that is redelivered after publication is refused if its tenant differs)",
        ),
    ] {
        assert_eq!(changes_by(json!({ "trigger": trigger })), [expected]);
    }
    let mut without = base();
    without.as_object_mut().unwrap().shift_remove("trigger");
    let (old, new): (Workflow, Workflow) =
        (serde_json::from_value(without).unwrap(), serde_json::from_value(base()).unwrap());
    let added =
        compare_definitions(&old, &new).into_iter().find(|change| change.at == "trigger").unwrap();
    assert_eq!(
        (added.safe, added.what.as_str()),
        (false, "added: events `Order Placed` of `shop`")
    );
}

#[test]
fn a_label_that_is_changed_or_removed_is_risky() {
    let with = |labels: Value| {
        let mut definition = base();
        definition["labels"] = labels;
        serde_json::from_value::<Workflow>(definition).unwrap()
    };
    let old = with(json!({ "a": "${ input.a }", "b": "${ input.b }", "c": "${ input.c }" }));
    let new = with(json!({ "a": "${ input.x }", "c": "${ input.c }", "d": "${ input.d }" }));
    let changes = compare_definitions(&old, &new);
    let changes = changes.iter().filter(|change| change.at.starts_with("labels"));
    let texts: Vec<_> =
        changes.map(|change| format!("{} {} {}", change.safe, change.at, change.what)).collect();
    assert_eq!(texts, ["false labels.a changed", "true labels.d added", "false labels.b removed"]);
}

#[test]
fn a_removed_lifecycle_event_is_risky() {
    let with = |kinds: Value| {
        let mut definition = base();
        definition["lifecycle_events"] = kinds;
        serde_json::from_value::<Workflow>(definition).unwrap()
    };
    let changes = compare_definitions(
        &with(json!(["processed", "undone", "error"])),
        &with(json!(["undone", "submitted"])),
    );
    let texts: Vec<_> = changes
        .iter()
        .filter(|change| change.at == "lifecycle_events")
        .map(|change| format!("{} {} ({})", change.safe, change.what, change.why))
        .collect();
    assert_eq!(
        texts,
        [
            "true `submitted` added (new tasks publish these events, and each of them is billed)",
            "false `processed` removed (subscribers of `steward.task.processed` get no events of new tasks)",
            "false `error` removed (subscribers of `steward.task.error` get no events of new tasks)",
        ]
    );
}

#[test]
fn less_time_and_shorter_retention_are_risky() {
    let late = "durations that were in time before may now exceed the limit";
    let early = "tasks and their documents may be deleted earlier; check who still reads them";
    for (patch, expected) in [
        (json!({ "complete_within": "5m" }), format!("risky complete_within: shortened: 10m became 5m ({late})")),
        (json!({ "complete_within": "20m" }), "safe complete_within: lengthened: 10m became 20m (no effect on durations that were in time before)".to_owned()),
        (json!({ "retention": "1d" }), format!("risky retention: 30d became 1d ({early})")),
        (json!({ "retention": null }), format!("risky retention: 30d became the deployment's default ({early})")),
        (json!({ "retention": "60d" }), "safe retention: lengthened: 30d became 60d (only increases storage costs)".to_owned()),
        (json!({ "overdue": "undo" }), "risky overdue: alert became undo (an overdue task is now undone automatically instead of waiting for an operator)".to_owned()),
        (json!({ "lifecycle_events": ["undone"] }), "safe lifecycle_events: `undone` added (new tasks publish these events, and each of them is billed)".to_owned()),
    ] {
        assert_eq!(changes_by(patch), [expected]);
    }
}

#[test]
fn a_removed_mask_is_risky() {
    let new: Workflow = serde_json::from_value(base()).unwrap();
    let mut old = base();
    old["mask"] = json!(["/card", "/items/*/secret"]);
    let mut new_mask = base();
    new_mask["mask"] = json!(["/card", "/pin"]);
    let of = |value: &Value| serde_json::from_value::<Workflow>(value.clone()).unwrap();
    let masks = |old: &Workflow, new: &Workflow| -> Vec<_> {
        let found = compare_definitions(old, new).into_iter().filter(|change| change.at == "mask");
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
fn a_changed_output_is_risky() {
    let why = "clients and parent workflows read it";
    assert_eq!(changes_by(json!({ "output": null })), [format!("risky output: removed ({why})")]);
    assert_eq!(
        changes_by(json!({ "output": { "id": 1 } })),
        [format!("risky output: changed ({why})")]
    );
}

#[test]
fn steps_are_added_removed_and_renamed() {
    let mut renamed = base();
    let pause = renamed["steps"].as_object_mut().unwrap().shift_remove("pause").unwrap();
    renamed["steps"]["rest"] = pause;
    for step in ["ship", "notify"] {
        renamed["steps"][step]["after"] = json!(["rest"]);
    }
    renamed["version"] = json!(2);
    let read = |value: Value| -> Workflow { serde_json::from_value(value).unwrap() };
    let found = compare_definitions(&read(base()), &read(renamed));
    assert_eq!(found.len(), 2, "{found:?}");
    assert_eq!(
        (found[1].at.as_str(), found[1].what.as_str()),
        ("steps.pause", "renamed to `rest`")
    );
    assert!(!found[1].safe);

    assert_eq!(
        step("notify", json!(null)),
        ["risky steps.notify: removed (new tasks do not run it; check what depends on it)"]
    );
    let bill = json!({ "agent": "billing", "after": ["pack"], "request": { "path": "/bills" } });
    assert_eq!(
        step("bill", bill),
        [
            "risky steps.bill.agent: new agent `billing` (deploy the agent and its queue before you publish)",
            "safe steps.bill: added (new tasks run an additional step)",
        ]
    );
}

#[test]
fn the_order_of_steps_may_be_tightened_and_not_loosened() {
    assert_eq!(
        step("ship", json!({ "after": ["pause", "pack"] })),
        ["safe steps.ship.after: changed (the order of existing steps is unchanged)"]
    );
    assert_eq!(
        step("notify", json!({ "after": ["reserve"] })),
        [
            "risky steps.notify.after: no longer after `pack`, `pause` (the steps may now run in a different order or in parallel)"
        ]
    );
}

#[test]
fn what_a_step_does_is_compared_key_by_key() {
    let both = "the service gets both kinds of calls while tasks of both versions run";
    let other = "the step does something different";
    let paid =
        json!({ "source": "bank", "detail_type": "Paid", "key": "${ event.id }", "equals": "1" });
    for (name, patch, expected) in [
        ("reserve", json!({ "description": "x" }), "safe steps.reserve.description: changed (has no effect on tasks)".to_owned()),
        ("reserve", json!({ "agent": "carrier" }), "risky steps.reserve.agent: `stock` became `carrier` (a different service gets the calls)".to_owned()),
        ("reserve", json!({ "request": { "method": "PUT" } }), format!("risky steps.reserve.request.method: changed ({both})")),
        ("reserve", json!({ "request": { "path": "/r" } }), format!("risky steps.reserve.request.path: changed ({both})")),
        ("reserve", json!({ "request": { "body": 1 } }), format!("risky steps.reserve.request.body: changed ({both})")),
        ("reserve", json!({ "request": { "auth": "aws" } }), format!("risky steps.reserve.request.auth: changed ({both})")),
        ("reserve", json!({ "when": "${ input.amount > 0 }" }), "risky steps.reserve.when: added (the step may now be skipped; check that readers of its output accept null)".to_owned()),
        ("pause", json!({ "wait": "6m" }), "safe steps.pause.wait: changed (only new tasks wait for the new time)".to_owned()),
        ("pause", json!({ "wait": { "event": paid, "within": "1m" } }), format!("risky steps.pause.wait: changed ({other})")),
        ("pack", json!({ "for_each": { "at_once": 6 } }), "risky steps.pack.for_each.at_once: 5 became 6 (more concurrent calls; check the capacity of the service)".to_owned()),
        ("pack", json!({ "for_each": { "at_once": 4 } }), "safe steps.pack.for_each.at_once: 5 became 4 (fewer concurrent calls)".to_owned()),
        ("pack", json!({ "for_each": { "items": "${ input.all }" } }), "risky steps.pack.for_each.items: changed (the step runs for different items)".to_owned()),
        ("pack", json!({ "for_each": null }), "risky steps.pack.for_each: removed (its output is no longer a list; check its readers)".to_owned()),
        ("reserve", json!({ "for_each": { "items": "${ input.all }" } }), "risky steps.reserve.for_each: added (its output becomes a list; check its readers)".to_owned()),
        ("ship", json!({ "callback": null }), "risky steps.ship.callback: removed (the call completes the step; later callbacks are ignored)".to_owned()),
        ("pack", json!({ "callback": { "within": "1h" } }), "risky steps.pack.callback: added (the call no longer completes the step; a callback must)".to_owned()),
        ("ship", json!({ "callback": { "within": "30m" } }), "risky steps.ship.callback.within: shortened: 1h became 30m (durations that were in time before may now exceed the limit)".to_owned()),
        ("ship", json!({ "callback": { "heartbeat": null } }), "safe steps.ship.callback.heartbeat: removed (heartbeats are no longer required)".to_owned()),
        ("notify", json!({ "workflow": { "name": "shout" } }), "risky steps.notify.workflow.name: `notify` became `shout` (publish that workflow first)".to_owned()),
        ("notify", json!({ "workflow": { "version": 2 } }), "risky steps.notify.workflow.version: changed (check that it is published and that its output is compatible)".to_owned()),
        ("notify", json!({ "workflow": { "input": 1 } }), "risky steps.notify.workflow.input: changed (check that it matches the input schema of that workflow)".to_owned()),
    ] {
        assert_eq!(step(name, patch), [expected]);
    }
    let waits =
        step("pack", json!({ "agent": null, "request": null, "for_each": null, "wait": "1m" }));
    assert!(waits.contains(&format!("risky steps.pack.agent: removed ({other})")), "{waits:?}");
    assert!(waits.contains(&format!("risky steps.pack.wait: added ({other})")), "{waits:?}");
}

#[test]
fn how_a_step_fails_and_is_undone_is_compared_key_by_key() {
    let earlier = "fails earlier if the service is down";
    for (patch, expected) in [
        (json!({ "complete_within": "5s" }), "risky steps.reserve.complete_within: shortened: 10s became 5s (durations that were in time before may now exceed the limit)".to_owned()),
        (json!({ "recovery": { "attempts": 2 } }), format!("risky steps.reserve.recovery.attempts: 5 became 2 ({earlier})")),
        (json!({ "recovery": { "attempts": 6 } }), "safe steps.reserve.recovery.attempts: 5 became 6 (retries more often)".to_owned()),
        (json!({ "recovery": { "backoff": { "first": "3s" } } }), "safe steps.reserve.recovery.backoff: changed (only changes the pauses between attempts)".to_owned()),
        (json!({ "recovery": { "extended_wait": null } }), format!("risky steps.reserve.recovery.extended_wait: 30m in total became 0s ({earlier})")),
        (json!({ "recovery": { "extended_wait": { "times": 4 } } }), "safe steps.reserve.recovery.extended_wait: 30m in total became 1h (waits at least as long)".to_owned()),
        (json!({ "recovery": { "give_up_after": "30m" } }), format!("risky steps.reserve.recovery.give_up_after: 1h became 30m ({earlier})")),
        (json!({ "recovery": { "give_up_after": null } }), "safe steps.reserve.recovery.give_up_after: 1h became none (retries for longer)".to_owned()),
        (json!({ "recovery": { "then": "alert" } }), "risky steps.reserve.recovery.then: undo became alert (a task that fails here now waits for an operator instead of being undone automatically)".to_owned()),
        (json!({ "idempotent": false }), "risky steps.reserve.idempotent: turned off (unknown outcomes are no longer retried; they lead to `then`)".to_owned()),
        (json!({ "read_only": false }), "safe steps.reserve.read_only: changed (only `steward workflow failures` reads it)".to_owned()),
        (json!({ "undo": null }), "risky steps.reserve.undo: removed (its effect stays when a task is undone)".to_owned()),
        (json!({ "undo": { "request": { "path": "/x" } } }), "risky steps.reserve.undo.request: changed (check that it still undoes the step)".to_owned()),
        (json!({ "undo": { "complete_within": "10s" } }), "risky steps.reserve.undo.complete_within: shortened: 20s became 10s (durations that were in time before may now exceed the limit)".to_owned()),
        (json!({ "undo": { "recovery": { "attempts": 9 } } }), "safe steps.reserve.undo.recovery.attempts: 3 became 9 (retries more often)".to_owned()),
    ] {
        assert_eq!(step("reserve", patch), [expected]);
    }
    assert_eq!(
        step("pack", json!({ "undo": { "request": { "path": "/unpacks" } } })),
        ["safe steps.pack.undo: added (its effect is undone with the task)"]
    );
    let moved = changes_by(json!({ "steps": {
        "ship": { "point_of_no_return": null }, "pack": { "point_of_no_return": true },
    } }));
    assert_eq!(
        moved,
        [
            "risky steps.pack.point_of_no_return: added (after it completes, the task can no longer be undone)",
            "risky steps.ship.point_of_no_return: removed (a task may now be undone after it; \
             check that it and the steps before it can be undone)",
        ]
    );
}
