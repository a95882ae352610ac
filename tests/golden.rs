//! Golden files: every request that writes, sends or publishes, and every metric, of tasks with each kind of
//! step, at a fixed time. A change of a stored format, of a message, of an event or of a metric shows up as a
//! difference from `tests/golden/`. `STEWARD_RENEW=1 cargo test --workspace --test steward golden` writes the
//! files anew: the difference belongs in the commit that causes it.

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
use steward_core::{definition::workflow::Workflow, model::messages::StepRequest};
use steward_emulator::resources;
use steward_runtime::ports::{Clock, Ports};

use crate::support::{AdapterPorts, TestDeployment, sqs_event};

/// 2100-01-01: nothing that is written then has expired by any other clock.
const START: i64 = 4_102_444_800;

/// Records the requests that change something at AWS, in order.
#[derive(Debug, Clone, Default)]
struct WireLog(Arc<Mutex<String>>);

impl Intercept for WireLog {
    fn name(&self) -> &'static str {
        "wire log"
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
        sort(&mut body);
        writeln!(self.0.lock().unwrap(), "{operation} {body:#}")?;
        Ok(())
    }
}

/// Sorts the fields of every object, and takes out what differs from run to run.
fn sort(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.remove("ClientRequestToken");
            fields.sort_keys();
            fields.values_mut().for_each(sort);
        }
        Value::Array(items) => items.iter_mut().for_each(sort),
        // A body that is JSON itself keeps its order: that is part of the format.
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The workflow: a call, two items, a child task, a wait, a callback, and a call that fails if the input says so.
fn workflows() -> [Workflow; 2] {
    let call = |path: &str| json!({ "agent": "a", "request": { "path": path, "body": { "order": "${ input.order }" } } });
    let with = |mut step: Value, fields: Value| {
        let fields = fields.as_object().unwrap().clone();
        step.as_object_mut().unwrap().extend(fields);
        step
    };
    let undo = |id: &str| json!({ "request": { "path": "/undo", "body": { "id": id } } });
    let parent = json!({
        "name": "golden", "version": 1, "lifecycle_events": true, "output": "${ steps.last.output }",
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

/// What the remote service does with a request: `/last` of an order that is refused fails, and its first
/// attempt at any order is of unknown outcome.
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

struct Golden {
    deployment: TestDeployment,
    ports: AdapterPorts,
}

impl Golden {
    async fn schedule(&self, bodies: Vec<String>) {
        let answer = steward_scheduler::handle(&self.ports, sqs_event(bodies, 1)).await;
        assert_eq!(answer.batch_item_failures, []);
    }

    async fn submit(&self, bodies: Vec<String>) {
        let queues = &self.deployment.config.reply_queues;
        let answer = steward_submission::handle(&self.ports, queues, sqs_event(bodies, 1)).await;
        assert_eq!(answer.batch_item_failures, []);
    }

    /// Delivers one round of messages. Answers whether there was any.
    async fn round(&self) -> bool {
        let config = &self.deployment.config;
        let submitted = self.deployment.take_messages(&config.submissions_queue_url).await;
        let submitted: Vec<_> = submitted.into_iter().filter_map(|message| message.body).collect();
        let mut to_scheduler = self.deployment.take_scheduler_messages().await;
        for request in self.deployment.take_agent_requests().await {
            to_scheduler.push(reply(&request).to_string());
            if request.path == "/sign" {
                let body: Value =
                    serde_json::from_str(request.body.as_ref().unwrap().as_str()).unwrap();
                let answer = json!({ "type": "callback", "token": body["token"], "answer": "completed", "output": { "by": "ann" } });
                to_scheduler.push(answer.to_string());
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

    /// Delivers until nothing is left to do, the clock moving on whenever no message is there.
    async fn run(&self) {
        for _ in 0..12 {
            while self.round().await {}
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
    let wire = WireLog::default();
    let ports =
        deployment.ports_with_interceptors("golden", vec![SharedInterceptor::new(wire.clone())]);
    let golden = Golden { deployment, ports };

    for id in ["paid", "refused"] {
        let submission = json!({ "task_id": id, "workflow": "golden", "reply_to": client, "input": { "order": id, "items": [1, 2] } });
        golden.submit(vec![submission.to_string()]).await;
        golden.run().await;
    }
    let command = json!({
        "type": "command", "command_id": "c-1", "task_id": "refused", "by": "ann", "why": "a drill", "order": { "command": "undo" },
    });
    golden.schedule(vec![command.to_string()]).await;
    golden.run().await;

    let mut counted = String::new();
    for (key, _, _, value) in recorder.snapshotter().snapshot().into_vec() {
        let labels: Vec<_> = key.key().labels().map(|label| (label.key(), label.value())).collect();
        writeln!(counted, "{} {labels:?} {value:?}", key.key().name()).unwrap();
    }
    let mut lines: Vec<_> = counted.lines().collect();
    lines.sort_unstable();
    let wire = wire.0.lock().unwrap().replace(golden.ports.instance(), "golden-instance");
    compare("wire.txt", &wire);
    compare("metrics.txt", &(lines.join("\n") + "\n"));
}

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
