//! The ports: what the core asks of the world, as traits. `crates/aws` implements them on DynamoDB,
//! SQS and EventBridge, `crates/local` in memory; one contract suite runs on both.

use std::{
    error::Error, fmt, future::Future, num::NonZeroU32, ops::Range, str::FromStr, sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    command::CommandId,
    events::BusEvent,
    limits::KEPT_MARGIN,
    messages::{Action, AttemptTimes},
    names::{AgentName, Incarnation, Part, TaskId, WorkflowName},
    task::{ProcessState, Task, later},
    workflow::Workflow,
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

/// What names a document among those of one task.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DocumentKey {
    /// What the client submitted.
    Submission,
    /// The input as an operator edited it.
    Input(CommandId),
    /// What the task returned, by a fingerprint of what it was made from: a decision that was never
    /// saved may have left one as well.
    Result(u32),
    /// What an attempt at a step returned.
    Output(Attempt),
    /// What an operator's command says that a step returned. It names its writer: a command that is refused
    /// after it was written leaves nothing that an agent's answer could be taken for.
    ByHand(Attempt, CommandId),
    /// Why an attempt at a step failed.
    Failure(Attempt),
    /// Why an attempt at a step was deferred.
    Deferral(Attempt),
    /// That an attempt at a step that must not be repeated is about to be made.
    Claim(Attempt),
}

/// An attempt at doing or undoing a step.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Attempt {
    /// The step, or one item of it.
    pub step: Part,
    /// Whether it was done or undone.
    pub action: Action,
    /// Which attempt.
    pub number: u32,
}

impl Attempt {
    fn key(&self, f: &mut fmt::Formatter<'_>, kind: &str) -> fmt::Result {
        let of = match self.action {
            Action::Do => "step",
            Action::Undo => "undo",
        };
        write!(f, "{of}/{}/{}/{kind}", self.step, self.number)
    }
}

impl fmt::Display for DocumentKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Submission => f.write_str("submission"),
            Self::Input(id) => write!(f, "input/{id}"),
            Self::Result(made_from) => write!(f, "result/{made_from:08x}"),
            Self::Output(attempt) => attempt.key(f, "output"),
            Self::ByHand(attempt, command) => {
                attempt.key(f, "output")?;
                write!(f, "/{command}")
            }
            Self::Failure(attempt) => attempt.key(f, "failure"),
            Self::Deferral(attempt) => attempt.key(f, "deferral"),
            Self::Claim(attempt) => attempt.key(f, "claim"),
        }
    }
}

/// A text that is no document's key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a document's key")]
pub struct InvalidDocumentKey(String);

impl FromStr for DocumentKey {
    type Err = InvalidDocumentKey;

    fn from_str(text: &str) -> Result<Self, InvalidDocumentKey> {
        let invalid = || InvalidDocumentKey(text.to_owned());
        let parts: Vec<_> = text.split('/').collect();
        match parts.as_slice() {
            ["submission"] => Ok(Self::Submission),
            ["result", made_from] => {
                Ok(Self::Result(u32::from_str_radix(made_from, 16).map_err(|_| invalid())?))
            }
            ["input", id] => Ok(Self::Input(id.parse().map_err(|_| invalid())?)),
            [of @ ("step" | "undo"), step, number, "output", command] => {
                let action = if *of == "step" { Action::Do } else { Action::Undo };
                let step = step.parse().map_err(|_| invalid())?;
                let number = number.parse().map_err(|_| invalid())?;
                let command = command.parse().map_err(|_| invalid())?;
                Ok(Self::ByHand(Attempt { step, action, number }, command))
            }
            [of @ ("step" | "undo"), step, number, kind] => {
                let action = if *of == "step" { Action::Do } else { Action::Undo };
                let step = step.parse().map_err(|_| invalid())?;
                let number = number.parse().map_err(|_| invalid())?;
                let attempt = Attempt { step, action, number };
                match *kind {
                    "output" => Ok(Self::Output(attempt)),
                    "failure" => Ok(Self::Failure(attempt)),
                    "deferral" => Ok(Self::Deferral(attempt)),
                    "claim" => Ok(Self::Claim(attempt)),
                    _ => Err(invalid()),
                }
            }
            _ => Err(invalid()),
        }
    }
}

