//! `steward dlq`: dead letters are listed, shown and sent back, and none is lost.

use std::time::{Duration, Instant};

use aws_sdk_sqs::{
    Client,
    types::{MessageAttributeValue, QueueAttributeName},
};
use serde_json::{Value, json};
use steward_aws::queues::SCHEDULER;
use steward_emulator::resources::{ALERTS_QUEUE, create_queue};
use steward_runtime::ports::Ports;
use tempfile::NamedTempFile;

use crate::harness::OperatorHarness;

/// Sends a message with a trace header.
async fn send(sqs: &Client, url: &str, body: &str) {
    let trace = MessageAttributeValue::builder().data_type("String").string_value("00-trace-01");
    let request = sqs.send_message().queue_url(url).message_body(body);
    request.message_attributes("traceparent", trace.build().unwrap()).send().await.unwrap();
}

/// Receives messages until the queue has moved them to its dead-letter queue.
async fn receive_until_dead(sqs: &Client, url: &str) {
    loop {
        let request = sqs.receive_message().queue_url(url).visibility_timeout(0);
        if request.send().await.unwrap().messages().is_empty() {
            return;
        }
    }
}

/// The bodies and traces of the messages in a queue. The messages stay in the queue.
async fn contents(sqs: &Client, url: &str) -> Vec<(String, String)> {
    let request = sqs.receive_message().queue_url(url).max_number_of_messages(10);
    let answer = request.visibility_timeout(0).message_attribute_names("All").send().await.unwrap();
    let messages = answer.messages.unwrap_or_default().into_iter().map(|message| {
        let trace = message.message_attributes.unwrap()["traceparent"].string_value.clone();
        (message.body.unwrap(), trace.unwrap())
    });
    messages.collect()
}

/// The cells of the row that begins with `first`.
fn row<'a>(table: &'a str, first: &str) -> Vec<&'a str> {
    let rows = table.lines().map(|line| {
        line.split(['│', '┆']).map(str::trim).filter(|cell| !cell.is_empty()).collect::<Vec<_>>()
    });
    rows.into_iter().find(|cells| cells.first() == Some(&first)).unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_letter_is_listed_shown_without_its_body_and_sent_back_with_its_attributes() {
    let harness = OperatorHarness::start().await;
    let sqs = harness.host.sqs();
    let (queue, dead) = ("steward-agent-other", "steward-agent-other-dead-letters");
    let url = create_queue(&harness.host.aws.sdk_config(), queue, Some(SCHEDULER)).await.unwrap();
    send(&sqs, &url, "no JSON at all").await;
    receive_until_dead(&sqs, &url).await;

    let listed = harness.steward(&["dlq", "list"]).await;
    listed.has(&[dead, "steward-scheduler-dead-letters", "steward-submissions-dead-letters"]);
    assert_eq!(row(&listed.out, dead), [dead, "1", "0", queue]);

    let shown = harness.steward(&["dlq", "show", dead]).await;
    shown.has(&[
        "source queue    steward-agent-other",
        "00-trace-01",
        "14 bytes",
        "messages shown: 1",
    ]);
    assert!(!shown.out.contains("no JSON at all"), "a payload was shown without --body");
    let shown = harness.steward(&["dlq", "show", dead, "--body"]).await;
    shown.has(&["no JSON at all"]);

    let output = harness.steward(&["dlq", "redrive", dead, "--why", "repaired"]).await;
    output.has(&["1 sent back to", queue]);
    let message = ("no JSON at all".to_owned(), "00-trace-01".to_owned());
    assert_eq!(contents(&sqs, &url).await, [message]);
    // The message is not in flight either.
    assert_eq!(row(&harness.steward(&["dlq", "list"]).await.out, dead), [dead, "0", "0", queue]);
    harness.steward(&["dlq", "redrive", dead, "--why", "repaired"]).await.has(&["no messages"]);
    for event in published_events(&harness, 2).await {
        assert_eq!(event["detail-type"], "Operator Redrive");
        let data =
            json!({ "queue": dead, "messages_max": 10_000, "by": "anna", "why": "repaired" });
        assert_eq!(event["detail"]["data"], data);
    }
}

/// The first published events.
async fn published_events(harness: &OperatorHarness, count: usize) -> Vec<serde_json::Value> {
    let (sqs, url) = (harness.host.sqs(), harness.host.queue_url(ALERTS_QUEUE));
    let mut events = Vec::new();
    while events.len() < count {
        let request = sqs.receive_message().queue_url(&url).wait_time_seconds(5);
        let messages = request.send().await.unwrap().messages.unwrap_or_default();
        assert!(!messages.is_empty(), "only {events:?} were published");
        let bodies = messages.iter().map(|message| message.body().unwrap());
        events.extend(bodies.map(|body| serde_json::from_str::<serde_json::Value>(body).unwrap()));
    }
    events
}

