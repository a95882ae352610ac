//! Authentication and permissions.

use std::sync::Arc;

use axum::{
    Extension, Router,
    body::Body,
    http::{Method, Request, StatusCode},
};
use steward_console::{Console, caller::ConsoleCaller, routes, routes_for};
use tower::ServiceExt;

use crate::test_console::TestConsole;

/// All routes that send commands.
const COMMAND_ROUTES: [(Method, &str); 6] = [
    (Method::POST, "/console/tasks/t-1/undo"),
    (Method::GET, "/console/tasks/t-1/undo"),
    (Method::POST, "/console/bulk"),
    (Method::GET, "/console/bulk"),
    (Method::POST, "/console/bulk/run-1/send"),
    (Method::POST, "/console/dead-letters/q/redrive"),
];

fn caller(may_act: bool) -> ConsoleCaller {
    ConsoleCaller { name: "ada".to_owned(), may_act }
}

async fn new_console() -> Console {
    let TestConsole { ports, .. } = TestConsole::new().await;
    Console { ports, links: Arc::default() }
}

async fn status(
    routes: &Router,
    method: Method,
    address: &str,
    headers: &[(&str, &str)],
) -> StatusCode {
    let mut request = Request::builder().method(method).uri(address);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    routes.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap().status()
}

#[tokio::test]
async fn requests_without_a_caller_are_rejected() {
    let routes = routes(new_console().await);
    for (method, address) in COMMAND_ROUTES.into_iter().chain([(Method::GET, "/console")]) {
        assert_eq!(
            status(&routes, method, address, &[]).await,
            StatusCode::UNAUTHORIZED,
            "{address}"
        );
    }
}

#[tokio::test]
async fn a_read_only_caller_cannot_send_commands() {
    let routes = routes(new_console().await).layer(Extension(caller(false)));
    for (method, address) in COMMAND_ROUTES {
        assert_eq!(status(&routes, method, address, &[]).await, StatusCode::FORBIDDEN, "{address}");
    }
    for address in ["/console", "/console/tasks", "/console/workflows", "/console/dead-letters"] {
        assert_eq!(status(&routes, Method::GET, address, &[]).await, StatusCode::OK, "{address}");
    }
}

#[tokio::test]
async fn requests_from_another_site_are_rejected() {
    let routes = routes(new_console().await).layer(Extension(caller(true)));
    for headers in [
        [("sec-fetch-site", "cross-site"), ("host", "console.example")],
        [("origin", "https://evil.example"), ("host", "console.example")],
    ] {
        let undo = status(&routes, Method::POST, "/console/tasks/t-1/undo", &headers).await;
        assert_eq!(undo, StatusCode::FORBIDDEN, "{headers:?}");
    }
    let own = [("origin", "https://console.example"), ("host", "console.example")];
    let undo = status(&routes, Method::POST, "/console/tasks/t-1/undo", &own).await;
    assert_ne!(undo, StatusCode::FORBIDDEN);
}

/// The owner of another site can point its name to this machine (DNS rebinding).
#[tokio::test]
async fn a_local_console_accepts_only_local_addresses() {
    let routes = routes_for(caller(true), new_console().await);
    for (host, expected) in [
        ("127.0.0.1:4566", StatusCode::OK),
        ("[::1]:4566", StatusCode::OK),
        ("localhost:4566", StatusCode::OK),
        ("evil.example:4566", StatusCode::FORBIDDEN),
    ] {
        assert_eq!(
            status(&routes, Method::GET, "/console", &[("host", host)]).await,
            expected,
            "{host}"
        );
    }
}

#[tokio::test]
async fn every_page_has_a_content_security_policy() {
    let routes = routes(new_console().await).layer(Extension(caller(true)));
    for address in ["/console", "/console/tasks", "/console/no-such-page"] {
        let request = Request::get(address).body(Body::empty()).unwrap();
        let response = routes.clone().oneshot(request).await.unwrap();
        let policy = response.headers()["content-security-policy"].to_str().unwrap();
        assert!(policy.contains("default-src 'self'") && !policy.contains("unsafe"), "{policy}");
        assert_eq!(response.headers()["cache-control"], "no-store");
    }
}
