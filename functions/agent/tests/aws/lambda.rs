//! The agent kind `lambda`, with a server that answers as Lambda's `Invoke` is documented.

use axum::{Router, extract::Path, routing::post};
use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use steward_agent::attempt::CallFault;
use steward_core::{limits, model::messages::StepRequest};

use crate::server::{
    CallForOutput, SignedServer, aws_service, failed, outcome_of, request, respond, respond_with,
    retried,
};

const CHARGE: &str = "arn:aws:lambda:eu-west-1:123456789012:function:charge";

/// The outcome of an invocation that gets this error.
async fn outcome_of_error(status: u16, name: &'static str) -> Result<Value, CallFault> {
    let body = r#"{"Type":"User","message":"card 4111"}"#;
    let header = ("x-amzn-errortype", name);
    let request = request("/", json!({}));
    outcome_of(("lambda", CHARGE), &request, move || respond_with(status, header, body)).await
}

/// The outcome of an invocation of a function that ends with an error.
async fn outcome_of_function_error(
    responses: Value,
    body: &'static str,
) -> Result<Value, CallFault> {
    let header = ("x-amz-function-error", "Unhandled");
    let request = request("/", json!({ "responses": responses }));
    outcome_of(("lambda", CHARGE), &request, move || respond_with(200, header, body)).await
}

