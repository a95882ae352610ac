//! The ports: what the core asks of the world, as traits. `crates/aws` implements them on DynamoDB,
//! SQS and EventBridge, `crates/local` in memory; one contract suite runs on both.

use std::{error::Error, future::Future, num::NonZeroU32, ops::Range, sync::Arc, time::Duration};
use steward_core::definition::plan::Plan;
use steward_core::model::document::Document;
use steward_core::model::document::DocumentKey;
use steward_core::model::document::Kept;
use steward_core::model::document::Owner;
use steward_core::model::hash::fnv1a;
use steward_core::model::time::Timing;

use jiff::Timestamp;
use serde_json::Value;

use steward_core::model::{
    events::BusEvent,
    names::{AgentName, TaskId, WorkflowName},
    task::{ProcessState, Task},
};

/// An operation on a port that did not happen, or may not have happened.
#[derive(Debug, thiserror::Error)]
#[error("{operation} failed")]
pub struct PortError {
    /// Which operation, with the ids it was about; never a payload.
    pub operation: String,
    /// Whether the same again may succeed.
    pub retryable: bool,
    /// The cause.
    #[source]
    pub source: Box<dyn Error + Send + Sync>,
}

/// Why a message was not sent: the queue does not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("there is no such queue")]
pub struct NoSuchQueue;

/// Why a write was refused: the store takes no item so large.
#[derive(Debug, thiserror::Error)]
#[error("the item is too large: {0}")]
pub struct TooLarge(pub String);

impl PortError {
    /// Whether the cause is that the queue does not exist.
    #[must_use]
    pub fn is_no_such_queue(&self) -> bool {
        self.source.is::<NoSuchQueue>()
    }

    /// Whether a write was refused because the item is larger than the store takes.
    #[must_use]
    pub fn is_too_large(&self) -> bool {
        self.source.is::<TooLarge>()
    }
}

/// An error with its causes, for a log line.
#[must_use]
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

/// What came of recording a new task.
#[derive(Debug, Clone, PartialEq)]
pub enum Created {
    /// It is recorded.
    Created,
    /// There is a task with this id already: this one, unless it was deleted since.
    Exists(Option<Box<Task>>),
}

/// What came of a save. A lost race is a value, not an error.
#[derive(Debug, Clone, PartialEq)]
pub enum Saved {
    /// It is saved.
    Saved,
    /// Another save came first; this is the task as it is now, if it still exists.
    Conflict(Option<Box<Task>>),
}

/// What came of writing a document.
#[derive(Debug, Clone, PartialEq)]
pub enum Put {
    /// It is stored.
    Stored,
    /// It was written before; this is what it says.
    Existing(Value),
}

/// One page of the due index.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DuePage {
    /// Tasks that are due, earliest first.
    pub task_ids: Vec<TaskId>,
    /// Where the next page starts, if there may be one.
    pub next: Option<DueCursor>,
}

/// Where a page of the due index starts: after this task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DueCursor {
    /// The due time of the last task seen.
    pub due: Timestamp,
    /// Its id.
    pub task_id: TaskId,
}

/// A task that has ended, as the index `ended` has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// When.
    pub at: Timestamp,
    /// The task.
    pub task_id: TaskId,
    /// What it ran.
    pub workflow: WorkflowName,
}

/// One page of the index of tasks that have ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EndedPage {
    /// Tasks that have ended, earliest first.
    pub ended: Vec<Ended>,
    /// Where the next page starts, if there may be one: after this task.
    pub next: Option<Ended>,
}

/// The durable record of every task and of the documents beside it. Every read is consistent, but
/// for the indices. An item past its expiry counts as absent, whether or not the store has deleted it:
/// DynamoDB deletes each item by itself, within days.
pub trait StateStore: Send + Sync {
    /// Reads a task.
    fn load(&self, id: &TaskId) -> impl Future<Output = Result<Option<Task>, PortError>> + Send;

    /// Records a new task and what was submitted: both or neither. It replaces a task with the same id
    /// that has [expired](Task::gives_way).
    fn create(
        &self,
        task: &Task,
        submitted: &Document,
    ) -> impl Future<Output = Result<Created, PortError>> + Send;

