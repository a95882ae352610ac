//! The usage of an item of a step with `for_each`, compared with that of a sequential step. Both have full batches, and
//! outputs of 100 bytes.

use serde_json::json;
use steward_core::definition::workflow::Workflow;
use steward_forecast::cost::prices::{Prices, TaskUsage};

use super::{
    document_of, sequence_with_documents,
    usage::{AwsUsage, ReplyBatching, RoundedUsage, UsageScenario},
};

/// The most that an item may cost, as a multiple of a sequential step.
const RATIO_MAX: f64 = 1.3;

/// A task with a step of this many items.
fn task_of(items: u32, at_once: u32, replies: ReplyBatching) -> UsageScenario {
    let list: Vec<_> = (0..items).map(|n| 10_000 + n).collect();
    let step = json!({
        "agent": "a", "for_each": { "items": "${ input.items }", "at_once": at_once },
        "request": { "path": "/x", "body": "${ item }" },
    });
    let workflow = json!({ "name": "items", "version": 1, "steps": { "ship": step } });
    let workflow: Workflow = serde_json::from_value(workflow).unwrap();
    UsageScenario {
        input: json!({ "items": list }),
        output: document_of(100, "id"),
        replies,
        // The replies of several tasks at the same time are in different batches.
        tasks: if replies == ReplyBatching::SameBatch { 1 } else { 10 },
        ..UsageScenario::new(workflow)
    }
}

/// The average usage of one item.
async fn usage_of_an_item(items: u32, at_once: u32, replies: ReplyBatching) -> AwsUsage {
    let none = Box::pin(task_of(0, at_once, replies).measure()).await;
    let all = Box::pin(task_of(items, at_once, replies).measure()).await;
    none.per_additional_step(items as usize, all).all()
}

/// The dollars of a million.
fn dollars(usage: AwsUsage) -> f64 {
    let AwsUsage { write_units, read_units, sqs_requests, invocations, events } = usage;
    let usage = TaskUsage {
        write_units,
        read_units,
        sqs_requests,
        invocations,
        events,
        ..TaskUsage::default()
    };
    Prices::listed().unwrap().of(&usage).total
}

/// The usage of an item, and its price as a multiple of that of a sequential step.
async fn item(items: u32, at_once: u32, replies: ReplyBatching) -> (RoundedUsage, f64) {
    let one = Box::pin(sequence_with_documents(1, 100).measure()).await;
    let three = Box::pin(sequence_with_documents(3, 100).measure()).await;
    let step = one.per_additional_step(2, three).all();
    let item = usage_of_an_item(items, at_once, replies).await;
    let ratio = dollars(item) / dollars(step);
    (item.rounded(), (ratio * 100.0).round() / 100.0)
}

#[tokio::test]
async fn an_item_of_ten_costs_less_than_a_sequential_step() {
    assert_eq!(item(10, 10, ReplyBatching::SameBatch).await, ([0.8, 0.1, 0.6, 0.2, 0.0], 0.77));
}

/// Each batch has the reply of one item of each of ten tasks.
#[tokio::test]
async fn an_item_costs_a_save_and_a_document_while_many_wide_tasks_run() {
    let item = item(100, 10, ReplyBatching::SeparateBatches).await;
    assert_eq!(item, ([1.99, 1.91, 0.6, 0.2, 0.0], 1.71));
}

#[tokio::test]
#[ignore = "takes minutes"]
async fn an_item_of_a_long_list_costs_at_most_1_3_times_a_sequential_step() {
    for (items, at_once, times) in
        [(100, 10, 0.96), (1_000, 10, 0.97), (10_000, 10, 0.98), (10_000, 100, 0.97)]
    {
        let (_, ratio) = item(items, at_once, ReplyBatching::SameBatch).await;
        assert!(ratio <= RATIO_MAX);
        assert_eq!(ratio, times, "{items} items, {at_once} at once");
    }
}
