//! The state of the queues with its journal: each change is written to the journal and then applied.

use std::path::Path;

use super::{
    error::SqsError,
    journal::{JournalError, QueueJournal},
    message::QueueMessage,
    state::{JournalRecord, QueuesState},
    time::Micros,
};

/// The state of the queues, and the journal that stores it.
pub(super) struct QueueStore {
    pub(super) state: QueuesState,
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
pub(super) struct ReceiveOptions {
    pub(super) queue: String,
    pub(super) max: usize,
    /// How long the messages stay hidden. The default is the queue's visibility timeout.
    pub(super) visibility: Option<Micros>,
    /// How long to wait for a message. The default is the queue's wait time.
    pub(super) wait: Option<Micros>,
}

/// The result of one look at a queue.
pub(super) enum ReceiveOutcome {
    Received(Vec<QueueMessage>),
    /// No messages yet: look again when the queue changes, or at this time.
    Wait(Micros),
}

impl QueueStore {
    /// A store without queues, in memory.
    pub(super) fn in_memory() -> Self {
        Self { state: QueuesState::default(), journal: None, duplicator: None }
    }

    /// Opens the store in `dir`, which this process has locked.
    pub(super) fn on_disk(dir: &Path) -> Result<Self, JournalError> {
        let mut state = QueuesState::default();
        let journal = Some(QueueJournal::open(dir, &mut state)?);
        Ok(Self { state, journal, duplicator: None })
    }

    /// Duplicates each message with probability `rate` from now on.
    pub(super) fn duplicate_messages(&mut self, rate: f64, seed: u64) {
        self.duplicator =
            (rate > 0.0).then(|| Duplicator { rate, random: fastrand::Rng::with_seed(seed) });
    }

    /// Writes changes to the journal and applies them. If the write fails, nothing changes.
    pub(super) fn commit(&mut self, records: Vec<JournalRecord>) -> Result<(), SqsError> {
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
    pub(super) fn receive(
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
    pub(super) fn is_duplicated(&mut self) -> bool {
        self.duplicator.as_mut().is_some_and(|Duplicator { rate, random }| random.f64() < *rate)
    }
}
