//! The rows of the failure table in `docs/architecture.md` that need more than the core: processes that crash, and calls that
//! fail before or after they took effect. Real handlers and real adapters run on the embedded AWS, and faults are injected
//! into calls of the SDK.

use jiff::Timestamp;
use steward_core::model::{names::Incarnation, step::StepState, task::ProcessState};

use crate::support::{
    AdapterPorts, InjectedFault, SdkFaultInjector, TestDeployment, completed_reply,
    failed_message_ids, sequential_workflow, sqs_event, submission_message, wake_message,
    without_operation,
};

fn ids(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("t-{n}")).collect()
}

/// A deployment with the submitted task `t`, whose wake is taken from the queue.
async fn deployment_with_task() -> TestDeployment {
    let deployment = TestDeployment::new(&sequential_workflow(2)).await;
    deployment.submit(&deployment.ports("submission"), &["t".to_owned()]).await;
    assert_eq!(deployment.take_scheduler_messages().await, [wake_message("t")]);
    deployment
}

/// Runs a scheduler; returns the ids of its failed messages, or `None` if it panicked.
async fn schedule(ports: AdapterPorts, bodies: Vec<String>, receives: u32) -> Option<Vec<String>> {
    let run = async move { steward_scheduler::handle(&ports, sqs_event(bodies, receives)).await };
    let response = tokio::spawn(run).await.ok()?;
    Some(failed_message_ids(&response).into_iter().map(str::to_owned).collect())
}

#[tokio::test]
async fn a_scheduler_that_crashes_before_the_save_has_decided_nothing() {
    let deployment = deployment_with_task().await;
    let injector = SdkFaultInjector::once("PutItem", "steward-tasks", InjectedFault::CrashBefore);
    let ports = deployment.ports_with_faults("scheduler", injector.clone());
    // Only the message that panicked returns to the queue.
    assert_eq!(schedule(ports, vec![wake_message("t")], 1).await, Some(vec!["m-0".to_owned()]));
    assert!(injector.is_exhausted());
    assert_eq!(deployment.task("t").await.process_state, ProcessState::Pending);
    assert_eq!(deployment.take_agent_requests().await.len(), 0);

    assert_eq!(
        schedule(deployment.ports("scheduler"), vec![wake_message("t")], 2).await,
        Some(vec![])
    );
    assert_eq!(deployment.take_agent_requests().await.len(), 1);
}

#[tokio::test]
async fn a_scheduler_that_crashes_between_save_and_send_sends_when_redelivered() {
    for fault in [InjectedFault::CrashBefore, InjectedFault::FailBefore] {
        let deployment = deployment_with_task().await;
        let ports = deployment
            .ports_with_faults("scheduler", SdkFaultInjector::once("SendMessageBatch", "", fault));
        let returned = schedule(ports, vec![wake_message("t")], 1).await;
        assert!(returned.is_none_or(|failed| failed == ["m-0"]));
        assert_eq!(deployment.task("t").await.process_state, ProcessState::Processing);
        assert_eq!(deployment.take_agent_requests().await.len(), 0);

        // The clock did not advance: nothing waited for the complete-by.
        assert_eq!(
            schedule(deployment.ports("another"), vec![wake_message("t")], 2).await,
            Some(vec![])
        );
        let requests = deployment.take_agent_requests().await;
        assert_eq!(requests.len(), 1);
        assert_eq!(requests[0].attempt, 1, "the same attempt, not another");
        assert_eq!(deployment.task("t").await.failure_count, 0);
    }
}

#[tokio::test]
async fn a_redelivered_reply_sends_the_next_request_that_was_not_sent() {
    let deployment = deployment_with_task().await;
    schedule(deployment.ports("scheduler"), vec![wake_message("t")], 1).await;
    let reply = completed_reply(&deployment.take_agent_requests().await[0]);
    let ports = deployment.ports_with_faults(
        "scheduler",
        SdkFaultInjector::once("SendMessageBatch", "", InjectedFault::CrashBefore),
    );
    assert_eq!(schedule(ports, vec![reply.clone()], 1).await, None);
    assert_eq!(deployment.take_agent_requests().await.len(), 0);

    assert_eq!(schedule(deployment.ports("another"), vec![reply], 2).await, Some(vec![]));
    let requests = deployment.take_agent_requests().await;
    assert_eq!(requests.len(), 1);
    assert_eq!(requests[0].step.to_string(), "step_2");
    assert_eq!(requests[0].body.as_ref().unwrap().value()["before"], "step_1-1");
}

