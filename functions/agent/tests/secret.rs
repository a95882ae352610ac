//! The agent's secret, through the SDK's client, from a server that speaks Secrets Manager's protocol.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "clippy.toml allows these in tests, and means test functions, not their helpers"
)]

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use aws_config::{BehaviorVersion, Region, SdkConfig, retry::RetryConfig};
use aws_sdk_secretsmanager::config::{Credentials, SharedCredentialsProvider};
use axum::{
    Router,
    body::Bytes,
    http::{HeaderMap, StatusCode},
};
use jiff::Timestamp;
use serde_json::{Value, json};
use steward_agent::attempt::RemoteService;
use steward_agent::{
    http::HttpService,
    secret::{Secret, SecretError},
};
use steward_core::model::messages::StepRequest;
use tokio::{
    net::{TcpListener, TcpSocket},
    task::JoinSet,
};
use tracing_subscriber::fmt::format::FmtSpan;

const ARN: &str = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:pay-AbCdEf";
const START: Timestamp = Timestamp::UNIX_EPOCH;
const DENIED: &str = r#"{"__type":"AccessDeniedException","Message":"not for this role"}"#;

/// Secrets Manager and a remote service in one. It stops when it is dropped.
struct World {
    address: String,
    /// What Secrets Manager answers.
    answer: Arc<Mutex<(u16, String)>>,
    reads: Arc<Mutex<u32>>,
    /// The headers of the last call to the remote service.
    called: Arc<Mutex<HeaderMap>>,
    _server: JoinSet<()>,
}

impl World {
    async fn new(secret: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let answer = Arc::new(Mutex::new(holding(secret)));
        let (reads, called) = (Arc::default(), Arc::default());
        let mut server = JoinSet::new();
        let manager = manager(answer.clone(), Arc::clone(&reads));
        let routes = manager.merge(remote(Arc::clone(&called)));
        server.spawn(async move { axum::serve(listener, routes).await.unwrap() });
        Self { address, answer, reads, called, _server: server }
    }

    fn sdk(&self) -> SdkConfig {
        let credentials = Credentials::new("id", "key", None, None, "test");
        SdkConfig::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new("eu-west-1"))
            .credentials_provider(SharedCredentialsProvider::new(credentials))
            .retry_config(RetryConfig::disabled())
            .endpoint_url(&self.address)
            .build()
    }

    fn service(&self, headers: &str) -> HttpService {
        let base_url = format!("{}/service", self.address).parse().unwrap();
        HttpService::new(base_url, headers.parse().unwrap(), Duration::from_secs(60)).unwrap()
    }

    /// A service with these headers configured, and its secret.
    async fn open(&self, given: &str) -> Result<(HttpService, Secret), SecretError> {
        let service = self.service(given);
        let given = given.parse().unwrap();
        let secret =
            Secret::configured(&self.sdk(), ARN.to_owned(), given, &service, START).await?;
        Ok((service, secret.unwrap()))
    }

    fn answers(&self, answer: (u16, String)) {
        *self.answer.lock().unwrap() = answer;
    }

    fn reads(&self) -> u32 {
        *self.reads.lock().unwrap()
    }

    /// What one call carries under a header's name.
    async fn sent(&self, service: &HttpService, name: &str) -> Vec<String> {
        let request: StepRequest = serde_json::from_value(json!({
            "task_id": "t", "step": "s", "attempt": 1, "complete_by": START,
            "idempotency_key": "k", "agent": "a", "method": "POST", "path": "/",
        }))
        .unwrap();
        service.call(&request, None).await.unwrap();
        let called = self.called.lock().unwrap();
        called.get_all(name).iter().map(|value| value.to_str().unwrap().to_owned()).collect()
    }
}

/// Answers `GetSecretValue` for the one secret.
fn manager(answer: Arc<Mutex<(u16, String)>>, reads: Arc<Mutex<u32>>) -> Router {
    let handler = move |headers: HeaderMap, body: Bytes| async move {
        assert_eq!(headers["x-amz-target"], "secretsmanager.GetSecretValue");
        let request: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(request, json!({ "SecretId": ARN }));
        *reads.lock().unwrap() += 1;
        let (status, body) = answer.lock().unwrap().clone();
        let content_type = [("content-type", "application/x-amz-json-1.1")];
        (StatusCode::from_u16(status).unwrap(), content_type, body)
    };
    Router::new().route("/", axum::routing::post(handler))
}

