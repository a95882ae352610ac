//! The channel: messages arrive unchanged, and each send has a result for each message, in order.

use std::time::Duration;

use steward_core::limits;
use steward_runtime::ports::{Channel, OutgoingMessage, PortError, Ports, Queue};

use super::backends::{Backend, QueuedMessage};

fn message_to(queue: &Queue, body: impl Into<String>) -> OutgoingMessage {
    OutgoingMessage {
        queue: queue.clone(),
        body: body.into(),
        attributes: Vec::new(),
        tenant: None,
        delay: Duration::ZERO,
    }
}

fn agent_queue() -> Queue {
    Queue::Agent("a".parse().unwrap())
}

async fn send<P: Ports>(ports: &P, messages: Vec<OutgoingMessage>) -> Vec<Result<(), PortError>> {
    ports.channel().send(messages).await
}

fn assert_all_sent(results: &[Result<(), PortError>], count: usize) {
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    assert_eq!(results.len(), count);
}

/// Takes the messages of a queue; returns their bodies, sorted because a queue guarantees no order.
async fn take_bodies(backend: &impl Backend, queue: &Queue) -> Vec<String> {
    let mut bodies: Vec<_> =
        backend.take_messages(queue).await.into_iter().map(|message| message.body).collect();
    bodies.sort();
    bodies
}

pub(super) async fn a_message_arrives_with_its_attributes(backend: impl Backend) {
    let traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let reason = "not a submission: `ü` \u{1f4a5}";
    let attributes = vec![("traceparent", traceparent.to_owned()), ("reason", reason.to_owned())];
    let message = OutgoingMessage { attributes, ..message_to(&Queue::Rejected, "{") };
    let bare = message_to(&Queue::Rejected, "bare");
    assert_all_sent(&send(backend.ports(), vec![message, bare]).await, 2);
    let mut messages = backend.take_messages(&Queue::Rejected).await;
    messages.sort();
    let attributes = [("reason", reason), ("traceparent", traceparent)];
    let attributes = attributes.map(|(name, text)| (name.to_owned(), text.to_owned())).to_vec();
    let expected = [
        QueuedMessage { body: "bare".to_owned(), attributes: Vec::new() },
        QueuedMessage { body: "{".to_owned(), attributes },
    ];
    assert_eq!(messages, expected);
}

/// An emulator need not keep the message group id, but must accept it in a standard queue.
pub(super) async fn messages_of_tenants_arrive_and_are_not_deduplicated(backend: impl Backend) {
    let of = |tenant: Option<&str>| OutgoingMessage {
        tenant: tenant.map(|tenant| tenant.parse().unwrap()),
        ..message_to(&agent_queue(), "same")
    };
    let longest = "x".repeat(limits::TENANT_CHARS_MAX);
    let messages = [Some("acme"), Some("acme"), Some("A.b_c-9"), Some(longest.as_str()), None];
    let messages: Vec<_> = messages.into_iter().map(of).collect();
    assert_all_sent(&send(backend.ports(), messages).await, 5);
    assert_eq!(take_bodies(&backend, &agent_queue()).await, ["same"; 5]);
}

pub(super) async fn any_text_arrives_unchanged(backend: impl Backend) {
    let texts =
        ["{\"a\":\"\\u0000\\n\"}", "Ünïcödé \u{1f4e6}", " \t\r\n ", "<a href=\"&amp;\">%20+</a>"];
    let messages = texts.iter().map(|text| message_to(&agent_queue(), *text)).collect();
    assert_all_sent(&send(backend.ports(), messages).await, texts.len());
    let mut expected = texts.to_vec();
    expected.sort();
    assert_eq!(take_bodies(&backend, &agent_queue()).await, expected);
}

pub(super) async fn messages_arrive_in_the_queue_they_were_sent_to(backend: impl Backend) {
    let own = [Queue::Scheduler, Queue::Commands, Queue::Rejected];
    let queues: Vec<_> = own.into_iter().chain([agent_queue(), backend.client_queue()]).collect();
    let names = ["scheduler", "commands", "rejected", "agent", "client"];
    let mut messages = Vec::new();
    for round in 0..3 {
        messages.extend(
            queues
                .iter()
                .zip(names)
                .map(|(queue, name)| message_to(queue, format!("{name} {round}"))),
        );
    }
    assert_all_sent(&send(backend.ports(), messages).await, 15);
    for (queue, name) in queues.iter().zip(names) {
        let expected = [0, 1, 2].map(|round| format!("{name} {round}"));
        assert_eq!(take_bodies(&backend, queue).await, expected);
        assert_eq!(take_bodies(&backend, queue).await, [""; 0], "a second take finds nothing");
    }
}

