//! Tenants: every message about a task of a tenant has the tenant as its message group id, and the load of one tenant holds
//! back only its own tasks. The random simulation checks the first for every message it sends.

use std::time::Duration;

use aws_lambda_events::sqs::{SqsBatchResponse, SqsEvent};
use aws_sdk_sqs::types::MessageSystemAttributeName;
use serde_json::{Value, json};
use steward_agent::Agent;
use steward_core::{
    breaker::BreakerSettings,
    definition::workflow::Workflow,
    model::{
        names::{TaskId, Tenant},
        task::{ProcessState, Task},
    },
    submission::ReplyQueues,
};
use steward_runtime::ports::{Clock, OutgoingMessage, Ports, Queue, StateStore};
use steward_test_world::{
    MemoryPorts,
    service::{FakeService, PlannedServices},
};

use crate::support::{TestDeployment, sequential_workflow, sqs_event};

const CLIENT: &str = "https://q/client";

/// A deployment in memory whose messages the test delivers.
struct Deployment {
    ports: MemoryPorts,
    agent: Agent<FakeService<PlannedServices>>,
    /// Every message that was delivered, and those to clients.
    sent: Vec<OutgoingMessage>,
}

/// A workflow with a child task, a wait and a call; its child is the workflow `line`.
fn parent() -> Workflow {
    serde_json::from_value(json!({
        "name": "parent", "version": 1,
        "steps": {
            "child": { "workflow": { "name": "line", "input": { "n": 1 } } },
            "cool": { "wait": "10s", "after": ["child"] },
            "call": { "agent": "a", "request": { "path": "/x" }, "after": ["cool"] },
        },
    }))
    .unwrap()
}

impl Deployment {
    fn new() -> Self {
        let ports = MemoryPorts::default();
        for workflow in [parent(), sequential_workflow(1)] {
            ports.definitions().publish(&workflow).unwrap();
        }
        let service = FakeService::completing(json!({ "id": "x" }));
        let agent = Agent::new("a".parse().unwrap(), service, BreakerSettings::default());
        Self { ports, agent, sent: Vec::new() }
    }

    async fn submit(&self, submission: Value) {
        self.handle_submission(sqs_event([submission.to_string()], 1)).await;
    }

    async fn handle_submission(&self, event: SqsEvent) {
        let queues = ReplyQueues::parse(CLIENT);
        let response = steward_submission::handle(&self.ports, &queues, event).await;
        assert_eq!(response, SqsBatchResponse::default());
    }

    /// Delivers messages until there are none left.
    async fn run(&mut self) {
        loop {
            let messages = self.ports.channel().take_all();
            if messages.is_empty() {
                return;
            }
            self.ports.clock().advance(Duration::from_secs(15));
            for message in messages {
                let event = sqs_event([message.body.clone()], 1);
                let queue = message.queue.clone();
                self.sent.push(message);
                let response = match queue {
                    Queue::Submissions => {
                        self.handle_submission(event).await;
                        continue;
                    }
                    Queue::Scheduler | Queue::Commands => {
                        steward_scheduler::handle(&self.ports, event).await
                    }
                    Queue::Events => steward_submission::events::handle(&self.ports, event).await,
                    Queue::Agent(_) => {
                        let deadline = self.ports.clock().now() + Duration::from_secs(120);
                        steward_agent::handle(&self.ports, &self.agent, event, deadline).await
                    }
                    Queue::Client(_) | Queue::Rejected | Queue::Sweeps => continue,
                };
                assert_eq!(response, SqsBatchResponse::default());
            }
        }
    }

    async fn task(&self, id: &str) -> Task {
        self.ports.store().load(&id.parse::<TaskId>().unwrap()).await.unwrap().unwrap()
    }
}

fn tenant(name: &str) -> Option<Tenant> {
    Some(name.parse().unwrap())
}

