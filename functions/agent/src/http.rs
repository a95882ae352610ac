//! HTTP as a remote service. What each status means is in [`steward_core::model::responses`].

use std::{
    collections::BTreeMap,
    str::FromStr,
    sync::{Arc, PoisonError, RwLock},
    time::{Duration, SystemTime},
};

use crate::attempt::{Fault, RemoteService};
use reqwest::{
    Client, Response, Url,
    header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, InvalidHeaderValue, RETRY_AFTER},
};
use serde_json::Value;
use steward_core::{
    limits,
    model::{
        integers::check_integers,
        messages::{Method, StepRequest},
        responses::ResponseMeaning,
    },
};
use steward_runtime::trace::{self, Span, SpanKind};

/// A service that speaks HTTP and JSON. Its clones share the headers.
#[derive(Debug, Clone)]
pub struct HttpService {
    client: Client,
    base_url: BaseUrl,
    headers: Arc<RwLock<Headers>>,
}

/// The URL that the paths of requests are put after.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BaseUrl(String);

/// A text that is no base URL; the message does not repeat it, for it may hold a password.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "not an http or https URL without credentials, query and fragment; credentials go in headers"
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

/// Headers of every call, from a JSON object. Their values may be secrets and are never printed.
#[derive(Debug, Clone, Default)]
pub struct Headers(HeaderMap);

/// Headers that are none; the message never holds a value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidHeaders {
    /// Not an object of texts.
    #[error("not a JSON object of texts")]
    NotAnObject,
    /// A header's name or value has characters that none may have.
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
    /// These, with the others added; of two with one name, the other stays.
    #[must_use]
    pub fn overlaid(mut self, others: Self) -> Self {
        self.0.extend(others.0);
        self
    }
}

/// How long a connection to a service is kept that nobody uses. While Lambda has the function frozen the other side may
/// close it, and a call on it would fail for nothing.
const IDLE_WITHIN: Duration = Duration::from_secs(5);

impl HttpService {
    /// A client for `base_url`; one call may take `call_timeout`, after which it is cut off.
    ///
    /// # Errors
    /// The TLS back end could not start.
    pub fn new(
        base_url: BaseUrl,
        headers: Headers,
        call_timeout: Duration,
    ) -> reqwest::Result<Self> {
        let client = Client::builder()
            .timeout(call_timeout)
            .pool_idle_timeout(IDLE_WITHIN)
            .redirect(reqwest::redirect::Policy::none())
            .build()?;
        Ok(Self { client, base_url, headers: Arc::new(RwLock::new(headers)) })
    }

    /// Replaces the headers of every call that is yet to come.
    pub fn set_headers(&self, headers: Headers) {
        *self.headers.write().unwrap_or_else(PoisonError::into_inner) = headers;
    }

    /// The headers of one call: where a configured one has the same name, Steward's own stays.
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
    async fn call(&self, request: &StepRequest, traceparent: Option<&str>) -> Result<Value, Fault> {
        let mut span = Span::begin("call", SpanKind::Client, traceparent);
        span.set_request(request);
        let own = span.traceparent();
        let answer = self.send(request, own.as_deref().or(traceparent), &mut span).await;
        match &answer {
            Ok(_) => span.end("completed"),
            Err(Fault::Transient { .. }) => span.fail("transient fault"),
            Err(Fault::Permanent { .. }) => span.fail("permanent fault"),
            Err(Fault::Conflict { .. }) => span.fail("conflict"),
            Err(Fault::Cut { .. }) => span.fail("cut off"),
        }
        answer
    }
}

impl HttpService {
    /// Makes one call; `span` learns what HTTP says of it.
    async fn send(
        &self,
        request: &StepRequest,
        traceparent: Option<&str>,
        span: &mut Span,
    ) -> Result<Value, Fault> {
        let method = match request.method {
            Method::Get => reqwest::Method::GET,
            Method::Post => reqwest::Method::POST,
            Method::Put => reqwest::Method::PUT,
            Method::Patch => reqwest::Method::PATCH,
            Method::Delete => reqwest::Method::DELETE,
        };
        // Behind a host, anything but a slash would make it another host.
        if !request.path.starts_with('/') {
            return Err(permanent("the request's path does not start with `/`"));
        }
        span.set("http.request.method", &method);
        let url = format!("{}{}", self.base_url.0, request.path);
        let headers = self
            .headers(request, traceparent)
            .map_err(|_| permanent("the request cannot be built"))?;
        let mut call = self.client.request(method, url).headers(headers);
        if let Some(body) = &request.body {
            call = call.body(body.to_string());
        }
        match call.send().await {
            Ok(response) => {
                let status = response.status().as_u16();
                span.set_number("http.response.status_code", status.into());
                answer(response, request).await
            }
            Err(error) if error.is_builder() => Err(permanent("the request cannot be built")),
            Err(error) => Err(transient(&error)),
        }
    }
}

