//! The ports of a forecast: in-memory ports whose calls take as long as usual on AWS, and are counted.

use std::{ops::Range, sync::Arc, time::Duration};
use steward_core::definition::plan::Plan;

use jiff::Timestamp;
use steward_aws::items;
use steward_core::model::{
    document::{Document, DocumentKey, DocumentOwner, DocumentRetention},
    events::BusEvent,
    names::{TaskId, WorkflowName},
    task::{ProcessState, Task},
    time::Timing,
};
use steward_runtime::ports::{
    Channel, Clock, CreateOutcome, Definitions, DueCursor, DuePage, EndedTask, EndedTaskPage,
    EventBus, OutgoingMessage, PortError, Ports, PutOutcome, SaveOutcome, SharedRecord,
    SharedRecordKey, SharedRecordKind, SharedSaveOutcome, StateStore,
};

use super::{
    demand::Resource,
    ledger::{CostAccount, CostSubject},
    meter::{self, ReplaceUnits},
    prices::TaskUsage,
    task_simulation::TaskSimulation,
};

/// The duration of a request to DynamoDB.
pub(super) const DYNAMODB_LATENCY: Duration = Duration::from_millis(5);

/// The duration of a request to SQS.
pub(super) const SQS_LATENCY: Duration = Duration::from_millis(10);

/// The duration of a request to EventBridge.
pub(super) const EVENTBRIDGE_LATENCY: Duration = Duration::from_millis(20);

/// An instance name of the length on AWS, since it is part of the size of a task's item.
const INSTANCE: &str = "scheduler-0badcafe";

/// All ports of a function while it handles a message.
#[derive(Debug, Clone)]
pub(super) struct ForecastPorts {
    pub(super) simulation: Arc<TaskSimulation>,
    /// The account that its usage is charged to.
    pub(super) account: CostAccount,
}

/// Each port is this type.
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
        self.simulation.memory.timing()
    }
    fn instance(&self) -> &str {
        INSTANCE
    }
}

impl Clock for ForecastPorts {
    fn now(&self) -> Timestamp {
        self.simulation.time()
    }

    async fn sleep(&self, duration: Duration) {
        tokio::time::sleep(duration).await;
    }
}

impl Definitions for ForecastPorts {
    /// Costs nothing: instances cache definitions.
    async fn workflow(
        &self,
        name: &WorkflowName,
        version: Option<u32>,
    ) -> Result<Option<Arc<Plan>>, PortError> {
        self.simulation.plan.definitions.workflow(name, version).await
    }

    async fn published(
        &self,
        name: &WorkflowName,
        version: Option<u32>,
    ) -> Result<Option<Arc<Plan>>, PortError> {
        self.simulation.plan.definitions.published(name, version).await
    }

    async fn triggered(
        &self,
        source: &str,
        detail_type: &str,
    ) -> Result<Vec<Arc<Plan>>, PortError> {
        self.simulation.plan.definitions.triggered(source, detail_type).await
    }
}

impl ForecastPorts {
    fn store(&self) -> &steward_testkit::memory::MemoryStore {
        self.simulation.memory.store()
    }

    fn reads(&self, of: Resource, read_units: f64) {
        let state = &mut *self.simulation.state();
        state.meter.add(&self.account, TaskUsage { read_units, ..TaskUsage::default() });
        state.demand_counts.add_units(of, read_units);
    }

    fn writes(&self, of: Resource, write_units: f64) {
        self.writes_for(&self.account, of, write_units);
    }

    /// Charges writes of the indices to the task, whichever function makes them. The index of ended tasks is not part of
    /// the demand: it has half the load of the due index on half as many keys, so the due index reaches its limit first.
    fn writes_indices(&self, task: &Task, replaced: &ReplaceUnits) {
        let account = self.account_for(CostSubject::task(&task.workflow));
        self.writes_for(&account, Resource::IndexWrites, replaced.due);
        let usage = TaskUsage { write_units: replaced.ended, ..TaskUsage::default() };
        self.simulation.state().meter.add(&account, usage);
    }

    fn writes_for(&self, account: &CostAccount, of: Resource, write_units: f64) {
        let state = &mut *self.simulation.state();
        state.meter.add(account, TaskUsage { write_units, ..TaskUsage::default() });
        state.demand_counts.add_units(of, write_units);
    }

    fn writes_document(&self, document: &Document) {
        self.simulation.state().meter.written_bytes += document.body.to_string().len() as u64;
    }

    /// The account of the same function for another subject.
    fn account_for(&self, subject: CostSubject) -> CostAccount {
        CostAccount { function: self.account.function, subject }
    }
}

impl StateStore for ForecastPorts {
    async fn load(&self, id: &TaskId) -> Result<Option<Task>, PortError> {
        tokio::time::sleep(DYNAMODB_LATENCY).await;
        let task = self.store().load(id).await?;
        let item = task.as_ref().map(|task| self.simulation.items.task(task)).transpose()?;
        self.reads(Resource::TasksReads, meter::read_units(item.as_ref()));
        Ok(task)
    }

    async fn create(&self, task: &Task, submitted: &Document) -> Result<CreateOutcome, PortError> {
        tokio::time::sleep(DYNAMODB_LATENCY).await;
        let document =
            self.simulation.items.document(&task.document_owner(), task.kept(), submitted);
        let item = self.simulation.items.task(task)?;
        let created = self.store().create(task, submitted).await?;
        // A transaction costs double, also a refused one. The indices cost the normal price.
        self.writes(Resource::TasksWrites, 2.0 * meter::write_units(&item));
        self.writes(Resource::DocumentsWrites, 2.0 * meter::write_units(&document));
        if created == CreateOutcome::Created {
            self.writes_indices(task, &meter::replaced(&self.simulation.items, None, task)?);
            self.writes_document(submitted);
            self.simulation.record_task(task);
        }
        Ok(created)
    }

