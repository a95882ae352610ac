//! One deployment, from its scripts to its deletion, and the services and clients around it.

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
    definitions::DynamoDefinitions, publisher::Publisher, rules::TriggerRules, store::DynamoStore,
};
use steward_core::{ports::StateStore, task::Task};
use steward_local::{
    definitions,
    scenario::Shipped,
    services::{Fault, FaultPlan, MockServices, Service},
};

use super::{
    emulator::{call, endpoint, root, run, wait_for},
    logs::Collector,
};

/// The stack.
pub(super) const NAME: &str = "steward-e2e";

/// Decides which call meets which fault. With it some tasks are undone, and some cannot even be undone.
const SEED: u64 = 7;

/// Who may act in the console: the account's root, as whom `steward console` signs.
pub(super) const OPERATOR: &str = "arn:aws:iam::000000000000:root";

/// What the agents say to the services; in no log, and no other role's to read.
pub(super) const SECRET: &str = "token-that-nobody-else-may-read";

/// The deployed stack, with what is around it.
pub(super) struct Stack {
    variables: HashMap<String, String>,
    pub(super) sdk: SdkConfig,
    pub(super) services: MockServices,
    pub(super) plan: FaultPlan,
    pub(super) spans: Collector,
    /// The tasks that an alert was heard of.
    pub(super) alerted: Arc<Mutex<BTreeSet<String>>>,
    /// The ends that clients were told of, as `order-1 processed`.
    pub(super) noticed: Arc<Mutex<BTreeSet<String>>>,
    /// A secret that is no agent's of this stack.
    pub(super) foreign_secret: String,
    /// That of the stack's agents.
    pub(super) secret: String,
}

impl Stack {
    /// Deploys what `infra/build` made, publishes the workflows that ship, and listens to its alerts.
    pub(super) async fn deploy() -> Self {
        let plan = FaultPlan::chaos(SEED);
        let services = MockServices::start(&Service::ALL, plan.clone()).await.unwrap();
        let (url, _) = services.base_url(Service::Payment).rsplit_once('/').map(own).unwrap();
        let spans = Collector::start().await;
        let foreign_secret = secret("foreign", &json!("of others")).await;
        let secret = secret("own", &json!({ "x-token": SECRET })).await;
        let account = format!("{}/000000000000", endpoint());
        run(
            "infra/deploy",
            &[
                NAME,
                "PlainHttp=true",
                "Size=medium",
                &format!("ConsoleOperators={OPERATOR}"),
                &format!("ServicesUrl={url}"),
                &format!("AgentSecretArn={secret}"),
                &format!("OtlpEndpoint={}", spans.url),
                &format!("ReplyQueues={account}/client-*"),
                "ReplyQueueArns=arn:aws:sqs:us-east-1:000000000000:client-*",
            ],
        )
        .await;
        let said = run("infra/outputs", &[NAME]).await;
        let variables =
            said.lines().filter_map(|line| line.strip_prefix("export ")?.split_once('='));
        let variables = variables.map(own).collect();
        let sdk = aws_config::load_defaults(BehaviorVersion::latest()).await;
        let alerts = queue(&sdk, "alerts").await;
        bring_alerts_to(&sdk, &alerts).await;
        let notices = queue(&sdk, "client-e2e").await;
        let (alerted, noticed) = (Arc::default(), Arc::default());
        listen(&sdk, alerts, Arc::clone(&alerted), |event| {
            Some(event["detail"]["data"]["task_id"].as_str()?.to_owned())
        });
        listen(&sdk, notices, Arc::clone(&noticed), |notice| {
            Some(format!("{} {}", notice["task_id"].as_str()?, notice["status"].as_str()?))
        });
        let stack = Self {
            variables,
            sdk,
            services,
            plan,
            spans,
            alerted,
            noticed,
            foreign_secret,
            secret,
        };
        for shipped in Shipped::ALL {
            stack.publish(shipped.scenario().definition()).await;
        }
        stack
    }

    /// The value of an output, by the name of its variable.
    pub(super) fn variable(&self, name: &str) -> &str {
        &self.variables[name]
    }

    /// The name of a function of this stack, or of a queue.
    pub(super) fn name_of(&self, part: &str) -> String {
        format!("{NAME}-{part}")
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
        let rules = TriggerRules::new(events, sqs, bus, submissions);
        let workflow = definitions::parse(Path::new("test.yaml"), definition).unwrap();
        Publisher { definitions, store: self.store(), rules }.publish(&workflow).await.unwrap();
    }

