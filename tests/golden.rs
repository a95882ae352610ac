//! Golden files: every write, message, event and metric of tasks with each kind of step, at a fixed time. A change of a
//! stored format, a message, an event or a metric is a difference from `tests/golden/`. The command
//! `STEWARD_RENEW=1 cargo test --workspace --test steward golden` rewrites the files: commit them with the change that
//! causes the difference.

use std::{
    fmt::Write,
    sync::{Arc, Mutex},
};

use aws_smithy_runtime_api::{
    box_error::BoxError,
    client::{
        interceptors::{Intercept, context::BeforeTransmitInterceptorContextRef},
        orchestrator::Metadata,
        runtime_components::RuntimeComponents,
    },
};
use aws_smithy_types::config_bag::ConfigBag;
use metrics_util::debugging::DebuggingRecorder;
use serde_json::{Value, json};
use steward_aws::ports::SharedInterceptor;
use steward_core::{
    definition::workflow::Workflow,
    model::{lifecycle::LifecycleEventKind, messages::StepRequest},
};
use steward_emulator::resources;
use steward_runtime::ports::{Clock, Ports};

use crate::support::{AdapterPorts, TestDeployment, commands_event, scheduler_instance, sqs_event};

/// 2100-01-01 in Unix seconds: nothing with such times is expired by the machine's clock.
const START: i64 = 4_102_444_800;

/// Records the requests that write, send or publish, in order.
#[derive(Debug, Clone, Default)]
struct WriteRecorder(Arc<Mutex<String>>);

impl Intercept for WriteRecorder {
    fn name(&self) -> &'static str {
        "write recorder"
    }

    fn read_before_transmit(
        &self,
        context: &BeforeTransmitInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        bag: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let operation = bag.load::<Metadata>().map_or("", |metadata| metadata.name());
        if !matches!(
            operation,
            "PutItem"
                | "UpdateItem"
                | "TransactWriteItems"
                | "BatchExecuteStatement"
                | "SendMessageBatch"
                | "SendMessage"
                | "PutEvents"
        ) {
            return Ok(());
        }
        let body = context.request().body().bytes().unwrap_or_default();
        let mut body: Value = serde_json::from_slice(body)?;
        normalize(&mut body);
        writeln!(self.0.lock().unwrap(), "{operation} {body:#}")?;
        Ok(())
    }
}

/// Sorts the fields of every object, and removes fields that differ between runs.
fn normalize(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.remove("ClientRequestToken");
            fields.sort_keys();
            fields.values_mut().for_each(normalize);
        }
        Value::Array(items) => items.iter_mut().for_each(normalize),
        // JSON in a string keeps its order, because the order is part of the format.
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The workflow, with a call, two items, a child task, a wait, a callback and a last call; and the workflow of the child.
fn workflows() -> [Workflow; 2] {
    let call = |path: &str| json!({ "agent": "a", "request": { "path": path, "body": { "order": "${ input.order }" } } });
    let with = |mut step: Value, fields: Value| {
        let fields = fields.as_object().unwrap().clone();
        step.as_object_mut().unwrap().extend(fields);
        step
    };
    let undo = |id: &str| json!({ "request": { "path": "/undo", "body": { "id": id } } });
    let parent = json!({
        "name": "golden", "version": 1, "lifecycle_events": LifecycleEventKind::ALL, "output": "${ steps.last.output }",
        "steps": {
            "reserve": with(call("/reserve"), json!({ "undo": undo("${ steps.reserve.output.id }") })),
            "ship": with(call("/ship"), json!({
                "after": ["reserve"], "for_each": { "items": "${ input.items }" },
                "undo": undo("${ steps.ship.output.id } of ${ item }"),
            })),
            "child": { "workflow": { "name": "small", "input": { "n": 1 } }, "after": ["ship"] },
            "cool": { "wait": "30s", "after": ["child"] },
            "sign": with(call("/sign"), json!({
                "after": ["cool"], "callback": { "within": "1h" },
                "request": { "path": "/sign", "body": { "token": "${ callback.token }" } },
            })),
            "last": with(call("/last"), json!({ "after": ["sign"], "recovery": { "attempts": 2 } })),
        },
    });
    let child = json!({
        "name": "small", "version": 1, "output": "${ steps.only.output }",
        "steps": { "only": {
            "agent": "a", "request": { "path": "/only", "body": { "n": "${ input.n }" } }, "undo": undo("${ steps.only.output.id }"),
        } },
    });
    [parent, child].map(|workflow| serde_json::from_value(workflow).unwrap())
}

/// The agent's reply to a request. The first attempt at `/last` has an unknown outcome; later attempts fail for the task
/// `refused`. All other requests are completed.
fn reply(request: &StepRequest) -> Value {
    let outcome = match (request.path.as_str(), request.attempt) {
        ("/last", 1) => json!({ "status": "unknown", "reason": "the call took too long" }),
        ("/last", _) if request.task_id.as_str() == "refused" => {
            json!({ "status": "failed", "reason": "402" })
        }
        _ => {
            json!({ "status": "completed", "output": { "id": format!("{}-{}", request.step, request.attempt) } })
        }
    };
    json!({
        "type": "reply", "task_id": request.task_id, "step": request.step, "action": request.action,
        "attempt": request.attempt, "outcome": outcome, "incarnation": request.incarnation,
    })
}

