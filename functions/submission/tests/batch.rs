//! A batch of submissions on embedded AWS: one submission does not hold up the others.

#![cfg(test)]

use std::{sync::mpsc, thread, time::Duration};

use aws_lambda_events::sqs::SqsEvent;
use serde_json::{Value, json};
use steward_aws::AwsPorts;
use steward_core::definition::workflow::Workflow;
use steward_emulator::{embedded::EmbeddedAws, resources};
use steward_runtime::ports::{Ports, StateStore};

/// A workflow whose schema has two alternatives that contain the same schema again: an invalid input of 28 levels has 2^28 reasons.
fn workflow() -> Workflow {
    let object =
        json!({ "type": "object", "required": ["a"], "properties": { "a": { "$ref": "#" } } });
    serde_json::from_value(json!({
        "name": "nested", "version": 1, "input": { "oneOf": [{ "const": "good" }, object, object] },
        "steps": { "a": { "wait": "1s" } },
    }))
    .unwrap()
}

/// Handles one bad submission and nine good ones. Returns the ids of the recorded tasks.
async fn handle_batch() -> Vec<String> {
    let aws = EmbeddedAws::in_memory().unwrap();
    let config = resources::create(&aws, &[]).await.unwrap();
    let ports = AwsPorts::new(&aws.sdk_config(), &config, "submission");
    ports.definitions().publish(&workflow()).await.unwrap();
    let bad = (0..28).fold(json!(1), |value, _| json!({ "a": value }));
    let inputs = std::iter::once(bad).chain(vec![json!("good"); 9]);
    let message = |(n, input): (usize, Value)| {
        let body = json!({ "task_id": format!("t-{n}"), "workflow": "nested", "input": input });
        json!({
            "messageId": format!("m-{n}"), "body": body.to_string(),
            "attributes": { "ApproximateReceiveCount": "1" },
        })
    };
    let messages: Vec<_> = inputs.enumerate().map(message).collect();
    let event: SqsEvent = serde_json::from_value(json!({ "Records": messages })).unwrap();
    let response = steward_submission::handle(&ports, &config.reply_queues, event).await;
    assert_eq!(response.batch_item_failures.len(), 0);
    let mut recorded = vec![];
    for id in (0..10).map(|n| format!("t-{n}")) {
        if ports.store().load(&id.parse().unwrap()).await.unwrap().is_some() {
            recorded.push(id);
        }
    }
    recorded
}

#[test]
fn a_bad_submission_does_not_delay_the_others_of_its_batch() {
    let (send, receive) = mpsc::channel();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        send.send(runtime.block_on(handle_batch()))
    });
    let recorded = receive.recv_timeout(Duration::from_secs(5)).expect("the batch is handled");
    assert_eq!(recorded, (1..10).map(|n| format!("t-{n}")).collect::<Vec<_>>());
}
