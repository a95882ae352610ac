//! The entry point in the process: an HTTP client for the SDK that calls the embedded services instead of the
//! network.

use aws_smithy_runtime_api::client::http::{
    HttpConnector, HttpConnectorFuture, SharedHttpClient, SharedHttpConnector, http_client_fn,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_runtime_api::http::StatusCode;
use aws_smithy_types::body::SdkBody;
use bytes::Bytes;

use super::{
    aws::EmbeddedAws,
    request::{EntryPoint, signer},
    response::ServiceResponse,
};

/// Calls the embedded services for the SDK.
#[derive(Debug, Clone)]
pub(super) struct InProcess {
    aws: EmbeddedAws,
}

impl InProcess {
    pub(super) fn new(aws: EmbeddedAws) -> Self {
        Self { aws }
    }

    pub(super) fn client(self) -> SharedHttpClient {
        http_client_fn(move |_, _| SharedHttpConnector::new(self.clone()))
    }
}

impl HttpConnector for InProcess {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let aws = self.aws.clone();
        HttpConnectorFuture::new(async move {
            let Some(target) = request.headers().get("x-amz-target") else {
                return respond_s3(&aws, request).await.map_err(ConnectorError::user);
            };
            let signer = signer(request.headers().get("authorization"));
            // The JSON protocol's bodies are always in memory, never streams.
            let body = request.body().bytes().map(Bytes::copy_from_slice).unwrap_or_default();
            let service_response = aws.respond(target, body, signer, EntryPoint::InProcess).await;
            sdk_response(service_response).map_err(ConnectorError::user)
        })
    }
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Passes a request to S3. Its body and that of the response may be streams.
async fn respond_s3(aws: &EmbeddedAws, request: HttpRequest) -> Result<HttpResponse, BoxError> {
    let request = request.try_into_http1x()?.map(s3s::Body::http_body_unsync);
    let response = aws.respond_s3(request).await.map_err(BoxError::from)?;
    Ok(HttpResponse::try_from(response.map(SdkBody::from_body_1_x))?)
}

/// Converts to the SDK's type of response.
fn sdk_response(service_response: ServiceResponse) -> Result<HttpResponse, BoxError> {
    let headers = service_response.headers();
    let status = StatusCode::try_from(service_response.status)?;
    let mut response = HttpResponse::new(status, SdkBody::empty());
    for (name, value) in headers {
        response.headers_mut().try_insert(name, value)?;
    }
    *response.body_mut() = SdkBody::from(service_response.body);
    Ok(response)
}
