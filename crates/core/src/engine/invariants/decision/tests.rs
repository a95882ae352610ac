//! For each invariant of a decision, a decision that violates it.

use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use crate::engine::invariants::check_decision;
use crate::model::{
    command::Command,
    lifecycle::{LifecycleEvent, LifecycleEventContent, StepCompletedData, TaskData},
    messages::{CallbackOutcome, Wake, WakeCause},
    time::Timing,
};

/// A step with each kind of work, none of which follows another except `b`.
fn plan() -> Plan {
    let call = |more: Value| {
        let mut step = json!({ "agent": "x", "request": { "path": "/x" } });
        step.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        step
    };
    let undo = json!({ "request": { "path": "/u" } });
    let plan = json!({ "name": "w", "version": 1, "steps": {
        "a": call(json!({ "undo": undo, "recovery": { "attempts": 2 } })),
        "b": call(json!({ "undo": undo, "after": ["a"], "idempotent": false })),
        "g": call(json!({ "recovery": { "give_up_after": "60s" } })),
        "v": call(json!({ "recovery": { "key_valid_for": "60s" } })),
        "l": call(json!({ "for_each": { "items": "${ input.list }", "at_once": 2 } })),
        "p": call(json!({ "point_of_no_return": true, "callback": { "within": "1m", "heartbeat": "10s" },
            "request": { "path": "/x", "body": "${ callback.token }" } })),
        "q": { "wait": "1m" },
        "k": { "workflow": { "name": "child" } },
        "e": { "wait": { "within": "1m", "event": {
            "source": "s", "detail_type": "d", "key": "${ event.detail.id }", "equals": "${ task.id }",
        } } },
    } });
    serde_json::from_value(plan).unwrap()
}

/// A task in Processing, of which nothing has started.
fn task() -> Value {
    json!({
        "task_id": "t", "workflow": "w", "v": 1, "i": 0, "k": 0, "process_state": "Processing", "revision": 1,
        "complete_by": 100_000, "submitted_at": 0, "failure_count": 9, "due": 0, "locked_by": "me",
    })
}

/// A decision at the epoch: the fields of the task before it, those that it changes, and what it sends.
struct Facts {
    event: Event,
    before: Value,
    changed: Value,
    effects: Vec<Effect>,
}

impl Facts {
    /// An event that by itself changes nothing.
    fn new(before: Value, changed: Value) -> Self {
        let event = Event::AlertPublished { ended_at: Timestamp::UNIX_EPOCH };
        Self { event, before, changed, effects: Vec::new() }
    }

    fn on(self, event: Event) -> Self {
        Self { event, ..self }
    }

    /// Changes these fields, too.
    fn changing(mut self, fields: Value) -> Self {
        self.changed.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        self
    }

    fn sends(self, effects: impl IntoIterator<Item = Effect>) -> Self {
        Self { effects: effects.into_iter().collect(), ..self }
    }

    /// The invariant that the decision violates.
    fn violated(&self) -> Option<String> {
        let mut task = task();
        let mut with = |fields: &Value| -> Task {
            task.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
            serde_json::from_value(task.clone()).unwrap()
        };
        let (before, after) = (with(&self.before), with(&self.changed));
        let timing = Timing {
            pickup_within: Duration::from_secs(10),
            clock_skew: Duration::from_secs(2),
            retention: Timing::RETENTION,
        };
        let context = DecisionContext {
            now: Timestamp::UNIX_EPOCH,
            actor: "me",
            redelivered: false,
            lost_starts: None,
            timing,
            callback_urls: None,
        };
        let (task, effects) = (Box::new(after), self.effects.clone());
        let decided = Transition::Apply { task, documents: Vec::new(), effects };
        let plan = plan();
        let decision = Decision::new(&plan, &before, &self.event, &decided, context).unwrap();
        check_decision(&decision).err().map(|violated| violated.to_string())
    }
}

fn steps(steps: Value) -> Value {
    json!({ "steps": steps })
}