    async fn save(&self, task: &Task) -> Result<SaveOutcome, PortError> {
        tokio::time::sleep(DYNAMODB_LATENCY).await;
        let before = self.store().load(&task.task_id).await?;
        let saved = self.store().save(task).await?;
        match &saved {
            SaveOutcome::Saved => {
                let replaced = meter::replaced(&self.simulation.items, before.as_ref(), task)?;
                self.writes(Resource::TasksWrites, replaced.table);
                self.writes_indices(task, &replaced);
                self.simulation.record_task(task);
            }
            // A refused write costs as much as the item that it would have replaced.
            SaveOutcome::Conflict(now) => {
                let item = now.as_ref().map(|now| self.simulation.items.task(now)).transpose()?;
                self.writes(Resource::TasksWrites, item.as_ref().map_or(1.0, meter::write_units));
            }
        }
        Ok(saved)
    }

    async fn put_document(
        &self,
        owner: &DocumentOwner,
        kept: DocumentRetention,
        document: &Document,
    ) -> Result<PutOutcome, PortError> {
        tokio::time::sleep(DYNAMODB_LATENCY).await;
        let item = self.simulation.items.document(owner, kept, document);
        self.writes(Resource::DocumentsWrites, meter::write_units(&item));
        self.writes_document(document);
        self.store().put_document(owner, kept, document).await
    }

    async fn extend_documents(
        &self,
        owner: &DocumentOwner,
        kept: DocumentRetention,
    ) -> Result<(), PortError> {
        self.store().extend_documents(owner, kept).await
    }

    async fn documents(
        &self,
        owner: &DocumentOwner,
        keys: &[DocumentKey],
    ) -> Result<Vec<Document>, PortError> {
        tokio::time::sleep(DYNAMODB_LATENCY).await;
        let found = self.store().documents(owner, keys).await?;
        // The expiry does not change the size.
        let kept = DocumentRetention { from: self.simulation.time(), retention_s: None };
        let items =
            found.iter().map(|document| self.simulation.items.document(owner, kept, document));
        let units: f64 = items.map(|item| meter::read_units(Some(&item))).sum();
        let missing = keys.len().saturating_sub(found.len());
        self.reads(Resource::DocumentsReads, units + missing as f64);
        Ok(found)
    }

    /// Not counted: reading the due index is a cost of the deployment, not of a task.
    async fn due_tasks(
        &self,
        shard: u32,
        until: Timestamp,
        after: Option<&DueCursor>,
    ) -> Result<DuePage, PortError> {
        tokio::time::sleep(DYNAMODB_LATENCY).await;
        self.store().due_tasks(shard, until, after).await
    }

    async fn ended_tasks(
        &self,
        state: ProcessState,
        part: u32,
        within: Range<Timestamp>,
        after: Option<&EndedTask>,
    ) -> Result<EndedTaskPage, PortError> {
        tokio::time::sleep(DYNAMODB_LATENCY).await;
        self.store().ended_tasks(state, part, within, after).await
    }

    fn shards(&self) -> u32 {
        self.store().shards()
    }

    /// Not counted: each instance reads its breaker at most once a second, for any number of tasks.
    async fn shared_record(
        &self,
        key: &SharedRecordKey,
    ) -> Result<Option<SharedRecord>, PortError> {
        self.store().shared_record(key).await
    }

    async fn save_shared_record(
        &self,
        shared: &SharedRecord,
    ) -> Result<SharedSaveOutcome, PortError> {
        tokio::time::sleep(DYNAMODB_LATENCY).await;
        let bytes = shared.body.to_string().len();
        let units = bytes.div_ceil(items::WRITE_UNIT_BYTES).max(1);
        self.writes(Resource::DocumentsWrites, units as f64);
        self.store().save_shared_record(shared).await
    }

    async fn shared_records(&self, kind: SharedRecordKind) -> Result<Vec<SharedRecord>, PortError> {
        self.store().shared_records(kind).await
    }
}

impl Channel for ForecastPorts {
    async fn send(&self, messages: Vec<OutgoingMessage>) -> Vec<Result<(), PortError>> {
        tokio::time::sleep(SQS_LATENCY).await;
        let answers = messages.iter().map(|_| Ok(())).collect();
        for message in messages {
            let account = self.account_for(self.simulation.subject_of(&message));
            self.simulation.state().meter.sent(&account, &message, &self.simulation.plan);
            self.simulation.send_message(message);
        }
        answers
    }

    async fn dead_letters(&self) -> Result<Vec<(String, u64)>, PortError> {
        Ok(Vec::new())
    }
}

impl EventBus for ForecastPorts {
    async fn publish(&self, events: Vec<BusEvent>) -> Vec<Result<(), PortError>> {
        tokio::time::sleep(EVENTBRIDGE_LATENCY).await;
        let account = self.account_for(CostSubject::task(&self.account.subject.workflow));
        let state = &mut *self.simulation.state();
        state.demand_counts.add_units(Resource::Events, events.len() as f64);
        for event in &events {
            state.meter.published(&account, event);
            state.alerts += u64::from(event.is_task_alert());
        }
        events.iter().map(|_| Ok(())).collect()
    }
}
