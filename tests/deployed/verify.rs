//! Checks that only `infra/verify` makes, in addition to those of `.ci/e2e`, because no emulator has the behavior.

use std::{rc::Rc, time::Duration};

use serde_json::{Value, json};
use steward_core::model::{
    attempt::Action,
    document::DocumentKey,
    task::{ProcessState, Task},
};
use steward_demo::{example_workflow::ExampleWorkflow, services::Fault};
use steward_runtime::ports::StateStore;

use super::{
    aws_requests::{call, root, wait_for},
    stack::Stack,
};

/// A number of steps over Lambda's limit: it drops the sixteenth invocation of a chain, unless the function's
/// `RecursiveLoop` is `Allow`.
const STEPS: usize = 40;

/// The number of orders whose steps are timed, one after the other.
const TIMED: usize = 30;

/// The number of concurrent orders on a table with one capacity unit.
const THROTTLED: usize = 10;

/// A task whose steps make a chain of invocations longer than Lambda's limit.
pub(super) async fn task_of_forty_steps_ends(stack: Rc<Stack>) {
    let id = "forty-steps";
    // The fault of a call depends on its idempotency key: use only step names without a fault.
    let is_healthy = |name: &String| stack.plan.fault(&format!("{id}/{name}/do")) == Fault::Healthy;
    let names: Vec<_> = (0..).map(|n| format!("step_{n}")).filter(is_healthy).take(STEPS).collect();
    let step = |(position, name): (usize, &String)| {
        let after: Vec<_> =
            position.checked_sub(1).map(|before| &names[before]).into_iter().collect();
        let body = json!({ "order": "${ task.id }", "items": [] });
        let request = json!({ "path": "/reservations", "body": body });
        (name.clone(), json!({ "agent": "inventory", "after": after, "request": request }))
    };
    let steps: serde_json::Map<_, _> = names.iter().enumerate().map(step).collect();
    stack.publish(&json!({ "name": "forty", "version": 1, "steps": steps }).to_string()).await;
    stack.submit(id, "forty", &json!({})).await;
    assert_eq!(stack.ended(id).await.process_state, ProcessState::Processed);
}

/// A wait that is longer than SQS can delay a message. `STEWARD_VERIFY_WAIT` sets its length, for example `20m`.
pub(super) async fn long_wait_ends(stack: Rc<Stack>) {
    let wait = std::env::var("STEWARD_VERIFY_WAIT").unwrap_or_else(|_| "20m".to_owned());
    let definition =
        json!({ "name": "long-wait", "version": 1, "steps": { "pause": { "wait": wait } } });
    stack.publish(&definition.to_string()).await;
    stack.submit("long-wait", "long-wait", &json!({})).await;
    let wait = humantime::parse_duration(&wait).unwrap();
    let submitted = wait_for("the task that waits", async || stack.task("long-wait").await).await;
    // Nothing can be observed during the wait.
    tokio::time::sleep(wait).await;
    let ended = stack.ended("long-wait").await;
    assert_eq!(ended.process_state, ProcessState::Processed);
    let took = Duration::try_from(jiff::Timestamp::now() - submitted.submitted_at).unwrap();
    eprintln!("a wait of {wait:?} ended after {took:?} at most");
}

/// Prints percentiles of the duration of a step: the time between its document and the previous one.
pub(super) async fn print_step_times(stack: Rc<Stack>) {
    let mut millis = Vec::new();
    let order = ExampleWorkflow::Order.scenario();
    for number in 0..TIMED {
        let id = stack.order_with(&format!("timed-{number}"), "charge", |f| f == Fault::Healthy);
        stack.submit(&id, order.name(), &order.input(number)).await;
        let task = stack.ended(&id).await;
        assert_eq!(task.process_state, ProcessState::Processed);
        millis.extend(step_millis(&stack, &task).await);
    }
    millis.sort_unstable();
    let percentile = |percent: usize| millis[(millis.len() - 1) * percent / 100];
    eprintln!(
        "{} steps: p50 {} ms, p90 {} ms, p99 {} ms",
        millis.len(),
        percentile(50),
        percentile(90),
        percentile(99)
    );
}

async fn step_millis(stack: &Stack, task: &Task) -> Vec<i64> {
    let outputs = task
        .steps
        .iter()
        .filter_map(|(step, record)| record.forward.output(&step.clone().into(), Action::Do));
    let keys: Vec<_> = std::iter::once(DocumentKey::Submission).chain(outputs).collect();
    let documents = stack.store().documents(&task.document_owner(), &keys).await.unwrap();
    let mut at: Vec<_> = documents.iter().map(|document| document.at.as_millisecond()).collect();
    at.sort_unstable();
    at.windows(2).map(|pair| pair[1] - pair[0]).collect()
}

/// Sets the table of tasks to one capacity unit, and checks that tasks still end. The table stays so.
pub(super) async fn tasks_end_on_a_throttled_table(stack: Rc<Stack>) {
    let table = stack.variable("STEWARD_TASKS_TABLE");
    let one = json!({ "ReadCapacityUnits": 1, "WriteCapacityUnits": 1 });
    let index = |name| json!({ "Update": { "IndexName": name, "ProvisionedThroughput": one } });
    dynamodb(
        "UpdateTable",
        &json!({
            "TableName": table, "BillingMode": "PROVISIONED", "ProvisionedThroughput": one,
            "GlobalSecondaryIndexUpdates": [index("due"), index("ended")],
        }),
    )
    .await;
    let active = async || {
        let response = dynamodb("DescribeTable", &json!({ "TableName": table })).await;
        (response["Table"]["TableStatus"] == "ACTIVE").then_some(())
    };
    wait_for("the table with one unit", active).await;
    let order = ExampleWorkflow::Order.scenario();
    let healthy =
        |n| stack.order_with(&format!("throttled-{n}"), "charge", |fault| fault == Fault::Healthy);
    let ids: Vec<_> = (0..THROTTLED).map(healthy).collect();
    for (number, id) in ids.iter().enumerate() {
        stack.submit(id, order.name(), &order.input(number)).await;
    }
    // Tasks may be undone because of timeouts, but none may end in Error.
    let mut ended = std::collections::BTreeMap::<_, usize>::new();
    for id in &ids {
        let state = stack.ended(id).await.process_state;
        assert_ne!(state, ProcessState::Error, "{id}");
        *ended.entry(state).or_default() += 1;
    }
    eprintln!("on a table with one unit: {ended:?}");
}

async fn dynamodb(operation: &str, body: &Value) -> Value {
    let target = format!("DynamoDB_20120810.{operation}");
    let (status, response) = call(&root(), "dynamodb", &target, body).await;
    assert_eq!(status, 200, "{operation}: {response}");
    response
}
