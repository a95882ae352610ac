//! The way from functions on AWS to the services of single checks. AWS reaches this machine at one URL only, so a service of a
//! check is served below that URL, beside those of the demo. On emulators the functions reach each service itself.

use std::{
    collections::HashMap,
    sync::{Arc, RwLock},
};

use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    http::header::HOST,
    response::{IntoResponse, Response},
};
use reqwest::{Client, StatusCode};

use crate::support::serve;

/// The base URLs of the services on this machine, by the first segment of the public path.
type Services = Arc<RwLock<HashMap<String, String>>>;

/// Forwards requests below the public URL to services on this machine.
pub(super) struct Forwarder {
    /// The URL of this machine, if functions do not reach it at a loopback address.
    public: Option<String>,
    services: Services,
}

impl Forwarder {
    pub(super) fn to(public: Option<String>) -> Self {
        Self { public, services: Services::default() }
    }

    /// What is to be served at the public URL.
    pub(super) fn router(&self) -> Router {
        let client = Client::builder().no_proxy().build().unwrap();
        Router::new().fallback(forward).with_state((client, Arc::clone(&self.services)))
    }

    /// The base URL at which functions reach the service at `local`.
    pub(super) fn url_of(&self, name: &str, local: &str) -> String {
        let Some(public) = &self.public else { return local.to_owned() };
        self.services.write().unwrap().insert(name.to_owned(), local.to_owned());
        format!("{}/{name}", public.trim_end_matches('/'))
    }
}

/// Bodies are streamed, and a caller that disconnects ends the call: a service may answer slowly, or without end.
async fn forward(
    State((client, services)): State<(Client, Services)>,
    request: Request,
) -> Response {
    let (mut parts, body) = request.into_parts();
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    let path = path.trim_start_matches('/');
    let name = path.split(['/', '?']).next().unwrap_or_default();
    let Some(service) = services.read().unwrap().get(name).cloned() else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let url = format!("{service}{}", path.strip_prefix(name).unwrap_or_default());
    parts.headers.remove(HOST);
    let body = reqwest::Body::wrap_stream(body.into_data_stream());
    let sent = client.request(parts.method, url).headers(parts.headers).body(body).send().await;
    let Ok(response) = sent else { return StatusCode::BAD_GATEWAY.into_response() };
    let (status, headers) = (response.status(), response.headers().clone());
    (status, headers, Body::from_stream(response.bytes_stream())).into_response()
}

#[tokio::test]
async fn a_service_of_a_check_is_reached_below_the_public_url() {
    use axum::extract::DefaultBodyLimit;
    use steward_demo::services::{DemoService, FaultPlan, MockServices};

    let echo = |request: Request| async move {
        let (parts, body) = request.into_parts();
        let body = axum::body::to_bytes(body, usize::MAX).await.unwrap();
        let header = |name| parts.headers.get(name).map(|value| value.to_str().unwrap().to_owned());
        let answer = format!("{} {} {:?}", parts.method, parts.uri, header("idempotency-key"));
        (StatusCode::CREATED, [("x-bytes", body.len().to_string())], answer)
    };
    let service = Router::new().fallback(echo).layer(DefaultBodyLimit::disable());
    let local = serve(service).await;

    let forwarder = Forwarder::to(Some("https://services.example.com".to_owned()));
    let any_port = ([127, 0, 0, 1], 0).into();
    let plan = FaultPlan::none(0);
    let demo = MockServices::start_beside(forwarder.router(), any_port, &DemoService::ALL, plan);
    let demo = demo.await.unwrap();
    let public = demo.base_url(DemoService::Payment).replace("/payment", "");
    assert_eq!(forwarder.url_of("archive", &local), "https://services.example.com/archive");

    let post = |path: &str| {
        let request = Client::new().post(format!("{public}{path}")).header("idempotency-key", "k");
        async move { request.body(vec![7_u8; 3 << 20]).send().await.unwrap() }
    };
    let response = post("/archive/store/1?part=2").await;
    assert_eq!(response.status(), StatusCode::CREATED);
    assert_eq!(response.headers()["x-bytes"], (3 << 20).to_string());
    assert_eq!(response.text().await.unwrap(), r#"POST /store/1?part=2 Some("k")"#);
    assert_eq!(post("/unknown/store").await.status(), StatusCode::NOT_FOUND);
    let charges = Client::new().get(format!("{public}/payment/charges")).send().await.unwrap();
    assert_eq!(charges.status(), StatusCode::METHOD_NOT_ALLOWED, "the services of the demo");
    assert_eq!(Forwarder::to(None).url_of("archive", &local), local);
}
