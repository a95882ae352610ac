//! Calls of AWS APIs. One call of an agent is exactly one signed HTTP request, not an operation of an SDK: an SDK retries by
//! itself, and then it would not be known whether the service received one request, two or none.

use std::time::{Duration, SystemTime};

use reqwest::{
    Client, Method, StatusCode, Url,
    header::{HeaderMap, HeaderName, HeaderValue},
};
use serde_json::Value;
use steward_core::model::{
    error_detail::ErrorDetail,
    messages::{HttpMethod, StepRequest},
};
use steward_runtime::trace::TraceSpan;

use crate::{
    arn::{Arn, Targets},
    attempt::CallFault,
    connection_fault::broken_connection,
    http::BaseUrl,
    response::CallResponse,
    response_body::{body_value, not_text, too_large_body},
    retry_after::retry_after,
    signed::{AwsSigner, SigningError, SigningScope},
    transport::{ReceivedBody, body, client, error_word, not_sent},
};

/// Names of errors with which AWS services reject a request because of its rate. A rejected request had no effect. The
/// SDKs retry the same ones.
const THROTTLING: [&str; 16] = [
    "BandwidthLimitExceeded",
    "EC2ThrottledException",
    "KMS.ThrottlingException",
    "KmsThrottled",
    "LimitExceededException",
    "OverLimit",
    "PriorRequestNotComplete",
    "ProvisionedThroughputExceededException",
    "RequestLimitExceeded",
    "RequestThrottled",
    "RequestThrottledException",
    "SlowDown",
    "ThrottledException",
    "Throttling",
    "ThrottlingException",
    "TooManyRequestsException",
];

/// A client of the API of one AWS service, for the targets of one agent.
#[derive(Debug, Clone)]
pub(crate) struct AwsApi {
    client: Client,
    signer: AwsSigner,
    /// Replaces the service's own endpoint: an emulator, or an endpoint in a VPC.
    endpoint: Option<BaseUrl>,
    targets: Targets,
}

/// A request to an AWS API.
pub(crate) struct ApiRequest {
    pub(crate) method: Method,
    /// The URL, percent-encoded.
    pub(crate) url: String,
    /// What its signature is valid for.
    pub(crate) scope: SigningScope,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: String,
}

/// A response of an AWS API.
#[derive(Debug)]
pub(crate) struct ApiResponse {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    /// The body, or why it could not be read.
    pub(crate) body: Result<ReceivedBody, CallFault>,
}

/// What an error of an AWS API says about the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ApiError {
    /// Rejected because of its rate. It had no effect.
    Throttled,
    /// Not carried out, because something that the request needs is not available now.
    NotStarted,
    /// A retry may succeed. The request may have had an effect.
    Unclear,
    /// Refused. It had no effect.
    Refused,
    /// A retry would not help. The request may have had an effect.
    Unknown,
}

impl AwsApi {
    pub(crate) fn new(
        call_timeout: Duration,
        signer: AwsSigner,
        endpoint: Option<BaseUrl>,
        targets: Targets,
    ) -> reqwest::Result<Self> {
        Ok(Self { client: client(call_timeout)?, signer, endpoint, targets })
    }

    /// The target that the path of a request names.
    ///
    /// # Errors
    /// The request is not one for this kind of agent.
    pub(crate) fn target(&self, request: &StepRequest) -> Result<&Arn, CallFault> {
        if request.method != HttpMethod::Post {
            return Err(not_sent("this agent accepts only requests with method POST"));
        }
        self.targets.of_path(&request.path).map_err(|error| not_sent(&error.to_string()))
    }

    /// The endpoint for a target, without a trailing slash.
    pub(crate) fn endpoint(&self, target: &Arn) -> String {
        self.endpoint_or(|| target.endpoint())
    }

    /// The configured endpoint, without a trailing slash; if there is none, that of AWS.
    pub(crate) fn endpoint_or(&self, of_aws: impl FnOnce() -> String) -> String {
        self.endpoint.as_ref().map_or_else(of_aws, |endpoint| endpoint.as_str().to_owned())
    }

    /// A request with method POST to a target. `path` is percent-encoded, and below the endpoint.
    pub(crate) fn post(
        &self,
        target: &Arn,
        path: &str,
        headers: Vec<(&'static str, String)>,
        body: String,
    ) -> ApiRequest {
        let scope = SigningScope { service: target.service.clone(), region: target.region.clone() };
        let url = format!("{}{path}", self.endpoint(target));
        ApiRequest { method: Method::POST, url, scope, headers, body }
    }

    /// Makes one request. Adds the method and the status to `span`.
    pub(crate) async fn send(
        &self,
        call: ApiRequest,
        request: &StepRequest,
        span: &mut TraceSpan,
    ) -> Result<ApiResponse, CallFault> {
        let ApiRequest { method, url, scope, headers, body: content } = call;
        let cannot_be_built = || not_sent("the request cannot be built");
        let url = Url::parse(&url).map_err(|_| cannot_be_built())?;
        span.set("http.request.method", &method);
        let mut call = reqwest::Request::new(method, url);
        for (name, value) in headers {
            let value = HeaderValue::from_str(&value).map_err(|_| cannot_be_built())?;
            call.headers_mut().insert(HeaderName::from_static(name), value);
        }
        *call.body_mut() = Some(content.into());
        let signed = self.signer.sign(&mut call, None, &scope, SystemTime::now()).await;
        signed.map_err(not_signed)?;
        let response = self.client.execute(call).await;
        let mut response = response.map_err(|error| broken_connection(&error))?;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        span.set_number("http.response.status_code", status.into());
        Ok(ApiResponse { status, headers, body: body(&mut response, request).await })
    }
}

impl ApiResponse {
    /// The response to a successful call, with this body.
    pub(crate) fn with_body(&self, body: Result<Value, CallFault>) -> CallResponse {
        CallResponse { status: self.status, headers: self.headers.clone(), body }
    }

