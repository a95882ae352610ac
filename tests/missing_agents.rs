//! An agent without a queue: its steps fail at once with this reason, and an alert is sent. The task does not wait for the
//! complete-by of a request that was not sent.

#![cfg(test)]

use aws_lambda_events::sqs::SqsBatchResponse;
use serde_json::{Value, json};
use steward_core::{definition::workflow::Workflow, model::messages::StepRequest};

use steward_runtime::{agents, ports::Ports};

use crate::support::{
    TestDeployment, agent_registration, completed_reply, sqs_event, wake_message,
};

/// A workflow with a step of agent `a`, which has a queue, and a step of agent `unregistered`, which has none.
fn workflow() -> Workflow {
    let step = |agent: &str, after: Value| {
        json!({
            "agent": agent, "after": after, "request": { "path": "/x" }, "recovery": { "then": "undo" },
            "undo": { "request": { "path": "/undo" } },
        })
    };
    let steps = json!({ "reserve": step("a", json!([])), "charge": step("unregistered", json!(["reserve"])) });
    serde_json::from_value(json!({ "name": "line", "version": 1, "steps": steps })).unwrap()
}

/// A deployment whose task `t` waits for a reply to its first request; and that request.
async fn task_with_first_request() -> (TestDeployment, Vec<StepRequest>) {
    let deployment = TestDeployment::new(&workflow()).await;
    deployment.submit(&deployment.ports("submission"), &["t".to_owned()]).await;
    deliver(&deployment, [wake_message("t")], 1).await;
    deployment.take_scheduler_messages().await;
    let requests = deployment.take_agent_requests().await;
    assert_eq!(requests.len(), 1);
    (deployment, requests)
}

async fn deliver(
    deployment: &TestDeployment,
    bodies: impl IntoIterator<Item = String>,
    receives: u32,
) {
    let ports = deployment.ports("scheduler");
    let response = steward_scheduler::handle(&ports, sqs_event(bodies, receives)).await;
    assert_eq!(response, SqsBatchResponse::default());
}