    /// Replaces the task whose revision is one less than `task.revision`, if that is still the one
    /// stored.
    fn save(&self, task: &Task) -> impl Future<Output = Result<Saved, PortError>> + Send;

    /// Writes a document, unless its owner has it already.
    fn put_document(
        &self,
        owner: &Owner,
        kept: Kept,
        document: &Document,
    ) -> impl Future<Output = Result<Put, PortError>> + Send;

    /// Has all documents of `owner` kept at least so long.
    fn extend_documents(
        &self,
        owner: &Owner,
        kept: Kept,
    ) -> impl Future<Output = Result<(), PortError>> + Send;

    /// Reads documents; those that do not exist are left out.
    fn documents(
        &self,
        owner: &Owner,
        keys: &[DocumentKey],
    ) -> impl Future<Output = Result<Vec<Document>, PortError>> + Send;

    /// Reads one page of the tasks of a shard that are due at `until` or before.
    fn due(
        &self,
        shard: u32,
        until: Timestamp,
        after: Option<&DueCursor>,
    ) -> impl Future<Output = Result<DuePage, PortError>> + Send;

    /// How many shards the due index has.
    fn shards(&self) -> u32;

    /// Reads one page of the tasks that ended in `state` within a time (its end excluded), of one of
    /// the [parts](ended_parts) of that index.
    fn ended(
        &self,
        state: ProcessState,
        part: u32,
        within: Range<Timestamp>,
        after: Option<&Ended>,
    ) -> impl Future<Output = Result<EndedPage, PortError>> + Send;

    /// Reads what instances share beside the tasks.
    fn shared(
        &self,
        key: &SharedKey,
    ) -> impl Future<Output = Result<Option<Shared>, PortError>> + Send;

    /// Writes it, if the revision stored is one less than `shared.revision`; a new one has revision 1.
    fn save_shared(
        &self,
        shared: &Shared,
    ) -> impl Future<Output = Result<SharedSaved, PortError>> + Send;

    /// Reads all of one kind.
    fn all_shared(
        &self,
        kind: SharedKind,
    ) -> impl Future<Output = Result<Vec<Shared>, PortError>> + Send;
}

/// What kinds of things instances share beside the tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SharedKind {
    /// Circuit breakers, by agent.
    Breaker,
    /// How many dead letters have been alerted, by queue.
    DeadLetters,
    /// How many tasks ended, by minute.
    History,
    /// The supervisor's last run.
    Supervisor,
    /// Operators' runs over many tasks, by the run's id.
    Bulk,
}

impl SharedKind {
    /// The kind in the key of what is stored. No task's id starts with `#`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Breaker => "#breaker",
            Self::DeadLetters => "#dead-letters",
            Self::History => "#history",
            Self::Supervisor => "#supervisor",
            Self::Bulk => "#bulk",
        }
    }
}

/// What names a shared record.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SharedKey {
    /// What it is.
    pub kind: SharedKind,
    /// Whose it is: an agent's name, a queue's, a minute's.
    pub name: String,
}

/// A small record that instances share, each write conditional on the revision before it.
#[derive(Debug, Clone, PartialEq)]
pub struct Shared {
    /// Its name.
    pub key: SharedKey,
    /// Grows with every save.
    pub revision: u64,
    /// Its content.
    pub body: Value,
    /// From when on it may go, to the second; never if absent.
    pub expires_at: Option<Timestamp>,
}

/// What came of saving a shared record.
#[derive(Debug, Clone, PartialEq)]
pub enum SharedSaved {
    /// It is saved.
    Saved,
    /// Another save came first; this is the record as it is now, if there is one.
    Conflict(Option<Shared>),
}

/// Which shard of the due index a task is in, by FNV-1a: stable over versions of everything.
#[must_use]
pub fn shard_of(id: &TaskId, shards: NonZeroU32) -> u32 {
    fnv1a(id.as_str()) % shards
}

/// Into how many parts the index of ended tasks is split, for so many shards of the due index. Half as
/// many: a task is written there once, and twice to the due index, so neither has the busier partitions.
#[must_use]
pub fn ended_parts(shards: NonZeroU32) -> NonZeroU32 {
    NonZeroU32::new(shards.get().div_ceil(2)).unwrap_or(NonZeroU32::MIN)
}

