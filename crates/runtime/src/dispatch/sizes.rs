//! The largest message of each kind. The limits of its parts bound it, so no send of a saved decision fails for its size.

use serde_json::{Value, json};
use steward_core::model::{
    command::CommandId,
    events::TaskAlert,
    lifecycle::{LifecycleEvent, LifecycleEventContent, StepFailedData, TaskData},
    messages::idempotency_key,
    task::Task,
};

use super::*;

/// The limit of a message from EventBridge to a queue, and of all messages in SQS until August 2025.
const AWS_BYTES_MAX: usize = 256 * 1024;

/// A character that takes twice its bytes in a message: as many as any other.
const WIDE: char = '\u{ffff}';

/// The largest incarnation.
const INCARNATION: u64 = 36_u64.pow(9) - 1;

const TIME: &str = "2026-11-20T12:00:00.123456789Z";

fn of_chars(count: usize) -> String {
    String::from_iter(std::iter::repeat_n(WIDE, count))
}

fn task_id() -> String {
    "t".repeat(limits::TASK_ID_CHARS_MAX)
}

fn name() -> String {
    "n".repeat(limits::NAME_CHARS_MAX)
}

fn tenant() -> String {
    "n".repeat(limits::TENANT_CHARS_MAX)
}

fn part() -> String {
    format!("{}[{}]", name(), limits::ITEMS_MAX - 1)
}

fn command_id() -> String {
    "c".repeat(limits::COMMAND_ID_CHARS_MAX)
}

fn reason() -> String {
    of_chars(limits::REASON_CHARS_MAX)
}

/// A document of the largest size, as it is measured: in a message.
fn document() -> Value {
    json!(of_chars(limits::DOCUMENT_BYTES_MAX / "\\uffff".len()))
}

fn place() -> String {
    let level = format!("{}@zzzzzzzzz/", task_id());
    format!("tasks/{}", level.repeat(limits::CHILD_DEPTH_MAX as usize + 1))
}

fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

/// The engine limits the path and the body together.
fn request() -> Effect {
    let edit: CommandId = command_id().parse().unwrap();
    let key = |task: TaskId, step: Part| idempotency_key(&task, &step, Action::Undo, Some(&edit));
    let case = |text: String| json!({ "403": [{ "class": "retry", "when": text }] });
    let rest = limits::RESPONSES_BYTES_MAX - case(String::new()).to_string().len();
    let responses = case(of_chars(rest / WIDE.len_utf8()));
    let output = of_chars((limits::OUTPUT_TEMPLATE_BYTES_MAX - "\"\"".len()) / WIDE.len_utf8());
    Effect::Request(read(json!({
        "task_id": task_id(), "step": part(), "action": "undo", "attempt": u32::MAX, "complete_by": TIME,
        "idempotency_key": key(task_id().parse().unwrap(), part().parse().unwrap()), "idempotent": false,
        "call_within_ms": u64::MAX, "responses": responses, "exclusive": true, "may_have_run": true,
        "callback": true, "agent": name(), "method": "DELETE", "path": "/", "body": document(),
        "auth": { "aws": { "service": name(), "region": name() } },
        "key_format": { "header": "h".repeat(limits::KEY_HEADER_CHARS_MAX), "form": "hash64" }, "output": output, "incarnation": INCARNATION,
        "tenant": tenant(), "payload_place": place(),
    })))
}

/// The engine limits the whole message.
fn submission() -> Effect {
    Effect::Submit(read(json!({
        "task_id": task_id(), "workflow": name(), "version": u32::MAX, "input": document(), "tenant": tenant(),
        "parent": { "task_id": task_id(), "step": part(), "depth": 5, "incarnation": INCARNATION, "payload_place": place() },
        "undo": true, "attempt": u32::MAX, "has_begun": true, "keep": { "from": 253_402_207_200_000_i64, "retention_s": u64::MAX },
    })))
}

fn subscription() -> Effect {
    Effect::AwaitEvent(read(json!({
        "key": format!("{}/{}/{}", name(), name(), "f".repeat(64)),
        "waiter": { "task_id": task_id(), "incarnation": INCARNATION, "step": part(), "attempt": u32::MAX, "until": TIME,
            "tenant": tenant() },
    })))
}

fn child_ended(outcome: Value) -> Effect {
    Effect::ChildEnded(read(json!({
        "task_id": task_id(), "step": part(), "outcome": outcome, "attempt": u32::MAX, "child": task_id(),
        "revision": u64::MAX, "incarnation": INCARNATION,
    })))
}

/// An agent limits the output before it replies, submission that of an event.
fn reply(outcome: Value) -> Effect {
    Effect::Reply(read(json!({
        "task_id": task_id(), "step": part(), "action": "undo", "attempt": u32::MAX, "outcome": outcome,
        "incarnation": INCARNATION, "agent": name(),
        "times": { "queued_at": TIME, "called_at": TIME, "answered_at": TIME },
    })))
}

fn wake() -> Effect {
    let call = json!({ "step": part(), "action": "undo", "attempt": u32::MAX, "incarnation": INCARNATION, "agent": name() });
    let wake = read(json!({ "task_id": task_id(), "cause": "overdue", "call": call }));
    Effect::Wake { wake, after: Duration::ZERO }
}

fn notification() -> Effect {
    let notice = read(json!({
        "task_id": of_chars(limits::TASK_ID_CHARS_MAX), "status": "processed", "at": TIME, "reason": reason(),
        "output": document(),
    }));
    Effect::Notification { queue: String::new(), notice }
}

