//! The registrar on the embedded AWS: each event of CloudFormation is answered, and changes the registry or does not.

#![cfg(test)]

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use aws_sdk_sqs::{
    operation::get_queue_attributes::GetQueueAttributesOutput, types::QueueAttributeName,
};
use aws_smithy_runtime_api::{
    box_error::BoxError,
    client::{
        interceptors::{
            Intercept, SharedInterceptor,
            context::{
                AfterDeserializationInterceptorContextRef, BeforeTransmitInterceptorContextRef,
            },
        },
        runtime_components::RuntimeComponents,
    },
};
use aws_smithy_types::config_bag::ConfigBag;
use axum::{Router, http::StatusCode};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use steward_aws::{AwsPorts, Config};
use steward_core::model::registration::{AGENT_CONTRACT, AgentRegistration};
use steward_emulator::{embedded::EmbeddedAws, resources};
use steward_registrar::{error::DeliveryError, handle};
use steward_runtime::{
    agents::{registered, registration},
    ports::{Ports, SharedRecord, SharedRecordKey, SharedRecordKind, StateStore},
};
use tokio::{net::TcpListener, sync::Notify, task::JoinSet};

/// The answers that CloudFormation received, and the statuses of its next responses.
#[derive(Default)]
struct Answers {
    received: Vec<(Option<String>, Value)>,
    statuses: Vec<StatusCode>,
}

/// A deployment with the agents `a` and `b`, and a CloudFormation that records answers.
struct Registry {
    aws: EmbeddedAws,
    config: Config,
    answers: Arc<Mutex<Answers>>,
    response_url: String,
    _server: JoinSet<()>,
}

