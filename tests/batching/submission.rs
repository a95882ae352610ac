//! Submission: by clients, and by events that several workflows are triggered by.

use std::time::Instant;

use serde_json::json;
use steward_core::definition::workflow::Workflow;
use steward_runtime::ports::Ports;

use super::{
    SIZES, assert_seen, ids, rounds, sends,
    slow::{Seen, Slow},
    writes,
};
use crate::support::{Deployment, event, line, submission};

/// Submissions in hand at once.
const SUBMISSIONS_AT_ONCE: usize = 64;

/// For how many seconds it is believed what a new task runs: of the machine's clock, not of the test's.
const BELIEVED_S: u64 = 10;

/// How often that may be asked since `start`. On a machine with much else to do a batch may take longer.
fn asked(seen: &Seen, workflows: u64, start: Instant) -> (usize, u64) {
    let (queries, most) =
        (seen.requests("DynamoDB.Query"), 1 + start.elapsed().as_secs() / BELIEVED_S);
    assert!((workflows..=workflows * most).contains(&queries), "{seen:?}");
    (queries as usize, most)
}

/// Workflows that one event triggers.
const TRIGGERED: usize = 3;

#[tokio::test(start_paused = true)]
async fn submissions_share_transactions_of_25_and_sends_of_ten() {
    for size in SIZES {
        let deployment = Deployment::new(&line(1)).await;
        let slow = Slow::new(&deployment, "submission");
        let batch = event(ids(size).iter().map(|id| submission(id)), 1);
        let (queues, start) = (&deployment.config.reply_queues, Instant::now());

        let (answer, seen) =
            slow.watch(async |ports| steward_submission::handle(ports, queues, batch).await).await;

        // What a new task runs is asked once for all of them.
        let (queries, asked) = asked(&seen, 1, start);
        let requests = [
            ("DynamoDB.Query", queries),
            ("DynamoDB.TransactWriteItems", writes(size, 1)),
            ("SQS.SendMessageBatch", size.div_ceil(10)),
        ];
        let chain = asked + rounds(size, SUBMISSIONS_AT_ONCE) + sends(size);
        assert_seen(&answer, &seen, &requests, chain);
    }
}

fn triggered(n: usize) -> Workflow {
    let mut workflow = serde_json::to_value(line(1)).unwrap();
    workflow["name"] = json!(format!("line-{n}"));
    workflow["trigger"] = json!({
        "source": "shop", "detail_type": "Order Placed",
        "task_id": format!("${{ event.id }}-{n}"), "input": "${ event.detail }",
    });
    serde_json::from_value(workflow).unwrap()
}

fn placed(id: &str) -> String {
    json!({
        "version": "0", "id": id, "source": "shop", "detail-type": "Order Placed",
        "account": "123456789012", "time": "2026-11-21T12:00:00Z", "region": "us-east-1",
        "resources": [], "detail": { "n": 1 },
    })
    .to_string()
}

#[tokio::test(start_paused = true)]
async fn the_tasks_of_one_event_are_recorded_concurrently() {
    for size in SIZES {
        let deployment = Deployment::new(&triggered(1)).await;
        for n in 2..=TRIGGERED {
            deployment.ports("publisher").definitions().publish(&triggered(n)).await.unwrap();
        }
        let slow = Slow::new(&deployment, "submission");
        let batch = event(ids(size).iter().map(|id| placed(id)), 1);
        let (queues, start) = (&deployment.config.reply_queues, Instant::now());

        let (answer, seen) =
            slow.watch(async |ports| steward_submission::handle(ports, queues, batch).await).await;

        let tasks = size * TRIGGERED;
        let (queries, asked) = asked(&seen, TRIGGERED as u64, start);
        let requests = [
            // Which workflows, for each event: a trigger that was just published is not missed.
            ("DynamoDB.GetItem", size),
            ("DynamoDB.Query", queries),
            ("DynamoDB.TransactWriteItems", writes(size, TRIGGERED)),
            ("SQS.SendMessageBatch", tasks.div_ceil(10)),
        ];
        let chain = asked + 2 * rounds(size, SUBMISSIONS_AT_ONCE) + sends(tasks);
        assert_seen(&answer, &seen, &requests, chain);
    }
}
