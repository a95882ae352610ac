//! A remote service over HTTP. [`steward_core::model::responses`] defines the meaning of each status.

use std::{
    collections::BTreeMap,
    str::FromStr,
    sync::{Arc, PoisonError, RwLock},
    time::{Duration, SystemTime},
};

use crate::attempt::{CallFault, RemoteService};
use reqwest::{
    Client, Response, Url,
    header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, InvalidHeaderValue, RETRY_AFTER},
};
use serde_json::Value;
use steward_core::{
    limits,
    model::{
        integers::check_integers,
        messages::{HttpMethod, StepRequest},
        responses::ClassifiedResponse,
    },
};
use steward_runtime::trace::{self, SpanKind, TraceSpan};

/// A client of a service with an HTTP and JSON interface. Clones share the configured headers.
#[derive(Debug, Clone)]
pub struct HttpService {
    client: Client,
    base_url: BaseUrl,
    headers: Arc<RwLock<Headers>>,
}

/// The URL to which the paths of requests are appended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BaseUrl(String);

/// The base URL is invalid. The message does not contain it, because it may contain a password.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "not an http or https URL without credentials, query and fragment; send credentials in headers"
)]
pub struct InvalidBaseUrl;

impl FromStr for BaseUrl {
    type Err = InvalidBaseUrl;

    fn from_str(text: &str) -> Result<Self, InvalidBaseUrl> {
        let url = Url::parse(text).ok().filter(|url| {
            matches!(url.scheme(), "http" | "https")
                && url.username().is_empty()
                && url.password().is_none()
                && url.query().is_none()
                && url.fragment().is_none()
        });
        let url = url.ok_or(InvalidBaseUrl)?;
        Ok(Self(url.as_str().trim_end_matches('/').to_owned()))
    }
}

impl std::fmt::Display for BaseUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// Headers of every call, parsed from a JSON object. Their values may be secrets and are never printed.
#[derive(Debug, Clone, Default)]
pub struct Headers(HeaderMap);

/// The headers are invalid. The message never contains a value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidHeaders {
    /// The text is not a JSON object, or a value is not a string.
    #[error("not a JSON object of strings")]
    NotAnObject,
    /// A header's name or value contains invalid characters.
    #[error("header `{0}` is not valid")]
    Invalid(String),
}

impl FromStr for Headers {
    type Err = InvalidHeaders;

    fn from_str(text: &str) -> Result<Self, InvalidHeaders> {
        let given: BTreeMap<String, String> =
            serde_json::from_str(text).map_err(|_| InvalidHeaders::NotAnObject)?;
        let mut headers = HeaderMap::new();
        for (name, value) in given {
            let invalid = |_| InvalidHeaders::Invalid(name.clone());
            let key =
                HeaderName::from_str(&name).map_err(|_| InvalidHeaders::Invalid(name.clone()))?;
            let mut value = HeaderValue::from_str(&value).map_err(invalid)?;
            value.set_sensitive(true);
            headers.insert(key, value);
        }
        Ok(Self(headers))
    }
}

impl Headers {
    /// These headers and `others`. If both have a name, the value of `others` is used.
    #[must_use]
    pub fn merged_with(mut self, others: Self) -> Self {
        self.0.extend(others.0);
        self
    }
}

/// How long an idle connection to a service is kept. While Lambda has frozen the function, the service may close the
/// connection, and a call over it would fail without need.
const IDLE_TIMEOUT: Duration = Duration::from_secs(5);

impl HttpService {
    /// A client for `base_url`. A call that takes longer than `call_timeout` is aborted.
    ///
    /// # Errors
    /// The TLS back end failed to initialise.
    pub fn new(
        base_url: BaseUrl,
        headers: Headers,
        call_timeout: Duration,
    ) -> reqwest::Result<Self> {
        let client = Client::builder()
            .timeout(call_timeout)
            .pool_idle_timeout(IDLE_TIMEOUT)
            .redirect(reqwest::redirect::Policy::none())
            .build()?;
        Ok(Self { client, base_url, headers: Arc::new(RwLock::new(headers)) })
    }

    /// Replaces the configured headers for all later calls.
    pub fn set_headers(&self, headers: Headers) {
        *self.headers.write().unwrap_or_else(PoisonError::into_inner) = headers;
    }

