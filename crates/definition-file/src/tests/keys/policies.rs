//! Defaults, deadlines, recovery policies and undos.

use super::*;

#[test]
fn defaults() {
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
            "11:20: defaults.complete_within: `soon` is not a duration; write numbers with units, such as `90s`, `15m`, `2h` or `1d 12h`",
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
            "13:9: defaults.undo: must be a mapping, not a number",
        ),
        ("attempts: 4", "attempts: null", ""),
        (
            "attempts: 4, ",
            "complete_within: 3s, ",
            "12:15: defaults.recovery: unknown key `complete_within`; there are `attempts`, `backoff`, `extended_wait`, `give_up_after`, `key_valid_for` and `then`",
        ),
    ]);
}

#[test]
fn deadlines() {
    check(&[
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
            "12:25: defaults.recovery.attempts: must be an integer, not a string",
        ),
        (
            "attempts: 4",
            "attempts: 2.5",
            "12:25: defaults.recovery.attempts: must be an integer, not a fraction",
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
            "12:46: defaults.recovery.backoff.first: must be a string, not a number; a duration needs a unit, such as `90s` or `15m`",
        ),
        ("rate: 1.5", "rate: 0.5", "12:56: defaults.recovery.backoff.rate: must be from 1 to 10"),
        ("rate: 1.5", "rate: 11", "12:56: defaults.recovery.backoff.rate: must be from 1 to 10"),
        (
            "rate: 1.5",
            "rate: fast",
            "12:56: defaults.recovery.backoff.rate: must be a number, not a string",
        ),
        ("max: 1m", "max: 31d", "12:66: defaults.recovery.backoff.max: must be at most 30d"),
        (
            "max: 1m",
            "max: high",
            "12:66: defaults.recovery.backoff.max: `high` is not a duration; write numbers with units, such as `90s`, `15m`, `2h` or `1d 12h`",
        ),
        (
            "jitter: false",
            "jitter: maybe",
            "12:78: defaults.recovery.backoff.jitter: must be `true` or `false`, not a string",
        ),
        (
            "backoff: { first: 1s, rate: 1.5, max: 1m, jitter: false }",
            "backoff: 1s",
            "12:37: defaults.recovery.backoff: must be a mapping, not a string",
        ),
        (
            "then: undo",
            "then: retry",
            "12:93: defaults.recovery.then: must be one of `alert`, `undo`, `continue`",
        ),
        (
            "then: undo",
            "then: allert",
            "12:93: defaults.recovery.then: must be one of `alert`, `undo`, `continue`; did you mean `alert`?",
        ),
        (
            "then: undo }",
            "then: [undo] }",
            "12:93: defaults.recovery.then: must be one of `alert`, `undo`, `continue`",
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
            "26:40: steps.pack.recovery.extended_wait.wait: `long` is not a duration; write numbers with units, such as `90s`, `15m`, `2h` or `1d 12h`",
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
            "26:32: steps.pack.recovery.extended_wait: must be a mapping, not a string",
        ),
        ("{ wait: 15m, times: 2 }", "null", ""),
        (
            "recovery: { extended_wait: { wait: 15m, times: 2 }, give_up_after: 1d, key_valid_for: 1d }",
            "recovery: 3",
            "26:15: steps.pack.recovery: must be a mapping, not a number",
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
fn time_limits() {
    check(&[
        ("give_up_after: 1d", "give_up_after: 20s", ""),
        ("give_up_after: 1d", "give_up_after: null", ""),
        ("then: undo }", "then: undo, give_up_after: 4d }", ""),
        ("key_valid_for: 1d", "key_valid_for: null", ""),
        (
            "key_valid_for: 1d",
            "key_valid_for: 0s",
            "26:91: steps.pack.recovery.key_valid_for: must be from 1ms to 366d",
        ),
        (
            "    recovery: { then: undo }\n  job",
            "    recovery: { then: undo, key_valid_for: 2d }\n  job",
            "54:5: steps.paid.recovery: a wait for an event is never repeated: only `then` is allowed",
        ),
        ("recovery: { attempts: 2 }", "recovery: { give_up_after: 30s }", ""),
        (
            "give_up_after: 1d",
            "give_up_after: 367d",
            "26:72: steps.pack.recovery.give_up_after: must be from 1ms to 366d",
        ),
        (
            "give_up_after: 1d",
            "give_up_after: 0s",
            "26:72: steps.pack.recovery.give_up_after: must be from 1ms to 366d",
        ),
        (
            "give_up_after: 1d",
            "give_up_after: soon",
            "26:72: steps.pack.recovery.give_up_after: `soon` is not a duration; write numbers with units, such as `90s`, `15m`, `2h` or `1d 12h`",
        ),
        (
            "    recovery: { then: undo }\n  job",
            "    recovery: { then: undo, give_up_after: 2d }\n  job",
            "54:5: steps.paid.recovery: a wait for an event is never repeated: only `then` is allowed",
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
            "29:24: steps.pack.undo.complete_within: `slow` is not a duration; write numbers with units, such as `90s`, `15m`, `2h` or `1d 12h`",
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
            "28:11: steps.pack.undo: must be a mapping, not `true` or `false`",
        ),
    ]);
}
