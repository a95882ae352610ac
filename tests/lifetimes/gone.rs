//! Messages about tasks, steps and attempts that do not exist, or no longer do. They are acknowledged, unless a person has to
//! learn of them.

use std::future::Future;

use jiff::Timestamp;
use serde_json::{Value, json};
use steward_core::model::{
    events::{BusEvent, EventData},
    names::{CallbackToken, Incarnation, TaskId},
};
use steward_runtime::ports::{Clock, PortError, Ports};
use steward_test_world::{ExpiredItem, Interceptor, MemoryStore, PortCall, PortReply};

use super::harness::*;
use crate::support::{commands_event, scheduler_instance, sqs_event};

/// Delivers a message to the scheduler. Returns why it becomes a dead letter, by its alert; `None` if it is acknowledged.
async fn refusal(deployment: &MemoryDeployment, body: &Value) -> Option<String> {
    let bodies = [body.to_string()];
    let event = match body["type"] == "command" {
        true => commands_event(bodies, Some("AIDAANN")),
        false => sqs_event(bodies, 1),
    };
    let scheduler = scheduler_instance("");
    let response = steward_scheduler::handle_with(&deployment.ports, &scheduler, event).await;
    let mut reasons: Vec<_> = deployment.ports.bus().take().iter().filter_map(corrupt).collect();
    assert_eq!(response.batch_item_failures.len(), reasons.len(), "{body}");
    reasons.pop()
}

fn corrupt(event: &BusEvent) -> Option<String> {
    let EventData::MessageCorrupt { reason, .. } = &event.operator_event()?.data else {
        return None;
    };
    Some(reason.clone())
}

/// A task that has ended and expired.
async fn expired_task() -> (MemoryDeployment, Incarnation) {
    let mut deployment = MemoryDeployment::new(&[one_call_workflow()]);
    deployment.submit(submission("t", "one")).await.unwrap();
    let incarnation = deployment.task("t").await.incarnation;
    deployment.complete("t", "charge", json!({})).await;
    deployment.run_for(3 * HOUR).await;
    assert_eq!(deployment.find_task("t").await, None);
    (deployment, incarnation)
}

fn reply(incarnation: Incarnation, step: &str, attempt: u32, outcome: Value) -> Value {
    json!({
        "type": "reply", "task_id": "t", "step": step, "attempt": attempt, "incarnation": incarnation,
        "agent": "a", "outcome": outcome,
    })
}

fn refused(may_have_run: bool) -> Value {
    json!({ "status": "failed", "reason": "no", "may_have_run": may_have_run })
}

fn deferred(may_have_run: bool) -> Value {
    json!({ "status": "deferred", "reason": "busy", "retry_after_ms": 9, "may_have_run": may_have_run })
}

fn completed() -> Value {
    json!({ "status": "completed", "output": null })
}

fn callback(incarnation: Incarnation, answer: &str) -> Value {
    let (task_id, step) = ("t".parse().unwrap(), "charge".parse().unwrap());
    let token = CallbackToken { task_id, step, incarnation, edit: None };
    json!({ "type": "callback", "token": token, "answer": answer })
}

fn child_ended(incarnation: Incarnation, outcome: Value) -> Value {
    json!({ "type": "child_ended", "task_id": "t", "step": "charge", "outcome": outcome, "incarnation": incarnation })
}

fn undo_command(deployment: &MemoryDeployment) -> Value {
    json!({
        "type": "command", "command_id": "c-1", "task_id": "t", "by": "ann", "why": "a test",
        "order": { "command": "undo" }, "issued_at": deployment.ports.clock().now(),
    })
}

#[tokio::test]
async fn messages_without_an_effect_about_an_expired_task_are_acknowledged() {
    let (deployment, of) = expired_task().await;
    let wake = |cause: &str| json!({ "type": "wake", "task_id": "t", "cause": cause });
    let request = |action: &str| json!({ "type": "ask", "task_id": "t", "action": action, "incarnation": of });
    let keep = json!({
        "type": "keep", "task_id": "t", "parent": "p", "incarnation": of, "kept": { "from": 0 },
    });
    for message in [
        wake("submitted"),
        wake("recovery"),
        wake("waited"),
        wake("overdue"),
        reply(of, "charge", 1, refused(false)),
        reply(of, "charge", 1, deferred(false)),
        request("do"),
        request("undo"),
        keep,
        callback(of, "completed"),
        callback(of, "heartbeat"),
        child_ended(of, json!({ "status": "processed" })),
    ] {
        assert_eq!(refusal(&deployment, &message).await, None, "{message}");
    }
}

#[tokio::test]
async fn a_wake_of_a_task_that_never_was_is_acknowledged() {
    let deployment = MemoryDeployment::new(&[one_call_workflow()]);
    let wake = json!({ "type": "wake", "task_id": "t", "cause": "submitted" });
    assert_eq!(refusal(&deployment, &wake).await, None);
}

