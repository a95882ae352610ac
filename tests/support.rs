//! A deployment on the embedded AWS for tests that call the handlers themselves: nothing runs in the background.

pub(crate) mod fault_injection;
pub(crate) mod http_client;
pub(crate) mod throttling;

use std::{
    io::Write,
    sync::{Arc, Mutex},
};

use aws_lambda_events::sqs::{SqsBatchResponse, SqsEvent};
use aws_sdk_sqs::types::Message;
use jiff::Timestamp;
use serde_json::{Value, json};
use steward_aws::{AwsPorts, Config, ports::SharedInterceptor};
use steward_core::{
    breaker::{Breaker, KeyHash},
    definition::workflow::Workflow,
    model::{
        messages::StepRequest,
        names::{AgentName, TaskId},
        registration::{AGENT_CONTRACT, AgentRegistration, RegistrationOwner},
        task::Task,
    },
};
use steward_emulator::{contract_check::ContractCheck, embedded::EmbeddedAws, resources};
use steward_runtime::{
    breaker::StoredBreaker,
    ports::{Ports, StateStore},
};
use steward_scheduler::{CommandAuthority, SchedulerInstance};
pub(crate) use steward_test_world::sqs_event;
use steward_test_world::{PortsOf, WorldClock};

pub(crate) use fault_injection::{InjectedFault, SdkFaultInjector};
pub(crate) use http_client::{with_request_handler, without_operation};

/// Tables, queues and one published workflow. No function runs unless the test calls its handler.
pub(crate) struct TestDeployment {
    pub(crate) aws: EmbeddedAws,
    pub(crate) config: Config,
    pub(crate) clock: WorldClock,
}

/// The real adapters with the test's clock.
pub(crate) type AdapterPorts = PortsOf<AwsPorts>;

/// Serves a router on an unused port. Returns its URL.
pub(crate) async fn serve(router: axum::Router) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    url
}

/// A time with the precision of events: whole milliseconds.
pub(crate) fn truncate_to_millis(time: Timestamp) -> Timestamp {
    Timestamp::from_millisecond(time.as_millisecond()).unwrap()
}

/// The workflow `line`: `steps` steps in sequence, all of agent `a`. Each step reads the input and the output of the
/// previous step, and has two attempts of 30 seconds each.
pub(crate) fn sequential_workflow(steps: usize) -> Workflow {
    let definitions: serde_json::Map<_, _> = (1..=steps)
        .map(|n| {
            let mut body = json!({ "order": "${ task.id }", "input": "${ input }" });
            let mut after = json!([]);
            if n > 1 {
                body["before"] = json!(format!("${{ steps.step_{}.output.id }}", n - 1));
                after = json!([format!("step_{}", n - 1)]);
            }
            let step = json!({
                "agent": "a", "after": after, "complete_within": "30s", "recovery": { "attempts": 2, "backoff": { "first": "0s" } },
                "request": { "path": "/x", "body": body },
            });
            (format!("step_{n}"), step)
        })
        .collect();
    serde_json::from_value(json!({ "name": "line", "version": 1, "steps": definitions })).unwrap()
}

impl TestDeployment {
    pub(crate) async fn new(workflow: &Workflow) -> Self {
        Self::with_aws(EmbeddedAws::in_memory().unwrap(), workflow).await
    }

    pub(crate) async fn with_aws(aws: EmbeddedAws, workflow: &Workflow) -> Self {
        let agent: AgentName = "a".parse().unwrap();
        let config = resources::create(&aws, &[agent]).await.unwrap();
        let clock = WorldClock::frozen(Timestamp::now());
        let deployment = Self { aws, config, clock };
        let definitions = deployment.ports("publisher").definitions;
        definitions.publish(workflow).await.unwrap();
        deployment.record_completed_calls(workflow).await;
        deployment
    }

    /// Records that the services have completed calls, as those of every deployment have but for the first call.
    async fn record_completed_calls(&self, workflow: &Workflow) {
        let used = Breaker { completed_at: vec![KeyHash::new("")], ..Breaker::default() };
        let ports = self.ports("agent");
        for agent in workflow.agents().into_keys() {
            StoredBreaker::new(agent.clone()).save(&ports, used.clone()).await.unwrap();
        }
    }

    pub(crate) fn ports(&self, role: &str) -> AdapterPorts {
        self.ports_with_interceptors(role, Vec::new())
    }

    /// Ports whose AWS calls all pass the interceptors.
    pub(crate) fn ports_with_interceptors(
        &self,
        role: &str,
        interceptors: Vec<SharedInterceptor>,
    ) -> AdapterPorts {
        self.ports_with_sdk_and_interceptors(role, &self.aws.sdk_config(), interceptors)
    }

    /// Ports whose AWS calls all pass the interceptors, with an SDK configuration of the test.
    pub(crate) fn ports_with_sdk_and_interceptors(
        &self,
        role: &str,
        sdk: &aws_config::SdkConfig,
        mut interceptors: Vec<SharedInterceptor>,
    ) -> AdapterPorts {
        interceptors.push(ContractCheck::interceptor());
        let aws = AwsPorts::with_interceptors(sdk, &self.config, role, interceptors);
        AdapterPorts::of(&aws, self.clock.clone())
    }

    /// Ports with an SDK configuration of the test.
    pub(crate) fn ports_with_sdk(&self, role: &str, sdk: &aws_config::SdkConfig) -> AdapterPorts {
        self.ports_with_sdk_and_interceptors(role, sdk, Vec::new())
    }

    pub(crate) fn ports_with_faults(&self, role: &str, injector: SdkFaultInjector) -> AdapterPorts {
        self.ports_with_sdk(role, &injector.wrap(&self.aws.sdk_config()))
    }

