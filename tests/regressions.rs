//! Regression tests of defects that adversarial testing found, on the real adapters over the embedded AWS: alerts that are
//! too large for one request, a damaged journal, a save whose response is lost, a client's queue that rejects messages.

use std::io::Write;

use aws_smithy_runtime_api::client::http::{HttpConnector, HttpConnectorFuture};
use jiff::SignedDuration;
use serde_json::{Value, json};
use steward_core::{
    definition::{plan::Plan, workflow::Workflow},
    model::{
        items::ItemRecords,
        step::{StepRecord, StepState},
        task::{ProcessState, Task},
    },
    submission::accept,
};
use steward_emulator::embedded::EmbeddedAws;
use steward_runtime::ports::{CreateOutcome, Ports, SaveOutcome, StateStore, shard_of};
use steward_supervisor::run_once;

use crate::support::{
    TestDeployment, completed_reply,
    http_client::{json_body, json_response},
    sequential_workflow, sqs_event, wake_message, with_request_handler,
};

/// A workflow with long step names, each with up to a hundred items.
fn wide_workflow(steps: usize) -> Workflow {
    let name = |n: usize| format!("reserve_the_seats_of_all_passengers_{n:04}");
    let definitions: serde_json::Map<_, _> = (0..steps)
        .map(|n| {
            let after: Vec<_> = n.checked_sub(1).map(name).into_iter().collect();
            (
                name(n),
                json!({
                    "agent": "a", "after": after, "for_each": { "items": "${ input.items }" },
                    "request": { "path": "/x", "body": "${ item }" },
                    "undo": { "request": { "path": "/y", "body": "${ item }" } },
                }),
            )
        })
        .collect();
    serde_json::from_value(json!({ "name": "wide", "version": 1, "steps": definitions })).unwrap()
}

/// Ten tasks of the largest definition that publication accepts are past the deadline of their undo. The alerts of nine of
/// them are together too large for one request.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn alerts_that_exceed_one_request_are_published_in_several() {
    let most = (1..=40).take_while(|n| wide_workflow(*n).problems().is_empty()).last().unwrap();
    let workflow = wide_workflow(most);
    let deployment = TestDeployment::new(&workflow).await;
    let plan = Plan::new(workflow.clone()).unwrap();
    let ports = deployment.ports("supervisor");
    let shards = deployment.config.shards;
    let ids: Vec<String> = (0..)
        .map(|n| format!("order-{n}"))
        .filter(|id| shard_of(&id.parse().unwrap(), shards) == 0)
        .take(10)
        .collect();
    for (n, id) in ids.iter().enumerate() {
        let submission =
            serde_json::from_value(json!({ "task_id": id, "workflow": "wide", "input": {} }))
                .unwrap();
        let at = deployment.clock.clone();
        let now = steward_runtime::ports::Clock::now(&at) - SignedDuration::from_hours(48);
        let timing = ports.timing();
        let (mut task, document) = accept(&submission, &plan, None, now, timing).unwrap();
        // One of the ten tasks has completed only one item.
        let items = if n == 0 { 1 } else { 100 };
        let done = || StepRecord::new(StepState::Completed { attempt: Some(1) });
        task.steps = workflow
            .steps
            .keys()
            .take(if n == 0 { 1 } else { most })
            .map(|step| {
                let mut record = StepRecord::new(StepState::RunningItems);
                record.items = Some(ItemRecords::with_started(100, (0..items).map(|_| done())));
                (step.clone(), record)
            })
            .collect();
        task.process_state = ProcessState::Undoing;
        task.undo_reason = Some("no".to_owned());
        task.complete_by = now + SignedDuration::from_hours(24);
        task.due = Some(task.complete_by);
        assert_eq!(
            ports.store().create(&task, document.as_ref()).await.unwrap(),
            CreateOutcome::Created
        );
    }
    for _ in 0..4 {
        let deadline =
            steward_runtime::ports::Clock::now(&deployment.clock) + SignedDuration::from_secs(60);
        run_once(&ports, 0, deadline).await.unwrap();
        deployment.clock.advance_seconds(3600);
    }
    let due: Vec<_> = futures_util::future::join_all(ids.iter().map(|id| deployment.task(id)))
        .await
        .iter()
        .map(|task| task.due.is_some())
        .collect();
    assert!(due.iter().all(|due| !due), "tasks in Error without an alert");
    assert_eq!(deployment.take_alerts().await.len(), ids.len());
}

