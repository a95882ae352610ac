//! A function stops two seconds before Lambda would kill it, here after 28 s of 30: what is done is acknowledged, and the
//! rest returns to its queue within seconds. In each test, the calls of the batch take longer than 30 s.

use std::{
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use aws_lambda_events::sqs::{SqsEvent, SqsMessage};
use aws_smithy_runtime_api::client::http::{HttpConnector, HttpConnectorFuture};
use futures_util::future::join3;
use serde_json::json;
use steward_agent::{Agent, attempts_deadline};
use steward_aws::{
    batch::{Batch, progress::SENDS_WITHIN},
    polling,
};
use steward_core::{breaker::BreakerSettings, model::time::later};
use steward_runtime::ports::{Clock, Ports, Queue};
use steward_test_world::service::{CallPlan, FakeService, PlannedServices};
use tokio::time::{Instant, sleep};

use super::{ids, submit};
use crate::support::{
    AdapterPorts, TestDeployment, failed_message_ids, sequential_workflow, sqs_event,
    submission_message, wake_message, with_request_handler,
};

/// The time from the start of an invocation until it stops.
const STOP_AFTER: Duration = Duration::from_secs(28);

/// Lambda's time limit for the scheduler and for submission.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Input that does not fit into its task's item, so that a decision reads its document.
const LARGE: usize = 4_000;

/// When a slow call to DynamoDB takes effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Effect {
    /// At its start. Its response is late.
    AtOnce,
    /// At its end. If the caller is gone by then, it has none.
    Late,
}

/// Ports of an instance for which each call to DynamoDB takes this long. SQS answers at once.
fn with_slow_dynamodb(
    deployment: &TestDeployment,
    role: &str,
    call: Duration,
    effect: Effect,
) -> AdapterPorts {
    let sdk = with_request_handler(&deployment.aws.sdk_config(), move |request, aws| {
        let target = request.headers().get("x-amz-target").unwrap_or_default();
        if !target.starts_with("DynamoDB") {
            return aws.call(request);
        }
        let aws = aws.clone();
        HttpConnectorFuture::new(async move {
            if effect == Effect::Late {
                sleep(call).await;
                return aws.call(request).await;
            }
            let response = aws.call(request).await;
            sleep(call).await;
            response
        })
    });
    deployment.ports_with_sdk(role, &sdk)
}

/// Receives a batch, as Lambda's poller does.
async fn receive(deployment: &TestDeployment, queue_url: &str) -> SqsEvent {
    let sqs = aws_sdk_sqs::Client::new(&deployment.aws.sdk_config());
    let mut event = SqsEvent::default();
    event.records = polling::receive(&sqs, queue_url).await.unwrap();
    event
}

/// Deletes the messages that are not among the failed ones, as Lambda's poller does.
async fn acknowledge(
    deployment: &TestDeployment,
    queue_url: &str,
    records: &[SqsMessage],
    failed: &[&str],
) {
    let sqs = aws_sdk_sqs::Client::new(&deployment.aws.sdk_config());
    let done = records.iter().filter(|record| !failed.contains(&id(record)));
    let receipts = done.map(|record| record.receipt_handle.clone().unwrap()).collect();
    polling::delete(&sqs, queue_url, receipts).await.unwrap();
}

fn id(record: &SqsMessage) -> &str {
    record.message_id.as_deref().unwrap()
}

/// The wakes of large tasks in a batch.
fn of_large_tasks(records: &[SqsMessage]) -> Vec<&str> {
    let is_large = |record: &&SqsMessage| record.body.as_ref().unwrap().contains("large");
    records.iter().filter(is_large).map(id).collect()
}

