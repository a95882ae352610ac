//! A wide task: the replies to hundreds of parts arrive in a hundred concurrent invocations of the scheduler. Each
//! invocation is a separate instance, as on Lambda, and every call to AWS takes 5 ms.

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::json;
use steward_core::{definition::workflow::Workflow, limits, model::task::ProcessState};

use super::slow_aws::SlowAws;
use crate::support::{
    TestDeployment, completed_reply, failed_message_ids, sqs_event, wake_message,
};

/// The duration of each call to AWS.
const CALL: Duration = Duration::from_millis(5);

/// Parallel steps with a hundred items each.
fn wide(steps: usize) -> Workflow {
    let steps: serde_json::Map<_, _> = (0..steps)
        .map(|n| {
            let step = json!({
                "agent": "a", "for_each": { "items": "${ input.items }", "at_once": 100 },
                "request": { "path": "/x", "body": "${ item }" },
            });
            (format!("each_{n}"), step)
        })
        .collect();
    serde_json::from_value(json!({ "name": "line", "version": 1, "steps": steps })).unwrap()
}

#[tokio::test(start_paused = true)]
async fn replies_to_a_wide_task_over_thirty_concurrent_invocations_are_recorded_in_seconds() {
    handle_concurrent_replies(3, 30).await;
}

#[tokio::test(start_paused = true)]
#[ignore = "takes a minute"]
async fn replies_to_eight_hundred_parts_over_a_hundred_concurrent_invocations_are_recorded_in_seconds()
 {
    handle_concurrent_replies(8, 100).await;
}

/// Delivers the replies to all parts of `steps` steps in concurrent invocations.
async fn handle_concurrent_replies(steps: usize, invocations: usize) {
    let deployment = TestDeployment::new(&wide(steps)).await;
    let items: Vec<_> = (0..100).collect();
    let submission = json!({ "task_id": "t", "workflow": "line", "input": { "items": items } });
    let batch = sqs_event([submission.to_string()], 1);
    let queues = &deployment.config.reply_queues;
    let response = steward_submission::handle(&deployment.ports("submission"), queues, batch).await;
    assert_eq!(failed_message_ids(&response), Vec::<&str>::new());
    let response = steward_scheduler::handle(
        &deployment.ports("scheduler"),
        sqs_event([wake_message("t")], 1),
    )
    .await;
    assert_eq!(failed_message_ids(&response), Vec::<&str>::new());
    let requests = deployment.take_agent_requests().await;
    assert_eq!(requests.len(), steps * 100);
    deployment.take_scheduler_messages().await;
    let replies: Vec<_> = requests.iter().map(completed_reply).collect();
    let start = tokio::time::Instant::now();

    let instances: Vec<_> = (0..invocations)
        .map(|_| SlowAws::with_call_duration(CALL, &deployment, "scheduler"))
        .collect();
    let handled = instances.iter().enumerate().map(|(n, instance)| {
        // Parts of every step in each batch.
        let batch = replies.iter().skip(n).step_by(invocations).cloned();
        let batch = sqs_event(batch, 1);
        instance.observe(async |ports| steward_scheduler::handle(ports, batch).await)
    });
    let results = join_all(handled).await;

    let redelivered: usize =
        results.iter().map(|(response, _)| failed_message_ids(response).len()).sum();
    assert_eq!(
        redelivered, 0,
        "messages return after the visibility timeout, when their attempts are over"
    );
    assert!(
        start.elapsed() < limits::SAVE_CONFLICT_RETRY_WITHIN / 2,
        "it took {:?}",
        start.elapsed()
    );
    let task = deployment.task("t").await;
    assert_eq!((task.process_state, task.failure_count), (ProcessState::Processed, 0));
    assert_eq!(deployment.take_agent_requests().await.len(), 0, "no part is called twice");
    let saves: u64 = results.iter().map(|(_, calls)| calls.requests("DynamoDB.PutItem")).sum();
    assert!(saves < 8 * invocations as u64, "{saves} attempts to save");
}
