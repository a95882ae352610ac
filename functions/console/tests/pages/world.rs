//! A deployment with nothing running, and a browser of its console.

use std::sync::Arc;

use axum::{
    Extension, Router,
    body::{Body, to_bytes},
    http::{
        Request, StatusCode,
        header::{CONTENT_TYPE, LOCATION},
    },
};
use console::{Console, access::Caller, config::Links, routes};
use serde_json::Value;
use steward_aws::{AwsPorts, Config};
use steward_core::{ports::Ports, workflow::Workflow};
use steward_local::{embedded::EmbeddedAws, resources};
use tower::ServiceExt;

/// Bytes of a page, at most.
const PAGE_BYTES_MAX: usize = 10 << 20;

pub(crate) struct World {
    pub(crate) ports: Arc<AwsPorts>,
    pub(crate) config: Config,
    pub(crate) aws: EmbeddedAws,
    routes: Router,
}

/// What came of a request.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) status: StatusCode,
    pub(crate) html: String,
    /// Where it leads, if elsewhere.
    pub(crate) location: String,
}

impl World {
    /// Tables and queues for agent `a`, seen by one who may act.
    pub(crate) async fn new() -> Self {
        let aws = EmbeddedAws::in_memory().unwrap();
        let config = resources::create(&aws, &["a".parse().unwrap()]).await.unwrap();
        let ports = Arc::new(AwsPorts::new(&aws.sdk_config(), &config, "console"));
        let (logs, trace) =
            ("https://logs.example/?q={task_id}", "https://trace.example/{trace_id}");
        let links = Links {
            logs: Some(logs.to_owned()),
            trace: Some(trace.to_owned()),
            ..Links::default()
        };
        let console = Console { ports: ports.clone(), links: Arc::new(links) };
        let caller = Caller { name: "ada".to_owned(), may_act: true };
        Self { ports, config, aws, routes: routes(console).layer(Extension(caller)) }
    }

    /// Publishes a definition.
    pub(crate) async fn publish(&self, definition: Value) -> Workflow {
        let workflow: Workflow = serde_json::from_value(definition).unwrap();
        self.ports.definitions().publish(&workflow).await.unwrap();
        workflow
    }

    pub(crate) async fn get(&self, address: &str) -> Page {
        self.ask(Request::get(address).body(Body::empty()).unwrap()).await
    }

    /// Sends a form.
    pub(crate) async fn post(&self, address: &str, fields: &[(&str, &str)]) -> Page {
        let form = serde_urlencoded::to_string(fields).unwrap();
        let kind = "application/x-www-form-urlencoded";
        let request = Request::post(address).header(CONTENT_TYPE, kind).body(Body::from(form));
        self.ask(request.unwrap()).await
    }

    async fn ask(&self, request: Request<Body>) -> Page {
        let answer = self.routes.clone().oneshot(request).await.unwrap();
        let status = answer.status();
        let location = answer.headers().get(LOCATION).map(|at| at.to_str().unwrap().to_owned());
        let body = to_bytes(answer.into_body(), PAGE_BYTES_MAX).await.unwrap();
        let html = String::from_utf8(body.to_vec()).unwrap();
        Page { status, html, location: location.unwrap_or_default() }
    }
}

impl Page {
    /// What people read on it: no tags, single spaces.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        for part in self.html.split('<') {
            text.push_str(part.split_once('>').map_or(part, |(_, after)| after));
            text.push(' ');
        }
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    /// Panics unless it was served and says all of these.
    #[track_caller]
    pub(crate) fn says(&self, parts: &[&str]) {
        assert_eq!(self.status, StatusCode::OK, "{}", self.text());
        let text = self.text();
        for part in parts {
            assert!(text.contains(part), "no `{part}` in: {text}");
        }
    }

    /// Panics if it has any of these, tags and all.
    #[track_caller]
    pub(crate) fn has_no(&self, parts: &[&str]) {
        for part in parts {
            assert!(!self.html.contains(part), "`{part}` in: {}", self.html);
        }
    }
}
