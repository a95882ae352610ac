//! Steps that wait for an event: from the bus through the rule and the events queue to the step. Each handler runs on the
//! embedded AWS; nothing runs in the background unless a test starts a host.

use std::time::{Duration, Instant};

use aws_sdk_eventbridge::{Client as EventBridge, types::PutEventsRequestEntry};
use serde_json::{Value, json};
use steward_core::{
    definition::workflow::Workflow,
    model::{
        attempt::{Action, AttemptId},
        document::DocumentKey,
        json_text::to_json_value,
        task::ProcessState,
    },
};
use steward_emulator::{
    host::{Host, HostOptions, publisher},
    resources,
};
use steward_runtime::ports::{Ports, StateStore};

use crate::support::{TestDeployment, failed_message_ids, sqs_event, wake_message};

/// A workflow whose only step waits for the payment of the order. `key` is the correlation key of the event.
fn paid(version: u32, key: &str) -> Workflow {
    serde_json::from_value(json!({
        "name": "line", "version": version, "complete_within": "3d",
        "steps": { "paid": {
            "wait": {
                "event": {
                    "source": "shop", "detail_type": "Paid",
                    "key": key, "equals": "${ input.order }",
                },
                "within": "2d",
            },
        } },
    }))
    .unwrap()
}

const KEY: &str = "${ event.detail.order }";

async fn put_event(client: &EventBridge, source: &str, detail: Value) {
    put_event_of_type(client, (source, "Paid"), detail).await;
}