    /// Puts a submission on the queue, as a client does.
    pub(super) async fn submit(&self, task_id: &str, workflow: &str, input: &Value) {
        let reply_to = format!("{}/000000000000/client-e2e", endpoint());
        let submission = json!({ "task_id": task_id, "workflow": workflow, "input": input, "reply_to": reply_to });
        let sqs = aws_sdk_sqs::Client::new(&self.sdk);
        let queue = self.variable("STEWARD_SUBMISSIONS_QUEUE_URL");
        let send = sqs.send_message().queue_url(queue).message_body(submission.to_string());
        send.send().await.unwrap();
    }

    pub(super) async fn task(&self, id: &str) -> Option<Task> {
        self.store().load(&id.parse().unwrap()).await.unwrap()
    }

    /// Waits until a task has ended, one way or another.
    pub(super) async fn ended(&self, id: &str) -> Task {
        let look = async || self.task(id).await.filter(|task| task.process_state.is_final());
        wait_for(&format!("the end of {id}"), look).await
    }

    /// An order's id, beginning so, whose step `step` meets a fault that is `wanted`; the others meet none.
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

    /// Deletes the stack, and looks whether something is left that should not be.
    pub(super) async fn delete(&self) {
        delete(NAME).await;
        let sqs = aws_sdk_sqs::Client::new(&self.sdk);
        let left = sqs.list_queues().queue_name_prefix(NAME).send().await.unwrap();
        assert_eq!(left.queue_urls(), [] as [String; 0]);
        // What was promised is not forgotten with the functions.
        let tables = aws_sdk_dynamodb::Client::new(&self.sdk).list_tables().send().await.unwrap();
        let tables = tables.table_names();
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

async fn secret(name: &str, value: &Value) -> String {
    let body = json!({
        "Name": format!("{NAME}-{name}"), "SecretString": value.to_string(),
        "ClientRequestToken": "00000000-0000-0000-0000-000000000000",
    });
    let (status, answer) =
        call(&root(), "secretsmanager", "secretsmanager.CreateSecret", &body).await;
    assert_eq!(status, 200, "{answer}");
    answer["ARN"].as_str().unwrap().to_owned()
}

async fn queue(sdk: &SdkConfig, name: &str) -> String {
    let made = aws_sdk_sqs::Client::new(sdk).create_queue().queue_name(name).send().await.unwrap();
    made.queue_url.unwrap()
}

/// The operator's rule: what Steward says on its bus, into a queue.
async fn bring_alerts_to(sdk: &SdkConfig, queue: &str) {
    let (events, name) = (aws_sdk_eventbridge::Client::new(sdk), queue.rsplit('/').next().unwrap());
    let arn = format!("arn:aws:sqs:us-east-1:000000000000:{name}");
    let pattern = json!({ "source": ["steward"] }).to_string();
    let rule = events.put_rule().name("operator").event_bus_name(NAME).event_pattern(pattern);
    let rule = rule.send().await.unwrap().rule_arn.unwrap();
    let policy = json!({ "Version": "2012-10-17", "Statement": [{
        "Effect": "Allow", "Principal": { "Service": "events.amazonaws.com" },
        "Action": "sqs:SendMessage", "Resource": arn,
        "Condition": { "ArnEquals": { "aws:SourceArn": rule } },
    }]});
    let sqs = aws_sdk_sqs::Client::new(sdk);
    let policy_name = aws_sdk_sqs::types::QueueAttributeName::Policy;
    let set =
        sqs.set_queue_attributes().queue_url(queue).attributes(policy_name, policy.to_string());
    set.send().await.unwrap();
    let target =
        aws_sdk_eventbridge::types::Target::builder().id("queue").arn(arn).build().unwrap();
    events
        .put_targets()
        .rule("operator")
        .event_bus_name(NAME)
        .targets(target)
        .send()
        .await
        .unwrap();
}

/// Notes what each message of a queue is about, until the test ends.
fn listen(
    sdk: &SdkConfig,
    queue: String,
    heard: Arc<Mutex<BTreeSet<String>>>,
    about: fn(Value) -> Option<String>,
) {
    let sqs = aws_sdk_sqs::Client::new(sdk);
    tokio::spawn(async move {
        loop {
            let receive = sqs.receive_message().queue_url(&queue).max_number_of_messages(10);
            let received = receive.wait_time_seconds(5).send().await.unwrap();
            for message in received.messages() {
                let body = serde_json::from_str(message.body().unwrap()).unwrap();
                heard.lock().unwrap().extend(about(body));
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
