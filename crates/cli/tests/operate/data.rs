//! `steward restore` and `steward forget`, and the payloads that `steward show` downloads.

use std::{collections::HashMap, path::Path};

use aws_sdk_dynamodb::{Client, types::AttributeValue};
use serde_json::{Value, json};
use steward_aws::payloads::S3Payloads;
use steward_core::model::{
    attempt::{Action, AttemptId},
    document::{DocumentKey, StoredDocumentKey},
};
use steward_emulator::resources;

use crate::harness::OperatorHarness;

const TASKS: &str = resources::TASKS_TABLE;
const DOCUMENTS: &str = resources::DOCUMENTS_TABLE;
const PAYLOADS: &str = resources::PAYLOADS_BUCKET;

/// Creates a table like another one, as a restore does, with all items of it.
async fn restored(client: &Client, table: &str, name: &str) {
    let like = client.describe_table().table_name(table).send().await.unwrap().table.unwrap();
    let create = client.create_table().table_name(name).set_key_schema(like.key_schema.clone());
    let keys: Vec<_> =
        like.key_schema().iter().map(|key| key.attribute_name().to_owned()).collect();
    let attributes = like.attribute_definitions().iter();
    let attributes = attributes.filter(|one| keys.iter().any(|key| key == one.attribute_name()));
    let create = create.set_attribute_definitions(Some(attributes.cloned().collect()));
    create.billing_mode("PAY_PER_REQUEST".into()).send().await.unwrap();
    for item in items(client, table).await {
        client.put_item().table_name(name).set_item(Some(item)).send().await.unwrap();
    }
}

async fn items(client: &Client, table: &str) -> Vec<HashMap<String, AttributeValue>> {
    client.scan().table_name(table).send().await.unwrap().items.unwrap_or_default()
}

async fn item_of(client: &Client, id: &str) -> Option<HashMap<String, AttributeValue>> {
    let get = client.get_item().table_name(TASKS).key("task_id", AttributeValue::S(id.to_owned()));
    get.send().await.unwrap().item
}