#[tokio::test]
async fn a_save_repeated_by_the_sdk_is_recognised_as_the_schedulers_own() {
    let deployment = deployment_with_task().await;
    // The save took effect; the SDK repeats it, which conflicts with the new revision. Nothing else would send the
    // request, because the message is not redelivered.
    let injector = SdkFaultInjector::once("PutItem", "steward-tasks", InjectedFault::RetryAfter);
    let ports = deployment.ports_with_faults("scheduler", injector.clone());
    assert_eq!(schedule(ports, vec![wake_message("t")], 1).await, Some(vec![]));
    assert!(injector.is_exhausted());
    assert_eq!(deployment.take_agent_requests().await.len(), 1);
    assert_eq!(deployment.task("t").await.revision, 2);
}

#[tokio::test]
async fn a_submission_repeated_by_the_sdk_is_the_same_submission() {
    let deployment = TestDeployment::new(&sequential_workflow(1)).await;
    let injector = SdkFaultInjector::once("PutItem", "steward-tasks", InjectedFault::RetryAfter);
    let ports = deployment.ports_with_faults("submission", injector.clone());
    deployment.submit(&ports, &["t".to_owned()]).await;
    assert!(injector.is_exhausted());
    assert_eq!(deployment.take_scheduler_messages().await, [wake_message("t")]);
    assert_eq!(
        deployment.take_alerts().await,
        Vec::<serde_json::Value>::new(),
        "the submission was not rejected"
    );
}

#[tokio::test]
async fn redelivery_recovers_a_save_whose_response_is_lost() {
    let deployment = deployment_with_task().await;
    let injector = SdkFaultInjector::once("PutItem", "steward-tasks", InjectedFault::FailAfter);
    let ports = deployment.ports_with_faults("scheduler", injector);
    assert_eq!(schedule(ports, vec![wake_message("t")], 1).await, Some(vec!["m-0".to_owned()]));
    assert_eq!(deployment.task("t").await.process_state, ProcessState::Processing);
    assert_eq!(
        schedule(deployment.ports("scheduler"), vec![wake_message("t")], 2).await,
        Some(vec![])
    );
    assert_eq!(deployment.take_agent_requests().await.len(), 1);
    assert_eq!(deployment.task("t").await.revision, 2);
}

#[tokio::test]
async fn the_next_delivery_reuses_a_document_that_was_written_without_its_save() {
    let deployment = deployment_with_task().await;
    schedule(deployment.ports("scheduler"), vec![wake_message("t")], 1).await;
    let request = deployment.take_agent_requests().await.remove(0);
    let injector = SdkFaultInjector::once("PutItem", "steward-tasks", InjectedFault::CrashBefore);
    let mut reply: serde_json::Value = serde_json::from_str(&completed_reply(&request)).unwrap();
    // Too large for the item of the task.
    reply["outcome"]["output"]["note"] = "x".repeat(2_000).into();
    let reply = reply.to_string();
    let failed =
        schedule(deployment.ports_with_faults("scheduler", injector), vec![reply.clone()], 1).await;
    assert_eq!(failed, Some(vec!["m-0".to_owned()]));

    // A second reply to the same attempt has another output; the document that was written first is kept.
    let other = reply.replace("step_1-1", "other");
    assert_eq!(schedule(deployment.ports("another"), vec![other], 1).await, Some(vec![]));
    let requests = deployment.take_agent_requests().await;
    assert_eq!(requests[0].body.as_ref().unwrap().value()["before"], "step_1-1");
}

