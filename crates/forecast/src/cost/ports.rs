//! The in-memory ports as a forecast's roles reach them: each call takes the time that AWS usually
//! does, and is counted.

use std::{ops::Range, sync::Arc, time::Duration};
use steward_core::definition::plan::Plan;

use jiff::Timestamp;
use steward_aws::items;
use steward_core::model::{
    document::{Document, DocumentKey, Kept, Owner},
    events::BusEvent,
    names::{TaskId, WorkflowName},
    task::{ProcessState, Task},
    time::Timing,
};
use steward_runtime::ports::{
    Channel, Clock, Created, Definitions, DueCursor, DuePage, Ended, EndedPage, EventBus, Outgoing,
    PortError, Ports, Put, Saved, Shared, SharedKey, SharedKind, SharedSaved, StateStore,
};

use super::{
    demand::Asked,
    ledger::{Account, Subject},
    meter::{self, Replaced},
    prices::Usage,
    world::World,
};

/// What a request to DynamoDB takes.
pub(super) const DYNAMODB_TAKES: Duration = Duration::from_millis(5);

/// What a request to SQS takes.
pub(super) const SQS_TAKES: Duration = Duration::from_millis(10);

/// What a request to EventBridge takes.
pub(super) const EVENTBRIDGE_TAKES: Duration = Duration::from_millis(20);

/// Names of instances are this long on AWS; they are part of a task's item.
const INSTANCE: &str = "scheduler-0badcafe";

/// All ports of a forecast's world, as a function has them while it handles a message.
#[derive(Debug, Clone)]
pub(super) struct ForecastPorts {
    pub(super) world: Arc<World>,
    /// On whose account it does.
    pub(super) account: Account,
}

/// Each port is the same world.
impl Ports for ForecastPorts {
    type Store = Self;
    type Definitions = Self;
    type Channel = Self;
    type Bus = Self;
    type Clock = Self;

    fn store(&self) -> &Self {
        self
    }
    fn definitions(&self) -> &Self {
        self
    }
    fn channel(&self) -> &Self {
        self
    }
    fn bus(&self) -> &Self {
        self
    }
    fn clock(&self) -> &Self {
        self
    }
    fn timing(&self) -> Timing {
        self.world.memory.timing()
    }
    fn instance(&self) -> &str {
        INSTANCE
    }
}

impl Clock for ForecastPorts {
    fn now(&self) -> Timestamp {
        self.world.time()
    }

    async fn pause(&self, duration: Duration) {
        tokio::time::sleep(duration).await;
    }
}

impl Definitions for ForecastPorts {
    /// Instances have read them before.
    async fn workflow(
        &self,
        name: &WorkflowName,
        version: Option<u32>,
    ) -> Result<Option<Arc<Plan>>, PortError> {
        self.world.plan.definitions.workflow(name, version).await
    }

    async fn published(
        &self,
        name: &WorkflowName,
        version: Option<u32>,
    ) -> Result<Option<Arc<Plan>>, PortError> {
        self.world.plan.definitions.published(name, version).await
    }

    async fn triggered(
        &self,
        source: &str,
        detail_type: &str,
    ) -> Result<Vec<Arc<Plan>>, PortError> {
        self.world.plan.definitions.triggered(source, detail_type).await
    }
}

impl ForecastPorts {
    fn store(&self) -> &steward_testkit::memory::MemoryStore {
        self.world.memory.store()
    }

    fn reads(&self, of: Asked, read_units: f64) {
        let state = &mut *self.world.state();
        state.meter.add(&self.account, Usage { read_units, ..Usage::default() });
        state.visits.asked(of, read_units);
    }

    fn writes(&self, of: Asked, write_units: f64) {
        self.writes_for(&self.account, of, write_units);
    }

    /// The indices are the task's, whoever moves it. That of ended tasks has half the load of the due
    /// index, on half as many keys: nothing that it lacks the other does not lack before.
    fn writes_indices(&self, task: &Task, replaced: &Replaced) {
        let account = self.about(Subject::task(&task.workflow));
        self.writes_for(&account, Asked::IndexWrites, replaced.due);
        let usage = Usage { write_units: replaced.ended, ..Usage::default() };
        self.world.state().meter.add(&account, usage);
    }

    fn writes_for(&self, account: &Account, of: Asked, write_units: f64) {
        let state = &mut *self.world.state();
        state.meter.add(account, Usage { write_units, ..Usage::default() });
        state.visits.asked(of, write_units);
    }

    fn writes_document(&self, document: &Document) {
        self.world.state().meter.written_bytes += document.body.to_string().len() as u64;
    }

    /// The account of the same function for something else.
    fn about(&self, subject: Subject) -> Account {
        Account { function: self.account.function, subject }
    }
}

impl StateStore for ForecastPorts {
    async fn load(&self, id: &TaskId) -> Result<Option<Task>, PortError> {
        tokio::time::sleep(DYNAMODB_TAKES).await;
        let task = self.store().load(id).await?;
        let item = task.as_ref().map(|task| self.world.items.task(task)).transpose()?;
        self.reads(Asked::TasksReads, meter::read_units(item.as_ref()));
        Ok(task)
    }

