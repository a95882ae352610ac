//! Messages of SQS as Lambda passes them to a function.

use aws_lambda_events::sqs::{SqsEvent, SqsMessage, SqsMessageAttribute};
use steward_runtime::ports::OutgoingMessage;

/// An event of messages with the ids `m-0`, `m-1` and so on, each of which was delivered so many times.
#[must_use]
pub fn sqs_event(bodies: impl IntoIterator<Item = String>, receives: u32) -> SqsEvent {
    let record = |(n, body)| sqs_record(format!("m-{n}"), body, receives);
    event_of(bodies.into_iter().enumerate().map(record))
}

/// An event of these messages.
#[must_use]
pub fn event_of(records: impl IntoIterator<Item = SqsMessage>) -> SqsEvent {
    let mut event = SqsEvent::default();
    event.records = records.into_iter().collect();
    event
}

/// A message that a function sent, with its attributes.
#[must_use]
pub fn sent_record(id: String, message: &OutgoingMessage, receives: u32) -> SqsMessage {
    let attribute = |(name, value): &(&'static str, String)| {
        let mut attribute = SqsMessageAttribute::default();
        attribute.string_value = Some(value.clone());
        attribute.data_type = Some("String".to_owned());
        ((*name).to_owned(), attribute)
    };
    let mut record = sqs_record(id, message.body.clone(), receives);
    record.message_attributes = message.attributes.iter().map(attribute).collect();
    record
}

fn sqs_record(id: String, body: String, receives: u32) -> SqsMessage {
    let mut record = SqsMessage::default();
    record.message_id = Some(id);
    record.body = Some(body);
    let receives = ("ApproximateReceiveCount".to_owned(), receives.to_string());
    record.attributes = std::iter::once(receives).collect();
    record
}
