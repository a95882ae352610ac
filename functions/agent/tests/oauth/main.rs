//! Calls with OAuth 2.0 access tokens, and to servers with a certificate of a custom CA. One server of the tests is both
//! the token endpoint and the service.

#![cfg(test)]

use std::time::Duration;

use aws_credential_types::{Credentials as AwsCredentials, provider::SharedCredentialsProvider};
use futures_util::future::join_all;
use serde_json::{Value, json};
use steward_agent::{
    attempt::{CallFault, RemoteService},
    credentials::{CaBundle, Credentials},
    http::{HttpService, HttpSettings},
    response::CallResponse,
    signed::AwsSigner,
};
use steward_test_world::step_request;
use tempfile::NamedTempFile;

use crate::{
    server::{HANG, Server},
    tls::{CA, CERTIFICATE, KEY},
};

mod server;
#[path = "../tls/mod.rs"]
mod tls;

async fn call(service: &HttpService) -> Result<CallResponse, CallFault> {
    service.call(&step_request(&json!({})).unwrap(), None).await
}

/// Lets time pass. It stands still only here, so that no time limit passes while a test waits for its server.
async fn pass(seconds: u64) {
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(seconds)).await;
    tokio::time::resume();
}

fn transient(reason: &str, retry_after: Option<u64>) -> CallFault {
    let (reason, retry_after) = (reason.to_owned(), retry_after.map(Duration::from_secs));
    CallFault::Transient { reason, retry_after, may_have_run: false, detail: None }
}

fn permanent(reason: &str) -> CallFault {
    CallFault::Permanent { reason: reason.to_owned(), may_have_run: false, detail: None }
}

#[tokio::test]
async fn concurrent_calls_share_one_token_request() {
    let server = Server::start().await;
    for expires_in in [3600, 0] {
        server.change(|it| it.expires_in = expires_in);
        let service = server.service(json!({}));
        let before = server.token_request_count();
        let results = join_all((0..20).map(|_| call(&service))).await;
        assert!(results.iter().all(Result::is_ok), "{results:?}");
        assert_eq!(server.token_request_count(), before + 1);
        let token = format!("Bearer token-{}", before + 1);
        assert_eq!(server.calls(), vec![token; 20]);
    }
}

#[tokio::test]
async fn concurrent_calls_share_the_fault_of_one_token_request() {
    let server = Server::start().await;
    let service = server.service(json!({}));
    server.respond_to_token_requests(503, None, "");
    let results = join_all((0..20).map(|_| call(&service))).await;
    let fault = transient("OAuth token endpoint: HTTP 503 Service Unavailable", None);
    assert!(results.iter().all(|result| *result == Err(fault.clone())), "{results:?}");
    assert_eq!(server.token_request_count(), 1);
    server.change(|it| it.token_response = None);
    assert!(call(&service).await.is_ok());
    assert_eq!(server.calls(), ["Bearer token-2"]);
}

#[tokio::test]
async fn a_token_is_used_until_shortly_before_it_expires() {
    let server = Server::start().await;
    let service = server.service(json!({}));
    server.change(|it| it.expires_in = 100);
    for (seconds, token) in [(0, 1), (85, 1), (10, 2), (85, 2), (10, 3)] {
        pass(seconds).await;
        call(&service).await.unwrap();
        assert_eq!(server.calls(), [format!("Bearer token-{token}")]);
    }
    // A token that must not be kept is used for one call.
    server.change(|it| it.expires_in = 0);
    pass(100).await;
    for token in [4, 5] {
        call(&service).await.unwrap();
        assert_eq!(server.calls(), [format!("Bearer token-{token}")]);
    }
}

#[tokio::test]
async fn credentials_that_did_not_change_keep_the_token() {
    let server = Server::start().await;
    let service = server.service(json!({}));
    for (scope, token) in [(None, 1), (None, 1), (Some("pay"), 2), (Some("pay"), 2), (None, 3)] {
        service.set_credentials(server.credentials(json!({ "scope": scope }))).unwrap();
        call(&service).await.unwrap();
        assert_eq!(server.calls(), [format!("Bearer token-{token}")]);
    }
    let headers = server.credentials(json!({})).headers;
    service.set_credentials(Credentials { headers, ..Credentials::default() }).unwrap();
    call(&service).await.unwrap();
    assert_eq!(server.calls(), ["configured"]);
}

