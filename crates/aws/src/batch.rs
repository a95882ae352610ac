//! Batches of SQS messages in the format of Lambda, with partial batch responses: SQS redelivers only the messages that
//! are not done ([`progress`]).

use aws_lambda_events::sqs::{SqsEvent, SqsMessage};
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use steward_core::{
    engine::effect::Effect,
    limits,
    model::{
        events::{BusEvent, EventData},
        integers::check_integers,
        messages::mistake,
        names::Tenant,
    },
};
use steward_runtime::{
    dispatch::{AUTHENTICATED_ATTRIBUTE, OutgoingEffect, send_effects},
    drive::DriveError,
    ports::{Clock, Ports, error_chain},
};

pub mod progress;

pub use progress::{Batch, BatchProgress};

/// The message attribute that `redrive` sets. The queue counts a redriven message as new, but it was delivered before,
/// and the effects of that delivery may have been lost.
pub const REDRIVEN_ATTRIBUTE: &str = "redriven";

/// A received message with the data of its envelope.
#[derive(Debug, Clone, PartialEq)]
pub struct ReceivedMessage {
    /// The message id of the queue. The batch response refers to it.
    pub message_id: String,
    /// The body.
    pub body: String,
    /// Whether the message may have been handled before: the queue delivered it before, or an operator redrove it from
    /// the dead-letter queue.
    pub redelivered: bool,
    /// Whether it may have been handled more than once before.
    pub redelivered_again: bool,
    /// Whether the queue delivers the message for the first time.
    pub first_delivery: bool,
    /// The W3C `traceparent`.
    pub traceparent: Option<String>,
    /// The time at which the message was sent.
    pub sent_at: Option<Timestamp>,
    /// The time at which a receiver first got it.
    pub first_received_at: Option<Timestamp>,
    /// The name of the queue that delivered the message.
    pub queue: Option<String>,
    /// Who sent the message, as SQS reports it.
    pub sender_id: Option<String>,
    /// Whether an operator sent it back from the dead-letter queue.
    pub redriven: bool,
    /// Whether the sender states that it authenticated the operator: see [`AUTHENTICATED_ATTRIBUTE`].
    pub authenticated: bool,
    /// The message group id, if it is the name of a tenant.
    pub tenant: Option<Tenant>,
}

/// A message that can never be handled. Its queue will move it to the dead-letter queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CorruptMessage {
    /// The message id of the queue.
    pub message_id: String,
    /// Whether the queue delivers the message for the first time.
    pub first_delivery: bool,
    /// The reason. It never contains the payload.
    pub reason: String,
}

impl ReceivedMessage {
    /// Reads one record of a Lambda event.
    #[must_use]
    pub fn new(message: SqsMessage) -> Self {
        let receives = receives(&message);
        let traceparent = message.message_attributes.get("traceparent");
        let time = |name: &str| {
            let millis = message.attributes.get(name).and_then(|millis| millis.parse().ok());
            millis.and_then(|millis| Timestamp::from_millisecond(millis).ok())
        };
        let (sent_at, first_received_at) =
            (time("SentTimestamp"), time("ApproximateFirstReceiveTimestamp"));
        let redriven = message.message_attributes.contains_key(REDRIVEN_ATTRIBUTE);
        let group = message.attributes.get("MessageGroupId");
        Self {
            queue: queue_of(&message).map(str::to_owned),
            tenant: group.and_then(|group| group.parse().ok()),
            sender_id: message.attributes.get("SenderId").cloned(),
            redriven,
            authenticated: message.message_attributes.contains_key(AUTHENTICATED_ATTRIBUTE),
            message_id: message.message_id.unwrap_or_default(),
            body: message.body.unwrap_or_default(),
            redelivered: receives > 1 || redriven,
            redelivered_again: receives > 2 || redriven,
            first_delivery: receives <= 1,
            traceparent: traceparent.and_then(|attribute| attribute.string_value.clone()),
            sent_at,
            first_received_at,
        }
    }

    /// Parses the body as JSON.
    ///
    /// # Errors
    /// The body is invalid, or contains an integer that would lose digits. The reason contains the position.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, CorruptMessage> {
        check_integers(&self.body).map_err(|error| self.corrupt(error.to_string()))?;
        serde_json::from_str(&self.body).map_err(|error| self.corrupt(mistake(&error)))
    }

    /// Marks this message as corrupt, with a reason.
    #[must_use]
    pub fn corrupt(&self, reason: String) -> CorruptMessage {
        let (message_id, first_delivery) = (self.message_id.clone(), self.first_delivery);
        CorruptMessage { message_id, first_delivery, reason }
    }
}

