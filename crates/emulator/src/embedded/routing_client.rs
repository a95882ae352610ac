//! The HTTP client for SDKs when some services are external. It routes requests by service; nothing else changes.
//!
//! ```text
//! SDK client ── RoutingConnector ─┬─ DynamoDB ──► http://127.0.0.1:5000   an emulator
//!                                 └─ the others ► connector.rs            embedded
//! ```
//!
//! Requests are signed with made-up credentials, so AWS itself refuses them.

use aws_smithy_runtime_api::client::{
    http::{
        HttpClient, HttpConnector, HttpConnectorFuture, SharedHttpClient, SharedHttpConnector,
        http_client_fn,
    },
    orchestrator::HttpRequest,
    result::ConnectorError,
};

use super::{
    connector::InProcess,
    external::{AwsService, ExternalEndpoints},
};

/// An HTTP client that sends a request to the endpoint of its service, or to the embedded service.
pub(super) fn routing_client(
    endpoints: ExternalEndpoints,
    embedded: Option<InProcess>,
) -> SharedHttpClient {
    let http = aws_smithy_http_client::Builder::new().build_http();
    http_client_fn(move |settings, components| {
        let (endpoints, embedded) = (endpoints.clone(), embedded.clone());
        let http = http.http_connector(settings, components);
        SharedHttpConnector::new(RoutingConnector { endpoints, http, embedded })
    })
}

#[derive(Debug)]
struct RoutingConnector {
    endpoints: ExternalEndpoints,
    http: SharedHttpConnector,
    embedded: Option<InProcess>,
}

impl HttpConnector for RoutingConnector {
    fn call(&self, mut request: HttpRequest) -> HttpConnectorFuture {
        let service = AwsService::of(request.headers().get("x-amz-target").unwrap_or_default());
        let url = service.and_then(|service| self.endpoints.url(service));
        match (url, &self.embedded) {
            (Some(url), _) => {
                if let Some(account) = &self.endpoints.account {
                    // moto distinguishes accounts by this header.
                    request.headers_mut().insert("x-moto-account-id", account.clone());
                }
                match request.set_uri(format!("{url}/")) {
                    Ok(()) => self.http.call(request),
                    Err(error) => {
                        HttpConnectorFuture::ready(Err(ConnectorError::user(error.into())))
                    }
                }
            }
            (None, Some(embedded)) => embedded.call(request),
            (None, None) => {
                let error = "no endpoint for the service of this request".into();
                HttpConnectorFuture::ready(Err(ConnectorError::user(error)))
            }
        }
    }
}
