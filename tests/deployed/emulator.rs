//! What has no SDK client here: signed requests as any caller makes them, and the scripts that deploy.

use std::{
    path::Path,
    process::Stdio,
    time::{Duration, SystemTime},
};

use aws_credential_types::Credentials;
use aws_sigv4::{
    http_request::{SignableBody, SignableRequest, SigningSettings, sign},
    sign::v4,
};
use reqwest::{Method, Response, StatusCode};
use serde_json::Value;
use tokio::process::Command;

use super::place::place;

/// How long anything may take that ends by itself: some runs of the supervisor, one a minute.
const PATIENCE: Duration = Duration::from_secs(420);

/// Waits until there is something.
pub(super) async fn wait_for<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let waiting = async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.unwrap_or_else(|_| panic!("waited for {what}"))
}

/// What is answered at last: whoever is told 429 or 5xx asks again, as `docs/http.md` says.
pub(super) async fn answered(what: &str, mut ask: impl AsyncFnMut() -> Response) -> Response {
    let once = async || {
        let response = ask().await;
        let status = response.status();
        if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS {
            eprintln!("{what}: {status}: {}", response.text().await.unwrap_or_default());
            return None;
        }
        Some(response)
    };
    wait_for(what, once).await
}

/// Runs a script of the repository, and returns what it printed.
pub(super) async fn run(script: &str, arguments: &[&str]) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut command = Command::new(root.join(script));
    command.args(arguments).current_dir(&root).stderr(Stdio::inherit());
    let output = command.output().await.unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{script} {arguments:?}\n{said}");
    said
}

/// Who may do everything: on an emulator the account's root.
pub(super) fn root() -> Credentials {
    let set = |name| std::env::var(name).ok();
    let key = set("AWS_ACCESS_KEY_ID").expect("AWS_ACCESS_KEY_ID: source infra/localstack/env");
    let secret = set("AWS_SECRET_ACCESS_KEY").expect("AWS_SECRET_ACCESS_KEY");
    Credentials::new(key, secret, set("AWS_SESSION_TOKEN"), None, "root")
}

/// A request signed by Signature Version 4, for the service of this name.
pub(super) async fn signed(
    who: &Credentials,
    service: &str,
    (method, url): (Method, &str),
    headers: &[(&str, &str)],
    body: &str,
) -> Response {
    let identity = who.clone().into();
    let parameters = v4::SigningParams::builder()
        .identity(&identity)
        .region(&place().region)
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

/// Calls an operation of a service that speaks AWS's JSON protocol.
pub(super) async fn call(
    who: &Credentials,
    service: &str,
    target: &str,
    body: &Value,
) -> (u16, Value) {
    let headers = [("content-type", "application/x-amz-json-1.1"), ("x-amz-target", target)];
    let url = format!("{}/", place().endpoint(service));
    let answer = signed(who, service, (Method::POST, &url), &headers, &body.to_string()).await;
    let status = answer.status().as_u16();
    let text = answer.text().await.unwrap();
    (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
}