#[tokio::test]
async fn an_effect_of_an_expired_task_is_alerted() {
    let (deployment, of) = expired_task().await;
    let call = json!({ "step": "charge", "attempt": 1, "incarnation": of, "agent": "a" });
    let overdue = json!({ "type": "wake", "task_id": "t", "cause": "overdue", "call": call });
    for message in [
        reply(of, "charge", 1, completed()),
        reply(of, "charge", 1, json!({ "status": "unknown", "reason": "cut" })),
        reply(of, "charge", 1, refused(true)),
        reply(of, "charge", 1, deferred(true)),
        overdue,
    ] {
        let refusal = refusal(&deployment, &message).await;
        assert_eq!(refusal.as_deref(), Some("task t: there is no such task"), "{message}");
    }
    // What cannot be read may be one, too.
    let unreadable = json!({ "type": "reply", "task_id": "t" });
    assert!(refusal(&deployment, &unreadable).await.unwrap().starts_with("missing field"));
}

#[tokio::test]
async fn a_command_that_comes_before_its_task_is_carried_out_when_it_is_delivered_again() {
    let mut deployment = MemoryDeployment::new(&[one_call_workflow()]);
    let command = undo_command(&deployment);
    let early = refusal(&deployment, &command).await;
    assert_eq!(early.as_deref(), Some("task t: there is no such task"));
    deployment.submit(submission("t", "one")).await.unwrap();
    assert_eq!(refusal(&deployment, &command).await, None);
    assert_eq!(deployment.task("t").await.commands.len(), 1);
}

#[tokio::test]
async fn messages_without_an_effect_about_an_unknown_step_or_attempt_are_acknowledged() {
    let mut deployment = MemoryDeployment::new(&[one_call_workflow()]);
    deployment.submit(submission("t", "one")).await.unwrap();
    let before = deployment.task("t").await;
    let of = before.incarnation;
    let of_undo = |outcome: Value| {
        let mut reply = reply(of, "charge", 1, outcome);
        reply["action"] = json!("undo");
        reply
    };
    for message in [
        reply(of, "ship", 1, refused(false)),
        reply(of, "charge[3]", 1, deferred(false)),
        reply(of, "charge", 0, refused(false)),
        reply(of, "charge", 2, deferred(false)),
        of_undo(refused(false)),
        callback(of, "heartbeat"),
        child_ended(of, json!({ "status": "undone", "reason": "no" })),
        child_ended(of, json!({ "status": "refused", "reason": "no" })),
    ] {
        assert_eq!(refusal(&deployment, &message).await, None, "{message}");
    }
    for message in [
        reply(of, "ship", 1, completed()),
        reply(of, "charge", 2, deferred(true)),
        of_undo(completed()),
        callback(of, "completed"),
        child_ended(of, json!({ "status": "processed" })),
        child_ended(of, json!({ "status": "error", "reason": "no" })),
    ] {
        let refusal = refusal(&deployment, &message).await.unwrap();
        assert!(refusal.starts_with("task t: illegal event: "), "{message}: {refusal}");
    }
    assert_eq!(deployment.task("t").await, before);
}

/// Deletes the task `t` before a call.
#[derive(Clone)]
struct DeletedBefore {
    store: MemoryStore,
    call: fn(&PortCall<'_>) -> bool,
}

impl Interceptor for DeletedBefore {
    async fn intercept<T: Send + Sync>(
        &self,
        call: PortCall<'_>,
        effect: impl Future<Output = Result<T, PortError>> + Send,
        _: impl Fn(&T) -> PortReply<'_> + Send,
    ) -> Result<T, PortError> {
        if (self.call)(&call) {
            let task: TaskId = "t".parse().unwrap();
            self.store.delete_expired(&ExpiredItem::Task(task));
        }
        effect.await
    }
}

#[tokio::test]
async fn a_task_that_is_deleted_while_it_is_swept_is_no_failure() {
    let mut deployment = MemoryDeployment::new(&[one_call_workflow()]);
    deployment.submit(submission("t", "one")).await.unwrap();
    deployment.ports.clock().advance(DAY);
    let (store, call) =
        (deployment.ports.store().clone(), |call: &PortCall<'_>| matches!(call, PortCall::Load(_)));
    let ports = deployment.ports.intercepted(DeletedBefore { store, call });
    let swept = steward_supervisor::sweep(&ports, 0, Timestamp::MAX).await.unwrap();
    assert_eq!((swept.due, swept.failed), (1, 0));
}

#[tokio::test]
async fn a_task_that_is_deleted_before_its_save_is_as_one_that_does_not_exist() {
    let mut deployment = MemoryDeployment::new(&[one_call_workflow()]);
    deployment.submit(submission("t", "one")).await.unwrap();
    let of = deployment.task("t").await.incarnation;
    let (store, call) =
        (deployment.ports.store().clone(), |call: &PortCall<'_>| matches!(call, PortCall::Save(_)));
    let ports = deployment.ports.intercepted(DeletedBefore { store, call });
    let request = json!({ "type": "ask", "task_id": "t", "action": "undo", "incarnation": of });
    let response = steward_scheduler::handle(&ports, sqs_event([request.to_string()], 1)).await;
    assert_eq!(response.batch_item_failures, []);
    assert_eq!(deployment.ports.bus().take(), []);
    assert_eq!(deployment.find_task("t").await, None);
}