    /// The body as the value that expressions read.
    ///
    /// # Errors
    /// It broke off, or is too large for the `output` of the request.
    pub(crate) fn value(&self, request: &StepRequest) -> Result<Value, CallFault> {
        match self.body.as_ref().map_err(Clone::clone)?.whole() {
            Some(bytes) => Ok(body_value(bytes).unwrap_or_else(|| not_text(bytes))),
            None => too_large_body(request),
        }
    }

    pub(crate) fn whole_body(&self) -> Option<&[u8]> {
        self.body.as_ref().ok()?.whole()
    }

    /// The body as JSON, if it is.
    pub(crate) fn json(&self) -> Option<Value> {
        serde_json::from_slice(self.whole_body()?).ok()
    }

    /// The name of the error in the response, such as `ResourceNotFoundException`. It is a word and no payload.
    pub(crate) fn error_name(&self) -> Option<String> {
        let header = self.headers.get("x-amzn-errortype").and_then(|value| value.to_str().ok());
        let body = self.json();
        let in_json = || {
            let body = body.as_ref()?;
            ["/__type", "/code", "/Error/Code"].iter().find_map(|key| body.pointer(key)?.as_str())
        };
        let in_xml = || code_in_xml(std::str::from_utf8(self.whole_body()?).ok()?);
        // `namespace#Name`, or `Name:URL`.
        let name = header.or_else(in_json).or_else(in_xml)?;
        let name = name.rsplit('#').next().unwrap_or(name);
        let name = name.split(':').next().unwrap_or(name);
        error_word(name).map(str::to_owned)
    }

    /// What the service said, for operators: `HTTP 404 Not Found: ResourceNotFoundException`.
    pub(crate) fn reason(&self) -> String {
        let status = StatusCode::from_u16(self.status);
        let status = status.map_or_else(|_| self.status.to_string(), |status| status.to_string());
        match self.error_name() {
            Some(name) => format!("HTTP {status}: {name}"),
            None => format!("HTTP {status}"),
        }
    }

    /// What the service said, for operators.
    pub(crate) fn detail(&self) -> Option<ErrorDetail> {
        ErrorDetail::of_body(self.whole_body()?)
    }

    /// The meaning of an error that all AWS services share.
    pub(crate) fn common_error(&self) -> ApiError {
        let name = self.error_name();
        let is_throttled = name.as_deref().is_some_and(is_throttling);
        match self.status {
            429 => ApiError::Throttled,
            400..600 if is_throttled => ApiError::Throttled,
            408 | 500..600 => ApiError::Unclear,
            400..500 => ApiError::Refused,
            _ => ApiError::Unknown,
        }
    }

    /// The fault that an error stands for.
    pub(crate) fn fault(&self, error: ApiError) -> CallFault {
        let (reason, detail) = (self.reason(), self.detail());
        let requested = retry_after(&self.headers, SystemTime::now());
        let transient = |retry_after, may_have_run| CallFault::Transient {
            reason: reason.clone(),
            retry_after,
            may_have_run,
            detail: detail.clone(),
        };
        match error {
            // A service that rejects a request is available.
            ApiError::Throttled => transient(Some(requested.unwrap_or_default()), false),
            ApiError::NotStarted => transient(requested, false),
            ApiError::Unclear => transient(requested, true),
            ApiError::Refused => CallFault::Permanent { reason, may_have_run: false, detail },
            ApiError::Unknown => CallFault::Permanent { reason, may_have_run: true, detail },
        }
    }
}

/// Whether an error with this name rejects a request because of its rate.
pub(crate) fn is_throttling(name: &str) -> bool {
    THROTTLING.contains(&name)
}

/// The fault of a request that could not be signed. Credentials may be readable again soon.
fn not_signed(error: SigningError) -> CallFault {
    let reason = error.to_string();
    match error {
        SigningError::NotSignable => not_sent(&reason),
        SigningError::NoCredentials => {
            CallFault::Transient { reason, retry_after: None, may_have_run: false, detail: None }
        }
    }
}

/// The name of the error in an XML body: `<Error><Code>Throttling</Code>…`.
fn code_in_xml(body: &str) -> Option<&str> {
    let (_, error) = body.split_once("<Error>")?;
    let (_, code) = error.split_once("<Code>")?;
    Some(code.split_once("</Code>")?.0.trim())
}

/// The text of a request's body, or `null`.
pub(crate) fn payload(request: &StepRequest) -> String {
    request.body.as_ref().map_or_else(|| Value::Null.to_string(), ToString::to_string)
}
