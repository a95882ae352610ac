//! Events that submit tasks, end to end: put on the bus, brought by a rule to the submissions queue,
//! carried out. And what becomes of those that cannot be.

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
use steward_runtime::ports::{Definitions, Ports, StateStore, chain};

use crate::support::{Deployment, event, line};

/// A workflow that events of the shop submit tasks to.
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

fn placed(task_id: &str) -> Value {
    json!({ "source": "shop", "detail_type": "Order Placed", "task_id": task_id })
}

/// A host whose agent's service answers at once.
async fn host(workflows: Vec<Workflow>) -> Host {
    let router = Router::new().route("/pack", post(|| async { Json(json!({ "packed": true })) }));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    let agents = vec![("a".parse().unwrap(), url.parse().unwrap())];
    Host::start(HostOptions { workflows, agents, ..HostOptions::default() }).await.unwrap()
}

/// Puts an event on the bus; returns its id.
async fn put(client: &EventBridge, detail_type: &str, detail: Value) -> String {
    let entry = PutEventsRequestEntry::builder()
        .event_bus_name(resources::EVENT_BUS)
        .source("shop")
        .detail_type(detail_type)
        .detail(detail.to_string());
    let answer = client.put_events().entries(entry.build()).send().await.unwrap();
    answer.entries()[0].event_id().unwrap().to_owned()
}