    /// The headers of one call. Steward's own headers override configured headers of the same name.
    fn headers(
        &self,
        request: &StepRequest,
        traceparent: Option<&str>,
    ) -> Result<HeaderMap, InvalidHeaderValue> {
        let configured = self.headers.read().unwrap_or_else(PoisonError::into_inner);
        let mut headers = configured.0.clone();
        headers.insert("idempotency-key", HeaderValue::from_str(&request.idempotency_key)?);
        let traceparent = trace::of_call(request, traceparent);
        headers.insert("traceparent", HeaderValue::from_str(&traceparent)?);
        if request.body.is_some() {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        Ok(headers)
    }
}

impl RemoteService for HttpService {
    async fn call(
        &self,
        request: &StepRequest,
        traceparent: Option<&str>,
    ) -> Result<Value, CallFault> {
        let mut span = TraceSpan::begin("call", SpanKind::Client, traceparent);
        span.set_request(request);
        let own = span.traceparent();
        let result = self.send(request, own.as_deref().or(traceparent), &mut span).await;
        match &result {
            Ok(_) => span.end("completed"),
            Err(CallFault::Transient { .. }) => span.fail("transient fault"),
            Err(CallFault::Permanent { .. }) => span.fail("permanent fault"),
            Err(CallFault::Conflict { .. }) => span.fail("conflict"),
            Err(CallFault::TimedOut { .. }) => span.fail("cut off"),
        }
        result
    }
}

impl HttpService {
    /// Makes one call. Adds the method and the status to `span`.
    async fn send(
        &self,
        request: &StepRequest,
        traceparent: Option<&str>,
        span: &mut TraceSpan,
    ) -> Result<Value, CallFault> {
        let method = match request.method {
            HttpMethod::Get => reqwest::Method::GET,
            HttpMethod::Post => reqwest::Method::POST,
            HttpMethod::Put => reqwest::Method::PUT,
            HttpMethod::Patch => reqwest::Method::PATCH,
            HttpMethod::Delete => reqwest::Method::DELETE,
        };
        // Appended to the host, a path without a slash would change the host.
        if !request.path.starts_with('/') {
            return Err(not_sent("the request's path does not start with `/`"));
        }
        span.set("http.request.method", &method);
        let url = format!("{}{}", self.base_url.0, request.path);
        let headers = self
            .headers(request, traceparent)
            .map_err(|_| not_sent("the request cannot be built"))?;
        let mut call = self.client.request(method, url).headers(headers);
        if let Some(body) = &request.body {
            call = call.body(body.to_string());
        }
        match call.send().await {
            Ok(response) => {
                let status = response.status().as_u16();
                span.set_number("http.response.status_code", status.into());
                interpret(response, request).await
            }
            Err(error) if error.is_builder() => Err(not_sent("the request cannot be built")),
            Err(error) => Err(transient(&error)),
        }
    }
}

/// The output of a call, or the fault that its status stands for.
async fn interpret(response: Response, request: &StepRequest) -> Result<Value, CallFault> {
    let status = response.status();
    let may_have_run = match request.responses.classify(status.as_u16()) {
        ClassifiedResponse::Completed if status.is_success() => return output(response).await,
        // The body of an error status that the definition maps to success need not be JSON.
        ClassifiedResponse::Completed => return Ok(output(response).await.unwrap_or_default()),
        ClassifiedResponse::Retry { may_have_run } => {
            let requested = retry_after(response.headers(), SystemTime::now());
            // A service that answers with a 4xx status is available.
            let retry_after = if status.is_client_error() {
                Some(requested.unwrap_or_default())
            } else {
                requested
            };
            let reason = format!("HTTP {status}");
            return Err(CallFault::Transient { reason, retry_after, may_have_run });
        }
        ClassifiedResponse::Conflict => {
            return Err(CallFault::Conflict { reason: reason(response).await });
        }
        ClassifiedResponse::Failed => false,
        ClassifiedResponse::Unknown => true,
    };
    Err(CallFault::Permanent { reason: reason(response).await, may_have_run })
}

/// Why a service refused the request, for operators.
async fn reason(response: Response) -> String {
    let status = response.status();
    // The title of a problem document (RFC 9457) is the same for all problems of its type: it is more helpful than the
    // status and contains no payload.
    let title = match body(response).await {
        Ok(bytes) => serde_json::from_slice::<Value>(&bytes)
            .ok()
            .and_then(|problem| Some(format!(": {}", problem.get("title")?.as_str()?))),
        Err(_) => None,
    };
    format!("HTTP {status}{}", title.unwrap_or_default())
}

/// The step's output: the JSON body of the response, or null if the body is empty.
async fn output(response: Response) -> Result<Value, CallFault> {
    let bytes = body(response).await?;
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    let output: Value = serde_json::from_slice(&bytes)
        .map_err(|error| unusable_response(&format!("the response is not JSON: {error}")))?;
    if let Err(error) = std::str::from_utf8(&bytes).map_or(Ok(()), check_integers) {
        return Err(unusable_response(&format!("the response has {error}")));
    }
    if limits::nests_too_deep(&output) {
        let max = limits::JSON_DEPTH_MAX;
        return Err(unusable_response(&format!("the response nests deeper than {max} levels")));
    }
    Ok(output)
}

async fn body(mut response: Response) -> Result<Vec<u8>, CallFault> {
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| transient(&error))? {
        bytes.extend_from_slice(&chunk);
        if bytes.len() > limits::DOCUMENT_BYTES_MAX {
            let max = limits::DOCUMENT_BYTES_MAX;
            return Err(unusable_response(&format!(
                "the response exceeds the limit of {max} bytes"
            )));
        }
    }
    Ok(bytes)
}

