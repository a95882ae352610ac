//! Overload at a small scale, with the real handlers on ports in memory: what happens to a request that waited for too
//! long, and to new tasks while a queue is too long.

use std::{sync::Arc, time::Duration};

use aws_lambda_events::sqs::{SqsBatchResponse, SqsEvent};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use steward_agent::Agent;
use steward_core::{
    breaker::BreakerSettings,
    intake::{BatchWait, may_start},
    model::{
        step::StepState,
        task::{ProcessState, Task},
    },
    submission::ReplyQueues,
};
use steward_runtime::{
    intake::{read_intake, report_wait},
    ports::{Clock, OutgoingMessage, Ports, Queue, StateStore},
};
use steward_submission::{IntakeView, handle_with_intake};
use steward_test_world::{
    MemoryPorts,
    service::{FakeService, PlannedServices},
};
use tokio::{net::TcpListener, task::JoinSet};

use crate::support::{sequential_workflow, sqs_event, submission_message};

mod ten_minutes;

/// The lowest share of new tasks that may start.
const LOWEST: f64 = 0.05;

/// A deployment with the workflow `line` of one step: two attempts of 30 seconds each.
struct Deployment {
    ports: MemoryPorts,
    agent: Agent<FakeService<PlannedServices>>,
    intake: IntakeView,
}

impl Deployment {
    fn new() -> Self {
        let ports = MemoryPorts::default();
        ports.definitions().publish(&sequential_workflow(1)).unwrap();
        let name = "a".parse().unwrap();
        let service = FakeService::completing(json!({ "id": "x" }));
        let agent = Agent::new(name, service, BreakerSettings::default());
        Self { ports, agent, intake: IntakeView::default() }
    }

    fn calls(&self) -> u64 {
        self.agent.service.ledger().calls
    }

    fn pass(&self, seconds: u64) {
        self.ports.clock().advance(Duration::from_secs(seconds));
    }

    async fn task(&self, id: &str) -> Option<Task> {
        self.ports.store().load(&id.parse().unwrap()).await.unwrap()
    }

    async fn submit(&self, texts: impl IntoIterator<Item = String>) {
        let (event, queues) = (self.event(texts, 0), ReplyQueues::default());
        let response = handle_with_intake(&self.ports, &self.intake, &queues, event).await;
        assert_eq!(response, SqsBatchResponse::default());
    }

    /// The scheduler receives the messages in its queue, which were sent `waited_s` seconds ago.
    async fn schedule(&self, waited_s: i64) {
        let messages = self.ports.channel().take(&Queue::Scheduler);
        self.schedule_messages(messages.into_iter().map(|message| message.body), waited_s).await;
    }

    async fn schedule_messages(&self, bodies: impl IntoIterator<Item = String>, waited_s: i64) {
        let event = self.event(bodies, waited_s);
        let response = steward_scheduler::handle(&self.ports, event).await;
        assert_eq!(response, SqsBatchResponse::default());
    }

    /// The agent receives the requests in its queue, which were sent `waited_s` seconds ago.
    async fn act(&self, waited_s: i64) {
        let requests = self.ports.channel().take(&Queue::Agent(self.agent.name.clone()));
        assert!(!requests.is_empty(), "the agent has a request");
        let deadline = self.ports.clock().now() + SignedDuration::from_secs(120);
        let event = self.event(requests.into_iter().map(|request| request.body), waited_s);
        let response = steward_agent::handle(&self.ports, &self.agent, event, deadline).await;
        assert_eq!(response, SqsBatchResponse::default());
    }

    async fn sweep(&self) {
        let swept = steward_supervisor::sweep(&self.ports, 0, Timestamp::MAX).await.unwrap();
        assert_eq!(swept.failed, 0);
    }

    /// A batch of messages that are delivered for the first time, and were sent `waited_s` seconds ago.
    fn event(&self, bodies: impl IntoIterator<Item = String>, waited_s: i64) -> SqsEvent {
        let sent_at = self.ports.clock().now() - SignedDuration::from_secs(waited_s);
        let mut event = sqs_event(bodies, 1);
        for record in &mut event.records {
            let sent_at = sent_at.as_millisecond().to_string();
            record.attributes.insert("SentTimestamp".to_owned(), sent_at);
        }
        event
    }