/// One byte in the middle of a journal is damaged, as after a power failure that wrote its pages out of order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_journal_with_a_damaged_line_in_the_middle_is_rejected() {
    let dir = std::env::temp_dir().join(format!("steward-journal-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    let url;
    {
        let aws = EmbeddedAws::on_disk(&dir).unwrap();
        let sqs = aws_sdk_sqs::Client::new(&aws.sdk_config());
        url = sqs.create_queue().queue_name("q").send().await.unwrap().queue_url.unwrap();
        for n in 0..100 {
            sqs.send_message().queue_url(&url).message_body(format!("m-{n}")).send().await.unwrap();
        }
    }
    let path = dir.join("queues.jsonl");
    let mut text = std::fs::read(&path).unwrap();
    let at = text.windows(6).position(|w| w == b"\"m-10\"").unwrap();
    text[at] = 0;
    std::fs::File::create(&path).unwrap().write_all(&text).unwrap();
    let opened = EmbeddedAws::on_disk(&dir);
    let after = std::fs::read_to_string(&path).unwrap_or_default();
    let remaining = after.matches("\"body\"").count();
    std::fs::remove_dir_all(&dir).unwrap();
    assert!(
        remaining >= 99 || opened.is_err(),
        "the file was overwritten with {remaining} of 100 acknowledged messages"
    );
}

/// The test of the same name in `lifetimes`, on the DynamoDB adapter.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_save_of_an_earlier_task_with_the_same_id_is_rejected() {
    let deployment = TestDeployment::new(&sequential_workflow(1)).await;
    let workflow = Plan::new(sequential_workflow(1)).unwrap();
    let ports = deployment.ports("scheduler");
    let submission =
        serde_json::from_value(json!({ "task_id": "t", "workflow": "line", "input": {} })).unwrap();
    let now = steward_runtime::ports::Clock::now(&deployment.clock);
    let (first, document) = accept(
        &submission,
        &workflow,
        None,
        now - SignedDuration::from_hours(24 * 60),
        ports.timing(),
    )
    .unwrap();
    assert_eq!(
        ports.store().create(&first, document.as_ref()).await.unwrap(),
        CreateOutcome::Created
    );
    let ended = Task {
        process_state: ProcessState::Error,
        due: None,
        ended_at: Some(first.submitted_at),
        resolved_at: Some(first.submitted_at),
        revision: 2,
        ..first
    };
    assert!(matches!(ports.store().save(&ended).await.unwrap(), SaveOutcome::Saved));
    // The task expired, so its id can be reused.
    let (second, document) = accept(&submission, &workflow, None, now, ports.timing()).unwrap();
    assert_eq!(
        ports.store().create(&second, document.as_ref()).await.unwrap(),
        CreateOutcome::Created
    );
    let running = Task { process_state: ProcessState::Processing, revision: 2, ..second };
    assert!(matches!(ports.store().save(&running).await.unwrap(), SaveOutcome::Saved));
    // A slow scheduler that loaded the first task just before it expired saves its decision.
    let slow = Task { revision: 3, ..ended };
    let saved = ports.store().save(&slow).await.unwrap();
    assert!(
        matches!(saved, SaveOutcome::Conflict(_)),
        "the save of an expired task replaced the running one"
    );
}

/// The response to a save is lost, another scheduler saves the next revision, and the SDK repeats the first save, which
/// conflicts with that revision. The scheduler sends the effects of the first save nonetheless.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn effects_are_sent_if_the_response_to_their_save_is_lost_and_another_save_follows() {
    let step = |after: Value, more: Value| {
        let mut step = json!({ "agent": "a", "after": after, "complete_within": "30s", "request": { "path": "/x" } });
        step.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        step
    };
    let workflow: Workflow =
        serde_json::from_value(json!({ "name": "line", "version": 1, "steps": {
        "left": step(json!([]), json!({})), "right": step(json!([]), json!({})),
        "mail": step(json!(["left"]), json!({ "idempotent": false })),
    } }))
        .unwrap();
    let deployment = TestDeployment::new(&workflow).await;
    deployment.submit(&deployment.ports("submission"), &["t".to_owned()]).await;
    deployment.take_scheduler_messages().await;
    let second = std::sync::Arc::new(deployment.ports("second"));
    steward_scheduler::handle(&*second, sqs_event([wake_message("t")], 1)).await;
    let requests = deployment.take_agent_requests().await;
    let reply =
        |step: &str| completed_reply(requests.iter().find(|r| r.step.to_string() == step).unwrap());
    let (left, right) = (reply("left"), reply("right"));
    let done = std::sync::atomic::AtomicBool::new(false);
    let sdk = with_request_handler(&deployment.aws.sdk_config(), move |request, aws| {
        let body = json_body(&request).to_string();
        let is_save = body.contains("\"revision\"") && body.contains(":before");
        let response = aws.call(request);
        if !is_save || done.swap(true, std::sync::atomic::Ordering::SeqCst) {
            return response;
        }
        let (second, right) = (second.clone(), right.clone());
        HttpConnectorFuture::new(async move {
            response.await?;
            steward_scheduler::handle(&*second, sqs_event([right], 1)).await;
            Ok(json_response(503, &json!({})))
        })
    });
    let first = deployment.ports_with_sdk("first", &sdk);
    steward_scheduler::handle(&first, sqs_event([left], 1)).await;
    let sent = deployment.take_agent_requests().await;
    assert_eq!(sent.len(), 1, "the request was not sent, although its message is acknowledged");
}

