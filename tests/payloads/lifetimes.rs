//! How long payloads are kept: as long as a task exists that may need them, whatever their age.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::json;
use steward_emulator::resources;

use super::fixture::Fixture;

const YEAR: Duration = Duration::from_secs(366 * 24 * 3600);

/// Makes a run of the supervisor `days` from now.
/// Begins a new pass of the supervisor over the payloads.
async fn supervise(fixture: &Fixture) {
    let deadline = Timestamp::now() + jiff::SignedDuration::from_secs(60);
    // The next pass begins a day after the last one.
    forget_pass(fixture).await;
    steward_supervisor::run_once(&*fixture.host.ports, 0, deadline).await.unwrap();
}

async fn forget_pass(fixture: &Fixture) {
    delete(fixture, resources::DOCUMENTS_TABLE, "#payloads", Some("pass")).await;
}

async fn delete(fixture: &Fixture, table: &str, id: &str, document: Option<&str>) {
    use aws_sdk_dynamodb::types::AttributeValue::S;
    let client = aws_sdk_dynamodb::Client::new(&fixture.host.aws.sdk_config());
    let delete = client.delete_item().table_name(table).key("task_id", S(id.to_owned()));
    let delete = match document {
        Some(document) => delete.key("document", S(document.to_owned())),
        None => delete,
    };
    delete.send().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn payloads_are_deleted_when_their_task_has_expired_and_not_before() {
    let fixture = Fixture::start().await;
    let reference = fixture.upload(&vec![7; 200_000], "application/pdf").await;
    for id in ["kept", "expired"] {
        let input = json!({ "document": reference, "path": "/read", "bytes": 200_000 });
        let task = fixture.run(id, "scan", input).await;
        assert_eq!(task["process_state"], "Processed", "{task}");
    }
    fixture.host.aws.age_objects(YEAR).unwrap();
    supervise(&fixture).await;
    assert_eq!(fixture.keys().await.len(), 4);
    delete(&fixture, resources::TASKS_TABLE, "expired", None).await;
    // Until the next pass begins, nothing is read.
    let deadline = Timestamp::now() + jiff::SignedDuration::from_secs(60);
    steward_supervisor::run_once(&*fixture.host.ports, 0, deadline).await.unwrap();
    assert_eq!(fixture.keys().await.len(), 4);
    supervise(&fixture).await;
    let keys = fixture.keys().await;
    assert!(keys.len() == 2 && keys.iter().all(|key| key.starts_with("tasks/kept@")), "{keys:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_young_payload_without_a_task_is_kept_because_the_task_may_be_recorded_soon() {
    let fixture = Fixture::start().await;
    let reference = fixture.upload(&vec![7; 200_000], "application/pdf").await;
    let input = json!({ "document": reference, "path": "/read", "bytes": 10 });
    fixture.run("t-1", "scan", input).await;
    delete(&fixture, resources::TASKS_TABLE, "t-1", None).await;
    fixture.host.aws.age_objects(Duration::from_secs(47 * 3600)).unwrap();
    supervise(&fixture).await;
    assert_eq!(fixture.keys().await.len(), 1);
    fixture.host.aws.age_objects(Duration::from_secs(2 * 3600)).unwrap();
    supervise(&fixture).await;
    assert_eq!(fixture.keys().await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn payloads_of_a_child_task_are_kept_while_its_parent_exists_and_those_of_another_incarnation_are_not()
 {
    let fixture = Fixture::start().await;
    let reference = fixture.upload(&vec![7; 200_000], "application/pdf").await;
    let task = fixture.run("t-1", "parent", json!({ "document": reference })).await;
    assert_eq!(task["process_state"], "Processed", "{task}");
    fixture.host.aws.age_objects(YEAR).unwrap();
    delete(&fixture, resources::TASKS_TABLE, "t-1:child", None).await;
    supervise(&fixture).await;
    assert_eq!(fixture.keys().await.len(), 3);
    // Another task with the same id begins later.
    delete(&fixture, resources::TASKS_TABLE, "t-1", None).await;
    let reference = fixture.upload(&vec![8; 200_000], "application/pdf").await;
    let (status, _) = fixture
        .submit("t-1", "scan", json!({ "document": reference, "path": "/read", "bytes": 10 }))
        .await;
    assert_eq!(status, 202);
    supervise(&fixture).await;
    assert_eq!(fixture.keys().await.len(), 1);
}
