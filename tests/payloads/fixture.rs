//! A host with workflows that use payloads, and a remote service that records them.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Json, Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, StatusCode, Uri},
    response::{IntoResponse, Response},
    routing::post,
};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use steward_core::{definition::workflow::Workflow, model::task::Task};
use steward_emulator::{
    host::{Host, HostOptions},
    resources,
};
use steward_runtime::ports::{Ports, StateStore};

use crate::support::serve;

/// A call: the bytes of its body, their digest and their type.
pub(crate) type Call = (usize, String, String);

/// What the remote service received and answers.
#[derive(Debug, Default, Clone)]
pub(crate) struct Service {
    calls: Arc<Mutex<Vec<(String, Call)>>>,
    /// The response of `/forged`.
    pub(crate) forged: Arc<Mutex<Value>>,
}

impl Service {
    /// The calls of a path.
    pub(crate) fn calls(&self, path: &str) -> Vec<Call> {
        let calls = self.calls.lock().unwrap();
        calls.iter().filter(|(called, _)| called == path).map(|(_, call)| call.clone()).collect()
    }

    fn record(&self, path: &str, headers: &HeaderMap, body: &[u8]) -> Call {
        let content_type = headers["content-type"].to_str().unwrap().to_owned();
        let call = (body.len(), digest(body), content_type);
        self.calls.lock().unwrap().push((path.to_owned(), call.clone()));
        call
    }
}

/// The status and the JSON of a response.
async fn answer(response: reqwest::Response) -> (u16, Value) {
    let status = response.status().as_u16();
    (status, serde_json::from_slice(&response.bytes().await.unwrap()).unwrap())
}

pub(crate) fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

async fn respond(
    State(service): State<Service>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let (bytes, sha256, _) = service.record(uri.path(), &headers, &body);
    match uri.path() {
        "/busy-once" if service.calls("/busy-once").len() == 1 => {
            (StatusCode::SERVICE_UNAVAILABLE, [("retry-after", "0")]).into_response()
        }
        "/report" => {
            let wanted: Value = serde_json::from_slice(&body).unwrap();
            let bytes = usize::try_from(wanted["bytes"].as_u64().unwrap()).unwrap();
            match bytes {
                0..1_000 => Json(json!({ "bytes": bytes })).into_response(),
                _ => ([("content-type", "text/csv")], vec![b'x'; bytes]).into_response(),
            }
        }
        "/received" => Json(serde_json::from_slice::<Value>(&body).unwrap()).into_response(),
        "/forged-text" => {
            let text = service.forged.lock().unwrap().to_string().replace('$', "\\u0024");
            Json(json!({ "text": text })).into_response()
        }
        "/forged" => Json(service.forged.lock().unwrap().clone()).into_response(),
        _ => Json(json!({ "bytes": bytes, "sha256": sha256 })).into_response(),
    }
}

fn workflows() -> Vec<Workflow> {
    let call = |path: &str, body: &str| json!({ "agent": "store", "request": { "path": path, "body": body } });
    let after = |step: &str, mut call: Value| {
        call["after"] = json!([step]);
        call
    };
    let read = call("${ input.path }", "${ input.document }");
    let report = json!({
        "agent": "store", "request": { "path": "/report", "body": { "bytes": "${ input.bytes }" } },
    });
    let values = [
        json!({
            "name": "scan", "version": 1,
            "steps": {
                "read": read, "report": after("read", report),
                "archive": after("report", call("/read", "${ steps.report.output }")),
            },
            "output": { "report": "${ steps.report.output }" },
        }),
        json!({
            "name": "pass-on", "version": 1,
            "steps": { "pass": {
                "agent": "store",
                "request": { "path": "/received", "body": { "document": "${ input.document }" } },
            } },
            "output": { "received": "${ steps.pass.output }" },
        }),
        json!({
            "name": "forged", "version": 1,
            "steps": {
                "ask": call("/forged", "x"),
                "send": after("ask", call("/echo", "${ steps.ask.output }")),
            },
        }),
        json!({
            "name": "forged-inside", "version": 1,
            "steps": {
                "ask": call("/forged", "x"),
                "send": after("ask", call("/echo", "${ [{ 'report': steps.ask.output }] }")),
            },
        }),
        json!({
            "name": "forged-text", "version": 1,
            "steps": {
                "ask": call("/forged-text", "x"),
                "send": after("ask", call("/echo", "${ steps.ask.output.text }")),
            },
        }),
        json!({
            "name": "forged-output", "version": 1,
            "steps": { "ask": call("/forged", "x") },
            "output": { "report": "${ steps.ask.output }" },
        }),
        json!({
            "name": "child", "version": 1,
            "steps": {
                "read": call("/echo", "${ input.document }"),
                "report": {
                    "after": ["read"], "agent": "store",
                    "request": { "path": "/report", "body": { "bytes": 300_000 } },
                },
            },
            "output": "${ steps.report.output }",
        }),
        json!({
            "name": "parent", "version": 1,
            "steps": {
                "child": { "workflow": { "name": "child", "input": { "document": "${ input.document }" } } },
                "archive": after("child", call("/read", "${ steps.child.output }")),
            },
        }),
    ];
    values.into_iter().map(|value| serde_json::from_value(value).unwrap()).collect()
}

