//! Tasks that are submitted by an event on the stack's bus, and by a schedule; and steps that wait for an event.

use std::{rc::Rc, time::Duration};

use aws_sdk_eventbridge::types::PutEventsRequestEntry;
use serde_json::json;
use steward_core::model::task::ProcessState;
use steward_demo::services::Fault;

use super::{
    aws_requests::{run, wait_for},
    stack::{Stack, delete},
    target::deployment_target,
};

const BY_EVENT: &str = r#"
name: by-event
version: 1
trigger:
  source: shop
  detail_type: Order Placed
  task_id: ${ event.detail.number }
steps:
  reserve:
    agent: inventory
    request: { path: /reservations, body: { order: "${ task.id }", items: "${ input.items }" } }
"#;

const ON_SCHEDULE: &str = r#"
name: on-schedule
version: 1
steps:
  pause: { wait: 1s }
output: ${ input.note }
"#;

pub(super) async fn event_submits_a_task(stack: Rc<Stack>) {
    stack.publish(BY_EVENT).await;
    let id = stack.order_with("by-event", "reserve", |fault| fault == Fault::Healthy);
    let detail = json!({ "number": id, "items": [] }).to_string();
    let event = PutEventsRequestEntry::builder()
        .event_bus_name(stack.variable("STEWARD_EVENT_BUS"))
        .source("shop")
        .detail_type("Order Placed")
        .detail(detail)
        .build();
    let events = aws_sdk_eventbridge::Client::new(&stack.sdk);
    // On AWS a new rule does not match at once, so the event is repeated. It always submits the same task.
    let submitted = async || {
        let put = events.put_events().entries(event.clone()).send().await.unwrap();
        assert_eq!(put.failed_entry_count, 0);
        let look = wait_for("a task by event", async || stack.task(&id).await.map(drop));
        tokio::time::timeout(Duration::from_secs(15), look).await.ok()
    };
    wait_for("an event that its rule matches", submitted).await;
    assert_eq!(stack.ended(&id).await.process_state, ProcessState::Processed);
}

const AWAITS_EVENT: &str = r#"
name: awaits-event
version: 1
steps:
  paid:
    wait:
      event: { source: bank, detail_type: Paid, key: "${ event.detail.order }", equals: "${ task.id }" }
      within: 10m
output: ${ steps.paid.output.detail.amount }
"#;

pub(super) async fn event_completes_a_step(stack: Rc<Stack>) {
    stack.publish(AWAITS_EVENT).await;
    let id = stack.name_of("awaits-event");
    stack.submit(&id, "awaits-event", &json!({})).await;
    let detail = json!({ "order": id, "amount": 7 }).to_string();
    let event = PutEventsRequestEntry::builder()
        .event_bus_name(stack.variable("STEWARD_EVENT_BUS"))
        .source("bank")
        .detail_type("Paid")
        .detail(detail)
        .build();
    let events = aws_sdk_eventbridge::Client::new(&stack.sdk);
    let completed = async || {
        let put = events.put_events().entries(event.clone()).send().await.unwrap();
        assert_eq!(put.failed_entry_count, 0);
        let ended = tokio::time::timeout(Duration::from_secs(15), stack.ended(&id));
        ended.await.ok()
    };
    let task = wait_for("an event that its rule matches", completed).await;
    assert_eq!(task.process_state, ProcessState::Processed);
}

pub(super) async fn schedule_submits_a_task(stack: Rc<Stack>) {
    stack.publish(ON_SCHEDULE).await;
    let own = stack.name_of("minutely");
    let parameters = ["Name=minutely", "Schedule=rate(1 minute)", "Workflow=on-schedule"];
    let steward = format!("Steward={}", deployment_target().stack);
    let rest = [&own, "infra/schedule.yaml", &steward, r#"Input={"note":"hello"}"#];
    run("infra/deploy", &[&rest[..], &parameters].concat()).await;
    let scheduled = async || {
        let scan = aws_sdk_dynamodb::Client::new(&stack.sdk).scan();
        let page = scan.table_name(stack.variable("STEWARD_TASKS_TABLE")).send().await.unwrap();
        let mut ids = page.items().iter().filter_map(|item| item.get("task_id")?.as_s().ok());
        ids.find(|id| id.starts_with("minutely-")).cloned()
    };
    let id = wait_for("a task on schedule", scheduled).await;
    assert_eq!(stack.ended(&id).await.process_state, ProcessState::Processed);
    delete(&own).await;
}
