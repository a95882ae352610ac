//! The page of the agents.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use steward_core::{
    breaker::{Breaker, BreakerState},
    model::registration::AgentSighting,
};
use steward_runtime::ports::{
    Ports, SharedRecord, SharedRecordKey, SharedRecordKind, SharedSaveOutcome, StateStore,
};

use crate::test_console::TestConsole;

async fn save(
    console: &TestConsole,
    kind: SharedRecordKind,
    name: &str,
    revision: u64,
    body: Value,
) {
    let key = SharedRecordKey { kind, name: name.to_owned() };
    let record = SharedRecord { key, revision, body, expires_at: None };
    let saved = console.ports.store().save_shared_record(&record).await.unwrap();
    assert_eq!(saved, SharedSaveOutcome::Saved);
}

fn workflow(name: &str, agents: &[&str]) -> Value {
    let steps = agents
        .iter()
        .map(|agent| ((*agent).to_owned(), json!({ "agent": agent, "request": { "path": "/x" } })));
    json!({ "name": name, "version": 1, "steps": steps.collect::<serde_json::Map<_, _>>() })
}

#[tokio::test]
async fn an_agent_is_shown_with_its_breaker_queue_and_last_reply() {
    let console = TestConsole::new().await;
    console.publish(workflow("order", &["a"])).await;
    console.publish(workflow("parcel", &["a"])).await;
    let until = Timestamp::now() + SignedDuration::from_secs(60);
    let state = BreakerState::Open { until, open_for_ms: 60_000, reason: "503 <down>".to_owned() };
    let breaker = Breaker { state, ..Breaker::default() };
    save(&console, SharedRecordKind::Breaker, "a", 1, serde_json::to_value(breaker).unwrap()).await;
    let at = Timestamp::now() - SignedDuration::from_mins(4);
    let reply = AgentSighting { at, waited_ms: Some(2_500) };
    save(&console, SharedRecordKind::AgentSeen, "a", 1, serde_json::to_value(reply).unwrap()).await;
    let sqs = aws_sdk_sqs::Client::new(&console.aws.sdk_config());
    let url = console.config.agent_queue_url.of(&"a".parse().unwrap());
    sqs.send_message().queue_url(&url).message_body("{").send().await.unwrap();

    let page = console.get("/console/agents").await;
    page.assert_text(&[
        concat!("a http ", env!("CARGO_PKG_VERSION")),
        "contract 2 open 503 &#60;down&#62; 1 0 0 – – 4 min ago its request waited 2 s order , parcel",
    ]);
    assert!(page.html.contains("/console/dead-letters/steward-agent-a-dead-letters"));
    page.assert_absent(&["✕", "style=", "note bad"]);
}

#[tokio::test]
async fn agents_that_are_missing_deleted_or_not_registered_are_shown_with_the_problem() {
    let console = TestConsole::new().await;
    console.publish(workflow("order", &["a", "missing", "unregistered"])).await;
    let sqs = aws_sdk_sqs::Client::new(&console.aws.sdk_config());
    sqs.create_queue().queue_name("steward-agent-unregistered").send().await.unwrap();
    let key = SharedRecordKey { kind: SharedRecordKind::Agent, name: "a".to_owned() };
    let record = console.ports.store().shared_record(&key).await.unwrap().unwrap();
    let mut body = record.body;
    body["deleted_at"] = json!(1_780_315_200_000_i64);
    save(&console, SharedRecordKind::Agent, "a", record.revision + 1, body).await;
    let page = console.get("/console/agents").await;
    page.assert_text(&[
        "a ✕ was deleted at 2026-06-01T12:00:00Z with the stack local",
        "missing ✕ has no queue `steward-agent-missing`; its steps fail until the agent is deployed",
        "unregistered ✕ is not registered; its dead letters cause no alert",
    ]);
}

#[tokio::test]
async fn an_agent_that_does_not_know_the_messages_of_its_steps_is_shown_with_the_problem() {
    let console = TestConsole::new().await;
    let mut definition = workflow("order", &["a"]);
    definition["steps"]["a"]["output"] = json!("${ response.status }");
    console.publish(definition).await;
    let too_old = "a ✕ understands version 1 of the messages, and its steps need version 2";
    console.get("/console/agents").await.assert_absent(&[too_old]);
    let key = SharedRecordKey { kind: SharedRecordKind::Agent, name: "a".to_owned() };
    let record = console.ports.store().shared_record(&key).await.unwrap().unwrap();
    let mut body = record.body;
    body["contract"] = json!(1);
    save(&console, SharedRecordKind::Agent, "a", record.revision + 1, body).await;
    console.get("/console/agents").await.assert_text(&[too_old]);
}

#[tokio::test]
async fn an_unreadable_registration_hides_no_other_agent() {
    let console = TestConsole::new().await;
    save(&console, SharedRecordKind::Agent, "b", 1, json!({ "kind": 1 })).await;
    let page = console.get("/console/agents").await;
    page.assert_text(&["a http"]);
}

#[tokio::test]
async fn the_rate_limit_of_an_agent_is_shown() {
    let console = TestConsole::new().await;
    let key = SharedRecordKey { kind: SharedRecordKind::Agent, name: "a".to_owned() };
    let record = console.ports.store().shared_record(&key).await.unwrap().unwrap();
    let mut body = record.body;
    (body["rate_per_second"], body["burst"]) = (json!(2.5), json!(10));
    save(&console, SharedRecordKind::Agent, "a", record.revision + 1, body).await;
    let page = console.get("/console/agents").await;
    page.assert_text(&["contract 2 closed 0 0 0 – 2.5 (10 at once)"]);
}