fn undone_reply(request: &StepRequest) -> String {
    let StepRequest { task_id, step, attempt, action, incarnation, .. } = request;
    json!({
        "type": "reply", "task_id": task_id, "step": step, "attempt": attempt, "action": action,
        "incarnation": incarnation,
        "outcome": { "status": "completed", "output": null },
    })
    .to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_whose_agent_has_no_queue_fails_at_once_and_has_not_run() {
    let (deployment, requests) = task_with_first_request().await;
    deliver(&deployment, requests.iter().map(completed_reply), 1).await;

    let alerts = deployment.take_alerts().await;
    assert_eq!(alerts.len(), 1, "{alerts:?}");
    assert_eq!(alerts[0]["detail-type"], "Agent Missing");
    let data = json!({ "task_id": "t", "step": "charge", "agent": "unregistered" });
    assert_eq!(alerts[0]["detail"]["data"], data);

    let replies = deployment.take_scheduler_messages().await;
    let sent: Vec<Value> = replies.iter().map(|text| serde_json::from_str(text).unwrap()).collect();
    let reply = json!({
        "incarnation": deployment.task("t").await.incarnation, "type": "reply", "task_id": "t", "step": "charge", "action": "do", "attempt": 1,
        "outcome": { "status": "failed", "reason": "agent `unregistered` has no queue" },
    });
    assert_eq!(sent, [reply]);
    deliver(&deployment, replies, 1).await;

    // The step did not run, so only the previous step is undone.
    let requests = deployment.take_agent_requests().await;
    assert_eq!(requests.len(), 1);
    assert_eq!(
        (requests[0].step.to_string(), requests[0].path.as_str()),
        ("reserve".into(), "/undo")
    );
    deliver(&deployment, requests.iter().map(undone_reply), 1).await;
    let task = deployment.task("t").await;
    assert_eq!(task.process_state.to_string(), "Undone");
    let reason = task.undo_reason.unwrap();
    assert_eq!(reason, "step charge: agent `unregistered` has no queue");
    assert!(task.ended_at.unwrap() < task.complete_by);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_resent_request_may_have_reached_its_agent_before_its_queue_was_deleted() {
    let (deployment, requests) = task_with_first_request().await;
    let replies: Vec<_> = requests.iter().map(completed_reply).collect();
    deliver(&deployment, replies.clone(), 1).await;
    deployment.take_scheduler_messages().await;
    deliver(&deployment, replies, 2).await;
    let resent = deployment.take_scheduler_messages().await;
    let replies: Vec<Value> =
        resent.iter().map(|text| serde_json::from_str(text).unwrap()).collect();
    assert_eq!(replies.len(), 1, "{replies:?}");
    assert_eq!(replies[0]["outcome"]["may_have_run"], true, "{replies:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_reason_says_when_the_agent_was_deleted() {
    let (deployment, requests) = task_with_first_request().await;
    let (ports, name) = (deployment.ports("registrar"), "unregistered".parse().unwrap());
    let registration = agent_registration("unregistered", "local");
    agents::register(ports.store(), &name, &registration).await.unwrap();
    let deleted_at = "2026-06-01T12:00:00.25Z".parse().unwrap();
    assert!(
        agents::deregister(ports.store(), &name, &registration.owner, deleted_at).await.unwrap()
    );
    deliver(&deployment, requests.iter().map(completed_reply), 1).await;
    let replies = deployment.take_scheduler_messages().await;
    let reply: Value = serde_json::from_str(&replies[0]).unwrap();
    let reason = "agent `unregistered` has no queue: it was deleted at 2026-06-01T12:00:00Z";
    assert_eq!(reply["outcome"]["reason"], reason);
}

/// No instance remembers that an agent does not exist: its first request after its deployment is sent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_is_sent_as_soon_as_the_queue_exists_without_a_registration() {
    let (deployment, requests) = task_with_first_request().await;
    let ports = deployment.ports("scheduler");
    let url = deployment.config.agent_queue_url.of(&"unregistered".parse().unwrap());
    let sqs = aws_sdk_sqs::Client::new(&deployment.aws.sdk_config());
    let (_, queue) = url.rsplit_once('/').unwrap();
    sqs.create_queue().queue_name(queue).send().await.unwrap();
    let replies = requests.iter().map(completed_reply);
    let response = steward_scheduler::handle(&ports, sqs_event(replies, 1)).await;
    assert_eq!(response, SqsBatchResponse::default());
    assert_eq!(deployment.take_messages(&url).await.len(), 1);
    assert_eq!(agents::registered(ports.store()).await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_with_two_agents_moves_on_from_the_one_without_a_queue_and_counts_no_failure() {
    let step = json!({ "agent": ["unregistered", "a"], "request": { "path": "/x" } });
    let workflow = json!({ "name": "line", "version": 1, "steps": { "charge": step } });
    let deployment = TestDeployment::new(&serde_json::from_value(workflow).unwrap()).await;
    deployment.submit(&deployment.ports("submission"), &["t".to_owned()]).await;
    deliver(&deployment, [wake_message("t")], 1).await;

    assert_eq!(deployment.take_alerts().await.len(), 1);
    let replies = deployment.take_scheduler_messages().await;
    let is_reply = |text: &String| text.contains(r#""type":"reply""#);
    let replies: Vec<_> = replies.into_iter().filter(is_reply).collect();
    let sent: Value = serde_json::from_str(&replies[0]).unwrap();
    let outcome = json!({
        "status": "deferred", "reason": "agent `unregistered` has no queue", "retry_after_ms": 60_000,
        "certain": true,
    });
    assert_eq!((replies.len(), &sent["outcome"]), (1, &outcome));
    deliver(&deployment, replies, 1).await;

    let requests = deployment.take_agent_requests().await;
    assert_eq!(requests.len(), 1);
    let request = &requests[0];
    assert_eq!((request.agent.as_str(), request.attempt, request.exclusive), ("a", 2, true));
    deliver(&deployment, [completed_reply(request)], 1).await;
    let task = deployment.task("t").await;
    assert_eq!((task.process_state.to_string().as_str(), task.failure_count), ("Processed", 0));
}

/// The first refusal is recorded. If the request is sent again, it is repeated, and does not say that the agent may have run the
/// step.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_in_place_of_an_agent_is_repeated_if_the_request_is_sent_again() {
    let step = json!({ "agent": ["unregistered", "a"], "request": { "path": "/x" } });
    let workflow = json!({ "name": "line", "version": 1, "steps": { "charge": step } });
    let deployment = TestDeployment::new(&serde_json::from_value(workflow).unwrap()).await;
    deployment.submit(&deployment.ports("submission"), &["t".to_owned()]).await;
    let mut outcomes = Vec::new();
    for receive_count in [1, 2] {
        deliver(&deployment, [wake_message("t")], receive_count).await;
        let replies = deployment.take_scheduler_messages().await;
        let replies = replies.iter().map(|text| serde_json::from_str::<Value>(text).unwrap());
        outcomes.extend(replies.filter(|it| it["type"] == "reply").map(|it| it["outcome"].clone()));
    }
    assert_eq!(outcomes.len(), 2);
    assert_eq!(outcomes[0]["certain"], true, "{outcomes:?}");
    assert_eq!(outcomes[1], outcomes[0]);
}
