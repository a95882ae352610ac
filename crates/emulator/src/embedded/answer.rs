//! What a service answers, before a door makes it an HTTP response of its own kind.
//!
//! An AWS error names its type twice: in the body (`__type`) and in `x-amzn-errortype`. SQS adds
//! the code of its older protocol in `x-amzn-query-error`, which its SDKs prefer.

use bytes::Bytes;
use serde_json::json;

use super::REQUEST_BYTES_MAX;

/// A service's answer: status, JSON body, and what an error is called.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: Bytes,
    pub(super) error_type: Option<String>,
    pub(super) query_error: Option<String>,
}

impl Answer {
    /// Success with a JSON body.
    pub(super) fn ok(body: impl Into<Bytes>) -> Self {
        Self { status: 200, body: body.into(), error_type: None, query_error: None }
    }

    /// An error the caller made, in AWS's shape.
    pub(super) fn refused(status: u16, error_type: &str, message: &str) -> Self {
        let body = json!({ "__type": error_type, "message": message }).to_string();
        Self::error(status, error_type, body)
    }

    /// An error with a body of its own; `error_type` may carry a namespace before a `#`.
    pub(super) fn error(status: u16, error_type: &str, body: impl Into<Bytes>) -> Self {
        let name = error_type.rsplit('#').next().unwrap_or(error_type);
        Self { status, body: body.into(), error_type: Some(name.to_owned()), query_error: None }
    }

    /// The body is over [`REQUEST_BYTES_MAX`].
    pub(super) fn too_large() -> Self {
        let message =
            format!("The embedded AWS takes at most {REQUEST_BYTES_MAX} bytes a request.");
        Self::refused(413, "RequestEntityTooLargeException", &message)
    }

    /// The service is at `url`.
    pub(super) fn elsewhere(target: &str, url: &str) -> Self {
        let message = format!("'{target}' is not answered here: the service is at {url}.");
        Self::refused(400, "com.amazon.coral.service#UnknownOperationException", &message)
    }

    /// No such service or operation here.
    pub(super) fn unknown_operation(target: &str) -> Self {
        let message = format!("The embedded AWS has no operation '{target}'.");
        Self::refused(400, "com.amazon.coral.service#UnknownOperationException", &message)
    }

    /// The headers of this answer, request id included.
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
