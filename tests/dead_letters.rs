//! The adapter for dead-letter queues, over the embedded SQS: a look neither removes messages nor counts as a receive, and
//! an event is published before messages are redriven.

#![cfg(test)]

use std::collections::BTreeSet;

use aws_sdk_sqs::{
    Client,
    types::{MessageAttributeValue, QueueAttributeName},
};
use jiff::Timestamp;
use steward_aws::{
    batch::ReceivedMessage,
    dead_letters::{DeadLetterQueue, DeadLettersError, RedriveRequest},
    polling::record,
    queues::SCHEDULER,
};
use steward_core::model::events::BusEvent;
use steward_emulator::{embedded::EmbeddedAws, resources::create_queue};
use steward_runtime::ports::{EventBus, PortError};
use steward_test_world::MemoryBus;

const DEAD: &str = "shop-dead-letters";

/// The dead-letter queue of a queue `shop`, with this many messages.
async fn dead_letter_queue(messages: usize) -> (EmbeddedAws, Client, DeadLetterQueue) {
    let aws = EmbeddedAws::in_memory().unwrap();
    let sqs = Client::new(&aws.sdk_config());
    create_queue(&aws.sdk_config(), "shop", Some(SCHEDULER)).await.unwrap();
    let queue = DeadLetterQueue::find(&sqs, DEAD).await.unwrap();
    for n in 0..messages {
        let request =
            sqs.send_message().queue_url(queue.url()).message_body(format!("message {n}"));
        request.send().await.unwrap();
    }
    (aws, sqs, queue)
}

fn redrive_of_at_most(max: usize) -> RedriveRequest {
    RedriveRequest { max, to: None, by: "anna".to_owned(), why: "repaired".to_owned() }
}

async fn waiting_messages(queue: &DeadLetterQueue) -> u64 {
    queue.contents().await.unwrap().waiting
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_look_returns_every_message_once_and_removes_none() {
    let (_aws, _sqs, queue) = dead_letter_queue(25).await;
    for _ in 0..2 {
        let letters = queue.peek(100).await.unwrap();
        let bodies: BTreeSet<_> = letters.iter().map(|letter| letter.body()).collect();
        assert_eq!((letters.len(), bodies.len()), (25, 25));
        assert!(letters.is_sorted_by_key(|letter| letter.sent_at()));
        assert_eq!(waiting_messages(&queue).await, 25, "all messages are still in the queue");
    }
    assert_eq!(queue.peek(12).await.unwrap().len(), 12);
    assert_eq!(waiting_messages(&queue).await, 25);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_whose_redrive_policy_counts_looks_is_not_read() {
    let (_aws, sqs, queue) = dead_letter_queue(1).await;
    let last = sqs.create_queue().queue_name("last").send().await.unwrap().queue_url.unwrap();
    let policy =
        r#"{"deadLetterTargetArn":"arn:aws:sqs:us-east-1:000000000000:last","maxReceiveCount":2}"#;
    let request = sqs.set_queue_attributes().queue_url(queue.url());
    request.attributes(QueueAttributeName::RedrivePolicy, policy).send().await.unwrap();
    for _ in 0..4 {
        let refused = queue.peek(10).await.unwrap_err();
        assert!(
            matches!(refused, DeadLettersError::HasRedrivePolicy { receives_max: 2, .. }),
            "{refused}"
        );
    }
    assert_eq!(waiting_messages(&queue).await, 1);
    let request = sqs.receive_message().queue_url(last);
    assert_eq!(request.send().await.unwrap().messages(), []);
}

/// An event bus that fails.
struct FailingBus;

impl EventBus for FailingBus {
    async fn publish(&self, events: Vec<BusEvent>) -> Vec<Result<(), PortError>> {
        let error = |_| {
            let (operation, source) = ("publish".to_owned(), "the bus fails".into());
            Err(PortError { operation, retryable: true, source })
        };
        events.into_iter().map(error).collect()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_are_not_redriven_if_the_event_cannot_be_published() {
    let (_aws, _sqs, queue) = dead_letter_queue(1).await;
    let now = Timestamp::now();
    let refused =
        queue.redrive(&FailingBus, now, &redrive_of_at_most(10), |_| true).await.unwrap_err();
    assert!(matches!(refused, DeadLettersError::Port(_)), "{refused}");
    assert_eq!(waiting_messages(&queue).await, 1);
    let bus = MemoryBus::default();
    assert_eq!(
        queue.redrive(&bus, now, &redrive_of_at_most(10), |_| true).await.unwrap().count(),
        1
    );
    let event_ids: Vec<_> = bus.take().into_iter().map(|event| event.id().to_owned()).collect();
    assert_eq!(event_ids, [format!("{DEAD}/operator_redrive/{}", now.as_millisecond())]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redrive_without_remaining_time_stops_after_a_batch() {
    let (_aws, _sqs, queue) = dead_letter_queue(25).await;
    let has_time = |redriven| redriven < 15;
    let bus = MemoryBus::default();
    let redriven =
        queue.redrive(&bus, Timestamp::now(), &redrive_of_at_most(100), has_time).await.unwrap();
    assert_eq!((redriven.count(), waiting_messages(&queue).await), (20, 5));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redriven_message_counts_as_redelivered_and_keeps_its_attributes() {
    let (_aws, sqs, queue) = dead_letter_queue(0).await;
    let attribute = |value: &str| {
        let attribute = MessageAttributeValue::builder().data_type("String");
        attribute.string_value(value).build().unwrap()
    };
    let request = sqs.send_message().queue_url(queue.url()).message_body("{}");
    request.message_attributes("traceparent", attribute("00-1-2-01")).send().await.unwrap();
    // A message with the maximum number of attributes is redriven without the mark.
    let full = sqs.send_message().queue_url(queue.url()).message_body("full");
    let full = (0..10)
        .fold(full, |request, n| request.message_attributes(format!("a{n}"), attribute("x")));
    full.send().await.unwrap();
    let bus = MemoryBus::default();
    let redriven =
        queue.redrive(&bus, Timestamp::now(), &redrive_of_at_most(10), |_| true).await.unwrap();
    assert_eq!((redriven.count(), redriven.problems()), (2, Vec::new()));
    let shop = sqs.get_queue_url().queue_name("shop").send().await.unwrap().queue_url.unwrap();
    let request = sqs.receive_message().queue_url(&shop).max_number_of_messages(10);
    let response =
        request.message_attribute_names("All").wait_time_seconds(1).send().await.unwrap();
    let messages = response.messages.unwrap().into_iter();
    let received = messages.map(|message| ReceivedMessage::new(record(message, &shop)));
    let mut received: Vec<_> = received.collect();
    received.sort_by(|a, b| b.body.cmp(&a.body));
    let deliveries: Vec<_> = received
        .iter()
        .map(|message| (message.body.as_str(), message.redelivered, message.first_delivery))
        .collect();
    assert_eq!(deliveries, [("{}", true, true), ("full", false, true)]);
    assert_eq!(received[0].traceparent.as_deref(), Some("00-1-2-01"));
}
