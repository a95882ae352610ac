//! SQS in the process: standard queues in memory, with a journal on disk if there is a data directory. A change is
//! written to the journal before the response is sent, so a killed process loses no message (`docs/adr/0022`).
//!
//! ```text
//! operations: parse, check ──► state: decide records ──► journal: write ──► state: apply ──► response
//! ```

mod attributes;
mod error;
mod journal;
mod message;
mod operations;
mod receipt;
mod state;
#[cfg(test)]
mod tests;
mod time;

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use aws_lambda_events::sqs::{SqsMessage, SqsMessageAttribute};

use super::ACCOUNT;
use super::response::ServiceResponse;
use error::SqsError;
pub use journal::JournalError;
use journal::QueueJournal;
use message::QueueMessage;
use receipt::ReceiptHandle;
use state::{JournalRecord, QueuesState};
use time::{Micros, QueueClock, SECOND};

/// The most messages in one request: SQS's limit.
const BATCH_MAX: usize = 10;

/// How long Lambda's poller waits for messages.
const POLL_WAIT: Micros = 20 * SECOND;

/// The embedded queues.
pub(super) struct SqsQueues {
    store: Mutex<QueueStore>,
    clock: QueueClock,
    /// The URL of a queue without its name.
    base_url: String,
}

/// The state of the queues, and the journal that stores it.
struct QueueStore {
    state: QueuesState,
    /// `None` in memory.
    journal: Option<QueueJournal>,
    /// `None` unless messages are to be duplicated.
    duplicator: Option<Duplicator>,
}

/// Decides at random which messages are duplicated.
struct Duplicator {
    rate: f64,
    random: fastrand::Rng,
}

/// A valid request to receive messages.
struct ReceiveOptions {
    queue: String,
    max: usize,
    /// How long the messages stay hidden. The default is the queue's visibility timeout.
    visibility: Option<Micros>,
    /// How long to wait for a message. The default is the queue's wait time.
    wait: Option<Micros>,
}

/// The result of one look at a queue.
enum ReceiveOutcome {
    Received(Vec<QueueMessage>),
    /// No messages yet: look again when the queue changes, or at this time.
    Wait(Micros),
}

impl SqsQueues {
    /// Creates a service without queues, in memory. URLs of queues contain `host` and `port`.
    pub(super) fn in_memory(host: &str, port: u16) -> Self {
        Self::new(
            QueueStore { state: QueuesState::default(), journal: None, duplicator: None },
            host,
            port,
        )
    }

    /// Opens the queues in `dir`, which this process has locked.
    pub(super) fn on_disk(dir: &Path, host: &str, port: u16) -> Result<Self, JournalError> {
        let mut state = QueuesState::default();
        let journal = Some(QueueJournal::open(dir, &mut state)?);
        Ok(Self::new(QueueStore { state, journal, duplicator: None }, host, port))
    }

    fn new(store: QueueStore, host: &str, port: u16) -> Self {
        let base_url = format!("http://{host}:{port}/{ACCOUNT}/");
        Self { store: Mutex::new(store), clock: QueueClock::start(), base_url }
    }

    /// Duplicates each message with probability `rate` from now on.
    pub(super) fn duplicate_messages(&self, rate: f64, seed: u64) {
        let duplicator =
            (rate > 0.0).then(|| Duplicator { rate, random: fastrand::Rng::with_seed(seed) });
        self.store().duplicator = duplicator;
    }

    /// Receives up to ten messages and waits for the first, as Lambda's poller does.
    pub(super) async fn poll(&self, queue_url: &str) -> Result<Vec<SqsMessage>, String> {
        let queue = name_of(queue_url).to_owned();
        let receive =
            ReceiveOptions { queue, max: BATCH_MAX, visibility: None, wait: Some(POLL_WAIT) };
        let received = self.receive(&receive).await.map_err(|error| error.message)?;
        Ok(received.into_iter().map(|message| event_record(&receive.queue, message)).collect())
    }

