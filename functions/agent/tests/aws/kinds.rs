//! The configuration of agents of all kinds, and what an attempt makes of their outcomes.

use std::{collections::HashMap, sync::Mutex};

use envconfig::Envconfig;
use serde_json::json;
use steward_agent::{AgentConfig, attempt::CallFault, config::AgentKind, kind::AnyService};

use crate::server::{CallForOutput, SignedServer, aws_service, configured, request, respond};

const QUEUE: (&str, &str) = ("STEWARD_AGENT_TARGETS", "arn:aws:sqs:eu-west-1:123456789012:orders");
const SQS: (&str, &str) = ("STEWARD_AGENT_KIND", "sqs");
const NOWHERE: &str = "http://127.0.0.1:9";

#[test]
fn a_configuration_that_contradicts_its_kind_is_refused() {
    for (variables, error) in [
        (vec![], "STEWARD_AGENT_BASE_URL: an agent of kind `http` needs a base URL"),
        (
            vec![SQS],
            "STEWARD_AGENT_TARGETS: an agent of this kind needs at least one target: the ARN of an SQS queue",
        ),
        (
            vec![("STEWARD_AGENT_KIND", "lambda"), QUEUE],
            "STEWARD_AGENT_TARGETS: target `arn:aws:sqs:eu-west-1:123456789012:orders` is not the ARN of a Lambda function, such as `arn:aws:lambda:eu-west-1:123456789012:function:charge`",
        ),
        (
            vec![SQS, QUEUE, ("STEWARD_AGENT_HEADERS", r#"{ "a": "s3cret" }"#)],
            "STEWARD_AGENT_HEADERS: an agent of this kind sends no configured headers",
        ),
        (
            vec![SQS, QUEUE, ("STEWARD_AGENT_SECRET_ARN", "arn:x")],
            "STEWARD_AGENT_SECRET_ARN: an agent of this kind sends no configured headers",
        ),
    ] {
        assert_eq!(configured(&variables, NOWHERE).unwrap_err().to_string(), error);
    }
    let http = configured(&[("STEWARD_AGENT_BASE_URL", NOWHERE)], NOWHERE).unwrap();
    assert!(http.http().is_some());
    assert!(matches!(configured(&[SQS, QUEUE], NOWHERE), Ok(AnyService::Aws(_))));
}

#[test]
fn an_unknown_kind_and_an_unknown_auth_are_errors_of_their_variables() {
    let config = |name: &str, value: &str| {
        let variables = [("STEWARD_AGENT_NAME", "a"), (name, value)];
        let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
        AgentConfig::init_from_hashmap(&HashMap::from(variables))
    };
    assert_eq!(config("STEWARD_AGENT_KIND", "aws").unwrap().kind, AgentKind::Aws);
    for (name, value) in [("STEWARD_AGENT_KIND", "sns"), ("STEWARD_AGENT_AUTH", "basic")] {
        let error = config(name, value).unwrap_err().to_string();
        assert!(error.contains(name), "{error}");
    }
}

#[tokio::test]
async fn the_base_url_replaces_the_endpoint_of_the_service() {
    let server = SignedServer::answering(|| respond(200, r#"{"MessageId":"m"}"#)).await;
    let base_url = ("STEWARD_AGENT_BASE_URL", server.url.as_str());
    let service = configured(&[SQS, QUEUE, base_url], NOWHERE).unwrap();
    service.output(&request("/", json!({ "body": 1 })), None).await.unwrap();
    assert_eq!(server.request().scope.as_deref(), Ok("sqs/eu-west-1"));
}

#[tokio::test]
async fn without_a_connection_nothing_ran() {
    // Bound but not listening: connections are refused, and no other process can use the port.
    let held = tokio::net::TcpSocket::new_v4().unwrap();
    held.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let url = format!("http://{}", held.local_addr().unwrap());
    let service = aws_service("sqs", QUEUE.1, &url);
    let outcome = service.output(&request("/", json!({ "body": 1 })), None).await;
    let Err(CallFault::Transient { may_have_run: false, retry_after: None, .. }) = outcome else {
        panic!("{outcome:?}");
    };
}

/// An SDK would retry by itself, and the service would get two messages.
#[tokio::test]
async fn each_call_is_exactly_one_request() {
    for (kind, target, body) in [
        ("lambda", "arn:aws:lambda:eu-west-1:1:function:f", json!(1)),
        ("sqs", "arn:aws:sqs:eu-west-1:1:q", json!(1)),
        (
            "events",
            "arn:aws:events:eu-west-1:1:event-bus/b",
            json!({ "detail-type": "x", "detail": {} }),
        ),
    ] {
        let failures = std::sync::Arc::new(Mutex::new([429, 500, 503].into_iter().cycle()));
        let server =
            SignedServer::answering(move || respond(failures.lock().unwrap().next().unwrap(), ""))
                .await;
        let service = aws_service(kind, target, &server.url);
        let request = request("/", json!({ "body": body }));
        for calls in 1..=3 {
            service.output(&request, None).await.unwrap_err();
            assert_eq!(server.requests().len(), calls, "{kind}");
        }
    }
}
