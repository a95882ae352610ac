//! The agent kind `lambda`: invokes a Lambda function and waits for its result. The step's body is the function's event,
//! the function's result is the step's output.
//!
//! | response of Lambda | outcome | may the step have run? |
//! | --- | --- | --- |
//! | 200 without `X-Amz-Function-Error` | completed | it has run |
//! | 200 with `X-Amz-Function-Error`: the function threw, timed out or ended | failed; a definition's `responses: { 500: … }` decides otherwise | yes |
//! | 429, and every other throttling | retried, the service is available | no |
//! | errors of the function's start: [`NOT_STARTED`] | retried | no |
//! | 408, 5xx, `EFSIOException`, a broken connection | retried | yes |
//! | no connection | retried | no |
//! | every other 4xx | failed | no |
//! | every other status, such as 3xx | failed | yes |
//!
//! <https://docs.aws.amazon.com/lambda/latest/api/API_Invoke.html>

use base64::{Engine, engine::general_purpose::STANDARD};
use jiff::Timestamp;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::json;
use steward_core::model::{
    messages::StepRequest,
    responses::{ClassifiedResponse, ResponseMeaning},
};
use steward_runtime::trace::TraceSpan;

use crate::{
    arn::TargetKind,
    attempt::CallFault,
    aws_api::{ApiError, ApiResponse, AwsApi, payload},
    response::{CallResponse, response_value},
    transport::error_word,
};

/// What the agent calls.
pub(crate) const FUNCTIONS: TargetKind = TargetKind {
    service: "lambda",
    prefix: "function:",
    noun: "a Lambda function",
    example: "arn:aws:lambda:eu-west-1:123456789012:function:charge",
};

/// Errors with which Lambda says that it could not start the function, because of something that may change: an update
/// in progress, its network, its file system, its key.
const NOT_STARTED: [&str; 19] = [
    "EC2AccessDeniedException",
    "EC2UnexpectedException",
    "EFSMountConnectivityException",
    "EFSMountFailureException",
    "EFSMountTimeoutException",
    "ENILimitReachedException",
    "InvalidRuntimeException",
    "InvalidSecurityGroupIDException",
    "InvalidSubnetIDException",
    "InvalidZipFileException",
    "KMSAccessDeniedException",
    "KMSDisabledException",
    "KMSInvalidStateException",
    "KMSNotFoundException",
    "ResourceConflictException",
    "ResourceNotReadyException",
    "SnapStartNotReadyException",
    "SnapStartTimeoutException",
    "SubnetIPAddressLimitReachedException",
];

/// An error with which Lambda ends a function that may have begun: its file system did not answer in time.
const UNCLEAR: &str = "EFSIOException";

/// The status of a function's error in the `responses` of a step.
const FUNCTION_ERROR_STATUS: u16 = 500;

/// Invokes the function that the request names.
pub(crate) async fn call(
    api: &AwsApi,
    request: &StepRequest,
    traceparent: &str,
    span: &mut TraceSpan,
) -> Result<CallResponse, CallFault> {
    let target = api.target(request)?;
    let function = utf8_percent_encode(&target.to_string(), ARN_ENCODING).to_string();
    let path = format!("/2015-03-31/functions/{function}/invocations");
    let headers = vec![
        ("content-type", "application/json".to_owned()),
        ("x-amz-invocation-type", "RequestResponse".to_owned()),
        ("x-amz-client-context", client_context(request, traceparent)),
    ];
    let call = api.post(target, &path, headers, payload(request));
    outcome(request, &api.send(call, request, span).await?)
}

/// As in the SDKs, all but letters, digits, `-`, `_`, `.` and `~` are encoded.
const ARN_ENCODING: &percent_encoding::AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// What the function finds in its context as `client_context.custom`, beside its event.
fn client_context(request: &StepRequest, traceparent: &str) -> String {
    let StepRequest { task_id, step, idempotency_key, .. } = request;
    let custom = json!({
        "idempotency_key": idempotency_key, "traceparent": traceparent,
        "task_id": task_id, "step": step,
    });
    STANDARD.encode(json!({ "custom": custom }).to_string())
}

/// The outcome of an invocation: the table of this file.
fn outcome(request: &StepRequest, response: &ApiResponse) -> Result<CallResponse, CallFault> {
    if response.status != 200 {
        return Err(response.fault(error(response)));
    }
    if response.headers.contains_key("x-amz-function-error") {
        return function_error(request, response);
    }
    Ok(response.with_body(response.value(request)))
}

fn error(response: &ApiResponse) -> ApiError {
    match response.error_name().as_deref() {
        Some(UNCLEAR) => ApiError::Unclear,
        Some(name) if NOT_STARTED.contains(&name) => ApiError::NotStarted,
        Some(_) | None => response.common_error(),
    }
}

/// The outcome of a function that ended with an error. The error's type is part of the reason, its message may be payload.
fn function_error(
    request: &StepRequest,
    response: &ApiResponse,
) -> Result<CallResponse, CallFault> {
    let result = response.value(request).unwrap_or_default();
    let kind = result.get("errorType").and_then(|kind| error_word(kind.as_str()?));
    let reason = match kind {
        Some(kind) => format!("the function failed: {kind}"),
        None => "the function failed".to_owned(),
    };
    let detail = response.detail();
    let value = response_value(FUNCTION_ERROR_STATUS, &response.headers, Some(result.clone()));
    let ResponseMeaning { class, pause } = request.responses.meaning_or(
        ClassifiedResponse::Unknown,
        FUNCTION_ERROR_STATUS,
        &value,
        Timestamp::now(),
    );
    match class {
        ClassifiedResponse::Completed => Ok(response.with_body(Ok(result))),
        // Lambda is available, whatever the function does.
        ClassifiedResponse::Retry { may_have_run } => {
            let retry_after = Some(pause.unwrap_or_default());
            Err(CallFault::Transient { reason, retry_after, may_have_run, detail })
        }
        ClassifiedResponse::Failed => {
            Err(CallFault::Permanent { reason, may_have_run: false, detail })
        }
        ClassifiedResponse::Unknown | ClassifiedResponse::Conflict => {
            Err(CallFault::Permanent { reason, may_have_run: true, detail })
        }
    }
}
