//! The supervisor with many tasks, and its checks of the dead-letter queues.

use std::{collections::HashMap, num::NonZeroU32};

use aws_sdk_dynamodb::types::{AttributeValue, PutRequest, WriteRequest};
use futures_util::{StreamExt, stream};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use steward_aws::{
    meter::{AwsMeter, total},
    ports::SharedInterceptor,
};
use steward_core::{
    definition::plan::Plan,
    model::{
        document::{Document, DocumentKey},
        task::{ProcessState, Task},
    },
    submission::accept,
};
use steward_emulator::resources;
use steward_runtime::{
    agents::{self, RegisterOutcome},
    drive::TASKS_AT_ONCE,
    ports::{Clock, Ports, PutOutcome, StateStore, shard_of},
};
use steward_supervisor::{run_once, sweep};

use crate::support::{
    InjectedFault, SdkFaultInjector, TestDeployment, agent_registration, commands_event,
    completed_reply, scheduler_instance, sequential_workflow, sqs_event,
};

const TASKS: usize = 25_000;
const OVERDUE: usize = 1_000;

/// DynamoDB's limit of items in one `BatchWriteItem`.
const BATCH: usize = 25;

/// Writes tasks to the table as submission does, without wakes.
async fn fill(deployment: &TestDeployment) {
    let now = deployment.clock.now();
    let client = aws_sdk_dynamodb::Client::new(&deployment.aws.sdk_config());
    let shards = deployment.config.shards;
    let ids: Vec<_> = (0..TASKS).collect();
    let batches = ids.chunks(BATCH).map(|numbers| {
        let writes = numbers.iter().map(|number| {
            // Every hundredth task was due an hour ago; the others are due in an hour.
            let hours = if number % (TASKS / OVERDUE) == 0 { -1 } else { 1 };
            put(&task(*number, now + SignedDuration::from_hours(hours)), shards)
        });
        let writes: Vec<_> = writes.collect();
        client.batch_write_item().request_items(&deployment.config.tasks_table, writes).send()
    });
    stream::iter(batches)
        .buffer_unordered(4)
        .for_each(async |written| {
            assert!(written.unwrap().unprocessed_items.unwrap_or_default().is_empty());
        })
        .await;
    // The submission documents of the overdue tasks, which will run.
    let ports = deployment.ports("submission");
    for number in (0..TASKS).step_by(TASKS / OVERDUE) {
        let task = task(number, now - SignedDuration::from_hours(1));
        let body = json!({ "task_id": task.task_id, "workflow": "line", "input": null });
        let submitted = Document::new(DocumentKey::Submission, now, body);
        let (owner, retention) = (task.document_owner(), task.document_retention());
        let put = ports.store().put_document(&owner, retention, &submitted).await.unwrap();
        assert_eq!(put, PutOutcome::Stored);
    }
}

fn task(number: usize, due: Timestamp) -> Task {
    let submission = json!({ "task_id": format!("t-{number}"), "workflow": "line" });
    let submission = serde_json::from_value(submission).unwrap();
    let timing = steward_core::model::time::Timing {
        pickup_within: std::time::Duration::ZERO,
        clock_skew: std::time::Duration::ZERO,
        retention: steward_core::model::time::Timing::RETENTION,
    };
    let submitted_at = due - SignedDuration::from_hours(1);
    let (task, _) = accept(
        &submission,
        &Plan::new(sequential_workflow(1)).unwrap(),
        None,
        submitted_at,
        timing,
    )
    .unwrap();
    Task { due: Some(due), ..task }
}

