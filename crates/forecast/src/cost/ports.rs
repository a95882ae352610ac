//! The ports of a forecast: in-memory ports whose calls take as long as usual on AWS, and are counted.

use std::{future::Future, sync::Arc, time::Duration};
use steward_core::{callback_url::CallbackUrls, definition::plan::Plan};

use jiff::Timestamp;
use steward_aws::items;
use steward_core::model::{
    document::Document, events::BusEvent, names::WorkflowName, retention::DocumentRetention,
    task::Task, time::Timing,
};
use steward_test_world::{
    MemoryStore,
    intercepted_store::{InterceptedStore, Interceptor, StoreCall, StoreReply},
};
use steward_runtime::ports::{
    Channel, Clock, CreateOutcome, Definitions, EventBus, OutgoingMessage, PortError, Ports, Queue,
    SaveOutcome, StateStore,
};

use super::{
    demand::Resource,
    ledger::{CostAccount, CostSubject},
    meter::{self, ReplaceUnits},
    prices::TaskUsage,
    scripted::script::LogItem,
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
    store: InterceptedStore<MemoryStore, CountedCalls>,
}

/// The calls of a function while it handles a message: each takes as long as usual, and is counted.
#[derive(Debug, Clone)]
pub(super) struct CountedCalls {
    simulation: Arc<TaskSimulation>,
    /// The account that its usage is charged to.
    account: CostAccount,
}

impl ForecastPorts {
    pub(super) fn new(simulation: Arc<TaskSimulation>, account: CostAccount) -> Self {
        let store = simulation.memory.store().clone();
        Self {
            store: InterceptedStore { store, interceptor: CountedCalls { simulation, account } },
        }
    }
}

impl Ports for ForecastPorts {
    type Store = InterceptedStore<MemoryStore, CountedCalls>;
    type Definitions = CountedCalls;
    type Channel = CountedCalls;
    type Bus = CountedCalls;
    type Clock = CountedCalls;

    fn store(&self) -> &Self::Store {
        &self.store
    }
    fn definitions(&self) -> &CountedCalls {
        &self.store.interceptor
    }
    fn channel(&self) -> &CountedCalls {
        &self.store.interceptor
    }
    fn bus(&self) -> &CountedCalls {
        &self.store.interceptor
    }
    fn clock(&self) -> &CountedCalls {
        &self.store.interceptor
    }
    fn timing(&self) -> Timing {
        self.store.interceptor.simulation.memory.timing()
    }
    fn instance(&self) -> &str {
        INSTANCE
    }
    fn callback_urls(&self) -> Option<Arc<CallbackUrls>> {
        self.store.interceptor.simulation.callback_urls.clone()
    }
}

impl Clock for CountedCalls {
    fn now(&self) -> Timestamp {
        self.simulation.time()
    }

    async fn sleep(&self, duration: Duration) {
        tokio::time::sleep(duration).await;
    }
}

impl Definitions for CountedCalls {
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

    async fn awaiting(&self, source: &str, detail_type: &str) -> Result<Vec<Arc<Plan>>, PortError> {
        self.simulation.plan.definitions.awaiting(source, detail_type).await
    }
}

impl CountedCalls {
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

    /// Counts the documents that are new in the task's item.
    fn writes_inline_documents(&self, before: Option<&Task>, after: &Task) {
        let is_new = |document: &Document| {
            before.is_none_or(|before| !before.documents.contains(&document.key))
        };
        after.documents.iter().filter(is_new).for_each(|document| self.writes_document(&document));
    }

    /// The account of the same function for another subject.
    fn account_for(&self, subject: CostSubject) -> CostAccount {
        CostAccount { function: self.account.function, subject }
    }
}

impl Interceptor for CountedCalls {
    async fn intercept<T: Send + Sync>(
        &self,
        call: StoreCall<'_>,
        effect: impl Future<Output = Result<T, PortError>> + Send,
        view: impl Fn(&T) -> StoreReply<'_> + Send,
    ) -> Result<T, PortError> {
        if !is_free(call) {
            tokio::time::sleep(DYNAMODB_LATENCY).await;
        }
        let before = if let StoreCall::Save(task) = call {
            self.simulation.memory.store().load(&task.task_id).await?
        } else {
            None
        };
        let reply = effect.await?;
        self.count(call, view(&reply), before.as_ref())?;
        Ok(reply)
    }
}

/// Whether a call takes no time and costs nothing. Each instance reads its breaker at most once a second, for any number
/// of tasks.
fn is_free(call: StoreCall<'_>) -> bool {
    matches!(
        call,
        StoreCall::ExtendDocuments(_) | StoreCall::SharedRecord(_) | StoreCall::SharedRecords(_)
    )
}

