//! The ports: traits for the state store, the definitions, the queues, the event bus and the clock. `crates/aws`
//! implements them with DynamoDB, SQS, EventBridge and S3, and `crates/testkit` in memory. One contract suite tests both
//! implementations.

use std::{borrow::Cow, future::Future, num::NonZeroU32, ops::Range, sync::Arc, time::Duration};

use jiff::Timestamp;
use serde_json::Value;

use crate::payloads::PayloadStore;
pub use crate::port_error::{ItemTooLarge, NoSuchQueue, PortError, error_chain};

use steward_core::{
    callback_url::CallbackUrls,
    definition::plan::Plan,
    model::{
        document::{Document, DocumentKey, DocumentOwner},
        events::BusEvent,
        hash::fnv1a,
        names::{AgentName, TaskId, Tenant, WorkflowName},
        retention::DocumentRetention,
        task::{ProcessState, Task},
        time::Timing,
    },
};

/// The outcome of creating a task.
#[derive(Debug, Clone, PartialEq)]
pub enum CreateOutcome {
    /// The task is recorded.
    Created,
    /// A task with this id exists already. Contains that task, unless it was deleted in the meantime.
    Exists(Option<Box<Task>>),
}

/// The outcome of saving a task. A lost race is a value, not an error.
#[derive(Debug, Clone, PartialEq)]
pub enum SaveOutcome {
    /// The task is saved.
    Saved,
    /// Another writer saved the task first. Contains the task as it is now, if it still exists.
    Conflict(Option<Box<Task>>),
}

/// The outcome of writing a document.
#[derive(Debug, Clone, PartialEq)]
pub enum PutOutcome {
    /// The document is stored.
    Stored,
    /// A document with this key exists already. Contains its body.
    Existing(Value),
}

/// One page of the due index.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DuePage {
    /// Tasks that are due, earliest first.
    pub task_ids: Vec<TaskId>,
    /// The start of the next page, if there may be one.
    pub next: Option<DueCursor>,
}

/// The start of a page of the due index: the page begins after this task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DueCursor {
    /// The due time of the last task on the page before.
    pub due: Timestamp,
    /// The id of that task.
    pub task_id: TaskId,
}

/// An entry of the index `ended`: a task in a final state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndedTask {
    /// When the task ended.
    pub at: Timestamp,
    /// The task.
    pub task_id: TaskId,
    /// The task's workflow.
    pub workflow: WorkflowName,
}

/// One page of the index `ended`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EndedTaskPage {
    /// Tasks that have ended, earliest first.
    pub ended: Vec<EndedTask>,
    /// The last entry of this page, if there may be a next page. The next page begins after it.
    pub next: Option<EndedTask>,
}

/// The durable record of all tasks and of their documents. Reads are consistent, except reads of an index. An item past
/// its expiry counts as absent, whether the store has deleted it or not: DynamoDB deletes expired items within days, and
/// not together.
pub trait StateStore: Send + Sync {
    /// Reads a task.
    fn load(&self, id: &TaskId) -> impl Future<Output = Result<Option<Task>, PortError>> + Send;

    /// Records a new task, and the submitted document if it is not in the task's item: both or neither. Replaces an earlier
    /// task with the same id if that task has [expired](Task::may_be_replaced_by).
    fn create(
        &self,
        task: &Task,
        separate: Option<&Document>,
    ) -> impl Future<Output = Result<CreateOutcome, PortError>> + Send;

    /// Saves the task, on the condition that the stored revision is one less than `task.revision`.
    fn save(&self, task: &Task) -> impl Future<Output = Result<SaveOutcome, PortError>> + Send;

    /// Writes a document as an item of its own, on the condition that its owner has no document with this key.
    fn put_document(
        &self,
        owner: &DocumentOwner,
        retention: DocumentRetention,
        document: &Document,
    ) -> impl Future<Output = Result<PutOutcome, PortError>> + Send;