#[tokio::test]
async fn the_supervisor_recovers_a_task_whose_scheduler_crashed() {
    let deployment = deployment_with_task().await;
    let ports = deployment.ports_with_faults(
        "scheduler",
        SdkFaultInjector::once("SendMessageBatch", "", InjectedFault::CrashBefore),
    );
    assert_eq!(schedule(ports, vec![wake_message("t")], 1).await, None);
    // The message is lost, too. After the complete-by, the supervisor finds the task.
    deployment.clock.advance_seconds(31);
    steward_supervisor::sweep(&deployment.ports("supervisor"), 0, Timestamp::MAX).await.unwrap();
    let wakes = deployment.take_scheduler_messages().await;
    assert_eq!(wakes.len(), 1);
    schedule(deployment.ports("another"), wakes, 1).await;
    let requests = deployment.take_agent_requests().await;
    assert_eq!((requests.len(), requests[0].attempt), (1, 2));
}

#[tokio::test]
async fn a_lost_wake_only_delays_the_task() {
    let deployment = deployment_with_task().await;
    deployment.clock.advance_seconds(9);
    let supervisor = deployment.ports("supervisor");
    assert_eq!(steward_supervisor::sweep(&supervisor, 0, Timestamp::MAX).await.unwrap().due, 0);
    deployment.clock.advance_seconds(1);
    assert_eq!(steward_supervisor::sweep(&supervisor, 0, Timestamp::MAX).await.unwrap().due, 1);
    assert_eq!(deployment.take_scheduler_messages().await.len(), 1);
}

#[tokio::test]
async fn redelivery_recovers_a_submission_that_crashed_after_recording() {
    for fault in [InjectedFault::CrashBefore, InjectedFault::FailBefore, InjectedFault::FailAfter] {
        let deployment = TestDeployment::new(&sequential_workflow(1)).await;
        let queues = deployment.config.reply_queues.clone();
        let ports = deployment
            .ports_with_faults("submission", SdkFaultInjector::once("SendMessageBatch", "", fault));
        let first_queues = queues.clone();
        let first = tokio::spawn(async move {
            steward_submission::handle(
                &ports,
                &first_queues,
                sqs_event([submission_message("t")], 1),
            )
            .await
        });
        assert!(
            first.await.is_ok_and(|response| failed_message_ids(&response) == ["m-0"])
                || fault == InjectedFault::CrashBefore
        );
        deployment.take_scheduler_messages().await;

        let ports = deployment.ports("submission");
        let again =
            steward_submission::handle(&ports, &queues, sqs_event([submission_message("t")], 2))
                .await;
        assert_eq!(failed_message_ids(&again), Vec::<&str>::new());
        assert_eq!(deployment.take_scheduler_messages().await, [wake_message("t")]);
        assert_eq!(deployment.task("t").await.revision, 1);
    }
}

#[tokio::test]
async fn a_redelivered_rejection_sends_the_alert_that_was_lost_in_a_crash() {
    for fault in [InjectedFault::CrashBefore, InjectedFault::FailBefore, InjectedFault::FailAfter] {
        let deployment = TestDeployment::new(&sequential_workflow(1)).await;
        let queues = deployment.config.reply_queues.clone();
        let ports = deployment
            .ports_with_faults("submission", SdkFaultInjector::once("PutEvents", "", fault));
        let (first_queues, text) =
            (queues.clone(), submission_message("t").replace("line", "nowhere"));
        let first = sqs_event([text.clone()], 1);
        let first = async move { steward_submission::handle(&ports, &first_queues, first).await };
        let first = tokio::spawn(first).await;
        assert!(
            first.is_ok_and(|response| failed_message_ids(&response) == ["m-0"])
                || fault == InjectedFault::CrashBefore
        );
        let alerts = deployment.take_alerts().await.len();
        assert_eq!(alerts, usize::from(fault == InjectedFault::FailAfter));

        let ports = deployment.ports("submission");
        let again = steward_submission::handle(&ports, &queues, sqs_event([text], 2)).await;
        assert_eq!(failed_message_ids(&again), Vec::<&str>::new());
        let alerts = deployment.take_alerts().await;
        assert_eq!(alerts.len(), 1);
        assert_eq!(alerts[0]["detail-type"], "Submission Refused");
    }
}