#[tokio::test(start_paused = true)]
async fn finished_messages_are_acknowledged_and_the_others_return_within_seconds() {
    for effect in [Effect::AtOnce, Effect::Late] {
        let deployment = TestDeployment::new(&sequential_workflow(1)).await;
        let submission = |id: String, bytes: usize| json!({ "task_id": id, "workflow": "line", "input": { "note": "x".repeat(bytes) } });
        let small = (0..5).map(|n| submission(format!("small-{n}"), 1).to_string());
        let large = (0..5).map(|n| submission(format!("large-{n}"), LARGE).to_string());
        let reply_queues = &deployment.config.reply_queues;
        let submissions = sqs_event(small.chain(large), 1);
        steward_submission::handle(&deployment.ports("submission"), reply_queues, submissions)
            .await;
        let queue_url = &deployment.config.scheduler_queue_url;
        let event = receive(&deployment, queue_url).await;
        assert_eq!(event.records.len(), 10);

        // Small: load, definition, save. Large: load, definition, document, save.
        let ports = with_slow_dynamodb(&deployment, "scheduler", TIMEOUT / 4, effect);
        let (start, records) = (Instant::now(), event.records.clone());
        let handle = |batch| steward_scheduler::handle(&ports, batch);
        let channel = ports.channel();
        let response =
            channel.process_batch(&Queue::Scheduler, event, start + STOP_AFTER, handle).await;

        assert_eq!(start.elapsed().as_secs(), (STOP_AFTER - SENDS_WITHIN).as_secs());
        let failed = failed_message_ids(&response);
        assert_eq!(failed, of_large_tasks(&records));
        let requests = deployment.take_agent_requests().await;
        assert_eq!(requests.len(), 5, "the effects of the finished messages are sent");
        assert!(requests.iter().all(|request| request.task_id.as_str().starts_with("small")));
        // A save that was abandoned may have taken effect.
        let revision = deployment.task("large-0").await.revision;
        assert_eq!(revision, if effect == Effect::AtOnce { 2 } else { 1 });

        acknowledge(&deployment, queue_url, &records, &failed).await;
        let stopped = Instant::now();
        let mut redelivered = Vec::new();
        while redelivered.len() < 5 {
            redelivered.extend(receive(&deployment, queue_url).await.records);
        }
        // The delay after the first receive, and the time of a poll. The visibility timeout is 180 s.
        assert!(stopped.elapsed() <= Duration::from_secs(2 + 1), "{:?}", stopped.elapsed());
        let counts: Vec<_> =
            redelivered.iter().map(|one| &*one.attributes["ApproximateReceiveCount"]).collect();
        assert_eq!(counts, ["2"; 5], "the stop is one receive, as a failure is");
        let mut event = SqsEvent::default();
        event.records = redelivered;
        let response = steward_scheduler::handle(&deployment.ports("scheduler"), event).await;
        assert_eq!(response.batch_item_failures, []);
        assert_eq!(deployment.take_agent_requests().await.len(), 5);
        assert_eq!(deployment.task("large-0").await.revision, 2, "saved once");
    }
}

#[tokio::test(start_paused = true)]
async fn submissions_that_are_recorded_send_their_wakes_and_the_others_return() {
    let deployment = TestDeployment::new(&sequential_workflow(1)).await;
    submit(&deployment, &ids(3)).await;
    // A recorded submission takes more calls: it is compared with its task.
    let call = Duration::from_secs(9);
    let ports = with_slow_dynamodb(&deployment, "submission", call, Effect::Late);
    let event = sqs_event(ids(10).iter().map(|id| submission_message(id)), 1);
    let reply_queues = &deployment.config.reply_queues;
    let start = Instant::now();
    let handle = |batch| steward_submission::handle(&ports, reply_queues, batch);
    let channel = ports.channel();
    let response =
        channel.process_batch(&Queue::Submissions, event, start + STOP_AFTER, handle).await;
    assert_eq!(failed_message_ids(&response), ["m-0", "m-1", "m-2"]);
    assert!(start.elapsed() <= STOP_AFTER, "{:?}", start.elapsed());
    assert_eq!(deployment.take_scheduler_messages().await.len(), 7);
}

