//! The same services over HTTP, for the AWS CLI and for SDKs in other processes.
//!
//! `aws --endpoint-url http://127.0.0.1:4566 dynamodb|sqs|events …` and the SDK's `endpoint_url`
//! work against it. Signatures are not checked. Every path is accepted: some SDKs post to the path
//! of the queue URL.

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::Response;
use axum::routing::post;

use super::answer::Answer;
use super::{Door, EmbeddedAws, REQUEST_BYTES_MAX};

impl EmbeddedAws {
    /// The AWS-compatible endpoint: every POST, on any path, is a request to one of the services.
    ///
    /// It is the router's fallback, so a host can merge routes of its own in front of it. Queue
    /// URLs carry the address given to [`super::EmbeddedAwsBuilder::public_address`].
    pub fn router(&self) -> Router {
        Router::new().fallback(post(serve)).with_state(self.clone())
    }
}

async fn serve(State(aws): State<EmbeddedAws>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let target = parts.headers.get("x-amz-target").and_then(|target| target.to_str().ok());
    let answer = match to_bytes(body, REQUEST_BYTES_MAX).await {
        Ok(body) => aws.answer(target.unwrap_or_default(), body, Door::Endpoint).await,
        // Also a client that hung up, which reads no answer.
        Err(_) => Answer::too_large(),
    };
    response(answer)
}

/// axum's kind of response.
fn response(answer: Answer) -> Response {
    let headers = answer.headers();
    let mut response = Response::new(Body::empty());
    *response.status_mut() =
        StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    for (name, value) in headers {
        if let Ok(value) = HeaderValue::from_str(&value) {
            response.headers_mut().insert(HeaderName::from_static(name), value);
        }
    }
    *response.body_mut() = Body::from(answer.body);
    response
}
