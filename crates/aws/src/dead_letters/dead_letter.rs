//! A message in a dead-letter queue.

use aws_sdk_sqs::types::{Message, MessageAttributeValue, MessageSystemAttributeName};
use jiff::Timestamp;

/// A message in a dead-letter queue.
#[derive(Debug, Clone)]
pub struct DeadLetter {
    pub(super) message: Message,
    pub(super) source: Option<String>,
}

impl DeadLetter {
    /// The message id.
    #[must_use]
    pub fn message_id(&self) -> &str {
        self.message.message_id().unwrap_or("-")
    }

    /// The name of the source queue, if it is known.
    #[must_use]
    pub fn source(&self) -> Option<&str> {
        self.source.as_deref()
    }

    /// When it was sent.
    #[must_use]
    pub fn sent_at(&self) -> Option<Timestamp> {
        self.time(&MessageSystemAttributeName::SentTimestamp)
    }

    /// When it was first received.
    #[must_use]
    pub fn first_received_at(&self) -> Option<Timestamp> {
        self.time(&MessageSystemAttributeName::ApproximateFirstReceiveTimestamp)
    }

    /// The number of receives, including those by [`DeadLetterQueue::peek`](super::DeadLetterQueue::peek).
    #[must_use]
    pub fn receives(&self) -> Option<u64> {
        self.system(&MessageSystemAttributeName::ApproximateReceiveCount)?.parse().ok()
    }

    /// The message attributes.
    pub fn attributes(&self) -> impl Iterator<Item = (&str, &str)> {
        let attributes = self.message.message_attributes.iter().flatten();
        attributes.map(|(name, value)| (name.as_str(), text(value)))
    }

    /// The body. It may contain data of customers.
    #[must_use]
    pub fn body(&self) -> &str {
        self.message.body().unwrap_or_default()
    }

    /// The message group id, such as the tenant of the task.
    pub(super) fn group(&self) -> Option<String> {
        self.system(&MessageSystemAttributeName::MessageGroupId).map(str::to_owned)
    }

    /// The receipt handle of the newest receive.
    pub(super) fn receipt(&self) -> &str {
        self.message.receipt_handle().unwrap_or_default()
    }

    fn system(&self, name: &MessageSystemAttributeName) -> Option<&str> {
        self.message.attributes.as_ref()?.get(name).map(String::as_str)
    }

    fn time(&self, name: &MessageSystemAttributeName) -> Option<Timestamp> {
        Timestamp::from_millisecond(self.system(name)?.parse().ok()?).ok()
    }
}

fn text(value: &MessageAttributeValue) -> &str {
    value.string_value().unwrap_or("(binary)")
}
