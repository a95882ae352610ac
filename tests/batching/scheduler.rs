//! The scheduler: batches of wakes and replies for different tasks, and for one task.

use serde_json::{Value, json};
use steward_core::definition::workflow::Workflow;
use steward_runtime::drive::TASKS_AT_ONCE;

use super::{
    BATCH_SIZES, MAX_CONCURRENT_SENDS, SEND_BATCH, assert_calls, batched_reads, batched_writes,
    ids, rounds, send_rounds, slow_aws::SlowAws, submit,
};
use crate::support::{
    TestDeployment, completed_reply, sequential_workflow, sqs_event, wake_message,
};

/// A step with ten concurrent items, followed by another step.
fn fan_out() -> Workflow {
    let each = json!({
        "agent": "a", "for_each": { "items": "${ [0, 1, 2, 3, 4, 5, 6, 7, 8, 9] }", "at_once": 10 },
        "request": { "path": "/x", "body": "${ item }" },
    });
    let join = json!({
        "agent": "a", "after": ["each"],
        "request": { "path": "/x", "body": { "of": "${ steps.each.output }", "by": "${ input }" } },
    });
    let workflow = json!({ "name": "line", "version": 1, "steps": { "each": each, "join": join } });
    serde_json::from_value(workflow).unwrap()
}

/// Ten branches, each of which reads its own documents.
fn branches() -> Workflow {
    let mut steps = serde_json::Map::new();
    for n in 0..10 {
        let first = json!({ "agent": "a", "request": { "path": "/x" } });
        let second = json!({
            "agent": "a", "after": [format!("first_{n}")],
            "request": { "path": "/x", "body": format!("${{ steps.first_{n}.output }}") },
        });
        let third = json!({
            "agent": "a", "after": [format!("second_{n}")],
            "request": { "path": "/x", "body": format!("${{ steps.first_{n}.output }}") },
        });
        steps.insert(format!("first_{n}"), first);
        steps.insert(format!("second_{n}"), second);
        steps.insert(format!("third_{n}"), third);
    }
    serde_json::from_value(json!({ "name": "line", "version": 1, "steps": steps })).unwrap()
}

#[tokio::test(start_paused = true)]
async fn one_message_per_task_costs_one_load_one_save_and_a_tenth_of_a_send() {
    for size in BATCH_SIZES {
        let deployment = TestDeployment::new(&sequential_workflow(2)).await;
        submit(&deployment, &ids(size)).await;
        let aws = SlowAws::new(&deployment, "scheduler");
        let batch = sqs_event(ids(size).iter().map(|id| wake_message(id)), 1);

        let (response, calls) =
            aws.observe(async |ports| steward_scheduler::handle(ports, batch).await).await;

        // Concurrent tasks share a load, which includes their documents. The new instance reads the definition once.
        let requests = [
            ("DynamoDB.BatchExecuteStatement", batched_writes(size, 1)),
            ("DynamoDB.BatchGetItem", batched_reads(size)),
            ("DynamoDB.GetItem", 1),
            ("SQS.SendMessageBatch", size.div_ceil(10)),
        ];
        // Load, save.
        let sequential = 2 * rounds(size, TASKS_AT_ONCE) + 1 + send_rounds(size);
        assert_calls(&response, &calls, &requests, sequential);
        let sends = size.div_ceil(SEND_BATCH).min(MAX_CONCURRENT_SENDS);
        assert_eq!(calls.max_concurrent, batched_writes(size.min(TASKS_AT_ONCE), 1).max(sends));
        assert_eq!(deployment.take_agent_requests().await.len(), size);
    }
}

