//! The supervisor: shards side by side, and queues of dead letters too.

use aws_lambda_events::sqs::SqsBatchResponse;
use jiff::Timestamp;
use steward_aws::config::QueueNames;
use steward_emulator::resources;
use steward_runtime::drive::TASKS_AT_ONCE;
use steward_supervisor::{supervise, sweep};

use super::{SIZES, assert_seen, ids, rounds, sends, slow::Slow, submitted};
use crate::support::{Deployment, line};

/// Tasks in a page of the due index.
const PAGE: usize = 100;

#[tokio::test(start_paused = true)]
async fn shards_are_swept_concurrently() {
    for size in SIZES {
        let deployment = Deployment::new(&line(1)).await;
        submitted(&deployment, &ids(size)).await;
        deployment.clock.advance(3_600);
        let slow = Slow::new(&deployment, "supervisor");

        let (swept, seen) =
            slow.watch(async |ports| sweep(ports, 0, Timestamp::MAX).await.unwrap()).await;

        assert_eq!((swept.due, swept.failed, swept.shards_left), (size as u64, 0, 0));
        assert_eq!(deployment.to_scheduler().await.len(), size, "each is asked for once");
        // The definition is read once, the tasks of each page together.
        assert_eq!(seen.requests("DynamoDB.GetItem"), 1);
        assert!(seen.requests("DynamoDB.BatchGetItem") <= size.div_ceil(8) as u64, "{seen:?}");
        // 25 of what the shards write at once share a request.
        let writes = seen.requests("DynamoDB.BatchExecuteStatement");
        assert!(writes <= size.div_ceil(10) as u64, "{seen:?}");
        // The fullest shard: of four, none has half of all.
        let shard = size.div_ceil(2);
        let pages = rounds(shard, PAGE);
        let page = 1 + 2 * rounds(PAGE.min(shard), TASKS_AT_ONCE) + sends(PAGE.min(shard));
        let (answer, requests) = (SqsBatchResponse::default(), seen.requests.clone());
        let requests: Vec<_> = requests.iter().map(|(n, count)| (&**n, *count as usize)).collect();
        assert_seen(&answer, &seen, &requests, 1 + pages * page);
    }
}

#[tokio::test(start_paused = true)]
async fn dead_letters_of_many_queues_are_counted_alerted_and_recorded_concurrently() {
    let mut deployment = Deployment::new(&line(1)).await;
    let sdk = deployment.aws.sdk_config();
    let client = aws_sdk_sqs::Client::new(&sdk);
    let mut urls = Vec::new();
    for n in 0..SIZES[0] {
        let name = format!("agent-{n}{}", resources::DEAD_LETTERS);
        let url = client.create_queue().queue_name(name).send().await.unwrap().queue_url.unwrap();
        client.send_message().queue_url(&url).message_body("{").send().await.unwrap();
        urls.push(url);
    }
    deployment.config.dead_letter_queues = QueueNames(urls);
    deployment.config.shards = std::num::NonZeroU32::MIN;
    let slow = Slow::new(&deployment, "supervisor");

    let (_, seen) =
        slow.watch(async |ports| supervise(ports, 0, Timestamp::MAX).await.unwrap()).await;

    assert_eq!(seen.requests("SQS.GetQueueAttributes"), 10);
    assert_eq!(seen.requests("EventBridge.PutEvents"), 1);
    assert_eq!(seen.requests("DynamoDB.PutItem"), 10 + 1);
    // Counted; what was told; told; recorded. And then the last run; what ended since, all three ways of
    // it; this run.
    assert_eq!(seen.chain, 4 + 3, "{seen:?}");
    assert_eq!(deployment.alerts().await.len(), 10);
}
