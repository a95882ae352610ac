//! SQS in the process: standard queues in memory, with a journal on disk if there is a data directory. What
//! is answered is in the journal, so a killed process loses no message (`docs/adr/0022`).
//!
//! ```text
//! operations  ── a request, checked ──► state: records ──► journal ──► state: applied ──► answer
//! ```

mod attributes;
mod journal;
mod message;
mod operations;
mod receipt;
mod refusal;
mod state;
#[cfg(test)]
mod tests;
mod time;

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use aws_lambda_events::sqs::{SqsMessage, SqsMessageAttribute};

use super::ACCOUNT;
use super::answer::Answer;
use journal::Journal;
pub use journal::JournalError;
use message::Message;
use receipt::Receipt;
use refusal::Refusal;
use state::{Record, State};
use time::{Clock, Micros, SECOND};

/// Messages in one request, by SQS's limit.
const BATCH: usize = 10;

/// How long Lambda's poller waits for messages.
const POLL: Micros = 20 * SECOND;

/// The embedded queues.
pub(super) struct Queues {
    store: Mutex<Store>,
    clock: Clock,
    /// What a queue's URL starts with, before its name.
    base_url: String,
}

/// What the queues hold, and what keeps it.
struct Store {
    state: State,
    /// `None` in memory.
    journal: Option<Journal>,
    /// `None` unless messages are to be doubled.
    coin: Option<Coin>,
}

/// Decides which messages are doubled.
struct Coin {
    rate: f64,
    random: fastrand::Rng,
}

/// A receive, checked.
struct Receive {
    queue: String,
    max: usize,
    /// How long the messages stay hidden; as the queue's attributes say without it.
    visibility: Option<Micros>,
    /// How long to wait for a message; as the queue's attributes say without it.
    wait: Option<Micros>,
}

/// What a receive comes to.
enum Attempt {
    Received(Vec<Message>),
    /// Nothing so far: try again when the queue changes, and then at the latest.
    Wait(Micros),
}

impl Queues {
    /// No queues yet, in memory; their URLs will carry `host` and `port`.
    pub(super) fn in_memory(host: &str, port: u16) -> Self {
        Self::new(Store { state: State::default(), journal: None, coin: None }, host, port)
    }

    /// The queues that are kept in `dir`, which this process has locked.
    pub(super) fn on_disk(dir: &Path, host: &str, port: u16) -> Result<Self, JournalError> {
        let mut state = State::default();
        let journal = Some(Journal::open(dir, &mut state)?);
        Ok(Self::new(Store { state, journal, coin: None }, host, port))
    }

    fn new(store: Store, host: &str, port: u16) -> Self {
        let base_url = format!("http://{host}:{port}/{ACCOUNT}/");
        Self { store: Mutex::new(store), clock: Clock::start(), base_url }
    }

    /// Double each message with probability `rate` from now on.
    pub(super) fn duplicate_messages(&self, rate: f64, seed: u64) {
        let coin = (rate > 0.0).then(|| Coin { rate, random: fastrand::Rng::with_seed(seed) });
        self.store().coin = coin;
    }

    /// Up to ten messages, waiting for the first, as Lambda's poller takes them.
    pub(super) async fn poll(&self, queue_url: &str) -> Result<Vec<SqsMessage>, String> {
        let queue = name_of(queue_url).to_owned();
        let receive = Receive { queue, max: BATCH, visibility: None, wait: Some(POLL) };
        let received = self.receive(&receive).await.map_err(|refusal| refusal.message)?;
        Ok(received.into_iter().map(|message| event_record(&receive.queue, message)).collect())
    }

    /// Deletes what was received.
    pub(super) fn delete(&self, queue_url: &str, handles: &[String]) -> Result<(), String> {
        let queue = name_of(queue_url);
        let delete = || {
            let receipts = handles.iter().map(|handle| Receipt::read(queue, handle));
            let receipts: Vec<_> = receipts.collect::<Result<_, _>>()?;
            let mut store = self.store();
            let records = store.state.delete(queue, &receipts)?;
            store.commit(records)
        };
        delete().map_err(|refusal: Refusal| refusal.message)
    }

