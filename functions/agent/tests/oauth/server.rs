//! A server that is both the token endpoint and the service.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use axum::{
    Router,
    extract::{Request, State},
    http::{HeaderMap, Response, StatusCode},
    routing::post,
    serve::Listener,
};
use serde_json::{Value, json};
use steward_agent::{
    credentials::Credentials,
    http::{HttpService, HttpSettings},
    oauth::OauthSettings,
};
use tokio::{net::TcpListener, task::JoinSet};

use crate::tls::{CERTIFICATE, TlsListener};

/// A response of the token endpoint: status, `Retry-After` and body.
pub(crate) type TokenResponse = (u16, Option<&'static str>, String);

/// What the server received, and how it responds.
#[derive(Default)]
pub(crate) struct Exchange {
    /// The headers and the bodies of the requests for tokens.
    pub(crate) token_requests: Vec<(HeaderMap, String)>,
    /// Replaces the usual response, a token `token-N` with a number of its own.
    pub(crate) token_response: Option<TokenResponse>,
    /// `expires_in` of the usual response.
    pub(crate) expires_in: u64,
    /// The `authorization` of each call of the service.
    pub(crate) calls: Vec<String>,
    /// The service responds with 401 to calls with these values.
    pub(crate) refused: Vec<&'static str>,
}

/// A server that stops when it is dropped.
pub(crate) struct Server {
    pub(crate) url: String,
    pub(crate) exchange: Arc<Mutex<Exchange>>,
    _tasks: JoinSet<()>,
}

impl Server {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        Self::serve(url, listener)
    }

    pub(crate) async fn with_tls() -> Self {
        Self::with_certificate(CERTIFICATE).await
    }

    pub(crate) async fn with_certificate(certificate: &str) -> Self {
        let listener = TlsListener::with_certificate(certificate).await;
        Self::serve(listener.url(), listener)
    }

    fn serve<L: Listener<Addr = SocketAddr>>(url: String, listener: L) -> Self {
        let exchange = Arc::new(Mutex::new(Exchange { expires_in: 3600, ..Exchange::default() }));
        let routes = Router::new()
            .route("/token", post(token))
            .fallback(service)
            .with_state(Arc::clone(&exchange));
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { axum::serve(listener, routes).await.unwrap() });
        Self { url, exchange, _tasks: tasks }
    }

    /// A service that gets its tokens from this server.
    pub(crate) fn service(&self, more: Value) -> HttpService {
        let service = HttpService::new(HttpSettings::new(self.url.parse().unwrap())).unwrap();
        service.set_credentials(self.credentials(more)).unwrap();
        service
    }

    pub(crate) fn credentials(&self, more: Value) -> Credentials {
        Credentials {
            headers: r#"{ "authorization": "configured", "x-key": "k" }"#.parse().unwrap(),
            oauth: Some(oauth(&self.url, more)),
            ca: None,
        }
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut Exchange)) {
        change(&mut self.exchange.lock().unwrap());
    }

    pub(crate) fn respond_to_token_requests(
        &self,
        status: u16,
        retry_after: Option<&'static str>,
        body: &str,
    ) {
        self.change(|it| it.token_response = Some((status, retry_after, body.to_owned())));
    }

    pub(crate) fn token_request_count(&self) -> usize {
        self.exchange.lock().unwrap().token_requests.len()
    }

    /// The `authorization` of each call since the last question.
    pub(crate) fn calls(&self) -> Vec<String> {
        std::mem::take(&mut self.exchange.lock().unwrap().calls)
    }
}

fn oauth(server: &str, more: Value) -> OauthSettings {
    let mut settings = json!({
        "token_url": format!("{server}/token"), "client_id": "shop", "client_secret": "s3cret",
    });
    settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    serde_json::from_value(settings).unwrap()
}

/// The token endpoint.
async fn token(State(exchange): State<Arc<Mutex<Exchange>>>, request: Request) -> Response<String> {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, usize::MAX).await.unwrap();
    let response = {
        let mut exchange = exchange.lock().unwrap();
        let body = String::from_utf8(body.to_vec()).unwrap();
        exchange.token_requests.push((parts.headers, body));
        let number = exchange.token_requests.len();
        let token = json!({
            "access_token": format!("token-{number}"), "token_type": "bearer",
            "expires_in": exchange.expires_in,
        });
        exchange.token_response.clone().unwrap_or_else(|| (200, None, token.to_string()))
    };
    let (status, retry_after, body) = response;
    if status == HANG {
        std::future::pending::<()>().await;
    }
    let mut response = Response::builder().status(status);
    if let Some(retry_after) = retry_after {
        response = response.header("retry-after", retry_after);
    }
    response.body(body).unwrap()
}

/// In place of a status: no response.
pub(crate) const HANG: u16 = 0;

/// The remote service.
async fn service(State(exchange): State<Arc<Mutex<Exchange>>>, headers: HeaderMap) -> StatusCode {
    let mut exchange = exchange.lock().unwrap();
    let values: Vec<_> = headers.get_all("authorization").iter().collect();
    assert!(values.len() == 1 && headers["x-key"] == "k", "{values:?}");
    let authorization = values[0].to_str().unwrap().to_owned();
    let is_refused = exchange.refused.contains(&authorization.as_str());
    exchange.calls.push(authorization);
    if is_refused { StatusCode::UNAUTHORIZED } else { StatusCode::OK }
}
