//! The agent kind `aws`: calls the operation of an AWS API that the path of the request names, such as `/dynamodb:PutItem`.
//! The step's body is the input of the operation, and the response is the step's output; of a query API, its result as JSON. [`AwsService`] describes
//! the APIs.
//!
//! | response | outcome | may the step have run? |
//! | --- | --- | --- |
//! | 2xx | completed | it has run |
//! | throttling: 429, or another error with a name for it | retried, the service is available | no |
//! | [`IN_PROGRESS`]: an earlier call with the same token runs | retried while there may be one, else failed | yes |
//! | 408, 5xx, [`UNCLEAR`], a broken connection | retried | yes |
//! | no connection | retried | no |
//! | every other 4xx, such as `ConditionalCheckFailedException` | failed | no |
//! | every other status, such as 3xx | failed | yes |
//!
//! The `responses` of the step take precedence.

use jiff::Timestamp;
use reqwest::{Method, header::HeaderMap};
use serde_json::Value;
use steward_core::model::{
    aws_action::AwsAction,
    aws_services::{AwsProtocol, AwsService, QueryLists},
    call_auth::{AwsScope, CallAuth},
    messages::{HttpMethod, StepRequest},
    request_path,
    responses::{ClassifiedResponse, ResponseMeaning},
};
use steward_runtime::trace::TraceSpan;

use crate::{
    attempt::CallFault,
    aws_api::{ApiError, ApiRequest, ApiResponse, AwsApi},
    aws_query::{self, QueryNames, form},
    response::{CallResponse, response_value},
    retry_after::retry_after,
    signed::SigningScope,
    transport::{ReceivedBody, body_bytes_max, not_sent, unusable_response},
};

/// An error of DynamoDB: an earlier call with the same `ClientRequestToken` is not over.
const IN_PROGRESS: &str = "TransactionInProgressException";

/// Errors with the status 400 after which a retry may succeed, and the operation may have run.
const UNCLEAR: [&str; 2] = ["RequestTimeout", "RequestTimeoutException"];

/// Calls the operation that the request names, by default in `region`.
pub(crate) async fn call(
    api: &AwsApi,
    region: Option<&str>,
    request: &StepRequest,
    span: &mut TraceSpan,
) -> Result<CallResponse, CallFault> {
    let call = api_request(api, region, request).map_err(|reason| not_sent(&reason))?;
    outcome(request, &api.send(call, request, span).await?, Timestamp::now())
}

fn api_request(
    api: &AwsApi,
    region: Option<&str>,
    request: &StepRequest,
) -> Result<ApiRequest, String> {
    let (action, path) = AwsAction::of_request_path(&request.path).ok_or(
        "this agent calls AWS APIs: the step's request must have the key `aws`, such as `aws: dynamodb:PutItem`",
    )?;
    let service = AwsService::named(action.service());
    let given = request.auth.clone().map(|CallAuth::Aws(scope)| scope);
    let AwsScope { service: signing_name, region: given } = given.unwrap_or_default();
    let given = given.as_ref().map(|region| region.as_str());
    let region = given.or_else(|| region.map(|region| service.region(region)));
    let region = region.ok_or("the region of the agent is unknown: give it in `auth`")?;
    let signing_name = signing_name.as_ref().map_or(service.signing_name, |name| name.as_str());
    let scope = SigningScope { service: signing_name.to_owned(), region: region.to_owned() };
    let endpoint = api.endpoint_or(|| service.endpoint(region));
    match service.protocol {
        AwsProtocol::Rest => {
            request_path::check(path).map_err(|why| format!("the path of `{action}` {why}"))?;
        }
        AwsProtocol::Json { .. } | AwsProtocol::Query { .. } if path.is_empty() => {}
        AwsProtocol::Json { .. } | AwsProtocol::Query { .. } => {
            return Err(format!("`{action}` has no path"));
        }
    }
    let Content { method, headers, body } = content(&action, service.protocol, request)?;
    let path = if path.is_empty() { "/" } else { path };
    Ok(ApiRequest { method, url: format!("{endpoint}{path}"), scope, headers, body })
}

