//! The keys of a workflow.

use super::*;

#[test]
fn names_and_versions() {
    check(&[
        (
            "name: parcel",
            "name: Parcel",
            "1:7: name: `Parcel` is not a valid name: a lower-case letter, then lower-case letters, digits, `-` and `_`, at most 40 characters; did you mean `parcel`?",
        ),
        ("name: parcel", "name: 7", "1:7: name: must be a string, not a number"),
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
        ("version: 3", "version: one", "2:10: version: must be an integer, not a string"),
        ("version: 3", "version: 1.5", "2:10: version: must be an integer, not a fraction"),
        ("version: 3", "version: 1.0", "2:10: version: must be an integer, without `.0`"),
        ("version: 3", "version: -1", "2:10: version: must be at least 1"),
        ("version: 3", "version: 5000000000", "2:10: version: must be at most 4294967295"),
        ("version: 3\n", "", "1:1: missing key `version`"),
        (
            "description: All there is",
            "description: [a]",
            "3:14: description: must be a string, not a list",
        ),
    ]);
}

#[test]
fn lifecycle_events() {
    let written = "lifecycle_events: [submitted, step_failed, processed]";
    check(&[
        (
            written,
            "lifecycle_events: [submitted, step_completed, step_failed, processed, undone, error]",
            "",
        ),
        (written, "lifecycle_events: []", ""),
        (
            written,
            "lifecycle_events: true",
            "9:19: lifecycle_events: must be a list, not `true` or `false`; list the events, such as `[processed, undone, error]`",
        ),
        (
            written,
            "lifecycle_events: [submitted, step_complete]",
            "9:31: lifecycle_events.1: must be one of `submitted`, `step_completed`, `step_failed`, `processed`, `undone`, `error`; did you mean `step_completed`?",
        ),
        (
            written,
            "lifecycle_events: [undone, error, undone]",
            "9:19: lifecycle_events: `undone` is listed twice",
        ),
        (
            "trigger: { source: shop, detail_type: Order Placed",
            "trigger: { source: steward, detail_type: steward.step.failed",
            "5:1: trigger: each task would publish the event that submits another task, in an endless loop: remove `step_failed` from `lifecycle_events`",
        ),
    ]);
}

#[test]
fn input_schemas() {
    check(&[
        (
            "{ type: object, required: [amount] }",
            "7",
            "4:8: input: must be a mapping or `true` or `false`, not a number",
        ),
        (
            "{ type: object, required: [amount] }",
            "{ type: objekt }",
            "4:1: input: not a JSON Schema: /type: \"objekt\" is not one of the types array, boolean, integer, null, number, object, string",
        ),
        (
            "{ type: object, required: [amount] }",
            "{ $ref: 'https://example.com/x.json' }",
            "4:1: input: not a JSON Schema: the reference `https://example.com/x.json` is not one within the schema: write `#` or `#/$defs/NAME`",
        ),
        ("{ type: object, required: [amount] }", "true", ""),
    ]);
}

#[test]
fn triggers() {
    check(&[
        ("source: shop, ", "", "5:1: trigger: missing key `source`"),
        ("detail_type: Order Placed, ", "", "5:1: trigger: missing key `detail_type`"),
        ("source: shop", "source: ''", "5:20: trigger.source: must have from 1 to 256 characters"),
        ("source: shop", "source: 7", "5:20: trigger.source: must be a string, not a number"),
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
        ("'${ event.detail.id }'", "7", "5:62: trigger.task_id: must be a string, not a number"),
        (
            "tenant: '${ event.detail.shop }'",
            "tenant: '${ input.shop }'",
            "5:122: trigger.tenant: `input`: a trigger reads nothing but `event`",
        ),
        (
            "tenant: '${ event.detail.shop }'",
            "tenant: 7",
            "5:122: trigger.tenant: must be a string, not a number",
        ),
        (
            "'${ event.detail.id }'",
            "'${ evnet.id }'",
            "5:62: trigger.task_id: expression `evnet.id`: unknown name `evnet`; did you mean `event`?",
        ),
        (
            "'${ event.detail.id }'",
            "'${ event.detial.id }'",
            "5:62: trigger.task_id: `event` has no `detial`, only `version`, `id`, `detail-type`, `source`, `account`, `time`, `region`, `replay-name`, `resources`, `detail`; did you mean `detail`?",
        ),
        (
            "input: '${ event.detail }'",
            "input: { a: ['${ steps.reserve.output }', '${ task.id }'] }",
            "5:99: trigger.input.a.0: `steps`: a trigger reads nothing but `event`\n5:128: trigger.input.a.1: `task`: a trigger reads nothing but `event`",
        ),
        ("trigger: {", "trigger: 7 #{", "5:10: trigger: must be a mapping, not a number"),
        (", task_id: '${ event.detail.id }', input: '${ event.detail }'", "", ""),
    ]);
}