async fn answer(response: Response, request: &StepRequest) -> Result<Value, Fault> {
    let status = response.status();
    let may_have_run = match request.responses.meaning(status.as_u16()) {
        ResponseMeaning::Completed if status.is_success() => return output(response).await,
        // An error that a definition takes for success need not be JSON.
        ResponseMeaning::Completed => return Ok(output(response).await.unwrap_or_default()),
        ResponseMeaning::Retry { may_have_run } => {
            let asked = retry_after(response.headers(), SystemTime::now());
            // A service that says what is wrong with the request, if only "not now", is alive.
            let retry_after =
                if status.is_client_error() { Some(asked.unwrap_or_default()) } else { asked };
            let reason = format!("HTTP {status}");
            return Err(Fault::Transient { reason, retry_after, may_have_run });
        }
        ResponseMeaning::Conflict => {
            return Err(Fault::Conflict { reason: reason(response).await });
        }
        ResponseMeaning::Failed => false,
        ResponseMeaning::Unknown => true,
    };
    Err(Fault::Permanent { reason: reason(response).await, may_have_run })
}

/// Why a service refused, for people.
async fn reason(response: Response) -> String {
    let status = response.status();
    // The title of a problem document (RFC 9457) is the same for all problems of its kind: it tells
    // the operator more than the status, and nothing of the payload.
    let title = match body(response).await {
        Ok(bytes) => serde_json::from_slice::<Value>(&bytes)
            .ok()
            .and_then(|problem| Some(format!(": {}", problem.get("title")?.as_str()?))),
        Err(_) => None,
    };
    format!("HTTP {status}{}", title.unwrap_or_default())
}

/// The step's output: the JSON that the service returned, or null if it returned nothing.
async fn output(response: Response) -> Result<Value, Fault> {
    let bytes = body(response).await?;
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    let output: Value = serde_json::from_slice(&bytes)
        .map_err(|error| useless(&format!("the reply is not JSON: {error}")))?;
    if let Err(error) = std::str::from_utf8(&bytes).map_or(Ok(()), check_integers) {
        return Err(useless(&format!("the reply has {error}")));
    }
    if limits::too_deep(&output) {
        let max = limits::JSON_DEPTH_MAX;
        return Err(useless(&format!("the reply nests deeper than {max} levels")));
    }
    Ok(output)
}

async fn body(mut response: Response) -> Result<Vec<u8>, Fault> {
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| transient(&error))? {
        bytes.extend_from_slice(&chunk);
        if bytes.len() > limits::DOCUMENT_BYTES_MAX {
            let max = limits::DOCUMENT_BYTES_MAX;
            return Err(useless(&format!("the reply is over the limit of {max} bytes")));
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

fn transient(error: &reqwest::Error) -> Fault {
    let reason = match (error.is_timeout(), error.is_connect()) {
        (true, false) => return Fault::Cut { reason: "the call timed out".to_owned() },
        (_, true) => "no connection",
        (false, false) => "the connection broke",
    };
    let may_have_run = !error.is_connect();
    Fault::Transient { reason: reason.to_owned(), retry_after: None, may_have_run }
}

/// A request that was not sent.
fn permanent(reason: &str) -> Fault {
    Fault::Permanent { reason: reason.to_owned(), may_have_run: false }
}

/// An answer that cannot be kept, to a call that went well.
fn useless(reason: &str) -> Fault {
    Fault::Permanent { reason: reason.to_owned(), may_have_run: true }
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
    fn a_base_url_is_http_and_ends_without_a_slash() {
        assert_eq!("https://pay.example/v1/".parse(), Ok(BaseUrl("https://pay.example/v1".into())));
        assert!("ftp://pay.example".parse::<BaseUrl>().is_err());
        assert!("https://pay.example/?a=1".parse::<BaseUrl>().is_err());
        let with_password = "https://me:s3cret@pay.example".parse::<BaseUrl>().unwrap_err();
        assert_eq!(
            with_password.to_string(),
            "not an http or https URL without credentials, query and fragment; credentials go in headers"
        );
    }

    #[test]
    fn wrong_headers_are_named_and_their_values_are_not() {
        let error = Headers::from_str(r#"{ "x api": "secret" }"#).unwrap_err().to_string();
        assert_eq!(error, "header `x api` is not valid");
        assert!(Headers::from_str(r#"["secret"]"#).is_err());
    }
}
