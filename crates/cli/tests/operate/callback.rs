//! `steward callback`.

use serde_json::{Value, json};
use steward_core::model::{names::Part, step::StepState};
use steward_runtime::ports::{Ports, StateStore};

use crate::harness::OperatorHarness;

fn is_awaiting_callback(task: &steward_core::model::task::Task) -> bool {
    let ask: Part = "ask".parse().unwrap();
    task.record(&ask)
        .is_some_and(|record| matches!(record.forward.state, StepState::AwaitingCallback { .. }))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_holder_of_the_token_completes_the_step_once() {
    let harness = OperatorHarness::start().await;
    harness.submit("approval", "a-1", "nothing").await;
    let task = harness.until("a-1", is_awaiting_callback).await;
    let token = harness.shop.calls("a-1")[0].body["token"].as_str().unwrap().to_owned();
    assert_eq!(token, format!("a-1/ask/i{}", task.incarnation));
    harness
        .steward(&["show", "a-1"])
        .await
        .has(&["awaiting callback", "Step ask awaits a callback until"]);

    let output = harness.steward(&["callback", "heartbeat", &token]).await;
    output.has(&[&format!("{token}: sent")]);
    harness.until("a-1", |now| now.revision > task.revision).await;
    let output = harness.steward(&["callback", "complete", "a-1/ask/i000000007"]).await;
    output.fails(&[
        "a-1/ask/i000000007: not sent",
        "the token belongs to an earlier task with the same id",
    ]);
    let output = harness.steward(&["callback", "complete", &format!("{token}/c-1")]).await;
    output.fails(&["the task's input was edited; step ask was requested again, with a new token"]);
    let output =
        harness.steward(&["callback", "complete", &token.replace("/ask/", "/ship/")]).await;
    output.fails(&["step ship has not started"]);
    let output = harness.steward(&["callback", "complete", "a-9/ask/i000000007"]).await;
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
    let task = harness.until("a-2", is_awaiting_callback).await;
    let token = format!("a-2/ask/i{}", task.incarnation);
    let output = harness.steward(&["callback", "fail", &token, "--reason", "too dear"]).await;
    output.has(&[&format!("{token}: failed")]);
    harness.until_state("a-2", "Undone").await;
    let shown = harness.steward(&["show", "a-2"]).await;
    shown.has(&["step ask: the callback reported a failure"]);
    assert!(!shown.out.contains("too dear"), "{}", shown.out);
    harness.steward(&["show", "a-2", "--errors"]).await.has(&["too dear"]);
    assert_eq!(harness.shop.paths("a-2"), ["/ask", "/forget"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_approves_by_name_and_is_recorded() {
    let harness = OperatorHarness::start().await;
    harness.submit("approval", "a-3", "nothing").await;
    harness.until("a-3", is_awaiting_callback).await;
    let answer =
        |json: &'static str| ["approve", "a-3", "--answer", json, "--why", "known customer"];
    let refused = harness.steward(&answer(r#"{ "receipt": 5 }"#)).await;
    refused.fails(&["answer.receipt: it is not of type \"string\""]);
    let refused = [&answer(r#"{ "receipt": 5 }"#)[..], &["--json"]].concat();
    let refused = harness.steward(&refused).await;
    refused.fails(&["refused: "]);
    let report: Value = serde_json::from_str(&refused.out).unwrap();
    assert_eq!((&report["outcome"], &report["task_id"]), (&json!("refused"), &json!("a-3")));
    let approved = [&answer(r#"{ "receipt": "by anna" }"#)[..], &["--json"]].concat();
    let report: Value = serde_json::from_str(&harness.steward(&approved).await.out).unwrap();
    assert_eq!(report["outcome"], "done", "{report}");
    assert!(report["process_state"].is_string() && report["command_id"].is_string(), "{report}");
    harness.until_state("a-3", "Processed").await;
    harness.steward(&["show", "a-3"]).await.has(&["approve ask by anna", "known customer"]);
    let ship = harness.shop.calls("a-3").into_iter().find(|call| call.path == "/ship").unwrap();
    assert_eq!(ship.body["receipt"], json!("by anna"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_rejects_and_the_task_is_undone() {
    let harness = OperatorHarness::start().await;
    harness.submit("approval", "a-4", "nothing").await;
    harness.until("a-4", is_awaiting_callback).await;
    harness.steward(&["reject", "a-4", "--why", "too expensive"]).await.has(&["a-4"]);
    harness.until_state("a-4", "Undone").await;
    let shown = harness.steward(&["show", "a-4"]).await;
    shown.has(&["reject ask by anna", "rejected by anna: too expensive"]);
    assert_eq!(harness.shop.paths("a-4"), ["/ask", "/forget"]);
}

/// Sends a request to the callback endpoint. Returns the status and the type of the problem, or the answer that was sent.
async fn post(url: &str, body: &str) -> (u16, String) {
    let response = reqwest::Client::new().post(url).body(body.to_owned()).send().await.unwrap();
    let status = response.status().as_u16();
    let body: serde_json::Value = serde_json::from_str(&response.text().await.unwrap()).unwrap();
    let text = body.get("type").or(body.get("answer")).unwrap().as_str().unwrap();
    (status, text.trim_start_matches("urn:steward:").to_owned())
}

fn accepted(answer: &str) -> (u16, String) {
    (202, answer.to_owned())
}

fn problem(status: u16, name: &str) -> (u16, String) {
    (status, name.to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_answers_by_signed_url_and_nothing_else_changes_anything() {
    let harness = OperatorHarness::start().await;
    harness.submit("approval", "a-5", "nothing").await;
    let awaiting = harness.until("a-5", is_awaiting_callback).await;
    let url = harness.shop.calls("a-5")[0].body["url"].as_str().unwrap().to_owned();
    let (base, signed) = url.split_once("/callbacks/").unwrap();
    let (unsigned, _) = signed.rsplit_once('.').unwrap();

    // Forged: no signature, a changed one, a changed token, an unknown key.
    let forged = |signed: &str| format!("{base}/callbacks/{signed}");
    let malformed = problem(400, "malformed-callback-url");
    assert_eq!(post(&forged("x"), "").await, malformed);
    assert_eq!(post(&forged(unsigned), "").await, malformed);
    let wrong = problem(403, "wrong-callback-signature");
    let zeros = format!("{unsigned}.{}", "A".repeat(43));
    assert_eq!(post(&forged(&zeros), "").await, wrong);
    let later = signed.replacen('.', ".9", 1);
    assert_eq!(post(&forged(&later), "").await, wrong);
    let unknown = signed.replacen('1', "7", 1);
    assert_eq!(post(&forged(&unknown), "").await, problem(403, "unknown-callback-key"));
    // A link that a person or a scanner opens answers nothing.
    let opened = reqwest::get(&url).await.unwrap();
    assert_eq!(
        (opened.status().as_u16(), &opened.headers()["allow"]),
        (405, &"POST".parse().unwrap())
    );

    // Not an answer: no JSON, a number that would lose digits, against the schema, too large, without a reason.
    let invalid = problem(400, "invalid-answer");
    for body in ["{", r#"{ "receipt": 5 }"#, "[]", "123456789012345678901", "\u{0}"] {
        assert_eq!(post(&url, body).await, invalid, "{body}");
    }
    let too_large = format!("\"{}\"", "x".repeat(140_000));
    assert_eq!(post(&url, &too_large).await, problem(413, "answer-too-large"));
    assert_eq!(post(&format!("{url}/fail"), "{}").await, invalid);
    assert_eq!(post(&format!("{url}/fail"), r#"{ "reason": " " }"#).await, invalid);
    let unchanged = harness.host.ports.store().load(&"a-5".parse().unwrap()).await.unwrap();
    assert_eq!(unchanged, Some(awaiting.clone()));

    assert_eq!(post(&format!("{url}/heartbeat"), "").await, accepted("heartbeat"));
    harness.until("a-5", |now| now.revision > awaiting.revision).await;
    assert_eq!(post(&url, r#"{ "receipt": "by fax" }"#).await, accepted("completed"));
    harness.until_state("a-5", "Processed").await;
    let ship = harness.shop.calls("a-5").into_iter().find(|call| call.path == "/ship").unwrap();
    assert_eq!(ship.body["receipt"], json!("by fax"));
    // Used again.
    let answered = problem(409, "callback-already-answered");
    assert_eq!(post(&url, r#"{ "receipt": "again" }"#).await, answered);
    assert_eq!(post(&format!("{url}/fail"), r#"{ "reason": "no" }"#).await, answered);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_fails_a_step_by_signed_url() {
    let harness = OperatorHarness::start().await;
    harness.submit("approval", "a-6", "nothing").await;
    harness.until("a-6", is_awaiting_callback).await;
    let url = harness.shop.calls("a-6")[0].body["url"].as_str().unwrap().to_owned();
    let failed = post(&format!("{url}/fail"), r#"{ "reason": "no stock" }"#).await;
    assert_eq!(failed, accepted("failed"));
    harness.until_state("a-6", "Undone").await;
    harness.steward(&["show", "a-6", "--errors"]).await.has(&["no stock"]);
}
