//! Steps that someone answers later: `steward callback`.

use serde_json::json;
use steward_core::model::{names::Part, step::StepState};

use crate::world::World;

fn is_handed_out(task: &steward_core::model::task::Task) -> bool {
    let ask: Part = "ask".parse().unwrap();
    task.record(&ask).is_some_and(|record| matches!(record.run.state, StepState::HandedOut { .. }))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_has_the_token_answers_once() {
    let world = World::start().await;
    world.submit("approval", "a-1", "nothing").await;
    let task = world.until("a-1", is_handed_out).await;
    let token = world.remote.calls("a-1")[0].body["token"].as_str().unwrap().to_owned();
    assert_eq!(token, format!("a-1/ask/i{}", task.incarnation.unwrap()));
    world.steward(&["show", "a-1"]).await.has(&["awaiting callback", "Step ask awaits a callback until"]);

    let said = world.steward(&["callback", "heartbeat", &token]).await;
    said.has(&[&format!("{token}: sent")]);
    world.until("a-1", |now| now.revision > task.revision).await;
    let said = world.steward(&["callback", "complete", "a-1/ask/2"]).await;
    said.fails(&["this attempt no longer awaits an answer; the newest attempt is 1"]);
    let said = world.steward(&["callback", "complete", "a-1/ask/i000000007"]).await;
    said.fails(&["a-1/ask/i000000007: it is of another task with the id `a-1`, which is gone"]);
    let said = world.steward(&["callback", "complete", &format!("{token}/c-1")]).await;
    said.fails(&["the input was edited since; step ask was requested again, with another token"]);
    let said = world.steward(&["callback", "complete", "a-1/ship/1"]).await;
    said.fails(&["step ship has not begun"]);
    let said = world.steward(&["callback", "complete", "a-9/ask/1"]).await;
    said.fails(&["there is no task `a-9`"]);
    let said = world.steward(&["callback", "complete", "ask"]).await;
    said.fails(&["callback token `ask` is not valid", "as `order-7/approve/i0mfvx3k5z`"]);

    let output = r#"{ "receipt": "by eve" }"#;
    let said = world.steward(&["callback", "complete", &token, "--output", output]).await;
    said.has(&[&format!("{token}: completed")]);
    world.until_state("a-1", "Processed").await;
    let ship = world.remote.calls("a-1").into_iter().find(|call| call.path == "/ship").unwrap();
    assert_eq!(ship.body["receipt"], json!("by eve"));
    let said = world.steward(&["callback", "complete", &token]).await;
    said.fails(&["no answer is awaited; step ask is completed"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_may_be_no() {
    let world = World::start().await;
    world.submit("approval", "a-2", "nothing").await;
    world.until("a-2", is_handed_out).await;
    let said = world.steward(&["callback", "fail", "a-2/ask/1", "--reason", "too dear"]).await;
    said.has(&["a-2/ask/1: failed"]);
    world.until_state("a-2", "Undone").await;
    world.steward(&["show", "a-2"]).await.has(&["step ask: too dear"]);
    assert_eq!(world.remote.paths("a-2"), ["/ask", "/forget"]);
}
