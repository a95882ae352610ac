//! What callers of the ports in memory rely on.

use std::{num::NonZeroUsize, time::Duration};

use jiff::Timestamp;
use serde_json::json;
use steward_agent::attempt::RemoteService;
use steward_core::model::document::{Document, DocumentKey};
use steward_runtime::ports::{
    Channel, Clock, CreateOutcome, OutgoingMessage, Ports, PutOutcome, Queue, StateStore,
};

use super::{
    ExpiredItem, MemoryPorts,
    service::{Body, CallPlan, FakeService, KeyMemory, Reply},
};

#[test]
fn instances_share_everything_except_their_name() {
    let (one, other) = (MemoryPorts::default(), MemoryPorts::default());
    let another = one.with_instance("another");
    assert_eq!((one.instance(), another.instance()), ("memory", "another"));
    another.clock().advance(Duration::from_millis(1_500));
    assert_eq!(one.clock().now().as_millisecond(), 1_500);
    assert_eq!(other.clock().now(), Timestamp::UNIX_EPOCH);
    one.clock().set(Timestamp::UNIX_EPOCH);
    assert_eq!(another.clock().now(), Timestamp::UNIX_EPOCH);
}

#[tokio::test]
async fn items_and_messages_above_the_size_limits_of_aws_are_refused() {
    let ports = MemoryPorts::default();
    let task: steward_core::model::task::Task = serde_json::from_value(serde_json::json!({
        "task_id": "t", "workflow": "order", "v": 1, "i": 0, "k": 0, "process_state": "Pending",
        "revision": 1, "complete_by": 9, "submitted_at": 0, "due": 1,
    }))
    .unwrap();
    let (owner, retention) = (task.document_owner(), task.document_retention());
    let of = |bytes: usize| {
        let (key, at) = (DocumentKey::Submission, Timestamp::UNIX_EPOCH);
        Document::new(key, at, "x".repeat(bytes).into())
    };
    // The bytes that remain for the text, beside the keys and attribute names of its item.
    let room = 400 * 1_024 - 100;
    let put = ports.store().put_document(&owner, retention, &of(room)).await;
    assert_eq!(put.unwrap(), PutOutcome::Stored);
    let error = ports.store().put_document(&owner, retention, &of(room + 100)).await.unwrap_err();
    assert!(!error.retryable && error.operation == "write submission of t", "{error:?}");
    let large = steward_core::model::task::Task { error: Some("\u{5b57}".repeat(140_000)), ..task };
    assert!(!ports.store().create(&large, Some(&of(0))).await.unwrap_err().retryable);
    assert_eq!(ports.store().load(&large.task_id).await.unwrap(), None);
    let message = |bytes: usize| OutgoingMessage {
        queue: Queue::Scheduler,
        body: "x".repeat(bytes),
        attributes: vec![("reason", "y".repeat(100))],
        tenant: None,
        delay: Duration::ZERO,
    };
    let room = 256 * 1_024 - "reasonString".len() - 100;
    let sent = ports.channel().send(vec![message(room), message(room + 1)]).await;
    assert!(sent[0].is_ok() && !sent[1].as_ref().unwrap_err().retryable, "{sent:?}");
}

#[tokio::test]
async fn expired_items_are_deleted_one_by_one() {
    let ports = MemoryPorts::default();
    let task: steward_core::model::task::Task = serde_json::from_value(serde_json::json!({
        "task_id": "t", "workflow": "order", "v": 1, "i": 0, "k": 0, "process_state": "Processed",
        "revision": 1, "complete_by": 0, "submitted_at": 0, "ended_at": 0, "retention_s": 3600,
    }))
    .unwrap();
    let submitted =
        Document::new(DocumentKey::Submission, Timestamp::UNIX_EPOCH, serde_json::Value::Null);
    ports.store().create(&task, Some(&submitted)).await.unwrap();
    let at = |hours: i64| Timestamp::from_second(hours * 3_600).unwrap();
    assert_eq!(ports.store().expired(at(0)), []);
    let task_item = ExpiredItem::Task(task.task_id.clone());
    let document = ExpiredItem::Document(task.document_owner(), DocumentKey::Submission);
    let all = ports.store().expired(at(24 * 365));
    assert_eq!(all, [task_item.clone(), document.clone()]);
    let ended = async || {
        let within = Timestamp::MIN..Timestamp::MAX;
        let page = ports.store().ended_tasks(task.process_state, 0, within, None).await;
        page.unwrap().ended.len()
    };
    assert_eq!(ended().await, 1);
    ports.store().delete_expired(&task_item);
    assert_eq!(ports.store().expired(at(24 * 365)), std::slice::from_ref(&document));
    assert_eq!(ended().await, 0);
    ports.store().delete_expired(&document);
    assert_eq!(ports.store().expired(at(24 * 365)), []);
}