    /// Serves the HTTP API while the returned server lives. Returns its URL for submissions.
    async fn serve(&self) -> (String, JoinSet<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/tasks", listener.local_addr().unwrap());
        let ports = Arc::new(self.ports.clone());
        let routes = steward_submission::http::routes(ports, Arc::default());
        let mut server = JoinSet::new();
        server.spawn(async move { axum::serve(listener, routes).await.unwrap() });
        (url, server)
    }

    /// A submission over HTTP that may not start now.
    fn held_submission(&self) -> String {
        let turn = self.ports.clock().now().as_second().unsigned_abs() as u32;
        submissions(40).find(|text| !may_start(text, turn, LOWEST)).unwrap()
    }

    /// The share of new tasks that may start.
    async fn start_share(&self) -> f64 {
        let intake = read_intake(&self.ports).await.unwrap();
        intake.start_share(&sequential_workflow(1), None, self.ports.clock().now())
    }

    /// The agent's queue becomes so long that only the lowest share of new tasks may start.
    async fn saturate(&self) {
        for _ in 0..90 {
            self.pass(1);
            report_wait(&self.ports, Some(&self.agent.name), &long_wait(None)).await;
        }
        let share = self.start_share().await;
        assert_eq!(share, LOWEST);
    }
}

/// A wait that is twice as long as the time of the messages.
fn long_wait(tenant: Option<&str>) -> BatchWait {
    BatchWait { tenant: tenant.map(|tenant| tenant.parse().unwrap()), used: 2.0 }
}

fn submissions(count: u32) -> impl Iterator<Item = String> {
    (0..count).map(|n| submission_message(&format!("t-{n}")))
}

#[tokio::test]
async fn a_request_that_waited_past_complete_by_is_not_called_and_costs_no_attempt() {
    let deployment = Deployment::new();
    deployment.submit([submission_message("t")]).await;
    deployment.schedule(0).await;
    // More often than the step has attempts. The supervisor has not come yet.
    for attempt in 1..=4 {
        deployment.pass(31);
        deployment.act(31).await;
        assert_eq!(deployment.calls(), 0, "an attempt past its complete-by calls the service");
        deployment.schedule(0).await;
        let task = deployment.task("t").await.unwrap();
        let step = &task.steps["step_1"].forward;
        assert!(
            matches!(step.state, StepState::Waiting { attempt: Some(n), .. } if n == attempt),
            "{step:?}"
        );
        assert_eq!((task.failure_count, step.failure_count), (0, 0));
        // The next attempt waits at least as long as this one did in the queue.
        let wakes = deployment.ports.channel().take(&Queue::Scheduler);
        let [OutgoingMessage { body, delay, .. }] = wakes.as_slice() else { panic!("{wakes:?}") };
        assert!((31..=42).contains(&delay.as_secs()), "{delay:?}");
        deployment.pass(delay.as_secs() + 1);
        deployment.schedule_messages([body.clone()], 0).await;
    }
    deployment.pass(5);
    deployment.act(5).await;
    assert_eq!(deployment.calls(), 1);
    deployment.schedule(0).await;
    let task = deployment.task("t").await.unwrap();
    assert_eq!((task.process_state, task.failure_count), (ProcessState::Processed, 0));
}

/// The supervisor cannot know that the request still waits, so intake control has to keep the wait short.
#[tokio::test]
async fn an_attempt_that_the_supervisor_abandons_before_its_request_is_received_counts() {
    let deployment = Deployment::new();
    deployment.submit([submission_message("t")]).await;
    deployment.schedule(0).await;
    deployment.pass(60);
    deployment.sweep().await;
    let _ = deployment.ports.channel().take(&Queue::Scheduler);
    deployment.act(60).await;
    deployment.schedule(0).await;
    let task = deployment.task("t").await.unwrap();
    assert_eq!((deployment.calls(), task.failure_count), (0, 1));
}

