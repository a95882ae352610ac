//! Payloads that are too large for a message, from the upload over HTTP to the service and back, through the embedded S3.

use serde_json::json;

mod deletion;
mod fixture;
mod lifetimes;
mod refusals;
mod transfers;

use fixture::{Fixture, digest};

const MIB: usize = 1024 * 1024;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_payload_reaches_the_service_and_a_large_response_comes_back() {
    let fixture = Fixture::start().await;
    let document = vec![7; 3 * MIB];
    let reference = fixture.upload(&document, "application/pdf").await;
    let input = json!({ "document": reference, "path": "/busy-once", "bytes": 12 * MIB });
    let task = fixture.run("t-1", "scan", input).await;
    assert_eq!(task["process_state"], "Processed", "{task}");
    // The service received the document itself, in both calls of the attempt.
    let calls = fixture.service.calls("/busy-once");
    let whole = (document.len(), digest(&document), "application/pdf".to_owned());
    assert_eq!(calls, [whole.clone(), whole]);
    // The response of twelve MiB is a reference, and the next step sent the response itself.
    let report = &task["output"]["report"]["$payload"];
    assert_eq!(report["bytes"], 12 * MIB);
    assert_eq!(report["content_type"], "text/csv");
    let content = vec![b'x'; 12 * MIB];
    assert_eq!(report["sha256"], digest(&content));
    let key = report["key"].as_str().unwrap();
    assert!(key.starts_with("tasks/t-1@") && key.ends_with("/output/report/do/1"), "{key}");
    assert_eq!(fixture.object(key).await, content);
    let archived = fixture.service.calls("/read");
    assert_eq!(archived, [(12 * MIB, digest(&content), "text/csv".to_owned())]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reference_inside_a_larger_body_is_passed_on_as_it_is() {
    let fixture = Fixture::start().await;
    let reference = fixture.upload(&vec![7; 200_000], "application/pdf").await;
    let task = fixture.run("t-1", "pass-on", json!({ "document": reference })).await;
    assert_eq!(task["process_state"], "Processed", "{task}");
    let received = &task["output"]["received"]["document"]["$payload"];
    assert_eq!(received["sha256"], reference["$payload"]["sha256"]);
    let key = received["key"].as_str().unwrap();
    assert!(key.starts_with("tasks/t-1@") && key.contains("/input/"), "{key}");
    assert_eq!(fixture.object(key).await.len(), 200_000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_submission_again_starts_nothing_even_after_its_upload_has_expired() {
    let fixture = Fixture::start().await;
    let document = vec![7; 200_000];
    let reference = fixture.upload(&document, "application/pdf").await;
    let input = json!({ "document": reference, "path": "/read", "bytes": 10 });
    let task = fixture.run("t-1", "scan", input.clone()).await;
    assert_eq!(task["process_state"], "Processed", "{task}");
    // The same content, uploaded again, is the same submission, too.
    let again = fixture.upload(&document, "application/pdf").await;
    assert_ne!(again, reference);
    let other = json!({ "document": again, "path": "/read", "bytes": 10 });
    assert_eq!(fixture.submit("t-1", "scan", other).await.0, 202);
    fixture.host.aws.age_objects(std::time::Duration::from_secs(25 * 3600)).unwrap();
    assert_eq!(fixture.host.aws.delete_expired_objects().unwrap(), 2);
    assert_eq!(fixture.submit("t-1", "scan", input.clone()).await.0, 202);
    let (status, problem) = fixture.submit("t-2", "scan", input).await;
    assert_eq!((status, &problem["type"]), (400, &json!("urn:steward:invalid-payload")));
    assert_eq!(fixture.service.calls("/read").len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_child_task_gets_the_payload_of_its_parent_and_returns_its_own() {
    let fixture = Fixture::start().await;
    let document = vec![7; 200_000];
    let reference = fixture.upload(&document, "application/pdf").await;
    let task = fixture.run("t-1", "parent", json!({ "document": reference })).await;
    assert_eq!(task["process_state"], "Processed", "{task}");
    assert_eq!(fixture.service.calls("/echo")[0].1, digest(&document));
    // The parent sends what the child has stored.
    assert_eq!(
        fixture.service.calls("/read"),
        [(300_000, digest(&vec![b'x'; 300_000]), "text/csv".to_owned())]
    );
    let keys = fixture.keys().await;
    let of_child: Vec<_> = keys.iter().filter(|key| key.contains("/t-1:child@")).collect();
    assert_eq!(of_child.len(), 2, "{keys:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forged_reference_of_a_service_reads_nothing() {
    let fixture = Fixture::start().await;
    let reference = fixture.upload(&vec![7; 200_000], "application/pdf").await;
    let input = json!({ "document": reference, "path": "/read", "bytes": 200_000 });
    let victim = fixture.run("victim", "scan", input).await;
    let stolen = victim["output"]["report"].clone();
    *fixture.service.forged.lock().unwrap() = stolen;
    for (workflow, place) in [
        ("forged", "request.body: "),
        ("forged-inside", "request.body: "),
        ("forged-text", "request.body: "),
        ("forged-output", "output: "),
    ] {
        let task = fixture.run(workflow, workflow, json!({})).await;
        assert_eq!(task["process_state"], "Error", "{task}");
        let why = match workflow {
            "forged-text" => "a text cannot have `$payload`",
            _ => "the payload does not belong to this task",
        };
        let expected = format!("{place}{why}");
        let error = task["error"].as_str().unwrap();
        assert!(error.contains(&expected), "{error}");
        assert_eq!(fixture.service.calls("/echo"), []);
        assert_eq!(task["output"], json!(null));
    }
}
