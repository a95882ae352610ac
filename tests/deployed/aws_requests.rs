//! Signed HTTP requests to AWS without an SDK client, the deployment scripts, and polling.

use std::{
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use aws_credential_types::Credentials;
use aws_sigv4::{
    http_request::{SignableBody, SignableRequest, SigningSettings, sign},
    sign::v4,
};
use reqwest::{Method, Response, StatusCode};
use serde_json::Value;
use tokio::{process::Command, sync::Mutex};

use super::target::deployment_target;

/// Polls until `look` returns a value. Panics after the target's `longest_wait`.
pub(super) async fn wait_for<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let waiting = async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
    };
    tokio::time::timeout(deployment_target().longest_wait(), waiting)
        .await
        .unwrap_or_else(|_| panic!("timeout: waited for {what}"))
}

/// Sends a request and retries it after status 429 or 5xx, as `docs/http.md` requires; returns the first other response.
pub(super) async fn with_retries(what: &str, mut send: impl AsyncFnMut() -> Response) -> Response {
    let once = async || {
        let response = send().await;
        let status = response.status();
        if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS {
            eprintln!("{what}: {status}: {}", response.text().await.unwrap_or_default());
            return None;
        }
        Some(response)
    };
    wait_for(what, once).await
}

/// The folder of the repository.
pub(super) fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Scripts run one at a time: LocalStack does not always survive several deployments at once, and `sam` keeps a processor
/// busy anyway.
static ONE_SCRIPT: Mutex<()> = Mutex::const_new(());

/// Runs a script of the repository, and returns what it printed.
pub(super) async fn run(script: &str, arguments: &[&str]) -> String {
    let _one = ONE_SCRIPT.lock().await;
    let root = repository();
    let mut command = Command::new(root.join(script));
    let output = command.args(arguments).current_dir(&root).output().await.unwrap();
    let [printed, errors] =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    let status = output.status;
    assert!(status.success(), "{script} {arguments:?}: {status}\n{printed}\n{errors}");
    printed
}

/// Credentials with all permissions: on an emulator those of the account's root.
pub(super) fn root() -> Credentials {
    let set = |name| std::env::var(name).ok();
    let key = set("AWS_ACCESS_KEY_ID").expect("AWS_ACCESS_KEY_ID: source infra/localstack/env");
    let secret = set("AWS_SECRET_ACCESS_KEY").expect("AWS_SECRET_ACCESS_KEY");
    Credentials::new(key, secret, set("AWS_SESSION_TOKEN"), None, "root")
}

/// Sends a request signed with Signature Version 4 for a service.
pub(super) async fn signed(
    credentials: &Credentials,
    service: &str,
    (method, url): (Method, &str),
    headers: &[(&str, &str)],
    body: &str,
) -> Response {
    let identity = credentials.clone().into();
    let parameters = v4::SigningParams::builder()
        .identity(&identity)
        .region(&deployment_target().region)
        .name(service)
        .time(SystemTime::now())
        .settings(SigningSettings::default())
        .build()
        .unwrap();
    let signable = SignableBody::Bytes(body.as_bytes());
    let request = SignableRequest::new(method.as_str(), url, headers.iter().copied(), signable);
    let (instructions, _) = sign(request.unwrap(), &parameters.into()).unwrap().into_parts();
    let mut request = reqwest::Client::new().request(method, url).body(body.to_owned());
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    for (name, value) in instructions.headers() {
        request = request.header(name, value);
    }
    request.send().await.unwrap()
}

/// The version of AWS's JSON protocol that a service documents.
fn content_type(service: &str) -> &'static str {
    match service {
        "dynamodb" | "sqs" => "application/x-amz-json-1.0",
        _ => "application/x-amz-json-1.1",
    }
}

/// Calls an operation of a service with AWS's JSON protocol; returns status and body.
pub(super) async fn call(
    credentials: &Credentials,
    service: &str,
    target: &str,
    body: &Value,
) -> (u16, Value) {
    let headers = [("content-type", content_type(service)), ("x-amz-target", target)];
    let url = format!("{}/", deployment_target().endpoint(service));
    let response =
        signed(credentials, service, (Method::POST, &url), &headers, &body.to_string()).await;
    let status = response.status().as_u16();
    let text = response.text().await.unwrap();
    (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
}
