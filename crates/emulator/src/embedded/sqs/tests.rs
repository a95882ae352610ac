//! Tests of the embedded queues through the SDK's client.

mod durability;
mod fairness;
mod validation;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use aws_sdk_sqs::Client;
use aws_sdk_sqs::error::ProvideErrorMetadata;
use aws_sdk_sqs::primitives::Blob;
use aws_sdk_sqs::types::{
    ChangeMessageVisibilityBatchRequestEntry, DeleteMessageBatchRequestEntry, Message,
    MessageAttributeValue, MessageSystemAttributeName, QueueAttributeName,
    SendMessageBatchRequestEntry,
};
use serde_json::json;
use steward_aws::batch::ReceivedMessage;
use uuid::Uuid;

use super::{
    journal::{JournalError, QueueJournal},
    state::{JournalRecord, QueuesState},
};
use crate::embedded::{EmbeddedAws, EmbeddedError};

const JOURNAL: &str = "queues.jsonl";

/// A temporary data directory, deleted when it is dropped.
struct TempDataDir(PathBuf);

impl TempDataDir {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("embedded-sqs-{}", Uuid::new_v4()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// A copy of the directory, as a killed process would leave it, without the folder of the payloads.
    fn after_a_kill(&self) -> Self {
        let copy = Self::new();
        for entry in fs::read_dir(&self.0).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_file() {
                fs::copy(entry.path(), copy.0.join(entry.file_name())).unwrap();
            }
        }
        copy
    }

    fn open(&self) -> (EmbeddedAws, Client) {
        let aws = EmbeddedAws::on_disk(&self.0).unwrap();
        let client = Client::new(&aws.sdk_config());
        (aws, client)
    }

    fn journal(&self) -> PathBuf {
        self.0.join(JOURNAL)
    }
}

impl Drop for TempDataDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn in_memory() -> (EmbeddedAws, Client) {
    let aws = EmbeddedAws::in_memory().unwrap();
    let client = Client::new(&aws.sdk_config());
    (aws, client)
}

async fn create(client: &Client, name: &str) -> String {
    client.create_queue().queue_name(name).send().await.unwrap().queue_url.unwrap()
}

/// Creates a queue that moves a message to the dead-letter queue after two receives; returns both queues.
async fn create_with_dead_letters(client: &Client) -> (String, String) {
    let (work, dead) = (create(client, "work").await, create(client, "dead").await);
    let policy = json!({
        "deadLetterTargetArn": "arn:aws:sqs:us-east-1:000000000000:dead",
        "maxReceiveCount": "2",
    });
    set(client, &work, QueueAttributeName::RedrivePolicy, &policy.to_string()).await.unwrap();
    (work, dead)
}

async fn set(
    client: &Client,
    url: &str,
    name: QueueAttributeName,
    value: &str,
) -> Result<(), String> {
    let set = client.set_queue_attributes().queue_url(url).attributes(name, value).send().await;
    set.map(drop).map_err(|error| code(&error.into_service_error()))
}

async fn send(client: &Client, url: &str, body: &str) {
    client.send_message().queue_url(url).message_body(body).send().await.unwrap();
}

/// Receives up to ten messages with a visibility timeout.
async fn receive(client: &Client, url: &str, hidden_s: i32, wait_s: i32) -> Vec<Message> {
    let received = client
        .receive_message()
        .queue_url(url)
        .max_number_of_messages(10)
        .visibility_timeout(hidden_s)
        .wait_time_seconds(wait_s)
        .message_system_attribute_names(MessageSystemAttributeName::All)
        .message_attribute_names("All")
        .send()
        .await;
    received.unwrap().messages.unwrap_or_default()
}

async fn delete(client: &Client, url: &str, message: &Message) {
    let delete = client.delete_message().queue_url(url);
    delete.receipt_handle(message.receipt_handle().unwrap()).send().await.unwrap();
}

fn bodies(messages: &[Message]) -> Vec<&str> {
    messages.iter().map(|message| message.body().unwrap()).collect()
}

fn system(message: &Message, name: MessageSystemAttributeName) -> &str {
    &message.attributes.as_ref().unwrap()[&name]
}

fn receives(message: &Message) -> &str {
    system(message, MessageSystemAttributeName::ApproximateReceiveCount)
}

fn code(error: &impl ProvideErrorMetadata) -> String {
    error.code().unwrap_or_default().to_owned()
}

/// The numbers of visible, in-flight and delayed messages of a queue.
async fn counts(client: &Client, url: &str) -> [String; 3] {
    let answer = client.get_queue_attributes().queue_url(url);
    let answer = answer.attribute_names(QueueAttributeName::All).send().await.unwrap();
    let attributes = answer.attributes.unwrap();
    [
        QueueAttributeName::ApproximateNumberOfMessages,
        QueueAttributeName::ApproximateNumberOfMessagesNotVisible,
        QueueAttributeName::ApproximateNumberOfMessagesDelayed,
    ]
    .map(|name| attributes[&name].clone())
}

