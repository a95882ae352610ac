//! The entry point over HTTP, for the AWS CLI and for SDKs in other processes.
//!
//! Clients use `aws --endpoint-url http://127.0.0.1:4566 dynamodb|sqs|events …` or the SDK's `endpoint_url`.
//! Signatures are not checked, but their access key id is the identity of the sender of a message. Every path is accepted, because some SDKs post to the path of the queue URL.

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use tower::Service;

use super::{
    aws::EmbeddedAws,
    request::{EntryPoint, REQUEST_BYTES_MAX, signer},
    response::ServiceResponse,
};

impl EmbeddedAws {
    /// The routes of the AWS-compatible endpoint: each POST, on any path, is a request to one of the services. A request of
    /// any method to the path of a bucket is one to S3.
    ///
    /// The endpoint is the router's fallback, so a host can merge it with its own routes. Queue URLs contain the
    /// address given to [`super::EmbeddedAwsBuilder::public_address`].
    pub fn router(&self) -> Router {
        Router::new().fallback(serve_any).with_state(self.clone())
    }
}

async fn serve_any(State(aws): State<EmbeddedAws>, request: Request) -> Response {
    let is_s3 = !request.headers().contains_key("x-amz-target") && aws.is_s3(request.uri().path());
    if !is_s3 {
        return post(serve)
            .with_state(aws)
            .call(request)
            .await
            .unwrap_or_else(|never| match never {});
    }
    match aws.respond_s3(request.map(s3s::Body::http_body_unsync)).await {
        Ok(response) => response.map(Body::new),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

async fn serve(State(aws): State<EmbeddedAws>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let target = parts.headers.get("x-amz-target").and_then(|target| target.to_str().ok());
    let authorization = parts.headers.get("authorization");
    let signer = signer(authorization.and_then(|value| value.to_str().ok()));
    let service_response = match to_bytes(body, REQUEST_BYTES_MAX).await {
        Ok(body) => aws.respond(target.unwrap_or_default(), body, signer, EntryPoint::Http).await,
        // Also if the client closed the connection; then no one reads the response.
        Err(_) => ServiceResponse::too_large(),
    };
    http_response(service_response)
}

/// Converts to axum's type of response.
fn http_response(service_response: ServiceResponse) -> Response {
    let headers = service_response.headers();
    let mut response = Response::new(Body::empty());
    *response.status_mut() =
        StatusCode::from_u16(service_response.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    for (name, value) in headers {
        if let Ok(value) = HeaderValue::from_str(&value) {
            response.headers_mut().insert(HeaderName::from_static(name), value);
        }
    }
    *response.body_mut() = Body::from(service_response.body);
    response
}