impl Registry {
    async fn start() -> Self {
        let aws = EmbeddedAws::in_memory().unwrap();
        let agents = ["a", "b"].map(|agent| agent.parse().unwrap());
        let config = resources::create(&aws, &agents).await.unwrap();
        let answers = Arc::new(Mutex::new(Answers::default()));
        let received = answers.clone();
        let record = move |headers: axum::http::HeaderMap, body: String| {
            let content_type = headers.get("content-type");
            let content_type = content_type.map(|value| value.to_str().unwrap().to_owned());
            let mut answers = received.lock().unwrap();
            answers.received.push((content_type, serde_json::from_str(&body).unwrap()));
            let status = answers.statuses.pop().unwrap_or(StatusCode::OK);
            std::future::ready(status)
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let response_url =
            format!("http://{}/answer?signature=SECRET", listener.local_addr().unwrap());
        let routes = Router::new().route("/answer", axum::routing::put(record));
        let mut server = JoinSet::new();
        server.spawn(async move { axum::serve(listener, routes).await.unwrap() });
        Self { aws, config, answers, response_url, _server: server }
    }

    fn ports(&self) -> AwsPorts {
        AwsPorts::new(&self.aws.sdk_config(), &self.config, "registrar")
    }

    fn ports_with(&self, interceptor: SharedInterceptor) -> AwsPorts {
        let sdk = self.aws.sdk_config();
        AwsPorts::with_interceptors(&sdk, &self.config, "registrar", vec![interceptor])
    }

    /// An event for the resource `Registration` of `stack`.
    fn event(&self, kind: &str, stack: &str, properties: &Value) -> Value {
        json!({
            "RequestType": kind, "ResponseURL": self.response_url, "StackId": stack,
            "RequestId": "request-1", "ResourceType": "Custom::StewardAgent",
            "LogicalResourceId": "Registration", "ResourceProperties": properties,
        })
    }

    /// Handles an event, and returns the only answer.
    async fn answer(&self, event: &Value) -> Value {
        self.answer_with(&self.ports(), event).await
    }

    /// The function has no time to wait for a change of the queue.
    async fn answer_with(&self, ports: &AwsPorts, event: &Value) -> Value {
        self.answer_within(18, ports, event).await
    }

    async fn answer_within(&self, seconds: i64, ports: &AwsPorts, event: &Value) -> Value {
        let deadline = Timestamp::now() + SignedDuration::from_secs(seconds);
        handle(ports, &reqwest::Client::new(), event, deadline).await.unwrap();
        self.take_answer()
    }

    fn take_answer(&self) -> Value {
        let mut received = std::mem::take(&mut self.answers.lock().unwrap().received);
        assert_eq!(received.len(), 1, "{received:?}");
        let (content_type, answer) = received.remove(0);
        assert_eq!(content_type, None, "the URL is signed for a request without one");
        assert!(answer.to_string().len() < 4_096, "{answer}");
        answer
    }

    /// Creates the registration of agent `a` by `stack`.
    async fn create(&self, stack: &str) -> Value {
        self.answer(&self.event("Create", stack, &properties())).await
    }

    async fn agent(&self, name: &str) -> Option<AgentRegistration> {
        registration(self.ports().store(), &name.parse().unwrap()).await.unwrap()
    }
}

/// The properties of agent `a`, as CloudFormation sends them.
fn properties() -> Value {
    json!({
        "ServiceToken": "arn:aws:lambda:eu-west-1:1:function:steward-registrar", "ServiceTimeout": "60",
        "Name": "a", "Kind": "http", "DeadLetterQueue": "steward-agent-a-dead-letters",
        "Contract": AGENT_CONTRACT.to_string(), "Version": "", "Timeout": "120",
        "CallsAtOnce": "100", "RatePerSecond": "2.5", "Burst": "10",
    })
}

fn with(property: &str, value: &str) -> Value {
    let mut properties = properties();
    properties[property] = json!(value);
    properties
}

#[track_caller]
fn assert_refused(answer: &Value, reason: &str) {
    assert_eq!(answer["Status"], "FAILED", "{answer}");
    assert!(answer["Reason"].as_str().unwrap().contains(reason), "{answer}");
}

#[tokio::test]
async fn an_agent_is_registered_updated_and_deregistered() {
    let registry = Registry::start().await;
    let answer = registry.create("stack-1").await;
    let id = answer["PhysicalResourceId"].as_str().unwrap().to_owned();
    assert!(id.starts_with("a@"), "{id}");
    let expected = json!({
        "Status": "SUCCESS", "PhysicalResourceId": id, "StackId": "stack-1",
        "RequestId": "request-1", "LogicalResourceId": "Registration",
    });
    assert_eq!(answer, expected);
    let agent = registry.agent("a").await.unwrap();
    assert_eq!(agent.queue.as_str(), "steward-agent-a");
    assert_eq!(agent.calls_at_once.unwrap().get(), 100);
    assert_eq!((agent.rate_per_second.map(f64::from), agent.burst.unwrap().get()), (Some(2.5), 10));
    assert_eq!((agent.version, agent.deleted_at), (None, None));

    let mut event = registry.event("Update", "stack-1", &with("Version", "1.2"));
    event["PhysicalResourceId"] = json!(id);
    assert_eq!(registry.answer(&event).await["PhysicalResourceId"], id.as_str(), "no replacement");
    assert_eq!(registry.agent("a").await.unwrap().version.unwrap().as_str(), "1.2");

    event["RequestType"] = json!("Delete");
    assert_eq!(registry.answer(&event).await, expected);
    assert!(registry.agent("a").await.unwrap().deleted_at.is_some());
    assert_eq!(registry.answer(&event).await["Status"], "SUCCESS", "a repetition");
}

#[tokio::test]
async fn a_second_stack_with_the_name_is_refused_and_its_roll_back_changes_nothing() {
    let registry = Registry::start().await;
    registry.create("stack-1").await;
    let refused = registry.create("stack-2").await;
    assert_refused(&refused, "agent `a` is registered by the stack stack-1");
    let mut event = registry.event("Delete", "stack-2", &properties());
    event["PhysicalResourceId"] = refused["PhysicalResourceId"].clone();
    assert_eq!(registry.answer(&event).await["Status"], "SUCCESS");
    assert_eq!(registry.agent("a").await.unwrap().deleted_at, None);
}

#[tokio::test]
async fn a_new_name_replaces_the_resource_and_the_earlier_name_is_deregistered() {
    let registry = Registry::start().await;
    let earlier = registry.create("stack-1").await["PhysicalResourceId"].clone();
    let mut properties = with("Name", "b");
    properties["DeadLetterQueue"] = json!("steward-agent-b-dead-letters");
    let mut event = registry.event("Update", "stack-1", &properties);
    event["PhysicalResourceId"] = earlier.clone();
    let now = registry.answer(&event).await["PhysicalResourceId"].clone();
    assert_ne!(now, earlier);
    let mut event = registry.event("Delete", "stack-1", &self::properties());
    event["PhysicalResourceId"] = earlier;
    registry.answer(&event).await;
    assert!(registry.agent("a").await.unwrap().deleted_at.is_some());
    assert_eq!(registry.agent("b").await.unwrap().deleted_at, None);
}

/// CloudFormation creates the resource with the new logical id before it deletes the other one.
#[tokio::test]
async fn an_agent_stays_registered_when_its_resource_is_renamed() {
    let registry = Registry::start().await;
    registry.create("stack-1").await;
    let mut event = registry.event("Create", "stack-1", &properties());
    event["LogicalResourceId"] = json!("Renamed");
    assert_eq!(registry.answer(&event).await["Status"], "SUCCESS");
    registry.answer(&registry.event("Delete", "stack-1", &properties())).await;
    assert_eq!(registry.agent("a").await.unwrap().deleted_at, None);
}

#[tokio::test]
async fn invalid_properties_are_refused_with_the_reason() {
    let registry = Registry::start().await;
    for (property, value, reason) in [
        ("Name", "", "the property `Name` is missing"),
        ("Name", "Payment", "agent name `Payment` is not valid"),
        ("Name", "unknown", "there is no queue `steward-agent-unknown`"),
        ("Kind", "", "the property `Kind` is missing"),
        ("Kind", "H T", "`Kind` is invalid"),
        ("Contract", "0", "`Contract` is invalid"),
        ("Contract", "one", "`Contract` is invalid"),
        ("Version", "1 2", "`Version` is invalid"),
        ("Timeout", "901", "`Timeout` is invalid: more than 900 s"),
        ("Timeout", "121", "must be at least 726 s: six times"),
        ("CallsAtOnce", "-1", "`CallsAtOnce` is invalid"),
        ("RatePerSecond", "0.01", "not between 0.1 and 10000"),
        ("RatePerSecond", "NaN", "not between 0.1 and 10000"),
        ("Burst", "1.5", "`Burst` is invalid"),
        ("DeadLetterQueue", "steward-agent-b-dead-letters", "and has steward-agent-a-dead-letters"),
        ("DeadLetterQueue", "other-dead-letters", "must begin with `steward-agent-`"),
        ("DeadLetterQueue", "steward-agent-a", "end in `-dead-letters`"),
        ("DeadLetterQueue", "a/b", "`DeadLetterQueue` is invalid"),
        ("Rate", "1", "unknown property `Rate`; known are ServiceToken"),
    ] {
        let answer = registry.answer(&registry.event("Create", "s", &with(property, value))).await;
        assert_refused(&answer, reason);
        assert_ne!(answer["PhysicalResourceId"], "", "CloudFormation requires an id");
    }
    let mut properties = properties();
    properties["Name"] = json!(["a"]);
    let answer = registry.answer(&registry.event("Create", "s", &properties)).await;
    assert_refused(&answer, "`Name` is invalid: not a text or a number");
    assert_eq!(registered(registry.ports().store()).await.unwrap(), []);
}

#[tokio::test]
async fn a_queue_without_dead_letter_queue_is_refused() {
    let registry = Registry::start().await;
    let sqs = aws_sdk_sqs::Client::new(&registry.aws.sdk_config());
    let url = registry.config.agent_queue_url.of(&"a".parse().unwrap());
    let none = HashMap::from([(QueueAttributeName::RedrivePolicy, String::new())]);
    let set = sqs.set_queue_attributes().queue_url(url).set_attributes(Some(none));
    set.send().await.unwrap();
    assert_refused(&registry.create("s").await, "in its RedrivePolicy, and has none");
}

/// Notifies when the attributes of a queue have been read.
#[derive(Debug)]
struct NotifyAfterLook(Arc<Notify>);

impl Intercept for NotifyAfterLook {
    fn name(&self) -> &'static str {
        "notify after look"
    }