#[tokio::test]
async fn the_next_sweep_continues_after_a_supervisor_crashed_after_counting() {
    let deployment = deployment_with_task().await;
    schedule(deployment.ports("scheduler"), vec![wake_message("t")], 1).await;
    deployment.clock.advance_seconds(31);
    let ports = deployment.ports_with_faults(
        "supervisor",
        SdkFaultInjector::once("SendMessageBatch", "", InjectedFault::CrashBefore),
    );
    let run =
        tokio::spawn(async move { steward_supervisor::sweep(&ports, 0, Timestamp::MAX).await });
    assert!(run.await.is_err());
    assert_eq!(deployment.task("t").await.failure_count, 1);

    // The failure is counted, and the wake was lost in the crash. The next sweep sends it.
    deployment.clock.advance_seconds(11);
    steward_supervisor::sweep(&deployment.ports("supervisor"), 0, Timestamp::MAX).await.unwrap();
    assert_eq!(deployment.take_scheduler_messages().await.len(), 1);
    assert_eq!(deployment.task("t").await.failure_count, 1, "counted once");
}

#[tokio::test]
async fn the_next_sweep_sends_an_alert_that_was_lost_in_a_crash() {
    let deployment = TestDeployment::new(&sequential_workflow(1)).await;
    deployment.submit(&deployment.ports("submission"), &["t".to_owned()]).await;
    schedule(deployment.ports("scheduler"), vec![wake_message("t")], 1).await;
    for _ in 0..2 {
        deployment.clock.advance_seconds(31);
        steward_supervisor::sweep(&deployment.ports("supervisor"), 0, Timestamp::MAX)
            .await
            .unwrap();
        if deployment.task("t").await.process_state == ProcessState::Error {
            break;
        }
        let ports = deployment.ports("scheduler");
        schedule(ports, vec![wake_message("t")], 1).await;
        deployment.clock.advance_seconds(31);
        let ports = deployment.ports_with_faults(
            "supervisor",
            SdkFaultInjector::once("PutEvents", "", InjectedFault::CrashBefore),
        );
        assert!(
            tokio::spawn(async move { steward_supervisor::sweep(&ports, 0, Timestamp::MAX).await })
                .await
                .is_err()
        );
    }
    assert_eq!(deployment.task("t").await.process_state, ProcessState::Error);
    let alerts = deployment.take_alerts().await;
    assert_eq!(alerts.len(), 1);
    assert_eq!(alerts[0]["detail-type"], "Task In Error");
    assert_eq!(deployment.task("t").await.due, None, "the alert is sent, so the task is not due");
}

#[tokio::test]
async fn a_panic_over_one_task_does_not_affect_the_others_of_its_batch() {
    let deployment = TestDeployment::new(&sequential_workflow(1)).await;
    deployment.submit(&deployment.ports("submission"), &ids(10)).await;
    // Without shared requests, so that only one task panics.
    let sdk = without_operation("BatchExecuteStatement", &deployment.aws.sdk_config());
    let injector = SdkFaultInjector::always("PutItem", "\"t-3\"", InjectedFault::CrashBefore);
    let ports = deployment.ports_with_sdk("scheduler", &injector.wrap(&sdk));
    let wakes = ids(10).iter().map(|id| wake_message(id)).collect();
    assert_eq!(schedule(ports, wakes, 1).await, Some(vec!["m-3".to_owned()]));
    assert_eq!(deployment.take_agent_requests().await.len(), 9);
    assert_eq!(deployment.task("t-3").await.process_state, ProcessState::Pending);
}

#[tokio::test]
async fn nothing_is_acknowledged_while_dynamodb_is_down() {
    let deployment = deployment_with_task().await;
    let ports = deployment.ports_with_faults(
        "scheduler",
        SdkFaultInjector::always("GetItem", "", InjectedFault::FailBefore),
    );
    assert_eq!(schedule(ports, vec![wake_message("t")], 1).await, Some(vec!["m-0".to_owned()]));
    let ports = deployment.ports_with_faults(
        "submission",
        SdkFaultInjector::always("PutItem", "", InjectedFault::FailBefore),
    );
    let response = steward_submission::handle(
        &ports,
        &deployment.config.reply_queues,
        sqs_event([submission_message("u")], 1),
    );
    assert_eq!(failed_message_ids(&response.await), ["m-0"]);
}