    pub(crate) async fn task(&self, id: &str) -> Task {
        self.ports("reader").store().load(&id.parse::<TaskId>().unwrap()).await.unwrap().unwrap()
    }

    pub(crate) async fn submit(&self, ports: &AdapterPorts, ids: &[String]) {
        let event = sqs_event(ids.iter().map(|id| submission_message(id)), 1);
        let response = steward_submission::handle(ports, &self.config.reply_queues, event).await;
        assert_eq!(response, SqsBatchResponse::default());
    }

    /// Receives and deletes all messages of a queue.
    pub(crate) async fn take_messages(&self, queue: &str) -> Vec<Message> {
        let sqs = aws_sdk_sqs::Client::new(&self.aws.sdk_config());
        let mut taken = Vec::new();
        loop {
            let request = sqs.receive_message().queue_url(queue).max_number_of_messages(10);
            let response = request.message_attribute_names("All").send().await.unwrap();
            let messages = response.messages.unwrap_or_default();
            if messages.is_empty() {
                return taken;
            }
            for message in messages {
                let receipt = message.receipt_handle().unwrap();
                sqs.delete_message().queue_url(queue).receipt_handle(receipt).send().await.unwrap();
                taken.push(message);
            }
        }
    }

    /// Takes the messages for the scheduler; returns their bodies.
    pub(crate) async fn take_scheduler_messages(&self) -> Vec<String> {
        bodies(self.take_messages(&self.config.scheduler_queue_url).await)
    }

    /// Takes the messages for agent `a`; returns their bodies.
    pub(crate) async fn take_agent_messages(&self) -> Vec<String> {
        let queue = self.config.agent_queue_url.of(&"a".parse().unwrap());
        bodies(self.take_messages(&queue).await)
    }

    /// Takes the requests for agent `a`.
    pub(crate) async fn take_agent_requests(&self) -> Vec<StepRequest> {
        let bodies = self.take_agent_messages().await;
        bodies.iter().map(|body| serde_json::from_str(body).unwrap()).collect()
    }

    /// Takes the events that the bus delivered to the queue of alerts.
    pub(crate) async fn take_alerts(&self) -> Vec<Value> {
        let queue = self
            .config
            .scheduler_queue_url
            .replace(resources::SCHEDULER_QUEUE, resources::ALERTS_QUEUE);
        bodies(self.take_messages(&queue).await)
            .iter()
            .map(|body| serde_json::from_str(body).unwrap())
            .collect()
    }
}

fn bodies(messages: Vec<Message>) -> Vec<String> {
    messages.into_iter().filter_map(|message| message.body).collect()
}

/// A submission of the workflow `line`.
pub(crate) fn submission_message(id: &str) -> String {
    json!({ "task_id": id, "workflow": "line", "input": { "n": 1 } }).to_string()
}

/// The wake that follows a submission.
pub(crate) fn wake_message(id: &str) -> String {
    json!({ "type": "wake", "task_id": id, "cause": "submitted" }).to_string()
}

/// The registration of an agent by a stack. Its queues have the names of `steward local`.
pub(crate) fn agent_registration(name: &str, stack: &str) -> AgentRegistration {
    let queue = resources::AGENT_QUEUE.replace("{agent}", name);
    AgentRegistration {
        kind: "http".parse().unwrap(),
        dead_letter_queue: format!("{queue}{}", resources::DEAD_LETTERS).parse().unwrap(),
        queue: queue.parse().unwrap(),
        contract: AGENT_CONTRACT,
        version: None,
        owner: RegistrationOwner { stack: stack.parse().unwrap(), resource: None },
        calls_at_once: None,
        rate_per_second: None,
        burst: None,
        at: Timestamp::from_second(1_780_000_000).unwrap(),
        deleted_at: None,
    }
}

/// The reply of an agent that completed the request; its output has the id `STEP-1`.
pub(crate) fn completed_reply(request: &StepRequest) -> String {
    let StepRequest { task_id, step, attempt, incarnation, .. } = request;
    json!({
        "type": "reply", "task_id": task_id, "step": step, "attempt": attempt, "incarnation": incarnation,
        "outcome": { "status": "completed", "output": { "id": format!("{step}-1") } },
    })
    .to_string()
}

/// The name of the commands queue in [`commands_event`].
const COMMANDS_QUEUE: &str = "commands";

/// An event of the commands queue, whose messages this sender sent. `None`: SQS states no sender.
pub(crate) fn commands_event(
    bodies: impl IntoIterator<Item = String>,
    sender: Option<&str>,
) -> SqsEvent {
    let mut event = sqs_event(bodies, 1);
    for record in &mut event.records {
        record.event_source_arn =
            Some(format!("arn:aws:sqs:us-east-1:000000000000:{COMMANDS_QUEUE}"));
        record.attributes.extend(sender.map(|sender| ("SenderId".to_owned(), sender.to_owned())));
    }
    event
}

/// A scheduler that accepts commands of [`commands_event`]. `console_role` is the id of the console's role, or empty.
pub(crate) fn scheduler_instance(console_role: &str) -> SchedulerInstance {
    let commands = CommandAuthority::new(COMMANDS_QUEUE, console_role);
    SchedulerInstance { commands, ..SchedulerInstance::default() }
}

/// The ids of the messages that the handler reported as failed, so that SQS delivers them again.
pub(crate) fn failed_message_ids(response: &SqsBatchResponse) -> Vec<&str> {
    response.batch_item_failures.iter().map(|failure| failure.item_identifier.as_str()).collect()
}

/// The text of all log lines.
#[derive(Debug, Clone, Default)]
pub(crate) struct LogBuffer(Arc<Mutex<Vec<u8>>>);

impl LogBuffer {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned()
    }
}

impl Write for LogBuffer {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