/// The deployment whose requests are recorded.
struct GoldenRun {
    deployment: TestDeployment,
    ports: AdapterPorts,
}

impl GoldenRun {
    async fn schedule(&self, bodies: Vec<String>) {
        let response = steward_scheduler::handle(&self.ports, sqs_event(bodies, 1)).await;
        assert_eq!(response.batch_item_failures, []);
    }

    async fn command(&self, body: String) {
        let (instance, event) = (scheduler_instance(""), commands_event([body], Some("AIDAANN")));
        let response = steward_scheduler::handle_with(&self.ports, &instance, event).await;
        assert_eq!(response.batch_item_failures, []);
    }

    async fn submit(&self, bodies: Vec<String>) {
        let queues = &self.deployment.config.reply_queues;
        let response = steward_submission::handle(&self.ports, queues, sqs_event(bodies, 1)).await;
        assert_eq!(response.batch_item_failures, []);
    }

    /// Delivers the messages in the queues; returns whether there were any.
    async fn deliver(&self) -> bool {
        let config = &self.deployment.config;
        let submitted = self.deployment.take_messages(&config.submissions_queue_url).await;
        let submitted: Vec<_> = submitted.into_iter().filter_map(|message| message.body).collect();
        let mut to_scheduler = self.deployment.take_scheduler_messages().await;
        for request in self.deployment.take_agent_requests().await {
            to_scheduler.push(reply(&request).to_string());
            if request.path == "/sign" {
                let body: Value =
                    serde_json::from_str(request.body.as_ref().unwrap().as_str()).unwrap();
                let callback = json!({ "type": "callback", "token": body["token"], "answer": "completed", "output": { "by": "ann" } });
                to_scheduler.push(callback.to_string());
            }
        }
        let any = !submitted.is_empty() || !to_scheduler.is_empty();
        for body in submitted {
            self.submit(vec![body]).await;
        }
        for body in to_scheduler {
            self.schedule(vec![body]).await;
        }
        any
    }

    /// Delivers all messages, then advances the clock by a minute and sweeps; twelve times, which ends every task here.
    async fn run_to_end(&self) {
        for _ in 0..12 {
            while self.deliver().await {}
            self.deployment.clock.advance_seconds(60);
            let until = self.deployment.clock.now() + jiff::SignedDuration::from_secs(5);
            steward_supervisor::sweep(&self.ports, 0, until).await.unwrap();
        }
    }
}

#[tokio::test]
async fn writes_messages_events_and_metrics_match_the_golden_files() {
    let recorder: &'static DebuggingRecorder = Box::leak(Box::new(DebuggingRecorder::new()));
    let _metrics = metrics::set_default_local_recorder(recorder);
    let [parent, child] = workflows();
    assert_eq!((parent.problems(), child.problems()), (vec![], vec![]));
    let deployment = TestDeployment::new(&parent).await;
    deployment.ports("publisher").definitions().publish(&child).await.unwrap();
    deployment.clock.set(jiff::Timestamp::from_second(START).unwrap());
    let sdk = deployment.aws.sdk_config();
    let client = resources::create_queue(&sdk, "client-golden", None);
    let client = client.await.unwrap();
    let writes = WriteRecorder::default();
    let ports =
        deployment.ports_with_interceptors("golden", vec![SharedInterceptor::new(writes.clone())]);
    let run = GoldenRun { deployment, ports };

    for id in ["paid", "refused"] {
        let submission = json!({ "task_id": id, "workflow": "golden", "reply_to": client, "input": { "order": id, "items": [1, 2] } });
        run.submit(vec![submission.to_string()]).await;
        run.run_to_end().await;
    }
    let command = json!({
        "type": "command", "command_id": "c-1", "task_id": "refused", "by": "ann", "why": "a drill", "order": { "command": "undo" },
    });
    run.command(command.to_string()).await;
    run.run_to_end().await;

    let mut metrics = String::new();
    for (key, _, _, value) in recorder.snapshotter().snapshot().into_vec() {
        let labels: Vec<_> = key.key().labels().map(|label| (label.key(), label.value())).collect();
        writeln!(metrics, "{} {labels:?} {value:?}", key.key().name()).unwrap();
    }
    // On a slow machine, delayed messages arrive during the run, after their tasks have ended.
    let is_timeless = |line: &&str| !line.contains(r#"("reason", "Ended")"#);
    let mut lines: Vec<_> = metrics.lines().filter(is_timeless).collect();
    lines.sort_unstable();
    let writes = writes.0.lock().unwrap().replace(run.ports.instance(), "golden-instance");
    compare("wire.txt", &writes);
    compare("metrics.txt", &(lines.join("\n") + "\n"));
}

/// Compares a text with its golden file, or rewrites the file if `STEWARD_RENEW` is set.
fn compare(file: &str, found: &str) {
    let path = format!("{}/golden/{file}", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("STEWARD_RENEW").is_some() {
        std::fs::write(&path, found).unwrap();
        return;
    }
    let golden = std::fs::read_to_string(&path).unwrap_or_default();
    if let Some((n, (old, new))) =
        golden.lines().zip(found.lines()).enumerate().find(|(_, (old, new))| old != new)
    {
        panic!("{file}, line {}: `{old}` is now `{new}`", n + 1);
    }
    assert_eq!(golden.lines().count(), found.lines().count(), "{file}");
}
