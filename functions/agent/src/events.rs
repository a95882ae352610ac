//! The agent kind `events`: publishes an event on an EventBridge bus. The step's body is the event:
//! `{ detail-type, detail, source? }`. The step's output is `{ "event_id": … }`.
//!
//! | response of EventBridge | outcome | may the step have run? |
//! | --- | --- | --- |
//! | 200 with an event id | completed | it has run |
//! | 200, and the entry failed: throttling | retried, the service is available | no |
//! | 200, and the entry failed: `InternalFailure`, `InternalException` | retried | yes |
//! | 200, and the entry failed: [`REFUSED`] | failed | no |
//! | 200, and the entry failed: every other error | failed | yes |
//! | 200 without an entry | failed | yes |
//! | throttling | retried, the service is available | no |
//! | 408, 5xx, a broken connection | retried | yes: the bus may get the event twice |
//! | no connection | retried | no |
//! | every other 4xx | failed | no |
//! | every other status, such as 3xx | failed | yes |
//!
//! EventBridge also answers 200 with an event id if there is no such bus, and drops the event.
//!
//! The list `resources` of the event has one text, the idempotency key.
//!
//! <https://docs.aws.amazon.com/eventbridge/latest/APIReference/API_PutEvents.html>

use std::time::Duration;

use serde_json::{Map, Value, json};
use steward_core::model::{error_detail::ErrorDetail, messages::StepRequest};
use steward_runtime::trace::TraceSpan;

use crate::{
    arn::TargetKind,
    attempt::CallFault,
    aws_api::{ApiResponse, AwsApi, is_throttling},
    response::CallResponse,
    transport::{error_word, not_sent, unusable_response},
};

/// What the agent calls.
pub(crate) const BUSES: TargetKind = TargetKind {
    service: "events",
    prefix: "event-bus/",
    noun: "an EventBridge bus",
    example: "arn:aws:events:eu-west-1:123456789012:event-bus/orders",
};

/// Errors of an entry after which the event may have been published, and a retry may succeed.
const UNCLEAR: [&str; 2] = ["InternalException", "InternalFailure"];

/// Errors of an entry that EventBridge certainly did not publish.
/// <https://docs.aws.amazon.com/eventbridge/latest/APIReference/API_PutEventsResultEntry.html>
const REFUSED: [&str; 11] = [
    "AccessDenied",
    "AccessDeniedException",
    "InvalidAccountIdException",
    "InvalidArgument",
    "MalformedDetail",
    "NotAuthorizedForDetailTypeException",
    "NotAuthorizedForSourceException",
    "NotAuthorized",
    "ResourceNotFoundException",
    "ValidationException",
    "InvalidParameterException",
];

/// Characters of a detail type. EventBridge accepts an event with a longer one and drops it.
const DETAIL_TYPE_CHARS_MAX: usize = 128;

/// Publishes the event on the bus that the request names.
pub(crate) async fn call(
    api: &AwsApi,
    request: &StepRequest,
    span: &mut TraceSpan,
) -> Result<CallResponse, CallFault> {
    let target = api.target(request)?;
    let event = event(request).map_err(not_sent)?;
    let entry = json!({
        "EventBusName": target.to_string(),
        "Source": event.source,
        "DetailType": event.detail_type,
        "Detail": Value::Object(event.detail).to_string(),
        "Resources": [request.idempotency_key],
    });
    let headers = vec![
        ("content-type", "application/x-amz-json-1.1".to_owned()),
        ("x-amz-target", "AWSEvents.PutEvents".to_owned()),
    ];
    let body = json!({ "Entries": [entry] }).to_string();
    let call = api.post(target, "/", headers, body);
    outcome(&api.send(call, request, span).await?)
}

struct Event {
    source: String,
    detail_type: String,
    detail: Map<String, Value>,
}

/// The event in the body of a request.
fn event(request: &StepRequest) -> Result<Event, &'static str> {
    const FORM: &str = "the body is not an event: `{ detail-type: TEXT, detail: MAPPING }`, and optionally `source: TEXT`";
    let Some(Value::Object(mut body)) = request.body.as_ref().map(|body| body.value()) else {
        return Err(FORM);
    };
    let mut text = |key: &str| match body.remove(key) {
        None => Ok(None),
        Some(Value::String(text)) if !text.is_empty() => Ok(Some(text)),
        Some(_) => Err(FORM),
    };
    let default_source = || format!("steward.agent.{}", request.agent);
    let source = text("source")?.unwrap_or_else(default_source);
    let detail_type = text("detail-type")?.ok_or(FORM)?;
    if detail_type.chars().count() > DETAIL_TYPE_CHARS_MAX {
        return Err("the `detail-type` has more than 128 characters, the limit of EventBridge");
    }
    let Some(Value::Object(detail)) = body.remove("detail") else { return Err(FORM) };
    if !body.is_empty() {
        return Err(FORM);
    }
    Ok(Event { source, detail_type, detail })
}

/// The outcome of a request: the table of this file.
fn outcome(response: &ApiResponse) -> Result<CallResponse, CallFault> {
    if response.status != 200 {
        return Err(response.fault(response.common_error()));
    }
    let result = response.json();
    let entry = result.as_ref().and_then(|result| result.get("Entries")?.get(0));
    let text = |key: &str| entry.and_then(|entry| entry.get(key)?.as_str());
    if let Some(code) = text("ErrorCode") {
        let code = error_word(code).unwrap_or("an error");
        return Err(entry_fault(code, response.detail()));
    }
    match text("EventId") {
        Some(id) => Ok(response.with_body(Ok(json!({ "event_id": id })))),
        None => {
            Err(unusable_response("EventBridge accepted the request with an unreadable response"))
        }
    }
}

/// The fault of an entry that EventBridge did not publish although it accepted the request.
fn entry_fault(code: &str, detail: Option<ErrorDetail>) -> CallFault {
    let reason = format!("EventBridge did not publish the event: {code}");
    if is_throttling(code) {
        let retry_after = Some(Duration::ZERO);
        return CallFault::Transient { reason, retry_after, may_have_run: false, detail };
    }
    if UNCLEAR.contains(&code) {
        return CallFault::Transient { reason, retry_after: None, may_have_run: true, detail };
    }
    CallFault::Permanent { reason, may_have_run: !REFUSED.contains(&code), detail }
}
