//! How many requests a batch of messages makes, and how many of them are sequential. Messages for different tasks are
//! handled concurrently: they share loads, saves and sends. The [meter](steward_aws::meter) counts the requests, and
//! the time over a [slow AWS](slow_aws) shows the longest sequential chain, for batches of 10, 100 and 1,000.

mod agent;
mod deadline;
mod scheduler;
mod slow_aws;
mod submission;
mod supervisor;
mod wide;

use aws_lambda_events::sqs::SqsBatchResponse;
use slow_aws::ObservedCalls;
use steward_runtime::drive::TASKS_AT_ONCE;

use crate::support::TestDeployment;

/// The sizes of the batches, in messages.
const BATCH_SIZES: [usize; 3] = [10, 100, 1_000];

/// The limit of concurrent requests to SQS and to EventBridge.
const MAX_CONCURRENT_SENDS: usize = 16;

/// Messages in one request to SQS.
const SEND_BATCH: usize = 10;

fn ids(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("t-{n:04}")).collect()
}

/// The number of sequential requests that send this many messages: each request has ten messages, and 16 requests run
/// concurrently.
fn send_rounds(messages: usize) -> u64 {
    messages.div_ceil(SEND_BATCH).div_ceil(MAX_CONCURRENT_SENDS) as u64
}

/// The number of sequential rounds that handle this many tasks, `concurrent` at a time.
fn rounds(tasks: usize, concurrent: usize) -> u64 {
    tasks.div_ceil(concurrent) as u64
}

/// The number of requests that read one item for each task: tasks that are handled concurrently share a request.
fn batched_reads(tasks: usize) -> usize {
    tasks.div_ceil(TASKS_AT_ONCE)
}

/// The number of requests that write this many items for each task: 25 items of tasks that are handled concurrently
/// share a request.
fn batched_writes(tasks: usize, items: usize) -> usize {
    let (rounds, rest) = (tasks / TASKS_AT_ONCE, tasks % TASKS_AT_ONCE);
    rounds * (TASKS_AT_ONCE * items).div_ceil(25) + (rest * items).div_ceil(25)
}

/// Submits tasks and discards their wakes.
async fn submit(deployment: &TestDeployment, ids: &[String]) {
    deployment.submit(&deployment.ports("submission"), ids).await;
    deployment.take_scheduler_messages().await;
}

/// Asserts that all messages are handled, with exactly these requests and at most `sequential` sequential calls.
fn assert_calls(
    response: &SqsBatchResponse,
    calls: &ObservedCalls,
    requests: &[(&str, usize)],
    sequential: u64,
) {
    assert_eq!(*response, SqsBatchResponse::default());
    let expected: Vec<_> =
        requests.iter().map(|(name, count)| ((*name).to_owned(), *count as u64)).collect();
    assert_eq!(calls.requests, expected);
    let found = calls.sequential;
    assert!(found <= sequential, "{found} sequential calls; at most {sequential} expected");
}
