//! A wide task: the replies to a thousand parts arrive over a hundred invocations of the scheduler at the
//! same time. Each invocation is an instance of its own, as on Lambda, and every call to AWS takes 5 ms.

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::json;
use steward_core::{definition::workflow::Workflow, limits, model::task::ProcessState};

use super::slow::Slow;
use crate::support::{Deployment, completed, event, failed, wake};

/// What each call to AWS takes.
const CALL: Duration = Duration::from_millis(5);

/// Steps beside each other, with a hundred items each.
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
    replies_arrive_at_once(3, 30).await;
}

#[tokio::test(start_paused = true)]
#[ignore = "a minute of computing"]
async fn replies_to_a_thousand_parts_over_a_hundred_concurrent_invocations_are_recorded_in_seconds()
{
    replies_arrive_at_once(10, 100).await;
}

/// The parts of so many steps reply all at the same time, over so many invocations.
async fn replies_arrive_at_once(steps: usize, invocations: usize) {
    let deployment = Deployment::new(&wide(steps)).await;
    let items: Vec<_> = (0..100).collect();
    let submission = json!({ "task_id": "t", "workflow": "line", "input": { "items": items } });
    let batch = event([submission.to_string()], 1);
    let queues = &deployment.config.reply_queues;
    let answer = steward_submission::handle(&deployment.ports("submission"), queues, batch).await;
    assert_eq!(failed(&answer), Vec::<&str>::new());
    let answer =
        steward_scheduler::handle(&deployment.ports("scheduler"), event([wake("t")], 1)).await;
    assert_eq!(failed(&answer), Vec::<&str>::new());
    let requests = deployment.requests().await;
    assert_eq!(requests.len(), steps * 100);
    deployment.to_scheduler().await;
    let replies: Vec<_> = requests.iter().map(completed).collect();
    let start = tokio::time::Instant::now();

    let instances: Vec<_> =
        (0..invocations).map(|_| Slow::taking(CALL, &deployment, "scheduler")).collect();
    let handled = instances.iter().enumerate().map(|(n, instance)| {
        // Parts of every step in each batch.
        let batch = replies.iter().skip(n).step_by(invocations).cloned();
        let batch = event(batch, 1);
        instance.watch(async |ports| steward_scheduler::handle(ports, batch).await)
    });
    let answers = join_all(handled).await;

    let came_back: usize = answers.iter().map(|(answer, _)| failed(answer).len()).sum();
    assert_eq!(
        came_back, 0,
        "messages come back after the visibility timeout, when attempts are over"
    );
    assert!(start.elapsed() < limits::CONFLICTS_WITHIN / 2, "it took {:?}", start.elapsed());
    let task = deployment.task("t").await;
    assert_eq!((task.process_state, task.failure_count), (ProcessState::Processed, 0));
    assert_eq!(deployment.requests().await.len(), 0, "no part is called twice");
    let saves: u64 = answers.iter().map(|(_, seen)| seen.requests("DynamoDB.PutItem")).sum();
    assert!(saves < 8 * invocations as u64, "{saves} tries to save");
}