/// `Retry-After`, in seconds or as a date (RFC 9110, 10.2.3).
fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?;
    match text.parse() {
        Ok(seconds) => Some(Duration::from_secs(seconds)),
        Err(_) => httpdate::parse_http_date(text).ok()?.duration_since(now).ok(),
    }
}

fn transient(error: &reqwest::Error) -> CallFault {
    let reason = match (error.is_timeout(), error.is_connect()) {
        (true, false) => return CallFault::TimedOut { reason: "the call timed out".to_owned() },
        (_, true) => "no connection",
        (false, false) => "the connection broke",
    };
    let may_have_run = !error.is_connect();
    CallFault::Transient { reason: reason.to_owned(), retry_after: None, may_have_run }
}

/// A fault of a request that was not sent.
fn not_sent(reason: &str) -> CallFault {
    CallFault::Permanent { reason: reason.to_owned(), may_have_run: false }
}

/// A fault of a successful call whose response cannot be stored as output.
fn unusable_response(reason: &str) -> CallFault {
    CallFault::Permanent { reason: reason.to_owned(), may_have_run: true }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let now = httpdate::parse_http_date("Fri, 20 Nov 2026 12:00:00 GMT").unwrap();
        let wait = |text: &'static str| {
            retry_after(&HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_static(text))]), now)
        };
        assert_eq!(wait("120"), Some(Duration::from_secs(120)));
        assert_eq!(wait("Fri, 20 Nov 2026 12:01:00 GMT"), Some(Duration::from_secs(60)));
        assert_eq!(wait("Fri, 20 Nov 2026 11:00:00 GMT"), None);
        assert_eq!(wait("soon"), None);
    }

    #[test]
    fn a_base_url_is_http_and_has_no_trailing_slash() {
        assert_eq!("https://pay.example/v1/".parse(), Ok(BaseUrl("https://pay.example/v1".into())));
        assert!("ftp://pay.example".parse::<BaseUrl>().is_err());
        assert!("https://pay.example/?a=1".parse::<BaseUrl>().is_err());
        let with_password = "https://me:s3cret@pay.example".parse::<BaseUrl>().unwrap_err();
        assert_eq!(
            with_password.to_string(),
            "not an http or https URL without credentials, query and fragment; send credentials in headers"
        );
    }

    #[test]
    fn an_error_about_headers_has_the_name_and_no_value() {
        let error = Headers::from_str(r#"{ "x api": "secret" }"#).unwrap_err().to_string();
        assert_eq!(error, "header `x api` is not valid");
        assert!(Headers::from_str(r#"["secret"]"#).is_err());
    }
}
