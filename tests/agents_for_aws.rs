//! Agents of the kinds `sqs`, `events` and `aws` in a local host, and error bodies: from the definition to the queue, and to what
//! people and clients see.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use axum::{Router, http::StatusCode};
use serde_json::{Value, json};
use steward_core::{
    definition::workflow::Workflow,
    model::{
        document::DocumentKey,
        task::{ProcessState, Task},
    },
};
use steward_emulator::{
    embedded::EventRule,
    host::{Host, HostOptions},
    resources,
};
use steward_runtime::ports::{Ports, StateStore};

use crate::support::serve;

async fn start_host(workflow: Value, agents: &[(&str, &str)]) -> Host {
    let workflow: Workflow = serde_json::from_value(workflow).unwrap();
    assert_eq!(workflow.problems(), []);
    let agent = |(name, target): &(&str, &str)| (name.parse().unwrap(), target.parse().unwrap());
    let host = Host::start(HostOptions {
        listen: Some("127.0.0.1:0".parse().unwrap()),
        workflows: vec![workflow],
        agents: agents.iter().map(agent).collect(),
        supervise_every: Some(Duration::from_millis(500)),
        ..HostOptions::default()
    });
    host.await.unwrap()
}

async fn submit(host: &Host, input: Value) -> Task {
    let url = format!("http://{}/tasks", host.address.unwrap());
    let submission = json!({ "task_id": "o-1", "workflow": "w", "input": input }).to_string();
    let response = reqwest::Client::new().post(url).body(submission).send().await.unwrap();
    assert_eq!(response.status().as_u16(), 202);
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let task = host.ports.store().load(&"o-1".parse().unwrap()).await.unwrap();
        match task {
            Some(task) if task.process_state.has_stopped() => return task,
            Some(task) if task.process_state == ProcessState::Error => return task,
            other => assert!(Instant::now() < deadline, "the task has not ended: {other:#?}"),
        }
        tokio::task::yield_now().await;
    }
}

/// The messages in a queue, each with its attribute `idempotency-key`.
async fn messages(host: &Host, queue: &str) -> Vec<(Value, Option<String>)> {
    let receive = host.sqs().receive_message().queue_url(host.queue_url(queue));
    let receive = receive.max_number_of_messages(10).message_attribute_names("All");
    let messages = receive.wait_time_seconds(1).send().await.unwrap().messages.unwrap_or_default();
    let read = |message: aws_sdk_sqs::types::Message| {
        let attributes = message.message_attributes.unwrap_or_default();
        let key = attributes.get("idempotency-key");
        let key = key.and_then(|key| key.string_value()).map(str::to_owned);
        (serde_json::from_str(&message.body.unwrap()).unwrap(), key)
    };
    messages.into_iter().map(read).collect()
}

#[tokio::test]
async fn steps_send_messages_and_publish_events() {
    let workflow = json!({
        "name": "w", "version": 1,
        "steps": {
            "tell": {
                "agent": "warehouse",
                "request": { "path": "/orders", "body": { "order": "${ task.id }" } },
            },
            "announce": {
                "agent": "announcements", "after": ["tell"],
                "request": { "path": "/", "body": {
                    "source": "shop", "detail-type": "Order Shipped",
                    "detail": { "message": "${ steps.tell.output.message_id }" },
                } },
            },
        },
        "output": "${ steps.announce.output.event_id }",
    });
    let agents = [("warehouse", "sqs:orders,returns"), ("announcements", "events:announcements")];
    let host = start_host(workflow, &agents).await;
    host.aws.add_rule(EventRule {
        bus: "announcements".to_owned(),
        source: Some("shop".to_owned()),
        detail_type: None,
        queue_url: host.queue_url("returns"),
    });
    let task = submit(&host, json!({})).await;
    assert_eq!(task.process_state, ProcessState::Processed, "{:?}", task.error);
    let sent = messages(&host, "orders").await;
    assert_eq!(sent, [(json!({ "order": "o-1" }), Some("o-1/tell/do".to_owned()))]);
    let published = messages(&host, "returns").await;
    let [(event, _)] = published.as_slice() else { panic!("{published:?}") };
    assert_eq!(event["detail-type"], "Order Shipped");
    assert_eq!(event["resources"], json!(["o-1/announce/do"]));
    assert!(event["detail"]["message"].is_string(), "{event}");
}

#[tokio::test]
async fn a_path_that_names_no_target_fails_the_step() {
    let workflow = json!({
        "name": "w", "version": 1,
        "steps": { "tell": { "agent": "warehouse", "request": { "path": "/other", "body": 1 } } },
    });
    let host = start_host(workflow, &[("warehouse", "sqs:orders")]).await;
    let task = submit(&host, json!({})).await;
    let reason =
        "step tell: the request's path is not the name of a target of this agent, one of `/orders`";
    assert_eq!((task.process_state, task.error.as_deref()), (ProcessState::Error, Some(reason)));
    assert_eq!(messages(&host, "orders").await, []);
}