fn undoing(steps: Value) -> Value {
    json!({ "process_state": "Undoing", "undo_reason": "no", "steps": steps })
}

fn ended(state: &str, fields: Value) -> Value {
    let mut all = json!({ "process_state": state, "ended_at": 0, "due": null, "locked_by": null });
    all.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    all
}

fn running(attempt: u32) -> Value {
    json!({ "s": "r", "a": attempt, "b": 50_000 })
}

/// The request of an attempt until 50 s, with these fields besides.
fn request_with(step: &str, action: &str, attempt: u32, fields: Value) -> Effect {
    let mut request = json!({
        "task_id": "t", "step": step, "action": action, "attempt": attempt, "complete_by": "1970-01-01T00:00:50Z",
        "idempotency_key": format!("t/{step}/{action}"), "call_within_ms": 1, "agent": "x", "method": "POST",
        "path": "/x", "incarnation": 0,
    });
    request.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    Effect::Request(serde_json::from_value(request).unwrap())
}

fn request(step: &str, action: &str, attempt: u32) -> Effect {
    request_with(step, action, attempt, json!({}))
}

fn wake(task_id: &str, seconds: u64) -> Effect {
    let wake = Wake::new(task_id.parse().unwrap(), WakeCause::Waited);
    Effect::Wake { wake, after: Duration::from_secs(seconds) }
}

fn notification(at: &str) -> Effect {
    let notice = json!({ "task_id": "t", "status": "processed", "at": at });
    Effect::Notification { queue: "q".to_owned(), notice: serde_json::from_value(notice).unwrap() }
}

fn report(step: &str, outcome: Value) -> Effect {
    let ended = json!({ "task_id": "p", "step": step, "outcome": outcome, "incarnation": 0 });
    Effect::ChildEnded(serde_json::from_value(ended).unwrap())
}

fn reply(step: &str, attempt: u32, outcome: Value) -> Event {
    let reply = json!({
        "task_id": "t", "step": step, "action": "do", "attempt": attempt, "outcome": outcome, "incarnation": 0,
    });
    Event::ReplyReceived(serde_json::from_value(reply).unwrap())
}

fn completed() -> Value {
    json!({ "status": "completed", "output": {} })
}

fn callback(outcome: CallbackOutcome) -> Event {
    Event::CallbackReceived { step: "p".parse().unwrap(), edit: None, outcome }
}

fn command(action: Value) -> Event {
    let mut command = json!({
        "command_id": "c", "task_id": "t", "by": "ann", "why": "x", "issued_at": "1970-01-01T00:00:00Z",
    });
    command["order"] = action;
    let command: Command = serde_json::from_value(command).unwrap();
    Event::CommandReceived(command.received_from("AIDAANN".parse().unwrap()))
}

/// The record of a command, as the engine makes it.
fn recorded(why: &str, refused: Option<&str>) -> Value {
    let Event::CommandReceived(ReceivedCommand { caller, .. }) =
        command(json!({ "command": "pause" }))
    else {
        unreachable!();
    };
    json!({ "id": "c", "command": "x", "by": "ann", "why": why, "at": 0, "caller": caller, "refused": refused })
}

fn published(refused: Option<&str>) -> Effect {
    published_for("t", refused)
}

/// The event about a command, for this task.
fn published_for(task_id: &str, refused: Option<&str>) -> Effect {
    let Event::CommandReceived(ReceivedCommand { command, caller }) =
        command(json!({ "command": "pause" }))
    else {
        unreachable!();
    };
    let data = EventData::OperatorCommand {
        task_id: task_id.parse().unwrap(),
        command_id: command.command_id,
        command: "x".to_owned(),
        by: command.by,
        caller: Some(caller),
        why: command.why,
        refused: refused.map(str::to_owned),
    };
    Effect::Publish(BusEvent::new("t", Timestamp::UNIX_EPOCH, data))
}

