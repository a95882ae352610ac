//! The embedded queues as the other parts of the embedded AWS use them.

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use aws_lambda_events::sqs::{SqsMessage, SqsMessageAttribute};

use super::{
    attributes::arn,
    error::SqsError,
    journal::JournalError,
    message::QueueMessage,
    receipt::ReceiptHandle,
    store::{QueueStore, ReceiveOptions, ReceiveOutcome},
    time::{Micros, QueueClock, SECOND},
};
use crate::embedded::account::ACCOUNT;

/// The most messages in one request: SQS's limit.
pub(super) const BATCH_MAX: usize = 10;

/// How long Lambda's poller waits for messages.
const POLL_WAIT: Micros = 20 * SECOND;

/// The embedded queues.
pub(in crate::embedded) struct SqsQueues {
    store: Mutex<QueueStore>,
    pub(super) clock: QueueClock,
    /// The URL of a queue without its name.
    pub(super) base_url: String,
}

impl SqsQueues {
    /// Creates a service without queues, in memory. URLs of queues contain `host` and `port`.
    pub(in crate::embedded) fn in_memory(host: &str, port: u16) -> Self {
        Self::new(QueueStore::in_memory(), host, port)
    }

    /// Opens the queues in `dir`, which this process has locked.
    pub(in crate::embedded) fn on_disk(
        dir: &Path,
        host: &str,
        port: u16,
    ) -> Result<Self, JournalError> {
        Ok(Self::new(QueueStore::on_disk(dir)?, host, port))
    }

    fn new(store: QueueStore, host: &str, port: u16) -> Self {
        let base_url = format!("http://{host}:{port}/{ACCOUNT}/");
        Self { store: Mutex::new(store), clock: QueueClock::start(), base_url }
    }

    /// Duplicates each message with probability `rate` from now on.
    pub(in crate::embedded) fn duplicate_messages(&self, rate: f64, seed: u64) {
        self.store().duplicate_messages(rate, seed);
    }

    /// Receives up to ten messages and waits for the first, as Lambda's poller does.
    pub(in crate::embedded) async fn poll(
        &self,
        queue_url: &str,
    ) -> Result<Vec<SqsMessage>, String> {
        let queue = name_of(queue_url).to_owned();
        let receive =
            ReceiveOptions { queue, max: BATCH_MAX, visibility: None, wait: Some(POLL_WAIT) };
        let received = self.receive(&receive).await.map_err(|error| error.message)?;
        Ok(received.into_iter().map(|message| event_record(&receive.queue, message)).collect())
    }

    /// Deletes received messages by their receipt handles.
    pub(in crate::embedded) fn delete(
        &self,
        queue_url: &str,
        handles: &[String],
    ) -> Result<(), String> {
        let queue = name_of(queue_url);
        let delete = || {
            let receipts = handles.iter().map(|handle| ReceiptHandle::read(queue, handle));
            let receipts: Vec<_> = receipts.collect::<Result<_, _>>()?;
            let mut store = self.store();
            let records = store.state.delete(queue, &receipts)?;
            store.commit(records)
        };
        delete().map_err(|error: SqsError| error.message)
    }

    /// Makes messages visible that were received and not deleted.
    pub(in crate::embedded) fn release_messages(&self, queue_url: &str) -> Result<(), String> {
        let release = || {
            let mut store = self.store();
            let record = store.state.release_messages(name_of(queue_url), self.clock.now())?;
            store.commit(vec![record])
        };
        release().map_err(|error: SqsError| error.message)
    }

    /// Receives messages, or waits for them.
    pub(super) async fn receive(
        &self,
        receive: &ReceiveOptions,
    ) -> Result<Vec<QueueMessage>, SqsError> {
        let changed = self.store().state.queue(&receive.queue)?.changed();
        let mut until = None;
        loop {
            // From here on, the notification covers every change.
            let change = changed.notified();
            let received = self.store().receive(receive, self.clock.now(), &mut until)?;
            match received {
                ReceiveOutcome::Received(messages) => return Ok(messages),
                ReceiveOutcome::Wait(at) => tokio::select! {
                    () = change => {}
                    () = tokio::time::sleep_until(self.clock.instant(at)) => {}
                },
            }
        }
    }

    pub(super) fn store(&self) -> MutexGuard<'_, QueueStore> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The name in a queue's URL.
pub(super) fn name_of(queue_url: &str) -> &str {
    queue_url.rsplit('/').next().unwrap_or(queue_url)
}

/// Converts a message to the form in Lambda's event.
fn event_record(queue: &str, message: QueueMessage) -> SqsMessage {
    let mut record = SqsMessage::default();
    record.receipt_handle = Some(ReceiptHandle::handle(queue, &message));
    record.event_source_arn = Some(arn(queue));
    record.attributes = message.system_attributes().collect();
    record.message_id = Some(message.id);
    record.body = Some(message.body);
    let attributes = message.attributes.into_iter().map(|(name, value)| {
        let mut attribute = SqsMessageAttribute::default();
        attribute.string_value = value.string_value;
        attribute.data_type = Some(value.data_type);
        (name, attribute)
    });
    record.message_attributes = attributes.collect();
    record.event_source = Some("aws:sqs".to_owned());
    record
}
