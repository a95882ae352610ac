//! The work of Lambda's poller: receives batches of a queue in the format of Lambda's events, and deletes messages.

use aws_lambda_events::sqs::{SqsMessage, SqsMessageAttribute};
use aws_sdk_sqs::{
    Client,
    config::{Config, timeout::TimeoutConfig},
    types::{DeleteMessageBatchRequestEntry, Message, MessageSystemAttributeName},
};
use steward_runtime::ports::PortError;

use crate::errors::{corrupt, failed};

/// How long a poll waits for a message, in seconds: SQS's limit.
const POLL_SECONDS: i32 = 20;

/// The most messages in one poll: SQS's limit.
const MESSAGES_MAX: i32 = 10;

/// Receives up to ten messages of a queue, and waits twenty seconds for the first.
///
/// # Errors
/// SQS failed.
pub async fn receive(sqs: &Client, queue_url: &str) -> Result<Vec<SqsMessage>, PortError> {
    let request = sqs
        .receive_message()
        .queue_url(queue_url)
        .max_number_of_messages(MESSAGES_MAX)
        .wait_time_seconds(POLL_SECONDS)
        .message_system_attribute_names(MessageSystemAttributeName::All)
        .message_attribute_names("All");
    // The time limits of a function's requests are shorter than a poll.
    let no_limits = Config::builder().timeout_config(TimeoutConfig::disabled());
    let response = request.customize().config_override(no_limits).send().await;
    let response = response.map_err(failed(format!("receive from {queue_url}")))?;
    let messages = response.messages.unwrap_or_default().into_iter();
    Ok(messages.map(|message| record(message, queue_url)).collect())
}

/// Deletes received messages, at most ten, by their receipt handles.
///
/// # Errors
/// SQS failed, or could not delete one of them.
pub async fn delete(sqs: &Client, queue_url: &str, receipts: Vec<String>) -> Result<(), PortError> {
    let operation = || format!("delete from {queue_url}");
    let entry = |(n, receipt): (usize, String)| {
        DeleteMessageBatchRequestEntry::builder().id(n.to_string()).receipt_handle(receipt).build()
    };
    let entries: Result<Vec<_>, _> = receipts.into_iter().enumerate().map(entry).collect();
    let entries = entries.map_err(|error| corrupt(operation())(error.into()))?;
    if entries.is_empty() {
        return Ok(());
    }
    let request = sqs.delete_message_batch().queue_url(queue_url).set_entries(Some(entries));
    let response = request.send().await.map_err(failed(operation()))?;
    match response.failed().first() {
        Some(refused) => {
            let source = refused.message().unwrap_or(refused.code()).to_owned().into();
            Err(PortError { operation: operation(), retryable: true, source })
        }
        None => Ok(()),
    }
}

/// The ARN of the queue in an emulator's URL. Its region is not in the URL, and nothing depends on it.
fn queue_arn(queue_url: &str) -> String {
    let mut segments = queue_url.rsplit('/');
    let (name, account) = (segments.next(), segments.next());
    format!("arn:aws:sqs:us-east-1:{}:{}", account.unwrap_or_default(), name.unwrap_or_default())
}

/// Converts a message of a queue to the form in Lambda's event.
#[must_use]
pub fn record(message: Message, queue_url: &str) -> SqsMessage {
    let mut record = SqsMessage::default();
    record.event_source_arn = Some(queue_arn(queue_url));
    record.message_id = message.message_id;
    record.receipt_handle = message.receipt_handle;
    record.body = message.body;
    let attributes = message.attributes.unwrap_or_default().into_iter();
    record.attributes = attributes.map(|(name, value)| (name.as_str().to_owned(), value)).collect();
    let attributes = message.message_attributes.unwrap_or_default().into_iter();
    let attributes = attributes.map(|(name, value)| {
        let mut attribute = SqsMessageAttribute::default();
        attribute.string_value = value.string_value;
        attribute.data_type = Some(value.data_type);
        (name, attribute)
    });
    record.message_attributes = attributes.collect();
    record.event_source = Some("aws:sqs".to_owned());
    record
}