#[tokio::test]
async fn requests_that_wait_for_long_lower_the_level_of_their_agent() {
    let deployment = Deployment::new();
    deployment.submit(submissions(2)).await;
    deployment.schedule(0).await;
    deployment.pass(2);
    deployment.act(2).await;
    assert_eq!(deployment.start_share().await, 1.0, "2 of 30 seconds are short");
    deployment.schedule(0).await;
    deployment.submit(["t", "u"].map(submission_message)).await;
    deployment.schedule(0).await;
    deployment.pass(15);
    deployment.act(15).await;
    assert_eq!(deployment.calls(), 4, "a request in time is called, however long it waited");
    let share = deployment.start_share().await;
    assert!(share < 0.7, "{share}");
    // Nothing waits any more.
    deployment.pass(1_000);
    assert_eq!(deployment.start_share().await, 1.0);
}

#[tokio::test]
async fn new_tasks_are_held_back_in_their_queue_and_child_tasks_are_not() {
    let deployment = Deployment::new();
    deployment.saturate().await;
    let child = json!({
        "task_id": "p:c", "workflow": "line", "input": null,
        "parent": { "task_id": "p", "step": "c", "depth": 1, "incarnation": 7 },
    });
    let refused = json!({ "task_id": "bad", "workflow": "unknown" });
    let others = [child.to_string(), refused.to_string()];
    let new: Vec<_> = submissions(40).filter(|text| !may_start(text, 0, LOWEST)).take(20).collect();
    deployment.submit(new.into_iter().chain(others)).await;
    assert!(deployment.task("p:c").await.is_some(), "it belongs to a task in progress");
    assert_eq!(deployment.ports.channel().take(&Queue::Scheduler).len(), 1);
    assert_eq!(deployment.ports.channel().take(&Queue::Rejected).len(), 1);
    let held = deployment.ports.channel().take(&Queue::Submissions);
    assert_eq!(held.len(), 20);
    for message in &held {
        assert_eq!(message.attributes, [("turn", "1".to_owned())]);
        assert!((2_500..=5_000).contains(&message.delay.as_millis()), "{:?}", message.delay);
    }
    // The queue is short again, so the level rises, and they start.
    deployment.pass(1_000);
    deployment.submit(held.into_iter().map(|message| message.body)).await;
    assert_eq!(deployment.ports.channel().take(&Queue::Scheduler).len(), 20);
}

#[tokio::test]
async fn a_queue_that_a_workflow_does_not_use_holds_no_task_of_it_back() {
    let deployment = Deployment::new();
    let other = "other".parse().unwrap();
    deployment.pass(1);
    report_wait(&deployment.ports, Some(&other), &long_wait(None)).await;
    deployment.submit(submissions(20)).await;
    assert_eq!(deployment.ports.channel().take(&Queue::Submissions), []);
    assert_eq!(deployment.ports.channel().take(&Queue::Scheduler).len(), 20);
}

#[tokio::test]
async fn an_http_client_is_told_to_repeat_the_submission_later() {
    let deployment = Deployment::new();
    deployment.saturate().await;
    let (url, _server) = deployment.serve().await;
    let submission = deployment.held_submission();
    let post = || reqwest::Client::new().post(&url).body(submission.clone()).send();
    let response = post().await.unwrap();
    assert_eq!(response.status().as_u16(), 503);
    assert_eq!(response.headers()["retry-after"], "5");
    let problem: Value = serde_json::from_str(&response.text().await.unwrap()).unwrap();
    assert_eq!(problem["type"], "urn:steward:overloaded");
    assert_eq!(deployment.ports.channel().take(&Queue::Scheduler), []);
    deployment.pass(1_000);
    assert_eq!(post().await.unwrap().status().as_u16(), 202);
}