#[test]
fn deadlines_and_retention() {
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
            "6:18: complete_within: `2 fortnights` is not a duration; write numbers with units, such as `90s`, `15m`, `2h` or `1d 12h`",
        ),
        (
            "complete_within: 4d",
            "complete_within: 90",
            "6:18: complete_within: must be a string, not a number; a duration needs a unit, such as `90s` or `15m`",
        ),
        (
            "complete_within: 4d",
            "complete_within: -5s",
            "6:18: complete_within: `-5s` is not a duration; write numbers with units, such as `90s`, `15m`, `2h` or `1d 12h`",
        ),
        (
            "complete_within: 4d",
            "complete_within: ''",
            "6:18: complete_within: `` is not a duration; write numbers with units, such as `90s`, `15m`, `2h` or `1d 12h`",
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
            "8:12: retention: `forever` is not a duration; write numbers with units, such as `90s`, `15m`, `2h` or `1d 12h`",
        ),
        ("retention: 30d", "retention: null", ""),
    ]);
}

#[test]
fn masks() {
    let places = "[/card/number, '/items/*/secret']";
    let pointer = "must be a JSON pointer, such as `/card/number` or `/items/*/secret`";
    check(&[
        (places, "[/a~1b, /items/0]", ""),
        (places, "[]", ""),
        (places, "[/card, card.number]", &format!("77:15: mask.1: {pointer}")),
        (places, "['/']", &format!("77:8: mask.0: {pointer}")),
        (
            places,
            "[/a~b]",
            "77:8: mask.0: `~` is written `~0` in a JSON pointer, and `/` in a key `~1`",
        ),
        (places, "/card", "77:7: mask: must be a list, not a string; write it as `[a, b]`"),
        (places, "[7]", "77:8: mask.0: must be a string, not a number"),
    ]);
    let many = format!("[{}]", vec!["/a"; 101].join(", "));
    assert_eq!(errors_after(places, &many), "77:7: mask: 101 pointers; the limit is 100");
    let long = format!("[/{}]", "a".repeat(200));
    assert_eq!(errors_after(places, &long), "77:8: mask.0: must have at most 200 characters");
}

#[test]
fn outputs() {
    check(&[
        (
            "output: { sent: '${ steps.send.output }' }",
            "output: ['${ steps.sned.output }']",
            "76:10: output.0: `steps.sned.output`: there is no step `sned`; did you mean `send`?",
        ),
        (
            "output: { sent: '${ steps.send.output }' }",
            "output: '${ item }'",
            "76:9: output: `item` is available only in a step with `for_each` or `repeat`, in its request, input and undo",
        ),
        (
            "output: { sent: '${ steps.send.output }' }",
            "output: { a: '${ callback.token }', b: '${ event.id }' }",
            "76:14: output.a: `callback` is available only in a step with `callback`, in its request\n76:40: output.b: `event` is available only in a `trigger`, and in `wait.event.key`",
        ),
        ("output: { sent: '${ steps.send.output }' }", "output: 7", ""),
        ("output: { sent: '${ steps.send.output }' }", "output: '${ input.x }'", ""),
    ]);
}

#[test]
fn named_values() {
    let total = "total: '${ input.price * input.count }'";
    let when = "steps.job.failed && vars.dear";
    check(&[
        (
            "account: null",
            "account: [1]",
            "78:57: env.account: must be a text, a number, `true`, `false` or null",
        ),
        (
            "vars.total > 100",
            "vars.totl > 100",
            "79:56: vars.dear: expression `vars.totl > 100 && env.strict`: there is no `vars.totl`; did you mean `total`?",
        ),
        (
            total,
            "total: done",
            "79:16: vars.total: must consist of exactly one expression; for example `${ input.price * input.count }`",
        ),
        (
            total,
            "total: '${ vars.dear }'",
            "79:16: vars.total: expression `vars.dear`: there is no `vars.dear`; declare it in `vars`",
        ),
        (
            "/jobs/${ env.table }",
            "/jobs/${ env.tabel }",
            "58:35: steps.job.request.path: expression `env.tabel`: there is no `env.tabel`; did you mean `table`?",
        ),
        (
            when,
            "steps.tell.failed && vars.dear",
            "64:11: steps.tell.when: `steps.tell.failed`: there is none before the step has ended",
        ),
        (
            when,
            "steps.job.reason && vars.dear",
            "64:11: steps.tell.when: expression `steps.job.reason && vars.dear`: `steps` can only be used as `steps.<name>.output` and `steps.<name>.failed`; for example `steps.charge.output.id`",
        ),
    ]);
}

#[test]
fn labels() {
    let customer = "customer: '${ input.customer.id }'";
    check(&[
        (
            customer,
            "customer: ['${ input.customer.id }']",
            "80:21: labels.customer: must be a text, a number or a boolean; for example `${ input.customer.id }`",
        ),
        (
            customer,
            "customer: '${ steps.job.output.id }'",
            "80:21: labels.customer: `steps` is not available here: the labels are computed at submission",
        ),
        (
            customer,
            "customer: '${ item.id }'",
            "80:21: labels.customer: `item` is not available here: the labels are computed at submission",
        ),
        (
            customer,
            "customer: '${ task.owner }'",
            "80:21: labels.customer: `task` has no `owner`, only `id`, `workflow`, `submitted_at`, `complete_by`",
        ),
        (customer, "customer: 42", ""),
        (customer, "1: '1'", "80:11: labels: unknown key `1`"),
        (
            customer,
            "a: 1, b: 1, c: 1, d: 1, e: 1, f: 1, g: 1, h: 1",
            "80:1: labels: 11 labels; the limit is 10",
        ),
    ]);
}
