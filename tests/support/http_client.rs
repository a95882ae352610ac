//! An HTTP client for the AWS SDK that passes every request to a handler of the test. The handler may forward,
//! change, delay or answer the request.

use std::{fmt, sync::Arc};

use aws_config::SdkConfig;
use aws_smithy_runtime_api::{
    client::{
        http::{
            HttpClient, HttpConnector, HttpConnectorFuture, SharedHttpConnector, http_client_fn,
        },
        orchestrator::{HttpRequest, HttpResponse},
    },
    http::StatusCode,
};
use aws_smithy_types::body::SdkBody;
use serde_json::Value;

/// Handles one request; the connector forwards it to the embedded AWS.
type Handler = dyn Fn(HttpRequest, &SharedHttpConnector) -> HttpConnectorFuture + Send + Sync;

/// The SDK configuration `sdk`, with `handler` in front of its HTTP client.
pub(crate) fn with_request_handler(
    sdk: &SdkConfig,
    handler: impl Fn(HttpRequest, &SharedHttpConnector) -> HttpConnectorFuture + Send + Sync + 'static,
) -> SdkConfig {
    let (handler, inner): (Arc<Handler>, _) = (Arc::new(handler), sdk.http_client().unwrap());
    let client = http_client_fn(move |settings, components| {
        let inner = inner.http_connector(settings, components);
        SharedHttpConnector::new(HandlerConnector { handler: handler.clone(), inner })
    });
    sdk.clone().into_builder().http_client(client).build()
}

/// The SDK configuration `sdk` for a service that does not implement `operation`.
pub(crate) fn without_operation(operation: &'static str, sdk: &SdkConfig) -> SdkConfig {
    with_request_handler(sdk, move |mut request, aws| {
        if operation_of(&request) == operation {
            request.headers_mut().insert("x-amz-target", "DynamoDB_20120810.NoSuchOperation");
        }
        aws.call(request)
    })
}

/// The name of the AWS operation of a request.
pub(crate) fn operation_of(request: &HttpRequest) -> &str {
    let target = request.headers().get("x-amz-target").unwrap_or_default();
    target.rsplit('.').next().unwrap_or_default()
}

/// The JSON body of a request, or null if the body is not JSON.
pub(crate) fn json_body(request: &HttpRequest) -> Value {
    let body = request.body().bytes();
    body.and_then(|body| serde_json::from_slice(body).ok()).unwrap_or_default()
}

/// The JSON body of a response, if the body is JSON.
pub(crate) fn json_response_body(response: &HttpResponse) -> Option<Value> {
    let body = response.body().bytes().expect("the embedded AWS does not stream bodies");
    serde_json::from_slice(body).ok()
}

/// Replaces the body of a request.
pub(crate) fn set_json_body(request: &mut HttpRequest, body: &Value) {
    let body = body.to_string();
    request.headers_mut().insert("content-length", body.len().to_string());
    *request.body_mut() = SdkBody::from(body);
}

/// A response with this status and JSON body.
pub(crate) fn json_response(status: u16, body: &Value) -> HttpResponse {
    HttpResponse::new(StatusCode::try_from(status).unwrap(), SdkBody::from(body.to_string()))
}

struct HandlerConnector {
    handler: Arc<Handler>,
    inner: SharedHttpConnector,
}

impl fmt::Debug for HandlerConnector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HandlerConnector")
    }
}

impl HttpConnector for HandlerConnector {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        (self.handler)(request, &self.inner)
    }
}