/// The name of the queue that delivered a message, by the ARN that Lambda's poller states.
#[must_use]
pub fn queue_of(message: &SqsMessage) -> Option<&str> {
    message.event_source_arn.as_deref()?.rsplit(':').next()
}

/// The number of times that the queue has delivered a message, including this delivery.
pub(crate) fn receives(message: &SqsMessage) -> u32 {
    let receives = message.attributes.get("ApproximateReceiveCount");
    receives.and_then(|count| count.parse().ok()).unwrap_or(1)
}

/// The messages of an event.
pub fn received_messages(event: SqsEvent) -> impl Iterator<Item = ReceivedMessage> {
    event.records.into_iter().map(ReceivedMessage::new)
}

/// Logs an error of the drive loop. Returns the message as corrupt if a redelivery cannot succeed.
#[must_use]
pub fn judge(received: &ReceivedMessage, error: &DriveError) -> Option<CorruptMessage> {
    let (message_id, redelivered) = (&received.message_id, received.redelivered);
    tracing::warn!(message_id, redelivered, error = error_chain(error), "message failed");
    (!error.is_retryable()).then(|| received.corrupt(error_chain(error)))
}

/// Publishes an alert for each corrupt message, at its first delivery only: the queue redelivers the message until it
/// becomes a dead letter.
pub async fn alert_corrupt<P: Ports>(ports: &P, role: &str, corrupt: &[CorruptMessage]) {
    let at: Timestamp = ports.clock().now();
    let alerts = corrupt.iter().filter(|message| message.first_delivery).map(|message| {
        let CorruptMessage { message_id, reason, .. } = message;
        tracing::error!(message_id, reason, "corrupt message");
        let data = EventData::MessageCorrupt {
            role: role.to_owned(),
            message_id: message_id.clone(),
            reason: limits::short_line(reason, limits::REASON_CHARS_MAX),
        };
        let effect = Effect::Publish(BusEvent::new(message_id, at, data));
        OutgoingEffect { effect, traceparent: None, tenant: None }
    });
    for error in send_effects(ports, alerts.collect()).await.into_iter().filter_map(Result::err) {
        tracing::warn!(
            error = error_chain(&error),
            "cannot publish the alert for a corrupt message, which will become a dead letter"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_envelope_contains_redelivery_and_trace() {
        let event: SqsEvent = serde_json::from_value(serde_json::json!({ "Records": [{
            "messageId": "m-1", "body": "{}", "attributes": { "ApproximateReceiveCount": "2", "SentTimestamp": "1500" },
            "messageAttributes": { "traceparent": {
                "stringValue": "00-1-2-01", "dataType": "String",
                "stringListValues": [], "binaryListValues": [],
            } },
        }] }))
        .unwrap();
        let messages: Vec<_> = received_messages(event).collect();
        assert!(messages[0].redelivered);
        assert_eq!(messages[0].sent_at.map(|at| at.as_millisecond()), Some(1_500));
        assert_eq!(messages[0].traceparent.as_deref(), Some("00-1-2-01"));
    }

    #[test]
    fn a_message_from_the_dead_letters_counts_as_redelivered_and_is_alerted_once_more() {
        let attribute = |value: &str| {
            serde_json::json!({
                "stringValue": value, "dataType": "String",
                "stringListValues": [], "binaryListValues": [],
            })
        };
        let record = |receives: &str| {
            serde_json::json!({
                "messageId": "m-1", "body": "{", "attributes": { "ApproximateReceiveCount": receives },
                "messageAttributes": { "redriven": attribute("true") },
            })
        };
        let event = serde_json::json!({ "Records": [record("1"), record("2")] });
        let messages: Vec<_> = received_messages(serde_json::from_value(event).unwrap()).collect();
        assert!(messages.iter().all(|message| message.redelivered), "{messages:?}");
        let first: Vec<_> = messages.iter().map(|message| message.first_delivery).collect();
        assert_eq!(first, [true, false]);
        assert!(messages[0].corrupt("no JSON".to_owned()).first_delivery);
    }

    #[test]
    fn a_message_with_an_integer_that_would_lose_digits_is_corrupt() {
        let text = r#"{"type":"callback","token":"o-1/ask/i1","answer":"completed","output":18446744073709551616}"#;
        let event = serde_json::json!({ "Records": [{ "messageId": "m-1", "body": text }] });
        let messages: Vec<_> = received_messages(serde_json::from_value(event).unwrap()).collect();
        let corrupt =
            messages[0].parse::<steward_core::model::messages::SchedulerMessage>().unwrap_err();
        assert_eq!(
            corrupt.reason,
            "an integer of more than 64 bits at line 1 column 71: it would lose digits; send it as a string"
        );
    }
}
