//! A remote service over HTTP. [`steward_core::model::responses`] defines the meaning of each status.

use std::{
    io,
    str::FromStr,
    sync::{Arc, PoisonError, RwLock},
    time::{Duration, SystemTime},
};

use futures_util::{StreamExt, TryStreamExt, stream};
use jiff::Timestamp;
use reqwest::{
    Body, Response, StatusCode, Url,
    header::{AUTHORIZATION, HeaderMap, LOCATION},
};
use serde_json::Value;
use steward_aws::payloads::S3Payloads;
use steward_core::{
    breaker::KeyHash,
    engine::request::size_error,
    limits,
    model::{
        call_auth::{AwsScope, CallAuth},
        error_detail::ErrorDetail,
        key_format::KeyFormat,
        messages::{HttpMethod, StepRequest},
        payload::Sha256Hex,
        request_path::{self, InvalidPath},
        responses::{ClassifiedResponse, ResponseMeaning},
    },
};
use steward_runtime::trace::TraceSpan;

pub use crate::headers::{Headers, InvalidHeaders};

use crate::{
    attempt::{CallFault, RemoteService},
    connection_fault::broken_connection,
    credentials::{Connection, Credentials},
    oauth::Token,
    payloads::{Payloads, request_payload, response_key},
    response::{CallResponse, response_value},
    response_body::{body_value, not_text, too_large_body},
    retry_after::retry_after,
    signed::{AwsSigner, SigningScope, UnknownScope},
    transport::{
        ReceivedBody, begin_call, body, body_up_to, end_call, error_body, not_sent,
        unusable_response,
    },
};

/// A client of a service with an HTTP and JSON interface. Clones share the credentials.
#[derive(Debug, Clone)]
pub struct HttpService {
    connection: Arc<RwLock<Arc<Connection>>>,
    base_url: BaseUrl,
    call_timeout: Duration,
    signer: Option<AwsSigner>,
    /// The agent's own setting, for requests without one.
    auth: Option<CallAuth>,
    key_format: KeyFormat,
    payloads: Option<Payloads>,
}

/// The settings of an [`HttpService`].
#[derive(Debug, Clone)]
pub struct HttpSettings {
    /// The URL of the service.
    pub base_url: BaseUrl,
    /// Headers of every call.
    pub headers: Headers,
    /// A call that takes longer is aborted.
    pub call_timeout: Duration,
    /// Signs calls with the agent's AWS credentials, if it has some.
    pub signer: Option<AwsSigner>,
    /// How calls are authenticated whose request does not say it.
    pub auth: Option<CallAuth>,
    /// How the service gets the idempotency key, unless the request says it.
    pub key_format: KeyFormat,
    /// The bucket of payloads. Without it, the agent sends and accepts only what fits in a message.
    pub payloads: Option<S3Payloads>,
}

impl HttpSettings {
    /// Settings without headers and signatures, and with the longest calls that an agent can make.
    #[must_use]
    pub fn new(base_url: BaseUrl) -> Self {
        let headers = Headers::default();
        Self {
            base_url,
            headers,
            call_timeout: limits::CALL_WITHIN_MAX,
            signer: None,
            auth: None,
            key_format: KeyFormat::default(),
            payloads: None,
        }
    }
}