#[tokio::test]
async fn a_token_request_names_the_client_in_a_header_or_in_the_body() {
    let server = Server::start().await;
    // `+` and `%` are encoded, so that the separator `:` is the only one.
    let client = json!({ "client_id": "a:b c", "client_secret": "1+1%é" });
    let with = |more: Value| {
        let mut settings = client.clone();
        settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        server.service(settings)
    };
    // base64 of `a%3Ab+c:1%2B1%25%C3%A9`
    let basic = "Basic YSUzQWIrYzoxJTJCMSUyNSVDMyVBOQ==";
    let more = json!({ "client_auth": "body", "scope": "pay refund", "audience": "https://pay" });
    for (service, authorization, body) in [
        (with(json!({})), Some(basic), "grant_type=client_credentials"),
        (with(json!({ "client_auth": "basic" })), Some(basic), "grant_type=client_credentials"),
        (
            with(more),
            None,
            "grant_type=client_credentials&scope=pay+refund&audience=https%3A%2F%2Fpay\
             &client_id=a%3Ab+c&client_secret=1%2B1%25%C3%A9",
        ),
    ] {
        call(&service).await.unwrap();
        let (headers, sent) = server.exchange.lock().unwrap().token_requests.pop().unwrap();
        assert_eq!(sent, body);
        let sent = headers.get("authorization").map(|value| value.to_str().unwrap());
        assert_eq!(sent, authorization);
        assert_eq!(headers["content-type"], "application/x-www-form-urlencoded");
        assert_eq!(headers["accept"], "application/json");
        assert!(!headers.contains_key("idempotency-key") && !headers.contains_key("x-key"));
    }
}

