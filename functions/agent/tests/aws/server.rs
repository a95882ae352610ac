//! A server behind a layer that verifies signatures, and the requests of the tests.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_credential_types::{Credentials, provider::SharedCredentialsProvider};
use axum::{
    Router,
    body::{Body, Bytes, to_bytes},
    extract::Request,
    http::{HeaderMap, Response, StatusCode, Uri},
    middleware::{Next, from_fn},
    response::IntoResponse,
};
use envconfig::Envconfig;
use serde_json::Value;
use steward_agent::{
    AgentConfig,
    attempt::{CallFault, RemoteService},
    kind::{AnyService, ServiceConfigError},
    signed::AwsSigner,
};
use steward_core::model::messages::StepRequest;
use steward_test_world::step_request;
use tokio::{net::TcpListener, task::JoinSet};

use crate::sigv4::{ACCESS_KEY, SECRET_KEY, SESSION_TOKEN, verify};

/// A request that passed the verification, or why it did not.
#[derive(Debug, Clone)]
pub(crate) struct SignedRequest {
    pub(crate) uri: Uri,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    /// `service/region`, or what is wrong.
    pub(crate) scope: Result<String, String>,
}

/// A server that answers 403 if a signature is wrong. It stops when it is dropped.
pub(crate) struct SignedServer {
    pub(crate) url: String,
    pub(crate) received: Arc<Mutex<Vec<SignedRequest>>>,
    _server: JoinSet<()>,
}

impl SignedServer {
    /// A server with these routes behind the verification. They are made from the server's URL.
    pub(crate) async fn start(routes: impl FnOnce(&str) -> Router) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let received = Arc::new(Mutex::new(Vec::new()));
        let record = received.clone();
        let layer = from_fn(move |request: Request, next: Next| {
            let record = record.clone();
            async move {
                let (parts, body) = request.into_parts();
                let body = to_bytes(body, usize::MAX).await.unwrap();
                let (uri, headers) = (parts.uri.clone(), parts.headers.clone());
                let scope = verify(&parts.method, &uri, &headers, &body);
                let is_valid = scope.is_ok();
                record.lock().unwrap().push(SignedRequest {
                    uri,
                    headers,
                    body: body.clone(),
                    scope,
                });
                match is_valid {
                    true => next.run(Request::from_parts(parts, Body::from(body))).await,
                    false => StatusCode::FORBIDDEN.into_response(),
                }
            }
        });
        let routes = routes(&url).layer(layer);
        let mut server = JoinSet::new();
        server.spawn(async move { axum::serve(listener, routes).await.unwrap() });
        Self { url, received, _server: server }
    }

    /// A server that answers every request alike.
    pub(crate) async fn answering(
        respond: impl Fn() -> Response<Body> + Clone + Send + Sync + 'static,
    ) -> Self {
        Self::start(|_| Router::new().fallback(move || async move { respond() })).await
    }

    pub(crate) fn requests(&self) -> Vec<SignedRequest> {
        self.received.lock().unwrap().clone()
    }

    /// The only request so far.
    pub(crate) fn request(&self) -> SignedRequest {
        let requests = self.requests();
        assert_eq!(requests.len(), 1, "{requests:?}");
        requests[0].clone()
    }
}

/// A signer with the credentials that the servers know.
pub(crate) fn signer() -> AwsSigner {
    AwsSigner::new(SharedCredentialsProvider::new(credentials()))
}

fn credentials() -> Credentials {
    let token = Some(SESSION_TOKEN.to_owned());
    Credentials::new(ACCESS_KEY, SECRET_KEY, token, None, "test")
}

/// A request to an agent, with more keys.
pub(crate) fn request(path: &str, more: Value) -> StepRequest {
    StepRequest { path: path.to_owned(), ..step_request(&more).unwrap() }
}

pub(crate) fn respond(status: u16, body: impl Into<Body>) -> Response<Body> {
    Response::builder().status(status).body(body.into()).unwrap()
}

/// The service of an agent of one kind, whose endpoint is a server of the tests.
pub(crate) fn aws_service(kind: &str, targets: &str, endpoint: &str) -> AnyService {
    configured(&[("STEWARD_AGENT_KIND", kind), ("STEWARD_AGENT_TARGETS", targets)], endpoint)
        .unwrap()
}

/// The service that environment variables of an agent describe.
pub(crate) fn configured(
    variables: &[(&str, &str)],
    endpoint: &str,
) -> Result<AnyService, ServiceConfigError> {
    let name = [("STEWARD_AGENT_NAME", "a")];
    let variables = name.iter().chain(variables);
    let variables = variables.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let config = AgentConfig::init_from_hashmap(&variables.collect()).unwrap();
    let sdk = SdkConfig::builder()
        .behavior_version(BehaviorVersion::latest())
        .credentials_provider(SharedCredentialsProvider::new(credentials()))
        .region(Region::new("eu-west-1"))
        .endpoint_url(endpoint)
        .build();
    AnyService::configured(&config, &sdk, None)
}

/// Calls that return the output of the step.
pub(crate) trait CallForOutput: RemoteService {
    async fn output(
        &self,
        request: &StepRequest,
        traceparent: Option<&str>,
    ) -> Result<Value, CallFault> {
        self.call(request, traceparent).await?.output(request.output.as_deref())
    }
}

impl<S: RemoteService> CallForOutput for S {}

/// The outcome of a call to a service of this kind that answers with this response. Of the
/// kind `aws`, the call is one of DynamoDB.
pub(crate) async fn outcome_of(
    (kind, target): (&str, &str),
    request: &StepRequest,
    response: impl Fn() -> Response<Body> + Clone + Send + Sync + 'static,
) -> Result<Value, CallFault> {
    let server = SignedServer::answering(response).await;
    let outcome = aws_service(kind, target, &server.url).output(request, None).await;
    let service = if kind == "aws" { "dynamodb" } else { kind };
    assert_eq!(server.request().scope, Ok(format!("{service}/eu-west-1")));
    without_detail(outcome)
}

/// A result of a call without what the service said in an error body.
fn without_detail(mut result: Result<Value, CallFault>) -> Result<Value, CallFault> {
    if let Err(CallFault::Permanent { detail, .. } | CallFault::Transient { detail, .. }) =
        &mut result
    {
        *detail = None;
    }
    result
}

pub(crate) fn failed(reason: &str, may_have_run: bool) -> Result<Value, CallFault> {
    Err(CallFault::Permanent { reason: reason.to_owned(), may_have_run, detail: None })
}

/// A fault that is retried. The breaker counts the service as available if `is_available`.
pub(crate) fn retried(
    reason: &str,
    is_available: bool,
    may_have_run: bool,
) -> Result<Value, CallFault> {
    let retry_after = is_available.then_some(Duration::ZERO);
    Err(CallFault::Transient { reason: reason.to_owned(), retry_after, may_have_run, detail: None })
}

/// A response with a header.
pub(crate) fn respond_with(status: u16, (name, value): (&str, &str), body: &str) -> Response<Body> {
    Response::builder().status(status).header(name, value).body(body.to_owned().into()).unwrap()
}