    /// Extends the expiry of all separate documents of `task`, and of what refers to it, that would expire earlier than by its
    /// [retention](Task::document_retention).
    fn extend_documents(&self, task: &Task) -> impl Future<Output = Result<(), PortError>> + Send;

    /// Reads documents that are items of their own. The result omits documents that do not exist.
    fn documents(
        &self,
        owner: &DocumentOwner,
        keys: &[DocumentKey],
    ) -> impl Future<Output = Result<Vec<Document>, PortError>> + Send;

    /// Returns documents of a task: from its item, or read from the store. The result omits documents that do not exist.
    fn documents_of(
        &self,
        task: &Task,
        keys: &[DocumentKey],
    ) -> impl Future<Output = Result<Vec<Document>, PortError>> + Send {
        async move {
            let mut documents: Vec<_> =
                keys.iter().filter_map(|key| task.documents.get(key)).collect();
            let separate = keys.iter().filter(|key| !task.documents.contains(key));
            let separate: Vec<_> = separate.cloned().collect();
            if !separate.is_empty() {
                documents.extend(self.documents(&task.document_owner(), &separate).await?);
            }
            Ok(documents)
        }
    }

    /// Reads one page of a shard of the due index: the tasks that are due at `until` or before.
    fn due_tasks(
        &self,
        shard: u32,
        until: Timestamp,
        after: Option<&DueCursor>,
    ) -> impl Future<Output = Result<DuePage, PortError>> + Send;

    /// The number of shards of the due index.
    fn shards(&self) -> u32;

    /// Reads one page of a [partition](ended_index_partitions) of the index `ended`: the tasks that ended in `state` during
    /// `within`, whose end is exclusive.
    fn ended_tasks(
        &self,
        state: ProcessState,
        partition: u32,
        within: Range<Timestamp>,
        after: Option<&EndedTask>,
    ) -> impl Future<Output = Result<EndedTaskPage, PortError>> + Send;

    /// Reads a record that instances share.
    fn shared_record(
        &self,
        key: &SharedRecordKey,
    ) -> impl Future<Output = Result<Option<SharedRecord>, PortError>> + Send;

    /// Saves a shared record, on the condition that the stored revision is one less than `shared.revision`. A new record
    /// has revision 1.
    fn save_shared_record(
        &self,
        shared: &SharedRecord,
    ) -> impl Future<Output = Result<SharedSaveOutcome, PortError>> + Send;

    /// Reads all shared records of one kind.
    fn shared_records(
        &self,
        kind: SharedRecordKind,
    ) -> impl Future<Output = Result<Vec<SharedRecord>, PortError>> + Send;
}

/// The kinds of records that instances share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SharedRecordKind {
    /// Circuit breakers, by agent.
    Breaker,
    /// The number of dead letters that were alerted, by queue.
    DeadLetters,
    /// The number of tasks that ended, by minute.
    History,
    /// The supervisor's last run.
    Supervisor,
    /// Bulk commands of operators, by id.
    Bulk,
    /// How many new tasks may start: one record for the deployment.
    Intake,
    /// Where the supervisor's pass over the payloads stands.
    Payloads,
    /// Registrations of agents, by agent.
    Agent,
    /// The last reply of each agent, by agent.
    AgentSeen,
    /// The last alert about an agent's clock, by agent.
    AgentClock,
    /// Rate limits, by agent: which calls are allowed next.
    Rate,
    /// Steps that wait for an event, and events that came before, by correlation key.
    Correlation,
    /// Receipts of webhooks, by webhook and id.
    Webhook,
}

impl SharedRecordKind {
    /// The kind in the key of the stored record. It differs from all task ids, because none starts with `#`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Breaker => "#breaker",
            Self::DeadLetters => "#dead-letters",
            Self::History => "#history",
            Self::Supervisor => "#supervisor",
            Self::Bulk => "#bulk",
            Self::Intake => "#intake",
            Self::Payloads => "#payloads",
            Self::Agent => "#agent",
            Self::AgentSeen => "#agent-seen",
            Self::AgentClock => "#agent-clock",
            Self::Rate => "#rate",
            Self::Correlation => "#correlation",
            Self::Webhook => "#webhook",
        }
    }
}