#[tokio::test]
async fn a_missing_client_queue_does_not_block_the_task() {
    let deployment = TestDeployment::new(&sequential_workflow(1)).await;
    let gone = deployment.config.scheduler_queue_url.replace("steward-scheduler", "client-gone");
    let mut submission: serde_json::Value = serde_json::from_str(&submission_message("t")).unwrap();
    submission["reply_to"] = gone.into();
    let (ports, queues) = (deployment.ports("submission"), &deployment.config.reply_queues);
    let response =
        steward_submission::handle(&ports, queues, sqs_event([submission.to_string()], 1)).await;
    assert_eq!(failed_message_ids(&response), Vec::<&str>::new());
    schedule(deployment.ports("scheduler"), deployment.take_scheduler_messages().await, 1).await;
    let reply = completed_reply(&deployment.take_agent_requests().await[0]);
    assert_eq!(schedule(deployment.ports("scheduler"), vec![reply], 1).await, Some(vec![]));
    assert_eq!(deployment.task("t").await.process_state, ProcessState::Processed);
}

#[tokio::test]
async fn corrupt_messages_return_to_the_queue_and_are_alerted_once() {
    let deployment = deployment_with_task().await;
    let messages = || vec!["{".to_owned(), wake_message("t")];
    let incarnation = deployment.task("t").await.incarnation;
    let reply_without_attempt = completed_for_a_step_that_never_started(incarnation);
    let mut first = messages();
    first.push(reply_without_attempt.clone());
    let mut failed = schedule(deployment.ports("scheduler"), first.clone(), 1).await.unwrap();
    failed.sort();
    assert_eq!(failed, ["m-0", "m-2"]);
    assert_eq!(deployment.take_agent_requests().await.len(), 1, "the valid message was handled");
    let alerts = deployment.take_alerts().await;
    assert_eq!(alerts.len(), 2, "{alerts:#?}");
    schedule(deployment.ports("scheduler"), vec!["{".to_owned()], 2).await;
    assert_eq!(deployment.take_alerts().await.len(), 0, "alerted on the first delivery only");
}

fn completed_for_a_step_that_never_started(incarnation: Incarnation) -> String {
    serde_json::json!({
        "type": "reply", "task_id": "t", "step": "step_2", "attempt": 1, "incarnation": incarnation,
        "outcome": { "status": "completed", "output": null },
    })
    .to_string()
}

#[tokio::test]
async fn an_attempt_without_a_reply_is_repeated_and_its_late_success_completes_the_step() {
    let deployment = deployment_with_task().await;
    schedule(deployment.ports("scheduler"), vec![wake_message("t")], 1).await;
    let first = deployment.take_agent_requests().await.remove(0);
    deployment.clock.advance_seconds(31);
    steward_supervisor::sweep(&deployment.ports("supervisor"), 0, Timestamp::MAX).await.unwrap();
    schedule(deployment.ports("scheduler"), deployment.take_scheduler_messages().await, 1).await;
    let second = deployment.take_agent_requests().await.remove(0);
    assert_eq!((first.attempt, second.attempt), (1, 2));
    assert_eq!(first.idempotency_key, second.idempotency_key);
    // The first attempt replies late.
    schedule(deployment.ports("scheduler"), vec![completed_reply(&first)], 1).await;
    let task = deployment.task("t").await;
    let step = task.steps.values().next().unwrap();
    assert_eq!(step.forward.state, StepState::Completed { attempt: Some(2) });
    assert_eq!(deployment.take_agent_requests().await[0].step.to_string(), "step_2");
    // Its repeated call was recognised by the service.
    schedule(deployment.ports("scheduler"), vec![completed_reply(&second)], 1).await;
    assert!(deployment.take_agent_requests().await.is_empty());
}