/// Whose documents are meant: those of a task, in one incarnation of its id.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner {
    /// The task.
    pub task_id: TaskId,
    /// Its incarnation; absent of a task that an older release recorded.
    pub incarnation: Option<Incarnation>,
}

impl Owner {
    /// The owner of the documents of `task`.
    #[must_use]
    pub fn of(task: &Task) -> Self {
        Self { task_id: task.task_id.clone(), incarnation: task.incarnation }
    }
}

/// A document's key as it is stored: `INCARNATION/KEY`, so that documents of an earlier task with the
/// same id, which expire one by one, are never taken for this one's. Of a task that an older release
/// recorded it is the key alone.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StoredKey {
    /// The incarnation of the task that it belongs to.
    pub incarnation: Option<Incarnation>,
    /// Which of that task's documents.
    pub key: DocumentKey,
}

impl fmt::Display for StoredKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { incarnation, key } = self;
        match incarnation {
            Some(incarnation) => write!(f, "{incarnation}/{key}"),
            None => key.fmt(f),
        }
    }
}

impl FromStr for StoredKey {
    type Err = InvalidDocumentKey;

    fn from_str(text: &str) -> Result<Self, InvalidDocumentKey> {
        // No key begins as an incarnation does.
        if let Some((incarnation, key)) = text.split_once('/')
            && let Ok(incarnation) = incarnation.parse()
        {
            return Ok(Self { incarnation: Some(incarnation), key: key.parse()? });
        }
        Ok(Self { incarnation: None, key: text.parse()? })
    }
}

/// A document beside a task: written once, never changed.
#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    /// Which of the task's documents.
    pub key: DocumentKey,
    /// When it was made.
    pub at: Timestamp,
    /// Its content.
    pub body: Value,
    /// Of an attempt's: when it got how far, as far as is known.
    pub times: AttemptTimes,
}

impl Document {
    /// A document made at `at`.
    #[must_use]
    pub fn new(key: DocumentKey, at: Timestamp, body: Value) -> Self {
        Self { key, at, body, times: AttemptTimes::default() }
    }
}

/// How long a document is kept: for the retention time after `from`, and
/// [longer by a margin](crate::limits::KEPT_MARGIN).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Kept {
    /// From when on: no earlier than the task ends.
    #[serde(with = "jiff::fmt::serde::timestamp::millisecond::required")]
    #[schemars(with = "i64")]
    pub from: Timestamp,
    /// For how long; the deployment's retention time if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention_s: Option<u64>,
}

impl Kept {
    /// As the documents of `task`, and the tasks of its steps, are kept: until it has expired, however it
    /// goes on from here, and until the task has that it runs for.
    #[must_use]
    pub fn with(task: &Task) -> Self {
        let from = task.kept_from.unwrap_or(task.complete_by);
        let own = Self { from, retention_s: task.retention_s };
        let for_parent = task.kept_for_parent;
        for_parent.map_or(own, |Self { from, retention_s }| {
            own.and(Self { from: later(from, KEPT_MARGIN), retention_s })
        })
    }

    /// When a document that is kept so long may go, where this is the retention of the deployment.
    #[must_use]
    pub fn expires_at(self, retention: Duration) -> Timestamp {
        let retention = self.retention_s.map_or(retention, Duration::from_secs);
        later(later(self.from, retention), KEPT_MARGIN)
    }

    /// At least as long as either. The deployment's retention is not known here: where only one of the two
    /// has its own, it is longer than either.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let from = self.from.max(other.from);
        match (self.retention_s, other.retention_s) {
            (None, None) => Self { from, retention_s: None },
            (Some(one), Some(another)) => Self { from, retention_s: Some(one.max(another)) },
            (Some(own), None) | (None, Some(own)) => {
                Self { from: later(from, Duration::from_secs(own)), retention_s: None }
            }
        }
    }
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

