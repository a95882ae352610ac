//! What `steward local` writes about itself: a log without colours, warnings of missing agents, and, as the functions on AWS, a
//! log in JSON with metrics, and traces. The tests run the real binary.

#![cfg(test)]

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    process::{Child, ChildStderr, Command, Stdio},
};

use serde_json::{Value, json};
use tempfile::TempDir;

/// A running `steward local` with a workflow of one step; dropping it kills it.
struct Local {
    process: Child,
    address: String,
    log: BufReader<ChildStderr>,
    _workflows: TempDir,
}

impl Local {
    /// Starts the process with these options. `collector` receives its traces.
    fn start(options: &[&str], collector: Option<&str>) -> Self {
        let workflows = TempDir::new().unwrap();
        let step = json!({ "agent": "payment", "request": { "path": "/charge" } });
        let definition = json!({ "name": "order", "version": 1, "steps": { "charge": step } });
        std::fs::write(workflows.path().join("order.json"), definition.to_string()).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_steward"));
        command.args(["local", "--listen", "127.0.0.1:0", "--workflows"]).arg(workflows.path());
        command.args(options).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.env_remove("RUST_LOG").env_remove("NO_COLOR").env("STEWARD_DEPLOYMENT", "shop");
        command.env("OTEL_EXPORTER_OTLP_ENDPOINT", collector.unwrap_or_default());
        let mut process = command.spawn().unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let submit = lines.map(Result::unwrap).find(|line| line.starts_with("submit")).unwrap();
        let (_, url) = submit.split_once("http://").unwrap();
        let address = url.split("/tasks").next().unwrap().to_owned();
        let log = BufReader::new(process.stderr.take().unwrap());
        Self { process, address, log, _workflows: workflows }
    }

    fn submit(&self) {
        let body = json!({ "task_id": "order-1", "workflow": "order", "input": {} }).to_string();
        let mut connection = TcpStream::connect(&self.address).unwrap();
        write!(
            connection,
            "POST /tasks HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        )
        .unwrap();
        let mut response = String::new();
        connection.read_to_string(&mut response).unwrap();
        assert!(response.starts_with("HTTP/1.1 202"), "{response}");
    }

    /// The next line of the log that fulfils this.
    fn logged(&mut self, is_wanted: impl Fn(&str) -> bool) -> String {
        let mut line = String::new();
        while !is_wanted(&line) {
            line.clear();
            assert_ne!(self.log.read_line(&mut line).unwrap(), 0, "the process has ended");
        }
        line
    }

    /// The next line of a log in JSON that fulfils this.
    fn logged_json(&mut self, is_wanted: impl Fn(&Value) -> bool) -> Value {
        let parse = |line: &str| serde_json::from_str(line).expect("a line of JSON");
        let line = self.logged(|line| !line.is_empty() && is_wanted(&parse(line)));
        parse(&line)
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

#[test]
fn an_agent_that_nobody_serves_is_named_at_the_start_in_a_log_without_colours() {
    let mut local = Local::start(&[], None);
    let line = local.logged(|line| line.contains("no agent of this name is registered"));
    assert!(!line.contains('\u{1b}'), "{line:?}");
    assert!(line.contains(" WARN "), "{line}");
    assert!(line.contains("workflow=order step=charge agent=payment"), "{line}");
}

#[test]
fn an_agent_of_this_or_of_another_process_causes_no_warning() {
    for options in [["--agent", "payment=http://127.0.0.1:1"], ["--queue-agent", "payment"]] {
        let mut local = Local::start(&options, None);
        local.submit();
        local.process.kill().unwrap();
        let mut log = String::new();
        local.log.read_to_string(&mut log).unwrap();
        assert!(!log.contains("no agent of this name"), "{log}");
    }
}

#[test]
fn the_log_in_json_has_the_lines_and_the_metrics_of_the_functions() {
    let mut local = Local::start(&["--log-format", "json"], None);
    let warning = local.logged_json(|line| line["agent"] == "payment");
    assert_eq!(warning["level"], "WARN", "{warning}");
    assert_eq!((&warning["workflow"], &warning["step"]), (&json!("order"), &json!("charge")));
    local.submit();
    let driven = local.logged_json(|line| line["task_id"] == "order-1");
    assert!(driven["message"].is_string() && driven["timestamp"].is_string(), "{driven}");
    let metric = local.logged_json(|line| line["steward_attempts_started_total"].is_number());
    assert_eq!(metric["deployment"], "shop", "{metric}");
    assert_eq!(metric["_aws"]["CloudWatchMetrics"][0]["Namespace"], "Steward", "{metric}");
}

#[test]
fn traces_are_sent_to_the_collector_that_the_environment_names() {
    let collector = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", collector.local_addr().unwrap());
    let local = Local::start(&["--queue-agent", "payment"], Some(&url));
    local.submit();
    let mut request = BufReader::new(collector.accept().unwrap().0);
    let mut first = String::new();
    request.read_line(&mut first).unwrap();
    assert_eq!(first, "POST /v1/traces HTTP/1.1\r\n");
}