fn put(task: &Task, shards: NonZeroU32) -> WriteRequest {
    let mut item: HashMap<String, AttributeValue> = serde_dynamo::to_item(task).unwrap();
    let shard = shard_of(&task.task_id, shards).to_string();
    item.insert("shard".to_owned(), AttributeValue::N(shard));
    let request = PutRequest::builder().set_item(Some(item)).build().unwrap();
    WriteRequest::builder().put_request(request).build()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sweep_of_25_000_tasks_reads_and_recovers_only_the_overdue_ones() {
    let deployment = TestDeployment::new(&sequential_workflow(1)).await;
    fill(&deployment).await;
    let meter = AwsMeter::default();
    let supervisor = deployment
        .ports_with_interceptors("supervisor", vec![SharedInterceptor::new(meter.clone())]);

    let swept = sweep(&supervisor, 0, Timestamp::MAX).await.unwrap();
    assert_eq!((swept.due, swept.failed, swept.shards_left), (OVERDUE as u64, 0, 0));
    let read = meter.read();
    let index = total(&read, "DynamoDB.Query");
    // Keys have a few dozen bytes, a unit is 4 KB, and an eventually consistent read costs half. Reading all 25,000
    // keys would cost more than 170 units.
    assert!(index.read_units <= 20.0, "{index:?}");
    let loads = total(&read, "DynamoDB.GetItem");
    // The first concurrent tasks all miss the definition in the cache.
    let most = (OVERDUE + TASKS_AT_ONCE) as f64;
    assert!(loads.read_units <= most, "each task is read once: {loads:?}");

    let mut wakes = 0;
    loop {
        let messages = deployment.take_scheduler_messages().await;
        if messages.is_empty() {
            break;
        }
        wakes += messages.len();
        let ports = deployment.ports("scheduler");
        for batch in messages.chunks(100) {
            steward_scheduler::handle(&ports, sqs_event(batch.to_vec(), 1)).await;
        }
        let replies: Vec<_> =
            deployment.take_agent_requests().await.iter().map(completed_reply).collect();
        for batch in replies.chunks(100) {
            steward_scheduler::handle(&ports, sqs_event(batch.to_vec(), 1)).await;
        }
    }
    assert_eq!(wakes, OVERDUE, "one wake for each task");
    for number in (0..TASKS).step_by(TASKS / OVERDUE) {
        let task = deployment.task(&format!("t-{number}")).await;
        assert_eq!((task.process_state, task.due), (ProcessState::Processed, None), "t-{number}");
    }
    let again = sweep(&deployment.ports("supervisor"), 3, Timestamp::MAX).await.unwrap();
    assert_eq!(again.due, 0);
}

#[tokio::test]
async fn a_sweep_without_remaining_time_stops_and_the_next_continues() {
    let deployment = TestDeployment::new(&sequential_workflow(1)).await;
    let ports = deployment.ports("supervisor");
    let none = sweep(&ports, 0, ports.clock().now()).await.unwrap();
    assert_eq!((none.due, none.shards_left), (0, deployment.config.shards.get()));
    let all = sweep(&ports, 0, Timestamp::MAX).await.unwrap();
    assert_eq!(all.shards_left, 0);
}

/// A deployment with one dead letter of the scheduler's queue.
async fn deployment_with_dead_letter() -> TestDeployment {
    let deployment = TestDeployment::new(&sequential_workflow(1)).await;
    let queue = format!("{}-dead-letters", deployment.config.scheduler_queue_url);
    let client = aws_sdk_sqs::Client::new(&deployment.aws.sdk_config());
    client.send_message().queue_url(queue).message_body("{").send().await.unwrap();
    deployment
}

/// Runs a supervisor; takes the alerts.
async fn run_and_take_alerts(deployment: &TestDeployment) -> Vec<Value> {
    run_once(&deployment.ports("supervisor"), 0, Timestamp::MAX).await.unwrap();
    deployment.take_alerts().await
}

#[tokio::test]
async fn each_new_dead_letter_is_alerted_once() {
    let deployment = deployment_with_dead_letter().await;
    let alerts = run_and_take_alerts(&deployment).await;
    assert_eq!(alerts.len(), 1, "{alerts:?}");
    assert_eq!(alerts[0]["detail-type"], "Dead Letter Seen");
    assert_eq!(alerts[0]["detail"]["metadata"]["event"], "dead_letter_seen");
    let expected = json!({ "queue": "steward-scheduler-dead-letters", "messages": 1 });
    assert_eq!(alerts[0]["detail"]["data"], expected);
    assert_eq!(run_and_take_alerts(&deployment).await.len(), 0);

    let queue = format!("{}-dead-letters", deployment.config.scheduler_queue_url);
    let client = aws_sdk_sqs::Client::new(&deployment.aws.sdk_config());
    client.send_message().queue_url(&queue).message_body("[").send().await.unwrap();
    assert_eq!(run_and_take_alerts(&deployment).await[0]["detail"]["data"]["messages"], 2);

    // The dead letters are removed: no alert. The next dead letter causes an alert.
    assert_eq!(deployment.take_messages(&queue).await.len(), 2);
    assert_eq!(run_and_take_alerts(&deployment).await.len(), 0);
    client.send_message().queue_url(&queue).message_body("[").send().await.unwrap();
    assert_eq!(run_and_take_alerts(&deployment).await.len(), 1);
}

#[tokio::test]
async fn the_next_supervisor_repeats_a_dead_letter_alert_after_a_crash() {
    let deployment = deployment_with_dead_letter().await;
    let injector = SdkFaultInjector::once("PutItem", "#dead-letters", InjectedFault::CrashBefore);
    let ports = deployment.ports_with_faults("supervisor", injector);
    let run = async move { run_once(&ports, 0, Timestamp::MAX).await };
    assert!(tokio::spawn(run).await.is_err());
    assert_eq!(deployment.take_alerts().await.len(), 1);
    assert_eq!(run_and_take_alerts(&deployment).await.len(), 1);
    assert_eq!(run_and_take_alerts(&deployment).await.len(), 0);
}

/// Registers an agent of the local host with this name.
async fn register_agent(deployment: &TestDeployment, name: &str) {
    let registration = agent_registration(name, "local");
    let ports = deployment.ports("registrar");
    let outcome =
        agents::register(ports.store(), &name.parse().unwrap(), &registration).await.unwrap();
    assert_eq!(outcome, RegisterOutcome::Registered);
}

/// Puts a message into the dead-letter queue of agent `a`.
async fn send_dead_letter_of_agent(deployment: &TestDeployment) {
    let queue = deployment.config.agent_queue_url.of(&"a".parse().unwrap());
    let queue = format!("{queue}{}", resources::DEAD_LETTERS);
    let client = aws_sdk_sqs::Client::new(&deployment.aws.sdk_config());
    client.send_message().queue_url(queue).message_body("{").send().await.unwrap();
}

#[tokio::test]
async fn a_missing_dead_letter_queue_does_not_hide_the_letters_of_another() {
    let mut deployment = deployment_with_dead_letter().await;
    deployment.config.dead_letter_queues = "steward-agent-old-dead-letters".parse().unwrap();
    register_agent(&deployment, "gone").await;
    let alerts = run_and_take_alerts(&deployment).await;
    assert_eq!(alerts.len(), 1, "{alerts:?}");
    assert_eq!(alerts[0]["detail"]["data"]["queue"], "steward-scheduler-dead-letters");
}

#[tokio::test]
async fn an_agent_that_is_registered_between_two_runs_is_watched_at_the_second() {
    let deployment = TestDeployment::new(&sequential_workflow(1)).await;
    send_dead_letter_of_agent(&deployment).await;
    assert_eq!(run_and_take_alerts(&deployment).await, [] as [Value; 0], "it is not registered");
    register_agent(&deployment, "a").await;
    let alerts = run_and_take_alerts(&deployment).await;
    assert_eq!(alerts.len(), 1, "{alerts:?}");
    assert_eq!(alerts[0]["detail"]["data"]["queue"], "steward-agent-a-dead-letters");
}

#[tokio::test]
async fn the_dead_letters_of_a_deleted_agent_are_watched_while_its_queue_exists() {
    let deployment = TestDeployment::new(&sequential_workflow(1)).await;
    register_agent(&deployment, "a").await;
    let (owner, now) = (agent_registration("a", "local").owner, deployment.clock.now());
    let ports = deployment.ports("registrar");
    assert!(agents::deregister(ports.store(), &"a".parse().unwrap(), &owner, now).await.unwrap());
    send_dead_letter_of_agent(&deployment).await;
    assert_eq!(run_and_take_alerts(&deployment).await.len(), 1);
}

#[tokio::test]
async fn a_dead_letter_queue_that_is_both_listed_and_registered_is_counted_once() {
    let mut deployment = TestDeployment::new(&sequential_workflow(1)).await;
    deployment.config.dead_letter_queues = "steward-agent-a-dead-letters".parse().unwrap();
    register_agent(&deployment, "a").await;
    send_dead_letter_of_agent(&deployment).await;
    assert_eq!(run_and_take_alerts(&deployment).await.len(), 1);
}

#[tokio::test]
async fn the_other_dead_letters_are_alerted_if_the_registry_cannot_be_read() {
    let deployment = deployment_with_dead_letter().await;
    register_agent(&deployment, "a").await;
    send_dead_letter_of_agent(&deployment).await;
    let injector = SdkFaultInjector::always("Query", "\"#agent\"", InjectedFault::FailBefore);
    let ports = deployment.ports_with_faults("supervisor", injector);
    run_once(&ports, 0, Timestamp::MAX).await.unwrap();
    assert_eq!(deployment.take_alerts().await.len(), 1);
    assert_eq!(run_and_take_alerts(&deployment).await.len(), 1, "the next run reads the registry");
}

/// A deployment with the task `t`, whose agent has its request and does not reply.
async fn deployment_with_silent_agent() -> TestDeployment {
    let deployment = TestDeployment::new(&sequential_workflow(1)).await;
    deployment.submit(&deployment.ports("submission"), &["t".to_owned()]).await;
    let wakes = deployment.take_scheduler_messages().await;
    steward_scheduler::handle(&deployment.ports("scheduler"), sqs_event(wakes, 1)).await;
    assert_eq!(deployment.take_agent_requests().await.len(), 1);
    deployment
}

#[tokio::test]
async fn the_wake_of_an_agent_that_stopped_at_complete_by_recovers_the_task_like_a_sweep() {
    let deployment = deployment_with_silent_agent().await;
    let ports = deployment.ports("scheduler");
    let wake = async || {
        let wake = r#"{"type":"wake","task_id":"t","cause":"overdue"}"#.to_owned();
        let response = steward_scheduler::handle(&ports, sqs_event([wake], 1)).await;
        assert_eq!(response.batch_item_failures, []);
        deployment.task("t").await
    };
    let before = deployment.task("t").await;
    assert_eq!(wake().await, before, "nothing is past due");
    deployment.clock.advance_seconds(3_600);
    assert_eq!(wake().await.failure_count, 1);
    let swept = sweep(&deployment.ports("supervisor"), 0, Timestamp::MAX).await.unwrap();
    assert_eq!(swept.due, 0, "the supervisor finds nothing left to do");
}

/// Delivers a command to the scheduler.
async fn command(deployment: &TestDeployment, id: &str, command: &str) {
    let body = json!({
        "type": "command", "command_id": id, "task_id": "t", "by": "ann", "why": "a test",
        "order": { "command": command }, "issued_at": deployment.clock.now(),
    });
    let event = commands_event([body.to_string()], Some("AIDAANN"));
    let (ports, instance) = (deployment.ports("scheduler"), scheduler_instance(""));
    let response = steward_scheduler::handle_with(&ports, &instance, event).await;
    assert_eq!(response.batch_item_failures, []);
}

#[tokio::test]
async fn an_error_that_nobody_settles_is_reported_once_a_day() {
    let deployment = TestDeployment::new(&sequential_workflow(1)).await;
    deployment.submit(&deployment.ports("submission"), &["t".to_owned()]).await;
    command(&deployment, "c-1", "cancel").await;
    deployment.take_alerts().await;
    let mut reported = Vec::new();
    for hour in 0..=80 {
        deployment.clock.advance_seconds(3_600);
        let alerts = run_and_take_alerts(&deployment).await;
        reported.extend(alerts.into_iter().map(|alert| (hour, alert)));
    }
    let hours: Vec<_> = reported.iter().map(|(hour, _)| *hour).collect();
    let each_day = hours.windows(2).all(|pair| pair[1] == pair[0] + 24);
    assert!(hours.len() >= 2 && hours[0] >= 23 && each_day, "{reported:?}");
    let detail = &reported[0].1["detail"];
    assert_eq!(detail["metadata"]["event"], "errors_unresolved");
    let since = deployment.task("t").await.ended_at.unwrap().to_string();
    assert_eq!(detail["data"], json!({ "tasks": 1, "since": since, "workflows": ["line"] }));

    command(&deployment, "c-2", "resolve").await;
    deployment.take_alerts().await;
    for _ in 0..48 {
        deployment.clock.advance_seconds(3_600);
        assert_eq!(run_and_take_alerts(&deployment).await, Vec::<Value>::new());
    }
}