/// The record of a queue has an attribute that this release does not know, as after a downgrade.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_journal_with_an_attribute_of_a_later_release_is_rejected() {
    let dir = std::env::temp_dir().join(format!("steward-journal-attr-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    {
        let aws = EmbeddedAws::on_disk(&dir).unwrap();
        let sqs = aws_sdk_sqs::Client::new(&aws.sdk_config());
        let url = sqs.create_queue().queue_name("q").send().await.unwrap().queue_url.unwrap();
        for n in 0..100 {
            sqs.send_message().queue_url(&url).message_body(format!("m-{n}")).send().await.unwrap();
        }
    }
    let path = dir.join("queues.jsonl");
    let text = std::fs::read_to_string(&path).unwrap();
    let line = text.lines().find(|line| line.contains("\"queue\":{")).unwrap_or_default();
    let changed = line.replace("\"attributes\":{}", "\"attributes\":{\"FifoQueue\":\"true\"}");
    assert_ne!(line, changed);
    std::fs::write(&path, text.replace(line, &changed)).unwrap();
    let opened = EmbeddedAws::on_disk(&dir);
    let after = std::fs::read_to_string(&path).unwrap_or_default();
    let remaining = after.matches("\"body\"").count();
    std::fs::remove_dir_all(&dir).unwrap();
    assert!(remaining == 100 || opened.is_err(), "{remaining} of 100 messages remain");
}

/// The KMS key of a client's queue is disabled, and the client's task ends in Error: the scheduler abandons the notification
/// and sends the alert.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_notification_to_a_queue_with_a_disabled_key_is_abandoned() {
    let workflow: Workflow =
        serde_json::from_value(json!({ "name": "line", "version": 1, "steps": {
        "a": { "agent": "a", "request": { "path": "/x/${ input.missing }" } } } }))
        .unwrap();
    let deployment = TestDeployment::new(&workflow).await;
    let sqs = aws_sdk_sqs::Client::new(&deployment.aws.sdk_config());
    let url = sqs.create_queue().queue_name("client-a").send().await.unwrap().queue_url.unwrap();
    let queues = steward_core::submission::ReplyQueues::parse(&url);
    let body =
        json!({ "task_id": "t", "workflow": "line", "input": {}, "reply_to": url }).to_string();
    steward_submission::handle(&deployment.ports("submission"), &queues, sqs_event([body], 1))
        .await;
    let sdk = with_request_handler(&deployment.aws.sdk_config(), |request, aws| {
        let body = json_body(&request);
        let queue = body["QueueUrl"].as_str().unwrap_or_default();
        if !queue.ends_with("/client-a") || body["Entries"].is_null() {
            return aws.call(request);
        }
        let error =
            json!({ "__type": "com.amazonaws.sqs#KmsDisabled", "message": "The key is disabled." });
        HttpConnectorFuture::ready(Ok(json_response(400, &error)))
    });
    let ports = |role| deployment.ports_with_sdk(role, &sdk);
    for receives in 1..=10 {
        steward_scheduler::handle(&ports("scheduler"), sqs_event([wake_message("t")], receives))
            .await;
    }
    for _ in 0..24 {
        deployment.clock.advance_seconds(3600);
        let deadline =
            steward_runtime::ports::Clock::now(&deployment.clock) + SignedDuration::from_secs(60);
        run_once(&ports("supervisor"), 0, deadline).await.unwrap();
    }
    let task = deployment.task("t").await;
    assert!(task.due.is_none(), "the task stays due after its alert, so it would never expire");
}

/// A submission of the maximum message size does not fit into the rejected queue together with its reason.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rejected_submission_of_the_maximum_message_size_is_kept() {
    let deployment = TestDeployment::new(&sequential_workflow(1)).await;
    let ports = deployment.ports("submission");
    let body =
        format!(r#"{{"task_id":"t","workflow":"line","input":"{}"}}"#, "x".repeat(262_144 - 60));
    let event = sqs_event([body], 1);
    let response = steward_submission::handle(&ports, &deployment.config.reply_queues, event).await;
    assert_eq!(response.batch_item_failures.len(), 0);
    assert_eq!(deployment.take_messages(&deployment.config.rejected_queue_url).await.len(), 1);
}
