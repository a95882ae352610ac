//! What is refused: uploads and references that are wrong, foreign, incomplete, too large or expired.

use std::time::Duration;

use serde_json::{Value, json};

use super::fixture::{Fixture, digest};

const MIB_64: u64 = 64 * 1024 * 1024;

fn input(reference: Value) -> Value {
    json!({ "document": reference, "path": "/read", "bytes": 10 })
}

/// The refusal of a submission with this reference.
async fn refusal(fixture: &Fixture, reference: Value) -> String {
    let (status, problem) = fixture.submit("t-1", "scan", input(reference)).await;
    assert_eq!(status, 400, "{problem}");
    assert_eq!(problem["type"], "urn:steward:invalid-payload");
    problem["detail"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upload_must_have_the_announced_content() {
    let fixture = Fixture::start().await;
    let content = vec![7; 200_000];
    let payload = json!({ "bytes": content.len(), "sha256": digest(&content) });
    let (_, prepared) = fixture.prepare(payload).await;
    let upload = &prepared["upload"];
    // Another content of the same size, a part of it, and more than announced.
    assert_eq!(fixture.send(upload, vec![8; 200_000]).await, 400);
    assert_eq!(fixture.send(upload, content[..100_000].to_vec()).await, 403);
    assert_eq!(fixture.send(upload, vec![7; 200_001]).await, 403);
    let missing = refusal(&fixture, prepared["payload"].clone()).await;
    assert!(missing.starts_with("input/document: there is no such payload"), "{missing}");
    assert_eq!(fixture.send(upload, content.clone()).await, 200);
    // The URL is of no use a second time.
    assert_eq!(fixture.send(upload, content).await, 412);
    let mut without = prepared["upload"].clone();
    without["headers"].as_object_mut().unwrap().remove("if-none-match");
    assert_eq!(fixture.send(&without, vec![7; 200_000]).await, 403);
    // A header that is not signed would make it a copy of another object.
    let mut copying = prepared["upload"].clone();
    copying["headers"]["x-amz-copy-source"] = "steward-payloads/uploads/1".into();
    assert_eq!(fixture.send(&copying, vec![7; 200_000]).await, 403);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_payload_has_at_most_64_mib() {
    let fixture = Fixture::start().await;
    let payload = |bytes: u64| json!({ "bytes": bytes, "sha256": digest(b"") });
    assert_eq!(fixture.prepare(payload(MIB_64)).await.0, 201);
    let (status, problem) = fixture.prepare(payload(MIB_64 + 1)).await;
    assert_eq!((status, &problem["type"]), (413, &json!("urn:steward:payload-too-large")));
    for malformed in [json!({}), json!({ "bytes": 1, "sha256": "x" }), json!([])] {
        let (status, problem) = fixture.prepare(malformed).await;
        assert_eq!((status, &problem["type"]), (400, &json!("urn:steward:malformed-payload")));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_response_of_more_than_64_mib_completes_the_step_without_it_and_leaves_no_object() {
    let fixture = Fixture::start().await;
    let reference = fixture.upload(b"x", "text/plain").await;
    let input = json!({ "document": reference, "path": "/read", "bytes": MIB_64 + 1 });
    let task = fixture.run("t-1", "scan", input).await;
    assert_eq!(task["process_state"], "Processed", "{task}");
    let keys = fixture.keys().await;
    assert!(keys.iter().all(|key| key.contains("/input/")), "{keys:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reference_must_be_that_of_an_upload_as_it_is() {
    let fixture = Fixture::start().await;
    let reference = fixture.upload(&vec![7; 200_000], "application/pdf").await;
    let with = |name: &str, value: Value| {
        let mut reference = reference.clone();
        reference["$payload"][name] = value;
        reference
    };
    let other = with("sha256", json!(digest(b"other")));
    assert!(refusal(&fixture, other).await.ends_with("another digest than `sha256`"));
    let other = with("bytes", json!(1));
    assert!(refusal(&fixture, other).await.ends_with("another size than `bytes`"));
    let other = with("key", json!("uploads/0123"));
    assert!(refusal(&fixture, other).await.contains("there is no such payload"));
    let other = with("key", json!("secrets/0123"));
    assert!(refusal(&fixture, other).await.contains("not a reference to a payload"));
    // What belongs to a task can only be read by that task.
    let task = fixture.run("t-0", "scan", input(reference.clone())).await;
    assert_eq!(task["process_state"], "Processed", "{task}");
    let key = fixture.keys().await.remove(0);
    let foreign = refusal(&fixture, with("key", json!(key))).await;
    assert!(foreign.contains("the key is not that of an upload"), "{foreign}");
    assert_eq!(fixture.submit("t-1", "scan", input(reference)).await.0, 202);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upload_expires_after_a_day_whether_it_is_deleted_or_not() {
    let fixture = Fixture::start().await;
    let reference = fixture.upload(&vec![7; 200_000], "application/pdf").await;
    fixture.host.aws.age_objects(Duration::from_secs(24 * 3600 + 60)).unwrap();
    let expired = refusal(&fixture, reference).await;
    assert_eq!(expired, "input/document: the upload has expired; upload the payload again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_payload_that_is_missing_when_an_agent_needs_it_fails_the_step() {
    let fixture = Fixture::start().await;
    let reference = fixture.upload(&vec![7; 200_000], "application/pdf").await;
    *fixture.service.forged.lock().unwrap() = json!({});
    // The service answers with a reference to an object of the same task that does not exist.
    let task = fixture.run("t-0", "pass-on", json!({ "document": reference })).await;
    let mut missing = task["output"]["received"]["document"].clone();
    let key = missing["$payload"]["key"].as_str().unwrap().replace("/input/", "/output/");
    missing["$payload"]["key"] = json!(key);
    let error = steward_agent_error(&fixture, missing).await;
    assert_eq!(error, "the payload of the request does not exist: it was deleted");
}

/// Runs an agent's call whose body is this reference to an object of the task `t-0`; returns why it fails.
async fn steward_agent_error(fixture: &Fixture, reference: Value) -> String {
    use steward_agent::{
        attempt::{CallFault, RemoteService},
        http::{HttpService, HttpSettings},
    };
    let task = fixture.task("t-0").await;
    let request = json!({
        "task_id": "t-0", "step": "pass", "attempt": 1, "complete_by": "2100-01-01T00:00:00Z",
        "idempotency_key": "k", "call_within_ms": 30_000, "agent": "store", "method": "POST", "path": "/echo",
        "body": reference, "incarnation": task.incarnation,
    });
    let settings = HttpSettings {
        payloads: fixture.host.ports.bucket().cloned(),
        ..HttpSettings::new("http://127.0.0.1:1".parse().unwrap())
    };
    let service = HttpService::new(settings).unwrap();
    let request = serde_json::from_value(request).unwrap();
    match service.call(&request, None).await.unwrap_err() {
        CallFault::Permanent { reason, may_have_run: false, .. } => reason,
        other @ (CallFault::Transient { .. }
        | CallFault::Redirected { .. }
        | CallFault::Conflict { .. }
        | CallFault::TimedOut { .. }
        | CallFault::Permanent { .. }) => panic!("{other:?}"),
    }
}
