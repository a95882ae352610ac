//! The functions' processes: found by their environment, killed, and asked for their credentials.

use std::{collections::HashMap, fs, process::Command, time::Duration};

use aws_credential_types::Credentials;
use reqwest::Method;
use serde_json::{Value, json};

use super::{
    emulator::{root, signed, wait_for},
    place::{Kind, place},
};

/// A process that runs a function.
pub(super) struct Process {
    pid: String,
    environment: HashMap<String, String>,
}

impl Process {
    /// As the machine would: nothing is finished, nobody is told.
    pub(super) fn kill(&self) {
        // It may have ended by itself.
        let _ = Command::new("kill").args(["-KILL", &self.pid]).status().unwrap();
    }

    /// What it calls AWS with.
    pub(super) fn credentials(&self) -> Credentials {
        let of = |name: &str| self.environment[name].clone();
        let (key, secret) = (of("AWS_ACCESS_KEY_ID"), of("AWS_SECRET_ACCESS_KEY"));
        Credentials::new(key, secret, Some(of("AWS_SESSION_TOKEN")), None, "function")
    }
}

/// Kills a function with what it has in hand, once it has something. On AWS it is disturbed: see below.
pub(super) async fn kill(function: &str) {
    if place().kind == Kind::Aws {
        return run_out_of_time(function).await;
    }
    let running = async || Some(processes(function)).filter(|found| !found.is_empty());
    for process in wait_for(&format!("a process of {function}"), running).await {
        process.kill();
    }
}

/// Lets a function run for a second only, for half a minute. AWS kills the invocations that begin meanwhile and take longer;
/// an agent gives back what it has no time for.
async fn run_out_of_time(function: &str) {
    let before = configuration(Method::GET, function, "").await;
    let limit = |seconds: &Value| json!({ "Timeout": seconds }).to_string();
    configuration(Method::PUT, function, &limit(&json!(1))).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    configuration(Method::PUT, function, &limit(&before["Timeout"])).await;
}

async fn configuration(method: Method, function: &str, body: &str) -> Value {
    let path = format!("2015-03-31/functions/{function}/configuration");
    let url = format!("{}/{path}", place().endpoint("lambda"));
    let answer = signed(&root(), "lambda", (method, &url), &[], body).await;
    let (status, text) = (answer.status(), answer.text().await.unwrap());
    assert_eq!(status, 200, "{function}: {text}");
    serde_json::from_str(&text).unwrap()
}

/// The processes that run this function now, on this emulator.
pub(super) fn processes(function: &str) -> Vec<Process> {
    let folders = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let mut processes: Vec<_> = folders.filter_map(|folder| read(&folder.path())).collect();
    processes.retain(|Process { environment, .. }| {
        let is = |name: &str, value: &str| environment.get(name).is_some_and(|set| set == value);
        is("AWS_LAMBDA_FUNCTION_NAME", function)
            && is("AWS_ENDPOINT_URL", &place().endpoint("lambda"))
    });
    processes
}

/// A process that runs a `bootstrap`, if it is one, and is still there.
fn read(folder: &std::path::Path) -> Option<Process> {
    let program = fs::read_link(folder.join("exe")).ok()?;
    if program.file_name()? != "bootstrap" {
        return None;
    }
    let environment = fs::read(folder.join("environ")).ok()?;
    let pairs = environment.split(|byte| *byte == 0).filter_map(|pair| {
        let (name, value) = str::from_utf8(pair).ok()?.split_once('=')?;
        Some((name.to_owned(), value.to_owned()))
    });
    Some(Process { pid: folder.file_name()?.to_str()?.to_owned(), environment: pairs.collect() })
}