#[tokio::test]
async fn without_a_token_the_service_is_not_called() {
    let server = Server::start().await;
    let service = server.service(json!({}));
    let no_token = "the response has no usable bearer token";
    let too_large =
        format!(r#"{{ "access_token": "{}", "token_type": "Bearer" }}"#, "a".repeat(70_000));
    let permanent = |reason: &str| permanent(&format!("OAuth token endpoint: {reason}"));
    let transient =
        |reason: &str, after| transient(&format!("OAuth token endpoint: {reason}"), after);
    for (status, retry_after, body, fault) in [
        (500, None, "", transient("HTTP 500 Internal Server Error", None)),
        (503, Some("9"), "", transient("HTTP 503 Service Unavailable", Some(9))),
        (429, None, "", transient("HTTP 429 Too Many Requests", Some(0))),
        (429, Some("9"), "", transient("HTTP 429 Too Many Requests", Some(9))),
        (
            401,
            None,
            r#"{ "error": "invalid_client", "error_description": "s3cret" }"#,
            transient("HTTP 401 Unauthorized: invalid_client", None),
        ),
        (400, None, r#"{ "error": "no s3cret" }"#, permanent("HTTP 400 Bad Request")),
        (403, None, "s3cret", permanent("HTTP 403 Forbidden")),
        (302, None, "", permanent("HTTP 302 Found")),
        (200, None, "s3cret", permanent(no_token)),
        (200, None, r#"{ "access_token": "s3cret", "token_type": "mac" }"#, permanent(no_token)),
        (200, None, &too_large, permanent(no_token)),
    ] {
        server.respond_to_token_requests(status, retry_after, body);
        assert_eq!(call(&service).await, Err(fault), "{status} {body}");
    }
    // The service still has half of its time when the token endpoint's has passed.
    server.respond_to_token_requests(HANG, None, "");
    let short = step_request(&json!({ "call_within_ms": 100 })).unwrap();
    assert_eq!(service.call(&short, None).await, Err(transient("no answer in time", None)));
    assert_eq!(server.calls(), [""; 0]);
}

#[tokio::test]
async fn an_unreachable_token_endpoint_is_a_transient_fault() {
    let server = Server::start().await;
    // Bound but not listening: connections are refused, and no other process can use the port.
    let held = tokio::net::TcpSocket::new_v4().unwrap();
    held.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let url = format!("http://{}/token", held.local_addr().unwrap());
    let service = server.service(json!({ "token_url": url }));
    let reason = "OAuth token endpoint: no connection: the port refuses connections";
    let fault = transient(reason, None);
    assert_eq!(call(&service).await, Err(fault));
}

#[tokio::test]
async fn an_old_token_that_the_service_refuses_is_replaced_once() {
    let server = Server::start().await;
    let service = server.service(json!({}));
    call(&service).await.unwrap();
    pass(60).await;
    server.change(|it| it.refused = vec!["Bearer token-1", "Bearer token-2"]);
    let replaced = "HTTP 401 Unauthorized: the access token is replaced";
    // Both calls have the old token. The second one does not drop the token that replaces it.
    let (one, other) = tokio::join!(call(&service), call(&service));
    assert_eq!(
        (one, other),
        (Err(transient(replaced, Some(0))), Err(transient(replaced, Some(0))))
    );
    for _ in 0..2 {
        assert_eq!(call(&service).await, Err(permanent("HTTP 401 Unauthorized")));
    }
    assert_eq!(server.token_request_count(), 2);
    pass(60).await;
    assert_eq!(call(&service).await, Err(transient(replaced, Some(0))));
    assert!(call(&service).await.is_ok());
    assert_eq!(server.calls().last().unwrap(), "Bearer token-3");
}

#[tokio::test]
async fn a_401_with_a_meaning_of_the_step_is_no_matter_of_the_token() {
    let server = Server::start().await;
    let service = server.service(json!({}));
    call(&service).await.unwrap();
    pass(60).await;
    server.change(|it| it.refused = vec!["Bearer token-1"]);
    let overridden = step_request(&json!({ "responses": { "401": "completed" } })).unwrap();
    assert!(service.call(&overridden, None).await.is_ok());
    assert_eq!(server.token_request_count(), 1);
}

#[tokio::test]
async fn a_signed_call_needs_no_token() {
    let server = Server::start().await;
    let provider = AwsCredentials::new("id", "key", None, None, "test");
    let signer = Some(AwsSigner::new(SharedCredentialsProvider::new(provider)));
    let settings = HttpSettings::new(server.url.parse().unwrap());
    let service = HttpService::new(HttpSettings { signer, ..settings }).unwrap();
    service.set_credentials(server.credentials(json!({}))).unwrap();
    let auth = json!({ "auth": { "aws": { "service": "s3", "region": "eu-west-1" } } });
    service.call(&step_request(&auth).unwrap(), None).await.unwrap();
    assert!(server.calls()[0].starts_with("AWS4-HMAC-SHA256 "));
    assert_eq!(server.token_request_count(), 0);
}

#[tokio::test]
async fn a_custom_ca_is_trusted_for_the_service_and_for_the_token_endpoint() {
    let server = Server::with_tls().await;
    let service = server.service(json!({}));
    let unknown = "no connection: the certificate is from an unknown authority";
    let no_token = transient(&format!("OAuth token endpoint: {unknown}"), None);
    assert_eq!(call(&service).await, Err(no_token));
    let ca: CaBundle = format!("{CERTIFICATE}\n{CA}").parse().unwrap();
    let trusting = Credentials { ca: Some(ca), ..server.credentials(json!({})) };
    service.set_credentials(trusting.clone()).unwrap();
    call(&service).await.unwrap();
    assert_eq!(server.calls(), ["Bearer token-1"]);
    // The token is kept, but no connection of the former client.
    service.set_credentials(server.credentials(json!({}))).unwrap();
    assert_eq!(call(&service).await, Err(transient(unknown, None)));
    service.set_credentials(trusting).unwrap();
    call(&service).await.unwrap();
    assert_eq!(server.token_request_count(), 1);
}

/// The certificate was valid in January 2020. It is its own authority.
#[tokio::test]
async fn an_expired_certificate_of_the_service_is_named() {
    const EXPIRED: &str = include_str!("../tls/expired.pem");
    let server = Server::with_certificate(EXPIRED).await;
    let service = HttpService::new(HttpSettings::new(server.url.parse().unwrap())).unwrap();
    let ca = Some(EXPIRED.parse().unwrap());
    let trusting = Credentials { ca, oauth: None, ..server.credentials(json!({})) };
    service.set_credentials(trusting).unwrap();
    let expired = transient("no connection: the certificate has expired", None);
    assert_eq!(call(&service).await, Err(expired));
    assert_eq!(server.calls(), [""; 0]);
}

#[test]
fn a_ca_is_at_least_one_valid_certificate() {
    let key = "-----BEGIN CERTIFICATE-----\nczNjcmV0\n-----END CERTIFICATE-----\n";
    for text in ["", "s3cret", KEY, key, &format!("{CA}{key}"), &CA[..200]] {
        let error = text.parse::<CaBundle>().unwrap_err();
        assert_eq!(error.to_string(), "not one or more certificates in PEM", "{text}");
    }
}

#[tokio::test]
async fn debug_output_and_logs_of_all_levels_contain_neither_the_credentials_nor_a_token() {
    let log = NamedTempFile::new().unwrap();
    // The subscriber is global, so that it also gets the log lines of other threads.
    tracing_subscriber::fmt()
        .with_max_level(tracing_subscriber::filter::LevelFilter::TRACE)
        .with_ansi(false)
        .with_writer(log.reopen().unwrap())
        .init();
    for (server, client_auth) in [
        (Server::start().await, "basic"),
        (Server::start().await, "body"),
        (Server::with_tls().await, "body"),
    ] {
        let service = server.service(json!({ "client_auth": client_auth }));
        let credentials = Credentials {
            ca: Some(CA.parse().unwrap()),
            ..server.credentials(json!({ "client_auth": client_auth }))
        };
        let debug = format!("{credentials:?}");
        service.set_credentials(credentials).unwrap();
        call(&service).await.unwrap();
        let debug = format!("{debug} {service:?} {service:#?}");
        assert!(!debug.contains("s3cret") && !debug.contains("token-1"), "{debug}");
        assert!(!debug.contains("BEGIN CERTIFICATE"), "{debug}");
    }
    let log = std::fs::read_to_string(log.path()).unwrap();
    // `c2hvcDpzM2NyZXQ=` is `shop:s3cret` in base64.
    for secret in ["s3cret", "c2hvcDpzM2NyZXQ", "token-1"] {
        let line = log.lines().find(|line| line.contains(secret));
        assert_eq!(line, None);
    }
    assert!(log.contains("TRACE"), "the most detailed level is checked");
}
