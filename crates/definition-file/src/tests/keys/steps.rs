//! The keys of steps, of requests and of `for_each`. Each case is a text of the definition, its replacement, and the
//! errors that follow.

use super::*;

#[test]
fn step_names_and_order() {
    let long_name = "r".repeat(41);
    let long_step = format!("  {long_name}:");
    let long_name_errors = format!(
        "38:3: steps: `{long_name}` is not a valid name: a lower-case letter, then lower-case letters, digits and `_`, at most 40 characters\n42:13: steps.send.after.0: there is no step `rest`; there are `reserve`, `pack`, `ask`, `send`, `look`, `paid`, `job`, `tell`, `stop` and `book`"
    );
    check(&[
        (
            "  reserve:\n    description: One call",
            "  Reserve-Now:\n    description: One call",
            "15:3: steps: `Reserve-Now` is not a valid name: a lower-case letter, then lower-case letters, digits and `_`, at most 40 characters; did you mean `reserve_now`?\n24:13: steps.pack.after.0: there is no step `reserve`; there are `pack`, `ask`, `rest`, `send`, `look`, `paid`, `job`, `tell`, `stop` and `book`\n34:13: steps.ask.after.0: there is no step `reserve`; there are `pack`, `ask`, `rest`, `send`, `look`, `paid`, `job`, `tell`, `stop` and `book`",
        ),
        ("  rest:", &long_step, &long_name_errors),
        (
            "description: One call",
            "description: { a: 1 }",
            "16:5: steps.reserve.description: must be a string, not a mapping",
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
            "39:12: steps.rest.after: must be a list, not a string; write it as `[a, b]`",
        ),
        (
            "after: [pack, ask]",
            "after: [pack, 7]",
            "39:19: steps.rest.after.1: must be a string, not a number",
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
    ]);
}

#[test]
fn step_kinds() {
    check(&[
        (
            "    wait: 12h",
            "    description: nothing",
            "38:3: steps.rest: the step has no work; it needs an `agent`, a `wait`, a `workflow` or a `fail`",
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
    ]);
}

#[test]
fn when() {
    check(&[
        (
            "when: ${ input.amount > 0 }",
            "when: true",
            "18:11: steps.reserve.when: must be a string, not `true` or `false`",
        ),
        (
            "when: ${ input.amount > 0 }",
            "when: always",
            "18:11: steps.reserve.when: must consist of exactly one expression; for example `${ input.amount > 0 }`",
        ),
        (
            "when: ${ input.amount > 0 }",
            "when: ${ item.x }",
            "18:11: steps.reserve.when: `item` is available only in a step with `for_each` or `repeat`, in its request, input and undo",
        ),
        (
            "when: ${ input.amount > 0 }",
            "when: ${ input.amount > }",
            "18:11: steps.reserve.when: expression `input.amount >`: Syntax error: mismatched input '<EOF>'",
        ),
        (
            "when: ${ input.amount > 0 }",
            "when: ${ steps.reserve.output }",
            "18:11: steps.reserve.when: `steps.reserve.output`: there is none before the step has ended",
        ),
        (
            "when: ${ input.amount > 0 }",
            "when: ${ callback.token }",
            "18:11: steps.reserve.when: `callback` is available only in a step with `callback`, in its request",
        ),
    ]);
}

#[test]
fn flags() {
    check(&[
        (
            "idempotent: false",
            "idempotent: no way",
            "19:17: steps.reserve.idempotent: must be `true` or `false`, not a string",
        ),
        ("idempotent: false", "idempotent: false\n    read_only: true", ""),
        ("read_only: true", "read_only: false", ""),
        (
            "idempotent: false",
            "read_only: maybe",
            "19:16: steps.reserve.read_only: must be `true` or `false`, not a string",
        ),
        (
            "    undo:\n      complete_within: 30s",
            "    read_only: true\n    undo:\n      complete_within: 30s",
            "28:16: steps.pack.read_only: a step without a side effect has nothing to undo; remove one of them",
        ),
        (
            "point_of_no_return: true",
            "point_of_no_return: 1",
            "20:25: steps.reserve.point_of_no_return: must be `true` or `false`, not a number",
        ),
    ]);
}

#[test]
fn agents_and_requests() {
    check(&[
        (
            "agent: inventory",
            "agent: Inventory",
            "17:12: steps.reserve.agent: `Inventory` is not a valid name: a lower-case letter, then lower-case letters, digits, `-` and `_`, at most 40 characters; did you mean `inventory`?",
        ),
        ("agent: inventory", "agent: [inventory, backup]", ""),
        ("agent: inventory", "agent: { choose: '${ input.region }', of: [eu, us] }", ""),
        (
            "agent: inventory",
            "agent: []",
            "17:12: steps.reserve.agent: 0 agents; it must be from 1 to 5",
        ),
        (
            "agent: inventory",
            "agent: [a, b, a]",
            "17:19: steps.reserve.agent.2: `a` is listed twice",
        ),
        (
            "agent: inventory",
            "agent: { choose: '${ input.region }' }",
            "17:5: steps.reserve.agent: missing key `of`",
        ),
        (
            "    agent: inventory\n",
            "",
            "15:3: steps.reserve: the step has no work; it needs an `agent`, a `wait`, a `workflow` or a `fail`",
        ),
        (
            "    request: { path: /questions, body: '${ callback.token }', auth: aws, idempotency_key: { header: X-Key, form: uuid } }\n",
            "",
            "32:3: steps.ask: an `agent` needs a `request`",
        ),
        (
            "request: { method: PUT, path: '/reservations/${ task.id }', body: { items: '${ input.items }' } }",
            "request: /reservations",
            "21:14: steps.reserve.request: must be a mapping, not a string",
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
            "21:35: steps.reserve.request.path: must be a string, not a number",
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
        (
            "path: '/reservations/${ task.id }'",
            "path: \"/a/.\\t./${ task.id }\"",
            "21:35: steps.reserve.request.path: must not have the control character `\\t`; write `%09`",
        ),
        (
            "path: '/reservations/${ task.id }'",
            "path: '/a/${ task.id }#b'",
            "21:35: steps.reserve.request.path: must not have `#`; write `%23`",
        ),
        ("path: '/reservations/${ task.id }'", "path: '${ input.path }'", ""),
        (
            "path: '/reservations/${ task.id }'",
            "path: '/reservations/${ taks.id }'",
            "21:35: steps.reserve.request.path: expression `taks.id`: unknown name `taks`; did you mean `task`?",
        ),
        (
            "path: '/reservations/${ task.id }'",
            "path: '/reservations/${ task.idempotency_key }'",
            "21:35: steps.reserve.request.path: `task` has no `idempotency_key`, only `id`, `workflow`, `submitted_at`, `complete_by`",
        ),
        (
            "path: '/reservations/${ task.id }'",
            "path: '/reservations/${ task.id'",
            "21:35: steps.reserve.request.path: `/reservations/${ task.id`: `${` is never closed; close it with `}`, or write `$${` for a plain `${`",
        ),
        (
            "body: { items: '${ input.items }' }",
            "body: { items: ['${ item }'] }",
            "21:81: steps.reserve.request.body.items.0: `item` is available only in a step with `for_each` or `repeat`, in its request, input and undo",
        ),
        (
            "body: { items: '${ input.items }' }",
            "body: '${ steps.pack.output }'",
            "21:71: steps.reserve.request.body: `steps.pack.output`: step `pack` does not come before this one; add `pack` to `after`",
        ),
        (
            "body: { items: '${ input.items }' }",
            "body: { a: '${ event.id }', b: '${ callback.token }' }",
            "21:76: steps.reserve.request.body.a: `event` is available only in a `trigger`, and in `wait.event.key`\n21:96: steps.reserve.request.body.b: `callback` is available only in a step with `callback`, in its request",
        ),
        ("body: { items: '${ input.items }' }", "body: 7", ""),
    ]);
}

#[test]
fn auth_of_a_request() {
    check(&[
        ("auth: aws", "auth: { aws: {} }", ""),
        ("auth: aws", "auth: { aws: { service: s3, region: eu-west-1 } }", ""),
        ("auth: aws", "auth: null", ""),
        (
            "auth: aws",
            "auth: awz",
            "37:69: steps.ask.request.auth: must be one of `aws`; did you mean `aws`?",
        ),
        (
            "auth: aws",
            "auth: { aws: { regoin: eu-west-1 } }",
            "37:78: steps.ask.request.auth.aws: unknown key `regoin`; did you mean `region`?",
        ),
        (
            "auth: aws",
            "auth: { aws: { region: EU } }",
            "37:86: steps.ask.request.auth.aws.region: `EU` is not a valid name: a lower-case letter, then lower-case letters, digits and `-`, at most 40 characters; did you mean `eu`?",
        ),
    ]);
}

#[test]
fn aws_action_of_a_request() {
    const REQUEST: &str = "method: PUT, path: '/reservations/${ task.id }', body";
    let unknown = |service: &str| {
        format!(
            "21:21: steps.reserve.request.aws: `{service}` is not a service whose operations need only a name: a REST API needs \
             the `method` and the `path` of the operation"
        )
    };
    check(&[
        (REQUEST, "aws: dynamodb:PutItem, body", ""),
        (REQUEST, "aws: batch:SubmitJob, path: /v1/submitjob, body", ""),
        (REQUEST, "aws: batch:SubmitJob, body", &unknown("batch")),
        (
            REQUEST,
            "aws: dynamo:PutItem, body",
            &format!("{}; did you mean `dynamodb`?", unknown("dynamo")),
        ),
        (
            REQUEST,
            "aws: putItem, body",
            "21:21: steps.reserve.request.aws: `putItem` is not a valid name: the prefix of a service in IAM, `:` and an operation, such as `dynamodb:PutItem`",
        ),
        (
            REQUEST,
            "aws: sns:Publish, method: PUT, path: /x, body",
            "21:42: steps.reserve.request.method: the operations of `sns` need only a name: remove it\n21:53: steps.reserve.request.path: the operations of `sns` need only a name: remove it",
        ),
    ]);
}

#[test]
fn idempotency_key_of_a_request() {
    check(&[
        ("header: X-Key, form: uuid", "form: hash36", ""),
        ("header: X-Key, form: uuid", "header: Cko-Idempotency-Key", ""),
        (
            "form: uuid",
            "form: md5",
            "37:114: steps.ask.request.idempotency_key.form: must be one of `full`, `hash64`, `hash36`, `uuid`",
        ),
        (
            "header: X-Key",
            "header: Content-Type",
            "37:101: steps.ask.request.idempotency_key.header: `Content-Type` is not a header for an idempotency key: a letter, then letters, digits and `-`, at most 64; not one that HTTP, authentication or tracing needs",
        ),
        (
            "header: X-Key",
            "name: X-Key",
            "37:93: steps.ask.request.idempotency_key: unknown key `name`; there are `header` and `form`",
        ),
    ]);
}

#[test]
fn cases_of_responses() {
    check(&[
        ("403: [{", "403: [{ class: unknown, when: '${ response.status == 403 }' }, {", ""),
        ("responses: { 403:", "responses: { 404: completed, 403:", ""),
        ("after: 90s, until: 1800000000", "after: '${ response.headers.late }'", ""),
        (
            "responses: { 403:",
            "responses: { 404: done, 403:",
            "50:23: steps.look.responses.404: must be one of `completed`, `failed`, `retry`, `unknown`",
        ),
        (
            "'${ response.body.late }'",
            "'${ input.late }'",
            "50:32: steps.look.responses.403.0.when: `input` is not available here: only `response` is",
        ),
        (
            "after: 90s",
            "after: soon",
            "50:99: steps.look.responses.403.0.after: must be seconds, or a duration such as `90s`",
        ),
        (
            "until: 1800000000",
            "until: later",
            "50:111: steps.look.responses.403.0.until: must be seconds since 1970, or a time such as `2026-12-24T18:00:00Z`",
        ),
        (
            "class: retry",
            "class: failed",
            "50:87: steps.look.responses.403.0.did_not_run: has a meaning only with the class `retry`\n50:100: steps.look.responses.403.0.after: has a meaning only with the class `retry`\n50:112: steps.look.responses.403.0.until: has a meaning only with the class `retry`",
        ),
        (
            "403: [{",
            "403: [{ class: failed }, {",
            "50:24: steps.look.responses.403.0: matches each response, so the cases after it never do",
        ),
        (
            "did_not_run: true",
            "ran: false",
            "50:73: steps.look.responses.403.0: unknown key `ran`; there are `when`, `class`, `did_not_run`, `after` and `until`",
        ),
        ("class: retry, ", "", "50:24: steps.look.responses.403.0: missing key `class`"),
    ]);
}

#[test]
fn output_of_a_step() {
    let output = "    output: { id: '${ response.body.id }' }";
    let with = |output: &str| format!("    output: {output}");
    check(&[
        (output, &with("'${ response.headers.etag }'"), ""),
        (output, &with("'${ response.status }: ${ response.body }'"), ""),
        (
            output,
            &with("[]"),
            "49:13: steps.look.output: does not use `response`; for example `${ response.body.id }`",
        ),
        (
            output,
            &with("'${ response.'"),
            "49:13: steps.look.output: `${ response.`: `${` is never closed; close it with `}`, or write `$${` for a plain `${`",
        ),
        (
            output,
            &with("'${ response.stauts }'"),
            "49:13: steps.look.output: `response` has no `stauts`, only `status`, `headers`, `body`; did you mean `status`?",
        ),
        (
            "body: '${ callback.token }'",
            "body: '${ callback.uuid }'",
            "37:40: steps.ask.request.body: `callback` has no `uuid`, only `token`, `url`",
        ),
        (
            output,
            &with("'${ response.body + input.id }'"),
            "49:13: steps.look.output: `input` is not available here: only `response` is",
        ),
        (
            output,
            &with("'${ [response.body, steps.send.output] }'"),
            "49:13: steps.look.output: `steps` is not available here: only `response` is",
        ),
        (
            "    wait: 12h",
            "    wait: 12h\n    output: '${ response.body }'",
            "41:13: steps.rest.output: allowed only with `agent`, not with `wait`",
        ),
        (
            "body: '${ callback.token }'",
            "body: '${ [callback.token, response.status] }'",
            "37:40: steps.ask.request.body: `response` is available only in the `output` of a step with an `agent`",
        ),
        (
            "    callback: { within: 3d, heartbeat: 1h, from: 'the office', answer: { type: object } }",
            "    callback: { within: 3d, heartbeat: 1h, from: 'the office', answer: { type: object } }\n    output: '${ response.body }'",
            "36:13: steps.ask.output: the output of a step with a `callback` is that of the callback",
        ),
    ]);
    let long = with(&format!("'${{ response.status }}{}'", "x".repeat(16 * 1024)));
    assert_eq!(
        errors_after(output, &long),
        "49:13: steps.look.output: 16406 bytes of JSON; the limit is 16384"
    );
}

#[test]
fn for_each() {
    check(&[
        (
            "{ items: '${ input.items }', at_once: 3 }",
            "'${ input.items }'",
            "25:15: steps.pack.for_each: must be a mapping, not a string",
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
            "25:24: steps.pack.for_each.items: must be a string, not a list",
        ),
        (
            "items: '${ input.items }', at",
            "items: '${ item }', at",
            "25:24: steps.pack.for_each.items: `item` is available only in a step with `for_each` or `repeat`, in its request, input and undo",
        ),
        ("at_once: 3", "at_once: 0", "25:53: steps.pack.for_each.at_once: must be from 1 to 100"),
        ("at_once: 3", "at_once: 101", "25:53: steps.pack.for_each.at_once: must be from 1 to 100"),
        (
            "at_once: 3",
            "at_once: all",
            "25:53: steps.pack.for_each.at_once: must be an integer, not a string",
        ),
        (", at_once: 3", "", ""),
        (
            "    wait: 12h",
            "    wait: 12h\n    for_each: { items: '${ input.items }' }",
            "41:5: steps.rest.for_each: allowed only with `agent` or `workflow` or `wait.event`, not with `wait`",
        ),
        (
            "    workflow: {",
            "    for_each: { items: '${ steps.pack.output }' }\n    workflow: {",
            "",
        ),
    ]);
}

#[test]
fn repeat() {
    let until = "until: '${ item.next == null }'";
    check(&[
        ("first: '${ input.from }', ", "", ""),
        (
            "first: '${ input.from }'",
            "first: '${ item }'",
            "75:22: steps.book.repeat.first: `item` is available only in a step with `for_each` or `repeat`, in its request, input and undo",
        ),
        (
            until,
            "until: '${ item.next } or not'",
            "75:48: steps.book.repeat.until: must consist of exactly one expression; for example `${ item.next == null }`",
        ),
        (until, "until: '${ item_index >= input.count }'", ""),
        ("at_most: 9", "at_most: 0", "75:83: steps.book.repeat.at_most: must be from 1 to 9999"),
        (", at_most: 9", "", "75:5: steps.book.repeat: missing key `at_most`"),
        (
            "    repeat: {",
            "    for_each: { items: '${ input.items }' }\n    repeat: {",
            "76:5: steps.book.repeat: not together with `for_each`; repeat a child workflow for each item",
        ),
        (
            "    wait: 12h",
            "    wait: 12h\n    repeat: { until: '${ item }', at_most: 2 }",
            "41:5: steps.rest.repeat: allowed only with `agent` or `workflow`, not with `wait`",
        ),
    ]);
}
