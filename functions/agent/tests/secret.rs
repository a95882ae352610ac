//! The agent's secret, read with the SDK's client from a server that implements the Secrets Manager protocol.

#![cfg(test)]

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use aws_config::{BehaviorVersion, Region, SdkConfig, retry::RetryConfig};
use aws_credential_types::{Credentials, provider::SharedCredentialsProvider};
use axum::{
    Router,
    body::Bytes,
    http::{HeaderMap, StatusCode},
};
use jiff::Timestamp;
use serde_json::{Value, json};
use steward_agent::attempt::RemoteService;
use steward_agent::{
    http::{HttpService, HttpSettings},
    secret::{Secret, SecretError},
};
use steward_test_world::step_request;
use tempfile::NamedTempFile;
use tokio::{
    net::{TcpListener, TcpSocket},
    task::JoinSet,
};
use tracing_subscriber::fmt::format::FmtSpan;

const ARN: &str = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:pay-AbCdEf";
const START: Timestamp = Timestamp::UNIX_EPOCH;
const DENIED: &str = r#"{"__type":"AccessDeniedException","Message":"not for this role"}"#;

/// A server that is both Secrets Manager and the remote service. It stops when it is dropped.
struct SecretsServer {
    address: String,
    /// The response of Secrets Manager.
    response: Arc<Mutex<(u16, String)>>,
    reads: Arc<Mutex<u32>>,
    /// The headers of the last call to the remote service.
    called: Arc<Mutex<HeaderMap>>,
    _server: JoinSet<()>,
}

impl SecretsServer {
    async fn new(secret: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let response = Arc::new(Mutex::new(secret_response(secret)));
        let (reads, called) = (Arc::default(), Arc::default());
        let mut tasks = JoinSet::new();
        let manager = secrets_manager(response.clone(), Arc::clone(&reads));
        let routes = manager.merge(remote(Arc::clone(&called)));
        tasks.spawn(async move { axum::serve(listener, routes).await.unwrap() });
        Self { address, response, reads, called, _server: tasks }
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
        let headers = headers.parse().unwrap();
        HttpService::new(HttpSettings { headers, ..HttpSettings::new(base_url) }).unwrap()
    }

    /// A service with these configured headers, and its secret.
    async fn open(&self, configured_headers: &str) -> Result<(HttpService, Secret), SecretError> {
        let service = self.service(configured_headers);
        let configured_headers = configured_headers.parse().unwrap();
        let secret =
            Secret::configured(&self.sdk(), ARN.to_owned(), configured_headers, &service, START)
                .await?;
        Ok((service, secret.unwrap()))
    }

    fn respond_with(&self, response: (u16, String)) {
        *self.response.lock().unwrap() = response;
    }

    fn reads(&self) -> u32 {
        *self.reads.lock().unwrap()
    }

    /// The values of a header in one call.
    async fn sent(&self, service: &HttpService, name: &str) -> Vec<String> {
        let request = step_request(&json!({})).unwrap();
        service.call(&request, None).await.unwrap();
        let called = self.called.lock().unwrap();
        called.get_all(name).iter().map(|value| value.to_str().unwrap().to_owned()).collect()
    }
}

/// The handler of `GetSecretValue`, for one secret.
fn secrets_manager(response: Arc<Mutex<(u16, String)>>, reads: Arc<Mutex<u32>>) -> Router {
    let handler = move |headers: HeaderMap, body: Bytes| async move {
        assert_eq!(headers["x-amz-target"], "secretsmanager.GetSecretValue");
        let request: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(request, json!({ "SecretId": ARN }));
        *reads.lock().unwrap() += 1;
        let (status, body) = response.lock().unwrap().clone();
        let content_type = [("content-type", "application/x-amz-json-1.1")];
        (StatusCode::from_u16(status).unwrap(), content_type, body)
    };
    Router::new().route("/", axum::routing::post(handler))
}

