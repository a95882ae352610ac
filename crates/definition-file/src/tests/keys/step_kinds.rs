//! Callbacks, waits, child workflows, and settings that contradict each other.

use super::*;

#[test]
fn callbacks() {
    check(&[
        (
            "{ within: 3d, heartbeat: 1h, from: 'the office', answer: { type: object } }",
            "3d",
            "35:15: steps.ask.callback: must be a mapping, not a string",
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
            "35:25: steps.ask.callback.within: `long` is not a duration; write numbers with units, such as `90s`, `15m`, `2h` or `1d 12h`",
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
            "35:40: steps.ask.callback.heartbeat: must be a string, not a number; a duration needs a unit, such as `90s` or `15m`",
        ),
        (", heartbeat: 1h", "", ""),
        (
            "answer: { type: object }",
            "answer: { type: objekt }",
            "35:64: steps.ask.callback.answer: not a JSON Schema: /type: \"objekt\" is not one of the types array, boolean, integer, null, number, object, string",
        ),
        (
            "'the office'",
            "'${ steps.rest.output }'",
            "35:50: steps.ask.callback.from: `steps.rest.output`: step `rest` does not come before this one; add `rest` to `after`",
        ),
        (
            "body: '${ callback.token }'",
            "body: none",
            "35:5: steps.ask.callback: no callback could arrive: the request does not contain the token; put `${ callback.token }` or `${ callback.url }` into `request`",
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
            "40:11: steps.rest.wait: must be a string, not a number; a duration needs a unit, such as `90s` or `15m`",
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
            "40:11: steps.rest.wait: `item` is available only in a step with `for_each` or `repeat`, in its request, input and undo",
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
            "41:5: steps.rest.recovery: allowed only with `agent` or `workflow` or `wait.event` or `fail`, not with `wait`",
        ),
        (
            "wait: 12h",
            "wait: 12h\n    idempotent: false",
            "41:17: steps.rest.idempotent: allowed only with `agent`, not with `wait`",
        ),
        (
            "wait: 12h",
            "wait: 12h\n    read_only: true",
            "41:16: steps.rest.read_only: allowed only with `agent`, not with `wait`",
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
fn child_workflows() {
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
            "43:42: steps.send.workflow.version: must be an integer, not a string",
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
            "43:52: steps.send.workflow.input: `item` is available only in a step with `for_each` or `repeat`, in its request, input and undo",
        ),
        (
            "workflow: { name: delivery, version: 2, input: { parcels: '${ steps.pack.output }' } }",
            "workflow: delivery",
            "43:15: steps.send.workflow: must be a mapping, not a string",
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

/// The definition could run, but could not do what it describes.
#[test]
fn impossible_deadlines_and_forgotten_side_effects_are_refused() {
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

#[test]
fn waits_for_an_event() {
    check(&[
        (
            "source: bank",
            "source: ''",
            "53:30: steps.paid.wait.event.source: must have from 1 to 256 characters",
        ),
        ("detail_type: Paid, ", "", "53:13: steps.paid.wait.event: missing key `detail_type`"),
        ("within: 1d", "within: 31d", "53:118: steps.paid.wait.within: must be from 100ms to 30d"),
        (
            "within: 1d",
            "within: soon",
            "53:118: steps.paid.wait.within: `soon` is not a duration; write numbers with units, such as `90s`, `15m`, `2h` or `1d 12h`",
        ),
        (", within: 1d", "", "53:5: steps.paid.wait: missing key `within`"),
        (
            "'${ event.detail.id }', equals",
            "fixed, equals",
            "53:60: steps.paid.wait.event.key: does not use `event`; for example `${ event.detail.order_id }`",
        ),
        (
            "'${ event.detail.id }', equals",
            "'${ event.id }-${ task.id }', equals",
            "53:60: steps.paid.wait.event.key: `task`: the key of an event reads nothing but `event`",
        ),
        (
            "equals: '${ task.id }'",
            "equals: '${ event.id }'",
            "53:92: steps.paid.wait.event.equals: `event` is available only in a `trigger`, and in `wait.event.key`",
        ),
        ("equals: '${ task.id }'", "equals: '${ steps.pack.output.id }'", ""),
        (
            "equals: '${ task.id }'",
            "equals: '${ steps.look.output.id }'",
            "53:92: steps.paid.wait.event.equals: `steps.look.output`: step `look` does not come before this one; add `look` to `after`",
        ),
        (
            "equals: '${ task.id }'",
            "equals: '${ task.id }', where: x",
            "53:108: steps.paid.wait.event: unknown key `where`; there are `source`, `detail_type`, `key`, `equals` and `or`",
        ),
        (
            "equals: '${ task.id }'",
            "equals: '${ task.id }', or: [{ source: bank, detail_type: Refused, key: '${ event.id }' }]",
            "",
        ),
        (
            "equals: '${ task.id }'",
            "equals: '${ task.id }', or: [{ source: bank, detail_type: Refused, key: x }]",
            "53:156: steps.paid.wait.event.or.0.key: does not use `event`; for example `${ event.detail.order_id }`",
        ),
        (
            "equals: '${ task.id }'",
            "equals: '${ task.id }', or: [{ source: bank, detail_type: Paid, key: '${ event.detail.id }' }]",
            "53:113: steps.paid.wait.event.or.0: the step waits for an event with this source and detail-type already",
        ),
        (
            "    recovery: { then: undo }\n  job",
            "    recovery: { then: undo }\n  again:\n    after: [paid]\n    wait: { event: { source: bank, detail_type: Paid, key: '${ event.detail.id }', equals: '${ task.id }' }, within: 1d }\n  job",
            "57:13: steps.again.wait.event: step `paid` before it waits for the same event, so one event would complete both; use another `key` or `detail_type` for the second event",
        ),
        (
            "    recovery: { then: undo }\n  job",
            "    recovery: { then: undo, attempts: 2 }\n  job",
            "54:5: steps.paid.recovery: a wait for an event is never repeated: only `then` is allowed",
        ),
        (
            "    recovery: { then: undo }\n  job",
            "    undo: { request: { path: /x } }\n  job",
            "54:5: steps.paid.undo: allowed only with `agent` or `workflow`, not with `wait.event`",
        ),
        (
            "    recovery: { then: undo }\n  job",
            "    complete_within: 1h\n  job",
            "54:22: steps.paid.complete_within: allowed only with `agent` or `workflow`, not with `wait.event`",
        ),
        (
            "    wait: { event: { source: bank, detail_type: Paid, key: '${ event.detail.id }', equals: '${ task.id }'",
            "    for_each: { items: '${ input.items }' }\n    wait: { event: { source: bank, detail_type: Paid, key: '${ event.detail.id }', equals: '${ item.id }'",
            "",
        ),
        ("    recovery: { then: undo }\n  job", "  job", ""),
    ]);
}

#[test]
fn polls_and_failures() {
    let until = "until: { condition: '${ response.body.percent >= 100 }'";
    check(&[
        (
            until,
            "until: { condition: '${ input.x }'",
            "59:25: steps.job.until.condition: `input` is not available here: only `response` is",
        ),
        (
            until,
            "until: { condition: done",
            "59:25: steps.job.until.condition: must consist of exactly one expression",
        ),
        ("every: 30s", "every: 0s", "59:69: steps.job.until.every: must be from 100ms to 30d"),
        (
            "recovery: { give_up_after: 2h, then: continue }",
            "recovery: { give_up_after: 30s }",
            "60:32: steps.job.recovery.give_up_after: must be longer than `until.every`, for a second poll",
        ),
        (
            "agent: reports",
            "agent: [reports, archive]",
            "59:5: steps.job.until: asks one agent: the next one of a list would not know the job",
        ),
        (
            "agent: hotel",
            "agent: [hotel, spare]",
            "74:20: steps.book.undo.agent: not with a list of agents: effects at two of them would have one idempotency key at this one",
        ),
        (
            "recovery: { give_up_after: 2h, then: continue }",
            "complete_within: 31s",
            "55:3: steps.job.recovery: polls need an end: `give_up_after`; for example `give_up_after: 2h`",
        ),
        (
            "recovery: { give_up_after: 2h, then: continue }",
            "recovery: { give_up_after: 2h }\n    responses: { 201: completed }",
            "61:23: steps.job.responses.201: `until` gives it a meaning",
        ),
        (
            "fail: the job failed",
            "fail: 'x ${ input.y }'",
            "69:11: steps.stop.fail: must be a text without expressions, from 1 to 2000 characters: logs show it",
        ),
        (
            "fail: the job failed",
            "fail: late\n    recovery: { attempts: 2 }",
            "70:5: steps.stop.recovery: a step that only fails is never repeated: only `then` is allowed",
        ),
        (
            "fail: the job failed",
            "fail: late\n    wait: 1s",
            "67:3: steps.stop: a step cannot have `wait` and `fail` together; split it into several steps",
        ),
        (
            "no_undo_needed: a mail stays sent",
            "no_undo_needed: ''",
            "66:21: steps.tell.no_undo_needed: must have from 1 to 200 characters",
        ),
        (
            "undo: { agent: desk,",
            "no_undo_needed: x\n    undo: { agent: [a, b],",
            "74:21: steps.book.no_undo_needed: the step has an undo; remove one of them\n75:20: steps.book.undo.agent: must be a string, not a list",
        ),
    ]);
}