/// A refused event may be larger than a refused submission. What is over the limit is cut.
fn rejected() -> Effect {
    let submission = of_chars(AWS_BYTES_MAX / WIDE.len_utf8());
    Effect::Reject { submission, reason: "\u{1f600}".repeat(limits::REASON_CHARS_MAX) }
}

fn alert(data: EventData) -> Effect {
    Effect::Publish(BusEvent::new(&task_id(), TIME.parse().unwrap(), data))
}

fn alert_of_task() -> Effect {
    alert(EventData::TaskInError(TaskAlert {
        task_id: task_id().parse().unwrap(),
        workflow: name().parse().unwrap(),
        steps: vec![part().parse().unwrap(); limits::ALERT_STEPS_MAX],
        more_steps: usize::MAX,
        // The command that settles an effect follows the error.
        reason: of_chars(limits::ERROR_CHARS_MAX + 100),
    }))
}

fn lifecycle_event() -> Effect {
    let task: Task = read(json!({
        "task_id": task_id(), "workflow": name(), "v": u32::MAX, "i": 0, "k": 1, "process_state": "Error", "revision": 1,
        "complete_by": 9, "submitted_at": 0,
    }));
    let data = TaskData { parent_task_id: Some(task.task_id.clone()), ..TaskData::of(&task) };
    let content = LifecycleEventContent::StepFailed(StepFailedData {
        task: data,
        step: part().parse().unwrap(),
        attempt: Some(u32::MAX),
        failed_attempts: u32::MAX,
        may_have_run: true,
    });
    let event = LifecycleEvent::new(&task, TIME.parse().unwrap(), content);
    Effect::Publish(BusEvent::Lifecycle(Box::new(event)))
}

/// The number of the kind of an effect. A new kind has to be added to the effects of the test, too.
fn kind(effect: &Effect) -> usize {
    match effect {
        Effect::Request(_) => 0,
        Effect::Submit(_) => 1,
        Effect::ParentRequest(_) => 2,
        Effect::AwaitEvent(_) => 3,
        Effect::ChildEnded(_) => 4,
        Effect::Reply(_) => 5,
        Effect::Wake { .. } => 6,
        Effect::Notification { .. } => 7,
        Effect::Reject { .. } => 8,
        Effect::Publish(_) => 9,
    }
}

fn assert_fits(message: &OutgoingMessage) {
    let attributes = message.attributes.iter().map(|(name, value)| name.len() + 6 + value.len());
    let (body, all) = (message.body.len(), message.body.len() + attributes.sum::<usize>());
    let start: String = message.body.chars().take(200).collect();
    assert!(body <= limits::MESSAGE_BYTES_MAX, "{body} bytes: {start}");
    assert!(all <= AWS_BYTES_MAX, "{all} bytes with attributes: {start}");
}

#[test]
fn the_largest_message_of_each_kind_fits() {
    let of_parent = json!({ "task_id": task_id(), "action": "undo", "incarnation": INCARNATION });
    let effects = [
        request(),
        submission(),
        subscription(),
        Effect::ParentRequest(read(of_parent)),
        child_ended(json!({ "status": "processed", "output": document() })),
        child_ended(json!({ "status": "refused", "reason": reason(), "id_taken": true })),
        reply(json!({ "status": "completed", "output": document(), "may_continue": true })),
        reply(
            json!({ "status": "deferred", "reason": reason(), "retry_after_ms": u64::MAX, "may_have_run": true,
            "detail": of_chars(limits::ERROR_DETAIL_BYTES_MAX / WIDE.len_utf8()) }),
        ),
        wake(),
        notification(),
        rejected(),
        alert_of_task(),
        alert(EventData::SubmissionRefused {
            task_id: Some(of_chars(limits::TASK_ID_CHARS_MAX)),
            // A key and a workflow stand before some reasons.
            reason: of_chars(limits::REASON_CHARS_MAX + 400),
        }),
        lifecycle_event(),
    ];
    let kinds: BTreeSet<_> = effects.iter().map(kind).collect();
    assert!(kinds.into_iter().eq(0..=9), "each kind of effect has a largest one");
    for effect in effects {
        let traceparent = Some("0".repeat(limits::TRACEPARENT_CHARS_MAX));
        match prepare(OutgoingEffect { effect, traceparent, tenant: None }) {
            PreparedMessage::Queue(message) => assert_fits(&message),
            PreparedMessage::Bus(event) => {
                let bytes = to_json_text(&event).len();
                // A tenth of a request, because ten share one.
                assert!(bytes <= AWS_BYTES_MAX / 10, "{bytes} bytes: {}", event.id());
            }
        }
    }
}

/// The callback function limits the answer, and the engine that of an operator's command.
#[test]
fn the_largest_message_that_no_decision_sends_fits() {
    let token = format!("{}/{}/izzzzzzzzz/{}", task_id(), part(), command_id());
    let answer = read(json!({ "token": token, "answer": "completed", "output": document() }));
    assert_fits(&callback_message(answer, None));
    let request = read(json!({
        "task_id": task_id(), "parent": task_id(), "incarnation": INCARNATION,
        "kept": { "from": 253_402_207_200_000_i64, "retention_s": u64::MAX },
    }));
    assert_fits(&extend_retention_message(request, None));
}