/// Creates a queue with the dead-letter queue `dead`.
async fn create_source_queue(harness: &OperatorHarness, name: &str, dead: &str) -> String {
    let arn = format!("arn:aws:sqs:us-east-1:000000000000:{dead}");
    let policy = json!({ "deadLetterTargetArn": arn, "maxReceiveCount": 1 }).to_string();
    let request = harness.host.sqs().create_queue().queue_name(name);
    let answer = request.attributes(QueueAttributeName::RedrivePolicy, policy).send().await;
    answer.unwrap().queue_url.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_letter_queue_with_any_name_is_found_and_each_message_returns_to_its_source() {
    let harness = OperatorHarness::start().await;
    let sqs = harness.host.sqs();
    // Names as CloudFormation generates them.
    let dead = "shop-DeadLetters-1X2Y3Z";
    let dead_url = sqs.create_queue().queue_name(dead).send().await.unwrap().queue_url.unwrap();
    let first = create_source_queue(&harness, "shop-First-4A5B6C", dead).await;
    let second = create_source_queue(&harness, "shop-Second-7D8E9F", dead).await;
    for (url, body) in [(&first, "one"), (&second, "two")] {
        send(&sqs, url, body).await;
        receive_until_dead(&sqs, url).await;
    }
    let listed = harness.steward(&["dlq", "list", "--prefix", "shop"]).await;
    listed.has(&["shop-First-4A5B6C", "shop-Second-7D8E9F"]);
    assert_eq!(row(&listed.out, dead)[..3], [dead, "2", "0"]);
    let listed_json = harness.steward(&["dlq", "list", "--prefix", "shop", "--json"]).await;
    let queues: Value = serde_json::from_str(&listed_json.out).unwrap();
    let of_dead = queues.as_array().unwrap().iter().find(|queue| queue["queue"] == dead).unwrap();
    assert_eq!((&of_dead["messages"], &of_dead["in_flight"]), (&json!(2), &json!(0)));
    assert!(
        row(&listed.out, "shop-First-4A5B6C").is_empty(),
        "a source queue is not a dead-letter queue"
    );

    // A message that was sent to the dead-letter queue directly has no source queue.
    send(&sqs, &dead_url, "three").await;
    let output = harness.steward(&["dlq", "redrive", dead, "--why", "repaired"]).await;
    output.fails(&["1 kept: several queues send their dead letters here, and the message does not name its source"]);
    let trace = || "00-trace-01".to_owned();
    assert_eq!(contents(&sqs, &first).await, [("one".to_owned(), trace())]);
    assert_eq!(contents(&sqs, &second).await, [("two".to_owned(), trace())]);
    assert_eq!(contents(&sqs, &dead_url).await, [("three".to_owned(), trace())]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_in_a_dead_letter_queue_is_carried_out_after_a_redrive() {
    let harness = OperatorHarness::start().await;
    harness.submit("order", "order-1", "/ship").await;
    harness.until_state("order-1", "Error").await;
    let dead = "steward-commands-dead-letters";
    let command = json!({
        "type": "command", "command_id": "c-1", "task_id": "order-1", "by": "anna",
        "why": "collected in the shop", "issued_at": jiff::Timestamp::now(), "order": { "command": "skip" },
    });
    send(&harness.host.sqs(), &harness.host.queue_url(dead), &command.to_string()).await;
    let output = harness.steward(&["dlq", "redrive", dead, "--why", "repaired", "--json"]).await;
    let report: Value = serde_json::from_str(&output.out).unwrap();
    assert_eq!(report["sent"], json!({ "steward-commands": 1 }), "{report}");
    harness.until_state("order-1", "Processed").await;
    // The sender is who sent it back: `steward` signs with the SDK's test credentials.
    let shown = harness.steward(&["show", "order-1"]).await;
    shown.has(&["skip ship by anna (not verified; sent back by ANOTREAL)"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_cannot_be_sent_back_stays() {
    let harness = OperatorHarness::start().await;
    let sqs = harness.host.sqs();
    let (queue, dead) = ("steward-small", "steward-small-dead-letters");
    let url = create_queue(&harness.host.aws.sdk_config(), queue, Some(SCHEDULER)).await.unwrap();
    let size = (QueueAttributeName::MaximumMessageSize, "1024");
    let request = sqs.set_queue_attributes().queue_url(&url).attributes(size.0, size.1);
    request.send().await.unwrap();
    let dead_url = harness.host.queue_url(dead);
    let large = "x".repeat(2_000);
    send(&sqs, &dead_url, "small").await;
    send(&sqs, &dead_url, &large).await;

    let output = harness.steward(&["dlq", "redrive", dead, "--why", "repaired"]).await;
    output.fails(&["1 kept", "send to"]);
    assert!(output.out.contains("1 sent back"), "{}", output.out);
    let trace = "00-trace-01".to_owned();
    assert_eq!(contents(&sqs, &dead_url).await, [(large, trace.clone())]);
    assert_eq!(contents(&sqs, &url).await, [("small".to_owned(), trace)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn max_limits_the_number_of_messages_sent_back() {
    let harness = OperatorHarness::start().await;
    let sqs = harness.host.sqs();
    let (queue, dead) = ("steward-other", "steward-other-dead-letters");
    let url = create_queue(&harness.host.aws.sdk_config(), queue, Some(SCHEDULER)).await.unwrap();
    for n in 0..5 {
        send(&sqs, &harness.host.queue_url(dead), &format!("message {n}")).await;
    }
    let output =
        harness.steward(&["dlq", "redrive", dead, "--max", "2", "--why", "repaired"]).await;
    output.has(&["2 sent back"]);
    assert_eq!(contents(&sqs, &url).await.len(), 2);
    assert_eq!(contents(&sqs, &harness.host.queue_url(dead)).await.len(), 3);
    let other_queue = harness.host.queue_url("steward-rejected");
    harness
        .steward(&["dlq", "redrive", dead, "--to", "steward-rejected", "--why", "repaired"])
        .await
        .has(&["3 sent back"]);
    assert_eq!(contents(&sqs, &other_queue).await.len(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_queues_than_dead_letter_queues_are_refused() {
    let harness = OperatorHarness::start().await;
    for (command, why) in [("show", &[][..]), ("redrive", &["--why", "repaired"])] {
        let output = harness.steward(&[&["dlq", command, "nowhere"], why].concat()).await;
        output.fails(&["there is no queue `nowhere`"]);
        let output = harness.steward(&[&["dlq", command, "steward-scheduler"], why].concat()).await;
        output.fails(&[
            "`steward-scheduler` is not a dead-letter queue; `steward dlq list` lists the dead-letter queues",
        ]);
    }
    harness.steward(&["dlq", "redrive", "steward-scheduler-dead-letters"]).await.fails(&["--why"]);
    let output = harness.steward(&["dlq", "list", "--prefix", "other"]).await;
    output.fails(&["no dead-letter queue has a name that begins with `other`"]);
    let output = harness.steward(&["dlq", "list", "--queue", "steward-scheduler"]).await;
    output.fails(&["`steward-scheduler` is not a dead-letter queue"]);
    let named = ["dlq", "list", "--prefix", "other", "--queue", "steward-scheduler-dead-letters"];
    harness.steward(&named).await.has(&["steward-scheduler-dead-letters"]);
}

/// A submission that was refused because its workflow was not published yet is sent back after the publication.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rejected_submission_is_listed_shown_and_sent_back() {
    let harness = OperatorHarness::start().await;
    let file = NamedTempFile::new().unwrap();
    let submission = |id: &str, workflow: &str| json!({ "task_id": id, "workflow": workflow });
    let both = json!([submission("early-1", "early"), submission("never-1", "never")]);
    std::fs::write(file.path(), both.to_string()).unwrap();
    let submit = ["submit", "--unchecked", file.path().to_str().unwrap()];
    harness.steward(&submit).await.has(&["early-1: sent"]);
    let rejected = "steward-rejected";
    let deadline = Instant::now() + Duration::from_secs(60);
    let listed = loop {
        let listed = harness.steward(&["dlq", "list"]).await;
        if row(&listed.out, rejected).get(1) == Some(&"2") {
            break listed;
        }
        assert!(Instant::now() < deadline, "the submission was not rejected: {}", listed.out);
    };
    assert_eq!(row(&listed.out, rejected), [rejected, "2", "0", "steward-submissions"]);
    let shown = harness.steward(&["dlq", "show", rejected]).await;
    shown.has(&["source queue    steward-submissions", "there is no workflow `early`"]);
    assert!(!shown.out.contains("early-1"), "the body is shown only if asked for");

    let workflow = json!({ "name": "early", "version": 1, "steps": { "rest": { "wait": "1s" } } });
    let workflow = serde_json::from_value(workflow).unwrap();
    harness.host.ports.definitions().publish(&workflow).await.unwrap();
    let sent = harness.steward(&["dlq", "redrive", rejected, "--why", "it is published now"]).await;
    assert_eq!(sent.out, "steward-rejected: 2 sent back to steward-submissions\n");
    harness.until_state("early-1", "Processed").await;
    // The other one is refused again, and not sent back again.
    let kept = "it arrived after the redrive began, so it may have been refused again";
    assert!(sent.ok || sent.err.contains(kept), "{}", sent.err);
    while row(&harness.steward(&["dlq", "list"]).await.out, rejected).get(1) != Some(&"1") {
        assert!(Instant::now() < deadline, "it was not rejected again");
    }
}