/// Why a service cannot be used with its settings.
#[derive(Debug, thiserror::Error)]
pub enum HttpSettingsError {
    /// The TLS back end failed to initialise.
    #[error("cannot create the HTTP client")]
    Client(#[from] reqwest::Error),
    /// The signature's service or region is unknown.
    #[error("STEWARD_AGENT_AUTH: {0}")]
    Scope(#[from] UnknownScope),
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

impl BaseUrl {
    /// The URL without a trailing slash.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The URL of a request.
    ///
    /// # Errors
    /// A URL parser would not find the path in it as it is.
    fn with_path(&self, path: &str) -> Result<String, InvalidPath> {
        request_path::check(path)?;
        Ok(format!("{}{path}", self.0))
    }

    /// The host, or an empty text.
    fn host(&self) -> &str {
        let authority = self.0.split_once("://").map_or("", |(_, rest)| rest);
        let authority = authority.split('/').next().unwrap_or_default();
        authority.split(':').next().unwrap_or_default()
    }
}

impl std::fmt::Display for BaseUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl HttpService {
    /// A client with these settings.
    ///
    /// # Errors
    /// The TLS back end failed to initialise, or the settings ask for signatures whose service or region is unknown.
    pub fn new(settings: HttpSettings) -> Result<Self, HttpSettingsError> {
        let HttpSettings { base_url, headers, call_timeout, signer, auth, key_format, payloads } =
            settings;
        if let Some(CallAuth::Aws(scope)) = &auth {
            SigningScope::of(scope, base_url.host())?;
        }
        let connection = Connection::new(call_timeout, headers)?;
        let connection = Arc::new(RwLock::new(Arc::new(connection)));
        let payloads = payloads.map(Payloads::new);
        Ok(Self { connection, base_url, call_timeout, signer, auth, key_format, payloads })
    }

    /// Replaces the credentials for all later calls. The open connections and the current token are kept if the new
    /// credentials say the same about them.
    ///
    /// # Errors
    /// The TLS back end failed to initialise. The credentials are as before.
    pub fn set_credentials(&self, credentials: Credentials) -> Result<(), reqwest::Error> {
        let connection = self.connection().with(credentials)?;
        *self.connection.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(connection);
        Ok(())
    }

    fn connection(&self) -> Arc<Connection> {
        Arc::clone(&self.connection.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl RemoteService for HttpService {
    async fn call(
        &self,
        request: &StepRequest,
        traceparent: Option<&str>,
    ) -> Result<CallResponse, CallFault> {
        let mut span = begin_call(request, traceparent);
        let own = span.traceparent();
        let result = self.send(request, own.as_deref().or(traceparent), &mut span).await;
        end_call(span, &result);
        result
    }

    fn address(&self) -> KeyHash {
        KeyHash::new(self.base_url.as_str())
    }
}

impl HttpService {
    /// Makes one call. Adds the method and the status to `span`.
    async fn send(
        &self,
        request: &StepRequest,
        traceparent: Option<&str>,
        span: &mut TraceSpan,
    ) -> Result<CallResponse, CallFault> {
        let method = match request.method {
            HttpMethod::Get => reqwest::Method::GET,
            HttpMethod::Post => reqwest::Method::POST,
            HttpMethod::Put => reqwest::Method::PUT,
            HttpMethod::Patch => reqwest::Method::PATCH,
            HttpMethod::Delete => reqwest::Method::DELETE,
        };
        let url = self.base_url.with_path(&request.path);
        let url = url.map_err(|why| not_sent(&format!("the request's path {why}")))?;
        span.set("http.request.method", &method);
        let connection = self.connection();
        let payload = request_payload(self.payloads.as_ref(), request).await?;
        let (payload, body) = payload.map(|payload| (payload.reference, payload.body)).unzip();
        let headers = connection.headers(request, traceparent, payload.as_ref(), &self.key_format);
        let headers =
            headers.map_err(|why| not_sent(&format!("the request cannot be built: {why}")))?;
        let client = connection.client_for(request);
        let client = client.map_err(|_| not_sent("the HTTP client cannot be created"))?;
        let mut call = client.request(method, url).headers(headers);
        if let Some(body) = body.or_else(|| Some(request.body.as_ref()?.to_string().into())) {
            call = call.body(body);
        }
        let mut call = call.build().map_err(|_| not_sent("the request cannot be built"))?;
        let digest = payload.as_ref().map(|payload| &payload.sha256);
        let token = self.authenticate(&mut call, digest, request, &connection).await?;
        match client.execute(call).await {
            Ok(response) => {
                let status = response.status();
                span.set_number("http.response.status_code", status.as_u16().into());
                if let Some(token) = token {
                    connection.check_token(&token, status, request)?;
                }
                let payloads = self.payloads.as_ref();
                let result = interpret(response, request, payloads, Timestamp::now()).await;
                match result {
                    Err(CallFault::Permanent { reason, may_have_run: true, detail })
                        if status.is_redirection()
                            && !request.responses.contains(status.as_u16()) =>
                    {
                        Err(CallFault::Redirected { reason, detail })
                    }
                    result => result,
                }
            }
            Err(error) => Err(broken_connection(&error)),
        }
    }

    /// Signs a call if its request or the agent's configuration says so. A step can sign only calls to the agent's own
    /// service, with the permissions of the agent's role. A call without a signature gets a bearer token, which is returned,
    /// if the credentials say where to get one. `digest` is that of a body that is streamed.
    async fn authenticate(
        &self,
        call: &mut reqwest::Request,
        digest: Option<&Sha256Hex>,
        request: &StepRequest,
        connection: &Connection,
    ) -> Result<Option<Arc<Token>>, CallFault> {
        let Some(CallAuth::Aws(scope)) = request.auth.as_ref().or(self.auth.as_ref()) else {
            let Some(tokens) = &connection.tokens else { return Ok(None) };
            let requested = Duration::from_millis(request.call_within_ms);
            let call_within = requested.min(self.call_timeout);
            let token = tokens.token(&connection.client, call_within).await?;
            call.headers_mut().insert(AUTHORIZATION, token.authorization.clone());
            return Ok(Some(token));
        };
        let Some(signer) = &self.signer else {
            return Err(not_sent("`auth: aws`: this agent has no AWS credentials"));
        };
        // What the request leaves open is as the agent is configured.
        let configured = self.auth.as_ref().map(|CallAuth::Aws(scope)| scope);
        let scope = AwsScope {
            service: scope.service.clone().or_else(|| configured?.service.clone()),
            region: scope.region.clone().or_else(|| configured?.region.clone()),
        };
        let scope = SigningScope::of(&scope, self.base_url.host())
            .map_err(|error| not_sent(&error.to_string()))?;
        let signed = signer.sign(call, digest, &scope, SystemTime::now()).await;
        signed.map_err(|error| not_sent(&error.to_string()))?;
        Ok(None)
    }
}

/// What a call means for its step if the service answers with this status, headers and body, such as in a test of a
/// workflow. The same code reads the answers of real services.
///
/// # Errors
/// The fault that the answer stands for. A status that HTTP does not define, below 100 or above 999, is a fault too.
pub(crate) async fn interpret_answer(
    status: u16,
    headers: HeaderMap,
    body: Vec<u8>,
    request: &StepRequest,
    now: Timestamp,
) -> Result<CallResponse, CallFault> {
    let mut response = http::Response::new(body);
    *response.status_mut() =
        StatusCode::from_u16(status).map_err(|_| not_sent("there is no such HTTP status"))?;
    *response.headers_mut() = headers;
    interpret(Response::from(response), request, None, now).await
}

/// The response to a successful call, or the fault that the response stands for.
async fn interpret(
    response: Response,
    request: &StepRequest,
    payloads: Option<&Payloads>,
    now: Timestamp,
) -> Result<CallResponse, CallFault> {
    let (ResponseMeaning { class, pause }, response) = meaning(response, request, now).await?;
    let status = response.status();
    let may_have_run = match class {
        ClassifiedResponse::Completed => {
            let headers = response.headers().clone();
            let body = match output_body(response, request, payloads).await {
                // The definition maps an error to success.
                Err(_) if !status.is_success() => Ok(Value::Null),
                body => body,
            };
            return Ok(CallResponse { status: status.as_u16(), headers, body });
        }
        ClassifiedResponse::Retry { may_have_run } => {
            let requested = retry_after(response.headers(), now.into()).max(pause);
            // A service that answers with another status than 5xx is available, such as with 202 until its work is done.
            let retry_after = if status.is_server_error() {
                requested
            } else {
                Some(requested.unwrap_or_default())
            };
            let (reason, detail) = refusal(response, request).await;
            return Err(CallFault::Transient { reason, retry_after, may_have_run, detail });
        }
        ClassifiedResponse::Conflict => {
            let retry_after = retry_after(response.headers(), now.into());
            let (reason, detail) = refusal(response, request).await;
            return Err(CallFault::Conflict { reason, retry_after, detail });
        }
        ClassifiedResponse::Failed => false,
        ClassifiedResponse::Unknown => true,
    };
    let (reason, detail) = refusal(response, request).await;
    Err(CallFault::Permanent { reason, may_have_run, detail })
}

/// What a response means, and the response as it was. Its body is read only if its meaning depends on it.
async fn meaning(
    mut response: Response,
    request: &StepRequest,
    now: Timestamp,
) -> Result<(ResponseMeaning, Response), CallFault> {
    let status = response.status();
    let of = |value: &Value| request.responses.meaning(status.as_u16(), value, now);
    if !request.responses.is_conditional(status.as_u16()) {
        return Ok((of(&Value::Null), response));
    }
    let ReceivedBody { bytes, is_complete } = match status.is_success() {
        true => body_up_to(&mut response, limits::RESPONSE_BYTES_MAX).await?,
        false => error_body(&mut response, request).await,
    };
    let value = is_complete.then(|| body_value(&bytes)).flatten();
    let value = response_value(status.as_u16(), response.headers(), value);
    // What an error says in the rest of its body does not change its default meaning. A success might be an error.
    if status.is_success() && !is_complete && request.responses.needs_body(status.as_u16(), &value)
    {
        return Err(unusable_response(&format!(
            "HTTP {status}: `responses` judges the body, and it exceeds the limit of {} bytes",
            limits::RESPONSE_BYTES_MAX
        )));
    }
    let meaning = of(&value);
    let mut again = http::Response::new(Body::default());
    (*again.status_mut(), *again.headers_mut()) = (status, response.headers().clone());
    let first = stream::once(async { Ok(bytes::Bytes::from(bytes)) });
    *again.body_mut() = match (is_complete, status.is_success()) {
        (true, _) => Body::wrap_stream(first),
        (false, true) => {
            Body::wrap_stream(first.chain(response.bytes_stream().map_err(io::Error::other)))
        }
        // It broke, took too long, or is too large: no second reader waits for the rest or takes it for complete.
        (false, false) => Body::wrap_stream(first.chain(stream::once(async {
            Err(io::Error::other("the rest of the body is not read"))
        }))),
    };
    Ok((meaning, again.into()))
}

/// The body of a response as a value. If there is a bucket, a body that is no text or too large for a message is stored, and the
/// result is the reference to it, unless the request selects its output from the body.
async fn output_body(
    mut response: Response,
    request: &StepRequest,
    payloads: Option<&Payloads>,
) -> Result<Value, CallFault> {
    let ReceivedBody { bytes, is_complete } = body(&mut response, request).await?;
    let value = is_complete.then(|| body_value(&bytes)).flatten();
    // Text may be longer as JSON than it was.
    let fits = value.as_ref().is_some_and(|value| size_error("output", value).is_none());
    match (value, payloads, response_key(request)) {
        (Some(value), Some(_), Some(_)) if fits => Ok(value),
        (Some(value), None, _) | (Some(value), _, None) => Ok(value),
        (_, Some(payloads), Some(key)) => payloads.store(key, bytes, response).await,
        (None, ..) if is_complete => Ok(not_text(&bytes)),
        (None, ..) => too_large_body(request),
    }
}

/// Why a service refused the request: the reason, with no word of the service, and what the service said.
async fn refusal(mut response: Response, request: &StepRequest) -> (String, Option<ErrorDetail>) {
    let status = response.status();
    let target = redirect_target(&response);
    let ReceivedBody { mut bytes, is_complete } = error_body(&mut response, request).await;
    if !is_complete && !bytes.is_empty() {
        bytes.extend_from_slice("…".as_bytes());
    }
    // By the definition: `responses` or `until`.
    let judged = if status.is_success() { ", not judged a success" } else { "" };
    (format!("HTTP {status}{target}{judged}"), ErrorDetail::of_body(&bytes))
}

/// Where a redirect leads, for a reason: scheme, host and port. A path may be payload, so of one on the same host only what is
/// usually wrong is said.
fn redirect_target(response: &Response) -> String {
    let location = response.headers().get(LOCATION).and_then(|value| value.to_str().ok());
    let location = location.filter(|_| response.status().is_redirection());
    if location.is_some_and(|location| location.starts_with('/') && !location.starts_with("//")) {
        return " to another path of this host, perhaps only with or without a `/` at its end"
            .to_owned();
    }
    let target = location.and_then(|location| Url::parse(location).ok());
    let target = target.filter(|target| matches!(target.scheme(), "http" | "https"));
    target
        .map(|target| format!(" to {}", target.origin().ascii_serialization()))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every path of up to five of these parts that is accepted is found by the URL parser as it is.
    #[test]
    fn an_accepted_path_is_in_the_url_as_it_was_written() {
        const PARTS: [&str; 10] = ["/", ".", "%2e", "\\", "\t", "\n", " ", "#", "?", "a"];
        let base: BaseUrl = "https://pay.example/v1".parse().unwrap();
        let (mut paths, mut accepted) = (vec![String::new()], 0);
        for _ in 0..5 {
            paths = paths.iter().flat_map(|p| PARTS.map(|part| format!("{p}{part}"))).collect();
            for path in &paths {
                let Ok(url) = base.with_path(path) else { continue };
                let parsed = Url::parse(&url).unwrap();
                assert_eq!(parsed.as_str().replace("%20", " "), url, "{path:?}");
                accepted += 1;
            }
        }
        assert!(accepted > 900, "{accepted}");
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
}
