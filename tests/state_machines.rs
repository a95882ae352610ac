//! Imported state machines run as the state machines would: the same calls with the same bodies, the same output, and the
//! compensations in the same order. The expected behaviour is derived by hand from the Amazon States Language specification.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use axum::{
    Json, Router,
    extract::State,
    http::{StatusCode, Uri},
    response::{IntoResponse, Response},
};
use serde_json::{Value, json};
use steward_asl_import::{Options, Status, import};
use steward_core::model::task::{ProcessState, Task};
use steward_emulator::host::{Host, HostOptions};
use steward_runtime::ports::{Ports, StateStore};

use crate::support::serve;

type Calls = Arc<Mutex<Vec<(String, Value)>>>;

/// Functions that return `{ "of": NAME, "got": BODY }`. The function `refused` fails.
async fn start_functions() -> (String, Calls) {
    let calls = Calls::default();
    let handler = |State(calls): State<Calls>, uri: Uri, Json(body): Json<Value>| async move {
        let name = uri.path().trim_start_matches('/').to_owned();
        let mut calls = calls.lock().unwrap();
        if !calls.contains(&(name.clone(), body.clone())) {
            calls.push((name.clone(), body.clone()));
        }
        if name == "refused" {
            return Response::from((StatusCode::PAYMENT_REQUIRED, "").into_response());
        }
        Json(json!({ "of": name, "got": body })).into_response()
    };
    let router = Router::new().fallback(handler).with_state(calls.clone());
    let url = serve(router).await;
    (url, calls)
}

/// What an execution did.
struct Execution {
    task: Task,
    output: Value,
    calls: Vec<(String, Value)>,
}

impl Execution {
    fn names(&self) -> Vec<&str> {
        self.calls.iter().map(|(name, _)| name.as_str()).collect()
    }
}

/// Imports the machine, which must be complete, and runs it with this input.
async fn execute(machine: &Value, input: Value) -> Execution {
    let options = Options {
        name: "machine".into(),
        region: "eu-west-1".into(),
        substitutions: BTreeMap::new(),
    };
    let import = import(&machine.to_string(), &options).unwrap();
    assert_eq!(import.report.status(), Status::Complete, "{:#?}", import.report);
    let workflows = import.definitions.iter().map(|definition| {
        steward_definition_file::parse("machine.yaml".as_ref(), &definition.yaml).unwrap()
    });
    let (url, calls) = start_functions().await;
    let agents = import.agents.iter();
    let host = Host::start(HostOptions {
        listen: Some("127.0.0.1:0".parse().unwrap()),
        workflows: workflows.collect(),
        agents: agents.map(|a| (a.name.parse().unwrap(), url.parse().unwrap())).collect(),
        supervise_every: Some(Duration::from_millis(500)),
        ..HostOptions::default()
    });
    let host = Box::pin(host).await.unwrap();
    let tasks = format!("http://{}/tasks", host.address.unwrap());
    let submission = json!({ "task_id": "t-1", "workflow": "machine", "input": input });
    let response = reqwest::Client::new().post(&tasks).body(submission.to_string());
    assert_eq!(response.send().await.unwrap().status().as_u16(), 202);
    let deadline = Instant::now() + Duration::from_secs(60);
    let task = loop {
        let task = host.ports.store().load(&"t-1".parse().unwrap()).await.unwrap();
        match task {
            Some(task) if task.process_state.has_stopped() => break task,
            other => assert!(Instant::now() < deadline, "the task has not ended: {other:#?}"),
        }
        tokio::task::yield_now().await;
    };
    let response = reqwest::get(format!("{tasks}/t-1")).await.unwrap().text().await.unwrap();
    let output = serde_json::from_str::<Value>(&response).unwrap()["output"].take();
    let calls = calls.lock().unwrap().clone();
    Execution { task, output, calls }
}

fn function(name: &str, more: Value) -> Value {
    let resource = format!("arn:aws:lambda:eu-west-1:123456789012:function:{name}");
    let mut task = json!({ "Type": "Task", "Resource": resource });
    for (key, value) in more.as_object().unwrap() {
        task[key] = value.clone();
    }
    task
}

