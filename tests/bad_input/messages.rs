//! Invalid submissions as messages on the submissions queue.

use std::collections::HashMap;

use aws_lambda_events::sqs::SqsBatchResponse;
use aws_sdk_dynamodb::{config::retry::RetryConfig, types::AttributeValue};
use serde_json::{Value, json};
use steward_aws::{AwsPorts, Config};
use steward_core::limits;
use steward_emulator::resources;
use steward_runtime::ports::Ports;
use tokio::net::TcpSocket;

use super::{fixture::*, samples::*};
use crate::support::{TestDeployment, failed_message_ids, sqs_event};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn valid_submissions_are_recorded_and_invalid_ones_kept_alerted_and_notified() {
    let fixture = SubmissionFixture::new().await;
    let taken = order_submission("taken");
    assert_eq!(fixture.submit(&[taken.to_string()]).await, SqsBatchResponse::default());
    assert_eq!(fixture.woken_tasks().await, ["taken"]);

    let bad = invalid_submissions(&fixture.client_queue, &fixture.unlisted_queue);
    let good = with_field(order_submission("good"), "reply_to", json!(fixture.client_queue));
    let twin = order_submission("twin");
    // Equal JSON: the order of keys and the white space do not matter.
    let duplicate = "{ \"input\": {\"amount\":20, \"items\":[\"x\"]}, \"workflow\":\"order\", \"task_id\":\"twin\" }";
    let mut batch: Vec<_> = bad.iter().map(|bad| bad.text.clone()).collect();
    batch.insert(4, good.to_string());
    batch.insert(0, twin.to_string());
    batch.push(duplicate.to_owned());
    batch.push(order_submission("good-too").to_string());

    let mut before = None;
    for delivery in 1..=2 {
        let response = fixture.submit(&batch).await;
        assert_eq!(response, SqsBatchResponse::default(), "delivery {delivery}");

        assert_eq!(fixture.woken_tasks().await, ["good", "good-too", "twin", "twin"]);
        let kept = bad.iter().map(|bad| (bad.text.clone(), bad.reason.clone()));
        let (rejected, kept) = (fixture.take_rejected().await, sorted(kept.collect()));
        assert!(
            rejected == kept,
            "found {:#?}\nexpected {:#?}",
            shortened(&rejected),
            shortened(&kept)
        );
        let alerts = bad.iter().map(|bad| (bad.id.map(str::to_owned), bad.reason.clone()));
        assert_eq!(fixture.take_refusal_alerts().await, sorted(alerts.collect()));
        let mut notifications = vec![(Some("good".to_owned()), "received".to_owned(), None)];
        notifications.extend(bad.iter().filter(|bad| bad.is_notified).map(|bad| {
            (bad.id.map(str::to_owned), "refused".to_owned(), Some(bad.reason.clone()))
        }));
        assert_eq!(fixture.take_notifications(&fixture.client_queue).await, sorted(notifications));
        assert_eq!(fixture.take_notifications(&fixture.unlisted_queue).await, []);

        assert_eq!(fixture.submission_of("taken").await, Some(taken.clone()));
        assert_eq!(fixture.submission_of("good").await, Some(good.clone()));
        assert_eq!(fixture.submission_of("twin").await, Some(twin.clone()));
        assert_eq!(fixture.submission_of("good-too").await, Some(order_submission("good-too")));
        let stored = fixture.stored_items().await;
        assert_eq!(
            stored.len(),
            4,
            "one task, which contains its submission, for each of four: {stored:#?}"
        );
        assert_eq!(before.get_or_insert_with(|| stored.clone()), &stored, "delivery {delivery}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_input_that_violates_the_schema_is_rejected_without_quoting_its_values() {
    let fixture = SubmissionFixture::new().await;
    let submission = |input: Value| json!({ "task_id": "x", "workflow": "strict", "input": input, "reply_to": fixture.client_queue });
    for (input, reason) in [
        (json!({ "amount": "secret" }), "input.amount: it is not of type \"integer\""),
        (json!({ "other": "secret" }), "input: \"amount\" is a required property"),
        (json!(null), "input: it is not of type \"object\""),
    ] {
        let text = submission(input).to_string();
        assert_eq!(fixture.submit(std::slice::from_ref(&text)).await, SqsBatchResponse::default());
        assert_eq!(fixture.take_rejected().await, [(text, reason.to_owned())]);
        assert_eq!(
            fixture.take_refusal_alerts().await,
            [(Some("x".to_owned()), reason.to_owned())]
        );
        let refused = (Some("x".to_owned()), "refused".to_owned(), Some(reason.to_owned()));
        assert_eq!(fixture.take_notifications(&fixture.client_queue).await, [refused]);
        assert_eq!(fixture.submission_of("x").await, None);
    }
    let fits = submission(json!({ "amount": 10 })).to_string();
    assert_eq!(fixture.submit(&[fits]).await, SqsBatchResponse::default());
    assert_eq!(fixture.woken_tasks().await, ["x"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeated_submission_gets_the_same_result_after_the_definition_changed() {
    let fixture = SubmissionFixture::new().await;
    let submission = |id: &str| {
        json!({ "task_id": id, "workflow": "strict", "input": { "amount": 10 } }).to_string()
    };
    assert_eq!(fixture.submit(&[submission("before")]).await, SqsBatchResponse::default());
    let ports = fixture.deployment.ports("publisher");
    let definitions = ports.definitions();
    definitions.publish(&strict_workflow(2, 9)).await.unwrap();
    let reason = "input.amount: it is greater than the maximum of 9".to_owned();
    let after = submission("after");
    let both = [submission("before"), after.clone()];
    assert_eq!(fixture.submit(&both).await, SqsBatchResponse::default());
    assert_eq!(fixture.take_rejected().await, [(after.clone(), reason)]);
    for version in [1, 2] {
        assert!(definitions.unpublish(&"strict".parse().unwrap(), version).await.unwrap());
    }
    assert_eq!(fixture.submit(&both).await, SqsBatchResponse::default());
    assert_eq!(
        fixture.take_rejected().await,
        [(after, "there is no workflow `strict`".to_owned())]
    );
    assert_eq!(fixture.woken_tasks().await, ["before"; 3]);
    assert_eq!(fixture.submission_of("after").await, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_submissions_with_one_id_in_a_batch_record_one_and_reject_the_other() {
    let fixture = SubmissionFixture::new().await;
    let contents = [20, 21].map(|amount| {
        with_field(order_submission("x"), "input", json!({ "amount": amount })).to_string()
    });
    assert_eq!(fixture.submit(&contents).await, SqsBatchResponse::default());
    let recorded = fixture.submission_of("x").await.unwrap().to_string();
    let other = contents.iter().find(|text| **text != recorded).unwrap().clone();
    assert!(contents.contains(&recorded), "{recorded}");
    let reason = "task `x` exists already, with other content".to_owned();
    assert_eq!(fixture.take_rejected().await, [(other, reason)]);
    assert_eq!(fixture.woken_tasks().await, ["x"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_submission_that_inflates_its_own_rejection_reason_is_rejected() {
    let fixture = SubmissionFixture::new().await;
    // Escaped in the reason, and again in the alert, this text would be too large for the bus.
    let quotes = "\"".repeat(limits::DOCUMENT_BYTES_MAX / 2 - 1_000);
    let quotes = with_field(order_submission("quotes"), "version", json!(quotes)).to_string();
    let key = json!({ "\u{7}".repeat(20_000): 1 }).to_string();
    let texts = [quotes, key];
    assert_eq!(fixture.submit(&texts).await, SqsBatchResponse::default());
    let rejected = fixture.take_rejected().await;
    assert_eq!(
        rejected.iter().map(|(text, _)| text.clone()).collect::<Vec<_>>(),
        sorted(texts.to_vec())
    );
    for (_, reason) in &rejected {
        assert!(reason.chars().count() <= limits::REASON_CHARS_MAX, "{}", reason.len());
        assert!(!reason.contains(char::is_control), "a message attribute cannot contain it");
    }
    assert_eq!(fixture.take_refusal_alerts().await.len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_valid_trace_is_sent_with_the_wake_and_an_invalid_one_is_dropped() {
    let fixture = SubmissionFixture::new().await;
    let traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let mut batch = sqs_event(
        [order_submission("traced").to_string(), order_submission("untraced").to_string()],
        1,
    );
    for (record, text) in batch.records.iter_mut().zip([traceparent, "not\na trace"]) {
        let attribute = json!({
            "stringValue": text, "dataType": "String", "stringListValues": [], "binaryListValues": [],
        });
        let attribute = serde_json::from_value(attribute).unwrap();
        record.message_attributes.insert("traceparent".to_owned(), attribute);
    }
    let ports = fixture.deployment.ports("submission");
    let response =
        steward_submission::handle(&ports, &fixture.deployment.config.reply_queues, batch).await;
    assert_eq!(response, SqsBatchResponse::default());
    let wakes =
        fixture.deployment.take_messages(&fixture.deployment.config.scheduler_queue_url).await;
    assert_eq!(wakes.len(), 2);
    for wake in wakes {
        let trace = wake.message_attributes().and_then(|attributes| attributes.get("traceparent"));
        let trace = trace.and_then(|attribute| attribute.string_value());
        let expected = body(&wake).contains("\"traced\"").then_some(traceparent);
        assert_eq!(trace, expected, "{}", body(&wake));
    }
    assert_eq!(fixture.deployment.task("traced").await.traceparent.as_deref(), Some(traceparent));
    assert_eq!(fixture.deployment.task("untraced").await.traceparent, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn submissions_that_cannot_be_stored_return_and_the_others_are_handled() {
    let fixture = SubmissionFixture::new().await;
    drop_tasks_table(&fixture.deployment.aws.sdk_config()).await;
    let client = json!(fixture.client_queue);
    let texts = [
        "{".to_owned(),
        with_field(order_submission("good"), "reply_to", client).to_string(),
        order_submission("good-too").to_string(),
    ];
    let response = fixture.submit(&texts).await;
    assert_eq!(sorted(failed_message_ids(&response)), ["m-1", "m-2"]);
    let reason = "not a submission: EOF while parsing an object at line 1 column 1".to_owned();
    assert_eq!(fixture.take_rejected().await, [("{".to_owned(), reason)]);
    assert_eq!(
        fixture.take_notifications(&fixture.client_queue).await,
        [],
        "no notification without a record"
    );
    assert_eq!(fixture.woken_tasks().await, [""; 0]);
    let tables = aws_sdk_dynamodb::Client::new(&fixture.deployment.aws.sdk_config());
    let documents = tables.scan().table_name(resources::DOCUMENTS_TABLE).send().await.unwrap();
    let of_tasks = |item: &&HashMap<String, AttributeValue>| {
        item["task_id"].as_s().is_ok_and(|id| !id.starts_with('#'))
    };
    let documents = documents.items().iter().filter(of_tasks).count();
    assert_eq!(documents, 0, "a document without its task");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_messages_return_while_aws_is_unreachable() {
    let fixture = SubmissionFixture::new().await;
    let Config { reply_queues, .. } = &fixture.deployment.config;
    let (_socket, sdk) = unreachable_aws(&fixture.deployment);
    let ports = AwsPorts::new(&sdk, &fixture.deployment.config, "submission");
    let texts = [
        "{".to_owned(),
        order_submission("good").to_string(),
        order_submission("good-too").to_string(),
    ];
    let response =
        steward_submission::handle(&ports, reply_queues, sqs_event(texts.clone(), 1)).await;
    assert_eq!(sorted(failed_message_ids(&response)), ["m-0", "m-1", "m-2"]);
    assert_eq!(fixture.stored_items().await, [""; 0]);
    // The same messages succeed once AWS is reachable again.
    assert_eq!(fixture.submit(&texts).await, SqsBatchResponse::default());
    assert_eq!(fixture.woken_tasks().await, ["good", "good-too"]);
    assert_eq!(fixture.take_rejected().await.len(), 1);
}

/// An SDK configuration without retries, for an address on which nothing listens while the socket exists.
fn unreachable_aws(deployment: &TestDeployment) -> (TcpSocket, aws_config::SdkConfig) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = socket.local_addr().unwrap();
    let mut sdk = deployment.aws.sdk_config().into_builder();
    sdk.set_http_client(None);
    sdk.set_endpoint_url(Some(format!("http://{address}")));
    sdk.set_retry_config(Some(RetryConfig::disabled()));
    (socket, sdk.build())
}
