//! A deployed stack, from its deployment to its deletion, with the remote services and clients of the test.

use std::{
    collections::{BTreeSet, HashMap},
    num::NonZeroU32,
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use aws_config::{BehaviorVersion, SdkConfig};
use serde_json::{Value, json};
use steward_aws::{
    definitions::DynamoDefinitions, publisher::Publisher, rules::EventRules, store::DynamoStore,
};
use steward_core::model::task::Task;
use steward_demo::{
    example_workflow::ExampleWorkflow,
    services::{DemoService, Fault, FaultPlan, MockServices},
};
use steward_runtime::ports::StateStore;

use super::{
    aws_requests::{call, root, run, wait_for},
    forwarder::Forwarder,
    target::{RUN_TAG, TargetKind, deployment_target},
    telemetry::Collector,
};

/// The name of the client's reply queue.
pub(super) fn client_queue() -> String {
    format!("client-{}", deployment_target().stack)
}

/// The seed of the fault plan. With it, some tasks are undone, and the undo of some fails.
const SEED: u64 = 7;

/// The agents' secret for the remote services. It must not be in any log, and no other function may read it.
pub(super) const SECRET: &str = "token-that-only-agents-may-read";

/// The deployed stack, with the test's services and clients.
pub(super) struct Stack {
    variables: HashMap<String, String>,
    pub(super) sdk: SdkConfig,
    pub(super) services: MockServices,
    pub(super) forwarder: Forwarder,
    pub(super) plan: FaultPlan,
    pub(super) spans: Collector,
    /// The tasks and the corrupt messages for which an alert was received.
    pub(super) alerted: Arc<Mutex<BTreeSet<String>>>,
    /// The received notifications, as `order-1 processed`.
    pub(super) notified: Arc<Mutex<BTreeSet<String>>>,
    /// A secret that does not belong to the stack's agents.
    pub(super) foreign_secret: String,
    /// The secret of the stack's agents.
    pub(super) secret: String,
}

impl Stack {
    /// Deploys the build of `infra/build`, publishes the shipped workflows, and collects alerts and notifications.
    pub(super) async fn deploy() -> Self {
        let plan = FaultPlan::chaos(SEED);
        let target = deployment_target();
        let forwarder = Forwarder::to(target.services_url.clone());
        let (others, plan_of_services) = (forwarder.router(), plan.clone());
        let services = MockServices::start_beside(
            others,
            target.services,
            &DemoService::ALL,
            plan_of_services,
        );
        let services = services.await.unwrap();
        let (url, _) = services.base_url(DemoService::Payment).rsplit_once('/').map(own).unwrap();
        let url = target.services_url.clone().unwrap_or(url);
        let spans = Collector::start().await;
        let foreign_secret = secret("foreign", &json!("of others")).await;
        let secret = secret("own", &json!({ "x-token": SECRET })).await;
        let mut parameters = vec![
            // A new AWS account has a low concurrency limit.
            format!("Size={}", if target.kind == TargetKind::Aws { "small" } else { "medium" }),
            format!("ConsoleOperators={}", target.caller),
            format!("HttpCallbacks={}", target.has_callbacks("deploy: the callback endpoint")),
            format!("ServicesUrl={url}"),
            format!("AgentSecretArn={secret}"),
            format!("ReplyQueues={}", target.queue_url("client-*")),
            format!("ReplyQueueArns={}", target.queue_arn("client-*")),
        ];
        if target.kind != TargetKind::Aws {
            parameters.push("PlainHttp=true".to_owned());
            parameters.push(format!("OtlpEndpoint={}", spans.url));
        }
        let stack = std::iter::once(target.stack.as_str());
        let arguments: Vec<_> = stack.chain(parameters.iter().map(String::as_str)).collect();
        run("infra/deploy", &arguments).await;
        let outputs = run("infra/outputs", &[&target.stack]).await;
        let variables =
            outputs.lines().filter_map(|line| line.strip_prefix("export ")?.split_once('='));
        let variables = variables.map(own).collect();
        let sdk = aws_config::load_defaults(BehaviorVersion::latest()).await;
        let alerts = queue(&sdk, &format!("{}-alerts", target.stack)).await;
        // The operator's rule: all events of Steward.
        let by_steward = json!({ "source": ["steward"] });
        route(&sdk, (&target.stack, "operator"), &by_steward, &alerts).await;
        let notifications = queue(&sdk, &client_queue()).await;
        let (alerted, notified) = (Arc::default(), Arc::default());
        listen(&sdk, alerts, Arc::clone(&alerted), |event| {
            let data = &event["detail"]["data"];
            Some(data["task_id"].as_str().or(data["message_id"].as_str())?.to_owned())
        });
        listen(&sdk, notifications, Arc::clone(&notified), |notification| {
            Some(format!(
                "{} {}",
                notification["task_id"].as_str()?,
                notification["status"].as_str()?
            ))
        });
        let stack = Self {
            variables,
            sdk,
            services,
            forwarder,
            plan,
            spans,
            alerted,
            notified,
            foreign_secret,
            secret,
        };
        // Those whose agents `infra/example-agents.yaml` deploys.
        for shipped in [ExampleWorkflow::Order, ExampleWorkflow::DroneDelivery] {
            stack.publish(shipped.scenario().definition()).await;
        }
        stack
    }

    /// The value of a stack output, by the name of its environment variable.
    pub(super) fn variable(&self, name: &str) -> &str {
        &self.variables[name]
    }

    /// The full name of a function or queue of this stack.
    pub(super) fn name_of(&self, part: &str) -> String {
        format!("{}-{part}", deployment_target().stack)
    }

    pub(super) fn store(&self) -> DynamoStore {
        let client = aws_sdk_dynamodb::Client::new(&self.sdk);
        let table = |name| self.variable(name).to_owned();
        let (tasks, documents) = (table("STEWARD_TASKS_TABLE"), table("STEWARD_DOCUMENTS_TABLE"));
        DynamoStore::new(client, tasks, documents, NonZeroU32::MIN, Duration::ZERO)
    }

    pub(super) async fn publish(&self, definition: &str) {
        let client = aws_sdk_dynamodb::Client::new(&self.sdk);
        let table = self.variable("STEWARD_WORKFLOWS_TABLE").to_owned();
        let definitions = DynamoDefinitions::new(client, table);
        let events = aws_sdk_eventbridge::Client::new(&self.sdk);
        let sqs = aws_sdk_sqs::Client::new(&self.sdk);
        let bus = self.variable("STEWARD_EVENT_BUS").to_owned();
        let submissions = self.variable("STEWARD_SUBMISSIONS_QUEUE_URL").to_owned();
        let awaited = self.variable("STEWARD_EVENTS_QUEUE_URL").to_owned();
        let rules = EventRules { events, sqs, bus, submissions, awaited };
        let workflow = steward_definition_file::parse(Path::new("test.yaml"), definition).unwrap();
        Publisher { definitions, store: self.store(), rules }.publish(&workflow).await.unwrap();
    }

    /// Sends a submission to the queue, as a client does.
    pub(super) async fn submit(&self, task_id: &str, workflow: &str, input: &Value) {
        let reply_to = deployment_target().queue_url(&client_queue());
        let submission = json!({ "task_id": task_id, "workflow": workflow, "input": input, "reply_to": reply_to });
        let sqs = aws_sdk_sqs::Client::new(&self.sdk);
        let queue = self.variable("STEWARD_SUBMISSIONS_QUEUE_URL");
        let send = sqs.send_message().queue_url(queue).message_body(submission.to_string());
        send.send().await.unwrap();
    }

    pub(super) async fn task(&self, id: &str) -> Option<Task> {
        self.store().load(&id.parse().unwrap()).await.unwrap()
    }

    /// Waits until a task is in a final state.
    pub(super) async fn ended(&self, id: &str) -> Task {
        let look = async || self.task(id).await.filter(|task| task.process_state.has_stopped());
        wait_for(&format!("the end of {id}"), look).await
    }

    /// An order id with this prefix, for which only the given step has a fault, and the fault is `wanted`.
    pub(super) fn order_with(
        &self,
        prefix: &str,
        step: &str,
        wanted: impl Fn(Fault) -> bool,
    ) -> String {
        let fits = |id: &String| {
            ["reserve", "charge", "ship"].iter().all(|name| {
                let fault = self.plan.fault(&format!("{id}/{name}/do"));
                if *name == step { wanted(fault) } else { fault == Fault::Healthy }
            })
        };
        (0..).map(|n| format!("{prefix}-{n}")).find(fits).unwrap()
    }

    /// Deletes the stack, and checks that its queues are deleted and its tables are kept.
    pub(super) async fn delete(&self) {
        delete_rules(&self.sdk, self.variable("STEWARD_EVENT_BUS")).await;
        delete(&deployment_target().stack).await;
        let sqs = aws_sdk_sqs::Client::new(&self.sdk);
        for name in [client_queue(), self.name_of("alerts")] {
            sqs.delete_queue()
                .queue_url(deployment_target().queue_url(&name))
                .send()
                .await
                .unwrap();
        }
        // On AWS a queue is listed for a minute after its deletion.
        let gone = async || {
            let left = sqs
                .list_queues()
                .queue_name_prefix(&deployment_target().stack)
                .send()
                .await
                .unwrap();
            left.queue_urls().is_empty().then_some(())
        };
        wait_for("the end of the stack's queues", gone).await;
        // The tables contain accepted tasks, so they must not be deleted with the stack.
        let tables = aws_sdk_dynamodb::Client::new(&self.sdk).list_tables().into_paginator();
        let tables: Vec<_> = tables.items().send().try_collect().await.unwrap();
        assert!(tables.contains(&self.variable("STEWARD_TASKS_TABLE").to_owned()), "{tables:?}");
    }
}

/// Deletes a stack.
pub(super) async fn delete(stack: &str) {
    run("infra/localstack/delete", &[stack]).await;
}

fn own((name, value): (&str, &str)) -> (String, String) {
    (name.to_owned(), value.trim_matches('\'').to_owned())
}

/// Creates a secret; returns its ARN.
pub(super) async fn secret(name: &str, value: &Value) -> String {
    let body = json!({
        "Name": format!("{}-{name}", deployment_target().stack), "SecretString": value.to_string(),
        "ClientRequestToken": "00000000-0000-0000-0000-000000000000",
        "Tags": [{ "Key": RUN_TAG, "Value": deployment_target().stack }],
    });
    let (status, response) =
        call(&root(), "secretsmanager", "secretsmanager.CreateSecret", &body).await;
    assert_eq!(status, 200, "{response}");
    response["ARN"].as_str().unwrap().to_owned()
}

/// Creates a queue; returns its URL.
pub(super) async fn queue(sdk: &SdkConfig, name: &str) -> String {
    let create = aws_sdk_sqs::Client::new(sdk).create_queue().queue_name(name);
    let create = create.tags(RUN_TAG, &deployment_target().stack);
    create.send().await.unwrap().queue_url.unwrap()
}

/// Creates a rule that sends the events of a bus that match a pattern to a queue.
pub(super) async fn route(
    sdk: &SdkConfig,
    (bus, rule): (&str, &str),
    pattern: &Value,
    queue: &str,
) {
    let (events, name) = (aws_sdk_eventbridge::Client::new(sdk), queue.rsplit('/').next().unwrap());
    let arn = deployment_target().queue_arn(name);
    let put = events.put_rule().name(rule).event_bus_name(bus).event_pattern(pattern.to_string());
    let rule_arn = put.send().await.unwrap().rule_arn.unwrap();
    let policy = json!({ "Version": "2012-10-17", "Statement": [{
        "Effect": "Allow", "Principal": { "Service": "events.amazonaws.com" },
        "Action": "sqs:SendMessage", "Resource": arn,
        "Condition": { "ArnEquals": { "aws:SourceArn": rule_arn } },
    }]});
    let sqs = aws_sdk_sqs::Client::new(sdk);
    let policy_name = aws_sdk_sqs::types::QueueAttributeName::Policy;
    let set =
        sqs.set_queue_attributes().queue_url(queue).attributes(policy_name, policy.to_string());
    set.send().await.unwrap();
    let target =
        aws_sdk_eventbridge::types::Target::builder().id("queue").arn(arn).build().unwrap();
    events.put_targets().rule(rule).event_bus_name(bus).targets(target).send().await.unwrap();
}

/// Deletes all rules of a bus. EventBridge does not delete a bus that has rules.
pub(super) async fn delete_rules(sdk: &SdkConfig, bus: &str) {
    let events = aws_sdk_eventbridge::Client::new(sdk);
    let rules = events.list_rules().event_bus_name(bus).send().await.unwrap();
    for rule in rules.rules().iter().filter_map(|rule| rule.name()) {
        let targets = events.list_targets_by_rule().rule(rule).event_bus_name(bus);
        let targets = targets.send().await.unwrap();
        let ids = targets.targets().iter().map(|target| target.id().to_owned()).collect();
        let remove = events.remove_targets().rule(rule).event_bus_name(bus);
        remove.set_ids(Some(ids)).send().await.unwrap();
        events.delete_rule().name(rule).event_bus_name(bus).send().await.unwrap();
    }
}

/// Collects a value from each message of a queue until the queue is deleted.
fn listen(
    sdk: &SdkConfig,
    queue: String,
    collected: Arc<Mutex<BTreeSet<String>>>,
    value_of: fn(Value) -> Option<String>,
) {
    let sqs = aws_sdk_sqs::Client::new(sdk);
    tokio::spawn(async move {
        loop {
            let receive = sqs.receive_message().queue_url(&queue).max_number_of_messages(10);
            let received = match receive.wait_time_seconds(5).send().await {
                // The stack and the test's queues are deleted.
                Err(error)
                    if error.as_service_error().is_some_and(|e| e.is_queue_does_not_exist()) =>
                {
                    return;
                }
                received => received.unwrap(),
            };
            for message in received.messages() {
                let body = serde_json::from_str(message.body().unwrap()).unwrap();
                collected.lock().unwrap().extend(value_of(body));
                let receipt = message.receipt_handle().unwrap();
                sqs.delete_message()
                    .queue_url(&queue)
                    .receipt_handle(receipt)
                    .send()
                    .await
                    .unwrap();
            }
        }
    });
}
