//! Events that submit tasks, end to end: an event is put on the bus, a rule delivers it to the submissions queue, and the task
//! runs. Events that cannot create a task are rejected.

use std::time::{Duration, Instant};

use aws_sdk_eventbridge::{Client as EventBridge, types::PutEventsRequestEntry};
use axum::{Json, Router, routing::post};
use serde_json::{Value, json};
use steward_aws::{definitions::PublishError, publisher::Publisher};
use steward_core::{
    definition::workflow::Workflow,
    model::{document::DocumentKey, task::Task},
};
use steward_emulator::{
    host::{Host, HostOptions, publisher},
    resources,
};
use steward_runtime::ports::{Definitions, Ports, StateStore, error_chain};

use crate::support::{TestDeployment, sequential_workflow, serve, sqs_event};

/// A workflow, with this trigger unless it is null.
fn workflow(name: &str, version: u32, trigger: Value) -> Workflow {
    let mut definition = json!({
        "name": name, "version": version,
        "steps": { "pack": { "agent": "a", "request": { "path": "/pack", "body": "${ input }" } } },
    });
    if !trigger.is_null() {
        definition["trigger"] = trigger;
    }
    serde_json::from_value(definition).unwrap()
}

/// A trigger on placed orders, with this expression for the task id.
fn order_placed_trigger(task_id: &str) -> Value {
    json!({ "source": "shop", "detail_type": "Order Placed", "task_id": task_id })
}

/// A host with an agent whose service responds immediately.
async fn start_host(workflows: Vec<Workflow>) -> Host {
    let router = Router::new().route("/pack", post(|| async { Json(json!({ "packed": true })) }));
    let url = serve(router).await;
    let agents = vec![("a".parse().unwrap(), url.parse().unwrap())];
    Host::start(HostOptions { workflows, agents, ..HostOptions::default() }).await.unwrap()
}

/// Puts an event on the bus; returns its id.
async fn put_event(client: &EventBridge, detail_type: &str, detail: Value) -> String {
    let entry = PutEventsRequestEntry::builder()
        .event_bus_name(resources::EVENT_BUS)
        .source("shop")
        .detail_type(detail_type)
        .detail(detail.to_string());
    let response = client.put_events().entries(entry.build()).send().await.unwrap();
    response.entries()[0].event_id().unwrap().to_owned()
}

