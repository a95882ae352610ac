//! What all kinds of agents share: the HTTP client, spans, and reading bodies up to a limit.

use std::time::Duration;

use reqwest::{Certificate, Client, ClientBuilder, Response};
use steward_core::{limits, model::messages::StepRequest};
use steward_runtime::trace::{SpanKind, TraceSpan};
use tokio::time::{Instant, timeout_at};

use crate::{call_fault::CallFault, connection_fault::broken_connection};

/// How long an idle connection to a service is kept: shorter than servers do, some of which close it after 2 s. A call over
/// a connection that the service closes at that moment would fail without need.
const IDLE_TIMEOUT: Duration = Duration::from_millis(1_500);

const _: () =
    assert!(IDLE_TIMEOUT.as_millis() < 2_000, "some servers close a connection after 2 s");

/// The longest name of an error that a reason contains, in bytes.
const ERROR_NAME_BYTES_MAX: usize = 100;

/// A client whose calls are aborted if they take longer than `call_timeout`. It does not follow redirects.
pub(crate) fn client(call_timeout: Duration) -> reqwest::Result<Client> {
    client_trusting(call_timeout, Vec::new())
}

/// The same, of which services may also have certificates of these authorities.
pub(crate) fn client_trusting(
    call_timeout: Duration,
    authorities: Vec<Certificate>,
) -> reqwest::Result<Client> {
    builder(call_timeout, authorities).build()
}

/// The same, which opens a connection for each call.
pub(crate) fn single_use_client(
    call_timeout: Duration,
    authorities: Vec<Certificate>,
) -> reqwest::Result<Client> {
    builder(call_timeout, authorities).pool_max_idle_per_host(0).build()
}

fn builder(call_timeout: Duration, authorities: Vec<Certificate>) -> ClientBuilder {
    Client::builder()
        .tls_certs_merge(authorities)
        .timeout(call_timeout)
        .pool_idle_timeout(IDLE_TIMEOUT)
        .redirect(reqwest::redirect::Policy::none())
}

/// Begins the span of one call.
pub(crate) fn begin_call(request: &StepRequest, traceparent: Option<&str>) -> TraceSpan {
    let mut span = TraceSpan::begin("call", SpanKind::Client, traceparent);
    span.set_request(request);
    span
}

/// Ends the span of one call.
pub(crate) fn end_call<T>(span: TraceSpan, result: &Result<T, CallFault>) {
    match result {
        Ok(_) => span.end("completed"),
        Err(CallFault::Transient { .. }) => span.fail("transient fault"),
        Err(CallFault::Permanent { .. }) => span.fail("permanent fault"),
        Err(CallFault::Redirected { .. }) => span.fail("redirect"),
        Err(CallFault::Conflict { .. }) => span.fail("conflict"),
        Err(CallFault::TimedOut { .. }) => span.fail("timed out"),
    }
}

/// The largest body of a response to a request, in bytes. If the request selects its output from the response, the body may
/// be larger than an output.
pub(crate) fn body_bytes_max(request: &StepRequest) -> usize {
    match request.output {
        Some(_) => limits::RESPONSE_BYTES_MAX,
        None => limits::DOCUMENT_BYTES_MAX,
    }
}

/// The body of the response to a request, up to the first bytes over its limit.
pub(crate) async fn body(
    response: &mut Response,
    request: &StepRequest,
) -> Result<ReceivedBody, CallFault> {
    body_up_to(response, body_bytes_max(request)).await
}

/// The body of a response, up to the first bytes over the limit of `max` bytes.
pub(crate) async fn body_up_to(
    response: &mut Response,
    max: usize,
) -> Result<ReceivedBody, CallFault> {
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| broken_connection(&error))? {
        bytes.extend_from_slice(&chunk);
        if bytes.len() > max {
            return Ok(ReceivedBody { bytes, is_complete: false });
        }
    }
    Ok(ReceivedBody { bytes, is_complete: true })
}

/// A body, as far as it was read.
#[derive(Debug)]
pub(crate) struct ReceivedBody {
    pub(crate) bytes: Vec<u8>,
    /// Whether this is the whole body.
    pub(crate) is_complete: bool,
}

impl ReceivedBody {
    /// The whole body.
    pub(crate) fn whole(&self) -> Option<&[u8]> {
        self.is_complete.then_some(&self.bytes)
    }
}

/// The longest wait for the body of an error; half the time of a call, if that is shorter.
const ERROR_BODY_WITHIN: Duration = Duration::from_secs(2);

/// The body of an error. That the body is too large, breaks off or takes too long does not change what the status says.
pub(crate) async fn error_body(response: &mut Response, request: &StepRequest) -> ReceivedBody {
    let mut bytes = Vec::new();
    let half = Duration::from_millis(request.call_within_ms / 2);
    let end = Instant::now() + half.min(ERROR_BODY_WITHIN);
    while bytes.len() <= limits::DOCUMENT_BYTES_MAX {
        match timeout_at(end, response.chunk()).await {
            Ok(Ok(Some(chunk))) => bytes.extend_from_slice(&chunk),
            Ok(Ok(None)) => return ReceivedBody { bytes, is_complete: true },
            Ok(Err(_)) | Err(_) => break,
        }
    }
    ReceivedBody { bytes, is_complete: false }
}

/// A fault of a request that was not sent.
pub(crate) fn not_sent(reason: &str) -> CallFault {
    CallFault::Permanent { reason: reason.to_owned(), may_have_run: false, detail: None }
}

/// A fault of a successful call whose response cannot be stored as output.
pub(crate) fn unusable_response(reason: &str) -> CallFault {
    let reason = limits::short_line(reason, limits::REASON_CHARS_MAX);
    CallFault::Permanent { reason, may_have_run: true, detail: None }
}

/// `name` if it is a single word, as the names of errors are. Anything else may be payload.
pub(crate) fn error_word(name: &str) -> Option<&str> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'$');
    let is_word = (1..=ERROR_NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(is_plain);
    is_word.then_some(name)
}
