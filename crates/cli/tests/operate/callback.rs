//! `steward callback`.

use serde_json::json;
use steward_core::model::{names::Part, step::StepState};

use crate::harness::OperatorHarness;

fn is_awaiting_callback(task: &steward_core::model::task::Task) -> bool {
    let ask: Part = "ask".parse().unwrap();
    task.record(&ask)
        .is_some_and(|record| matches!(record.run.state, StepState::AwaitingCallback { .. }))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_holder_of_the_token_completes_the_step_once() {
    let harness = OperatorHarness::start().await;
    harness.submit("approval", "a-1", "nothing").await;
    let task = harness.until("a-1", is_awaiting_callback).await;
    let token = harness.shop.calls("a-1")[0].body["token"].as_str().unwrap().to_owned();
    assert_eq!(token, format!("a-1/ask/i{}", task.incarnation.unwrap()));
    harness
        .steward(&["show", "a-1"])
        .await
        .has(&["awaiting callback", "Step ask awaits a callback until"]);

    let output = harness.steward(&["callback", "heartbeat", &token]).await;
    output.has(&[&format!("{token}: sent")]);
    harness.until("a-1", |now| now.revision > task.revision).await;
    let output = harness.steward(&["callback", "complete", "a-1/ask/2"]).await;
    output.fails(&["this attempt no longer awaits a callback; the newest attempt is 1"]);
    let output = harness.steward(&["callback", "complete", "a-1/ask/i000000007"]).await;
    output.fails(&["a-1/ask/i000000007: the token belongs to an earlier task with the id `a-1`"]);
    let output = harness.steward(&["callback", "complete", &format!("{token}/c-1")]).await;
    output.fails(&["the task's input was edited; step ask was requested again, with a new token"]);
    let output = harness.steward(&["callback", "complete", "a-1/ship/1"]).await;
    output.fails(&["step ship has not started"]);
    let output = harness.steward(&["callback", "complete", "a-9/ask/1"]).await;
    output.fails(&["task `a-9` does not exist"]);
    let output = harness.steward(&["callback", "complete", "ask"]).await;
    output.fails(&["callback token `ask` is not valid", "as `order-7/approve/i0mfvx3k5z`"]);

    let receipt = r#"{ "receipt": "by eve" }"#;
    let output = harness.steward(&["callback", "complete", &token, "--output", receipt]).await;
    output.has(&[&format!("{token}: completed")]);
    harness.until_state("a-1", "Processed").await;
    let ship = harness.shop.calls("a-1").into_iter().find(|call| call.path == "/ship").unwrap();
    assert_eq!(ship.body["receipt"], json!("by eve"));
    let output = harness.steward(&["callback", "complete", &token]).await;
    output.fails(&["step ask does not await a callback; it is completed"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_callback_can_fail_the_step() {
    let harness = OperatorHarness::start().await;
    harness.submit("approval", "a-2", "nothing").await;
    harness.until("a-2", is_awaiting_callback).await;
    let output = harness.steward(&["callback", "fail", "a-2/ask/1", "--reason", "too dear"]).await;
    output.has(&["a-2/ask/1: failed"]);
    harness.until_state("a-2", "Undone").await;
    harness.steward(&["show", "a-2"]).await.has(&["step ask: too dear"]);
    assert_eq!(harness.shop.paths("a-2"), ["/ask", "/forget"]);
}