    fn read_after_deserialization(
        &self,
        context: &AfterDeserializationInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let output = context.output_or_error().ok();
        if output.is_some_and(|output| output.downcast_ref::<GetQueueAttributesOutput>().is_some())
        {
            self.0.notify_one();
        }
        Ok(())
    }
}

/// SQS shows the change of a queue up to a minute late.
#[tokio::test]
async fn a_queue_that_changes_a_moment_later_is_awaited() {
    let registry = Registry::start().await;
    let sqs = aws_sdk_sqs::Client::new(&registry.aws.sdk_config());
    let url = registry.config.agent_queue_url.of(&"a".parse().unwrap());
    let timeout = |seconds: &str| {
        let timeout = HashMap::from([(QueueAttributeName::VisibilityTimeout, seconds.to_owned())]);
        sqs.set_queue_attributes().queue_url(&url).set_attributes(Some(timeout)).send()
    };
    timeout("30").await.unwrap();
    assert_refused(&registry.create("s").await, "must be at least 720 s");
    let looked = Arc::new(Notify::new());
    let interceptor = SharedInterceptor::new(NotifyAfterLook(looked.clone()));
    let ports = registry.ports_with(interceptor);
    let event = registry.event("Create", "s", &properties());
    let answer = registry.answer_within(30, &ports, &event);
    let (answer, ()) = tokio::join!(answer, async {
        tokio::time::timeout(Duration::from_secs(30), looked.notified()).await.unwrap();
        timeout("720").await.unwrap();
    });
    assert_eq!(answer["Status"], "SUCCESS", "{answer}");
}

