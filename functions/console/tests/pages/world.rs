//! A deployment with nothing running, and a browser of its console.

use std::sync::Arc;

use axum::{
    Extension, Router,
    body::{Body, to_bytes},
    http::{Request, StatusCode, header},
};
use serde_json::Value;
use steward_aws::{AwsPorts, Config};
use steward_console::{Console, access::Caller, config::Links, routes};
use steward_core::definition::workflow::Workflow;
use steward_emulator::{embedded::EmbeddedAws, resources};
use steward_runtime::ports::Ports;
use tower::ServiceExt;

/// Bytes of a page, at most.
const PAGE_BYTES_MAX: usize = 10 << 20;

pub(crate) struct World {
    pub(crate) ports: Arc<AwsPorts>,
    pub(crate) aws: EmbeddedAws,
    pub(crate) config: Config,
    routes: Router,
}

/// What came of a request.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) status: StatusCode,
    /// Where it sends the browser on to.
    pub(crate) location: Option<String>,
    pub(crate) html: String,
}

impl World {
    /// Tables and queues for agent `a`, seen by one who may act.
    pub(crate) async fn new() -> Self {
        let aws = EmbeddedAws::in_memory().unwrap();
        let config = resources::create(&aws, &["a".parse().unwrap()]).await.unwrap();
        let ports = Arc::new(AwsPorts::new(&aws.sdk_config(), &config, "console"));
        Self::over(ports, aws, config, true)
    }

    /// The console over what is there.
    pub(crate) fn over(
        ports: Arc<AwsPorts>,
        aws: EmbeddedAws,
        config: Config,
        may_act: bool,
    ) -> Self {
        let links = Links {
            logs: Some("https://logs.example/?q={task_id}".to_owned()),
            trace: Some("https://trace.example/{trace_id}?xray={xray_trace_id}".to_owned()),
            ..Links::default()
        };
        let console = Console { ports: ports.clone(), links: Arc::new(links) };
        let caller = Caller { name: "ada".to_owned(), may_act };
        Self { ports, aws, config, routes: routes(console).layer(Extension(caller)) }
    }

    /// The same world, seen by one who may only read.
    pub(crate) fn reader(&self) -> Self {
        Self::over(self.ports.clone(), self.aws.clone(), self.config.clone(), false)
    }

    /// Publishes a definition.
    pub(crate) async fn publish(&self, definition: Value) -> Workflow {
        let workflow: Workflow = serde_json::from_value(definition).unwrap();
        self.ports.definitions().publish(&workflow).await.unwrap();
        workflow
    }

    pub(crate) async fn get(&self, address: &str) -> Page {
        self.send(Request::get(address).body(Body::empty()).unwrap()).await
    }

    /// Sends a form.
    pub(crate) async fn post(&self, address: &str, fields: &[(&str, &str)]) -> Page {
        let fields = form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
        let request = Request::post(address)
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
            .header("sec-fetch-site", "same-origin");
        self.send(request.body(Body::from(fields)).unwrap()).await
    }

    async fn send(&self, request: Request<Body>) -> Page {
        let answer = self.routes.clone().oneshot(request).await.unwrap();
        let status = answer.status();
        let location = answer.headers().get(header::LOCATION);
        let location = location.map(|address| address.to_str().unwrap().to_owned());
        let body = to_bytes(answer.into_body(), PAGE_BYTES_MAX).await.unwrap();
        Page { status, location, html: String::from_utf8(body.to_vec()).unwrap() }
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
