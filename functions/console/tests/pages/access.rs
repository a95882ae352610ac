//! Who is let in, and to what.

use std::sync::Arc;

use axum::{
    Extension, Router,
    body::Body,
    http::{Method, Request, StatusCode},
};
use steward_console::{Console, access::Caller, routes, routes_for};
use tower::ServiceExt;

use crate::world::World;

/// Every address that acts.
const ACTING: [(Method, &str); 6] = [
    (Method::POST, "/console/tasks/t-1/undo"),
    (Method::GET, "/console/tasks/t-1/undo"),
    (Method::POST, "/console/bulk"),
    (Method::GET, "/console/bulk"),
    (Method::POST, "/console/bulk/run-1/send"),
    (Method::POST, "/console/dead-letters/q/redrive"),
];

fn caller(may_act: bool) -> Caller {
    Caller { name: "ada".to_owned(), may_act }
}

async fn console() -> Console {
    let World { ports, .. } = World::new().await;
    Console { ports, links: Arc::default() }
}

async fn status(
    routes: &Router,
    method: Method,
    address: &str,
    said: &[(&str, &str)],
) -> StatusCode {
    let mut request = Request::builder().method(method).uri(address);
    for (name, value) in said {
        request = request.header(*name, *value);
    }
    routes.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap().status()
}

#[tokio::test]
async fn whom_nobody_names_is_let_in_nowhere() {
    let routes = routes(console().await);
    for (method, address) in ACTING.into_iter().chain([(Method::GET, "/console")]) {
        assert_eq!(
            status(&routes, method, address, &[]).await,
            StatusCode::UNAUTHORIZED,
            "{address}"
        );
    }
}

#[tokio::test]
async fn a_reader_reads_and_does_nothing_else() {
    let routes = routes(console().await).layer(Extension(caller(false)));
    for (method, address) in ACTING {
        assert_eq!(status(&routes, method, address, &[]).await, StatusCode::FORBIDDEN, "{address}");
    }
    for address in ["/console", "/console/tasks", "/console/workflows", "/console/dead-letters"] {
        assert_eq!(status(&routes, Method::GET, address, &[]).await, StatusCode::OK, "{address}");
    }
}

#[tokio::test]
async fn what_another_site_sends_is_refused() {
    let routes = routes(console().await).layer(Extension(caller(true)));
    for said in [
        [("sec-fetch-site", "cross-site"), ("host", "console.example")],
        [("origin", "https://evil.example"), ("host", "console.example")],
    ] {
        let undo = status(&routes, Method::POST, "/console/tasks/t-1/undo", &said).await;
        assert_eq!(undo, StatusCode::FORBIDDEN, "{said:?}");
    }
    let own = [("origin", "https://console.example"), ("host", "console.example")];
    let undo = status(&routes, Method::POST, "/console/tasks/t-1/undo", &own).await;
    assert_ne!(undo, StatusCode::FORBIDDEN);
}

/// A site's owner can point its name to this machine, and its pages are then ours in a browser's eyes.
#[tokio::test]
async fn on_this_machine_the_console_goes_by_no_other_name() {
    let routes = routes_for(caller(true), console().await);
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
async fn every_page_forbids_what_comes_from_elsewhere() {
    let routes = routes(console().await).layer(Extension(caller(true)));
    for address in ["/console", "/console/tasks", "/console/no-such-page"] {
        let request = Request::get(address).body(Body::empty()).unwrap();
        let answer = routes.clone().oneshot(request).await.unwrap();
        let policy = answer.headers()["content-security-policy"].to_str().unwrap();
        assert!(policy.contains("default-src 'self'") && !policy.contains("unsafe"), "{policy}");
        assert_eq!(answer.headers()["cache-control"], "no-store");
    }
}
