//! What Lambda does between a queue and a function: long polls, batches, concurrency, partial
//! failures. What a handler reports failed, or loses in a panic, is left alone: it becomes visible
//! again after the queue's visibility timeout, and a dead letter after too many receives.

use std::{future::Future, sync::Arc};

use aws_lambda_events::sqs::{SqsBatchResponse, SqsEvent, SqsMessage, SqsMessageAttribute};
use aws_sdk_sqs::{
    Client,
    types::{DeleteMessageBatchRequestEntry, Message, MessageSystemAttributeName},
};
use tokio::task::JoinSet;

/// Messages in a batch.
const BATCH_SIZE: i32 = 10;

/// How long a poll waits for messages, in seconds.
const POLL_SECONDS: i32 = 20;

/// A queue and how many batches of it may be in hand at once.
#[derive(Debug, Clone)]
pub struct EventSource {
    /// The queue.
    pub queue_url: String,
    /// Batches in hand at once (Lambda's maximum concurrency).
    pub concurrency: usize,
}

impl EventSource {
    /// Polls the queue for `handler` until the `JoinSet` is dropped.
    pub fn spawn<H, F>(self, client: &Client, handler: H, tasks: &mut JoinSet<()>)
    where
        H: Fn(SqsEvent) -> F + Send + Sync + 'static,
        F: Future<Output = SqsBatchResponse> + Send + 'static,
    {
        let handler = Arc::new(handler);
        for _ in 0..self.concurrency {
            let (client, queue, handler) =
                (client.clone(), self.queue_url.clone(), handler.clone());
            tasks.spawn(async move {
                loop {
                    poll(&client, &queue, POLL_SECONDS, &*handler).await;
                }
            });
        }
    }
}

/// One poll: receives up to ten messages, waiting for the first at most `wait_seconds`; invokes the
/// handler; deletes what it did. Returns how many were received.
pub async fn poll<H, F>(client: &Client, queue: &str, wait_seconds: i32, handler: &H) -> usize
where
    H: Fn(SqsEvent) -> F,
    F: Future<Output = SqsBatchResponse> + Send + 'static,
{
    let request = client
        .receive_message()
        .queue_url(queue)
        .max_number_of_messages(BATCH_SIZE)
        .wait_time_seconds(wait_seconds)
        .message_system_attribute_names(MessageSystemAttributeName::All)
        .message_attribute_names("All");
    let messages = match request.send().await {
        Ok(answer) => answer.messages.unwrap_or_default(),
        Err(error) => {
            tracing::warn!(queue, error = %aws_sdk_sqs::error::DisplayErrorContext(&error), "poll failed");
            tokio::time::sleep(std::time::Duration::from_secs(1)).await;
            return 0;
        }
    };
    let received = messages.len();
    if received == 0 {
        return 0;
    }
    let receipts: Vec<_> =
        messages.iter().map(|m| (m.message_id.clone(), m.receipt_handle.clone())).collect();
    let mut event = SqsEvent::default();
    event.records = messages.into_iter().map(record).collect();
    // A task of its own, as an invocation is: a panic loses this batch's answer and nothing else. In
    // a set, so that it does not outlive the poller: a crash takes it along.
    let mut invocation = JoinSet::new();
    invocation.spawn(handler(event));
    let Some(Ok(response)) = invocation.join_next().await else { return received };
    let failed = |id: &Option<String>| {
        let failures = &response.batch_item_failures;
        failures.iter().any(|failure| Some(&failure.item_identifier) == id.as_ref())
    };
    let done = receipts.into_iter().filter(|(id, _)| !failed(id)).map(|(_, receipt)| receipt);
    delete(client, queue, done.flatten()).await;
    received
}

async fn delete(client: &Client, queue: &str, receipts: impl Iterator<Item = String>) {
    let entries: Vec<_> = receipts
        .enumerate()
        .filter_map(|(n, receipt)| {
            let entry =
                DeleteMessageBatchRequestEntry::builder().id(n.to_string()).receipt_handle(receipt);
            entry.build().ok()
        })
        .collect();
    if entries.is_empty() {
        return;
    }
    let request = client.delete_message_batch().queue_url(queue).set_entries(Some(entries));
    if let Err(error) = request.send().await {
        tracing::warn!(queue, %error, "messages done, but not deleted; they will come again");
    }
}

/// A message as Lambda's event carries it.
fn record(message: Message) -> SqsMessage {
    let mut record = SqsMessage::default();
    record.message_id = message.message_id;
    record.receipt_handle = message.receipt_handle;
    record.body = message.body;
    let attributes = message.attributes.unwrap_or_default().into_iter();
    record.attributes = attributes.map(|(name, value)| (name.as_str().to_owned(), value)).collect();
    let attributes = message.message_attributes.unwrap_or_default().into_iter();
    record.message_attributes = attributes
        .map(|(name, value)| {
            let mut attribute = SqsMessageAttribute::default();
            attribute.string_value = value.string_value;
            attribute.data_type = Some(value.data_type);
            (name, attribute)
        })
        .collect();
    record.event_source = Some("aws:sqs".to_owned());
    record
}
