//! Payloads of an HTTP agent: an object is sent as the body of a request, and a large response is stored as an object. Both are
//! streamed.

use std::sync::Arc;

use futures_util::stream;
use reqwest::{
    Body, Response,
    header::{CONTENT_TYPE, HeaderMap},
};
use serde_json::Value;
use steward_aws::payloads::{
    S3Payloads,
    transfer::{Chunks, PayloadBody, StoreFault},
};
use steward_core::model::{
    messages::StepRequest,
    payload::{ContentType, PayloadKey, PayloadReference, may_be_reference},
};
use steward_runtime::ports::{PortError, error_chain};
use tokio::sync::Semaphore;

use crate::{
    attempt::CallFault, connection_fault::broken_connection, response_body::too_large,
    transport::not_sent,
};

/// Responses that are stored at the same time. Each holds one part of 5 MiB in memory; the others wait.
const STORED_AT_ONCE: usize = 8;

/// The bucket of an agent. Clones share the limit of concurrent transfers.
#[derive(Debug, Clone)]
pub(crate) struct Payloads {
    bucket: S3Payloads,
    storing: Arc<Semaphore>,
}

/// The payload that is the body of a request.
pub(crate) struct RequestPayload {
    pub(crate) reference: PayloadReference,
    pub(crate) body: Body,
}

impl Payloads {
    pub(crate) fn new(bucket: S3Payloads) -> Self {
        Self { bucket, storing: Arc::new(Semaphore::new(STORED_AT_ONCE)) }
    }

    /// Opens the object of a reference in a request.
    async fn open(&self, reference: PayloadReference) -> Result<RequestPayload, CallFault> {
        let opened = self.bucket.open(&reference.key).await;
        let opened = opened.map_err(|error| bucket_fault(&error, false))?;
        check_object(&reference, opened.as_ref().map(|object| object.bytes))?;
        let PayloadBody { mut content, .. } = opened.ok_or_else(|| not_sent(MISSING))?;
        let chunks =
            stream::poll_fn(move |context| std::pin::Pin::new(&mut content).poll_next(context));
        Ok(RequestPayload { reference, body: Body::wrap_stream(chunks) })
    }

    /// Stores a response, of which `first` has been received, as an object. Returns the reference, or what stands for a response
    /// that is too large to be stored.
    pub(crate) async fn store(
        &self,
        key: PayloadKey,
        first: Vec<u8>,
        response: Response,
    ) -> Result<Value, CallFault> {
        let _permit = self.storing.acquire().await;
        let content_type = content_type(response.headers());
        let mut rest = ResponseChunks(response);
        match self.bucket.store(key, content_type, first, &mut rest).await {
            Ok(reference) => Ok(reference.to_value()),
            Err(StoreFault::TooLarge) => Ok(too_large()),
            Err(StoreFault::Source(error)) => Err(broken_connection(&error)),
            Err(StoreFault::Bucket(error)) => Err(bucket_fault(&error, true)),
        }
    }
}

/// The payload that is the body of a request, if its whole body is a reference.
pub(crate) async fn request_payload(
    payloads: Option<&Payloads>,
    request: &StepRequest,
) -> Result<Option<RequestPayload>, CallFault> {
    let Some(reference) = requested_payload(request)? else { return Ok(None) };
    let Some(payloads) = payloads else {
        return Err(not_sent("the body is a payload, and this agent has no bucket of payloads"));
    };
    payloads.open(reference).await.map(Some)
}

const MISSING: &str = "the payload of the request does not exist: it was deleted";

/// The reference that is the whole body of a request, if it is one: the agent sends the object in its place. The agent of a
/// simulation without HTTP decides so, too.
///
/// # Errors
/// The reference is malformed, or the object does not belong to the task. Nothing was read or sent.
pub fn requested_payload(request: &StepRequest) -> Result<Option<PayloadReference>, CallFault> {
    let Some(body) = request.body.as_ref().filter(|body| may_be_reference(body.as_str())) else {
        return Ok(None);
    };
    let Some(reference) = PayloadReference::of(&body.value()) else { return Ok(None) };
    let reference = reference.map_err(|error| not_sent(&format!("the body is {error}")))?;
    if !request.place().contains(&reference.key) {
        return Err(not_sent("the payload of the request does not belong to its task"));
    }
    Ok(Some(reference))
}

/// Checks an object that is to be sent against its reference. `bytes` are those of the object, `None` if there is none.
///
/// # Errors
/// There is no such object, or it has another size. Nothing was sent.
pub fn check_object(reference: &PayloadReference, bytes: Option<u64>) -> Result<(), CallFault> {
    match bytes {
        None => Err(not_sent(MISSING)),
        Some(bytes) if bytes != reference.bytes => {
            Err(not_sent("the payload of the request has another size than its reference"))
        }
        Some(_) => Ok(()),
    }
}

/// The key under which a response is stored that is too large for a message. `None` if it must not be stored: the request
/// selects its output from the body.
#[must_use]
pub fn response_key(request: &StepRequest) -> Option<PayloadKey> {
    let key = || request.place().output_key(&request.step, request.action, request.attempt);
    request.output.is_none().then(key)
}

/// A fault of the bucket, which says nothing about the service. `may_have_run` says whether the service was called.
#[must_use]
pub fn bucket_fault(error: &PortError, may_have_run: bool) -> CallFault {
    tracing::warn!(error = error_chain(error), "payload not transferred");
    let reason = "the bucket of payloads cannot be used".to_owned();
    match error.retryable {
        true => {
            let retry_after = Some(std::time::Duration::ZERO);
            CallFault::Transient { reason, retry_after, may_have_run, detail: None }
        }
        false => CallFault::Permanent { reason, may_have_run, detail: None },
    }
}

/// The type of a response. A type that cannot be stored is that of any bytes.
fn content_type(headers: &HeaderMap) -> ContentType {
    let text = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    text.and_then(|text| text.parse().ok()).unwrap_or_default()
}

struct ResponseChunks(Response);

impl Chunks for ResponseChunks {
    type Error = reqwest::Error;

    async fn next(&mut self) -> Result<Option<bytes::Bytes>, reqwest::Error> {
        self.0.chunk().await
    }
}