/// It may be that of another stack, written by a newer release.
#[tokio::test]
async fn an_unreadable_registration_is_not_replaced() {
    let registry = Registry::start().await;
    let key = SharedRecordKey { kind: SharedRecordKind::Agent, name: "a".to_owned() };
    let record = SharedRecord { key: key.clone(), revision: 1, body: json!(7), expires_at: None };
    registry.ports().store().save_shared_record(&record).await.unwrap();
    assert_refused(&registry.create("stack-1").await, "the stored registration is unreadable");
    let answer = registry.answer(&registry.event("Delete", "stack-1", &properties())).await;
    assert_eq!(answer["Status"], "SUCCESS", "{answer}");
    let stored = registry.ports().store().shared_record(&key).await.unwrap().unwrap();
    assert_eq!((stored.revision, stored.body), (1, json!(7)));
}

#[tokio::test]
async fn a_stack_whose_name_contains_that_of_an_agent_is_refused() {
    let mut registry = Registry::start().await;
    let url = registry.config.agent_queue_url.of(&"a".parse().unwrap());
    let url = url.replace("steward-agent-a", "shop-agent-x-agent-{agent}");
    let sqs = aws_sdk_sqs::Client::new(&registry.aws.sdk_config());
    sqs.create_queue().queue_name("shop-agent-x-agent-a").send().await.unwrap();
    registry.config.agent_queue_url = url.parse().unwrap();
    assert_refused(&registry.create("s").await, "name of Steward's stack contains `-agent-`");
}

