//! `auth: aws` of a step's request and of an agent.

use axum::http::header::AUTHORIZATION;
use serde_json::{Value, json};
use steward_agent::{
    attempt::CallFault,
    http::{HttpService, HttpSettings},
    signed::AgentAuth,
};
use tempfile::NamedTempFile;
use tracing_subscriber::fmt::format::FmtSpan;

use crate::{
    server::{CallForOutput, SignedServer, request, respond, signer},
    sigv4::{SECRET_KEY, SESSION_TOKEN},
};

/// The settings of an agent with credentials.
fn settings(server: &SignedServer, auth: &str) -> HttpSettings {
    let auth: AgentAuth = auth.parse().unwrap();
    let settings = HttpSettings::new(server.url.parse().unwrap());
    HttpSettings { signer: Some(signer()), auth: auth.0, ..settings }
}

fn service(server: &SignedServer, auth: &str) -> HttpService {
    HttpService::new(settings(server, auth)).unwrap()
}

async fn server() -> SignedServer {
    SignedServer::answering(|| respond(200, r#"{"ok":true}"#)).await
}

/// The fault of a request that was not sent.
fn reason_not_sent(result: Result<Value, CallFault>) -> String {
    match result {
        Err(CallFault::Permanent { reason, may_have_run: false, .. }) => reason,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn every_call_of_an_agent_with_auth_is_signed() {
    let server = server().await;
    let service = service(&server, "aws:execute-api/eu-west-1");
    let body = json!({ "to": "Zoë", "amount": 20 });
    for request in [
        request("/", json!({ "method": "GET" })),
        request("/charges/a%20b%2Fc/x:y?currency=%C3%A9&b=2&a=&flag", json!({ "method": "GET" })),
        request("/charges", json!({ "body": body })),
        request("/charges", json!({ "method": "DELETE", "body": "text" })),
    ] {
        assert_eq!(service.output(&request, None).await, Ok(json!({ "ok": true })));
    }
    for received in server.requests() {
        assert_eq!(received.scope.as_deref(), Ok("execute-api/eu-west-1"));
        assert_eq!(received.headers["idempotency-key"], "order-1/charge/do");
        assert!(received.headers.contains_key("traceparent"));
    }
    assert_eq!(server.requests()[2].body, body.to_string().as_bytes());
}

#[tokio::test]
async fn a_request_can_ask_for_a_signature_and_override_the_scope() {
    let server = server().await;
    let given = json!({ "auth": { "aws": { "service": "execute-api", "region": "eu-west-1" } } });
    service(&server, "none").output(&request("/", given), None).await.unwrap();
    let other_service = json!({ "auth": { "aws": { "service": "lambda" } } });
    let configured = service(&server, "aws:execute-api/us-east-2");
    configured.output(&request("/", other_service), None).await.unwrap();
    configured.output(&request("/", json!({ "auth": "aws" })), None).await.unwrap();
    let scopes: Vec<_> =
        server.requests().into_iter().map(|signed| signed.scope.unwrap()).collect();
    assert_eq!(scopes, ["execute-api/eu-west-1", "lambda/us-east-2", "execute-api/us-east-2"]);
}

#[tokio::test]
async fn without_auth_nothing_is_signed() {
    let server = server().await;
    let result = service(&server, "none").output(&request("/", json!({})), None).await;
    assert_eq!(reason_not_sent(result), "HTTP 403 Forbidden");
    let headers = server.request().headers;
    assert!(!headers.contains_key(AUTHORIZATION) && !headers.contains_key("x-amz-date"));
}

#[tokio::test]
async fn s3_gets_the_path_as_it_is_and_the_digest_of_the_body() {
    let server = server().await;
    let service = service(&server, "aws:s3/eu-west-1");
    let put = json!({ "method": "PUT", "body": { "a": 1 } });
    service.output(&request("/bucket/a%20b/%C3%A9%2B", put), None).await.unwrap();
    let received = server.request();
    assert_eq!(received.uri.path(), "/bucket/a%20b/%C3%A9%2B");
    assert!(received.headers.contains_key("x-amz-content-sha256"));
}

#[tokio::test]
async fn a_repeated_call_has_the_same_key_and_a_signature_of_its_own() {
    let server = server().await;
    let service = service(&server, "aws:execute-api/eu-west-1");
    let request = request("/", json!({}));
    let (one, other) = tokio::join!(service.output(&request, None), service.output(&request, None));
    assert!(one.is_ok() && other.is_ok());
    let requests = server.requests();
    assert_eq!(requests.len(), 2);
    assert_eq!(requests[0].headers["idempotency-key"], requests[1].headers["idempotency-key"]);
}

#[tokio::test]
async fn the_signature_replaces_a_configured_authorization() {
    let server = server().await;
    let headers = r#"{ "authorization": "Bearer s3cret", "x-tenant": "shop" }"#.parse().unwrap();
    let auth = settings(&server, "aws:execute-api/eu-west-1");
    let service = HttpService::new(HttpSettings { headers, ..auth }).unwrap();
    service.output(&request("/", json!({})), None).await.unwrap();
    let headers = server.request().headers;
    assert_eq!(headers.get_all(AUTHORIZATION).iter().count(), 1);
    assert_eq!(headers["x-tenant"], "shop");
}

#[tokio::test]
async fn an_unknown_scope_is_an_error_of_the_agent_or_of_the_step() {
    let server = server().await;
    for (auth, missing) in [("aws", "service"), ("aws:s3", "region")] {
        let error = HttpService::new(settings(&server, auth)).unwrap_err().to_string();
        let expected = format!("STEWARD_AGENT_AUTH: the {missing} of the AWS signature does not");
        assert!(error.starts_with(&expected), "{error}");
    }
    let step = request("/", json!({ "auth": { "aws": { "service": "s3" } } }));
    let reason = reason_not_sent(service(&server, "none").output(&step, None).await);
    assert!(reason.starts_with("the region of the AWS signature does not follow"), "{reason}");
    assert_eq!(server.requests().len(), 0);
}

#[tokio::test]
async fn an_agent_without_credentials_does_not_send_the_request() {
    let server = server().await;
    let settings = HttpSettings { signer: None, ..settings(&server, "aws:s3/eu-west-1") };
    let service = HttpService::new(settings).unwrap();
    let reason = reason_not_sent(service.output(&request("/", json!({})), None).await);
    assert_eq!(reason, "`auth: aws`: this agent has no AWS credentials");
    assert_eq!(server.requests().len(), 0);
}

#[tokio::test]
async fn logs_of_all_levels_and_debug_output_contain_neither_credentials_nor_payload() {
    let log = NamedTempFile::new().unwrap();
    // The subscriber is global, so that it also gets the log lines of other threads.
    tracing_subscriber::fmt()
        .with_max_level(tracing_subscriber::filter::LevelFilter::TRACE)
        .with_span_events(FmtSpan::FULL)
        .with_ansi(false)
        .with_writer(log.reopen().unwrap())
        .init();
    let server = server().await;
    let headers = r#"{ "x-amz-customer-key": "s3cret-header" }"#.parse().unwrap();
    let auth = settings(&server, "aws:execute-api/eu-west-1");
    let service = HttpService::new(HttpSettings { headers, ..auth }).unwrap();
    let secret_body = request("/", json!({ "body": { "card": "s3cret-body" } }));
    service.output(&secret_body, None).await.unwrap();
    let received = server.request();
    assert_eq!(received.headers["x-amz-customer-key"], "s3cret-header");
    let authorization = received.headers[AUTHORIZATION].to_str().unwrap();
    let (_, signature) = authorization.split_once("Signature=").unwrap();
    let log = std::fs::read_to_string(log.path()).unwrap();
    assert!(log.contains("TRACE"), "the most detailed level is checked");
    let debug = format!("{service:?} {service:#?}");
    for secret in [SECRET_KEY, SESSION_TOKEN, signature, "s3cret-header", "s3cret-body"] {
        assert!(!log.contains(secret), "the log contains {secret}");
        assert!(!debug.contains(secret), "{debug}");
    }
}