/// The second put is a refusal, so its step did not run, and the task undoes the first one.
#[tokio::test]
async fn a_step_puts_an_item_and_a_put_with_a_failed_condition_is_refused() {
    let put = json!({
        "TableName": "orders", "Item": { "id": { "S": "${ task.id }" } },
        "ConditionExpression": "attribute_not_exists(id)",
    });
    let table = json!({
        "TableName": "orders", "KeySchema": [{ "AttributeName": "id", "KeyType": "HASH" }],
        "AttributeDefinitions": [{ "AttributeName": "id", "AttributeType": "S" }],
        "BillingMode": "PAY_PER_REQUEST",
    });
    let delete = json!({ "TableName": "orders", "Key": { "id": { "S": "${ task.id }" } } });
    let recovery = json!({ "attempts": 1, "then": "undo" });
    let workflow = json!({
        "name": "w", "version": 1,
        "steps": {
            "create": { "agent": "store", "request": { "aws": "dynamodb:CreateTable", "body": table } },
            "first": {
                "agent": "store", "after": ["create"],
                "request": { "aws": "dynamodb:PutItem", "body": put },
                "undo": { "request": { "aws": "dynamodb:DeleteItem", "body": delete } },
            },
            "look": {
                "agent": "store", "after": ["first"], "read_only": true,
                "request": { "aws": "dynamodb:GetItem", "body": delete },
                "output": "${ response.body.Item.id.S }",
            },
            "second": {
                "agent": "store", "after": ["look"], "recovery": recovery,
                "when": "${ steps.look.output == task.id }",
                "request": { "aws": "dynamodb:PutItem", "body": put },
            },
        },
    });
    let host = start_host(workflow, &[("store", "aws")]).await;
    let task = submit(&host, json!({})).await;
    assert_eq!(task.process_state, ProcessState::Undone, "{:?}", task.error);
    let second = &task.steps["second"].forward;
    assert!(second.state.is_failed() && !second.may_have_run, "{second:?}");
    let all = ["!".to_owned()..="~".to_owned()];
    let documents = host.ports.store().documents_in(&task, &all).await.unwrap();
    let failure = documents.iter().find(|one| one.key.to_string() == "step/second/1/failure");
    let reason = &failure.unwrap().body["reason"];
    assert_eq!(*reason, "HTTP 400 Bad Request: ConditionalCheckFailedException");
    let tables = aws_sdk_dynamodb::Client::new(&host.aws.sdk_config());
    let items = tables.scan().table_name("orders").send().await.unwrap();
    assert_eq!(items.items(), []);
}

#[tokio::test]
async fn an_error_body_is_in_the_failure_and_in_nothing_that_leaves_steward() {
    const SAID: &str = "said-by-the-service";
    let refuse = || async { (StatusCode::PAYMENT_REQUIRED, format!(r#"{{"no":"{SAID}"}}"#)) };
    let router = Router::new().fallback(refuse);
    let url = serve(router).await;
    let workflow = json!({
        "name": "w", "version": 1, "lifecycle_events": ["step_failed", "error"],
        "steps": { "charge": { "agent": "payment", "request": { "path": "/charges" } } },
    });
    let host = start_host(workflow, &[("payment", url.as_str())]).await;
    let mut events = host.aws.subscribe_events();
    let task = submit(&host, json!({})).await;
    assert_eq!(task.error.as_deref(), Some("step charge: HTTP 402 Payment Required"));
    let all = ["!".to_owned()..="~".to_owned()];
    let documents = host.ports.store().documents_in(&task, &all).await.unwrap();
    let bodies: BTreeMap<_, _> =
        documents.into_iter().map(|document| (document.key.to_string(), document.body)).collect();
    let with_body = bodies.iter().filter(|(_, body)| body.to_string().contains(SAID));
    let keys: Vec<_> = with_body.map(|(key, _)| key.as_str()).collect();
    assert_eq!(keys, ["step/charge/1/failure"]);
    assert!(matches!("step/charge/1/failure".parse(), Ok(DocumentKey::Failure(_))));
    assert_eq!(bodies["step/charge/1/failure"]["detail"], format!(r#"{{"no":"{SAID}"}}"#));
    let url = format!("http://{}/tasks/o-1", host.address.unwrap());
    let status = reqwest::get(url).await.unwrap().text().await.unwrap();
    assert!(status.contains("HTTP 402") && !status.contains(SAID), "{status}");
    let alerts = messages(&host, resources::ALERTS_QUEUE).await;
    assert!(!alerts.is_empty());
    let mut published = Vec::new();
    while let Ok(event) = events.try_recv() {
        published.push(event);
    }
    let outside = format!("{alerts:?} {published:?}");
    assert!(outside.contains("HTTP 402") && !outside.contains(SAID), "{outside}");
}