fn dead_letter() -> Effect {
    let data = EventData::DeadLetterSeen { queue: "q".to_owned(), messages: 1 };
    Effect::Publish(BusEvent::new("q", Timestamp::UNIX_EPOCH, data))
}

/// The lifecycle event that the first attempt of a step completed it.
fn step_completed(step: &str) -> Effect {
    let of: Task = serde_json::from_value(task()).unwrap();
    let content = LifecycleEventContent::StepCompleted(StepCompletedData {
        task: TaskData {
            task_id: of.task_id.clone(),
            workflow: of.workflow.clone(),
            version: of.version,
            submitted_at: of.submitted_at,
            parent_task_id: None,
        },
        step: step.parse().unwrap(),
        attempt: Some(1),
        items: None,
        command_id: None,
    });
    let event = LifecycleEvent::new(&of, Timestamp::UNIX_EPOCH, content);
    Effect::Publish(BusEvent::Lifecycle(Box::new(event)))
}

/// The subscription of the first attempt of step `e`, until 50 s.
fn subscription() -> Effect {
    let subscription = json!({
        "key": "x",
        "waiter": { "task_id": "t", "incarnation": 0, "step": "e", "attempt": 1, "until": "1970-01-01T00:00:50Z" },
    });
    Effect::AwaitEvent(serde_json::from_value(subscription).unwrap())
}

fn alert(undo_failed: bool, steps: &[&str], at: i64) -> Effect {
    let alert = crate::model::events::TaskAlert {
        task_id: "t".parse().unwrap(),
        workflow: "w".parse().unwrap(),
        steps: steps.iter().map(|step| step.parse().unwrap()).collect(),
        more_steps: 0,
        reason: String::new(),
    };
    let data = match undo_failed {
        true => EventData::UndoFailed(alert),
        false => EventData::TaskInError(alert),
    };
    Effect::Publish(BusEvent::new("t", Timestamp::from_second(at).unwrap(), data))
}