/// Neither DynamoDB nor the request for a shorter visibility gets a response.
#[tokio::test(start_paused = true)]
async fn the_response_to_lambda_does_not_depend_on_aws() {
    let deployment = TestDeployment::new(&sequential_workflow(1)).await;
    let sdk = with_request_handler(&deployment.aws.sdk_config(), |_, _| {
        HttpConnectorFuture::new(async { pending().await })
    });
    let ports = &deployment.ports_with_sdk("function", &sdk);
    let reply_queues = &deployment.config.reply_queues;
    let intake = &steward_submission::IntakeView::default();
    let (channel, event) =
        (ports.channel(), || sqs_event(ids(12).iter().map(|id| wake_message(id)), 1));
    let (start, stop) = (Instant::now(), Instant::now() + STOP_AFTER);
    let scheduler = channel.process_batch(&Queue::Scheduler, event(), stop, |batch: Batch| {
        steward_scheduler::handle(ports, batch)
    });
    let submissions = channel.process_batch(&Queue::Submissions, event(), stop, |batch: Batch| {
        steward_submission::handle_with_intake(ports, intake, reply_queues, batch)
    });
    let events = channel.process_batch(&Queue::Events, event(), stop, |batch: Batch| {
        steward_submission::events::handle(ports, batch)
    });
    let (scheduler, submissions, events) = join3(scheduler, submissions, events).await;
    for response in [scheduler, submissions, events] {
        assert_eq!(response.batch_item_failures.len(), 12);
    }
    // The request for the visibility has one second, and half a second is for spans.
    assert!(start.elapsed() < TIMEOUT - Duration::from_millis(500), "{:?}", start.elapsed());
}

/// Responds to tasks whose names begin with `slow` after 20 s.
fn service() -> FakeService<PlannedServices> {
    FakeService::planned(|request, _| {
        let is_slow = request.task_id.as_str().starts_with("slow");
        CallPlan::success(if is_slow { 20_000 } else { 0 }, json!({ "id": request.step }))
    })
}

#[tokio::test(start_paused = true)]
async fn requests_whose_replies_are_sent_are_acknowledged_and_the_others_return() {
    let deployment = TestDeployment::new(&sequential_workflow(1)).await;
    let tasks: Vec<_> = ["quick-0", "slow-0", "quick-1", "slow-1"].map(str::to_owned).into();
    submit(&deployment, &tasks).await;
    let wakes = sqs_event(tasks.iter().map(|id| wake_message(id)), 1);
    steward_scheduler::handle(&deployment.ports("scheduler"), wakes).await;
    let mut requests = deployment.take_agent_requests().await;
    requests.sort_by(|one, other| one.task_id.cmp(&other.task_id));
    // SQS responds to the first send only.
    let sends = Arc::new(AtomicUsize::new(0));
    let sdk = with_request_handler(&deployment.aws.sdk_config(), move |request, aws| {
        let target = request.headers().get("x-amz-target").unwrap_or_default();
        if target.ends_with("SendMessageBatch") && sends.fetch_add(1, Ordering::SeqCst) > 0 {
            return HttpConnectorFuture::new(async { pending().await });
        }
        aws.call(request)
    });
    let ports = deployment.ports_with_sdk("agent", &sdk);
    let agent = Agent::new("a".parse().unwrap(), service(), BreakerSettings::default());
    let event = sqs_event(requests.iter().map(|one| serde_json::to_string(one).unwrap()), 1);
    let attempts = attempts_deadline(later(deployment.clock.now(), 2 * STOP_AFTER));
    let start = Instant::now();
    let handle = |batch| steward_agent::handle(&ports, &agent, batch, attempts);
    let queue = Queue::Agent(agent.name.clone());
    let channel = ports.channel();
    let response = channel.process_batch(&queue, event, start + 2 * STOP_AFTER, handle).await;
    assert_eq!(failed_message_ids(&response), ["m-2", "m-3"]);
    assert_eq!(start.elapsed().as_secs(), 2 * STOP_AFTER.as_secs());
    assert_eq!(deployment.take_scheduler_messages().await.len(), 2);
}