/// FNV-1a, 32 bits (<http://www.isthe.com/chongo/tech/comp/fnv/>).
pub(crate) fn fnv1a(text: &str) -> u32 {
    text.bytes()
        .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// The published definitions.
pub trait Definitions: Send + Sync {
    /// One version of a workflow, also one that is published no more: the tasks that began with it
    /// stay with it. Or, if none is named, the newest that is published.
    fn workflow(
        &self,
        name: &WorkflowName,
        version: Option<u32>,
    ) -> impl Future<Output = Result<Option<Arc<Workflow>>, PortError>> + Send;

    /// What a new task runs: the version named, if it is published, or the newest that is. That one
    /// is published no more, or that there is a newer one, may be noticed a few seconds late.
    fn published(
        &self,
        name: &WorkflowName,
        version: Option<u32>,
    ) -> impl Future<Output = Result<Option<Arc<Workflow>>, PortError>> + Send;

    /// The workflows whose newest published version has this trigger, by name. A trigger that was
    /// just published is never missed.
    fn triggered(
        &self,
        source: &str,
        detail_type: &str,
    ) -> impl Future<Output = Result<Vec<Arc<Workflow>>, PortError>> + Send;
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
    /// How long the queue holds it back, up to [`QUEUE_DELAY_MAX`](crate::limits::QUEUE_DELAY_MAX);
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

/// Times that hold for the whole deployment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// How long a wake may take to be acted on before the supervisor sends another.
    pub pickup_within: Duration,
    /// How far clocks may disagree: the supervisor waits this much longer than complete-by.
    pub clock_skew: Duration,
    /// How long a task is kept after its end, if its workflow does not say.
    pub retention: Duration,
}

impl Timing {
    /// How long a task is kept by default.
    pub const RETENTION: Duration = Duration::from_secs(30 * 24 * 3600);
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
    fn a_key_reads_back_as_it_was_written() {
        let step: Part = "charge".parse().unwrap();
        for key in [
            DocumentKey::Submission,
            DocumentKey::Input("c-1".parse().unwrap()),
            DocumentKey::Output(Attempt { step: step.clone(), action: Action::Do, number: 3 }),
            DocumentKey::ByHand(
                Attempt { step: step.clone(), action: Action::Undo, number: 3 },
                "c-1".parse().unwrap(),
            ),
            DocumentKey::Failure(Attempt { step: step.clone(), action: Action::Undo, number: 1 }),
            DocumentKey::Deferral(Attempt { step: step.clone(), action: Action::Do, number: 1 }),
            DocumentKey::Claim(Attempt { step, action: Action::Do, number: 1 }),
        ] {
            assert_eq!(key.to_string().parse(), Ok(key));
        }
        assert!("step/charge/x/output".parse::<DocumentKey>().is_err());
    }

    #[test]
    fn a_stored_key_has_its_incarnation_in_front() {
        let output: DocumentKey = "step/charge/1/output".parse().unwrap();
        let incarnation = Some(Incarnation::recorded_at(Timestamp::UNIX_EPOCH));
        for (key, text) in [
            (StoredKey { incarnation, key: output.clone() }, "000000000/step/charge/1/output"),
            (StoredKey { incarnation: None, key: output }, "step/charge/1/output"),
            (StoredKey { incarnation: None, key: DocumentKey::Submission }, "submission"),
        ] {
            assert_eq!((key.to_string().as_str(), text.parse()), (text, Ok(key)));
        }
        assert!("000000000/".parse::<StoredKey>().is_err());
    }

    #[test]
    fn what_is_kept_with_two_tasks_outlives_both_whatever_the_deployments_retention() {
        let kept =
            |from, retention_s| Kept { from: Timestamp::from_second(from).unwrap(), retention_s };
        let all = [kept(10, None), kept(20, None), kept(10, Some(5)), kept(7, Some(50))];
        for (one, another) in all.iter().flat_map(|one| all.iter().map(move |other| (*one, *other)))
        {
            for default in [1, 100] {
                let until = |Kept { from, retention_s }: Kept| {
                    from.as_second() + i64::try_from(retention_s.unwrap_or(default)).unwrap()
                };
                assert!(until(one.and(another)) >= until(one).max(until(another)));
            }
        }
    }

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