async fn put_event_of_type(client: &EventBridge, (source, of): (&str, &str), detail: Value) {
    let entry = PutEventsRequestEntry::builder()
        .event_bus_name(resources::EVENT_BUS)
        .source(source)
        .detail_type(of)
        .detail(detail.to_string());
    let response = client.put_events().entries(entry.build()).send().await.unwrap();
    assert_eq!(response.failed_entry_count, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_on_the_bus_completes_the_step_that_waits_for_it() {
    let options = HostOptions { workflows: vec![paid(1, KEY)], ..HostOptions::default() };
    let host = Host::start(options).await.unwrap();
    let client = EventBridge::new(&host.aws.sdk_config());
    // The event for the second task comes first.
    put_event(&client, "shop", json!({ "order": "o-2", "amount": 5 })).await;
    for (id, order) in [("t-1", "o-1"), ("t-2", "o-2")] {
        let submission = json!({ "task_id": id, "workflow": "line", "input": { "order": order } });
        let queue = host.queue_url(resources::SUBMISSIONS_QUEUE);
        let send = host.sqs().send_message().queue_url(queue);
        send.message_body(submission.to_string()).send().await.unwrap();
    }
    put_event(&client, "shop", json!({ "order": "o-1", "amount": 7 })).await;
    for (id, amount) in [("t-1", 7), ("t-2", 5)] {
        let id = id.parse().unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        let task = loop {
            let task = host.ports.store().load(&id).await.unwrap();
            match task.filter(|task| task.process_state.has_stopped()) {
                Some(task) => break task,
                None => assert!(Instant::now() < deadline, "{id} does not end"),
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        };
        assert_eq!(task.process_state, ProcessState::Processed);
        let step = "paid".parse().unwrap();
        let output = DocumentKey::Output(AttemptId { step, action: Action::Do, number: 1 });
        let output = host.ports.store().documents_of(&task, &[output]).await.unwrap();
        assert_eq!(output[0].body["detail"]["amount"], amount);
    }
}

/// A workflow whose only step waits until the order is paid, or its cart is dropped.
fn paid_or_dropped() -> Workflow {
    let mut workflow = to_json_value(&paid(1, KEY));
    let dropped =
        json!({ "source": "carts", "detail_type": "Dropped", "key": "${ event.detail.cart }" });
    workflow["steps"]["paid"]["wait"]["event"]["or"] = json!([dropped]);
    serde_json::from_value(workflow).unwrap()
}

/// A deployment in which tests carry the messages between queues and handlers.
struct Fixture {
    deployment: TestDeployment,
    client: EventBridge,
}

impl Fixture {
    async fn open(workflow: &Workflow) -> Self {
        let deployment = TestDeployment::new(workflow).await;
        let ports = deployment.ports("publisher");
        let publisher = publisher(&deployment.aws, &deployment.config, &ports);
        publisher.sync_all_rules().await.unwrap();
        let client = EventBridge::new(&deployment.aws.sdk_config());
        Self { deployment, client }
    }

    async fn take_events(&self) -> Vec<String> {
        let taken = self.deployment.take_messages(&self.deployment.config.events_queue_url).await;
        taken.into_iter().filter_map(|message| message.body).collect()
    }

    /// Handles messages of the events queue; returns the ids of those that failed.
    async fn handle(&self, messages: Vec<String>, receives: u32) -> Vec<String> {
        let ports = self.deployment.ports("submission");
        let batch = sqs_event(messages, receives);
        let response = steward_submission::events::handle(&ports, batch).await;
        failed_message_ids(&response).into_iter().map(str::to_owned).collect()
    }

    /// Submits a task that waits for the payment of this order, and starts it. Returns its subscription.
    async fn start(&self, id: &str, order: Value) -> Vec<String> {
        let ports = self.deployment.ports("submission");
        let submission = json!({ "task_id": id, "workflow": "line", "input": { "order": order } });
        let batch = sqs_event([submission.to_string()], 1);
        let queues = &self.deployment.config.reply_queues;
        let response = steward_submission::handle(&ports, queues, batch).await;
        assert_eq!(failed_message_ids(&response), Vec::<&str>::new());
        self.deployment.take_scheduler_messages().await;
        self.schedule(vec![wake_message(id)]).await;
        self.take_events().await
    }

    async fn schedule(&self, messages: Vec<String>) {
        let ports = self.deployment.ports("scheduler");
        let response = steward_scheduler::handle(&ports, sqs_event(messages, 1)).await;
        assert_eq!(failed_message_ids(&response), Vec::<&str>::new());
    }

    /// Handles all replies to the scheduler; returns how many there were.
    async fn schedule_replies(&self) -> usize {
        let replies = self.deployment.take_scheduler_messages().await;
        let count = replies.len();
        self.schedule(replies).await;
        count
    }

    async fn state(&self, id: &str) -> String {
        let task = self.deployment.task(id).await;
        format!("{}, paid {}", task.process_state, task.steps["paid"].forward.state.name())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn subscription_and_event_complete_the_step_in_any_order_and_any_number() {
    let fixture = Fixture::open(&paid(1, KEY)).await;
    for (id, event_first) in [("t-1", true), ("t-2", false)] {
        let subscription = fixture.start(id, json!(id)).await;
        assert_eq!(subscription.len(), 1);
        put_event(&fixture.client, "shop", json!({ "order": id })).await;
        let event = fixture.take_events().await;
        assert_eq!(event.len(), 1, "{event:?}");
        let both = if event_first { [event, subscription] } else { [subscription, event] };
        for (round, replies) in [(0, [0, 1]), (1, [1, 1])] {
            for (messages, expected) in both.iter().zip(replies) {
                assert_eq!(fixture.handle(messages.clone(), round + 1).await, Vec::<String>::new());
                assert_eq!(fixture.schedule_replies().await, expected, "{id}, round {round}");
            }
        }
        assert_eq!(fixture.state(id).await, "Processed, paid completed");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_of_others_complete_nothing() {
    let fixture = Fixture::open(&paid(1, KEY)).await;
    let subscription = fixture.start("t-1", json!("o-1")).await;
    fixture.handle(subscription, 1).await;
    put_event(&fixture.client, "bank", json!({ "order": "o-1" })).await;
    assert_eq!(fixture.take_events().await, Vec::<String>::new(), "no rule matches the source");
    for detail in [json!({ "order": "o-2" }), json!({ "order": { "id": "o-1" } }), json!({})] {
        put_event(&fixture.client, "shop", detail).await;
        let event = fixture.take_events().await;
        assert_eq!(event.len(), 1);
        assert_eq!(fixture.handle(event, 1).await, Vec::<String>::new());
    }
    assert_eq!(fixture.schedule_replies().await, 0);
    assert_eq!(fixture.state("t-1").await, "Processing, paid running");
    // A client may send to the submissions queue. An event that it makes up there completes nothing.
    let forged = json!({
        "id": "e", "source": "shop", "detail-type": "Paid", "detail": { "order": "o-1" },
    });
    let ports = fixture.deployment.ports("submission");
    let queues = &fixture.deployment.config.reply_queues;
    steward_submission::handle(&ports, queues, sqs_event([forged.to_string()], 1)).await;
    assert_eq!(fixture.schedule_replies().await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_of_several_events_completes_the_step() {
    let fixture = Fixture::open(&paid_or_dropped()).await;
    for order in ["o-1", "o-2", "o-3"] {
        let subscription = fixture.start(order, json!(order)).await;
        fixture.handle(subscription, 1).await;
    }
    let (client, dropped) = (&fixture.client, ("carts", "Dropped"));
    put_event_of_type(client, dropped, json!({ "order": "o-3" })).await;
    put_event_of_type(client, ("shop", "Dropped"), json!({ "cart": "o-3" })).await;
    put_event_of_type(client, dropped, json!({ "cart": "o-1" })).await;
    put_event(client, "shop", json!({ "order": "o-1" })).await;
    put_event(client, "shop", json!({ "order": "o-2" })).await;
    for event in fixture.take_events().await {
        assert_eq!(fixture.handle(vec![event], 1).await, Vec::<String>::new());
    }
    assert_eq!(fixture.schedule_replies().await, 2);
    for (order, of) in [("o-1", "Dropped"), ("o-2", "Paid")] {
        assert_eq!(fixture.state(order).await, "Processed, paid completed");
        let task = fixture.deployment.task(order).await;
        let step = "paid".parse().unwrap();
        let output = DocumentKey::Output(AttemptId { step, action: Action::Do, number: 1 });
        let ports = fixture.deployment.ports("reader");
        let output = ports.store().documents_of(&task, &[output]).await.unwrap();
        assert_eq!(output[0].body["detail-type"], of);
    }
    assert_eq!(fixture.state("o-3").await, "Processing, paid running", "the key of the other type");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_tasks_cannot_wait_for_the_same_event() {
    let fixture = Fixture::open(&paid(1, KEY)).await;
    for id in ["t-1", "t-2"] {
        let subscription = fixture.start(id, json!(7)).await;
        fixture.handle(subscription, 1).await;
        fixture.schedule_replies().await;
    }
    assert_eq!(fixture.state("t-2").await, "Error, paid failed");
    let reason = fixture.deployment.task("t-2").await.error.unwrap();
    assert!(
        reason.contains("step paid of task t-1 waits for an event with the same key"),
        "{reason}"
    );
    put_event(&fixture.client, "shop", json!({ "order": "7" })).await;
    let event = fixture.take_events().await;
    fixture.handle(event, 1).await;
    assert_eq!(fixture.schedule_replies().await, 1);
    assert_eq!(fixture.state("t-1").await, "Processed, paid completed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_completes_steps_of_every_version() {
    let fixture = Fixture::open(&paid(1, KEY)).await;
    let subscription = fixture.start("t-1", json!("o-1")).await;
    let ports = fixture.deployment.ports("publisher");
    let publisher = publisher(&fixture.deployment.aws, &fixture.deployment.config, &ports);
    publisher.publish(&paid(2, "${ event.detail.ref }")).await.unwrap();
    let newer = fixture.start("t-2", json!("o-1")).await;
    fixture.handle([subscription, newer].concat(), 1).await;
    put_event(&fixture.client, "shop", json!({ "order": "o-1", "ref": "o-1" })).await;
    let event = fixture.take_events().await;
    assert_eq!(event.len(), 1);
    fixture.handle(event, 1).await;
    assert_eq!(fixture.schedule_replies().await, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_value_that_is_no_key_and_an_event_that_is_too_large_fail_the_step() {
    let fixture = Fixture::open(&paid(1, KEY)).await;
    assert_eq!(fixture.start("t-1", json!([1])).await, Vec::<String>::new());
    assert_eq!(fixture.state("t-1").await, "Error, paid failed");
    let subscription = fixture.start("t-2", json!("o-2")).await;
    fixture.handle(subscription, 1).await;
    put_event(&fixture.client, "shop", json!({ "order": "o-2", "text": "x".repeat(140_000) }))
        .await;
    let event = fixture.take_events().await;
    fixture.handle(event, 1).await;
    fixture.schedule_replies().await;
    let reason = fixture.deployment.task("t-2").await.error.unwrap();
    assert!(reason.contains("the limit is 131072"), "{reason}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_corrupt_message_is_alerted_once_and_becomes_a_dead_letter() {
    let fixture = Fixture::open(&paid(1, KEY)).await;
    fixture.deployment.take_alerts().await;
    for receives in [1, 2] {
        let failed =
            fixture.handle(vec!["{}".to_owned(), r#"{"detail-type":1}"#.to_owned()], receives);
        assert_eq!(failed.await.len(), 2);
    }
    assert_eq!(fixture.deployment.take_alerts().await.len(), 2);
}

/// The event may arrive again, from a dead-letter queue for example, after the task has expired.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_reply_for_an_event_to_a_task_that_has_expired_is_ignored() {
    let deployment = TestDeployment::new(&paid(1, KEY)).await;
    let ports = deployment.ports("scheduler");
    for (agent, failed) in [(Value::Null, [].as_slice()), (json!("a"), &["m-0"])] {
        let reply = json!({
            "type": "reply", "task_id": "gone", "step": "paid", "action": "do", "attempt": 1, "incarnation": 7,
            "outcome": { "status": "completed", "output": 1 }, "agent": agent,
        });
        let response = steward_scheduler::handle(&ports, sqs_event([reply.to_string()], 1)).await;
        assert_eq!(failed_message_ids(&response), failed, "{agent}");
    }
}
