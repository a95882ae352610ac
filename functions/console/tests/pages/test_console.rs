//! A deployment without running functions, and a client of its console.

use std::sync::Arc;

use axum::{
    Extension, Router,
    body::{Body, to_bytes},
    http::{Request, StatusCode, header},
};
use serde_json::Value;
use steward_aws::{AwsPorts, Config};
use steward_console::{Console, caller::ConsoleCaller, config::Links, routes};
use steward_core::definition::workflow::Workflow;
use steward_emulator::{
    embedded::EmbeddedAws,
    registrations::{LocalAgent, register_agents},
    resources,
};
use steward_runtime::ports::Ports;
use tower::ServiceExt;

/// The unique id of the console's role, and the identity with which the console signs.
pub(crate) const CONSOLE_ROLE: &str = "AROACONSOLE";
const CONSOLE: &str = "AROACONSOLE:steward-console";

/// The largest size of a page, in bytes.
const PAGE_BYTES_MAX: usize = 10 << 20;

/// The console of a deployment on embedded AWS.
pub(crate) struct TestConsole {
    pub(crate) ports: Arc<AwsPorts>,
    pub(crate) aws: EmbeddedAws,
    pub(crate) config: Config,
    routes: Router,
}

/// The response to a request.
#[derive(Debug)]
pub(crate) struct PageResponse {
    pub(crate) status: StatusCode,
    /// The target of a redirect.
    pub(crate) location: Option<String>,
    pub(crate) html: String,
}

impl TestConsole {
    /// Creates tables, and queues for agent `a`, which is registered. The caller may send commands.
    pub(crate) async fn new() -> Self {
        let aws = EmbeddedAws::in_memory().unwrap();
        let agents = ["a".parse().unwrap()];
        let config = resources::create(&aws, &agents).await.unwrap();
        let ports = Arc::new(AwsPorts::new(&aws.sdk_config_of(CONSOLE), &config, "console"));
        let agent = LocalAgent { kind: "http", rate_limit: None };
        let agents = agents.into_iter().map(|name| (name, agent)).collect();
        register_agents(&ports, &agents).await.unwrap();
        Self::with_ports(ports, aws, config, true)
    }

    /// A console with existing ports.
    pub(crate) fn with_ports(
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
        let caller = ConsoleCaller { name: "ada".to_owned(), may_act };
        Self { ports, aws, config, routes: routes(console).layer(Extension(caller)) }
    }

    /// The same console with a read-only caller.
    pub(crate) fn read_only(&self) -> Self {
        Self::with_ports(self.ports.clone(), self.aws.clone(), self.config.clone(), false)
    }

    /// Publishes a definition.
    pub(crate) async fn publish(&self, definition: Value) -> Workflow {
        let workflow: Workflow = serde_json::from_value(definition).unwrap();
        self.ports.definitions().publish(&workflow).await.unwrap();
        workflow
    }

    pub(crate) async fn get(&self, url: &str) -> PageResponse {
        self.send(Request::get(url).body(Body::empty()).unwrap()).await
    }

    /// Sends a form.
    pub(crate) async fn post(&self, url: &str, fields: &[(&str, &str)]) -> PageResponse {
        let fields = form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
        let request = Request::post(url)
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
            .header("sec-fetch-site", "same-origin");
        self.send(request.body(Body::from(fields)).unwrap()).await
    }

    async fn send(&self, request: Request<Body>) -> PageResponse {
        let response = self.routes.clone().oneshot(request).await.unwrap();
        let status = response.status();
        let location = response.headers().get(header::LOCATION);
        let location = location.map(|url| url.to_str().unwrap().to_owned());
        let body = to_bytes(response.into_body(), PAGE_BYTES_MAX).await.unwrap();
        PageResponse { status, location, html: String::from_utf8(body.to_vec()).unwrap() }
    }
}

impl PageResponse {
    /// The text without tags, with single spaces.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        for part in self.html.split('<') {
            text.push_str(part.split_once('>').map_or(part, |(_, after)| after));
            text.push(' ');
        }
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    /// Panics unless the status is 200 and the text contains all of these.
    #[track_caller]
    pub(crate) fn assert_text(&self, parts: &[&str]) {
        assert_eq!(self.status, StatusCode::OK, "{}", self.text());
        let text = self.text();
        for part in parts {
            assert!(text.contains(part), "no `{part}` in: {text}");
        }
    }

    /// Panics if the HTML contains any of these.
    #[track_caller]
    pub(crate) fn assert_absent(&self, parts: &[&str]) {
        for part in parts {
            assert!(!self.html.contains(part), "`{part}` in: {}", self.html);
        }
    }
}