impl CountedCalls {
    /// Counts a call of the store. `before` is the task before it was saved. Reading the indices is not counted: it is a
    /// cost of the deployment, not of a task.
    fn count(
        &self,
        call: StoreCall<'_>,
        reply: StoreReply<'_>,
        before: Option<&Task>,
    ) -> Result<(), PortError> {
        let items = &self.simulation.items;
        match (call, reply) {
            (_, StoreReply::Loaded(task)) => {
                let item = task.map(|task| items.task(task)).transpose()?;
                self.reads(Resource::TasksReads, meter::read_units(item.as_ref()));
            }
            (StoreCall::Create(task, separate), StoreReply::Created(created)) => {
                // A transaction costs double, also a refused one. The indices cost the normal price.
                let price = if separate.is_some() { 2.0 } else { 1.0 };
                self.writes(Resource::TasksWrites, price * meter::write_units(&items.task(task)?));
                if let Some(document) = separate {
                    let (owner, retention) = (task.document_owner(), task.document_retention());
                    let item = items.document(&owner, retention, document);
                    self.writes(Resource::DocumentsWrites, price * meter::write_units(&item));
                }
                if *created == CreateOutcome::Created {
                    self.writes_indices(task, &meter::replaced(items, None, task)?);
                    separate.into_iter().for_each(|document| self.writes_document(document));
                    self.writes_inline_documents(None, task);
                    self.simulation.record_task(task);
                }
            }
            (StoreCall::Save(task), StoreReply::Saved(SaveOutcome::Saved)) => {
                let replaced = meter::replaced(items, before, task)?;
                self.writes(Resource::TasksWrites, replaced.table);
                self.writes_indices(task, &replaced);
                self.writes_inline_documents(before, task);
                self.simulation.record_task(task);
            }
            // A refused write costs as much as the item that it would have replaced.
            (_, StoreReply::Saved(SaveOutcome::Conflict(now))) => {
                let item = now.as_ref().map(|now| items.task(now)).transpose()?;
                self.writes(Resource::TasksWrites, item.as_ref().map_or(1.0, meter::write_units));
            }
            (StoreCall::PutDocument(owner, retention, document), _) => {
                let item = items.document(owner, retention, document);
                self.writes(Resource::DocumentsWrites, meter::write_units(&item));
                self.writes_document(document);
            }
            (StoreCall::Documents(owner, keys), StoreReply::Documents(found)) => {
                // The expiry does not change the size.
                let retention =
                    DocumentRetention { from: self.simulation.time(), retention_s: None };
                let found_items =
                    found.iter().map(|document| items.document(owner, retention, document));
                let units: f64 = found_items.map(|item| meter::read_units(Some(&item))).sum();
                let missing = keys.len().saturating_sub(found.len());
                self.reads(Resource::DocumentsReads, units + missing as f64);
            }
            (StoreCall::SaveSharedRecord(shared), _) => {
                let bytes = shared.body.to_string().len();
                let units = bytes.div_ceil(items::WRITE_UNIT_BYTES).max(1);
                self.writes(Resource::DocumentsWrites, units as f64);
            }
            _ => {}
        }
        Ok(())
    }
}

impl Channel for CountedCalls {
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

    fn configured_dead_letter_queues(&self) -> Vec<String> {
        Vec::new()
    }

    async fn dead_letters(&self, _: &[String]) -> Vec<(String, Result<u64, PortError>)> {
        Vec::new()
    }

    async fn unread(&self, queues: &[Queue]) -> Vec<Result<bool, PortError>> {
        queues.iter().map(|_| Ok(false)).collect()
    }
}

impl EventBus for CountedCalls {
    async fn publish(&self, events: Vec<BusEvent>) -> Vec<Result<(), PortError>> {
        tokio::time::sleep(EVENTBRIDGE_LATENCY).await;
        let state = &mut *self.simulation.state();
        state.demand_counts.add_units(Resource::Events, events.len() as f64);
        if let Some(scripted) = &self.simulation.scripted {
            let now = self.simulation.now();
            events.iter().for_each(|event| scripted.log(now, LogItem::Published(event.clone())));
        }
        for event in &events {
            let subject = CostSubject::of_event(event, &self.account.subject.workflow);
            state.meter.published(&self.account_for(subject), event);
            state.alerts += u64::from(event.alerted_end().is_some());
        }
        events.iter().map(|_| Ok(())).collect()
    }
}