#[tokio::test]
async fn a_page_of_the_due_index_has_the_configured_size() {
    let ports = MemoryPorts::default();
    for (task_id, due) in [("a", 3), ("b", 1), ("c", 2)] {
        let task = serde_json::json!({
            "task_id": task_id, "workflow": "order", "v": 1, "i": 0, "k": 0, "process_state": "Pending",
            "revision": 1, "complete_by": 9, "submitted_at": 0, "due": due,
        });
        let task = serde_json::from_value(task).unwrap();
        let (key, at) = (DocumentKey::Submission, Timestamp::UNIX_EPOCH);
        let document = Document::new(key, at, serde_json::Value::Null);
        let created = ports.store().create(&task, Some(&document)).await.unwrap();
        assert_eq!(created, CreateOutcome::Created);
    }
    let small = ports.with_page_size(NonZeroUsize::MIN);
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let page = small.store().due_tasks(0, Timestamp::MAX, after.as_ref()).await.unwrap();
        assert!(page.task_ids.len() <= 1);
        found.extend(page.task_ids.iter().map(ToString::to_string));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(found, ["b", "c", "a"]);
    let whole = ports.store().due_tasks(0, Timestamp::MAX, None).await.unwrap();
    assert_eq!((whole.task_ids.len(), whole.next), (3, None));
}

/// How often three calls with one key take effect: two at once, and one two seconds later. The first gets 500 without effect if
/// `fails_first`. Returns whether each succeeded.
async fn repeated_calls(key_memory: KeyMemory, fails_first: bool) -> (usize, [bool; 3]) {
    let service = FakeService::planned(move |request, _| match request.attempt {
        1 if fails_first => {
            CallPlan { key_memory, ..CallPlan::without_effect(0, Reply::status(500)) }
        }
        _ => CallPlan { key_memory, ..CallPlan::success(0, json!({})) },
    });
    let mut succeeded = [false; 3];
    for (attempt, succeeded) in (1..).zip(&mut succeeded) {
        let request = json!({
            "task_id": "t", "step": "pay", "attempt": attempt, "complete_by": "2100-01-01T00:00:00Z",
            "idempotency_key": "t/pay/do", "call_within_ms": 1_000, "agent": "a", "method": "POST", "path": "/",
            "incarnation": 0,
        });
        *succeeded = service.call(&serde_json::from_value(request).unwrap(), None).await.is_ok();
        tokio::time::sleep(Duration::from_secs(2 * (attempt - 1))).await;
    }
    (service.ledger().entries.len(), succeeded)
}

#[tokio::test(start_paused = true)]
async fn a_service_may_keep_ignore_or_forget_an_idempotency_key() {
    for (key_memory, effects) in [
        (KeyMemory::Kept, 1),
        (KeyMemory::Ignored, 3),
        (KeyMemory::ForgottenAfter(1_000), 2),
        (KeyMemory::ForgottenAfter(3_000), 1),
        (KeyMemory::ReplyStored, 1),
    ] {
        assert_eq!(repeated_calls(key_memory, false).await, (effects, [true; 3]), "{key_memory:?}");
    }
}

#[test]
fn a_service_may_say_in_the_body_of_a_200_that_it_did_not_begin_the_call() {
    let body = || b"{}".to_vec();
    assert!(Reply::success(Body::NotBegun(body())).is_throttled());
    assert!(!Reply::success(Body::Bytes(body())).is_throttled());
    assert!(Reply::status(429).is_throttled());
}

#[tokio::test(start_paused = true)]
async fn a_service_may_repeat_a_stored_error_for_ever() {
    assert_eq!(repeated_calls(KeyMemory::Kept, true).await, (1, [false, true, true]));
    assert_eq!(repeated_calls(KeyMemory::ReplyStored, true).await, (0, [false; 3]));
}