    /// Shows what was received and not deleted.
    pub(super) fn give_back(&self, queue_url: &str) -> Result<(), String> {
        let give_back = || {
            let mut store = self.store();
            let record = store.state.give_back(name_of(queue_url), self.clock.now())?;
            store.commit(vec![record])
        };
        give_back().map_err(|refusal: Refusal| refusal.message)
    }

    /// Send one message, as EventBridge does for a rule's target.
    pub(super) fn send(&self, queue_url: &str, body: String) -> Result<(), String> {
        let send = operations::messages::Send::new(body);
        let sent = self.store().send(name_of(queue_url), vec![send], self.clock.now());
        sent.and_then(|sent| sent.into_iter().collect::<Result<Vec<_>, _>>())
            .map(drop)
            .map_err(|refusal| refusal.message)
    }

    /// Answer one SQS request.
    pub(super) async fn answer(&self, operation: &str, body: &[u8]) -> Answer {
        let answered = match operation {
            "ReceiveMessage" => Some(self.receive_message(body).await),
            _ => self.run(operation, body),
        };
        match answered {
            Some(Ok(answer)) => Answer::ok(answer.to_string()),
            Some(Err(refusal)) => refusal.answer(),
            None => Answer::unknown_operation(&format!("AmazonSQS.{operation}")),
        }
    }

    /// Takes messages, or waits for them.
    async fn receive(&self, receive: &Receive) -> Result<Vec<Message>, Refusal> {
        let changed = self.store().state.queue(&receive.queue)?.changed();
        let mut until = None;
        loop {
            // From here on no change is missed.
            let change = changed.notified();
            let attempt = self.store().receive(receive, self.clock.now(), &mut until)?;
            match attempt {
                Attempt::Received(messages) => return Ok(messages),
                Attempt::Wait(at) => tokio::select! {
                    () = change => {}
                    () = tokio::time::sleep_until(self.clock.instant(at)) => {}
                },
            }
        }
    }

    fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store {
    /// Writes changes to the journal, and applies them. If they cannot be written, nothing has changed.
    fn commit(&mut self, records: Vec<Record>) -> Result<(), Refusal> {
        if records.is_empty() {
            return Ok(());
        }
        if let Some(journal) = &mut self.journal {
            journal.append(&records).map_err(|error| Refusal::not_written(&error))?;
        }
        records.into_iter().for_each(|record| self.state.apply(record));
        if let Some(journal) = &mut self.journal
            && let Err(error) = journal.compact(&self.state)
        {
            tracing::warn!(%error, "the journal of queues could not be rewritten, and stays long");
        }
        Ok(())
    }

    /// Takes what there is. `until` is set at first: when the receive ends without a message.
    fn receive(
        &mut self,
        receive: &Receive,
        now: Micros,
        until: &mut Option<Micros>,
    ) -> Result<Attempt, Refusal> {
        let name = &receive.queue;
        let attributes = &self.state.queue(name)?.attributes;
        let (wait, visibility) = (attributes.wait, attributes.visibility);
        let visible_at = now.saturating_add(receive.visibility.unwrap_or(visibility));
        let found = self.state.receive(name, receive.max, now, visible_at)?;
        self.commit(found.records)?;
        let queue = self.state.queue(name)?;
        let received = found.received.iter().filter_map(|number| queue.message(*number).cloned());
        let received: Vec<_> = received.collect();
        let until = *until.get_or_insert(now.saturating_add(receive.wait.unwrap_or(wait)));
        if !received.is_empty() || now >= until {
            return Ok(Attempt::Received(received));
        }
        Ok(Attempt::Wait(queue.next_visible_at(now).map_or(until, |next| next.min(until))))
    }

    /// Whether a message is sent twice.
    fn is_doubled(&mut self) -> bool {
        self.coin.as_mut().is_some_and(|Coin { rate, random }| random.f64() < *rate)
    }
}

/// The name of a queue, from its URL.
fn name_of(queue_url: &str) -> &str {
    queue_url.rsplit('/').next().unwrap_or(queue_url)
}

/// A message as Lambda's event carries it.
fn event_record(queue: &str, message: Message) -> SqsMessage {
    let mut record = SqsMessage::default();
    record.receipt_handle = Some(Receipt::handle(queue, &message));
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