fn revision(item: &HashMap<String, AttributeValue>) -> u64 {
    item["revision"].as_n().unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restored_tables_are_copied_and_newer_items_of_the_deployment_stay() {
    let harness = OperatorHarness::start().await;
    let client = Client::new(&harness.host.aws.sdk_config());
    for id in ["order-1", "order-2"] {
        harness.submit("order", id, "").await;
        harness.until_state(id, "Processed").await;
    }
    restored(&client, TASKS, "tasks-restored").await;
    restored(&client, DOCUMENTS, "documents-restored").await;
    let old = item_of(&client, "order-2").await.unwrap();
    harness.steward(&["undo", "order-2", "--why", "sent back"]).await.has(&["done"]);
    harness.until_state("order-2", "Undone").await;
    let newer = revision(&item_of(&client, "order-2").await.unwrap());
    let lost = client.delete_item().table_name(TASKS);
    lost.key("task_id", AttributeValue::S("order-1".to_owned())).send().await.unwrap();

    let from = ["--from-tasks", "tasks-restored", "--from-documents", "documents-restored"];
    let restore = |more: &[&'static str]| [&["restore"][..], &from, more].concat();
    let counted = harness.steward(&restore(&["--dry-run", "--json"])).await;
    let counted: Value = serde_json::from_str(&counted.out).unwrap();
    assert_eq!(counted["tables"][1]["written"], 1, "{counted:#}");
    assert_eq!(item_of(&client, "order-1").await, None, "a dry run writes nothing");
    harness.steward(&restore(&[])).await.has(&["tasks-restored", "steward-tasks"]);
    harness.until_state("order-1", "Processed").await;
    assert_eq!(revision(&item_of(&client, "order-2").await.unwrap()), newer);
    let again = harness.steward(&restore(&["--json"])).await;
    let again: Value = serde_json::from_str(&again.out).unwrap();
    assert_eq!([&again["tables"][0]["written"], &again["tables"][1]["written"]], [0, 0]);

    let args = restore(&["--overwrite", "--task", "order-2"]);
    harness.steward(&args).await.has(&["tasks-restored"]);
    assert_eq!(revision(&item_of(&client, "order-2").await.unwrap()), revision(&old));
    let misspelt = restore(&["--task", "order-2", "--task", "ordre-2"]);
    let misspelt = harness.steward(&misspelt).await;
    misspelt.fails(&["tasks-restored does not have the task ordre-2"]);
    let same = ["restore", "--from-tasks", TASKS];
    harness.steward(&same).await.fails(&["is a table of the deployment itself"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_is_restored_with_its_child_tasks() {
    let harness = OperatorHarness::start().await;
    let client = Client::new(&harness.host.aws.sdk_config());
    let folder = tempfile::tempdir().unwrap();
    for (name, runs) in [("parcel", "order"), ("pallet", "parcel")] {
        let step = json!({ "workflow": { "name": runs, "input": "${ input }" } });
        let definition = json!({ "name": name, "version": 1, "steps": { "first": step } });
        let file = folder.path().join(name).with_extension("json");
        std::fs::write(&file, definition.to_string()).unwrap();
        let publish = ["workflow", "publish", file.to_str().unwrap()];
        harness.steward(&publish).await.has(&["published"]);
    }
    for id in ["pallet-1", "pallet-12"] {
        harness.submit("pallet", id, "").await;
        harness.until_state(id, "Processed").await;
    }
    let ids = ["pallet-1", "pallet-1:first", "pallet-1:first:first"];
    restored(&client, TASKS, "tasks-restored").await;
    restored(&client, DOCUMENTS, "documents-restored").await;
    for (table, keys) in [(TASKS, &["task_id"][..]), (DOCUMENTS, &["task_id", "document"])] {
        for mut item in items(&client, table).await {
            item.retain(|name, _| keys.contains(&name.as_str()));
            client.delete_item().table_name(table).set_key(Some(item)).send().await.unwrap();
        }
    }
    let from = ["--from-tasks", "tasks-restored", "--from-documents", "documents-restored"];
    let restore = [&["restore"][..], &from, &["--task", "pallet-1"]].concat();
    harness.steward(&restore).await.has(&["tasks-restored"]);
    for id in ids {
        assert!(item_of(&client, id).await.is_some(), "{id}");
    }
    let restored = items(&client, TASKS).await;
    assert_eq!(restored.len(), ids.len(), "{restored:#?}");
    let documents = ["restore", "--from-documents", "documents-restored", "--task", "pallet-1"];
    harness.steward(&documents).await.fails(&["--from-tasks"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn show_downloads_no_payload_of_another_task() {
    let harness = OperatorHarness::start().await;
    let payloads = S3Payloads::new(&harness.host.aws.sdk_config(), PAYLOADS.to_owned());
    let folder = tempfile::tempdir().unwrap();
    submit_with_payload(&harness, folder.path(), "order-1").await;
    let keys = payloads.keys_under("tasks/order-1@").await.unwrap();
    let key = keys[0].as_str();
    harness.steward(&["show", "order-1"]).await.has(&[key]);
    harness.steward(&["show", "order-1", "--payload", key]).await.has(&["a name and an address"]);

    harness.submit("order", "order-2", "/charge").await;
    harness.until_state("order-2", "Error").await;
    let sha256 = "0".repeat(64);
    let reference = json!({ "$payload": {
        "version": 1, "key": key, "bytes": 21, "sha256": sha256, "content_type": "text/plain",
    } });
    let input = json!({ "refuse": "/charge", "scan": reference }).to_string();
    let edit = ["resubmit", "order-2", "--input", &input, "--why", "a test"];
    harness.steward(&edit).await.has(&["resubmit"]);
    harness.until_state("order-2", "Error").await;
    let download = harness.steward(&["show", "order-2", "--payload", key]).await;
    download.fails(&["task `order-2` shows no payload"]);
    assert!(!harness.steward(&["show", "order-2", "--json"]).await.out.contains(key));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rerun_has_copies_of_the_payloads() {
    let harness = OperatorHarness::start().await;
    let payloads = S3Payloads::new(&harness.host.aws.sdk_config(), PAYLOADS.to_owned());
    let folder = tempfile::tempdir().unwrap();
    submit_with_payload(&harness, folder.path(), "order-1").await;
    let rerun = ["rerun", "order-1", "--from", "ship", "--why", "a test"];
    harness.steward(&rerun).await.has(&["task order-1-rerun-1 is submitted"]);
    harness.until_state("order-1-rerun-1", "Processed").await;
    let forget = ["forget", "order-1", "--why", "a test"];
    harness.steward(&forget).await.has(&["1 in the bucket"]);
    let keys = payloads.keys_under("tasks/order-1-rerun-1@").await.unwrap();
    let download = ["show", "order-1-rerun-1", "--payload", keys[0].as_str()];
    harness.steward(&download).await.has(&["a name and an address"]);
}

/// Runs a task whose input has a payload, until it is processed.
async fn submit_with_payload(harness: &OperatorHarness, folder: &Path, id: &str) {
    let scan = folder.join("scan.txt");
    std::fs::write(&scan, "a name and an address").unwrap();
    let scan = format!("scan={}", scan.display());
    let file = folder.join("order.json");
    let submission = json!({ "task_id": id, "workflow": "order", "input": { "refuse": "" } });
    std::fs::write(&file, submission.to_string()).unwrap();
    let submit = ["submit", file.to_str().unwrap(), "--payload", &scan];
    harness.steward(&submit).await.has(&["sent"]);
    harness.until_state(id, "Processed").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forgotten_task_has_no_data_left_and_is_not_repeated() {
    let harness = OperatorHarness::start().await;
    let client = Client::new(&harness.host.aws.sdk_config());
    let payloads = S3Payloads::new(&harness.host.aws.sdk_config(), PAYLOADS.to_owned());
    let folder = tempfile::tempdir().unwrap();
    for id in ["order-1", "order-10"] {
        submit_with_payload(&harness, folder.path(), id).await;
        assert_eq!(payloads.keys_under(&format!("tasks/{id}@")).await.unwrap().len(), 1);
    }
    harness.submit("order", "order-2", "/charge").await;
    harness.until_state("order-2", "Error").await;
    // The claim of a call, which a late delivery of its request reads.
    let attempt = AttemptId { step: "charge".parse().unwrap(), action: Action::Do, number: 1 };
    let (incarnation, key) = ("0mjuohtun".parse().unwrap(), DocumentKey::Claim(attempt));
    let claim = StoredDocumentKey { incarnation, key }.to_string();
    let put = client.put_item().table_name(DOCUMENTS);
    let put = put.item("task_id", AttributeValue::S("order-1".to_owned()));
    put.item("document", AttributeValue::S(claim.clone())).send().await.unwrap();
    let why = ["--why", "the customer requested it"];
    let forget =
        |id: &'static str, more: &[&'static str]| [&["forget", id][..], &why, more].concat();
    harness.steward(&forget("order-2", &[])).await.fails(&["it is in Error", "--force"]);
    harness.steward(&forget("order-1", &[])).await.has(&["order-1: erased", "1 in the bucket"]);
    assert_eq!(payloads.keys_under("tasks/order-1@").await.unwrap(), []);
    assert_eq!(payloads.keys_under("tasks/order-10@").await.unwrap().len(), 1);
    let record = item_of(&client, "order-1").await.unwrap();
    assert!(!record.contains_key("d"), "{record:?}");
    assert_eq!(record["process_state"], AttributeValue::S("Processed".to_owned()));
    assert!(record.contains_key("expires_at"), "retention goes on");
    let left = items(&client, DOCUMENTS).await;
    let is_of = |item: &&HashMap<_, _>| item["task_id"] == AttributeValue::S("order-1".to_owned());
    let left: Vec<_> = left.iter().filter(is_of).map(|item| &item["document"]).collect();
    assert_eq!(left, [&AttributeValue::S(claim)]);

    let rerun = ["rerun", "order-1", "--why", "a test"];
    harness.steward(&rerun).await.fails(&["`submission` is missing", "deleted"]);
    // A duplicate of the submission starts nothing.
    let calls = harness.shop.paths("order-1");
    harness.submit("order", "order-1", "").await;
    harness
        .steward(&forget("order-2", &["--force", "--delete-record", "--json"]))
        .await
        .has(&["true"]);
    assert_eq!(item_of(&client, "order-2").await, None);
    harness.until_state("order-1", "Processed").await;
    assert_eq!(harness.shop.paths("order-1"), calls);
    harness.steward(&forget("order-2", &[])).await.fails(&["task `order-2` does not exist"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_in_progress_is_not_forgotten_and_one_without_documents_asks_for_an_operator() {
    let harness = OperatorHarness::start().await;
    harness.shop.hold(true);
    harness.submit("order", "order-1", "").await;
    harness.until_state("order-1", "Processing").await;
    let forget = ["forget", "order-1", "--force", "--why", "a test"];
    harness.steward(&forget).await.fails(&["it is Processing", "`steward cancel`"]);
    harness.shop.hold(false);
    harness.until_state("order-1", "Processed").await;
    harness.steward(&forget).await.has(&["order-1: erased"]);
    // Its undos read its input, which is gone.
    harness.steward(&["undo", "order-1", "--why", "a test"]).await;
    harness.until_state("order-1", "Error").await;
    harness.steward(&["show", "order-1"]).await.has(&["is missing: it has expired or was deleted"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_child_task_is_forgotten_after_its_parent() {
    let harness = OperatorHarness::start().await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("parent.json");
    let child = json!({ "workflow": { "name": "order", "input": "${ input }" } });
    let parent = json!({ "name": "parent", "version": 1, "steps": { "k": child } });
    std::fs::write(&file, parent.to_string()).unwrap();
    harness.steward(&["workflow", "publish", file.to_str().unwrap()]).await.has(&["parent"]);
    harness.submit("parent", "parent-1", "").await;
    harness.until_state("parent-1", "Processed").await;
    let forget = ["forget", "parent-1:k", "--why", "a test"];
    harness.steward(&forget).await.fails(&["a child of task parent-1", "Forget the parent first"]);
    let parent = ["forget", "parent-1", "--why", "a test"];
    harness.steward(&parent).await.has(&["child tasks (`parent-1:STEP`)"]);
    let forced = [&forget[..], &["--force"]].concat();
    harness.steward(&forced).await.has(&["parent-1:k: erased"]);
}