#[tokio::test]
async fn every_message_of_a_task_and_of_its_child_tasks_has_their_tenant() {
    for name in [Some("acme"), None] {
        let mut deployment = Deployment::new();
        let mut submission = json!({ "task_id": "t", "workflow": "parent", "reply_to": CLIENT });
        if let Some(name) = name {
            submission["tenant"] = json!(name);
        }
        deployment.submit(submission).await;
        deployment.run().await;
        let (task, child) = (deployment.task("t").await, deployment.task("t:child").await);
        assert_eq!(task.process_state, ProcessState::Processed);
        let expected = name.and_then(tenant);
        assert_eq!((&task.tenant, &child.tenant), (&expected, &expected));
        let of_other: Vec<_> =
            deployment.sent.iter().filter(|message| message.tenant != expected).collect();
        assert!(of_other.is_empty(), "{of_other:?}");
        let queues = |wanted: fn(&Queue) -> bool| {
            deployment.sent.iter().filter(|message| wanted(&message.queue)).count()
        };
        assert_eq!(queues(|queue| matches!(queue, Queue::Submissions)), 1, "the child task");
        assert_eq!(queues(|queue| matches!(queue, Queue::Agent(_))), 2);
        assert_eq!(queues(|queue| matches!(queue, Queue::Client(_))), 2, "received and processed");
        assert!(queues(|queue| matches!(queue, Queue::Scheduler)) >= 6);
    }
}

#[tokio::test]
async fn the_tenant_is_part_of_what_makes_a_submission_the_same() {
    let deployment = Deployment::new();
    let submission = |tenant: Value| json!({ "task_id": "t", "workflow": "line", "input": { "n": 1 }, "tenant": tenant });
    for _ in 0..2 {
        deployment.submit(submission(json!("acme"))).await;
    }
    assert_eq!(deployment.ports.channel().take(&Queue::Rejected), []);
    for other in [json!("globex"), json!(null)] {
        deployment.submit(submission(other)).await;
    }
    let refused = deployment.ports.channel().take(&Queue::Rejected);
    assert_eq!(refused.len(), 2);
    for OutgoingMessage { attributes, .. } in refused {
        assert_eq!(attributes[0].1, "task `t` exists already, with other content");
    }
    assert_eq!(deployment.task("t").await.tenant, tenant("acme"));
}

#[tokio::test]
async fn an_invalid_tenant_is_refused_with_the_rule() {
    let deployment = Deployment::new();
    for invalid in [json!(""), json!("a b"), json!("a/b"), json!("x".repeat(65)), json!("ü")] {
        deployment.submit(json!({ "task_id": "t", "workflow": "line", "tenant": invalid })).await;
        let refused = deployment.ports.channel().take(&Queue::Rejected);
        let reason = &refused[0].attributes[0].1;
        assert!(
            reason.contains("tenant `")
                && reason.contains("is not valid: letters, digits, `.`, `_` and `-`, at most 64"),
            "{reason}"
        );
    }
}

#[tokio::test]
async fn the_queue_gets_the_tenant_as_message_group_id() {
    let deployment = TestDeployment::new(&sequential_workflow(1)).await;
    let ports = deployment.ports("submission");
    let submission = |id: &str| json!({ "task_id": id, "workflow": "line", "input": { "n": 1 } });
    let mut of_tenant = submission("t");
    of_tenant["tenant"] = json!("acme");
    let event = sqs_event([of_tenant, submission("bare")].map(|text| text.to_string()), 1);
    let queues = &deployment.config.reply_queues;
    let response = steward_submission::handle(&ports, queues, event).await;
    assert_eq!(response, SqsBatchResponse::default());
    assert_eq!(deployment.task("t").await.tenant, tenant("acme"));
    let sqs = aws_sdk_sqs::Client::new(&deployment.aws.sdk_config());
    let receive = sqs.receive_message().queue_url(&deployment.config.scheduler_queue_url);
    let receive = receive.max_number_of_messages(10);
    let receive = receive.message_system_attribute_names(MessageSystemAttributeName::All);
    let messages = receive.send().await.unwrap().messages.unwrap_or_default();
    let mut groups: Vec<_> = messages
        .iter()
        .map(|message| {
            let wake: Value = serde_json::from_str(message.body().unwrap()).unwrap();
            let attributes = message.attributes().unwrap();
            let group = attributes.get(&MessageSystemAttributeName::MessageGroupId).cloned();
            (wake["task_id"].as_str().unwrap().to_owned(), group)
        })
        .collect();
    groups.sort();
    assert_eq!(groups, [("bare".to_owned(), None), ("t".to_owned(), Some("acme".to_owned()))]);
}