#[tokio::test(start_paused = true)]
async fn long_poll_returns_as_soon_as_a_message_is_visible() {
    let (_aws, client) = in_memory();
    let url = create(&client, "work").await;
    send(&client, &url, "one").await;
    receive(&client, &url, 7, 0).await;
    let begun = tokio::time::Instant::now();
    assert_eq!(receives(&receive(&client, &url, 7, 20).await[0]), "2");
    let waited = begun.elapsed();
    assert!((7_000..7_010).contains(&waited.as_millis()), "{waited:?}");

    let (polling, its_url) = (client.clone(), url.clone());
    let poll = tokio::spawn(async move { receive(&polling, &its_url, 60, 20).await });
    tokio::time::sleep(Duration::from_secs(1)).await;
    send(&client, &url, "two").await;
    assert_eq!(bodies(&poll.await.unwrap()), ["two"]);
    assert_eq!(begun.elapsed().as_secs(), 8);
}

#[tokio::test(start_paused = true)]
async fn message_is_deleted_after_its_retention_period() {
    let (_aws, client) = in_memory();
    let url = create(&client, "work").await;
    let retention = QueueAttributeName::MessageRetentionPeriod;
    set(&client, &url, retention, "60").await.unwrap();
    send(&client, &url, "old").await;
    tokio::time::sleep(Duration::from_secs(59)).await;
    assert_eq!(bodies(&receive(&client, &url, 0, 0).await), ["old"]);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(receive(&client, &url, 0, 0).await.is_empty());
    assert_eq!(counts(&client, &url).await, ["0", "0", "0"]);
}

#[tokio::test]
async fn queues_are_created_found_listed_and_refused_as_by_sqs() {
    let (_aws, client) = in_memory();
    let create = |name: &str| client.create_queue().queue_name(name);
    let timeout = QueueAttributeName::VisibilityTimeout;
    let made = create("work").attributes(timeout.clone(), "77").send().await.unwrap();
    let same = create("work").attributes(timeout.clone(), "77").send().await.unwrap();
    assert_eq!(made.queue_url(), same.queue_url());
    create("work").send().await.unwrap();
    create("other").send().await.unwrap();
    let other = create("work").attributes(timeout, "78").send().await.unwrap_err();
    assert!(other.into_service_error().is_queue_name_exists());
    for name in ["", "a.fifo", "a b"] {
        let refused = create(name).send().await.unwrap_err().into_service_error();
        assert_eq!(code(&refused), "InvalidParameterValue", "{name}");
    }
    let missing = client.get_queue_url().queue_name("none").send().await.unwrap_err();
    assert!(missing.into_service_error().is_queue_does_not_exist());

    let url = made.queue_url.unwrap();
    for policy in [
        "{}",
        r#"{"deadLetterTargetArn":"arn:aws:sqs:us-east-1:000000000000:none","maxReceiveCount":3}"#,
        r#"{"deadLetterTargetArn":"arn:aws:sqs:us-east-1:000000000000:other","maxReceiveCount":0}"#,
        r#"{"deadLetterTargetArn":"arn:aws:sqs:us-east-1:000000000000:work","maxReceiveCount":3}"#,
    ] {
        let refused = set(&client, &url, QueueAttributeName::RedrivePolicy, policy).await;
        assert_eq!(refused.unwrap_err(), "InvalidParameterValue", "{policy}");
    }
    for name in ["shop-a", "shop-b", "shop-c"] {
        create(name).send().await.unwrap();
    }
    let list = || client.list_queues().queue_name_prefix("shop-").max_results(2);
    let page = list().send().await.unwrap();
    assert_eq!(page.queue_urls().len(), 2);
    let rest = list().set_next_token(page.next_token).send().await.unwrap();
    assert!(rest.queue_urls()[0].ends_with("/shop-c") && rest.next_token.is_none());
}

#[tokio::test]
async fn both_copies_of_a_duplicated_message_have_the_same_id() {
    let (aws, client) = in_memory();
    let url = create(&client, "work").await;
    aws.duplicate_messages(1.0, 1);
    let sent = client.send_message().queue_url(&url).message_body("m").send().await.unwrap();
    let received = receive(&client, &url, 30, 0).await;
    assert_eq!(received.len(), 2);
    assert!(received.iter().all(|message| message.message_id() == sent.message_id()));
    delete(&client, &url, &received[0]).await;
    assert_eq!(counts(&client, &url).await, ["0", "1", "0"]);
}