    async fn create(&self, task: &Task, submitted: &Document) -> Result<Created, PortError> {
        tokio::time::sleep(DYNAMODB_TAKES).await;
        let document = self.world.items.document(&task.owner(), task.kept(), submitted);
        let item = self.world.items.task(task)?;
        let created = self.store().create(task, submitted).await?;
        // A transaction costs double, also one that is refused; the indices follow at the plain price.
        self.writes(Asked::TasksWrites, 2.0 * meter::write_units(&item));
        self.writes(Asked::DocumentsWrites, 2.0 * meter::write_units(&document));
        if created == Created::Created {
            self.writes_indices(task, &meter::replaced(&self.world.items, None, task)?);
            self.writes_document(submitted);
            self.world.recorded(task);
        }
        Ok(created)
    }

    async fn save(&self, task: &Task) -> Result<Saved, PortError> {
        tokio::time::sleep(DYNAMODB_TAKES).await;
        let before = self.store().load(&task.task_id).await?;
        let saved = self.store().save(task).await?;
        match &saved {
            Saved::Saved => {
                let replaced = meter::replaced(&self.world.items, before.as_ref(), task)?;
                self.writes(Asked::TasksWrites, replaced.table);
                self.writes_indices(task, &replaced);
                self.world.recorded(task);
            }
            // A refused write costs what it would have replaced.
            Saved::Conflict(now) => {
                let item = now.as_ref().map(|now| self.world.items.task(now)).transpose()?;
                self.writes(Asked::TasksWrites, item.as_ref().map_or(1.0, meter::write_units));
            }
        }
        Ok(saved)
    }

    async fn put_document(
        &self,
        owner: &Owner,
        kept: Kept,
        document: &Document,
    ) -> Result<Put, PortError> {
        tokio::time::sleep(DYNAMODB_TAKES).await;
        let item = self.world.items.document(owner, kept, document);
        self.writes(Asked::DocumentsWrites, meter::write_units(&item));
        self.writes_document(document);
        self.store().put_document(owner, kept, document).await
    }

    async fn extend_documents(&self, owner: &Owner, kept: Kept) -> Result<(), PortError> {
        self.store().extend_documents(owner, kept).await
    }

    async fn documents(
        &self,
        owner: &Owner,
        keys: &[DocumentKey],
    ) -> Result<Vec<Document>, PortError> {
        tokio::time::sleep(DYNAMODB_TAKES).await;
        let found = self.store().documents(owner, keys).await?;
        // Until when it is kept does not change its size.
        let kept = Kept { from: self.world.time(), retention_s: None };
        let items = found.iter().map(|document| self.world.items.document(owner, kept, document));
        let units: f64 = items.map(|item| meter::read_units(Some(&item))).sum();
        let missing = keys.len().saturating_sub(found.len());
        self.reads(Asked::DocumentsReads, units + missing as f64);
        Ok(found)
    }

    /// The supervisor's look at the index is a cost of the deployment, not of a task.
    async fn due(
        &self,
        shard: u32,
        until: Timestamp,
        after: Option<&DueCursor>,
    ) -> Result<DuePage, PortError> {
        tokio::time::sleep(DYNAMODB_TAKES).await;
        self.store().due(shard, until, after).await
    }

    async fn ended(
        &self,
        state: ProcessState,
        part: u32,
        within: Range<Timestamp>,
        after: Option<&Ended>,
    ) -> Result<EndedPage, PortError> {
        tokio::time::sleep(DYNAMODB_TAKES).await;
        self.store().ended(state, part, within, after).await
    }

    fn shards(&self) -> u32 {
        self.store().shards()
    }

    /// Each instance reads its breaker at most once a second, however many tasks there are.
    async fn shared(&self, key: &SharedKey) -> Result<Option<Shared>, PortError> {
        self.store().shared(key).await
    }

    async fn save_shared(&self, shared: &Shared) -> Result<SharedSaved, PortError> {
        tokio::time::sleep(DYNAMODB_TAKES).await;
        let bytes = shared.body.to_string().len();
        let units = bytes.div_ceil(items::WRITE_UNIT_BYTES).max(1);
        self.writes(Asked::DocumentsWrites, units as f64);
        self.store().save_shared(shared).await
    }

    async fn all_shared(&self, kind: SharedKind) -> Result<Vec<Shared>, PortError> {
        self.store().all_shared(kind).await
    }
}

impl Channel for ForecastPorts {
    async fn send(&self, messages: Vec<Outgoing>) -> Vec<Result<(), PortError>> {
        tokio::time::sleep(SQS_TAKES).await;
        let answers = messages.iter().map(|_| Ok(())).collect();
        for message in messages {
            let account = self.about(Subject::of(&self.world, &message));
            self.world.state().meter.sent(&account, &message, &self.world.plan);
            World::carry(&self.world, message);
        }
        answers
    }

    async fn dead_letters(&self) -> Result<Vec<(String, u64)>, PortError> {
        Ok(Vec::new())
    }
}

impl EventBus for ForecastPorts {
    async fn publish(&self, events: Vec<BusEvent>) -> Vec<Result<(), PortError>> {
        tokio::time::sleep(EVENTBRIDGE_TAKES).await;
        let account = self.about(Subject::task(&self.account.subject.workflow));
        let state = &mut *self.world.state();
        state.visits.asked(Asked::Events, events.len() as f64);
        for event in &events {
            state.meter.published(&account, event);
            state.alerts += u64::from(event.is_task_alert());
        }
        events.iter().map(|_| Ok(())).collect()
    }
}
