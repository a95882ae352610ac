//! Races between two schedulers, two supervisors, and two instances of submission, on the real adapters: one wins, and the
//! other gets a conflict as a value, not an error.

use std::{collections::BTreeSet, future::pending};

use futures_util::future::join;
use jiff::Timestamp;
use steward_core::{
    engine::event::Event,
    model::{step::StepState, task::ProcessState},
};
use steward_runtime::drive::{Delivery, drive};

use crate::support::{
    TestDeployment, failed_message_ids, sequential_workflow, sqs_event, submission_message,
    wake_message,
};

const TASKS: usize = 1_000;

fn ids() -> Vec<String> {
    (0..TASKS).map(|n| format!("t-{n}")).collect()
}

fn deliveries(event: &Event) -> Vec<Delivery> {
    let delivery = |id: String| Delivery {
        task_id: id.parse().unwrap(),
        incarnation: None,
        event: event.clone(),
        redelivered: false,
        traceparent: None,
    };
    ids().into_iter().map(delivery).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_schedulers_claim_each_of_a_thousand_tasks_exactly_once() {
    let deployment = TestDeployment::new(&sequential_workflow(1)).await;
    deployment.submit(&deployment.ports("submission"), &ids()).await;
    let (first, second) = (deployment.ports("first"), deployment.ports("second"));

    let (one, other) =
        join(async { drive(&first, deliveries(&Event::Wake), pending()).await }, async {
            drive(&second, deliveries(&Event::Wake), pending()).await
        })
        .await;

    assert!(one.iter().chain(&other).all(Result::is_ok));
    let requests = deployment.take_agent_requests().await;
    assert_eq!(requests.len(), TASKS, "one request for each task");
    assert!(requests.iter().all(|request| request.attempt == 1));
    let claimed: BTreeSet<_> = requests.iter().map(|request| request.task_id.clone()).collect();
    assert_eq!(claimed.len(), TASKS);
    for id in ids() {
        let task = deployment.task(&id).await;
        assert_eq!((task.revision, task.process_state), (2, ProcessState::Processing));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_supervisors_count_each_of_a_thousand_failures_exactly_once() {
    let deployment = TestDeployment::new(&sequential_workflow(1)).await;
    deployment.submit(&deployment.ports("submission"), &ids()).await;
    drive(&deployment.ports("scheduler"), deliveries(&Event::Wake), pending()).await;
    deployment.take_scheduler_messages().await;
    deployment.clock.advance_seconds(31);
    let (first, second) = (deployment.ports("first"), deployment.ports("second"));

    let (one, other) = join(
        async { steward_supervisor::sweep(&first, 0, Timestamp::MAX).await.unwrap() },
        async { steward_supervisor::sweep(&second, 2, Timestamp::MAX).await.unwrap() },
    )
    .await;

    assert_eq!((one.failed, other.failed), (0, 0));
    for id in ids() {
        let task = deployment.task(&id).await;
        assert_eq!(task.failure_count, 1, "{id}");
        let step = task.steps.values().next().unwrap();
        assert!(
            matches!(step.forward.state, StepState::Waiting { attempt: Some(1), .. }),
            "{step:?}"
        );
    }
    assert_eq!(deployment.take_scheduler_messages().await.len(), TASKS, "one wake for each task");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_same_submission_to_two_instances_creates_one_task() {
    let deployment = TestDeployment::new(&sequential_workflow(1)).await;
    let (first, second) = (deployment.ports("first"), deployment.ports("second"));
    let batch = || sqs_event((0..100).map(|n| submission_message(&format!("t-{n}"))), 1);
    let queues = &deployment.config.reply_queues;

    let (one, other) = join(
        steward_submission::handle(&first, queues, batch()),
        steward_submission::handle(&second, queues, batch()),
    )
    .await;

    assert_eq!((failed_message_ids(&one), failed_message_ids(&other)), (vec![], vec![]));
    for n in 0..100 {
        assert_eq!(deployment.task(&format!("t-{n}")).await.revision, 1);
    }
    assert_eq!(
        deployment.take_alerts().await,
        Vec::<serde_json::Value>::new(),
        "no submission was rejected"
    );
}

#[tokio::test]
async fn messages_for_one_task_in_one_batch_share_one_save() {
    let deployment = TestDeployment::new(&sequential_workflow(1)).await;
    deployment.submit(&deployment.ports("submission"), &["t".to_owned()]).await;
    let response = steward_scheduler::handle(
        &deployment.ports("scheduler"),
        sqs_event([wake_message("t"), wake_message("t")], 1),
    )
    .await;
    assert_eq!(failed_message_ids(&response), Vec::<&str>::new());
    assert_eq!(deployment.task("t").await.revision, 2);
    assert_eq!(deployment.take_agent_requests().await.len(), 1);
}
