//! A remote service for the tests, and the requests and faults that they share.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Router,
    body::{Body, Bytes, to_bytes},
    extract::Request,
    http::{HeaderMap, Response, Uri},
};
use serde_json::{Value, json};
use steward_agent::attempt::{CallFault, RemoteService};
use steward_agent::http::{HttpService, HttpSettings};
use steward_core::model::messages::StepRequest;
use steward_test_world::step_request;
use tokio::{
    io::AsyncReadExt,
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

/// A remote service that records its requests. It stops when it is dropped.
pub(crate) struct TestServer {
    pub(crate) base_url: String,
    pub(crate) received: Arc<Mutex<Vec<ReceivedRequest>>>,
    _server: JoinSet<()>,
}

/// A request that the server received.
#[derive(Debug)]
pub(crate) struct ReceivedRequest {
    pub(crate) method: String,
    pub(crate) uri: Uri,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl TestServer {
    /// A server that responds to every request with the result of `respond`.
    pub(crate) async fn start(
        respond: impl Fn() -> Response<Body> + Clone + Send + Sync + 'static,
    ) -> Self {
        let (listener, base_url) = listener().await;
        let received = Arc::new(Mutex::new(Vec::new()));
        let record = received.clone();
        let handler = move |request: Request| async move {
            let (parts, body) = request.into_parts();
            let body = to_bytes(body, usize::MAX).await.unwrap();
            let (method, uri, headers) = (parts.method.to_string(), parts.uri, parts.headers);
            record.lock().unwrap().push(ReceivedRequest { method, uri, headers, body });
            respond()
        };
        let mut server = JoinSet::new();
        server.spawn(async move {
            axum::serve(listener, Router::new().fallback(handler)).await.unwrap()
        });
        Self { base_url, received, _server: server }
    }

    /// A server that reads the request of each connection and passes the connection to `talk`.
    pub(crate) async fn with_raw_connections<F>(
        talk: impl Fn(TcpStream) -> F + Send + 'static,
    ) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (listener, base_url) = listener().await;
        let mut server = JoinSet::new();
        server.spawn(async move {
            let mut talks = JoinSet::new();
            while let Ok((mut socket, _)) = listener.accept().await {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(socket.read_u8().await.unwrap());
                }
                talks.spawn(talk(socket));
            }
        });
        Self { base_url, received: Arc::default(), _server: server }
    }

    pub(crate) fn request_count(&self) -> usize {
        self.received.lock().unwrap().len()
    }

    pub(crate) fn service(&self) -> HttpService {
        service(&self.base_url, "{}", Duration::from_secs(60))
    }

    /// Makes one call, `GET /`.
    pub(crate) async fn call(&self) -> Result<Value, CallFault> {
        without_detail(output_of(&self.service(), &get("/"), None).await)
    }
}

/// The output of a step with this request.
pub(crate) async fn output_of(
    service: &HttpService,
    request: &StepRequest,
    traceparent: Option<&str>,
) -> Result<Value, CallFault> {
    service.call(request, traceparent).await?.output(request.output.as_deref())
}

/// A result of a call without what the service said in an error body.
pub(crate) fn without_detail(mut result: Result<Value, CallFault>) -> Result<Value, CallFault> {
    if let Err(
        CallFault::Permanent { detail, .. }
        | CallFault::Conflict { detail, .. }
        | CallFault::Transient { detail, .. },
    ) = &mut result
    {
        *detail = None;
    }
    result
}

pub(crate) async fn listener() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base_url = format!("http://{}", listener.local_addr().unwrap());
    (listener, base_url)
}

pub(crate) fn service(base_url: &str, headers: &str, call_timeout: Duration) -> HttpService {
    let headers = headers.parse().unwrap();
    let settings = HttpSettings::new(base_url.parse().unwrap());
    HttpService::new(HttpSettings { headers, call_timeout, ..settings }).unwrap()
}

pub(crate) fn get(path: &str) -> StepRequest {
    step_request(&json!({ "agent": "payment", "method": "GET", "path": path })).unwrap()
}

pub(crate) fn respond(status: u16, body: impl Into<Body>) -> Response<Body> {
    Response::builder().status(status).body(body.into()).unwrap()
}

pub(crate) fn redirect(status: u16, location: &str) -> Response<Body> {
    let redirect = Response::builder().status(status).header("location", location);
    redirect.body(Body::empty()).unwrap()
}

/// A problem document (RFC 9457).
pub(crate) fn respond_problem(status: u16, body: impl Into<Body>) -> Response<Body> {
    let problem =
        Response::builder().header("Content-Type", "application/problem+json; charset=utf-8");
    problem.status(status).body(body.into()).unwrap()
}

pub(crate) fn permanent(reason: &str) -> Result<Value, CallFault> {
    Err(CallFault::Permanent { reason: reason.to_owned(), may_have_run: false, detail: None })
}

/// The fault of a call that may have succeeded, and whose response is unusable.
pub(crate) fn unusable_response(reason: &str) -> Result<Value, CallFault> {
    Err(CallFault::Permanent { reason: reason.to_owned(), may_have_run: true, detail: None })
}

/// A connection fault, or a 5xx status without `Retry-After`.
pub(crate) fn transient(reason: &str) -> Result<Value, CallFault> {
    let may_have_run = !reason.starts_with("no connection");
    Err(CallFault::Transient {
        reason: reason.to_owned(),
        retry_after: None,
        may_have_run,
        detail: None,
    })
}
