//! The agent kind `aws`, on the embedded DynamoDB behind the verification of signatures, and with a server for other APIs and
//! for errors.

use std::time::Duration;

use axum::{body::Body, http::HeaderMap};
use jiff::Timestamp;
use serde_json::{Value, json};
use steward_agent::{attempt::CallFault, kind::interpret_answer};
use steward_emulator::embedded::EmbeddedAws;

use crate::server::{
    CallForOutput, SignedRequest, SignedServer, aws_service, failed, outcome_of, request, respond,
    respond_with, retried,
};

/// The outcome of a call of DynamoDB that answers like this.
async fn outcome(status: u16, body: &'static str, more: Value) -> Result<Value, CallFault> {
    let request = request("/dynamodb:PutItem", more);
    outcome_of(("aws", ""), &request, move || respond(status, body)).await
}

/// What a service gets from a call, and the output of the step.
async fn call(path: &str, more: Value, answer: &'static str) -> (SignedRequest, Value) {
    let server = SignedServer::answering(move || respond(200, answer)).await;
    let service = aws_service("aws", "", &server.url);
    let output = service.output(&request(path, more), None).await.unwrap();
    (server.request(), output)
}

fn header<'a>(received: &'a SignedRequest, name: &str) -> Option<&'a str> {
    received.headers.get(name).map(|value| value.to_str().unwrap())
}

#[tokio::test]
async fn a_put_with_a_condition_succeeds_once_and_is_refused_afterwards() {
    let aws = EmbeddedAws::in_memory().unwrap();
    let router = aws.router();
    let server = SignedServer::start(move |_| router).await;
    let service = aws_service("aws", "", &server.url);
    let call = async |action: &str, input: Value| {
        service
            .output(&request(&format!("/dynamodb:{action}"), json!({ "body": input })), None)
            .await
    };
    let key = json!([{ "AttributeName": "id", "KeyType": "HASH" }]);
    let table = json!({
        "TableName": "orders", "KeySchema": key, "BillingMode": "PAY_PER_REQUEST",
        "AttributeDefinitions": [{ "AttributeName": "id", "AttributeType": "S" }],
    });
    call("CreateTable", table).await.unwrap();
    let item = json!({ "id": { "S": "o-1" }, "total": { "N": "20" } });
    let put = json!({
        "TableName": "orders", "Item": item, "ConditionExpression": "attribute_not_exists(id)",
    });
    assert_eq!(call("PutItem", put.clone()).await, Ok(json!({})));
    let Err(CallFault::Permanent { reason, may_have_run: false, .. }) = call("PutItem", put).await
    else {
        panic!("the second put is not refused");
    };
    assert_eq!(reason, "HTTP 400 Bad Request: ConditionalCheckFailedException");
    let get = json!({ "TableName": "orders", "Key": { "id": { "S": "o-1" } } });
    assert_eq!(call("GetItem", get).await.unwrap()["Item"], item);
    let put = &server.requests()[1];
    assert_eq!(put.scope.as_deref(), Ok("dynamodb/eu-west-1"));
    assert_eq!(header(put, "x-amz-target"), Some("DynamoDB_20120810.PutItem"));
    assert_eq!(header(put, "content-type"), Some("application/x-amz-json-1.0"));
}