/// Waits until a task is Processed.
async fn wait_until_processed(host: &Host, id: &str) -> Task {
    let id = id.parse().unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let task = host.ports.store().load(&id).await.unwrap();
        if let Some(task) = task.as_ref().filter(|task| task.process_state.has_stopped()) {
            assert_eq!(task.process_state.to_string(), "Processed");
            return task.clone();
        }
        assert!(Instant::now() < deadline, "{id}: {task:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// The names and patterns of the rules on the bus, sorted.
async fn list_rules(client: &EventBridge) -> Vec<String> {
    let listed = client.list_rules().event_bus_name(resources::EVENT_BUS).send().await.unwrap();
    let mut rules: Vec<_> = listed
        .rules
        .unwrap_or_default()
        .into_iter()
        .map(|rule| format!("{} {}", rule.name.unwrap(), rule.event_pattern.unwrap()))
        .collect();
    rules.sort();
    rules
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_on_the_bus_becomes_a_task_that_is_processed() {
    let host = start_host(vec![
        workflow("order", 1, order_placed_trigger("order-${ event.detail.number }")),
        workflow("audit", 1, json!({ "source": "shop", "detail_type": "Order Placed" })),
        workflow("other", 1, json!({ "source": "shop", "detail_type": "Order Paid" })),
    ])
    .await;
    let client = EventBridge::new(&host.aws.sdk_config());
    let id = put_event(&client, "Order Placed", json!({ "number": 7 })).await;
    put_event(&client, "Order Lost", json!({ "number": 8 })).await;
    assert_eq!(wait_until_processed(&host, "order-7").await.workflow.as_str(), "order");
    assert_eq!(wait_until_processed(&host, &id).await.workflow.as_str(), "audit");
    let id = "order-7".parse().unwrap();
    let task = host.ports.store().load(&id).await.unwrap().unwrap();
    let submitted = host.ports.store().documents_of(&task, &[DocumentKey::Submission]);
    let expected = json!({ "task_id": "order-7", "workflow": "order", "input": { "number": 7 } });
    assert_eq!(submitted.await.unwrap()[0].body, expected);
}

/// A deployment with a publisher and a client of its event bus.
struct TriggerFixture {
    deployment: TestDeployment,
    publisher: Publisher,
    client: EventBridge,
}

impl TriggerFixture {
    async fn open() -> Self {
        let deployment = TestDeployment::new(&sequential_workflow(1)).await;
        let ports = deployment.ports("publisher");
        let publisher = publisher(&deployment.aws, &deployment.config, &ports);
        let client = EventBridge::new(&deployment.aws.sdk_config());
        Self { deployment, publisher, client }
    }

    async fn publish(&self, workflow: &Workflow) {
        self.publisher.publish(workflow).await.unwrap();
    }

    /// Takes the messages that rules delivered to the submissions queue.
    async fn take_submissions(&self) -> Vec<String> {
        let queue = self.deployment.config.scheduler_queue_url.as_str();
        let queue = queue.replace(resources::SCHEDULER_QUEUE, resources::SUBMISSIONS_QUEUE);
        let taken = self.deployment.take_messages(&queue).await;
        taken.into_iter().map(|message| message.body.unwrap()).collect()
    }

    /// Delivers messages to submission. Asserts that it handles all of them.
    async fn submit(&self, texts: Vec<String>) {
        let ports = self.deployment.ports("submission");
        let response = steward_submission::handle(
            &ports,
            &self.deployment.config.reply_queues,
            sqs_event(texts, 1),
        )
        .await;
        assert_eq!(response.batch_item_failures.len(), 0);
    }

    /// Takes the messages of the rejected queue; returns their texts and reasons.
    async fn take_rejected(&self) -> Vec<(String, String)> {
        let taken = self.deployment.take_messages(&self.deployment.config.rejected_queue_url).await;
        let each = taken.into_iter().map(|message| {
            let attributes = message.message_attributes().unwrap();
            let reason = attributes["reason"].string_value().unwrap().to_owned();
            (message.body.unwrap(), reason)
        });
        each.collect()
    }

    /// Takes the alerts about rejected submissions.
    async fn take_refusal_alerts(&self) -> Vec<Value> {
        let alerts = self.deployment.take_alerts().await.into_iter();
        let refused = alerts.filter(|alert| alert["detail-type"] == "Submission Refused");
        refused.map(|alert| alert["detail"]["data"].clone()).collect()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_duplicate_event_creates_one_task() {
    let fixture = TriggerFixture::open().await;
    fixture.publish(&workflow("order", 1, order_placed_trigger("${ event.id }"))).await;
    let id = put_event(&fixture.client, "Order Placed", json!({ "number": 7 })).await;
    let arrived = fixture.take_submissions().await;
    assert_eq!(arrived.len(), 1);
    for _ in 0..2 {
        fixture.submit(vec![arrived[0].clone(), arrived[0].clone()]).await;
    }
    assert_eq!(fixture.deployment.task(&id).await.revision, 1);
    assert_eq!(fixture.take_rejected().await, []);
}

/// Each delivery is evaluated with the trigger that is published at the time. `steward workflow diff` flags the change.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_redelivered_after_its_trigger_changed_the_ids_creates_a_second_task() {
    let fixture = TriggerFixture::open().await;
    fixture
        .publish(&workflow("order", 1, order_placed_trigger("order-${ event.detail.number }")))
        .await;
    put_event(&fixture.client, "Order Placed", json!({ "number": 7 })).await;
    let arrived = fixture.take_submissions().await;
    fixture.submit(arrived.clone()).await;
    fixture
        .publish(&workflow("order", 2, order_placed_trigger("o-${ event.detail.number }")))
        .await;
    fixture.submit(arrived).await;
    let versions = [fixture.deployment.task("order-7").await, fixture.deployment.task("o-7").await];
    assert_eq!(versions.map(|task| task.version), [1, 2]);
    assert_eq!(fixture.take_rejected().await, []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_creates_a_task_of_each_workflow_even_if_one_is_rejected() {
    let fixture = TriggerFixture::open().await;
    fixture
        .publish(&workflow("order", 1, order_placed_trigger("order-${ event.detail.number }")))
        .await;
    fixture.publish(&workflow("vip", 1, order_placed_trigger("vip-${ event.detail.vip }"))).await;
    put_event(&fixture.client, "Order Placed", json!({ "number": 7, "vip": "no valid id" })).await;
    let arrived = fixture.take_submissions().await;
    assert_eq!(arrived.len(), 2, "one message for each rule");
    fixture.submit(arrived.clone()).await;
    assert_eq!(fixture.deployment.task("order-7").await.workflow.as_str(), "order");
    let reason = "workflow `vip`: trigger.task_id: the result is not a valid id: a letter or digit, then letters, digits, \
                  `-`, `_`, `.` and `:`, at most 128 characters";
    let kept = arrived.into_iter().map(|text| (text, reason.to_owned()));
    assert_eq!(fixture.take_rejected().await, kept.collect::<Vec<_>>());
    assert_eq!(fixture.take_refusal_alerts().await, vec![json!({ "reason": reason }); 2]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_trigger_id_that_another_trigger_already_used_is_rejected() {
    let fixture = TriggerFixture::open().await;
    fixture.publish(&workflow("audit", 1, order_placed_trigger("${ event.detail.number }"))).await;
    fixture
        .publish(&workflow("order", 1, order_placed_trigger("${ string(event.detail.number) }")))
        .await;
    put_event(&fixture.client, "Order Placed", json!({ "number": "7" })).await;
    let arrived = fixture.take_submissions().await;
    fixture.submit(vec![arrived[0].clone()]).await;
    // Workflows are evaluated in the order of their names, independent of the order of the messages.
    assert_eq!(fixture.deployment.task("7").await.workflow.as_str(), "audit");
    let reason = "task `7` exists already, with other content".to_owned();
    assert_eq!(fixture.take_rejected().await, [(arrived[0].clone(), reason)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_that_creates_no_task_is_kept_and_alerted() {
    let fixture = TriggerFixture::open().await;
    let mut strict = workflow("order", 1, order_placed_trigger("order-${ event.detail.number }"));
    strict.input = serde_json::from_value(json!({ "required": ["sku"] })).unwrap();
    fixture.publish(&strict).await;
    let envelope = |detail_type: &str, detail: Value| json!({ "id": "e-1", "source": "shop", "detail-type": detail_type, "detail": detail });
    let mut no_id = envelope("Order Placed", json!({}));
    no_id.as_object_mut().unwrap().remove("id");
    let cases = [
        (
            envelope("Order Lost", json!({ "secret": "s" })),
            "no workflow is triggered by source `shop` and detail-type `Order Lost`",
            None,
        ),
        (
            envelope("Order Placed", json!({ "secret": "s" })),
            "workflow `order`: trigger.task_id: expression `event.detail.number`: there is no `number`",
            None,
        ),
        (
            envelope("Order Placed", json!({ "number": 7, "secret": "s" })),
            "input: \"sku\" is a required property",
            Some("order-7"),
        ),
        (no_id, "not a submission: an event without the text field `id`", None),
    ];
    for (envelope, reason, task_id) in cases {
        fixture.submit(vec![envelope.to_string()]).await;
        assert_eq!(fixture.take_rejected().await, [(envelope.to_string(), reason.to_owned())]);
        let mut alert = json!({ "reason": reason });
        if let Some(task_id) = task_id {
            alert["task_id"] = json!(task_id);
        }
        assert_eq!(fixture.take_refusal_alerts().await, [alert]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_rule_follows_the_newest_published_version() {
    let fixture = TriggerFixture::open().await;
    let rule = |detail_type: &str| {
        let pattern = json!({ "source": ["shop"], "detail-type": [detail_type] });
        vec![format!("steward-order {pattern}")]
    };
    let paid = json!({ "source": "shop", "detail_type": "Order Paid" });
    fixture.publish(&workflow("order", 2, order_placed_trigger("a-${ event.id }"))).await;
    assert_eq!(list_rules(&fixture.client).await, rule("Order Placed"));
    // Publishing an older version later does not change the rule.
    fixture.publish(&workflow("order", 1, paid.clone())).await;
    assert_eq!(list_rules(&fixture.client).await, rule("Order Placed"));
    fixture.publish(&workflow("order", 3, paid)).await;
    assert_eq!(list_rules(&fixture.client).await, rule("Order Paid"));
    fixture.publish(&workflow("order", 4, Value::Null)).await;
    assert_eq!(list_rules(&fixture.client).await, [""; 0]);
    for (unpublished, expected) in [
        (4, rule("Order Paid")),
        (3, rule("Order Placed")),
        (1, rule("Order Placed")),
        (2, Vec::new()),
    ] {
        fixture.publisher.unpublish(&"order".parse().unwrap(), unpublished).await.unwrap();
        assert_eq!(list_rules(&fixture.client).await, expected);
    }
    put_event(&fixture.client, "Order Placed", json!({})).await;
    assert_eq!(fixture.take_submissions().await, [""; 0]);
}

/// EventBridge allows 300 rules on a bus, unless the account's quota was increased.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_definition_is_not_published_if_the_bus_has_no_room_for_its_rule() {
    let fixture = TriggerFixture::open().await;
    let order = workflow("order", 1, order_placed_trigger("a-${ event.id }"));
    for n in 0..300 {
        let rule = fixture.client.put_rule().name(format!("other-{n}"));
        let rule = rule.event_bus_name(resources::EVENT_BUS).event_pattern(r#"{"source":["x"]}"#);
        rule.send().await.unwrap();
    }
    let error = fixture.publisher.publish(&order).await.unwrap_err();
    let PublishError::Port(error) = error else { panic!("{error}") };
    assert!(
        error_chain(&error).contains("the maximum number of rules that the account's quota allows"),
        "{error:?}"
    );
    let name = "order".parse().unwrap();
    assert_eq!(fixture.publisher.definitions.published(&name, None).await.unwrap(), None);

    let delete = fixture.client.delete_rule().name("other-0").event_bus_name(resources::EVENT_BUS);
    delete.send().await.unwrap();
    fixture.publish(&order).await;
    put_event(&fixture.client, "Order Placed", json!({})).await;
    assert_eq!(fixture.take_submissions().await.len(), 1);
}

/// The rule is created before the publication, and deleted if the publication fails.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_publication_leaves_no_rule() {
    let fixture = TriggerFixture::open().await;
    fixture.publish(&workflow("order", 1, Value::Null)).await;
    let other = workflow("order", 1, order_placed_trigger("a-${ event.id }"));
    fixture.publisher.publish(&other).await.unwrap_err();
    assert_eq!(list_rules(&fixture.client).await, [""; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn undeliverable_events_go_to_the_submission_dead_letters() {
    let fixture = TriggerFixture::open().await;
    let queue = |name: &str| format!("arn:aws:sqs:us-east-1:000000000000:{name}");
    fixture.publish(&workflow("order", 1, order_placed_trigger("a-${ event.id }"))).await;
    let listed = fixture.client.list_targets_by_rule().rule("steward-order");
    let listed = listed.event_bus_name(resources::EVENT_BUS).send().await.unwrap();
    let [target] = listed.targets() else { panic!("{listed:?}") };
    assert_eq!(target.arn(), queue(resources::SUBMISSIONS_QUEUE));
    let dead_letters = format!("{}{}", resources::SUBMISSIONS_QUEUE, resources::DEAD_LETTERS);
    let kept = target.dead_letter_config().and_then(|config| config.arn());
    assert_eq!(kept, Some(queue(&dead_letters).as_str()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reopened_host_recreates_the_rules_of_published_workflows() {
    let dir = std::env::temp_dir().join(format!("steward-rules-{:x}", std::process::id()));
    let options =
        |workflows| HostOptions { data: Some(dir.clone()), workflows, ..HostOptions::default() };
    let first =
        Host::start(options(vec![workflow("order", 1, order_placed_trigger("a-${ event.id }"))]));
    drop(first.await.unwrap());
    let again = Host::start(options(Vec::new())).await.unwrap();
    let made = list_rules(&EventBridge::new(&again.aws.sdk_config())).await;
    assert_eq!(made.len(), 1, "{made:?}");
    drop(again);
    std::fs::remove_dir_all(dir).unwrap();
}