async fn processed(host: &Host, id: &str) -> Task {
    let id = id.parse().unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let task = host.ports.store().load(&id).await.unwrap();
        if let Some(task) = task.as_ref().filter(|task| task.process_state.is_final()) {
            assert_eq!(task.process_state.to_string(), "Processed");
            return task.clone();
        }
        assert!(Instant::now() < deadline, "{id}: {task:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn rules(client: &EventBridge) -> Vec<String> {
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
    let host = host(vec![
        workflow("order", 1, placed("order-${ event.detail.number }")),
        workflow("audit", 1, json!({ "source": "shop", "detail_type": "Order Placed" })),
        workflow("other", 1, json!({ "source": "shop", "detail_type": "Order Paid" })),
    ])
    .await;
    let client = EventBridge::new(&host.aws.sdk_config());
    let id = put(&client, "Order Placed", json!({ "number": 7 })).await;
    put(&client, "Order Lost", json!({ "number": 8 })).await;
    assert_eq!(processed(&host, "order-7").await.workflow.as_str(), "order");
    assert_eq!(processed(&host, &id).await.workflow.as_str(), "audit");
    let id = "order-7".parse().unwrap();
    let task = host.ports.store().load(&id).await.unwrap().unwrap();
    let owner = task.owner();
    let submitted = host.ports.store().documents(&owner, &[DocumentKey::Submission]);
    let expected = json!({ "task_id": "order-7", "workflow": "order", "input": { "number": 7 } });
    assert_eq!(submitted.await.unwrap()[0].body, expected);
}

/// A deployment turned by hand, with what publishes to it.
struct Bus {
    deployment: Deployment,
    publisher: Publisher,
    client: EventBridge,
}

impl Bus {
    async fn open() -> Self {
        let deployment = Deployment::new(&line(1)).await;
        let ports = deployment.ports("publisher");
        let publisher = publisher(&deployment.aws, &deployment.config, &ports.aws);
        let client = EventBridge::new(&deployment.aws.sdk_config());
        Self { deployment, publisher, client }
    }

    async fn publish(&self, workflow: &Workflow) {
        self.publisher.publish(workflow).await.unwrap();
    }

    /// What rules brought to the submissions queue.
    async fn arrived(&self) -> Vec<String> {
        let queue = self.deployment.config.scheduler_queue_url.as_str();
        let queue = queue.replace(resources::SCHEDULER_QUEUE, resources::SUBMISSIONS_QUEUE);
        let taken = self.deployment.take(&queue).await;
        taken.into_iter().map(|message| message.body.unwrap()).collect()
    }

    /// Hands messages to Submission; none may come back.
    async fn hand_in(&self, texts: Vec<String>) {
        let ports = self.deployment.ports("submission");
        let answer = steward_submission::handle(
            &ports,
            &self.deployment.config.reply_queues,
            event(texts, 1),
        )
        .await;
        assert_eq!(answer.batch_item_failures.len(), 0);
    }

    /// Texts on the rejected queue, with their reasons.
    async fn rejected(&self) -> Vec<(String, String)> {
        let taken = self.deployment.take(&self.deployment.config.rejected_queue_url).await;
        let each = taken.into_iter().map(|message| {
            let attributes = message.message_attributes().unwrap();
            let reason = attributes["reason"].string_value().unwrap().to_owned();
            (message.body.unwrap(), reason)
        });
        each.collect()
    }

    async fn refusals_alerted(&self) -> Vec<Value> {
        let alerts = self.deployment.alerts().await.into_iter();
        let refused = alerts.filter(|alert| alert["detail-type"] == "Submission Refused");
        refused.map(|alert| alert["detail"]["data"].clone()).collect()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_event_twice_is_one_task() {
    let bus = Bus::open().await;
    bus.publish(&workflow("order", 1, placed("${ event.id }"))).await;
    let id = put(&bus.client, "Order Placed", json!({ "number": 7 })).await;
    let arrived = bus.arrived().await;
    assert_eq!(arrived.len(), 1);
    for _ in 0..2 {
        bus.hand_in(vec![arrived[0].clone(), arrived[0].clone()]).await;
    }
    assert_eq!(bus.deployment.task(&id).await.revision, 1);
    assert_eq!(bus.rejected().await, []);
}

/// Each delivery is read with the trigger that is published then; `steward workflow diff` flags the change.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_that_comes_again_after_its_trigger_named_tasks_otherwise_is_a_second_task() {
    let bus = Bus::open().await;
    bus.publish(&workflow("order", 1, placed("order-${ event.detail.number }"))).await;
    put(&bus.client, "Order Placed", json!({ "number": 7 })).await;
    let arrived = bus.arrived().await;
    bus.hand_in(arrived.clone()).await;
    bus.publish(&workflow("order", 2, placed("o-${ event.detail.number }"))).await;
    bus.hand_in(arrived).await;
    let versions = [bus.deployment.task("order-7").await, bus.deployment.task("o-7").await];
    assert_eq!(versions.map(|task| task.version), [1, 2]);
    assert_eq!(bus.rejected().await, []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_for_two_workflows_is_a_task_of_each_and_one_refusal_does_not_disturb_the_other() {
    let bus = Bus::open().await;
    bus.publish(&workflow("order", 1, placed("order-${ event.detail.number }"))).await;
    bus.publish(&workflow("vip", 1, placed("vip-${ event.detail.vip }"))).await;
    put(&bus.client, "Order Placed", json!({ "number": 7, "vip": "no valid id" })).await;
    let arrived = bus.arrived().await;
    assert_eq!(arrived.len(), 2, "once for each rule");
    bus.hand_in(arrived.clone()).await;
    assert_eq!(bus.deployment.task("order-7").await.workflow.as_str(), "order");
    let reason = "workflow `vip`: trigger.task_id: gives no valid id: a letter or digit, then letters, digits, \
                  `-`, `_`, `.` and `:`, at most 128 characters";
    let kept = arrived.into_iter().map(|text| (text, reason.to_owned()));
    assert_eq!(bus.rejected().await, kept.collect::<Vec<_>>());
    assert_eq!(bus.refusals_alerted().await, vec![json!({ "reason": reason }); 2]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ids_that_two_triggers_make_alike_after_all_are_refused_as_any_id_that_is_taken() {
    let bus = Bus::open().await;
    bus.publish(&workflow("audit", 1, placed("${ event.detail.number }"))).await;
    bus.publish(&workflow("order", 1, placed("${ string(event.detail.number) }"))).await;
    put(&bus.client, "Order Placed", json!({ "number": "7" })).await;
    let arrived = bus.arrived().await;
    bus.hand_in(vec![arrived[0].clone()]).await;
    // By name, so whichever message comes first.
    assert_eq!(bus.deployment.task("7").await.workflow.as_str(), "audit");
    let reason = "task `7` exists already, with other content".to_owned();
    assert_eq!(bus.rejected().await, [(arrived[0].clone(), reason)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_that_makes_no_task_is_kept_and_alerted() {
    let bus = Bus::open().await;
    let mut strict = workflow("order", 1, placed("order-${ event.detail.number }"));
    strict.input = serde_json::from_value(json!({ "required": ["sku"] })).unwrap();
    bus.publish(&strict).await;
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
        (no_id, "not a submission: an event without a text `id`", None),
    ];
    for (envelope, reason, task_id) in cases {
        bus.hand_in(vec![envelope.to_string()]).await;
        assert_eq!(bus.rejected().await, [(envelope.to_string(), reason.to_owned())]);
        let mut alert = json!({ "reason": reason });
        if let Some(task_id) = task_id {
            alert["task_id"] = json!(task_id);
        }
        assert_eq!(bus.refusals_alerted().await, [alert]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_rule_follows_the_newest_published_version() {
    let bus = Bus::open().await;
    let rule = |detail_type: &str| {
        let pattern = json!({ "source": ["shop"], "detail-type": [detail_type] });
        vec![format!("steward-order {pattern}")]
    };
    let paid = json!({ "source": "shop", "detail_type": "Order Paid" });
    bus.publish(&workflow("order", 2, placed("a-${ event.id }"))).await;
    assert_eq!(rules(&bus.client).await, rule("Order Placed"));
    // An older version, published late, changes nothing.
    bus.publish(&workflow("order", 1, paid.clone())).await;
    assert_eq!(rules(&bus.client).await, rule("Order Placed"));
    bus.publish(&workflow("order", 3, paid)).await;
    assert_eq!(rules(&bus.client).await, rule("Order Paid"));
    bus.publish(&workflow("order", 4, Value::Null)).await;
    assert_eq!(rules(&bus.client).await, [""; 0]);
    for (unpublished, expected) in [
        (4, rule("Order Paid")),
        (3, rule("Order Placed")),
        (1, rule("Order Placed")),
        (2, Vec::new()),
    ] {
        bus.publisher.unpublish(&"order".parse().unwrap(), unpublished).await.unwrap();
        assert_eq!(rules(&bus.client).await, expected);
    }
    put(&bus.client, "Order Placed", json!({})).await;
    assert_eq!(bus.arrived().await, [""; 0]);
}

/// EventBridge allows 300 rules on a bus, unless the account's quota was raised.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_definition_for_whose_rule_the_bus_has_no_room_is_not_published() {
    let bus = Bus::open().await;
    let order = workflow("order", 1, placed("a-${ event.id }"));
    for n in 0..300 {
        let rule = bus.client.put_rule().name(format!("other-{n}"));
        let rule = rule.event_bus_name(resources::EVENT_BUS).event_pattern(r#"{"source":["x"]}"#);
        rule.send().await.unwrap();
    }
    let error = bus.publisher.publish(&order).await.unwrap_err();
    let PublishError::Port(error) = error else { panic!("{error}") };
    assert!(
        chain(&error).contains("the maximum number of rules that the account's quota allows"),
        "{error:?}"
    );
    let name = "order".parse().unwrap();
    assert_eq!(bus.publisher.definitions.published(&name, None).await.unwrap(), None);

    let delete = bus.client.delete_rule().name("other-0").event_bus_name(resources::EVENT_BUS);
    delete.send().await.unwrap();
    bus.publish(&order).await;
    put(&bus.client, "Order Placed", json!({})).await;
    assert_eq!(bus.arrived().await.len(), 1);
}

/// The rule comes first, and goes again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_definition_that_is_not_published_leaves_no_rule() {
    let bus = Bus::open().await;
    bus.publish(&workflow("order", 1, Value::Null)).await;
    let other = workflow("order", 1, placed("a-${ event.id }"));
    bus.publisher.publish(&other).await.unwrap_err();
    assert_eq!(rules(&bus.client).await, [""; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_rule_cannot_deliver_goes_to_the_queues_dead_letters() {
    let bus = Bus::open().await;
    let queue = |name: &str| format!("arn:aws:sqs:us-east-1:000000000000:{name}");
    bus.publish(&workflow("order", 1, placed("a-${ event.id }"))).await;
    let listed = bus.client.list_targets_by_rule().rule("steward-order");
    let listed = listed.event_bus_name(resources::EVENT_BUS).send().await.unwrap();
    let [target] = listed.targets() else { panic!("{listed:?}") };
    assert_eq!(target.arn(), queue(resources::SUBMISSIONS_QUEUE));
    let dead_letters = format!("{}{}", resources::SUBMISSIONS_QUEUE, resources::DEAD_LETTERS);
    let kept = target.dead_letter_config().and_then(|config| config.arn());
    assert_eq!(kept, Some(queue(&dead_letters).as_str()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_that_is_opened_again_makes_the_rules_of_what_was_published_before() {
    let dir = std::env::temp_dir().join(format!("steward-rules-{:x}", std::process::id()));
    let options =
        |workflows| HostOptions { data: Some(dir.clone()), workflows, ..HostOptions::default() };
    let first = Host::start(options(vec![workflow("order", 1, placed("a-${ event.id }"))]));
    drop(first.await.unwrap());
    let again = Host::start(options(Vec::new())).await.unwrap();
    let made = rules(&EventBridge::new(&again.aws.sdk_config())).await;
    assert_eq!(made.len(), 1, "{made:?}");
    drop(again);
    std::fs::remove_dir_all(dir).unwrap();
}