    /// Deletes received messages by their receipt handles.
    pub(super) fn delete(&self, queue_url: &str, handles: &[String]) -> Result<(), String> {
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
    pub(super) fn release_messages(&self, queue_url: &str) -> Result<(), String> {
        let release = || {
            let mut store = self.store();
            let record = store.state.release_messages(name_of(queue_url), self.clock.now())?;
            store.commit(vec![record])
        };
        release().map_err(|error: SqsError| error.message)
    }

    /// Sends one message, as EventBridge does to a rule's target.
    pub(super) fn send(&self, queue_url: &str, body: String) -> Result<(), String> {
        let send = operations::message_requests::SendEntry::new(body);
        let sent = self.store().send(name_of(queue_url), vec![send], self.clock.now());
        sent.and_then(|sent| sent.into_iter().collect::<Result<Vec<_>, _>>())
            .map(drop)
            .map_err(|error| error.message)
    }

    /// Responds to one SQS request.
    pub(super) async fn respond(&self, operation: &str, body: &[u8]) -> ServiceResponse {
        let result = match operation {
            "ReceiveMessage" => Some(self.receive_message(body).await),
            _ => self.run(operation, body),
        };
        match result {
            Some(Ok(body)) => ServiceResponse::ok(body.to_string()),
            Some(Err(error)) => error.into_response(),
            None => ServiceResponse::unknown_operation(&format!("AmazonSQS.{operation}")),
        }
    }

    /// Receives messages, or waits for them.
    async fn receive(&self, receive: &ReceiveOptions) -> Result<Vec<QueueMessage>, SqsError> {
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

    fn store(&self) -> MutexGuard<'_, QueueStore> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl QueueStore {
    /// Writes changes to the journal and applies them. If the write fails, nothing changes.
    fn commit(&mut self, records: Vec<JournalRecord>) -> Result<(), SqsError> {
        if records.is_empty() {
            return Ok(());
        }
        if let Some(journal) = &mut self.journal {
            journal.append(&records).map_err(|error| SqsError::not_written(&error))?;
        }
        records.into_iter().for_each(|record| self.state.apply(record));
        if let Some(journal) = &mut self.journal
            && let Err(error) = journal.compact(&self.state)
        {
            tracing::warn!(%error, "the journal of the queues could not be compacted");
        }
        Ok(())
    }

    /// Receives the messages that are visible. The first call sets `until`, the time at which the receive ends without
    /// a message.
    fn receive(
        &mut self,
        receive: &ReceiveOptions,
        now: Micros,
        until: &mut Option<Micros>,
    ) -> Result<ReceiveOutcome, SqsError> {
        let name = &receive.queue;
        let attributes = &self.state.queue(name)?.attributes;
        let (wait, visibility) = (attributes.wait, attributes.visibility);
        let visible_at = now.saturating_add(receive.visibility.unwrap_or(visibility));
        let changes = self.state.receive(name, receive.max, now, visible_at)?;
        self.commit(changes.records)?;
        let queue = self.state.queue(name)?;
        let received = changes.received.iter().filter_map(|number| queue.message(*number).cloned());
        let received: Vec<_> = received.collect();
        let until = *until.get_or_insert(now.saturating_add(receive.wait.unwrap_or(wait)));
        if !received.is_empty() || now >= until {
            return Ok(ReceiveOutcome::Received(received));
        }
        Ok(ReceiveOutcome::Wait(queue.next_visible_at(now).map_or(until, |next| next.min(until))))
    }

    /// Decides whether a message is sent twice.
    fn is_duplicated(&mut self) -> bool {
        self.duplicator.as_mut().is_some_and(|Duplicator { rate, random }| random.f64() < *rate)
    }
}

/// The name in a queue's URL.
fn name_of(queue_url: &str) -> &str {
    queue_url.rsplit('/').next().unwrap_or(queue_url)
}

/// Converts a message to the form in Lambda's event.
fn event_record(queue: &str, message: QueueMessage) -> SqsMessage {
    let mut record = SqsMessage::default();
    record.receipt_handle = Some(ReceiptHandle::handle(queue, &message));
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
