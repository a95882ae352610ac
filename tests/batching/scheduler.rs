//! The scheduler: wakes and answers, each for a task of its own and many for one.

use serde_json::{Value, json};
use steward_core::definition::workflow::Workflow;
use steward_runtime::drive::TASKS_AT_ONCE;

use super::{
    SEND, SENDS_AT_ONCE, SIZES, assert_seen, ids, rounds, sends, slow::Slow, submitted, together,
    writes,
};
use crate::support::{Deployment, completed, event, line, wake};

/// One step for each of ten items, all at once, and a step that follows.
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

/// Branches that read nothing in common: each is followed by a step that reads a document of its own.
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
    for size in SIZES {
        let deployment = Deployment::new(&line(2)).await;
        submitted(&deployment, &ids(size)).await;
        let slow = Slow::new(&deployment, "scheduler");
        let batch = event(ids(size).iter().map(|id| wake(id)), 1);

        let (answer, seen) =
            slow.watch(async |ports| steward_scheduler::handle(ports, batch).await).await;

        // The tasks in hand are loaded together, and their documents; and the definition, once: the
        // instance is new.
        let requests = [
            ("DynamoDB.BatchExecuteStatement", writes(size, 1)),
            ("DynamoDB.BatchGetItem", 2 * together(size)),
            ("DynamoDB.GetItem", 1),
            ("SQS.SendMessageBatch", size.div_ceil(10)),
        ];
        // Load, document, save.
        let chain = 3 * rounds(size, TASKS_AT_ONCE) + 1 + sends(size);
        assert_seen(&answer, &seen, &requests, chain);
        let sends = size.div_ceil(SEND).min(SENDS_AT_ONCE);
        assert_eq!(seen.at_once, writes(size.min(TASKS_AT_ONCE), 1).max(sends));
        assert_eq!(deployment.requests().await.len(), size);
    }
}

#[tokio::test(start_paused = true)]
async fn replies_for_one_task_in_one_batch_share_one_load_and_one_save() {
    for size in SIZES {
        let deployment = Deployment::new(&fan_out()).await;
        let tasks = ids(size / 10);
        submitted(&deployment, &tasks).await;
        let slow = Slow::new(&deployment, "scheduler");
        let batch = event(tasks.iter().map(|id| wake(id)), 1);
        slow.watch(async |ports| steward_scheduler::handle(ports, batch).await).await;
        let mut replies: Vec<_> = deployment.requests().await.iter().map(completed).collect();
        assert_eq!(replies.len(), size);
        // Mixed, so that no task's answers are neighbours.
        replies.sort_by_key(|text| std::cmp::Reverse(text.len()));
        let (odd, even): (Vec<_>, Vec<_>) =
            replies.into_iter().enumerate().partition(|(n, _)| n % 2 == 1);
        let batch = event(odd.into_iter().chain(even).map(|(_, text)| text), 1);

        let (answer, seen) =
            slow.watch(async |ports| steward_scheduler::handle(ports, batch).await).await;

        // What each item returned.
        let outputs = writes(tasks.len(), 10);
        // A load, and the input that the next step reads. And the save.
        let (reads, saves) = (2 * together(tasks.len()), writes(tasks.len(), 1));
        let sends = ("SQS.SendMessageBatch", tasks.len().div_ceil(10));
        let [write, read, put] =
            ["BatchExecuteStatement", "BatchGetItem", "PutItem"].map(|o| format!("DynamoDB.{o}"));
        let requests = match tasks.len() {
            // One task has nobody to share a request with.
            1 => vec![(&*write, outputs), ("DynamoDB.GetItem", reads), (&*put, saves), sends],
            _ => vec![(&*write, outputs + saves), (&*read, reads), sends],
        };
        // Load, input, outputs side by side, save.
        let chain = 4 * rounds(tasks.len(), TASKS_AT_ONCE) + super::sends(tasks.len());
        assert_seen(&answer, &seen, &requests, chain);
        for id in &tasks {
            assert_eq!(deployment.task(id).await.revision, 3, "one save for ten answers");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn documents_needed_by_replies_for_one_task_are_read_together() {
    let deployment = Deployment::new(&branches()).await;
    submitted(&deployment, &ids(1)).await;
    let slow = Slow::new(&deployment, "scheduler");
    let wake = event([wake(&ids(1)[0])], 1);
    slow.watch(async |ports| steward_scheduler::handle(ports, wake).await).await;
    for _ in 0..2 {
        let replies: Vec<_> = deployment.requests().await.iter().map(completed).collect();
        let batch = event(replies, 1);
        let (answer, seen) =
            slow.watch(async |ports| steward_scheduler::handle(ports, batch).await).await;
        let reads = seen.requests("DynamoDB.BatchGetItem");
        assert_eq!(answer.batch_item_failures.len(), 0);
        // Load, documents if there are any to read, outputs, save, send.
        assert_eq!(seen.chain, 4 + reads, "{seen:?}");
    }
    assert_eq!(deployment.requests().await.len(), 10);
}

#[tokio::test(start_paused = true)]
async fn corrupt_messages_are_alerted_while_other_tasks_are_decided() {
    let deployment = Deployment::new(&line(1)).await;
    submitted(&deployment, &ids(10)).await;
    let slow = Slow::new(&deployment, "scheduler");
    let texts = ids(10)
        .iter()
        .map(|id| wake(id))
        .chain((0..25).map(|_| "{".to_owned()))
        .collect::<Vec<_>>();
    let batch = event(texts, 1);
    let (answer, seen) =
        slow.watch(async |ports| steward_scheduler::handle(ports, batch).await).await;
    assert_eq!(answer.batch_item_failures.len(), 25);
    assert_eq!(seen.requests("EventBridge.PutEvents"), 3);
    // Load, definition, document, save, send.
    assert_eq!(seen.chain, 5, "{seen:?}");
}

#[tokio::test(start_paused = true)]
async fn errors_are_alerted_and_marked_as_alerted_concurrently() {
    let workflow = json!({ "name": "line", "version": 1, "steps": { "a": {
        "agent": "a", "request": { "path": "/x" }, "recovery": { "then": "alert" },
    } } });
    for size in SIZES {
        let deployment = Deployment::new(&serde_json::from_value(workflow.clone()).unwrap()).await;
        submitted(&deployment, &ids(size)).await;
        let slow = Slow::new(&deployment, "scheduler");
        let batch = event(ids(size).iter().map(|id| wake(id)), 1);
        slow.watch(async |ports| steward_scheduler::handle(ports, batch).await).await;
        let failed: Vec<_> = deployment
            .requests()
            .await
            .iter()
            .map(|request| {
                let mut reply: Value = serde_json::from_str(&completed(request)).unwrap();
                reply["type"] = json!("reply");
                reply["outcome"] =
                    json!({ "status": "failed", "reason": "no", "may_have_run": false });
                reply
            })
            .collect();
        let batch = event(failed.iter().map(ToString::to_string), 1);

        let (answer, seen) =
            slow.watch(async |ports| steward_scheduler::handle(ports, batch).await).await;

        let requests = [
            // Why it failed, the save, and that the alert is out.
            ("DynamoDB.BatchExecuteStatement", 3 * writes(size, 1)),
            // To decide, and to record that.
            ("DynamoDB.BatchGetItem", 2 * together(size)),
            ("EventBridge.PutEvents", size.div_ceil(10)),
        ];
        // Load, reason, save; alerts; load, save.
        let chain = 5 * rounds(size, TASKS_AT_ONCE) + sends(size);
        assert_seen(&answer, &seen, &requests, chain);
    }
}