#[tokio::test]
async fn an_operation_without_input_gets_an_empty_object() {
    let (received, output) =
        call("/ecr:DescribeRegistry", json!({}), r#"{"registryId":"1"}"#).await;
    assert_eq!(received.body, "{}");
    assert_eq!(received.scope.as_deref(), Ok("ecr/eu-west-1"));
    assert_eq!(output, json!({ "registryId": "1" }));
}

#[tokio::test]
async fn an_operation_of_a_query_api_is_a_form_and_its_answer_text() {
    let input =
        json!({ "TopicArn": "arn:aws:sns:eu-west-1:1:orders", "Message": "done & shipped" });
    let (received, output) = call("/sns:Publish", json!({ "body": input }), "<a/>").await;
    assert_eq!(received.scope.as_deref(), Ok("sns/eu-west-1"));
    assert_eq!(received.uri, "/");
    assert_eq!(header(&received, "content-type"), Some("application/x-www-form-urlencoded"));
    assert_eq!(
        received.body,
        "Action=Publish&Version=2010-03-31&TopicArn=arn%3Aaws%3Asns%3Aeu-west-1%3A1%3Aorders&Message=done+%26+shipped"
    );
    assert_eq!(output, json!({ "text": "<a/>" }));
}

#[tokio::test]
async fn an_operation_of_a_rest_api_has_its_method_and_path() {
    let job = json!({ "jobName": "invoice", "jobQueue": "low" });
    let submit = call("/batch:SubmitJob/v1/submitjob", json!({ "body": job }), r#"{"jobId":"j"}"#);
    let (received, output) = submit.await;
    assert_eq!(
        (received.uri.to_string().as_str(), received.body),
        ("/v1/submitjob", job.to_string().into())
    );
    assert_eq!(received.scope.as_deref(), Ok("batch/eu-west-1"));
    assert_eq!(output, json!({ "jobId": "j" }));
    let path = "/lambda:GetFunction/2015-03-31/functions/charge?Qualifier=live";
    let (received, _) = call(path, json!({ "method": "GET" }), "{}").await;
    assert_eq!(received.uri, "/2015-03-31/functions/charge?Qualifier=live");
    assert!(received.body.is_empty() && received.scope.is_ok(), "{received:?}");
}

#[tokio::test]
async fn the_step_gives_another_region_and_some_services_have_only_one() {
    let auth = json!({ "auth": { "aws": { "region": "us-west-2" } } });
    let (received, _) = call("/dynamodb:ListTables", auth, "{}").await;
    assert_eq!(received.scope.as_deref(), Ok("dynamodb/us-west-2"));
    let (received, _) = call("/organizations:ListAccounts", json!({}), "{}").await;
    assert_eq!(received.scope.as_deref(), Ok("organizations/us-east-1"));
}

#[tokio::test]
async fn what_is_no_call_of_an_api_is_not_sent() {
    let server = SignedServer::answering(|| respond(200, "{}")).await;
    let service = aws_service("aws", "", &server.url);
    for (path, body, reason) in [
        (
            "/orders",
            json!({}),
            "this agent calls AWS APIs: the step's request must have the key `aws`, such as `aws: dynamodb:PutItem`",
        ),
        ("/dynamodb:PutItem/x", json!({}), "`dynamodb:PutItem` has no path"),
        ("/batch:SubmitJob", json!({}), "the path of `batch:SubmitJob` must start with `/`"),
        ("/sns:Publish", json!([1]), "the body must be a mapping: the input of the operation"),
    ] {
        let outcome = service.output(&request(path, json!({ "body": body })), None).await;
        assert_eq!(outcome, failed(reason, false));
    }
    assert_eq!(server.requests().len(), 0);
}

#[tokio::test]
async fn errors_are_judged_by_their_names() {
    let retried_at_once = |reason: &str| retried(reason, true, false);
    for (status, body, expected) in [
        (
            400,
            r#"{"__type":"com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException"}"#,
            retried_at_once("HTTP 400 Bad Request: ProvisionedThroughputExceededException"),
        ),
        (
            400,
            r#"{"__type":"ThrottlingException","message":"s3cret"}"#,
            retried_at_once("HTTP 400 Bad Request: ThrottlingException"),
        ),
        (
            400,
            "<ErrorResponse><Error><Type>Sender</Type><Code>Throttling</Code></Error></ErrorResponse>",
            retried_at_once("HTTP 400 Bad Request: Throttling"),
        ),
        (
            503,
            "<Response><Errors><Error><Code>RequestLimitExceeded</Code></Error></Errors></Response>",
            retried_at_once("HTTP 503 Service Unavailable: RequestLimitExceeded"),
        ),
        (
            400,
            r#"{"Error":{"Code":"Throttling"}}"#,
            retried_at_once("HTTP 400 Bad Request: Throttling"),
        ),
        (429, "", retried_at_once("HTTP 429 Too Many Requests")),
        (
            400,
            r#"{"__type":"RequestTimeout"}"#,
            retried("HTTP 400 Bad Request: RequestTimeout", true, true),
        ),
        (
            500,
            r#"{"__type":"InternalServerError"}"#,
            retried("HTTP 500 Internal Server Error: InternalServerError", false, true),
        ),
        (503, "", retried("HTTP 503 Service Unavailable", false, true)),
        (
            400,
            r#"{"__type":"ValidationException","message":"s3cret"}"#,
            failed("HTTP 400 Bad Request: ValidationException", false),
        ),
        (
            400,
            r#"{"__type":"TransactionCanceledException"}"#,
            failed("HTTP 400 Bad Request: TransactionCanceledException", false),
        ),
        (
            403,
            r#"{"__type":"AccessDeniedException"}"#,
            failed("HTTP 403 Forbidden: AccessDeniedException", false),
        ),
        (403, "<Error><Code>a secret message</Code></Error>", failed("HTTP 403 Forbidden", false)),
        (302, "", failed("HTTP 302 Found", true)),
    ] {
        assert_eq!(outcome(status, body, json!({})).await, expected, "{body}");
    }
    let in_progress =
        outcome(400, r#"{"__type":"TransactionInProgressException"}"#, json!({})).await;
    assert!(matches!(in_progress, Err(CallFault::Conflict { .. })), "{in_progress:?}");
    let request = request("/dynamodb:PutItem", json!({}));
    let by_header = outcome_of(("aws", ""), &request, || {
        respond_with(400, ("x-amzn-errortype", "ThrottlingException:http://x/"), "")
    });
    assert_eq!(by_header.await, retried_at_once("HTTP 400 Bad Request: ThrottlingException"));
}

#[tokio::test]
async fn the_responses_of_the_step_take_precedence() {
    let not_found = r#"{"__type":"ResourceNotFoundException"}"#;
    let completed = outcome(400, not_found, json!({ "responses": { "400": "completed" } })).await;
    assert_eq!(completed, Ok(json!({ "__type": "ResourceNotFoundException" })));
    let by_name = |class: &str| {
        let when = "${ response.body.__type.endsWith('ResourceNotFoundException') }";
        json!({ "responses": { "400": [{ "when": when, "class": class, "after": if class == "retry" { json!(7) } else { json!(null) } }] } })
    };
    assert_eq!(outcome(400, not_found, by_name("completed")).await, completed);
    let unknown = outcome(400, not_found, by_name("unknown")).await;
    assert_eq!(unknown, failed("HTTP 400 Bad Request: ResourceNotFoundException", true));
    let Err(CallFault::Transient { retry_after, may_have_run: true, .. }) =
        outcome(400, not_found, by_name("retry")).await
    else {
        panic!("it is not retried");
    };
    assert_eq!(retry_after, Some(Duration::from_secs(7)));
    // An error that no case names is judged as without cases.
    let throttled = outcome(400, r#"{"__type":"ThrottlingException"}"#, by_name("unknown")).await;
    assert_eq!(throttled, retried("HTTP 400 Bad Request: ThrottlingException", true, false));
    let entries = r#"{"FailedEntryCount":1}"#;
    let case = json!([{ "when": "${ response.body.FailedEntryCount > 0 }", "class": "unknown" }]);
    let partial = outcome(200, entries, json!({ "responses": { "200": case } })).await;
    assert_eq!(partial, failed("HTTP 200 OK", true));
}

/// The tests of workflows judge what a mocked API answers as the agent does.
#[tokio::test]
async fn an_answer_without_a_service_is_judged_in_the_same_way() {
    let request = request("/dynamodb:PutItem", json!({}));
    let body = br#"{"__type":"ThrottlingException"}"#.to_vec();
    let outcome = interpret_answer(400, HeaderMap::new(), body, &request, Timestamp::now()).await;
    assert!(
        matches!(outcome, Err(CallFault::Transient { may_have_run: false, .. })),
        "{outcome:?}"
    );
}

#[tokio::test]
async fn a_body_that_is_too_large_to_be_judged_is_a_failure_of_a_step_that_may_have_run() {
    let large = || Body::from(vec![b'1'; 2_000_000]);
    let judged = json!([{ "when": "${ response.body.failed }", "class": "failed" }]);
    for (more, expected) in [
        (json!({}), Ok(json!({ "too_large": true }))),
        (
            json!({ "responses": { "200": judged } }),
            failed("`responses` judges the body, and it is too large or broke off", true),
        ),
    ] {
        let request = request("/dynamodb:Scan", more);
        let response = move || respond(200, large());
        let outcome = outcome_of(("aws", ""), &request, response);
        assert_eq!(outcome.await, expected);
    }
}