fn remote(called: Arc<Mutex<HeaderMap>>) -> Router {
    let handler = move |headers: HeaderMap| async move {
        *called.lock().unwrap() = headers;
    };
    let token = || async { r#"{ "access_token": "issued", "token_type": "Bearer" }"# };
    Router::new()
        .route("/service/", axum::routing::post(handler))
        .route("/token", axum::routing::post(token))
}

/// The response with this text as the secret.
fn secret_response(text: &str) -> (u16, String) {
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
async fn headers_of_the_secret_override_configured_headers_in_every_call() {
    let server = SecretsServer::new(r#"{ "Authorization": "Bearer s3cret", "x-key": "k" }"#).await;
    let configured = r#"{ "authorization": "none", "x-tenant": "shop" }"#;
    let (service, _secret) = server.open(configured).await.unwrap();
    // Clones of the service share its headers.
    for service in [&service.clone(), &service] {
        assert_eq!(server.sent(service, "authorization").await, ["Bearer s3cret"]);
        assert_eq!(server.sent(service, "x-key").await, ["k"]);
        assert_eq!(server.sent(service, "x-tenant").await, ["shop"]);
    }
    assert_eq!(server.reads(), 1);
}

#[tokio::test]
async fn a_rotated_secret_is_read_after_five_minutes() {
    let server = SecretsServer::new(r#"{ "authorization": "old", "x-old": "old" }"#).await;
    let (service, secret) = server.open(r#"{ "x-old": "configured" }"#).await.unwrap();
    assert_eq!(server.sent(&service, "x-old").await, ["old"]);
    server.respond_with(secret_response(r#"{ "authorization": "new" }"#));
    secret.refresh(after(299)).await;
    assert_eq!(
        (server.reads(), server.sent(&service, "authorization").await),
        (1, vec!["old".into()])
    );
    for now in [after(300), after(301), after(599)] {
        secret.refresh(now).await;
        let sent = server.sent(&service, "authorization").await;
        assert_eq!((server.reads(), sent), (2, vec!["new".to_owned()]), "{now}");
    }
    // A header that is no longer in the secret has its configured value.
    assert_eq!(server.sent(&service, "x-old").await, ["configured"]);
    secret.refresh(after(600)).await;
    assert_eq!(server.reads(), 3);
}

#[tokio::test]
async fn a_failed_refresh_keeps_the_old_headers_and_is_retried_soon() {
    let refused = (400, DENIED.to_owned());
    let truncated = (200, "{".to_owned());
    for failure in
        [refused, truncated, secret_response("s3cret"), secret_response(r#"{ "a b": "s3cret" }"#)]
    {
        let server = SecretsServer::new(r#"{ "authorization": "old" }"#).await;
        let (service, secret) = server.open("{}").await.unwrap();
        server.respond_with(failure);
        for (at, reads) in [(300, 2), (329, 2), (330, 3)] {
            secret.refresh(after(at)).await;
            let sent = server.sent(&service, "authorization").await;
            assert_eq!((server.reads(), sent), (reads, vec!["old".to_owned()]), "{at}");
        }
        server.respond_with(secret_response(r#"{ "authorization": "new" }"#));
        secret.refresh(after(360)).await;
        assert_eq!(server.sent(&service, "authorization").await, ["new"]);
        secret.refresh(after(659)).await;
        assert_eq!(server.reads(), 4);
    }
}

#[tokio::test]
async fn concurrent_refreshes_read_the_secret_once() {
    let server = SecretsServer::new("{}").await;
    let (_service, secret) = server.open("{}").await.unwrap();
    let now = after(300);
    tokio::join!(secret.refresh(now), secret.refresh(now), secret.refresh(now));
    assert_eq!(server.reads(), 2);
}

#[tokio::test]
async fn a_secret_without_headers_is_rejected_without_its_content() {
    let message =
        format!("secret `{ARN}`: not a JSON object of headers with a string for each name");
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
        let error = SecretsServer::new(text).await.open("{}").await.unwrap_err();
        assert_eq!(error.to_string(), message, "{text}");
        assert!(!format!("{error:?}").contains("s3cret"), "{error:?}");
    }
    let server = SecretsServer::new("").await;
    let mut binary: Value = serde_json::from_str(&secret_response("").1).unwrap();
    binary.as_object_mut().unwrap().shift_remove("SecretString");
    binary["SecretBinary"] = json!("czNjcmV0");
    server.respond_with((200, binary.to_string()));
    assert_eq!(server.open("{}").await.unwrap_err().to_string(), message);
}

/// A secret with these settings.
fn secret_with(key: &str, settings: Value) -> String {
    json!({ "x-key": "k", key: settings }).to_string()
}

fn oauth(more: Value) -> String {
    let mut oauth = json!({
        "token_url": "https://idp.example/token", "client_id": "shop", "client_secret": "s3cret",
    });
    oauth.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    secret_with("oauth", oauth)
}

#[tokio::test]
async fn a_secret_may_hold_headers_and_oauth_credentials() {
    let server = SecretsServer::new("{}").await;
    let token_url = format!("{}/token", server.address);
    server.respond_with(secret_response(&oauth(json!({ "token_url": token_url }))));
    let (service, secret) = server.open(r#"{ "authorization": "none" }"#).await.unwrap();
    assert_eq!(server.sent(&service, "authorization").await, ["Bearer issued"]);
    assert_eq!(server.sent(&service, "x-key").await, ["k"]);
    assert_eq!(server.sent(&service, "oauth").await, [""; 0]);
    // Texts are headers, whatever their names are.
    server.respond_with(secret_response(r#"{ "oauth": "text", "tls": "text" }"#));
    secret.refresh(after(300)).await;
    assert_eq!(server.sent(&service, "authorization").await, ["none"]);
    assert_eq!(server.sent(&service, "oauth").await, ["text"]);
    assert_eq!(server.sent(&service, "tls").await, ["text"]);
}

#[tokio::test]
async fn invalid_settings_in_a_secret_are_rejected_without_their_content() {
    let server = SecretsServer::new("{}").await;
    let service = server.service("{}");
    let oauth_error = format!("secret `{ARN}`: `oauth` is not an object of strings with an https ");
    let tls_error = format!("secret `{ARN}`: `tls` is not an object whose `ca` has ");
    let invalid_pem = "-----BEGIN CERTIFICATE-----\ns3cret\n-----END CERTIFICATE-----";
    for (text, begin) in [
        (secret_with("oauth", json!({ "token_url": "https://s3cret.example" })), &oauth_error),
        (secret_with("oauth", json!(["https://idp.example", "id", "s3cret"])), &oauth_error),
        (secret_with("oauth", Value::Null), &oauth_error),
        (oauth(json!({ "client_secret": 1 })), &oauth_error),
        (oauth(json!({ "s3cret": "other" })), &oauth_error),
        (oauth(json!({ "client_auth": "s3cret" })), &oauth_error),
        (oauth(json!({ "token_url": "http://s3cret.example" })), &oauth_error),
        (secret_with("tls", json!({})), &tls_error),
        (secret_with("tls", json!(["s3cret"])), &tls_error),
        (secret_with("tls", json!({ "ca": "s3cret" })), &tls_error),
        (secret_with("tls", json!({ "ca": invalid_pem })), &tls_error),
        (secret_with("tls", json!({ "ca": "s3cret", "key": "s3cret" })), &tls_error),
    ] {
        server.respond_with(secret_response(&text));
        let headers = "{}".parse().unwrap();
        let opened =
            Secret::configured(&server.sdk(), ARN.to_owned(), headers, &service, START).await;
        let error = opened.unwrap_err();
        assert!(error.to_string().starts_with(begin), "{text}: {error}");
        assert!(!format!("{error} {error:?}").contains("s3cret"), "{error:?}");
    }
}

#[tokio::test]
async fn an_unreadable_secret_is_named_with_the_reason() {
    let server = SecretsServer::new("").await;
    for (response, reason) in [
        ((400, DENIED), "AccessDeniedException: not for this role"),
        ((400, r#"{"__type":"ResourceNotFoundException"}"#), "ResourceNotFoundException"),
        ((200, r#"{"SecretString":"s3cret"#), "service error: unhandled error: "),
        ((200, r#"{"SecretString":"s3cret\x"}"#), "service error: unhandled error: "),
        ((200, r#"{"SecretString":["s3cret"]}"#), "service error: unhandled error: "),
    ] {
        server.respond_with((response.0, response.1.to_owned()));
        let error = server.open("{}").await.unwrap_err();
        let text = error.to_string();
        let begin = format!("cannot read secret `{ARN}`: {reason}");
        assert!(text.starts_with(&begin), "{text}");
        assert!(!format!("{text} {error:?}").contains("s3cret"), "{error:?}");
    }
    // Bound but not listening: connections are refused, and no other process can use the port.
    let held = TcpSocket::new_v4().unwrap();
    held.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = format!("http://{}", held.local_addr().unwrap());
    let unreachable = SecretsServer { address, ..server };
    let text = unreachable.open("{}").await.unwrap_err().to_string();
    assert!(text.starts_with(&format!("cannot read secret `{ARN}`: dispatch failure")), "{text}");
}

#[tokio::test]
async fn without_a_configured_secret_nothing_is_read() {
    let server = SecretsServer::new("{}").await;
    let service = server.service("{}");
    let headers = "{}".parse().unwrap();
    let none = Secret::configured(&server.sdk(), String::new(), headers, &service, START).await;
    assert!(none.unwrap().is_none());
    assert_eq!(server.reads(), 0);
}

#[tokio::test]
async fn debug_output_and_logs_of_all_levels_do_not_contain_the_secret() {
    let log = NamedTempFile::new().unwrap();
    // The subscriber is global, so that it also gets the log lines of other threads.
    tracing_subscriber::fmt()
        .with_max_level(tracing_subscriber::filter::LevelFilter::TRACE)
        .with_span_events(FmtSpan::FULL)
        .with_ansi(false)
        .with_writer(log.reopen().unwrap())
        .init();
    let server = SecretsServer::new(r#"{ "authorization": "Bearer s3cret" }"#).await;
    let (service, secret) = server.open("{}").await.unwrap();
    assert_eq!(server.sent(&service, "authorization").await, ["Bearer s3cret"]);
    let debug = format!("{service:?} {service:#?} {secret:?} {secret:#?}");
    for (at, failure) in [
        (300, secret_response(r#"{ "s3cret": 1 }"#)),
        (330, (200, r#"{"SecretString":"s3cret"#.to_owned())),
        (360, (400, DENIED.to_owned())),
    ] {
        server.respond_with(failure);
        secret.refresh(after(at)).await;
    }
    let log = std::fs::read_to_string(log.path()).unwrap();
    assert!(!debug.contains("s3cret"), "{debug}");
    assert!(!log.contains("s3cret"), "{log}");
    assert!(log.contains("TRACE"), "the most detailed level is checked");
    let warnings: Vec<_> =
        log.lines().filter(|line| line.contains("secret not refreshed")).collect();
    assert!(warnings.len() >= 3, "{warnings:?}");
    assert!(
        warnings.iter().all(|line| line.contains("WARN") && line.contains(ARN)),
        "{warnings:?}"
    );
}
