//! Submission: messages of clients, and events that trigger several workflows.

use std::time::Instant;

use serde_json::json;
use steward_core::definition::workflow::Workflow;
use steward_runtime::ports::Ports;

use super::{
    BATCH_SIZES, assert_calls, batched_writes, ids, rounds, send_rounds,
    slow_aws::{ObservedCalls, SlowAws},
};
use crate::support::{TestDeployment, sequential_workflow, sqs_event, submission_message};

/// Submissions that the handler handles concurrently.
const SUBMISSIONS_AT_ONCE: usize = 64;

/// How long the published version of a workflow is cached, in seconds of the machine's clock.
const DEFINITION_CACHE_S: u64 = 10;

/// The number of queries for published versions, and the largest number of sequential ones. The cache may expire during
/// a batch on a busy machine.
fn definition_queries(calls: &ObservedCalls, workflows: u64, start: Instant) -> (usize, u64) {
    let (queries, rounds) =
        (calls.requests("DynamoDB.Query"), 1 + start.elapsed().as_secs() / DEFINITION_CACHE_S);
    assert!((workflows..=workflows * rounds).contains(&queries), "{calls:?}");
    (queries as usize, rounds)
}

/// The number of workflows that one event triggers.
const TRIGGERED: usize = 3;

#[tokio::test(start_paused = true)]
async fn submissions_share_writes_of_25_and_sends_of_ten() {
    for size in BATCH_SIZES {
        let deployment = TestDeployment::new(&sequential_workflow(1)).await;
        let aws = SlowAws::new(&deployment, "submission");
        let batch = sqs_event(ids(size).iter().map(|id| submission_message(id)), 1);
        let (queues, start) = (&deployment.config.reply_queues, Instant::now());

        let (response, calls) =
            aws.observe(async |ports| steward_submission::handle(ports, queues, batch).await).await;

        // The published version is queried once for all submissions.
        let (queries, query_rounds) = definition_queries(&calls, 1, start);
        let requests = [
            ("DynamoDB.BatchExecuteStatement", batched_writes(size, 1)),
            ("DynamoDB.Query", queries),
            ("SQS.SendMessageBatch", size.div_ceil(10)),
        ];
        let sequential = query_rounds + rounds(size, SUBMISSIONS_AT_ONCE) + send_rounds(size);
        assert_calls(&response, &calls, &requests, sequential);
    }
}

fn triggered_workflow(n: usize) -> Workflow {
    let mut workflow = serde_json::to_value(sequential_workflow(1)).unwrap();
    workflow["name"] = json!(format!("line-{n}"));
    workflow["trigger"] = json!({
        "source": "shop", "detail_type": "Order Placed",
        "task_id": format!("${{ event.id }}-{n}"), "input": "${ event.detail }",
    });
    serde_json::from_value(workflow).unwrap()
}

fn order_placed_event(id: &str) -> String {
    json!({
        "version": "0", "id": id, "source": "shop", "detail-type": "Order Placed",
        "account": "123456789012", "time": "2026-11-21T12:00:00Z", "region": "us-east-1",
        "resources": [], "detail": { "n": 1 },
    })
    .to_string()
}

#[tokio::test(start_paused = true)]
async fn the_tasks_of_one_event_are_recorded_concurrently() {
    for size in BATCH_SIZES {
        let deployment = TestDeployment::new(&triggered_workflow(1)).await;
        for n in 2..=TRIGGERED {
            deployment
                .ports("publisher")
                .definitions()
                .publish(&triggered_workflow(n))
                .await
                .unwrap();
        }
        let aws = SlowAws::new(&deployment, "submission");
        let batch = sqs_event(ids(size).iter().map(|id| order_placed_event(id)), 1);
        let (queues, start) = (&deployment.config.reply_queues, Instant::now());

        let (response, calls) =
            aws.observe(async |ports| steward_submission::handle(ports, queues, batch).await).await;

        let tasks = size * TRIGGERED;
        let (queries, query_rounds) = definition_queries(&calls, TRIGGERED as u64, start);
        let requests = [
            ("DynamoDB.BatchExecuteStatement", batched_writes(size, TRIGGERED)),
            // The workflows of each event. They are not cached, so that a new trigger takes effect at once.
            ("DynamoDB.GetItem", size),
            ("DynamoDB.Query", queries),
            ("SQS.SendMessageBatch", tasks.div_ceil(10)),
        ];
        let sequential = query_rounds + 2 * rounds(size, SUBMISSIONS_AT_ONCE) + send_rounds(tasks);
        assert_calls(&response, &calls, &requests, sequential);
    }
}
