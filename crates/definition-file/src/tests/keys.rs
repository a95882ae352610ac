//! Every key of the language, used well and in each way badly.

use super::*;

/// A definition with every key in it, well used.
pub(super) const EVERYTHING: &str = "\
name: parcel
version: 3
description: All there is
input: { type: object, required: [amount] }
trigger: { source: shop, detail_type: Order Placed, task_id: '${ event.detail.id }', input: '${ event.detail }' }
complete_within: 4d
overdue: undo
retention: 30d
lifecycle_events: true
defaults:
  complete_within: 20s
  recovery: { attempts: 4, backoff: { first: 1s, rate: 1.5, max: 1m, jitter: false }, then: undo }
  undo: { complete_within: 1m, recovery: { attempts: 9 }, call_within: 20s, responses: { 404: completed } }
steps:
  reserve:
    description: One call
    agent: inventory
    when: ${ input.amount > 0 }
    idempotent: false
    point_of_no_return: true
    request: { method: PUT, path: '/reservations/${ task.id }', body: { items: '${ input.items }' } }
  pack:
    agent: packing
    after: [reserve]
    for_each: { items: '${ input.items }', at_once: 3 }
    recovery: { extended_wait: { wait: 15m, times: 2 } }
    request: { path: /parcels, body: '${ item }' }
    undo:
      complete_within: 30s
      recovery: { attempts: 2 }
      request: { path: '/unpack/${ steps.pack.output.id }', body: '${ item }' }
  ask:
    agent: desk
    after: [reserve]
    callback: { within: 3d, heartbeat: 1h }
    complete_within: 10s
    request: { path: /questions, body: '${ callback.token }' }
  rest:
    after: [pack, ask]
    wait: 12h
  send:
    after: [rest]
    workflow: { name: delivery, version: 2, input: { parcels: '${ steps.pack.output }' } }
output: { sent: '${ steps.send.output }' }
mask: [/card/number, '/items/*/secret']
";

/// What is said of [`EVERYTHING`] once `from` has become `to` in it.
fn of(from: &str, to: &str) -> String {
    assert!(EVERYTHING.contains(from), "{from}");
    told_of(&EVERYTHING.replacen(from, to, 1))
}