#[tokio::test]
async fn a_deletion_succeeds_whatever_it_contains() {
    let registry = Registry::start().await;
    registry.create("stack-1").await;
    for properties in [json!({}), json!({ "Name": "Not a name" }), json!({ "Name": "unknown" })] {
        let mut event = registry.event("Delete", "stack-1", &properties);
        event["PhysicalResourceId"] = json!("a@1");
        let answer = registry.answer(&event).await;
        assert_eq!(
            (&answer["Status"], &answer["PhysicalResourceId"]),
            (&json!("SUCCESS"), &json!("a@1"))
        );
    }
    assert_eq!(registry.agent("a").await.unwrap().deleted_at, None);
}

#[tokio::test]
async fn unknown_requests_are_answered() {
    let registry = Registry::start().await;
    let answer = registry.answer(&registry.event("Import", "s", &properties())).await;
    assert_refused(&answer, "unknown request type `Import`");
    let stack = "s".repeat(300);
    assert_refused(
        &registry.answer(&registry.event("Create", &stack, &properties())).await,
        "stack id",
    );
    let bare = json!({ "ResponseURL": registry.response_url });
    assert_refused(&registry.answer(&bare).await, "stack id");
}

/// Panics at each request to DynamoDB or SQS.
#[derive(Debug)]
struct PanicAtRequest;

impl Intercept for PanicAtRequest {
    fn name(&self) -> &'static str {
        "panic"
    }

    fn read_before_transmit(
        &self,
        _: &BeforeTransmitInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        panic!("planted");
    }
}

#[tokio::test]
async fn a_panic_is_answered() {
    let registry = Registry::start().await;
    let ports = registry.ports_with(SharedInterceptor::new(PanicAtRequest));
    let event = registry.event("Create", "s", &properties());
    assert_refused(&registry.answer_with(&ports, &event).await, "failed unexpectedly");
    let event = registry.event("Delete", "s", &properties());
    assert_eq!(registry.answer_with(&ports, &event).await["Status"], "SUCCESS");
}

#[tokio::test]
async fn a_timeout_is_answered() {
    let registry = Registry::start().await;
    let event = registry.event("Create", "s", &properties());
    let client = reqwest::Client::new();
    handle(&registry.ports(), &client, &event, Timestamp::now()).await.unwrap();
    assert_refused(&registry.take_answer(), "did not finish in time");
    assert!(registry.agent("a").await.is_none(), "nothing is begun without time");
}

#[tokio::test]
async fn an_answer_that_is_not_accepted_is_sent_again() {
    let registry = Registry::start().await;
    registry.answers.lock().unwrap().statuses = vec![StatusCode::SERVICE_UNAVAILABLE];
    let event = registry.event("Create", "s", &properties());
    let deadline = Timestamp::now() + SignedDuration::from_secs(30);
    handle(&registry.ports(), &reqwest::Client::new(), &event, deadline).await.unwrap();
    assert_eq!(registry.answers.lock().unwrap().received.len(), 2);
}

#[tokio::test]
async fn no_error_contains_the_signed_url() {
    let registry = Registry::start().await;
    let client = reqwest::Client::new();
    let deadline = Timestamp::now() + SignedDuration::from_secs(30);
    let mut event = registry.event("Create", "s", &properties());
    event["ResponseURL"] = json!("http://127.0.0.1:1/answer?signature=SECRET");
    let failed = handle(&registry.ports(), &client, &event, deadline).await.unwrap_err();
    assert!(matches!(failed, DeliveryError::Failed(_)));
    event["ResponseURL"] = json!({ "signature": "SECRET" });
    let unreadable = handle(&registry.ports(), &client, &event, deadline).await.unwrap_err();
    assert!(matches!(unreadable, DeliveryError::NotACustomResource));
    for error in [failed, unreadable] {
        let text = format!("{error:?} {}", steward_runtime::ports::error_chain(&error));
        assert!(!text.contains("SECRET"), "{text}");
    }
}