/// Checks that each decision violates the invariant beside it.
fn check(rows: Vec<(Facts, &str)>) {
    let missed = rows.iter().filter_map(|(facts, invariant)| {
        let found = facts.violated();
        let is_found = found.as_ref().is_some_and(|found| found.ends_with(invariant));
        (!is_found).then(|| format!("`{invariant}`, not {found:?}"))
    });
    let missed: Vec<_> = missed.collect();
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

#[test]
fn a_decision_that_violates_no_invariant_is_accepted() {
    let completed_a = json!({ "a": { "s": "c", "a": 1 } });
    for facts in [
        Facts::new(json!({}), json!({})),
        Facts::new(json!({}), steps(json!({ "a": running(1) }))).sends([request("a", "do", 1)]),
        Facts::new(steps(json!({ "a": running(1) })), steps(completed_a.clone()))
            .on(reply("a", 1, completed()))
            .sends([wake("t", 0)]),
        Facts::new(
            steps(completed_a),
            undoing(json!({ "a": { "s": "c", "a": 1, "x": running(1) } })),
        )
        .sends([request("a", "undo", 1)]),
        Facts::new(
            json!({ "due": -3_000, "steps": { "a": { "s": "r", "a": 2, "b": -3_000, "f": 1 } } }),
            ended("Error", json!({ "error": "no", "due": 0, "alert": true, "steps": { "a": { "s": "f", "a": 2, "f": 2, "m": true } } })),
        )
        .on(Event::Swept)
        .sends([alert(false, &["a"], 0)]),
        Facts::new(json!({}), json!({ "commands": [recorded("x", None)], "paused_at": 0 }))
            .on(command(json!({ "command": "pause" })))
            .sends([published(None)]),
    ] {
        assert_eq!(facts.violated(), None, "{} => {}", facts.before, facts.changed);
    }
}

#[test]
fn each_invariant_of_the_task_can_be_violated() {
    let a = |record: Value| steps(json!({ "a": record }));
    let pause = || command(json!({ "command": "pause" }));
    let two_items =
        |rest: &str, s: Value| json!({ "l": { "s": "e", "p": { "n": 3, "d": [s], "l": rest } } });
    check(vec![
        (Facts::new(json!({}), json!({ "failure_count": 8 })), "its failure count never decreases"),
        (Facts::new(json!({}), json!({ "reply_to": "q" })), "what was submitted does not change"),
        (Facts::new(a(running(1)), steps(json!({}))), "the record of what has started is kept"),
        (
            Facts::new(
                ended("Error", json!({ "error": "no" })),
                json!({ "process_state": "Processing", "ended_at": null, "due": 0, "error": null }),
            ),
            "the end of a task changes only by a request, or because a step ran after all",
        ),
        (
            Facts::new(json!({}), json!({ "locked_by": "you", "steps": { "a": running(1) } }))
                .sends([request("a", "do", 1)]),
            "the instance that begins an attempt holds the lock",
        ),
        (
            Facts::new(
                ended("Error", json!({ "error": "no", "due": 0, "alert": true })),
                json!({ "alert": false }),
            )
            .on(Event::Wake),
            "a task in Error is to be alerted until the alert is recorded as sent",
        ),
        (
            Facts::new(
                ended("Error", json!({ "error": "no", "due": 0, "alert": true })),
                json!({
                    "process_state": "Processing", "alert": false, "ended_at": null, "error": null, "due": 50_000,
                }),
            )
            .on(pause()),
            "a task goes on only with an alert that is recorded as sent, or sent again",
        ),
        (
            Facts::new(json!({}), json!({ "commands": [recorded("y", None)] }))
                .on(pause())
                .sends([published(None)]),
            "a command is recorded with its operator, caller, reason and time",
        ),
        (
            Facts::new(json!({}), json!({ "commands": [recorded("x", None)] })),
            "only a command is recorded as one",
        ),
        (
            Facts::new(json!({}), json!({ "commands": [recorded("x", None)] })).on(pause()),
            "each command is published as it is recorded",
        ),
        (
            Facts::new(
                json!({}),
                json!({ "commands": [recorded("x", Some("no"))], "paused_at": 0 }),
            )
            .on(pause())
            .sends([published(Some("no"))]),
            "a refused command changes nothing else",
        ),
        (
            Facts::new(json!({ "due": 30_000 }), json!({})).sends([wake("t", 10)]),
            "due soon after each wake",
        ),
        (
            Facts::new(json!({}), json!({})).sends([wake("t", 901)]),
            "no wake is delayed longer than a queue can delay it",
        ),
        (
            Facts::new(json!({}), steps(json!({ "q": { "s": "w", "a": 0, "u": 60_000 } }))),
            "a wake is sent for each new wait",
        ),
        (Facts::new(json!({}), json!({ "due": 12_001 })), "due soon if nothing runs or waits"),
        (
            Facts::new(json!({}), json!({ "due": -3_000 })).on(Event::Swept),
            "a sweep leaves nothing past due",
        ),
        (Facts::new(json!({}), json!({})).on(Event::Wake), "each step that is ready has started"),
        (
            Facts::new(json!({}), steps(two_items("1a", json!({ "s": "k", "a": 1 })))),
            "as many items run as `at_once` allows",
        ),
        (
            Facts::new(undoing(json!({})), json!({})).on(Event::Wake),
            "Undoing: something is left to undo, or is waited for",
        ),
        (
            Facts::new(
                json!({}),
                ended("Error", json!({ "error": "no", "ended_at": 1, "due": 0, "alert": true })),
            ),
            "the end time is that of the decision",
        ),
        (
            Facts::new(
                json!({ "reply_to": "q" }),
                ended("Error", json!({ "error": "no", "due": 0, "alert": true })),
            )
            .sends([alert(false, &[], 0)]),
            "the client is notified of each end once",
        ),
        (
            Facts::new(
                json!({ "parent": { "task_id": "p", "step": "s", "depth": 1, "incarnation": 0 } }),
                ended("Error", json!({ "error": "no", "due": 0, "alert": true })),
            )
            .sends([alert(false, &[], 0)]),
            "the parent is notified of each end once",
        ),
        (
            Facts::new(
                json!({}),
                ended("Error", json!({ "error": "no", "due": 0, "alert": true })),
            ),
            "Error sends one alert, and no other end does",
        ),
    ]);
}

#[test]
fn each_invariant_of_attempts_can_be_violated() {
    let a = |record: Value| steps(json!({ "a": record }));
    let p = |record: Value| steps(json!({ "p": record }));
    let q = |record: Value| steps(json!({ "q": record }));
    let g = |record: Value| steps(json!({ "g": record }));
    let v = |record: Value| steps(json!({ "v": record }));
    let limited = |attempt, limit| json!({ "s": "r", "a": attempt, "b": 50_000, "l": limit });
    let overdue = |attempt| json!({ "s": "r", "a": attempt, "b": -3_000 });
    let swept = |old: Value, new: Value| {
        let before = json!({ "due": -3_000, "steps": { "a": old } });
        Facts::new(before, json!({ "due": 0, "steps": { "a": new } }))
            .on(Event::Swept)
            .sends([wake("t", 0)])
    };
    let awaits = |by: i64, last: i64| json!({ "s": "h", "a": 1, "b": by, "u": last });
    let waits = |until: i64| json!({ "s": "w", "a": 0, "u": until });
    let done = json!({ "s": "c", "a": 0 });
    let resubmit = || command(json!({ "command": "resubmit" }));
    let deferred = json!({ "status": "deferred", "reason": "r", "retry_after_ms": 0 });
    let obeyed = |steps: Value| json!({ "commands": [recorded("x", None)], "steps": steps });
    let undoing_p = undoing(json!({ "p": { "s": "f", "a": 1 } }));
    check(vec![
        (
            Facts::new(a(running(1)), a(json!({ "s": "w", "a": 3, "u": 0, "f": 1 })))
                .on(reply("a", 1, json!({ "status": "failed", "reason": "r" })))
                .sends([wake("t", 0)]),
            "attempt numbers increase by at most one",
        ),
        (Facts::new(json!({}), a(running(1))), "the request of an attempt that begins is sent"),
        (
            Facts::new(a(running(1)), a(running(2))).sends([request("a", "do", 2)]),
            "one attempt at a time",
        ),
        (
            Facts::new(json!({}), json!({ "steps": { "a": { "s": "r", "a": 1, "b": 0 } } }))
                .sends([request_with("a", "do", 1, json!({ "complete_by": "1970-01-01T00:00:00Z" }))]),
            "an attempt begins before its deadline",
        ),
        (
            Facts::new(
                a(json!({ "s": "c", "a": 1 })),
                undoing(json!({ "a": { "s": "c", "a": 1, "x": { "s": "r", "a": 1, "b": 50_000, "i": "c" } } })),
            )
            .sends([request_with("a", "undo", 1, json!({ "idempotency_key": "t/a/undo/c" }))]),
            "an undo uses the input of its key",
        ),
        (
            Facts::new(
                g(json!({ "s": "w", "a": 1, "u": 0, "l": 0 })),
                g(json!({ "s": "r", "a": 2, "b": 0, "l": 0 })),
            )
            .sends([request_with("g", "do", 2, json!({ "complete_by": "1970-01-01T00:00:00Z" }))]),
            "no attempt begins after the time limit of its part",
        ),
        (
            Facts::new(
                v(json!({ "s": "w", "a": 1, "u": 0, "m": true, "v": 0 })),
                v(json!({ "s": "r", "a": 2, "b": 0, "m": true, "v": 0 })),
            )
            .sends([request_with("v", "do", 2, json!({ "complete_by": "1970-01-01T00:00:00Z" }))]),
            "no attempt that may have run is repeated after the time of its key",
        ),
        (
            Facts::new(
                v(json!({ "s": "w", "a": 1, "u": 0, "m": true, "v": 55_000 })),
                v(json!({ "s": "r", "a": 2, "b": 50_000, "m": true, "v": 60_000 })),
            )
            .sends([request("v", "do", 2)]),
            "the time of a key counts from its first request, or from one before which nothing ran",
        ),
        (
            Facts::new(json!({}), g(limited(1, 60_001))).sends([request("g", "do", 1)]),
            "a time limit counts from the first attempt",
        ),
        (
            Facts::new(g(json!({ "s": "w", "a": 1, "u": 0, "l": 55_000 })), g(limited(2, 60_000)))
                .sends([request("g", "do", 2)]),
            "a time limit counts from the first attempt",
        ),
        (
            Facts::new(
                g(limited(1, 60_000)),
                g(json!({ "s": "w", "a": 1, "u": 60_000, "l": 60_000 })),
            )
            .sends([wake("t", 60)]),
            "no wait begins that ends after the time limit of its part",
        ),
        (
            Facts::new(a(running(1)), a(json!({ "s": "c", "a": 1 }))),
            "an awaited attempt ends by its own message, a sweep, a command or an undo",
        ),
        (
            Facts::new(p(awaits(50_000, 50_000)), undoing_p).on(Event::Swept),
            "the callback of a point of no return is awaited until its deadline",
        ),
        (
            Facts::new(a(running(1)), a(json!({ "s": "w", "a": 1, "u": 0, "m": true, "f": 1 })))
                .on(Event::Swept)
                .sends([wake("t", 0)]),
            "a sweep gives up only overdue attempts",
        ),
        (
            swept(overdue(1), json!({ "s": "w", "a": 1, "u": 0, "f": 1 })),
            "a silent attempt may have run",
        ),
        (
            swept(overdue(1), json!({ "s": "w", "a": 1, "u": 0, "m": true })),
            "a silent attempt is one failure",
        ),
        (
            swept(
                json!({ "s": "r", "a": 2, "b": -3_000, "f": 1 }),
                json!({ "s": "w", "a": 2, "u": 0, "m": true, "f": 2 }),
            ),
            "a silent step is repeated as its policy allows",
        ),
        (
            Facts::new(
                json!({ "paused_at": 0, "due": -3_000, "steps": { "a": overdue(1) } }),
                json!({}),
            )
            .on(Event::Swept),
            "a sweep leaves no overdue attempt awaited",
        ),
        (
            Facts::new(p(awaits(9_000, 50_000)), p(awaits(9_000, 60_000))),
            "the deadline of a callback does not change",
        ),
        (
            Facts::new(p(awaits(9_000, 50_000)), p(awaits(10_000, 50_000))),
            "only a heartbeat extends the time to the next",
        ),
        (
            Facts::new(p(running(1)), p(awaits(10_000, 50_000))).on(reply("p", 1, completed())).sends([wake("t", 0)]),
            "the deadline of a callback is as defined",
        ),
        (
            Facts::new(p(running(1)), p(awaits(20_000, 60_000))).on(reply("p", 1, completed())).sends([wake("t", 0)]),
            "the deadline of the first heartbeat is as defined",
        ),
        (Facts::new(q(waits(60_000)), q(done)), "it ends when it is over, or by a command"),
        (
            Facts::new(q(waits(60_000)), obeyed(json!({ "q": waits(0) })))
                .on(resubmit())
                .sends([published(None), wake("t", 0)]),
            "neither a resubmit of other steps nor the end of an undo ends it early",
        ),
        (
            Facts::new(
                undoing(json!({ "q": waits(60_000), "a": { "s": "c", "a": 1, "x": running(1) } })),
                json!({}),
            ),
            "it does not continue in an undo that has begun",
        ),
        (
            Facts::new(
                undoing(json!({ "q": waits(60_000), "a": running(1) })),
                undoing(json!({ "q": { "s": "k", "a": 0 }, "a": running(1) })),
            ),
            "it is not given up in an undo that may be abandoned",
        ),
        (
            Facts::new(a(running(1)), a(json!({ "s": "w", "a": 1, "u": 0, "f": 1 })))
                .on(reply("a", 1, deferred))
                .sends([wake("t", 0)]),
            "a deferral is no failure",
        ),
        (
            Facts::new(a(running(1)), a(json!({ "s": "w", "a": 1, "u": 0, "f": 1 })))
                .on(reply("a", 1, json!({ "status": "failed", "reason": "r", "may_have_run": true })))
                .sends([wake("t", 0)]),
            "an attempt that took effect, or may have, is recorded as one",
        ),
        (
            Facts::new(p(running(1)), p(json!({ "s": "c", "a": 1 }))).on(reply("p", 1, completed())).sends([wake("t", 0)]),
            "after its call it awaits the callback, unless it was given up",
        ),
        (
            Facts::new(p(json!({ "s": "c", "a": 1 })), p(json!({ "s": "c", "a": 1, "f": 1 })))
                .on(callback(CallbackOutcome::Completed { output: json!({}) })),
            "only an awaited one counts",
        ),
        (
            Facts::new(p(awaits(9_000, 50_000)), json!({}))
                .on(callback(CallbackOutcome::Completed { output: json!({}) })),
            "one in time counts",
        ),
        (
            Facts::new(p(awaits(9_000, 50_000)), json!({})).on(callback(CallbackOutcome::Heartbeat)),
            "a heartbeat in time extends the deadline",
        ),
    ]);
}

#[test]
fn each_invariant_of_messages_can_be_violated() {
    let a = |record: Value| steps(json!({ "a": record }));
    let runs_a = || Facts::new(json!({}), a(running(1)));
    let undoes = |record: Value| undoing(json!({ "a": record }));
    let undoing_a = || json!({ "s": "c", "a": 1, "x": running(1) });
    let error = || ended("Error", json!({ "error": "no", "due": 0, "alert": true }));
    let child = json!({ "parent": { "task_id": "p", "step": "s", "depth": 1, "incarnation": 0 } });
    let submission = |workflow: &str| {
        let submission = json!({
            "task_id": "t:k", "workflow": workflow, "input": {},
            "parent": { "task_id": "t", "step": "k", "depth": 1, "incarnation": 0 },
        });
        Effect::Submit(serde_json::from_value(submission).unwrap())
    };
    check(vec![
        (
            Facts::new(json!({}), a(running(1))).changing(error()).sends([request("a", "do", 1)]),
            "after the end of the task only what has started goes on, in Error",
        ),
        (
            Facts::new(a(running(1)), error())
                .changing(json!({ "stop": "h" }))
                .sends([request("a", "do", 1)]),
            "after the end of the task only what has started goes on, in Error",
        ),
        (
            Facts::new(a(running(1)), undoes(running(1))).sends([request("a", "do", 1)]),
            "the direction of the task is that of its requests",
        ),
        (
            Facts::new(json!({}), steps(json!({ "a": running(1), "p": { "s": "c", "a": 1, "x": running(1) } })))
                .sends([request("a", "do", 1)]),
            "no step is requested once an undo has begun",
        ),
        (
            Facts::new(json!({}), steps(json!({ "b": running(1) }))).sends([request("b", "do", 1)]),
            "a step starts after its predecessors",
        ),
        (
            Facts::new(json!({ "paused_at": 0 }), a(running(1))).sends([request("a", "do", 1)]),
            "nothing is requested in a paused task",
        ),
        (
            Facts::new(json!({ "complete_by": 0 }), a(running(1))).sends([request("a", "do", 1)]),
            "nothing is requested past the task's complete-by",
        ),
        (runs_a().on(Event::Swept).sends([request("a", "do", 1)]), "a sweep requests nothing"),
        (
            Facts::new(a(json!({ "s": "w", "a": 1, "u": 9_000 })), a(running(2)))
                .sends([request("a", "do", 2)]),
            "no attempt begins before the end of a wait, or for a part that has passed",
        ),
        (
            Facts::new(
                steps(json!({ "a": { "s": "k", "a": 0 }, "b": { "s": "w", "a": 1, "u": 0 } })),
                steps(json!({ "a": { "s": "k", "a": 0 }, "b": { "s": "r", "a": 2, "b": 50_000, "m": true } })),
            )
            .sends([request("b", "do", 2)]),
            "what may have run is repeated only if it is idempotent",
        ),
        (
            Facts::new(
                undoing(json!({ "a": { "s": "c", "a": 1 }, "b": { "s": "c", "a": 1 } })),
                steps(json!({ "a": undoing_a(), "b": { "s": "c", "a": 1 } })),
            )
            .sends([request("a", "undo", 1)]),
            "an undo waits for later steps and their undos",
        ),
        (
            Facts::new(json!({}), undoes(json!({ "s": "f", "a": 1, "x": running(1) })))
                .sends([request("a", "undo", 1)]),
            "only what may have run is undone",
        ),
        (
            Facts::new(json!({}), undoes(json!({ "s": "c", "a": 1, "w": 1, "x": running(1) })))
                .sends([request("a", "undo", 1)]),
            "an undo waits for the attempt and the calls of its step",
        ),
        (
            Facts::new(json!({}), undoing(json!({ "a": undoing_a(), "p": { "s": "c", "a": 1 } })))
                .sends([request("a", "undo", 1)]),
            "nothing is undone past the point of no return",
        ),
        (runs_a().sends([request("a", "do", 2)]), "it is of a running attempt"),
        (Facts::new(json!({}), json!({})).sends([subscription()]), "it is of a running attempt"),
        (
            runs_a().sends([request_with("a", "do", 1, json!({ "idempotency_key": "t/b/do" }))]),
            "its idempotency key is that of the part",
        ),
        (
            runs_a().sends([request_with("a", "do", 1, json!({ "agent": "y" }))]),
            "it goes to an agent of the step",
        ),
        (
            runs_a().sends([request_with("a", "do", 1, json!({ "method": "GET" }))]),
            "it has the method of the definition",
        ),
        (
            runs_a().sends([request_with("a", "do", 1, json!({ "exclusive": true }))]),
            "only a step with several agents has exclusive requests",
        ),
        (
            Facts::new(json!({}), steps(json!({ "k": running(1) }))).sends([submission("other")]),
            "it is of a running step, or a recorded rerun",
        ),
        (
            Facts::new(json!({}), error()).sends([notification("1970-01-01T00:00:01Z")]),
            "it is about the end of the task",
        ),
        (
            Facts::new(child.clone(), ended("Undone", json!({ "undo_reason": "no" })))
                .sends([report("z", json!({ "status": "undone", "reason": "no" }))]),
            "it goes to the step of the parent",
        ),
        (
            Facts::new(child, ended("Undone", json!({ "undo_reason": "no" })))
                .sends([report("s", json!({ "status": "processed", "output": {} }))]),
            "it says how the task ended",
        ),
        (Facts::new(json!({}), json!({})).sends([wake("u", 0)]), "it is for the task"),
        (runs_a().sends([step_completed("a")]), "the task shows what it is about"),
        (
            Facts::new(json!({}), json!({})).sends([published_for("u", None)]),
            "it is about the task",
        ),
        (
            Facts::new(json!({}), error()).sends([alert(false, &[], 1)]),
            "an alert is about the end of the task",
        ),
        (
            Facts::new(json!({}), error()).sends([alert(true, &[], 0)]),
            "an alert has the direction of the task",
        ),
        (
            Facts::new(json!({}), error()).sends([alert(false, &["a"], 0)]),
            "an alert names what failed, or what is left to undo",
        ),
        (
            Facts::new(json!({}), json!({}))
                .sends([Effect::Reject { submission: String::new(), reason: String::new() }]),
            "no decision sends it",
        ),
        (Facts::new(json!({}), json!({})).sends([dead_letter()]), "no decision sends it"),
    ]);
}