/// Orders over 100 are approved before they are charged. Then the parcels are packed in two steps each, while a receipt is
/// written.
fn order() -> Value {
    let packing = json!({ "StartAt": "Fold", "States": {
        "Fold": function("fold", json!({ "ResultPath": "$.folded", "Next": "Fill" })),
        "Fill": function("fill", json!({
            "Parameters": { "sku.$": "$.sku", "into.$": "$.folded.of" }, "OutputPath": "$.got", "End": true,
        })),
    } });
    let receipt = json!({ "StartAt": "Receipt", "States": {
        "Receipt": function("receipt", json!({ "Parameters": { "total.$": "$.total" }, "End": true })),
    } });
    let parcels = json!({ "StartAt": "Pack", "States": {
        "Pack": { "Type": "Map", "ItemsPath": "$.parcels", "ItemProcessor": packing, "End": true },
    } });
    json!({ "StartAt": "Large", "States": {
        "Large": { "Type": "Choice", "Default": "Charge", "Choices": [
            { "And": [
                { "Variable": "$.total", "NumericGreaterThan": 100 },
                { "Not": { "Variable": "$.trusted", "IsPresent": true } },
            ], "Next": "Approve" },
            { "Variable": "$.total", "NumericEquals": 0, "Next": "Empty" },
        ] },
        "Approve": function("approve", json!({ "Parameters": { "total.$": "$.total" }, "ResultPath": "$.approval", "Next": "Charge" })),
        "Empty": { "Type": "Fail", "Error": "Empty" },
        "Charge": function("charge", json!({ "Parameters": { "order.$": "$$.Execution.Name", "total.$": "$.total" }, "ResultPath": null, "Next": "Finish" })),
        "Finish": { "Type": "Parallel", "Branches": [parcels, receipt], "ResultPath": "$.done", "OutputPath": "$.done", "End": true },
    } })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_imported_machine_makes_the_calls_of_the_state_machine() {
    let input = json!({ "total": 120.5, "parcels": [{ "sku": "tea" }, { "sku": "ink" }] });
    let execution = execute(&order(), input).await;
    assert_eq!(execution.task.process_state, ProcessState::Processed, "{:#?}", execution.task);
    let calls = &execution.calls;
    assert_eq!(calls[0], ("approve".to_owned(), json!({ "total": 120.5 })));
    assert_eq!(calls[1], ("charge".to_owned(), json!({ "order": "t-1", "total": 120.5 })));
    for sku in ["tea", "ink"] {
        assert!(calls.contains(&("fold".to_owned(), json!({ "sku": sku }))), "{calls:?}");
        let body = json!({ "sku": sku, "into": "fold" });
        assert!(calls.contains(&("fill".to_owned(), body)), "{calls:?}");
    }
    assert_eq!(calls.len(), 7, "{calls:?}");
    let filled = |sku: &str| json!({ "sku": sku, "into": "fold" });
    let receipt = json!({ "of": "receipt", "got": { "total": 120.5 } });
    assert_eq!(execution.output, json!([[filled("tea"), filled("ink")], receipt]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_default_branch_runs_if_no_rule_matches() {
    let input = json!({ "total": 120, "trusted": true, "parcels": [] });
    let execution = execute(&order(), input).await;
    assert_eq!(execution.task.process_state, ProcessState::Processed);
    let mut names = execution.names();
    names.sort_unstable();
    assert_eq!(names, ["charge", "receipt"]);
    let execution = execute(&order(), json!({ "total": 0, "parcels": [] })).await;
    assert_eq!(execution.task.process_state, ProcessState::Error, "{:#?}", execution.task);
    assert_eq!(execution.names(), [""; 0], "a `Fail` stops the task before its next state");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_imported_saga_compensates_in_the_order_of_the_state_machine() {
    let booking = |name: &str, handler: &str, more: Value| {
        let catch =
            json!([{ "ErrorEquals": ["States.ALL"], "ResultPath": "$.error", "Next": handler }]);
        let mut task = function(name, more);
        task["Catch"] = catch;
        task["Parameters"] = json!({ "trip.$": "$.trip" });
        task
    };
    let cancel = |name: &str, id: &str, next: &str| {
        let parameters = json!({ "trip.$": "$.trip", "id.$": id });
        function(name, json!({ "Parameters": parameters, "ResultPath": null, "Next": next }))
    };
    let saga = json!({ "StartAt": "BookHotel", "States": {
        "BookHotel": booking("book-hotel", "Failed", json!({ "ResultPath": "$.hotel", "Next": "BookFlight" })),
        "BookFlight": booking("book-flight", "CancelHotel", json!({ "ResultPath": "$.flight", "Next": "ChargeCard" })),
        "ChargeCard": booking("refused", "CancelFlight", json!({ "ResultPath": null, "End": true, "OutputPath": "$.hotel" })),
        "RefundCard": cancel("refund-card", "$.trip", "CancelFlight"),
        "CancelFlight": cancel("cancel-flight", "$.flight.of", "CancelHotel"),
        "CancelHotel": cancel("cancel-hotel", "$.hotel.of", "Failed"),
        "Failed": { "Type": "Fail" },
    } });
    let options = Options {
        name: "machine".into(),
        region: "eu-west-1".into(),
        substitutions: BTreeMap::new(),
    };
    let open = import(&saga.to_string(), &options).unwrap();
    // The card has no compensation in any handler: a person has to say whether it needs an undo.
    assert_eq!(open.report.status(), Status::NeedsDecisions, "{:#?}", open.report);
    let mut saga = saga;
    saga["States"]["ChargeCard"]["Catch"][0]["Next"] = json!("RefundCard");
    let execution = execute(&saga, json!({ "trip": "rome" })).await;
    assert_eq!(execution.task.process_state, ProcessState::Undone, "{:#?}", execution.task);
    let names = ["book-hotel", "book-flight", "refused", "cancel-flight", "cancel-hotel"];
    assert_eq!(execution.names(), names, "a step that was refused needs no undo");
    let bodies = &execution.calls[3..];
    assert_eq!(bodies[0].1, json!({ "trip": "rome", "id": "book-flight" }));
    assert_eq!(bodies[1].1, json!({ "trip": "rome", "id": "book-hotel" }));
}
