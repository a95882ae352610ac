//! The functions' processes: finds them by their environment, kills them, reads their credentials.

use std::{collections::HashMap, fs, process::Command, time::Duration};

use aws_credential_types::Credentials;
use reqwest::Method;
use serde_json::{Value, json};

use super::{
    aws_requests::{root, signed, wait_for},
    target::{TargetKind, deployment_target},
};

/// A process that runs a function.
pub(super) struct FunctionProcess {
    pid: String,
    environment: HashMap<String, String>,
}

impl FunctionProcess {
    /// Kills the process at once, without a chance to finish anything.
    pub(super) fn kill(&self) {
        // The process may have ended already.
        let _ = Command::new("kill").args(["-KILL", &self.pid]).status().unwrap();
    }

    /// The credentials with which the function calls AWS.
    pub(super) fn credentials(&self) -> Credentials {
        let of = |name: &str| self.environment[name].clone();
        let (key, secret) = (of("AWS_ACCESS_KEY_ID"), of("AWS_SECRET_ACCESS_KEY"));
        Credentials::new(key, secret, Some(of("AWS_SESSION_TOKEN")), None, "function")
    }
}

/// Kills the processes of a function as soon as there are any. On AWS nothing can do that; instead, this shortens the
/// function's timeout for a while.
pub(super) async fn kill(function: &str) {
    if deployment_target().kind == TargetKind::Aws {
        return shorten_timeout(function).await;
    }
    let running = async || Some(processes(function)).filter(|found| !found.is_empty());
    for process in wait_for(&format!("a process of {function}"), running).await {
        process.kill();
    }
}

/// Sets the function's timeout to one second for half a minute. AWS stops only invocations that start in that time and take
/// longer. An invocation that is running keeps the timeout with which it started, and an agent defers requests for which it
/// has no time.
async fn shorten_timeout(function: &str) {
    let before = configuration(Method::GET, function, "").await;
    set_timeout(function, &json!(1)).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    set_timeout(function, &before["Timeout"]).await;
}

/// Sets the function's timeout, and waits until new invocations have it. Lambda refuses a change while another one is in progress.
async fn set_timeout(function: &str, seconds: &Value) {
    configuration(Method::PUT, function, &json!({ "Timeout": seconds }).to_string()).await;
    let updated = async || {
        let now = configuration(Method::GET, function, "").await;
        assert_ne!(now["LastUpdateStatus"], "Failed", "{function}: {now}");
        (now["LastUpdateStatus"] == "Successful").then_some(())
    };
    wait_for(&format!("the configuration of {function}"), updated).await;
}

/// Reads or changes the configuration of a function.
pub(super) async fn configuration(method: Method, function: &str, body: &str) -> Value {
    let path = format!("2015-03-31/functions/{function}/configuration");
    let url = format!("{}/{path}", deployment_target().endpoint("lambda"));
    let response = signed(&root(), "lambda", (method, &url), &[], body).await;
    let (status, text) = (response.status(), response.text().await.unwrap());
    assert_eq!(status, 200, "{function}: {text}");
    serde_json::from_str(&text).unwrap()
}

/// The processes that currently run a function on this emulator.
pub(super) fn processes(function: &str) -> Vec<FunctionProcess> {
    let folders = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let mut processes: Vec<_> = folders.filter_map(|folder| read(&folder.path())).collect();
    processes.retain(|FunctionProcess { environment, .. }| {
        let is = |name: &str, value: &str| environment.get(name).is_some_and(|set| set == value);
        is("AWS_LAMBDA_FUNCTION_NAME", function)
            && is("AWS_ENDPOINT_URL", &deployment_target().endpoint("lambda"))
    });
    processes
}

/// Reads a process; `None` if it runs no function, or has ended. Functions in Python and JavaScript run in an interpreter.
fn read(folder: &std::path::Path) -> Option<FunctionProcess> {
    let program = fs::read_link(folder.join("exe")).ok()?;
    let program = program.file_name()?.to_str()?;
    if !["bootstrap", "node"].contains(&program) && !program.starts_with("python") {
        return None;
    }
    let environment = fs::read(folder.join("environ")).ok()?;
    let pairs = environment.split(|byte| *byte == 0).filter_map(|pair| {
        let (name, value) = str::from_utf8(pair).ok()?.split_once('=')?;
        Some((name.to_owned(), value.to_owned()))
    });
    Some(FunctionProcess {
        pid: folder.file_name()?.to_str()?.to_owned(),
        environment: pairs.collect(),
    })
}