/// The key of a shared record.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SharedRecordKey {
    /// The kind of record.
    pub kind: SharedRecordKind,
    /// The name within the kind: of an agent, of a queue, of a minute.
    pub name: String,
}

impl SharedRecordKey {
    /// The partition of the stored record. Records of one kind share a partition, so that all of them can be read together.
    /// Correlations and receipts of webhooks are too many for one, and are only read one by one.
    #[must_use]
    pub fn partition(&self) -> Cow<'static, str> {
        match self.kind {
            SharedRecordKind::Correlation | SharedRecordKind::Webhook => {
                format!("{}/{}", self.kind.name(), self.name).into()
            }
            SharedRecordKind::Breaker
            | SharedRecordKind::DeadLetters
            | SharedRecordKind::History
            | SharedRecordKind::Supervisor
            | SharedRecordKind::Bulk
            | SharedRecordKind::Intake
            | SharedRecordKind::Payloads
            | SharedRecordKind::Agent
            | SharedRecordKind::AgentSeen
            | SharedRecordKind::AgentClock
            | SharedRecordKind::Rate => self.kind.name().into(),
        }
    }
}

/// A small record that instances share. Each save is conditional on the revision before it.
#[derive(Debug, Clone, PartialEq)]
pub struct SharedRecord {
    /// The key.
    pub key: SharedRecordKey,
    /// A number that grows with every save.
    pub revision: u64,
    /// The content.
    pub body: Value,
    /// The time from which the store may delete the record, in whole seconds. Without it, the record never expires.
    pub expires_at: Option<Timestamp>,
}

/// The outcome of saving a shared record.
#[derive(Debug, Clone, PartialEq)]
pub enum SharedSaveOutcome {
    /// The record is saved.
    Saved,
    /// Another instance saved the record first. Contains the record as it is now, if there is one.
    Conflict(Option<SharedRecord>),
}

/// The shard of a task in the due index, by the FNV-1a hash of its id. The hash must never change, because the shard is
/// stored with the task.
#[must_use]
pub fn shard_of(id: &TaskId, shards: NonZeroU32) -> u32 {
    fnv1a(id.as_str()) % shards
}

/// The number of partitions of the index `ended`, for this number of shards of the due index. It is half as large: a
/// task is written once to the index `ended` and twice to the due index, so the write load of a partition is the same in
/// both.
#[must_use]
pub fn ended_index_partitions(shards: NonZeroU32) -> NonZeroU32 {
    NonZeroU32::new(shards.get().div_ceil(2)).unwrap_or(NonZeroU32::MIN)
}

/// The definitions of workflows.
pub trait Definitions: Send + Sync {
    /// One version of a workflow, even if it was unpublished, because running tasks stay with their version. Without a
    /// version, the newest published one.
    fn workflow(
        &self,
        name: &WorkflowName,
        version: Option<u32>,
    ) -> impl Future<Output = Result<Option<Arc<Plan>>, PortError>> + Send;

    /// The definition for a new task: this version if it is published, or without a version the newest published one. A
    /// publication, and its end, may take effect here a few seconds late.
    fn published(
        &self,
        name: &WorkflowName,
        version: Option<u32>,
    ) -> impl Future<Output = Result<Option<Arc<Plan>>, PortError>> + Send;

    /// The workflows whose newest published version has this trigger, ordered by name. Includes a trigger from the moment
    /// of its publication.
    fn triggered(
        &self,
        source: &str,
        detail_type: &str,
    ) -> impl Future<Output = Result<Vec<Arc<Plan>>, PortError>> + Send;