#[tokio::test]
async fn the_function_gets_the_body_and_its_result_is_the_output() {
    let server = SignedServer::start(|_| {
        let invoke = |Path(function): Path<String>, body: String| async move {
            format!(r#"{{"function":"{function}","event":{body}}}"#)
        };
        Router::new().route("/2015-03-31/functions/{function}/invocations", post(invoke))
    })
    .await;
    let live = format!("{CHARGE}:live");
    let service = aws_service("lambda", &format!("{CHARGE}, {live}"), &server.url);
    let traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let event = json!({ "amount": 20, "to": "Zoë" });
    let charge = request("/charge:live", json!({ "body": event }));
    let output = service.output(&charge, Some(traceparent)).await;
    assert_eq!(output, Ok(json!({ "function": live, "event": event })));
    let without_body = service.output(&request("/charge", json!({})), None).await;
    assert_eq!(without_body, Ok(json!({ "function": CHARGE, "event": null })));
    let received = &server.requests()[0];
    assert_eq!(received.scope.as_deref(), Ok("lambda/eu-west-1"));
    assert_eq!(received.headers["x-amz-invocation-type"], "RequestResponse");
    let context = STANDARD.decode(&received.headers["x-amz-client-context"]).unwrap();
    let context: Value = serde_json::from_slice(&context).unwrap();
    let custom = json!({
        "idempotency_key": "order-1/charge/do", "traceparent": traceparent,
        "task_id": "order-1", "step": "charge",
    });
    assert_eq!(context, json!({ "custom": custom }));
}

#[tokio::test]
async fn throttling_is_retried_and_did_not_run() {
    for (status, name, text) in [
        (429, "TooManyRequestsException", "HTTP 429 Too Many Requests: TooManyRequestsException"),
        (502, "EC2ThrottledException", "HTTP 502 Bad Gateway: EC2ThrottledException"),
        (400, "ThrottlingException:http://x/", "HTTP 400 Bad Request: ThrottlingException"),
    ] {
        assert_eq!(outcome_of_error(status, name).await, retried(text, true, false), "{name}");
    }
    let request = request("/", json!({}));
    let throttled = || respond_with(429, ("retry-after", "7"), "");
    match outcome_of(("lambda", CHARGE), &request, throttled).await {
        Err(CallFault::Transient { retry_after: Some(wait), may_have_run: false, .. }) => {
            assert_eq!(wait.as_secs(), 7);
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_function_that_could_not_start_is_retried_and_did_not_run() {
    for (status, name) in [
        (409, "ResourceConflictException"),
        (502, "ENILimitReachedException"),
        (502, "KMSDisabledException"),
        (408, "EFSMountTimeoutException"),
        (403, "EFSMountFailureException"),
        (409, "SnapStartNotReadyException"),
    ] {
        let outcome = outcome_of_error(status, name).await;
        let Err(CallFault::Transient { reason, retry_after: None, may_have_run: false, .. }) =
            outcome
        else {
            panic!("{name}: {outcome:?}");
        };
        assert!(reason.ends_with(name), "{reason}");
    }
}

#[tokio::test]
async fn an_error_of_lambda_itself_is_retried_and_may_have_run() {
    for (status, name, text) in [
        (500, "ServiceException", "HTTP 500 Internal Server Error: ServiceException"),
        (503, "card 4111", "HTTP 503 Service Unavailable"),
        (502, "", "HTTP 502 Bad Gateway"),
        (410, "EFSIOException", "HTTP 410 Gone: EFSIOException"),
    ] {
        assert_eq!(outcome_of_error(status, name).await, retried(text, false, true), "{name}");
    }
}

#[tokio::test]
async fn a_refusal_fails_and_did_not_run() {
    for (status, name, text) in [
        (
            400,
            "InvalidRequestContentException",
            "HTTP 400 Bad Request: InvalidRequestContentException",
        ),
        (403, "AccessDeniedException", "HTTP 403 Forbidden: AccessDeniedException"),
        (404, "ResourceNotFoundException", "HTTP 404 Not Found: ResourceNotFoundException"),
        (413, "RequestTooLargeException", "HTTP 413 Payload Too Large: RequestTooLargeException"),
        (
            415,
            "UnsupportedMediaTypeException",
            "HTTP 415 Unsupported Media Type: UnsupportedMediaTypeException",
        ),
    ] {
        assert_eq!(outcome_of_error(status, name).await, failed(text, false), "{name}");
    }
}

#[tokio::test]
async fn an_error_of_the_function_fails_and_may_have_run_unless_the_step_says_otherwise() {
    let error = r#"{"errorMessage":"card 4111","errorType":"TypeError","trace":[]}"#;
    let reason = "the function failed: TypeError";
    let outcome = |responses: Value| outcome_of_function_error(responses, error);
    assert_eq!(outcome(json!({})).await, failed(reason, true));
    assert_eq!(outcome(json!({ "500": "unknown" })).await, failed(reason, true));
    assert_eq!(outcome(json!({ "500": "failed" })).await, failed(reason, false));
    assert_eq!(outcome(json!({ "500": "retry" })).await, retried(reason, true, true));
    let completed: Value = serde_json::from_str(error).unwrap();
    assert_eq!(outcome(json!({ "500": "completed" })).await, Ok(completed));
    // Other statuses do not stand for errors of the function.
    assert_eq!(outcome(json!({ "200": "failed", "502": "retry" })).await, failed(reason, true));
}

#[tokio::test]
async fn the_reason_of_a_function_error_contains_no_payload() {
    for body in [r#"{"errorType":"card 4111 of Ada"}"#, "card 4111", "", r#"{"errorType":7}"#] {
        let outcome = outcome_of_function_error(json!({}), body).await;
        assert_eq!(outcome, failed("the function failed", true), "{body}");
    }
}

#[tokio::test]
async fn a_result_need_not_be_json_and_may_be_too_large_unless_an_output_selects_from_it() {
    let request = |more| request("/", more);
    let outcome = async |request: &StepRequest, body: String| {
        outcome_of(("lambda", CHARGE), request, move || respond(200, body.clone())).await
    };
    let plain = request(json!({}));
    assert_eq!(outcome(&plain, "OK".to_owned()).await, Ok(json!({ "text": "OK" })));
    let text = |bytes: usize| format!(r#""{}""#, "x".repeat(bytes));
    let too_large = Ok(json!({ "too_large": true }));
    assert_eq!(outcome(&plain, text(limits::DOCUMENT_BYTES_MAX)).await, too_large);
    let selecting = request(json!({ "output": "${ response.body }" }));
    let expected = failed("the response exceeds the limit of 1048576 bytes", true);
    assert_eq!(outcome(&selecting, text(limits::RESPONSE_BYTES_MAX)).await, expected);
}

#[tokio::test]
async fn an_empty_result_is_null_and_a_redirect_is_unknown() {
    let request = request("/", json!({}));
    let outcome = |status| outcome_of(("lambda", CHARGE), &request, move || respond(status, ""));
    assert_eq!(outcome(200).await, Ok(Value::Null));
    assert_eq!(outcome(307).await, failed("HTTP 307 Temporary Redirect", true));
}

#[tokio::test]
async fn the_error_of_a_function_is_kept_for_operators() {
    let error = r#"{"errorMessage":"card 4111","errorType":"TypeError"}"#;
    let server = SignedServer::answering(move || {
        respond_with(200, ("x-amz-function-error", "Unhandled"), error)
    })
    .await;
    let service = aws_service("lambda", CHARGE, &server.url);
    let outcome = service.output(&request("/", json!({})), None).await;
    let Err(CallFault::Permanent { detail: Some(detail), .. }) = outcome else {
        panic!("no detail");
    };
    assert_eq!(detail.as_str(), error);
}