pub(crate) struct Fixture {
    pub(crate) host: Host,
    pub(crate) service: Service,
    pub(crate) client: reqwest::Client,
}

impl Fixture {
    pub(crate) async fn start() -> Self {
        let service = Service::default();
        let routes = Router::new().fallback(post(respond)).with_state(service.clone());
        let routes = routes.layer(axum::extract::DefaultBodyLimit::disable());
        let url = serve(routes).await;
        let host = Host::start(HostOptions {
            listen: Some("127.0.0.1:0".parse().unwrap()),
            workflows: workflows(),
            agents: vec![("store".parse().unwrap(), url.parse().unwrap())],
            ..HostOptions::default()
        });
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        Self { host: host.await.unwrap(), service, client }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.host.address.unwrap())
    }

    /// `POST /payloads`.
    pub(crate) async fn prepare(&self, payload: Value) -> (u16, Value) {
        let request = self.client.post(self.url("/payloads")).body(payload.to_string());
        let response = request.send().await.unwrap();
        answer(response).await
    }

    /// Sends the prepared request with this content.
    pub(crate) async fn send(&self, upload: &Value, content: Vec<u8>) -> u16 {
        let mut request = self.client.put(upload["url"].as_str().unwrap()).body(content);
        for (name, value) in upload["headers"].as_object().unwrap() {
            if name != "content-length" {
                request = request.header(name, value.as_str().unwrap());
            }
        }
        request.send().await.unwrap().status().as_u16()
    }

    /// Uploads a payload, and returns the reference.
    pub(crate) async fn upload(&self, content: &[u8], content_type: &str) -> Value {
        let payload = json!({
            "bytes": content.len(), "sha256": digest(content), "content_type": content_type,
        });
        let (status, prepared) = self.prepare(payload).await;
        assert_eq!(status, 201, "{prepared}");
        assert_eq!(self.send(&prepared["upload"], content.to_vec()).await, 200);
        prepared["payload"].clone()
    }

    /// Submits a task, and returns the status and the body of the response.
    pub(crate) async fn submit(&self, id: &str, workflow: &str, input: Value) -> (u16, Value) {
        let submission = json!({ "task_id": id, "workflow": workflow, "input": input });
        let request = self.client.post(self.url("/tasks")).body(submission.to_string());
        let response = request.send().await.unwrap();
        answer(response).await
    }

    /// Submits a task, waits for its end, and returns it.
    pub(crate) async fn run(&self, id: &str, workflow: &str, input: Value) -> Value {
        let (status, body) = self.submit(id, workflow, input).await;
        assert_eq!(status, 202, "{body}");
        let request = self.client.get(self.url(&format!("/tasks/{id}?wait=25s")));
        answer(request.timeout(Duration::from_secs(60)).send().await.unwrap()).await.1
    }

    pub(crate) async fn task(&self, id: &str) -> Task {
        self.host.ports.store().load(&id.parse().unwrap()).await.unwrap().unwrap()
    }

    pub(crate) fn s3(&self) -> aws_sdk_s3::Client {
        let config = aws_sdk_s3::config::Builder::from(&self.host.aws.sdk_config());
        aws_sdk_s3::Client::from_conf(config.force_path_style(true).build())
    }

    /// The content of an object.
    pub(crate) async fn object(&self, key: &str) -> Vec<u8> {
        let get = self.s3().get_object().bucket(resources::PAYLOADS_BUCKET).key(key);
        get.send().await.unwrap().body.collect().await.unwrap().to_vec()
    }

    /// The keys of all objects of tasks.
    pub(crate) async fn keys(&self) -> Vec<String> {
        let list = self.s3().list_objects_v2().bucket(resources::PAYLOADS_BUCKET).prefix("tasks/");
        let objects = list.send().await.unwrap().contents.unwrap_or_default();
        objects.into_iter().filter_map(|object| object.key).collect()
    }
}
