//! The response of a service, before an entry point converts it to its own type of HTTP response.
//!
//! An AWS error contains its type twice: in the body (`__type`) and in `x-amzn-errortype`. SQS adds the error
//! code of its older protocol in `x-amzn-query-error`, which its SDKs prefer.

use bytes::Bytes;
use serde_json::json;

use super::request::REQUEST_BYTES_MAX;

/// Status, JSON body, and the type of an error.
#[derive(Debug)]
pub(super) struct ServiceResponse {
    pub(super) status: u16,
    pub(super) body: Bytes,
    pub(super) error_type: Option<String>,
    pub(super) query_error: Option<String>,
}

impl ServiceResponse {
    /// A success with a JSON body.
    pub(super) fn ok(body: impl Into<Bytes>) -> Self {
        Self { status: 200, body: body.into(), error_type: None, query_error: None }
    }

    /// An error caused by the caller, in AWS's format.
    pub(super) fn client_error(status: u16, error_type: &str, message: &str) -> Self {
        let body = json!({ "__type": error_type, "message": message }).to_string();
        Self::error(status, error_type, body)
    }

    /// An error with a given body. `error_type` may have a namespace before a `#`.
    pub(super) fn error(status: u16, error_type: &str, body: impl Into<Bytes>) -> Self {
        let name = error_type.rsplit('#').next().unwrap_or(error_type);
        Self { status, body: body.into(), error_type: Some(name.to_owned()), query_error: None }
    }

    /// The error for a body over [`REQUEST_BYTES_MAX`].
    pub(super) fn too_large() -> Self {
        let message =
            format!("The embedded AWS accepts at most {REQUEST_BYTES_MAX} bytes in a request.");
        Self::client_error(413, "RequestEntityTooLargeException", &message)
    }

    /// The error for a request whose service is at the external endpoint `url`.
    pub(super) fn external(target: &str, url: &str) -> Self {
        let message = format!("This process does not serve '{target}': send the request to {url}.");
        Self::client_error(400, "com.amazon.coral.service#UnknownOperationException", &message)
    }

    /// The error for a service or operation that the embedded AWS does not have.
    pub(super) fn unknown_operation(target: &str) -> Self {
        let message = format!("The embedded AWS has no operation '{target}'.");
        Self::client_error(400, "com.amazon.coral.service#UnknownOperationException", &message)
    }

    /// The headers of this response, including a request id.
    pub(super) fn headers(&self) -> impl Iterator<Item = (&'static str, String)> {
        [
            Some(("content-type", "application/x-amz-json-1.0".to_owned())),
            Some(("x-amzn-requestid", uuid::Uuid::new_v4().to_string())),
            self.error_type.clone().map(|name| ("x-amzn-errortype", name)),
            self.query_error.clone().map(|code| ("x-amzn-query-error", code)),
        ]
        .into_iter()
        .flatten()
    }
}