/// What a protocol makes of the input of an operation.
struct Content {
    method: Method,
    headers: Vec<(&'static str, String)>,
    body: String,
}

fn content(
    action: &AwsAction,
    protocol: AwsProtocol,
    request: &StepRequest,
) -> Result<Content, String> {
    let input = request.body.as_ref();
    let content_type = |text: &str| ("content-type", text.to_owned());
    Ok(match protocol {
        AwsProtocol::Json { version, target } => Content {
            method: Method::POST,
            headers: vec![
                content_type(&format!("application/x-amz-json-{version}")),
                ("x-amz-target", format!("{target}.{}", action.operation())),
            ],
            body: input.map_or_else(|| "{}".to_owned(), ToString::to_string),
        },
        AwsProtocol::Query { version, lists, maps } => Content {
            method: Method::POST,
            headers: vec![content_type("application/x-www-form-urlencoded")],
            body: form(
                action.operation(),
                QueryNames { version, lists, maps },
                input.map(|input| input.value()),
            )?,
        },
        AwsProtocol::Rest => Content {
            method: match request.method {
                HttpMethod::Get => Method::GET,
                HttpMethod::Post => Method::POST,
                HttpMethod::Put => Method::PUT,
                HttpMethod::Patch => Method::PATCH,
                HttpMethod::Delete => Method::DELETE,
            },
            headers: input.iter().map(|_| content_type("application/json")).collect(),
            body: input.map(ToString::to_string).unwrap_or_default(),
        },
    })
}

/// What a call means for its step if an API answers like this, such as in a test of a workflow.
///
/// # Errors
/// The fault that the answer stands for.
pub(crate) fn interpret_answer(
    status: u16,
    headers: HeaderMap,
    bytes: Vec<u8>,
    request: &StepRequest,
    now: Timestamp,
) -> Result<CallResponse, CallFault> {
    let is_complete = bytes.len() <= body_bytes_max(request);
    let body = Ok(ReceivedBody { bytes, is_complete });
    outcome(request, &ApiResponse { status, headers, body }, now)
}

/// The outcome of a call: the table of this file, unless the step says otherwise.
fn outcome(
    request: &StepRequest,
    response: &ApiResponse,
    now: Timestamp,
) -> Result<CallResponse, CallFault> {
    let (default, is_throttled) = default_meaning(response);
    let body = match query_result(request, response) {
        Some(result) => Ok(result),
        None => response.value(request),
    };
    let value = response_value(response.status, &response.headers, body.clone().ok());
    let is_success = (200..300).contains(&response.status);
    let is_incomplete = is_success && response.whole_body().is_none();
    if is_incomplete && request.responses.needs_body(response.status, &value) {
        return Err(unusable_response(
            "`responses` judges the body, and it is too large or broke off",
        ));
    }
    let meaning = request.responses.meaning_or(default, response.status, &value, now);
    let ResponseMeaning { class, pause } = meaning;
    let (reason, detail) = (response.reason(), response.detail());
    let requested = retry_after(&response.headers, now.into()).max(pause);
    Err(match class {
        ClassifiedResponse::Completed => {
            // The definition maps an error to success.
            let body = if is_success { body } else { Ok(body.unwrap_or_default()) };
            return Ok(response.with_body(body));
        }
        ClassifiedResponse::Retry { may_have_run } => {
            // A service that rejects a request is available.
            let is_available = is_throttled || response.status < 500;
            let available = is_available.then(|| requested.unwrap_or_default());
            CallFault::Transient {
                reason,
                retry_after: available.or(requested),
                may_have_run,
                detail,
            }
        }
        ClassifiedResponse::Conflict => {
            CallFault::Conflict { reason, retry_after: requested, detail }
        }
        ClassifiedResponse::Failed => CallFault::Permanent { reason, may_have_run: false, detail },
        ClassifiedResponse::Unknown => CallFault::Permanent { reason, may_have_run: true, detail },
    })
}

/// The result of an operation of a query API, if its lists have the usual form.
fn query_result(request: &StepRequest, response: &ApiResponse) -> Option<Value> {
    let (action, _) = AwsAction::of_request_path(&request.path)?;
    match AwsService::named(action.service()).protocol {
        AwsProtocol::Query { lists: QueryLists::Member, .. } => {
            let text = std::str::from_utf8(response.whole_body()?).ok()?;
            aws_query::result(action.operation(), text)
        }
        AwsProtocol::Query { lists: QueryLists::Number | QueryLists::Named, .. }
        | AwsProtocol::Json { .. }
        | AwsProtocol::Rest => None,
    }
}

/// What a response means if the step does not say it, and whether it is one of throttling.
fn default_meaning(response: &ApiResponse) -> (ClassifiedResponse, bool) {
    if (200..300).contains(&response.status) {
        return (ClassifiedResponse::Completed, false);
    }
    let error = match response.error_name().as_deref() {
        Some(IN_PROGRESS) => return (ClassifiedResponse::Conflict, false),
        Some(name) if UNCLEAR.contains(&name) => ApiError::Unclear,
        Some(_) | None => response.common_error(),
    };
    let class = match error {
        ApiError::Throttled | ApiError::NotStarted => {
            ClassifiedResponse::Retry { may_have_run: false }
        }
        ApiError::Unclear => ClassifiedResponse::Retry { may_have_run: true },
        ApiError::Refused => ClassifiedResponse::Failed,
        ApiError::Unknown => ClassifiedResponse::Unknown,
    };
    (class, error == ApiError::Throttled)
}