fn remote(called: Arc<Mutex<HeaderMap>>) -> Router {
    let handler = move |headers: HeaderMap| async move {
        *called.lock().unwrap() = headers;
    };
    Router::new().route("/service/", axum::routing::post(handler))
}

/// The answer with a secret's text.
fn holding(text: &str) -> (u16, String) {
    let value = json!({
        "ARN": ARN, "Name": "pay", "VersionId": "12345678-1234-1234-1234-123456789012",
        "VersionStages": ["AWSCURRENT"], "CreatedDate": 1_795_176_000.25, "SecretString": text,
    });
    (200, value.to_string())
}

fn after(seconds: u64) -> Timestamp {
    START + Duration::from_secs(seconds)
}

#[tokio::test]
async fn headers_of_the_secret_are_on_every_call_over_those_configured() {
    let world = World::new(r#"{ "Authorization": "Bearer s3cret", "x-key": "k" }"#).await;
    let configured = r#"{ "authorization": "none", "x-tenant": "shop" }"#;
    let (service, _secret) = world.open(configured).await.unwrap();
    // Clones of the service, as instances hold them, have the same headers.
    for service in [&service.clone(), &service] {
        assert_eq!(world.sent(service, "authorization").await, ["Bearer s3cret"]);
        assert_eq!(world.sent(service, "x-key").await, ["k"]);
        assert_eq!(world.sent(service, "x-tenant").await, ["shop"]);
    }
    assert_eq!(world.reads(), 1);
}

#[tokio::test]
async fn rotated_secret_arrives_when_the_one_at_hand_is_five_minutes_old() {
    let world = World::new(r#"{ "authorization": "old", "x-old": "old" }"#).await;
    let (service, secret) = world.open(r#"{ "x-old": "configured" }"#).await.unwrap();
    assert_eq!(world.sent(&service, "x-old").await, ["old"]);
    world.answers(holding(r#"{ "authorization": "new" }"#));
    secret.refresh(after(299)).await;
    assert_eq!(
        (world.reads(), world.sent(&service, "authorization").await),
        (1, vec!["old".into()])
    );
    for now in [after(300), after(301), after(599)] {
        secret.refresh(now).await;
        let sent = world.sent(&service, "authorization").await;
        assert_eq!((world.reads(), sent), (2, vec!["new".to_owned()]), "{now}");
    }
    // What is no longer in the secret is as it was configured.
    assert_eq!(world.sent(&service, "x-old").await, ["configured"]);
    secret.refresh(after(600)).await;
    assert_eq!(world.reads(), 3);
}

#[tokio::test]
async fn refresh_that_fails_keeps_what_was_read_and_is_tried_again_soon() {
    let refused = (400, DENIED.to_owned());
    let hung_up = (200, "{".to_owned());
    for failure in [refused, hung_up, holding("s3cret"), holding(r#"{ "a b": "s3cret" }"#)] {
        let world = World::new(r#"{ "authorization": "old" }"#).await;
        let (service, secret) = world.open("{}").await.unwrap();
        world.answers(failure);
        for (at, reads) in [(300, 2), (329, 2), (330, 3)] {
            secret.refresh(after(at)).await;
            let sent = world.sent(&service, "authorization").await;
            assert_eq!((world.reads(), sent), (reads, vec!["old".to_owned()]), "{at}");
        }
        world.answers(holding(r#"{ "authorization": "new" }"#));
        secret.refresh(after(360)).await;
        assert_eq!(world.sent(&service, "authorization").await, ["new"]);
        secret.refresh(after(659)).await;
        assert_eq!(world.reads(), 4);
    }
}

#[tokio::test]
async fn many_at_once_read_it_once() {
    let world = World::new("{}").await;
    let (_service, secret) = world.open("{}").await.unwrap();
    let now = after(300);
    tokio::join!(secret.refresh(now), secret.refresh(now), secret.refresh(now));
    assert_eq!(world.reads(), 2);
}

#[tokio::test]
async fn secret_that_holds_no_headers_is_refused_without_showing_it() {
    let message = format!("secret `{ARN}` is not a JSON object of headers, a text for each name");
    for text in [
        "",
        "s3cret",
        r#""s3cret""#,
        r#"["s3cret"]"#,
        r#"{ "authorization": ["s3cret"] }"#,
        r#"{ "authorization": "s3cret\n" }"#,
        r#"{ "Bearer s3cret": "authorization" }"#,
        r#"{ "authorization": "s3cret""#,
    ] {
        let error = World::new(text).await.open("{}").await.unwrap_err();
        assert_eq!(error.to_string(), message, "{text}");
        assert!(!format!("{error:?}").contains("s3cret"), "{error:?}");
    }
    let world = World::new("").await;
    let mut binary: Value = serde_json::from_str(&holding("").1).unwrap();
    binary.as_object_mut().unwrap().shift_remove("SecretString");
    binary["SecretBinary"] = json!("czNjcmV0");
    world.answers((200, binary.to_string()));
    assert_eq!(world.open("{}").await.unwrap_err().to_string(), message);
}

#[tokio::test]
async fn secret_that_cannot_be_read_is_named_with_the_reason() {
    let world = World::new("").await;
    for (answer, reason) in [
        ((400, DENIED), "AccessDeniedException: not for this role"),
        ((400, r#"{"__type":"ResourceNotFoundException"}"#), "ResourceNotFoundException"),
        ((200, r#"{"SecretString":"s3cret"#), "service error: unhandled error: "),
        ((200, r#"{"SecretString":"s3cret\x"}"#), "service error: unhandled error: "),
        ((200, r#"{"SecretString":["s3cret"]}"#), "service error: unhandled error: "),
    ] {
        world.answers((answer.0, answer.1.to_owned()));
        let error = world.open("{}").await.unwrap_err();
        let text = error.to_string();
        let begin = format!("secret `{ARN}` not read: {reason}");
        assert!(text.starts_with(&begin), "{text}");
        assert!(!format!("{text} {error:?}").contains("s3cret"), "{error:?}");
    }
    // Bound but not listening: refused, and nobody else can have the port.
    let held = TcpSocket::new_v4().unwrap();
    held.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = format!("http://{}", held.local_addr().unwrap());
    let nowhere = World { address, ..world };
    let text = nowhere.open("{}").await.unwrap_err().to_string();
    assert!(text.starts_with(&format!("secret `{ARN}` not read: dispatch failure")), "{text}");
}

#[tokio::test]
async fn without_a_secret_nobody_is_asked() {
    let world = World::new("{}").await;
    let service = world.service("{}");
    let given = "{}".parse().unwrap();
    let none = Secret::configured(&world.sdk(), String::new(), given, &service, START).await;
    assert!(none.unwrap().is_none());
    assert_eq!(world.reads(), 0);
}

/// The text of all that is logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(text);
        Ok(text.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn secret_is_in_no_debug_output_and_no_log_at_any_level() {
    let log = Log::default();
    let writer = log.clone();
    // For the whole process, and so for the other tests' secrets too: one for this thread alone
    // would miss what another thread logs first.
    tracing_subscriber::fmt()
        .with_max_level(tracing_subscriber::filter::LevelFilter::TRACE)
        .with_span_events(FmtSpan::FULL)
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .init();
    let world = World::new(r#"{ "authorization": "Bearer s3cret" }"#).await;
    let (service, secret) = world.open("{}").await.unwrap();
    assert_eq!(world.sent(&service, "authorization").await, ["Bearer s3cret"]);
    let debug = format!("{service:?} {service:#?} {secret:?} {secret:#?}");
    for (at, failure) in [
        (300, holding(r#"{ "s3cret": 1 }"#)),
        (330, (200, r#"{"SecretString":"s3cret"#.to_owned())),
        (360, (400, DENIED.to_owned())),
    ] {
        world.answers(failure);
        secret.refresh(after(at)).await;
    }
    let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert!(!debug.contains("s3cret"), "{debug}");
    assert!(!log.contains("s3cret"), "{log}");
    assert!(log.contains("TRACE"), "the deepest level is looked at");
    let warnings: Vec<_> = log.lines().filter(|line| line.contains("are kept")).collect();
    assert!(warnings.len() >= 3, "{warnings:?}");
    assert!(
        warnings.iter().all(|line| line.contains("WARN") && line.contains(ARN)),
        "{warnings:?}"
    );
}