    /// All published versions of workflows with a step that waits for this event, ordered by name and version. Includes a
    /// version from the moment of its publication.
    fn awaiting(
        &self,
        source: &str,
        detail_type: &str,
    ) -> impl Future<Output = Result<Vec<Arc<Plan>>, PortError>> + Send;
}

/// The destination of a message.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Queue {
    /// The scheduler's queue.
    Scheduler,
    /// The queue of operators' commands. Agents and clients cannot send to it.
    Commands,
    /// The submissions queue.
    Submissions,
    /// The queue of events that steps wait for, and of the subscriptions of these steps. Only the event bus and the scheduler
    /// can send to it.
    Events,
    /// The queue of an agent.
    Agent(AgentName),
    /// The reply queue of a client, by URL.
    Client(String),
    /// The queue that keeps rejected submissions.
    Rejected,
    /// The supervisor's own queue: its ticks, each of which starts a sweep of the due index.
    Sweeps,
}

/// A message to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutgoingMessage {
    /// The destination.
    pub queue: Queue,
    /// The body, as JSON.
    pub body: String,
    /// The message attributes: `traceparent`, `reason`, `authenticated`.
    pub attributes: Vec<(&'static str, String)>,
    /// The tenant of the task that the message is about. SQS gets it as the message group id. In a standard queue, that
    /// neither orders nor deduplicates messages: it makes the queue fair (`docs/tenants.md`).
    pub tenant: Option<Tenant>,
    /// The delay before the queue delivers the message, up to
    /// [`QUEUE_DELAY_MAX`](steward_core::limits::QUEUE_DELAY_MAX). SQS rounds it up to whole seconds.
    pub delay: Duration,
}

/// The request/response channel.
pub trait Channel: Send + Sync {
    /// Sends messages, in batches. Returns a result for each message, in the order given. Delivery is at least once, in
    /// any order.
    fn send(
        &self,
        messages: Vec<OutgoingMessage>,
    ) -> impl Future<Output = Vec<Result<(), PortError>>> + Send;

    /// The dead-letter queues of the deployment's own queues, and those that its configuration lists, by name or URL. The
    /// queues of [registered agents](crate::agents) are not among them.
    fn configured_dead_letter_queues(&self) -> Vec<String>;

    /// The approximate number of messages in each of these queues, which are given by name or URL. Returns a result for
    /// each queue, with the name of the queue, in the order given.
    fn dead_letters(
        &self,
        queues: &[String],
    ) -> impl Future<Output = Vec<(String, Result<u64, PortError>)>> + Send;

    /// Whether messages wait in each of these queues, and no function holds one, in the order given. A queue that does not
    /// exist has no messages.
    fn unread(&self, queues: &[Queue])
    -> impl Future<Output = Vec<Result<bool, PortError>>> + Send;
}

/// The event bus for alerts and lifecycle events.
pub trait EventBus: Send + Sync {
    /// Publishes events, in batches. Returns a result for each event, in the order given.
    fn publish(
        &self,
        events: Vec<BusEvent>,
    ) -> impl Future<Output = Vec<Result<(), PortError>>> + Send;
}

/// The clock.
pub trait Clock: Send + Sync {
    /// The current time.
    fn now(&self) -> Timestamp;

    /// Waits until `duration` has passed on this clock. A clock that a test advances by hand returns at once.
    fn sleep(&self, duration: Duration) -> impl Future<Output = ()> + Send;
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
    /// The time settings of the deployment.
    fn timing(&self) -> Timing;
    /// The name of this instance, for `locked_by` and logs.
    fn instance(&self) -> &str;
    /// Creates the URLs for callbacks. `None` if the deployment has no endpoint for them, or if this function never sends
    /// them to agents.
    fn callback_urls(&self) -> Option<Arc<CallbackUrls>> {
        None
    }
    /// The bucket of payloads. `None` if the deployment has none, or if this function never uses it.
    fn payloads(&self) -> Option<&dyn PayloadStore> {
        None
    }
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