#[tokio::test(start_paused = true)]
async fn replies_for_one_task_in_one_batch_share_one_load_and_one_save() {
    for size in BATCH_SIZES {
        let deployment = TestDeployment::new(&fan_out()).await;
        let tasks = ids(size / 10);
        submit(&deployment, &tasks).await;
        let aws = SlowAws::new(&deployment, "scheduler");
        let batch = sqs_event(tasks.iter().map(|id| wake_message(id)), 1);
        aws.observe(async |ports| steward_scheduler::handle(ports, batch).await).await;
        let mut replies: Vec<_> =
            deployment.take_agent_requests().await.iter().map(completed_reply).collect();
        assert_eq!(replies.len(), size);
        // Mixed, so that no replies of one task are adjacent.
        replies.sort_by_key(|text| std::cmp::Reverse(text.len()));
        let (odd, even): (Vec<_>, Vec<_>) =
            replies.into_iter().enumerate().partition(|(n, _)| n % 2 == 1);
        let batch = sqs_event(odd.into_iter().chain(even).map(|(_, text)| text), 1);

        let (response, calls) =
            aws.observe(async |ports| steward_scheduler::handle(ports, batch).await).await;

        // The load with the input for the next step, the output of the only item that does not fit, and the save.
        let (reads, outputs) = (batched_reads(tasks.len()), batched_writes(tasks.len(), 1));
        let saves = batched_writes(tasks.len(), 1);
        let sends = ("SQS.SendMessageBatch", tasks.len().div_ceil(10));
        let [write, read, put] =
            ["BatchExecuteStatement", "BatchGetItem", "PutItem"].map(|o| format!("DynamoDB.{o}"));
        let requests = match tasks.len() {
            // A single task shares no requests.
            1 => vec![("DynamoDB.GetItem", reads), (&*put, outputs + saves), sends],
            _ => vec![(&*write, outputs + saves), (&*read, reads), sends],
        };
        // Load, output, save.
        let sequential = 3 * rounds(tasks.len(), TASKS_AT_ONCE) + super::send_rounds(tasks.len());
        assert_calls(&response, &calls, &requests, sequential);
        for id in &tasks {
            assert_eq!(deployment.task(id).await.revision, 3, "one save for ten replies");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn documents_needed_by_replies_for_one_task_are_read_together() {
    let deployment = TestDeployment::new(&branches()).await;
    submit(&deployment, &ids(1)).await;
    let aws = SlowAws::new(&deployment, "scheduler");
    let wake = sqs_event([wake_message(&ids(1)[0])], 1);
    aws.observe(async |ports| steward_scheduler::handle(ports, wake).await).await;
    for _ in 0..2 {
        let replies: Vec<_> =
            deployment.take_agent_requests().await.iter().map(completed_reply).collect();
        let batch = sqs_event(replies, 1);
        let (response, calls) =
            aws.observe(async |ports| steward_scheduler::handle(ports, batch).await).await;
        let reads = calls.requests("DynamoDB.BatchGetItem");
        assert_eq!(response.batch_item_failures.len(), 0);
        // Load, documents if needed, outputs, save, send.
        assert_eq!(calls.sequential, 4 + reads, "{calls:?}");
    }
    assert_eq!(deployment.take_agent_requests().await.len(), 10);
}

#[tokio::test(start_paused = true)]
async fn corrupt_messages_are_alerted_while_other_tasks_are_decided() {
    let deployment = TestDeployment::new(&sequential_workflow(1)).await;
    submit(&deployment, &ids(10)).await;
    let aws = SlowAws::new(&deployment, "scheduler");
    let texts = ids(10)
        .iter()
        .map(|id| wake_message(id))
        .chain((0..25).map(|_| "{".to_owned()))
        .collect::<Vec<_>>();
    let batch = sqs_event(texts, 1);
    let (response, calls) =
        aws.observe(async |ports| steward_scheduler::handle(ports, batch).await).await;
    assert_eq!(response.batch_item_failures.len(), 25);
    assert_eq!(calls.requests("EventBridge.PutEvents"), 3);
    // Load, definition, save, send.
    assert_eq!(calls.sequential, 4, "{calls:?}");
}

#[tokio::test(start_paused = true)]
async fn errors_are_alerted_and_marked_as_alerted_concurrently() {
    let workflow = json!({ "name": "line", "version": 1, "steps": { "a": {
        "agent": "a", "request": { "path": "/x" }, "recovery": { "then": "alert" },
    } } });
    for size in BATCH_SIZES {
        let deployment =
            TestDeployment::new(&serde_json::from_value(workflow.clone()).unwrap()).await;
        submit(&deployment, &ids(size)).await;
        let aws = SlowAws::new(&deployment, "scheduler");
        let batch = sqs_event(ids(size).iter().map(|id| wake_message(id)), 1);
        aws.observe(async |ports| steward_scheduler::handle(ports, batch).await).await;
        let failed: Vec<_> = deployment
            .take_agent_requests()
            .await
            .iter()
            .map(|request| {
                let mut reply: Value = serde_json::from_str(&completed_reply(request)).unwrap();
                reply["type"] = json!("reply");
                reply["outcome"] =
                    json!({ "status": "failed", "reason": "no", "may_have_run": false });
                reply
            })
            .collect();
        let batch = sqs_event(failed.iter().map(ToString::to_string), 1);

        let (response, calls) =
            aws.observe(async |ports| steward_scheduler::handle(ports, batch).await).await;

        let requests = [
            // The save with the reason, and the record that the alert was sent.
            ("DynamoDB.BatchExecuteStatement", 2 * batched_writes(size, 1)),
            // The load before the decision, and the load before that record.
            ("DynamoDB.BatchGetItem", 2 * batched_reads(size)),
            ("EventBridge.PutEvents", size.div_ceil(10)),
        ];
        // Load, save; alerts; load, save.
        let sequential = 4 * rounds(size, TASKS_AT_ONCE) + send_rounds(size);
        assert_calls(&response, &calls, &requests, sequential);
    }
}