/// A client that lost the response repeats the submission, and learns that its task exists.
#[tokio::test]
async fn a_submission_that_is_repeated_over_http_is_accepted_however_long_a_queue_is() {
    let deployment = Deployment::new();
    deployment.submit(submissions(40)).await;
    deployment.saturate().await;
    let submission = deployment.held_submission();
    let (url, _server) = deployment.serve().await;
    let post = async |text: String| {
        let response = reqwest::Client::new().post(&url).body(text).send().await.unwrap();
        response.status().as_u16()
    };
    assert_eq!(post(submission.clone()).await, 202);
    let mut other: Value = serde_json::from_str(&submission).unwrap();
    other["input"] = json!("another one");
    assert_eq!(post(other.to_string()).await, 409);
}

#[tokio::test]
async fn the_scheduler_prefers_tasks_in_progress_to_new_ones() {
    let deployment = Deployment::new();
    deployment.submit([submission_message("old")]).await;
    deployment.schedule(0).await;
    deployment.act(0).await;
    deployment.submit([submission_message("new")]).await;
    // One batch with the reply for `old` and the first wake of `new`.
    deployment.pass(3);
    deployment.schedule(3).await;
    let state = async |id: &str| deployment.task(id).await.unwrap().process_state;
    assert_eq!(state("old").await, ProcessState::Processed);
    assert_eq!(state("new").await, ProcessState::Pending);
    let postponed = deployment.ports.channel().take(&Queue::Scheduler);
    let [OutgoingMessage { body, delay, .. }] = postponed.as_slice() else {
        panic!("{postponed:?}")
    };
    assert!((2_500..=5_000).contains(&delay.as_millis()), "{delay:?}");
    // It is postponed once, even if the queue is still long.
    deployment.submit([submission_message("third")]).await;
    let _ = deployment.ports.channel().take(&Queue::Scheduler);
    deployment.schedule_messages([body.clone()], 9).await;
    assert_eq!(state("new").await, ProcessState::Processing);
}

#[tokio::test]
async fn the_load_of_one_tenant_holds_back_only_its_own_tasks() {
    let deployment = Deployment::new();
    let of = |tenant: &str, n: u32| {
        let mut submission: Value =
            serde_json::from_str(&submission_message(&format!("{tenant}-{n}"))).unwrap();
        submission["tenant"] = json!(tenant);
        submission.to_string()
    };
    for _ in 0..90 {
        deployment.pass(1);
        let agent = Some(&deployment.agent.name);
        report_wait(&deployment.ports, agent, &long_wait(Some("loud"))).await;
    }
    let held: Vec<_> = (0..200)
        .map(|n| of("loud", n))
        .filter(|text| !may_start(text, 0, LOWEST))
        .take(20)
        .collect();
    let calm: Vec<_> = (1..21).map(|n| of("calm", n)).collect();
    let without = submissions(20);
    deployment.submit(held.into_iter().chain(calm).chain(without)).await;
    assert_eq!(deployment.ports.channel().take(&Queue::Scheduler).len(), 40);
    let held = deployment.ports.channel().take(&Queue::Submissions);
    assert_eq!(held.len(), 20);
    let loud = "loud".parse().ok();
    assert!(held.iter().all(|message| message.tenant == loud), "the copies keep their tenant");
}

#[tokio::test]
async fn a_batch_that_waited_names_the_tenant_of_most_of_its_requests() {
    let deployment = Deployment::new();
    let of = |id: &str, tenant: &str| json!({ "task_id": id, "workflow": "line", "input": { "n": 1 }, "tenant": tenant });
    let new = [of("a", "loud"), of("b", "loud"), of("c", "calm")];
    deployment.submit(new.map(|submission| submission.to_string())).await;
    deployment.schedule(0).await;
    deployment.pass(15);
    deployment.act(15).await;
    let intake = read_intake(&deployment.ports).await.unwrap();
    let share = |tenant: &str| {
        let (tenant, now) = (tenant.parse().unwrap(), deployment.ports.clock().now());
        intake.start_share(&sequential_workflow(1), Some(&tenant), now)
    };
    assert!(share("loud") < 0.7);
    assert_eq!(share("calm"), 1.0);
}
