//! The supervisor: concurrent sweeps of the shards, and concurrent checks of the dead-letter queues.

use aws_lambda_events::sqs::SqsBatchResponse;
use jiff::Timestamp;
use steward_aws::config::QueueNames;
use steward_emulator::resources;
use steward_runtime::drive::TASKS_AT_ONCE;
use steward_supervisor::{run_once, sweep};

use super::{BATCH_SIZES, assert_calls, ids, rounds, send_rounds, slow_aws::SlowAws, submit};
use crate::support::{TestDeployment, sequential_workflow};

/// Tasks in a page of the due index.
const PAGE: usize = 100;

#[tokio::test(start_paused = true)]
async fn shards_are_swept_concurrently() {
    for size in BATCH_SIZES {
        let deployment = TestDeployment::new(&sequential_workflow(1)).await;
        submit(&deployment, &ids(size)).await;
        deployment.clock.advance_seconds(3_600);
        let aws = SlowAws::new(&deployment, "supervisor");

        let (swept, calls) =
            aws.observe(async |ports| sweep(ports, 0, Timestamp::MAX).await.unwrap()).await;

        assert_eq!((swept.due, swept.failed, swept.shards_left), (size as u64, 0, 0));
        assert_eq!(
            deployment.take_scheduler_messages().await.len(),
            size,
            "one wake for each task"
        );
        // The definition is read once. The tasks of a page share reads.
        assert_eq!(calls.requests("DynamoDB.GetItem"), 1);
        assert!(calls.requests("DynamoDB.BatchGetItem") <= size.div_ceil(8) as u64, "{calls:?}");
        // 25 concurrent writes of the shards share a request.
        let writes = calls.requests("DynamoDB.BatchExecuteStatement");
        assert!(writes <= size.div_ceil(10) as u64, "{calls:?}");
        // The fullest of the four shards has less than half of the tasks.
        let shard = size.div_ceil(2);
        let pages = rounds(shard, PAGE);
        let page = 1 + 2 * rounds(PAGE.min(shard), TASKS_AT_ONCE) + send_rounds(PAGE.min(shard));
        let (response, requests) = (SqsBatchResponse::default(), calls.requests.clone());
        let requests: Vec<_> = requests.iter().map(|(n, count)| (&**n, *count as usize)).collect();
        assert_calls(&response, &calls, &requests, 1 + pages * page);
    }
}

#[tokio::test(start_paused = true)]
async fn dead_letters_of_many_queues_are_counted_alerted_and_recorded_concurrently() {
    let mut deployment = TestDeployment::new(&sequential_workflow(1)).await;
    let sdk = deployment.aws.sdk_config();
    let client = aws_sdk_sqs::Client::new(&sdk);
    let mut urls = Vec::new();
    for n in 0..BATCH_SIZES[0] {
        let name = format!("agent-{n}{}", resources::DEAD_LETTERS);
        let url = client.create_queue().queue_name(name).send().await.unwrap().queue_url.unwrap();
        client.send_message().queue_url(&url).message_body("{").send().await.unwrap();
        urls.push(url);
    }
    deployment.config.dead_letter_queues = QueueNames(urls);
    deployment.config.shards = std::num::NonZeroU32::MIN;
    let aws = SlowAws::new(&deployment, "supervisor");

    let (_, calls) =
        aws.observe(async |ports| run_once(ports, 0, Timestamp::MAX).await.unwrap()).await;

    // The four of the deployment's own queues are empty; and the four queues themselves.
    assert_eq!(calls.requests("SQS.GetQueueAttributes"), 10 + 4 + 4);
    assert_eq!(calls.requests("EventBridge.PutEvents"), 1);
    assert_eq!(calls.requests("DynamoDB.PutItem"), 10 + 1);
    // Registered agents, counts and last alerts, alerts, record; then the last run, the ended tasks (three states concurrently), and the
    // record of this run.
    assert_eq!(calls.sequential, 4 + 3, "{calls:?}");
    assert_eq!(deployment.take_alerts().await.len(), 10);
}
