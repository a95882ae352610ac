//! `steward agents`, and the warnings about agents of `steward workflow check`.

use serde_json::{Value, json};
use steward_core::model::registration::RegistrationOwner;
use steward_runtime::{agents, ports::Ports};

use crate::harness::OperatorHarness;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agents_are_listed_with_their_queues_and_workflows() {
    let harness = OperatorHarness::start().await;
    let listed = harness.steward(&["agents"]).await;
    listed.has(&["shop", "http", "closed", "order"]);
    assert_eq!(listed.err, "");
    let listed = harness.steward(&["agents", "--json"]).await;
    let agents: Value = serde_json::from_str(&listed.out).unwrap();
    let shop = agents.as_array().unwrap().iter().find(|agent| agent["name"] == "shop").unwrap();
    assert_eq!(shop["registration"]["stack"], "local");
    assert_eq!(shop["registration"]["dead_letter_queue"], "steward-agent-shop-dead-letters");
    assert_eq!(shop["breaker"]["state"], "closed");
    assert_eq!(shop["queue"]["waiting"], 0);
    assert_eq!(shop["problems"], json!([]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_does_not_know_the_messages_of_its_steps_is_listed_with_the_problem() {
    let harness = OperatorHarness::start().await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("parcel.json");
    let request = json!({ "path": "/packs" });
    let step = json!({ "agent": "shop", "request": request, "output": "${ response.status }" });
    let definition = json!({ "name": "parcel", "version": 1, "steps": { "pack": step } });
    std::fs::write(&file, definition.to_string()).unwrap();
    let publish = ["workflow", "publish", file.to_str().unwrap()];
    assert_eq!(harness.steward(&publish).await.err, "");
    let store = harness.host.ports.store();
    let name = "shop".parse().unwrap();
    let mut registration = agents::registration(store, &name).await.unwrap().unwrap();
    registration.contract = 1;
    agents::register(store, &name, &registration).await.unwrap();

    let warning =
        "agent `shop` understands version 1 of the messages, and its steps need version 2";
    let listed = harness.steward(&["agents"]).await;
    assert!(listed.err.contains(warning), "{listed:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_registration_is_forgotten_and_check_warns_of_the_agent() {
    let harness = OperatorHarness::start().await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("parcel.json");
    let step = json!({ "agent": "shop", "request": { "path": "/packs" } });
    let definition = json!({ "name": "parcel", "version": 1, "steps": { "pack": step } });
    std::fs::write(&file, definition.to_string()).unwrap();
    let check = ["workflow", "check", "--deployment", file.to_str().unwrap()];
    let output = harness.steward(&check).await;
    assert_eq!((output.ok, output.err.as_str()), (true, ""));

    harness.steward(&["agents", "forget", "other"]).await.fails(&["`other` is not registered"]);
    let output = harness.steward(&["agents", "forget", "shop"]).await;
    output.has(&["shop: forgotten; it was registered by local"]);
    let output = harness.steward(&["agents", "forget", "shop"]).await;
    output.has(&["marked as deleted already"]);
    let output = harness.steward(&["agents", "forget", "shop", "--json"]).await;
    let forgotten: serde_json::Value = serde_json::from_str(&output.out).unwrap();
    assert_eq!(forgotten, json!({ "agent": "shop", "forgotten": false, "stack": "local" }));

    let output = harness.steward(&check).await;
    let warning = "warning: parcel: agent `shop` was deleted at ";
    assert!(output.ok && output.err.contains(warning), "{output:?}");
    let listed = harness.steward(&["agents"]).await;
    listed.has(&["deleted"]);
    assert!(listed.err.contains("warning: agent `shop` was deleted at "), "{listed:?}");
    let store = harness.host.ports.store();
    let name = "shop".parse().unwrap();
    let mut registration = agents::registration(store, &name).await.unwrap().unwrap();
    registration.deleted_at = None;
    registration.owner = RegistrationOwner { stack: "another".parse().unwrap(), resource: None };
    let registered = agents::register(store, &name, &registration).await.unwrap();
    assert_eq!(registered, agents::RegisterOutcome::Registered, "the name is free");
}