/// The published definitions.
pub trait Definitions: Send + Sync {
    /// One version of a workflow, also one that is published no more: the tasks that began with it
    /// stay with it. Or, if none is named, the newest that is published.
    fn workflow(
        &self,
        name: &WorkflowName,
        version: Option<u32>,
    ) -> impl Future<Output = Result<Option<Arc<Plan>>, PortError>> + Send;

    /// What a new task runs: the version named, if it is published, or the newest that is. That one
    /// is published no more, or that there is a newer one, may be noticed a few seconds late.
    fn published(
        &self,
        name: &WorkflowName,
        version: Option<u32>,
    ) -> impl Future<Output = Result<Option<Arc<Plan>>, PortError>> + Send;

    /// The workflows whose newest published version has this trigger, by name. A trigger that was
    /// just published is never missed.
    fn triggered(
        &self,
        source: &str,
        detail_type: &str,
    ) -> impl Future<Output = Result<Vec<Arc<Plan>>, PortError>> + Send;
}

/// Where a message goes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Queue {
    /// The scheduler's.
    Scheduler,
    /// Where submissions come in.
    Submissions,
    /// A logical agent's.
    Agent(AgentName),
    /// A client's own, by URL.
    Client(String),
    /// Where refused submissions are kept.
    Rejected,
}

/// A message to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outgoing {
    /// Where to.
    pub queue: Queue,
    /// Its JSON.
    pub body: String,
    /// Texts beside the body: `traceparent`, `reason`.
    pub attributes: Vec<(&'static str, String)>,
    /// How long the queue holds it back, up to [`QUEUE_DELAY_MAX`](steward_core::limits::QUEUE_DELAY_MAX);
    /// whole seconds on SQS, rounded up.
    pub delay: Duration,
}

/// The request/response channel.
pub trait Channel: Send + Sync {
    /// Sends messages, in batches; answers for each, in the order given. A message may arrive more
    /// than once and in any order.
    fn send(
        &self,
        messages: Vec<Outgoing>,
    ) -> impl Future<Output = Vec<Result<(), PortError>>> + Send;

    /// How many messages each queue of dead letters holds, by the queue's name; approximately.
    fn dead_letters(&self) -> impl Future<Output = Result<Vec<(String, u64)>, PortError>> + Send;
}

/// The operator's event bus.
pub trait EventBus: Send + Sync {
    /// Publishes events, in batches; answers for each, in the order given.
    fn publish(
        &self,
        events: Vec<BusEvent>,
    ) -> impl Future<Output = Vec<Result<(), PortError>>> + Send;
}

/// The time.
pub trait Clock: Send + Sync {
    /// Now.
    fn now(&self) -> Timestamp;

    /// Returns once `duration` has passed by this clock. A clock that only a test moves returns at once.
    fn pause(&self, duration: Duration) -> impl Future<Output = ()> + Send;
}

/// All ports of one function instance.
pub trait Ports: Send + Sync {
    /// The state store.
    type Store: StateStore;
    /// The definitions.
    type Definitions: Definitions;
    /// The queues.
    type Channel: Channel;
    /// The event bus.
    type Bus: EventBus;
    /// The clock.
    type Clock: Clock;

    /// The state store.
    fn store(&self) -> &Self::Store;
    /// The definitions.
    fn definitions(&self) -> &Self::Definitions;
    /// The queues.
    fn channel(&self) -> &Self::Channel;
    /// The event bus.
    fn bus(&self) -> &Self::Bus;
    /// The clock.
    fn clock(&self) -> &Self::Clock;
    /// The deployment's times.
    fn timing(&self) -> Timing;
    /// Who this instance is, for `locked_by` and logs.
    fn instance(&self) -> &str;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_are_stable_and_even() {
        let shards = NonZeroU32::new(8).unwrap();
        let mut counts = [0_u32; 8];
        for n in 0..8_000 {
            counts[shard_of(&format!("order-{n}").parse().unwrap(), shards) as usize] += 1;
        }
        assert!(counts.iter().all(|count| (700..1_300).contains(count)), "{counts:?}");
        // Two of FNV's published test vectors.
        for (id, hash) in [("a", 0xe40c_292c_u32), ("foobar", 0xbf9c_f968)] {
            assert_eq!(shard_of(&id.parse().unwrap(), NonZeroU32::MAX), hash);
        }
    }
}