pub(super) async fn more_than_ten_messages_all_arrive(backend: impl Backend) {
    for count in [1, 10, 11, 47] {
        let texts: Vec<_> = (0..count).map(|n| format!("{n:02}")).collect();
        let messages = texts.iter().map(|text| message_to(&agent_queue(), text)).collect();
        assert_all_sent(&send(backend.ports(), messages).await, count);
        assert_eq!(take_bodies(&backend, &agent_queue()).await, texts);
    }
}

pub(super) async fn large_messages_are_sent_in_batches_within_the_limits(backend: impl Backend) {
    let traceparent = vec![("traceparent", "x".repeat(1_000))];
    for (count, bytes) in [(12, 60_000), (5, 65_536), (9, 40_000), (10, 26_215)] {
        let texts: Vec<_> =
            (0..count).map(|n| format!("{n:02} {}", "x".repeat(bytes - 3))).collect();
        let message = |text| OutgoingMessage {
            attributes: traceparent.clone(),
            ..message_to(&agent_queue(), text)
        };
        let messages = texts.iter().map(message).collect();
        assert_all_sent(&send(backend.ports(), messages).await, count);
        assert!(
            take_bodies(&backend, &agent_queue()).await == texts,
            "{count} messages of {bytes} bytes"
        );
    }
}

pub(super) async fn a_message_of_the_maximum_size_is_accepted(backend: impl Backend) {
    let large = "x".repeat(limits::MESSAGE_BYTES_MAX);
    let attributes = vec![("reason", "y".repeat(limits::REASON_CHARS_MAX))];
    let message = OutgoingMessage { attributes, ..message_to(&Queue::Rejected, large.as_str()) };
    let small = message_to(&Queue::Rejected, "small");
    assert_all_sent(&send(backend.ports(), vec![small, message]).await, 2);
    assert!(take_bodies(&backend, &Queue::Rejected).await == ["small", large.as_str()]);
}

pub(super) async fn a_missing_queue_fails_only_its_own_messages(backend: impl Backend) {
    let queues = [agent_queue(), backend.missing_queue(), Queue::Scheduler];
    let messages = (0..36).map(|n| message_to(&queues[n % 3], format!("{n:02}"))).collect();
    let results = send(backend.ports(), messages).await;
    assert_eq!(results.len(), 36);
    for (n, result) in results.iter().enumerate() {
        match result {
            Ok(()) => assert_ne!(n % 3, 1, "message {n} was sent to a missing queue"),
            Err(error) => {
                assert_eq!(n % 3, 1, "message {n}: {error:?}");
                assert!(!error.retryable, "a missing queue is a permanent error");
                assert!(error.is_no_such_queue(), "{error:?}");
                assert!(error.operation.starts_with("send to "), "{error:?}");
            }
        }
    }
    let expected = |rest| (0..36).filter(move |n| n % 3 == rest).map(|n| format!("{n:02}"));
    assert_eq!(take_bodies(&backend, &agent_queue()).await, expected(0).collect::<Vec<_>>());
    assert_eq!(take_bodies(&backend, &Queue::Scheduler).await, expected(2).collect::<Vec<_>>());
}

pub(super) async fn results_are_in_the_order_of_the_messages(backend: impl Backend) {
    // One failing message at each position of three batches.
    for failing in 0..25 {
        let queue = |n| {
            if n == failing { backend.missing_queue() } else { agent_queue() }
        };
        let messages = (0..25).map(|n| message_to(&queue(n), "x")).collect();
        let failed =
            send(backend.ports(), messages).await.into_iter().map(|result| result.is_err());
        assert_eq!(failed.collect::<Vec<_>>(), (0..25).map(|n| n == failing).collect::<Vec<_>>());
    }
}

pub(super) async fn sending_nothing_succeeds(backend: impl Backend) {
    assert_all_sent(&send(backend.ports(), Vec::new()).await, 0);
}
