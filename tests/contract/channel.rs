//! The channel: every message is answered for in its place, and arrives as it was sent.

use std::time::Duration;

use steward_core::limits;
use steward_runtime::ports::{Channel, Outgoing, PortError, Ports, Queue};

use super::worlds::{Sent, World};

fn to(queue: &Queue, body: impl Into<String>) -> Outgoing {
    Outgoing {
        queue: queue.clone(),
        body: body.into(),
        attributes: Vec::new(),
        delay: Duration::ZERO,
    }
}

fn agent() -> Queue {
    Queue::Agent("a".parse().unwrap())
}

async fn send<P: Ports>(ports: &P, messages: Vec<Outgoing>) -> Vec<Result<(), PortError>> {
    ports.channel().send(messages).await
}

fn assert_all_sent(answers: &[Result<(), PortError>], count: usize) {
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    assert_eq!(answers.len(), count);
}

/// The bodies in a queue, sorted: queues promise no order.
async fn bodies(world: &impl World, queue: &Queue) -> Vec<String> {
    let mut bodies: Vec<_> = world.sent(queue).await.into_iter().map(|sent| sent.body).collect();
    bodies.sort();
    bodies
}

pub(super) async fn a_message_arrives_with_its_attributes(world: impl World) {
    let traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let reason = "not a submission: `ü` \u{1f4a5}";
    let attributes = vec![("traceparent", traceparent.to_owned()), ("reason", reason.to_owned())];
    let message = Outgoing { attributes, ..to(&Queue::Rejected, "{") };
    let bare = to(&Queue::Rejected, "bare");
    assert_all_sent(&send(world.ports(), vec![message, bare]).await, 2);
    let mut sent = world.sent(&Queue::Rejected).await;
    sent.sort();
    let attributes = [("reason", reason), ("traceparent", traceparent)];
    let attributes = attributes.map(|(name, text)| (name.to_owned(), text.to_owned())).to_vec();
    let expected = [
        Sent { body: "bare".to_owned(), attributes: Vec::new() },
        Sent { body: "{".to_owned(), attributes },
    ];
    assert_eq!(sent, expected);
}

pub(super) async fn any_text_arrives_unchanged(world: impl World) {
    let texts =
        ["{\"a\":\"\\u0000\\n\"}", "Ünïcödé \u{1f4e6}", " \t\r\n ", "<a href=\"&amp;\">%20+</a>"];
    let messages = texts.iter().map(|text| to(&agent(), *text)).collect();
    assert_all_sent(&send(world.ports(), messages).await, texts.len());
    let mut expected = texts.to_vec();
    expected.sort();
    assert_eq!(bodies(&world, &agent()).await, expected);
}

pub(super) async fn messages_arrive_in_the_queue_they_were_sent_to(world: impl World) {
    let queues = [Queue::Scheduler, Queue::Rejected, agent(), world.client_queue()];
    let names = ["scheduler", "rejected", "agent", "client"];
    let mut messages = Vec::new();
    for round in 0..3 {
        messages.extend(
            queues.iter().zip(names).map(|(queue, name)| to(queue, format!("{name} {round}"))),
        );
    }
    assert_all_sent(&send(world.ports(), messages).await, 12);
    for (queue, name) in queues.iter().zip(names) {
        let expected = [0, 1, 2].map(|round| format!("{name} {round}"));
        assert_eq!(bodies(&world, queue).await, expected);
        assert_eq!(bodies(&world, queue).await, [""; 0], "taken once");
    }
}

pub(super) async fn more_than_ten_messages_all_arrive(world: impl World) {
    for count in [1, 10, 11, 47] {
        let texts: Vec<_> = (0..count).map(|n| format!("{n:02}")).collect();
        let messages = texts.iter().map(|text| to(&agent(), text)).collect();
        assert_all_sent(&send(world.ports(), messages).await, count);
        assert_eq!(bodies(&world, &agent()).await, texts);
    }
}

pub(super) async fn large_messages_are_sent_in_batches_within_the_limits(world: impl World) {
    let traceparent = vec![("traceparent", "x".repeat(1_000))];
    for (count, bytes) in [(12, 60_000), (5, 65_536), (9, 40_000), (10, 26_215)] {
        let texts: Vec<_> =
            (0..count).map(|n| format!("{n:02} {}", "x".repeat(bytes - 3))).collect();
        let message = |text| Outgoing { attributes: traceparent.clone(), ..to(&agent(), text) };
        let messages = texts.iter().map(message).collect();
        assert_all_sent(&send(world.ports(), messages).await, count);
        assert!(bodies(&world, &agent()).await == texts, "{count} messages of {bytes} bytes");
    }
}

pub(super) async fn a_message_of_the_maximum_size_is_accepted(world: impl World) {
    let large = "x".repeat(limits::MESSAGE_BYTES_MAX);
    let attributes = vec![("reason", "y".repeat(limits::REASON_CHARS_MAX))];
    let message = Outgoing { attributes, ..to(&Queue::Rejected, large.as_str()) };
    let small = to(&Queue::Rejected, "small");
    assert_all_sent(&send(world.ports(), vec![small, message]).await, 2);
    assert!(bodies(&world, &Queue::Rejected).await == ["small", large.as_str()]);
}

pub(super) async fn a_missing_queue_fails_only_its_own_messages(world: impl World) {
    let queues = [agent(), world.missing_queue(), Queue::Scheduler];
    let messages = (0..36).map(|n| to(&queues[n % 3], format!("{n:02}"))).collect();
    let answers = send(world.ports(), messages).await;
    assert_eq!(answers.len(), 36);
    for (n, answer) in answers.iter().enumerate() {
        match answer {
            Ok(()) => assert_ne!(n % 3, 1, "message {n} went nowhere"),
            Err(error) => {
                assert_eq!(n % 3, 1, "message {n}: {error:?}");
                assert!(!error.retryable, "the queue will not come by itself");
                assert!(error.is_no_such_queue(), "{error:?}");
                assert!(error.operation.starts_with("send to "), "{error:?}");
            }
        }
    }
    let expected = |rest| (0..36).filter(move |n| n % 3 == rest).map(|n| format!("{n:02}"));
    assert_eq!(bodies(&world, &agent()).await, expected(0).collect::<Vec<_>>());
    assert_eq!(bodies(&world, &Queue::Scheduler).await, expected(2).collect::<Vec<_>>());
}

pub(super) async fn results_are_in_the_order_of_the_messages(world: impl World) {
    // One that fails at every place of three batches, in turn.
    for place in 0..25 {
        let queue = |n| {
            if n == place { world.missing_queue() } else { agent() }
        };
        let messages = (0..25).map(|n| to(&queue(n), "x")).collect();
        let failed = send(world.ports(), messages).await.into_iter().map(|answer| answer.is_err());
        assert_eq!(failed.collect::<Vec<_>>(), (0..25).map(|n| n == place).collect::<Vec<_>>());
    }
}

pub(super) async fn sending_nothing_succeeds(world: impl World) {
    assert_all_sent(&send(world.ports(), Vec::new()).await, 0);
}