fn check(cases: &[(&str, &str, &str)]) {
    let wrong: Vec<_> = cases
        .iter()
        .map(|(from, to, expected)| (to, of(from, to), *expected))
        .filter(|(_, told, expected)| told != expected)
        .map(|(to, told, expected)| format!("{to}\n  told: {told}\n  not:  {expected}"))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_key_can_be_used() {
    assert_eq!(told_of(EVERYTHING), "");
    let schema = steward_core::definition::workflow::json_schema();
    let maps = schema["$defs"].as_object().unwrap().values().chain([&schema]);
    for keys in maps.filter_map(|map| map["properties"].as_object()) {
        for key in keys.keys() {
            assert!(EVERYTHING.contains(&format!("{key}:")), "{key}");
        }
    }
}

/// Each map of the language refuses a key that it does not know.
#[test]
fn no_map_takes_an_unknown_key() {
    for (map, place, at) in [
        ("trigger: { ", "5:12: trigger", ""),
        ("defaults:\n  ", "11:3: defaults", ""),
        ("  recovery: { ", "12:15: defaults.recovery", ""),
        ("backoff: { ", "12:39: defaults.recovery.backoff", ""),
        ("  undo: { ", "13:11: defaults.undo", ""),
        ("  reserve:\n    ", "16:5: steps.reserve", ""),
        ("request: { ", "21:16: steps.reserve.request", ""),
        ("for_each: { ", "25:17: steps.pack.for_each", ""),
        ("extended_wait: { ", "26:34: steps.pack.recovery.extended_wait", ""),
        ("    undo:\n      ", "29:7: steps.pack.undo", ""),
        ("callback: { ", "35:17: steps.ask.callback", ""),
        ("workflow: { ", "43:17: steps.send.workflow", ""),
    ] {
        let sep = if map.ends_with("{ ") {
            ", ".to_owned()
        } else {
            format!("\n{}", " ".repeat(map.rsplit('\n').next().unwrap().len()))
        };
        let told = of(map, &format!("{map}colour: red{sep}{at}"));
        assert!(told.starts_with(&format!("{place}: unknown key `colour`")), "{told}");
    }
    let told = told_of(&EVERYTHING.replacen("name:", "colour: red\nname:", 1));
    assert!(told.starts_with("1:1: unknown key `colour`; there are `name`, `version`, "), "{told}");
}

#[test]
fn what_a_workflow_is_called() {
    check(&[
        (
            "name: parcel",
            "name: Parcel",
            "1:7: name: `Parcel` is not a valid name: a lower-case letter, then lower-case letters, digits, `-` and `_`, at most 40 characters; did you mean `parcel`?",
        ),
        ("name: parcel", "name: 7", "1:7: name: must be a text, not a number"),
        (
            "name: parcel",
            "name: pxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
            "1:7: name: `pxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx` is not a valid name: a lower-case letter, then lower-case letters, digits, `-` and `_`, at most 40 characters",
        ),
        ("name: parcel\n", "", "1:1: missing key `name`"),
        (
            "name: parcel",
            "name: ''",
            "1:7: name: `` is not a valid name: a lower-case letter, then lower-case letters, digits, `-` and `_`, at most 40 characters",
        ),
        ("version: 3", "version: 0", "2:10: version: must be at least 1"),
        ("version: 3", "version: one", "2:10: version: must be a whole number, not a text"),
        ("version: 3", "version: 1.5", "2:10: version: must be a whole number, not a fraction"),
        ("version: 3", "version: 1.0", "2:10: version: must be a whole number, without `.0`"),
        ("version: 3", "version: -1", "2:10: version: must be at least 1"),
        ("version: 3", "version: 5000000000", "2:10: version: must be at most 4294967295"),
        ("version: 3\n", "", "1:1: missing key `version`"),
        (
            "description: All there is",
            "description: [a]",
            "3:14: description: must be a text, not a list",
        ),
        (
            "lifecycle_events: true",
            "lifecycle_events: 1",
            "9:19: lifecycle_events: must be `true` or `false`, not a number",
        ),
    ]);
}

#[test]
fn its_input() {
    check(&[
        (
            "{ type: object, required: [amount] }",
            "7",
            "4:8: input: must be keys with values or `true` or `false`, not a number",
        ),
        (
            "{ type: object, required: [amount] }",
            "{ type: objekt }",
            "4:1: input: not a JSON Schema: /type: \"objekt\" is not valid under any of the schemas listed in the 'anyOf' keyword",
        ),
        (
            "{ type: object, required: [amount] }",
            "{ $ref: 'https://example.com/x.json' }",
            "4:1: input: not a JSON Schema: it refers to an external schema",
        ),
        ("{ type: object, required: [amount] }", "true", ""),
    ]);
}

#[test]
fn its_trigger() {
    check(&[
        ("source: shop, ", "", "5:1: trigger: missing key `source`"),
        ("detail_type: Order Placed, ", "", "5:1: trigger: missing key `detail_type`"),
        ("source: shop", "source: ''", "5:20: trigger.source: must have from 1 to 256 characters"),
        ("source: shop", "source: 7", "5:20: trigger.source: must be a text, not a number"),
        (
            "source: shop",
            "source: xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
            "5:20: trigger.source: must have from 1 to 256 characters",
        ),
        (
            "detail_type: Order Placed",
            "detail_type: ''",
            "5:39: trigger.detail_type: must have from 1 to 256 characters",
        ),
        (
            "'${ event.detail.id }'",
            "'${ input.id }'",
            "5:62: trigger.task_id: `input`: a trigger reads nothing but `event`",
        ),
        ("'${ event.detail.id }'", "7", "5:62: trigger.task_id: must be a text, not a number"),
        (
            "'${ event.detail.id }'",
            "'${ evnet.id }'",
            "5:62: trigger.task_id: expression `evnet.id`: unknown name `evnet`; did you mean `event`?",
        ),
        (
            "input: '${ event.detail }'",
            "input: { a: ['${ steps.reserve.output }', '${ task.id }'] }",
            "5:99: trigger.input.a.0: `steps`: a trigger reads nothing but `event`\n5:128: trigger.input.a.1: `task`: a trigger reads nothing but `event`",
        ),
        ("trigger: {", "trigger: 7 #{", "5:10: trigger: must be keys with values, not a number"),
        (", task_id: '${ event.detail.id }', input: '${ event.detail }'", "", ""),
    ]);
}

#[test]
fn its_times() {
    check(&[
        (
            "complete_within: 4d",
            "complete_within: 400d",
            "6:18: complete_within: must be from 100ms to 366d",
        ),
        (
            "complete_within: 4d",
            "complete_within: 1ms",
            "6:18: complete_within: must be from 100ms to 366d",
        ),
        (
            "complete_within: 4d",
            "complete_within: 2 fortnights",
            "6:18: complete_within: `2 fortnights` is not a duration; write a number and its unit, as `90s`, `15m`, `2h`, `1d 12h`",
        ),
        (
            "complete_within: 4d",
            "complete_within: 90",
            "6:18: complete_within: must be a text, not a number; a duration has a unit, as `90s` or `15m`",
        ),
        (
            "complete_within: 4d",
            "complete_within: -5s",
            "6:18: complete_within: `-5s` is not a duration; write a number and its unit, as `90s`, `15m`, `2h`, `1d 12h`",
        ),
        (
            "complete_within: 4d",
            "complete_within: ''",
            "6:18: complete_within: `` is not a duration; write a number and its unit, as `90s`, `15m`, `2h`, `1d 12h`",
        ),
        ("complete_within: 4d", "complete_within: 10d 12h 30m", ""),
        ("complete_within: 4d", "complete_within: 100.5h", ""),
        ("overdue: undo", "overdue: retry", "7:10: overdue: must be one of `alert`, `undo`"),
        (
            "overdue: undo",
            "overdue: Undo",
            "7:10: overdue: must be one of `alert`, `undo`; did you mean `undo`?",
        ),
        ("overdue: undo", "overdue: 7", "7:10: overdue: must be one of `alert`, `undo`"),
        ("overdue: undo", "overdue: alert", ""),
        ("retention: 30d", "retention: 1m", "8:12: retention: must be from 1h to 3660d"),
        ("retention: 30d", "retention: 4000d", "8:12: retention: must be from 1h to 3660d"),
        (
            "retention: 30d",
            "retention: forever",
            "8:12: retention: `forever` is not a duration; write a number and its unit, as `90s`, `15m`, `2h`, `1d 12h`",
        ),
        ("retention: 30d", "retention: null", ""),
    ]);
}

#[test]
fn what_is_masked() {
    let places = "[/card/number, '/items/*/secret']";
    let pointer = "must be a JSON pointer, such as `/card/number` or `/items/*/secret`";
    check(&[
        (places, "[/a~1b, /items/0]", ""),
        (places, "[]", ""),
        (places, "[/card, card.number]", &format!("45:15: mask.1: {pointer}")),
        (places, "['/']", &format!("45:8: mask.0: {pointer}")),
        (
            places,
            "[/a~b]",
            "45:8: mask.0: `~` is written `~0` in a JSON pointer, and `/` in a key `~1`",
        ),
        (places, "/card", "45:7: mask: must be a list, not a text; write it as `[a, b]`"),
        (places, "[7]", "45:8: mask.0: must be a text, not a number"),
    ]);
    let many = format!("[{}]", vec!["/a"; 101].join(", "));
    assert_eq!(of(places, &many), "45:7: mask: 101 pointers; the limit is 100");
    let long = format!("[/{}]", "a".repeat(200));
    assert_eq!(of(places, &long), "45:8: mask.0: must have at most 200 characters");
}

#[test]
fn its_defaults() {
    check(&[
        (
            "  undo: { complete_within: 1m, recovery: { attempts: 9 }, call_within: 20s, responses: { 404: completed } }",
            "  undo: ~",
            "",
        ),
        (
            "  complete_within: 20s",
            "  complete_within: 31d",
            "11:20: defaults.complete_within: must be from 100ms to 30d",
        ),
        (
            "  complete_within: 20s",
            "  complete_within: soon",
            "11:20: defaults.complete_within: `soon` is not a duration; write a number and its unit, as `90s`, `15m`, `2h`, `1d 12h`",
        ),
        (
            "undo: { complete_within: 1m",
            "undo: { complete_within: 31d",
            "13:28: defaults.undo.complete_within: must be from 100ms to 30d",
        ),
        (
            "undo: { complete_within: 1m, recovery: { attempts: 9 }",
            "undo: { complete_within: 1m, recovery: { attempts: 0 }",
            "13:54: defaults.undo.recovery.attempts: must be from 1 to 100",
        ),
        (
            "recovery: { attempts: 9 }",
            "recovery: { then: undo }",
            "13:50: defaults.undo.recovery.then: an undo that fails cannot be undone; it ends in an alert",
        ),
        (
            "undo: { complete_within: 1m, recovery: { attempts: 9 }, call_within: 20s, responses: { 404: completed } }",
            "undo: 5",
            "13:9: defaults.undo: must be keys with values, not a number",
        ),
        ("attempts: 4", "attempts: null", ""),
        (
            "attempts: 4, ",
            "complete_within: 3s, ",
            "12:15: defaults.recovery: unknown key `complete_within`; there are `attempts`, `backoff`, `extended_wait` and `then`",
        ),
    ]);
}

#[test]
fn recovery_policies() {
    check(&[
        ("attempts: 4", "attempts: 0", "12:25: defaults.recovery.attempts: must be from 1 to 100"),
        (
            "attempts: 4",
            "attempts: 101",
            "12:25: defaults.recovery.attempts: must be from 1 to 100",
        ),
        (
            "attempts: 4",
            "attempts: many",
            "12:25: defaults.recovery.attempts: must be a whole number, not a text",
        ),
        (
            "attempts: 4",
            "attempts: 2.5",
            "12:25: defaults.recovery.attempts: must be a whole number, not a fraction",
        ),
        (
            "attempts: 4",
            "atempts: 2",
            "12:15: defaults.recovery: unknown key `atempts`; did you mean `attempts`?",
        ),
        (
            "first: 1s",
            "first: 2m",
            "12:46: defaults.recovery.backoff.first: must not be longer than `max`",
        ),
        (
            "first: 1s",
            "first: 1",
            "12:46: defaults.recovery.backoff.first: must be a text, not a number; a duration has a unit, as `90s` or `15m`",
        ),
        ("rate: 1.5", "rate: 0.5", "12:56: defaults.recovery.backoff.rate: must be from 1 to 10"),
        ("rate: 1.5", "rate: 11", "12:56: defaults.recovery.backoff.rate: must be from 1 to 10"),
        (
            "rate: 1.5",
            "rate: fast",
            "12:56: defaults.recovery.backoff.rate: must be a number, not a text",
        ),
        ("max: 1m", "max: 31d", "12:66: defaults.recovery.backoff.max: must be at most 30d"),
        (
            "max: 1m",
            "max: high",
            "12:66: defaults.recovery.backoff.max: `high` is not a duration; write a number and its unit, as `90s`, `15m`, `2h`, `1d 12h`",
        ),
        (
            "jitter: false",
            "jitter: maybe",
            "12:78: defaults.recovery.backoff.jitter: must be `true` or `false`, not a text",
        ),
        (
            "backoff: { first: 1s, rate: 1.5, max: 1m, jitter: false }",
            "backoff: 1s",
            "12:37: defaults.recovery.backoff: must be keys with values, not a text",
        ),
        (
            "then: undo",
            "then: retry",
            "12:93: defaults.recovery.then: must be one of `alert`, `undo`",
        ),
        (
            "then: undo",
            "then: allert",
            "12:93: defaults.recovery.then: must be one of `alert`, `undo`; did you mean `alert`?",
        ),
        (
            "then: undo }",
            "then: [undo] }",
            "12:93: defaults.recovery.then: must be one of `alert`, `undo`",
        ),
        (
            "wait: 15m, times: 2",
            "times: 2",
            "26:17: steps.pack.recovery.extended_wait: missing key `wait`",
        ),
        (
            "wait: 15m",
            "wait: 0s",
            "26:40: steps.pack.recovery.extended_wait.wait: must be from 1ms to 30d",
        ),
        (
            "wait: 15m",
            "wait: 31d",
            "26:40: steps.pack.recovery.extended_wait.wait: must be from 1ms to 30d",
        ),
        (
            "wait: 15m",
            "wait: long",
            "26:40: steps.pack.recovery.extended_wait.wait: `long` is not a duration; write a number and its unit, as `90s`, `15m`, `2h`, `1d 12h`",
        ),
        (
            "times: 2",
            "times: 0",
            "26:52: steps.pack.recovery.extended_wait.times: must be from 1 to 1000",
        ),
        (
            "times: 2",
            "times: 1001",
            "26:52: steps.pack.recovery.extended_wait.times: must be from 1 to 1000",
        ),
        (
            "{ wait: 15m, times: 2 }",
            "15m",
            "26:32: steps.pack.recovery.extended_wait: must be keys with values, not a text",
        ),
        ("{ wait: 15m, times: 2 }", "null", ""),
        (
            "recovery: { extended_wait: { wait: 15m, times: 2 } }",
            "recovery: 3",
            "26:15: steps.pack.recovery: must be keys with values, not a number",
        ),
        (
            "recovery: { attempts: 2 }",
            "recovery: { then: undo }",
            "30:25: steps.pack.undo.recovery.then: an undo that fails cannot be undone; it ends in an alert",
        ),
        (
            "recovery: { attempts: 2 }",
            "recovery: { attempts: 0 }",
            "30:29: steps.pack.undo.recovery.attempts: must be from 1 to 100",
        ),
        (
            "idempotent: false",
            "idempotent: false\n    recovery: { extended_wait: { wait: 1m } }",
            "20:5: steps.reserve.recovery: a step that is not idempotent is never retried automatically, so it has no `extended_wait`",
        ),
    ]);
}

#[test]
fn steps() {
    check(&[
        (
            "  reserve:\n    description: One call",
            "  Reserve-Now:\n    description: One call",
            "15:3: steps: `Reserve-Now` is not a valid name: a lower-case letter, then lower-case letters, digits and `_`, at most 40 characters; did you mean `reserve_now`?\n24:13: steps.pack.after.0: there is no step `reserve`; there are `pack`, `ask`, `rest` and `send`\n34:13: steps.ask.after.0: there is no step `reserve`; there are `pack`, `ask`, `rest` and `send`",
        ),
        (
            "  rest:",
            "  rrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrr:",
            "38:3: steps: `rrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrr` is not a valid name: a lower-case letter, then lower-case letters, digits and `_`, at most 40 characters\n42:13: steps.send.after.0: there is no step `rest`; there are `reserve`, `pack`, `ask` and `send`",
        ),
        (
            "description: One call",
            "description: { a: 1 }",
            "16:5: steps.reserve.description: must be a text, not keys with values",
        ),
        (
            "    wait: 12h",
            "    description: nothing",
            "38:3: steps.rest: the step has no work; it needs an `agent`, a `wait` or a `workflow`",
        ),
        (
            "    wait: 12h",
            "    wait: 12h\n    agent: x",
            "38:3: steps.rest: a step cannot have `agent` and `wait` together; split it into several steps",
        ),
        (
            "    wait: 12h",
            "    wait: 12h\n    workflow: { name: x }",
            "38:3: steps.rest: a step cannot have `wait` and `workflow` together; split it into several steps",
        ),
        (
            "after: [pack, ask]",
            "after: [pakc, ask]",
            "39:13: steps.rest.after.0: there is no step `pakc`; did you mean `pack`?",
        ),
        (
            "after: [pack, ask]",
            "after: [pack, pack]",
            "39:19: steps.rest.after.1: `pack` is listed twice",
        ),
        (
            "after: [pack, ask]",
            "after: pack",
            "39:12: steps.rest.after: must be a list, not a text; write it as `[a, b]`",
        ),
        (
            "after: [pack, ask]",
            "after: [pack, 7]",
            "39:19: steps.rest.after.1: must be a text, not a number",
        ),
        (
            "after: [pack, ask]",
            "after: [send]",
            "14:1: steps: these steps wait for each other: rest → send → rest\n43:63: steps.send.workflow.input.parcels: `steps.pack.output`: step `pack` does not come before this one; add `pack` to `after`",
        ),
        (
            "after: [pack, ask]",
            "after: [rest]",
            "14:1: steps: these steps wait for each other: rest → rest\n43:63: steps.send.workflow.input.parcels: `steps.pack.output`: step `pack` does not come before this one; add `pack` to `after`",
        ),
        (
            "after: [pack, ask]",
            "after: []",
            "43:63: steps.send.workflow.input.parcels: `steps.pack.output`: step `pack` does not come before this one; add `pack` to `after`",
        ),
        (
            "when: ${ input.amount > 0 }",
            "when: true",
            "18:11: steps.reserve.when: must be a text, not `true` or `false`",
        ),
        (
            "when: ${ input.amount > 0 }",
            "when: always",
            "18:11: steps.reserve.when: must consist of exactly one expression; for example `${ input.amount > 0 }`",
        ),
        (
            "when: ${ input.amount > 0 }",
            "when: ${ item.x }",
            "18:11: steps.reserve.when: `item` is available only in a step with `for_each`, in its request, input and undo",
        ),
        (
            "when: ${ input.amount > 0 }",
            "when: ${ input.amount > }",
            "18:11: steps.reserve.when: expression `input.amount >`: Syntax error: mismatched input '<EOF>'",
        ),
        (
            "when: ${ input.amount > 0 }",
            "when: ${ steps.reserve.output }",
            "18:11: steps.reserve.when: `steps.reserve.output`: a step has no output before it completes",
        ),
        (
            "when: ${ input.amount > 0 }",
            "when: ${ callback.token }",
            "18:11: steps.reserve.when: `callback` is available only in a step with `callback`, in its request",
        ),
        (
            "idempotent: false",
            "idempotent: no way",
            "19:17: steps.reserve.idempotent: must be `true` or `false`, not a text",
        ),
        (
            "point_of_no_return: true",
            "point_of_no_return: 1",
            "20:25: steps.reserve.point_of_no_return: must be `true` or `false`, not a number",
        ),
    ]);
}

#[test]
fn calls() {
    check(&[
        (
            "agent: inventory",
            "agent: Inventory",
            "17:12: steps.reserve.agent: `Inventory` is not a valid name: a lower-case letter, then lower-case letters, digits, `-` and `_`, at most 40 characters; did you mean `inventory`?",
        ),
        (
            "agent: inventory",
            "agent: [a]",
            "17:12: steps.reserve.agent: must be a text, not a list",
        ),
        (
            "    agent: inventory\n",
            "",
            "15:3: steps.reserve: the step has no work; it needs an `agent`, a `wait` or a `workflow`",
        ),
        (
            "    request: { path: /questions, body: '${ callback.token }' }\n",
            "",
            "32:3: steps.ask: an `agent` needs a `request`",
        ),
        (
            "request: { method: PUT, path: '/reservations/${ task.id }', body: { items: '${ input.items }' } }",
            "request: /reservations",
            "21:14: steps.reserve.request: must be keys with values, not a text",
        ),
        (
            "method: PUT",
            "method: put",
            "21:24: steps.reserve.request.method: must be one of `GET`, `POST`, `PUT`, `PATCH`, `DELETE`; did you mean `PUT`?",
        ),
        (
            "method: PUT",
            "method: HEAD",
            "21:24: steps.reserve.request.method: must be one of `GET`, `POST`, `PUT`, `PATCH`, `DELETE`",
        ),
        (
            "method: PUT",
            "method: 7",
            "21:24: steps.reserve.request.method: must be one of `GET`, `POST`, `PUT`, `PATCH`, `DELETE`",
        ),
        (
            "path: '/reservations/${ task.id }', ",
            "",
            "21:5: steps.reserve.request: missing key `path`",
        ),
        (
            "path: '/reservations/${ task.id }'",
            "path: 7",
            "21:35: steps.reserve.request.path: must be a text, not a number",
        ),
        (
            "path: '/reservations/${ task.id }'",
            "path: reservations",
            "21:35: steps.reserve.request.path: must start with `/`",
        ),
        (
            "path: '/reservations/${ task.id }'",
            "path: /a/../b",
            "21:35: steps.reserve.request.path: must not have a `.` or `..` segment",
        ),
        ("path: '/reservations/${ task.id }'", "path: '${ input.path }'", ""),
        (
            "path: '/reservations/${ task.id }'",
            "path: '/reservations/${ taks.id }'",
            "21:35: steps.reserve.request.path: expression `taks.id`: unknown name `taks`; did you mean `task`?",
        ),
        (
            "path: '/reservations/${ task.id }'",
            "path: '/reservations/${ task.id'",
            "21:35: steps.reserve.request.path: `/reservations/${ task.id`: `${` is never closed; close it with `}`, or write `$${` for a plain `${`",
        ),
        (
            "body: { items: '${ input.items }' }",
            "body: { items: ['${ item }'] }",
            "21:81: steps.reserve.request.body.items.0: `item` is available only in a step with `for_each`, in its request, input and undo",
        ),
        (
            "body: { items: '${ input.items }' }",
            "body: '${ steps.pack.output }'",
            "21:71: steps.reserve.request.body: `steps.pack.output`: step `pack` does not come before this one; add `pack` to `after`",
        ),
        (
            "body: { items: '${ input.items }' }",
            "body: { a: '${ event.id }', b: '${ callback.token }' }",
            "21:76: steps.reserve.request.body.a: `event` is available only in a `trigger`\n21:96: steps.reserve.request.body.b: `callback` is available only in a step with `callback`, in its request",
        ),
        ("body: { items: '${ input.items }' }", "body: 7", ""),
        (
            "complete_within: 10s",
            "complete_within: 31d",
            "36:22: steps.ask.complete_within: must be from 100ms to 30d",
        ),
        (
            "complete_within: 10s",
            "complete_within: 99ms",
            "36:22: steps.ask.complete_within: must be from 100ms to 30d",
        ),
    ]);
}

#[test]
fn for_each() {
    check(&[
        (
            "{ items: '${ input.items }', at_once: 3 }",
            "'${ input.items }'",
            "25:15: steps.pack.for_each: must be keys with values, not a text",
        ),
        (
            "{ items: '${ input.items }', at_once: 3 }",
            "{ at_once: 3 }",
            "25:5: steps.pack.for_each: missing key `items`",
        ),
        (
            "items: '${ input.items }', at",
            "items: '${ input.items } and more', at",
            "25:24: steps.pack.for_each.items: must consist of exactly one expression; for example `${ input.items }`",
        ),
        (
            "items: '${ input.items }', at",
            "items: [1, 2], at",
            "25:24: steps.pack.for_each.items: must be a text, not a list",
        ),
        (
            "items: '${ input.items }', at",
            "items: '${ item }', at",
            "25:24: steps.pack.for_each.items: `item` is available only in a step with `for_each`, in its request, input and undo",
        ),
        ("at_once: 3", "at_once: 0", "25:53: steps.pack.for_each.at_once: must be from 1 to 100"),
        ("at_once: 3", "at_once: 101", "25:53: steps.pack.for_each.at_once: must be from 1 to 100"),
        (
            "at_once: 3",
            "at_once: all",
            "25:53: steps.pack.for_each.at_once: must be a whole number, not a text",
        ),
        (", at_once: 3", "", ""),
        (
            "    wait: 12h",
            "    wait: 12h\n    for_each: { items: '${ input.items }' }",
            "41:5: steps.rest.for_each: allowed only with `agent` or `workflow`, not with `wait`",
        ),
        (
            "    workflow: {",
            "    for_each: { items: '${ steps.pack.output }' }\n    workflow: {",
            "",
        ),
    ]);
}

#[test]
fn callbacks() {
    check(&[
        (
            "{ within: 3d, heartbeat: 1h }",
            "3d",
            "35:15: steps.ask.callback: must be keys with values, not a text",
        ),
        ("within: 3d, ", "", "35:5: steps.ask.callback: missing key `within`"),
        (
            "within: 3d",
            "within: 31d",
            "35:25: steps.ask.callback.within: must be from 100ms to 30d",
        ),
        (
            "within: 3d",
            "within: long",
            "35:25: steps.ask.callback.within: `long` is not a duration; write a number and its unit, as `90s`, `15m`, `2h`, `1d 12h`",
        ),
        (
            "heartbeat: 1h",
            "heartbeat: 4d",
            "35:40: steps.ask.callback.heartbeat: must be from 100ms to 3d",
        ),
        (
            "heartbeat: 1h",
            "heartbeat: 1ms",
            "35:40: steps.ask.callback.heartbeat: must be from 100ms to 3d",
        ),
        (
            "heartbeat: 1h",
            "heartbeat: 7",
            "35:40: steps.ask.callback.heartbeat: must be a text, not a number; a duration has a unit, as `90s` or `15m`",
        ),
        (", heartbeat: 1h", "", ""),
        (
            "body: '${ callback.token }'",
            "body: none",
            "35:5: steps.ask.callback: no callback could arrive: the request does not contain the token; put `${ callback.token }` into `request`",
        ),
        (
            "    wait: 12h",
            "    wait: 12h\n    callback: { within: 1h }",
            "41:5: steps.rest.callback: allowed only with `agent`, not with `wait`",
        ),
        (
            "    workflow: {",
            "    callback: { within: 1h }\n    workflow: {",
            "43:5: steps.send.callback: allowed only with `agent`, not with `workflow`",
        ),
    ]);
}

#[test]
fn waits() {
    check(&[
        (
            "wait: 12h",
            "wait: 7",
            "40:11: steps.rest.wait: must be a text, not a number; a duration has a unit, as `90s` or `15m`",
        ),
        (
            "wait: 12h",
            "wait: tomorrow",
            "40:11: steps.rest.wait: must be a duration such as `15m`, or a time such as `2026-12-24T18:00:00Z`",
        ),
        ("wait: 12h", "wait: 31d", "40:11: steps.rest.wait: a wait of more than 30d"),
        ("wait: 12h", "wait: '2026-12-24T18:00:00Z'", ""),
        (
            "wait: 12h",
            "wait: '2026-12-24'",
            "40:11: steps.rest.wait: must be a duration such as `15m`, or a time such as `2026-12-24T18:00:00Z`",
        ),
        ("wait: 12h", "wait: ${ input.until }", ""),
        (
            "wait: 12h",
            "wait: ${ item }",
            "40:11: steps.rest.wait: `item` is available only in a step with `for_each`, in its request, input and undo",
        ),
        ("wait: 12h", "wait: 0s", ""),
        (
            "wait: 12h",
            "wait: 12h\n    complete_within: 5s",
            "41:22: steps.rest.complete_within: allowed only with `agent` or `workflow`, not with `wait`",
        ),
        (
            "wait: 12h",
            "wait: 12h\n    recovery: { attempts: 2 }",
            "41:5: steps.rest.recovery: allowed only with `agent` or `workflow`, not with `wait`",
        ),
        (
            "wait: 12h",
            "wait: 12h\n    idempotent: false",
            "41:17: steps.rest.idempotent: allowed only with `agent`, not with `wait`",
        ),
        (
            "wait: 12h",
            "wait: 12h\n    point_of_no_return: true",
            "41:25: steps.rest.point_of_no_return: allowed only with `agent` or `workflow`, not with `wait`",
        ),
        (
            "wait: 12h",
            "wait: 12h\n    undo: { request: { path: / } }",
            "41:5: steps.rest.undo: allowed only with `agent` or `workflow`, not with `wait`",
        ),
        (
            "wait: 12h",
            "wait: 12h\n    request: { path: / }",
            "41:5: steps.rest.request: allowed only with `agent`, not with `wait`",
        ),
    ]);
}

#[test]
fn workflows_in_workflows() {
    check(&[
        (
            "workflow: { name: delivery,",
            "workflow: { name: De Livery,",
            "43:23: steps.send.workflow.name: `De Livery` is not a valid name: a lower-case letter, then lower-case letters, digits, `-` and `_`, at most 40 characters; did you mean `de_livery`?",
        ),
        (
            "workflow: { name: delivery,",
            "workflow: {",
            "43:5: steps.send.workflow: missing key `name`",
        ),
        (
            "version: 2, input",
            "version: 0, input",
            "43:42: steps.send.workflow.version: must be at least 1",
        ),
        (
            "version: 2, input",
            "version: two, input",
            "43:42: steps.send.workflow.version: must be a whole number, not a text",
        ),
        ("version: 2, input", "input", ""),
        (
            "input: { parcels: '${ steps.pack.output }' }",
            "input: { parcels: '${ steps.pakc.output }' }",
            "43:63: steps.send.workflow.input.parcels: `steps.pakc.output`: there is no step `pakc`; did you mean `pack`?",
        ),
        (
            "input: { parcels: '${ steps.pack.output }' }",
            "input: '${ item }'",
            "43:52: steps.send.workflow.input: `item` is available only in a step with `for_each`, in its request, input and undo",
        ),
        (
            "workflow: { name: delivery, version: 2, input: { parcels: '${ steps.pack.output }' } }",
            "workflow: delivery",
            "43:15: steps.send.workflow: must be keys with values, not a text",
        ),
        (
            "    workflow: {",
            "    request: { path: / }\n    workflow: {",
            "43:5: steps.send.request: allowed only with `agent`, not with `workflow`",
        ),
        (
            "    workflow: {",
            "    idempotent: false\n    workflow: {",
            "43:17: steps.send.idempotent: allowed only with `agent`, not with `workflow`",
        ),
        ("    workflow: {", "    undo: { complete_within: 1h }\n    workflow: {", ""),
        (
            "    workflow: {",
            "    undo: { request: { path: / } }\n    workflow: {",
            "43:13: steps.send.undo.request: allowed only with `agent`, not with `workflow`",
        ),
        (
            "    workflow: {",
            "    complete_within: 31d\n    workflow: {",
            "43:22: steps.send.complete_within: must be from 100ms to 30d",
        ),
    ]);
}

#[test]
fn undos() {
    check(&[
        (
            "complete_within: 30s",
            "complete_within: 31d",
            "29:24: steps.pack.undo.complete_within: must be from 100ms to 30d",
        ),
        (
            "complete_within: 30s",
            "complete_within: slow",
            "29:24: steps.pack.undo.complete_within: `slow` is not a duration; write a number and its unit, as `90s`, `15m`, `2h`, `1d 12h`",
        ),
        (
            "      request: { path: '/unpack/${ steps.pack.output.id }', body: '${ item }' }\n",
            "",
            "28:5: steps.pack.undo: the undo of a step with an `agent` needs a `request`",
        ),
        (
            "path: '/unpack/${ steps.pack.output.id }', ",
            "",
            "31:7: steps.pack.undo.request: missing key `path`",
        ),
        (
            "/unpack/${ steps.pack.output.id }",
            "/unpack/${ steps.ask.output.id }",
            "31:24: steps.pack.undo.request.path: `steps.ask.output`: step `ask` does not come before this one; add `ask` to `after`",
        ),
        (
            "/unpack/${ steps.pack.output.id }",
            "/unpack/${ callback.token }",
            "31:24: steps.pack.undo.request.path: `callback` is available only in a step with `callback`, in its request",
        ),
        (
            "    undo:\n      complete_within: 30s\n      recovery: { attempts: 2 }\n      request: { path: '/unpack/${ steps.pack.output.id }', body: '${ item }' }\n",
            "    undo: true\n",
            "28:11: steps.pack.undo: must be keys with values, not `true` or `false`",
        ),
    ]);
}

#[test]
fn outputs() {
    check(&[
        (
            "output: { sent: '${ steps.send.output }' }",
            "output: ['${ steps.sned.output }']",
            "44:10: output.0: `steps.sned.output`: there is no step `sned`; did you mean `send`?",
        ),
        (
            "output: { sent: '${ steps.send.output }' }",
            "output: '${ item }'",
            "44:9: output: `item` is available only in a step with `for_each`, in its request, input and undo",
        ),
        (
            "output: { sent: '${ steps.send.output }' }",
            "output: { a: '${ callback.token }', b: '${ event.id }' }",
            "44:14: output.a: `callback` is available only in a step with `callback`, in its request\n44:40: output.b: `event` is available only in a `trigger`",
        ),
        ("output: { sent: '${ steps.send.output }' }", "output: 7", ""),
        ("output: { sent: '${ steps.send.output }' }", "output: '${ input.x }'", ""),
    ]);
}

/// What can run, and would never do what it says.
#[test]
fn deadlines_that_cannot_be_kept_and_effects_that_would_be_forgotten_are_refused() {
    check(&[
        (
            "within: 3d",
            "within: 5d",
            "35:25: steps.ask.callback.within: longer than the task's `complete_within` of 4days; give the \
             task more time, or the callback less",
        ),
        (
            "wait: 12h",
            "wait: 20d",
            "40:11: steps.rest.wait: longer than the task's `complete_within` of 4days; give the task more time",
        ),
        (
            "    point_of_no_return: true\n",
            "",
            "19:17: steps.reserve.idempotent: a call with an unknown outcome is not repeated, and the undo \
             skips the step; give it an `undo` that does no harm if the step has not run, or set \
             `then: alert`",
        ),
    ]);
}
