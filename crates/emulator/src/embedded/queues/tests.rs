//! The embedded queues through the SDK's client: what SQS refuses, and what a killed process leaves behind.

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
use steward_aws::batch::Received;
use uuid::Uuid;

use super::journal::{Journal, JournalError};
use super::state::{Record, State};
use crate::embedded::{EmbeddedAws, EmbeddedError};

const JOURNAL: &str = "queues.jsonl";

/// A folder that is removed in the end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("embedded-sqs-{}", Uuid::new_v4()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// What would be left of this folder if the process were killed now.
    fn after_a_kill(&self) -> Self {
        let copy = Self::new();
        for entry in fs::read_dir(&self.0).unwrap() {
            let entry = entry.unwrap();
            fs::copy(entry.path(), copy.0.join(entry.file_name())).unwrap();
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

impl Drop for Folder {
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

/// A queue that gives a message up after two receives, and its dead-letter queue.
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

/// Up to ten messages, hidden for so long.
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

/// A queue's visible messages, those in flight, and those delayed.
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

/// A service manager that restarts it at once would otherwise have used the receives of a healthy message up in seconds.
#[tokio::test]
async fn restarts_make_no_dead_letters() {
    let folder = Folder::new();
    let (aws, client) = folder.open();
    let (work, dead) = create_with_dead_letters(&client).await;
    client.send_message().queue_url(&work).message_body("m").send().await.unwrap();
    drop((aws, client));
    for restart in 0..20 {
        let (aws, client) = folder.open();
        aws.give_back(&work).unwrap();
        let received = receive(&client, &work, 180, 0).await.remove(0);
        let count =
            &received.attributes.unwrap()[&MessageSystemAttributeName::ApproximateReceiveCount];
        assert_eq!(*count, (restart + 1).to_string(), "it counts as redelivered");
    }
    let (aws, client) = folder.open();
    aws.give_back(&work).unwrap();
    // Twice more with its consumer alive.
    for _ in 0..2 {
        assert_eq!(receive(&client, &work, 0, 0).await.len(), 1);
    }
    assert_eq!(receive(&client, &work, 0, 0).await.len(), 0);
    assert_eq!(receive(&client, &dead, 0, 0).await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_was_acknowledged_is_there_after_a_kill() {
    let folder = Folder::new();
    let (_aws, client) = folder.open();
    let (work, dead) = create_with_dead_letters(&client).await;
    send(&client, &work, "gives up").await;
    receive(&client, &work, 0, 0).await;
    receive(&client, &work, 0, 0).await;
    assert!(receive(&client, &work, 0, 0).await.is_empty(), "not a dead letter");
    send(&client, &work, "deleted").await;
    delete(&client, &work, &receive(&client, &work, 30, 0).await[0]).await;
    send(&client, &work, "in flight").await;
    let in_flight = receive(&client, &work, 30, 0).await.remove(0);
    let trace = MessageAttributeValue::builder().data_type("String").string_value("00-1-2-01");
    let sent = client.send_message().queue_url(&work).message_body("sent");
    sent.message_attributes("traceparent", trace.build().unwrap()).send().await.unwrap();
    let later = client.send_message().queue_url(&work).message_body("later").delay_seconds(25);
    later.send().await.unwrap();

    let (aws, client) = folder.after_a_kill().open();
    assert_eq!(counts(&client, &work).await, ["1", "1", "1"]);
    let sent = receive(&client, &work, 600, 0).await;
    assert_eq!((bodies(&sent), receives(&sent[0])), (vec!["sent"], "1"));
    let trace = &sent[0].message_attributes.as_ref().unwrap()["traceparent"];
    assert_eq!(trace.string_value(), Some("00-1-2-01"));
    assert!(receive(&client, &work, 600, 20).await.is_empty());
    assert_eq!(bodies(&receive(&client, &work, 600, 20).await), ["later"]);

    // What a consumer had comes again when its visibility timeout is over, as a redelivery.
    let again = aws.receive(&work).await.unwrap().remove(0);
    assert_eq!(again.message_id, in_flight.message_id);
    let again = Received::new(again);
    assert!(again.body == "in flight" && again.redelivered, "{again:?}");

    let letters = receive(&client, &dead, 600, 0).await;
    assert_eq!((bodies(&letters), receives(&letters[0])), (vec!["gives up"], "3"));
    let source = system(&letters[0], MessageSystemAttributeName::DeadLetterQueueSourceArn);
    assert_eq!(source, "arn:aws:sqs:us-east-1:000000000000:work");
}

#[tokio::test(start_paused = true)]
async fn a_receipt_of_before_a_kill_deletes_until_the_message_is_received_again() {
    let folder = Folder::new();
    let (_aws, client) = folder.open();
    let url = create(&client, "work").await;
    send(&client, &url, "one").await;
    let first = receive(&client, &url, 5, 0).await.remove(0);

    let left = folder.after_a_kill();
    let (_aws, client) = left.open();
    let second = receive(&client, &url, 5, 20).await.remove(0);
    assert_eq!(receives(&second), "2");
    delete(&client, &url, &first).await;
    assert_eq!(counts(&client, &url).await, ["0", "1", "0"], "an old receipt deleted it");

    let (_aws, client) = left.after_a_kill().open();
    delete(&client, &url, &second).await;
    assert_eq!(counts(&client, &url).await, ["0", "0", "0"]);
}

#[tokio::test]
async fn queues_that_were_deleted_or_purged_stay_so() {
    let folder = Folder::new();
    let (_aws, client) = folder.open();
    for name in ["kept", "purged", "deleted"] {
        let url = create(&client, name).await;
        send(&client, &url, name).await;
    }
    let url = |name: &str| format!("http://127.0.0.1:4566/000000000000/{name}");
    client.purge_queue().queue_url(url("purged")).send().await.unwrap();
    client.delete_queue().queue_url(url("deleted")).send().await.unwrap();
    set(&client, &url("kept"), QueueAttributeName::VisibilityTimeout, "77").await.unwrap();

    let (_aws, client) = folder.after_a_kill().open();
    let listed = client.list_queues().send().await.unwrap();
    assert_eq!(listed.queue_urls(), [url("kept"), url("purged")]);
    assert_eq!(counts(&client, &url("kept")).await, ["1", "0", "0"]);
    assert_eq!(counts(&client, &url("purged")).await, ["0", "0", "0"]);
    let kept = client.get_queue_attributes().queue_url(url("kept"));
    let kept = kept.attribute_names(QueueAttributeName::VisibilityTimeout).send().await.unwrap();
    assert_eq!(kept.attributes.unwrap()[&QueueAttributeName::VisibilityTimeout], "77");
}

#[test]
fn a_data_directory_in_use_is_refused_and_free_when_its_process_ends() {
    let folder = Folder::new();
    let first = EmbeddedAws::on_disk(&folder.0).unwrap();
    let refused = EmbeddedAws::on_disk(&folder.0).unwrap_err();
    assert!(matches!(refused, EmbeddedError::InUse { .. }), "{refused}");
    let (said, process) = (refused.to_string(), std::process::id().to_string());
    assert!(said.contains(folder.0.to_str().unwrap()) && said.contains(&process), "{said}");
    drop(first);
    EmbeddedAws::on_disk(&folder.0).unwrap();
}

/// The bodies that a journal holds, in order.
fn kept(dir: &Path) -> Result<Vec<String>, JournalError> {
    let mut state = State::default();
    Journal::open(dir, &mut state)?;
    let records = state.snapshot().filter_map(|record| match record {
        Record::Sent { message, .. } => Some(message.body),
        Record::NextNumber(_)
        | Record::Queue { .. }
        | Record::QueueDeleted { .. }
        | Record::QueuePurged { .. }
        | Record::Received { .. }
        | Record::GivenBack { .. }
        | Record::VisibilityChanged { .. }
        | Record::Removed { .. }
        | Record::DeadLettered { .. } => None,
    });
    Ok(records.collect())
}

#[tokio::test]
async fn a_journal_cut_anywhere_opens_with_what_was_complete() {
    let folder = Folder::new();
    let (_aws, client) = folder.open();
    let url = create(&client, "work").await;
    for n in 0..3 {
        send(&client, &url, &format!("message {n}")).await;
    }
    let whole = fs::read(folder.journal()).unwrap();
    let header = whole.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    let mut most = 0;
    for length in header..=whole.len() {
        let cut = Folder::new();
        fs::write(cut.journal(), &whole[..length]).unwrap();
        let there = kept(&cut.0).unwrap();
        let expected: Vec<_> = (0..there.len()).map(|n| format!("message {n}")).collect();
        assert_eq!(there, expected, "{length} bytes");
        assert!(there.len() >= most, "{length} bytes");
        most = there.len();
        // Opened once more, it is as it was left.
        assert_eq!(kept(&cut.0).unwrap(), expected);
    }
    assert_eq!(most, 3);
}

#[test]
fn a_journal_of_another_release_is_refused_and_left_as_it_is() {
    for (text, says) in [
        ("{\"steward_queues\":2}\n", "not a journal of queues that this release can read"),
        ("{\"steward_queues\":1}\n{\"renamed\":{}}\n{\"next_number\":7}\n", "line 2 of"),
    ] {
        let folder = Folder::new();
        fs::write(folder.journal(), text).unwrap();
        let refused = kept(&folder.0).unwrap_err().to_string();
        assert!(refused.contains(says), "{refused}");
        assert_eq!(fs::read_to_string(folder.journal()).unwrap(), text);
    }
}

#[tokio::test]
async fn a_long_journal_is_rewritten_without_what_is_gone() {
    const LARGE: usize = 200 * 1024;
    let folder = Folder::new();
    let (_aws, client) = folder.open();
    let url = create(&client, "work").await;
    let mut longest = 0;
    let large = "x".repeat(LARGE);
    for _ in 0..200 {
        send(&client, &url, &large).await;
        delete(&client, &url, &receive(&client, &url, 30, 0).await[0]).await;
        longest = longest.max(fs::metadata(folder.journal()).unwrap().len());
    }
    assert!((30..34).contains(&(longest >> 20)), "{longest} bytes at most");
    send(&client, &url, "last").await;
    assert_eq!(kept(&folder.after_a_kill().0).unwrap(), ["last"]);
}

#[tokio::test]
async fn the_journal_gives_the_state_again_whatever_was_done() {
    for seed in 0..20 {
        let mut random = fastrand::Rng::with_seed(seed);
        let folder = Folder::new();
        let (aws, client) = folder.open();
        let (work, dead) = create_with_dead_letters(&client).await;
        let mut held: Vec<(String, Message)> = Vec::new();
        for n in 0..60 {
            let url = if random.bool() { &work } else { &dead };
            match random.u8(..10) {
                0..4 => {
                    let message = client.send_message().queue_url(url).message_body(n.to_string());
                    message.delay_seconds(random.i32(0..2) * 900).send().await.unwrap();
                }
                4..7 => {
                    let received = receive(&client, url, random.i32(0..2) * 60, 0).await;
                    held.extend(received.into_iter().map(|message| (url.clone(), message)));
                }
                7 => drop(client.purge_queue().queue_url(&dead).send().await.unwrap()),
                8 if !held.is_empty() => {
                    let (url, message) = held.swap_remove(random.usize(..held.len()));
                    delete(&client, &url, &message).await;
                }
                _ if !held.is_empty() => {
                    let (url, message) = &held[random.usize(..held.len())];
                    let change = client.change_message_visibility().queue_url(url);
                    let change = change.set_receipt_handle(message.receipt_handle.clone());
                    // It may be gone, or not in flight.
                    let _ = change.visibility_timeout(random.i32(0..2) * 90).send().await;
                }
                _ => {}
            }
        }
        let there = |state: &State| -> Vec<_> {
            state.snapshot().map(|record| serde_json::to_string(&record).unwrap()).collect()
        };
        let mut again = State::default();
        Journal::open(&folder.after_a_kill().0, &mut again).unwrap();
        let live = &aws.services.queues.store().state;
        assert_eq!(there(&again), there(live), "seed {seed}");
    }
}

#[tokio::test]
async fn a_receipt_of_a_message_that_is_gone_is_never_one_of_a_later_message() {
    let folder = Folder::new();
    let (_aws, client) = folder.open();
    let url = create(&client, "work").await;
    send(&client, &url, "first").await;
    let first = receive(&client, &url, 30, 0).await.remove(0);
    delete(&client, &url, &first).await;
    // Twice: the second time the journal says nothing of the first message any more.
    let left = folder.after_a_kill();
    drop(left.open());
    let (_aws, client) = left.open();
    send(&client, &url, "second").await;
    receive(&client, &url, 30, 0).await;
    delete(&client, &url, &first).await;
    assert_eq!(counts(&client, &url).await, ["0", "1", "0"]);
}

#[tokio::test(start_paused = true)]
async fn a_long_poll_returns_when_a_message_becomes_visible_and_not_later() {
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
async fn a_message_is_removed_when_its_retention_is_over() {
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
async fn numbers_beyond_the_limits_are_refused() {
    let (_aws, client) = in_memory();
    let url = create(&client, "work").await;
    let receive = || client.receive_message().queue_url(&url);
    for request in [
        receive().max_number_of_messages(11),
        receive().max_number_of_messages(0),
        receive().wait_time_seconds(21),
        receive().visibility_timeout(43_201),
    ] {
        let refused = request.send().await.unwrap_err().into_service_error();
        assert_eq!(code(&refused), "InvalidParameterValue");
    }
    let delayed = client.send_message().queue_url(&url).message_body("m").delay_seconds(901);
    let refused = delayed.send().await.unwrap_err().into_service_error();
    assert_eq!(code(&refused), "InvalidParameterValue");
    for (name, value) in [
        (QueueAttributeName::VisibilityTimeout, "43201"),
        (QueueAttributeName::DelaySeconds, "-1"),
        (QueueAttributeName::MaximumMessageSize, "1048577"),
        (QueueAttributeName::MessageRetentionPeriod, "59"),
    ] {
        assert_eq!(set(&client, &url, name, value).await.unwrap_err(), "InvalidAttributeValue");
    }
    let unknown = set(&client, &url, QueueAttributeName::FifoQueue, "true").await;
    assert_eq!(unknown.unwrap_err(), "InvalidAttributeName");
    assert_eq!(counts(&client, &url).await, ["0", "0", "0"]);
}

#[tokio::test]
async fn messages_that_sqs_would_not_take_are_refused() {
    let (_aws, client) = in_memory();
    let url = create(&client, "work").await;
    let refused = async |body: &str| {
        let sent = client.send_message().queue_url(&url).message_body(body).send().await;
        code(&sent.unwrap_err().into_service_error())
    };
    assert_eq!(refused("").await, "MissingParameter");
    assert_eq!(refused("bell \u{7}").await, "InvalidMessageContents");
    assert_eq!(refused(&"x".repeat(1024 * 1024 + 1)).await, "InvalidParameterValue");
    send(&client, &url, &"x".repeat(1024 * 1024)).await;
    send(&client, &url, "tab\t, line\n, 😀").await;

    let entry = |id: &str, body: &str| {
        SendMessageBatchRequestEntry::builder().id(id).message_body(body).build().unwrap()
    };
    let batch = async |entries: Vec<_>| {
        let sent = client.send_message_batch().queue_url(&url).set_entries(Some(entries));
        sent.send().await.map_err(|error| code(&error.into_service_error()))
    };
    let half = "x".repeat(512 * 1024 + 1);
    for (entries, refusal) in [
        (vec![], "EmptyBatchRequest"),
        ((0..11).map(|n| entry(&n.to_string(), "m")).collect(), "TooManyEntriesInBatchRequest"),
        (vec![entry("a", "m"), entry("a", "m")], "BatchEntryIdsNotDistinct"),
        (vec![entry("a.b", "m")], "InvalidBatchEntryId"),
        (vec![entry("a", &half), entry("b", &half)], "BatchRequestTooLong"),
    ] {
        let code = batch(entries).await.unwrap_err();
        assert_eq!(code, format!("AWS.SimpleQueueService.{refusal}"));
    }
    let mixed = batch(vec![entry("good", "m"), entry("bad", "\u{0}")]).await.unwrap();
    assert_eq!(mixed.successful()[0].id(), "good");
    let failed = &mixed.failed()[0];
    assert_eq!((failed.id(), failed.code()), ("bad", "InvalidMessageContents"));
    assert!(failed.sender_fault());
    assert_eq!(counts(&client, &url).await, ["3", "0", "0"]);
}

#[tokio::test]
async fn digests_and_attributes_of_a_message_are_as_sqs_gives_them() {
    let (_aws, client) = in_memory();
    let url = create(&client, "work").await;
    let value = |kind: &str| MessageAttributeValue::builder().data_type(kind);
    let request = client.send_message().queue_url(&url).message_body("hello");
    let request = request
        .message_attributes(
            "traceparent",
            value("String").string_value("00-1-2-01").build().unwrap(),
        )
        .message_attributes("count", value("Number").string_value("7").build().unwrap())
        .message_attributes(
            "blob",
            value("Binary").binary_value(Blob::new([0x00, 0xff])).build().unwrap(),
        );
    let sent = request.send().await.unwrap();
    assert_eq!(sent.md5_of_message_body(), Some("5d41402abc4b2a76b9719d911017c592"));
    assert_eq!(sent.md5_of_message_attributes(), Some("01c6879fc26f8b7b3f6b14cfcd8ba6d1"));
    let message = receive(&client, &url, 0, 0).await.remove(0);
    assert_eq!(message.message_id(), sent.message_id());
    assert_eq!(message.md5_of_body(), sent.md5_of_message_body());
    assert_eq!(message.md5_of_message_attributes(), sent.md5_of_message_attributes());
    let blob = message.message_attributes.as_ref().unwrap()["blob"].binary_value();
    assert_eq!(blob.unwrap().as_ref(), [0x00, 0xff]);
    // Only what is asked for.
    let bare = client.receive_message().queue_url(&url).send().await.unwrap();
    let bare = &bare.messages()[0];
    assert!(bare.message_attributes().is_none() && bare.attributes().is_none());

    for attribute in
        [value("Text").string_value("x"), value("String"), value("Number").string_value("")]
    {
        let sent = client.send_message().queue_url(&url).message_body("m");
        let sent = sent.message_attributes("a", attribute.build().unwrap()).send().await;
        let refused = sent.unwrap_err().into_service_error();
        assert_eq!(code(&refused), "InvalidParameterValue");
    }
}

#[tokio::test]
async fn receipt_handles_are_read_and_checked() {
    let (_aws, client) = in_memory();
    let (url, other) = (create(&client, "work").await, create(&client, "other").await);
    send(&client, &url, "one").await;
    let message = receive(&client, &url, 30, 0).await.remove(0);
    let handle = message.receipt_handle().unwrap();
    for (url, handle) in [(&url, "garbage"), (&other, handle)] {
        let delete = client.delete_message().queue_url(url).receipt_handle(handle);
        let refused = delete.send().await.unwrap_err().into_service_error();
        assert!(refused.is_receipt_handle_is_invalid(), "{handle}");
    }
    let entry = |id: &str, handle: &str| {
        DeleteMessageBatchRequestEntry::builder().id(id).receipt_handle(handle).build().unwrap()
    };
    let delete = client.delete_message_batch().queue_url(&url);
    let deleted = delete.entries(entry("bad", "garbage")).entries(entry("good", handle));
    let deleted = deleted.send().await.unwrap();
    assert_eq!((deleted.successful()[0].id(), deleted.failed()[0].id()), ("good", "bad"));
    // Deleting again succeeds; changing what is gone does not.
    delete_again(&client, &url, handle).await;
    let change = client.change_message_visibility().queue_url(&url).receipt_handle(handle);
    let refused = change.visibility_timeout(0).send().await.unwrap_err().into_service_error();
    assert_eq!(code(&refused), "InvalidParameterValue");

    send(&client, &url, "two").await;
    let message = receive(&client, &url, 0, 0).await.remove(0);
    let change = ChangeMessageVisibilityBatchRequestEntry::builder().id("c").visibility_timeout(60);
    let change = change.set_receipt_handle(message.receipt_handle).build().unwrap();
    let changed = client.change_message_visibility_batch().queue_url(&url).entries(change);
    let changed = changed.send().await.unwrap();
    assert_eq!(changed.failed()[0].code(), "AWS.SimpleQueueService.MessageNotInflight");
}

async fn delete_again(client: &Client, url: &str, handle: &str) {
    client.delete_message().queue_url(url).receipt_handle(handle).send().await.unwrap();
}

#[tokio::test]
async fn queues_are_created_found_listed_and_refused_as_sqs_does() {
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
async fn both_copies_of_a_doubled_message_have_its_id() {
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
