//! The ports of a forecast: in-memory ports whose calls take as long as usual on AWS, and are counted.

use std::{future::Future, sync::Arc, time::Duration};

use steward_aws::items;
use steward_core::model::{
    document::Document, events::BusEvent, retention::DocumentRetention, task::Task,
};
use steward_runtime::ports::{
    Channel, CreateOutcome, EventBus, OutgoingMessage, PortError, SaveOutcome, StateStore,
};
use steward_test_world::{InterceptedPorts, Interceptor, PortCall, PortReply};

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

/// All ports of a function while it handles a message.
pub(super) type ForecastPorts = InterceptedPorts<CountedCalls>;

/// The calls of a function while it handles a message: each takes as long as usual, and is counted.
#[derive(Debug, Clone)]
pub(super) struct CountedCalls {
    simulation: Arc<TaskSimulation>,
    /// The account that its usage is charged to.
    account: CostAccount,
}

/// The ports of a function while it handles a message.
pub(super) fn ports(simulation: Arc<TaskSimulation>, account: CostAccount) -> ForecastPorts {
    let memory = simulation.memory.clone();
    memory.intercepted(CountedCalls { simulation, account })
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
        call: PortCall<'_>,
        effect: impl Future<Output = Result<T, PortError>> + Send,
        view: impl Fn(&T) -> PortReply<'_> + Send,
    ) -> Result<T, PortError> {
        if !is_free(call) {
            tokio::time::sleep(DYNAMODB_LATENCY).await;
        }
        let before = if let PortCall::Save(task) = call {
            self.simulation.memory.store.load(&task.task_id).await?
        } else {
            None
        };
        let reply = effect.await?;
        self.count(call, view(&reply), before.as_ref())?;
        Ok(reply)
    }

    async fn send(
        &self,
        _: &impl Channel,
        messages: Vec<OutgoingMessage>,
    ) -> Vec<Result<(), PortError>> {
        tokio::time::sleep(SQS_LATENCY).await;
        let answers = messages.iter().map(|_| Ok(())).collect();
        for message in messages {
            let account = self.account_for(self.simulation.subject_of(&message));
            self.simulation.state().meter.sent(&account, &message, &self.simulation.plan);
            self.simulation.send_message(message);
        }
        answers
    }

    async fn publish(
        &self,
        _: &impl EventBus,
        events: Vec<BusEvent>,
    ) -> Vec<Result<(), PortError>> {
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

/// Whether a call takes no time and costs nothing. Each instance caches definitions, and reads its breaker at most once a
/// second, for any number of tasks.
fn is_free(call: PortCall<'_>) -> bool {
    matches!(
        call,
        PortCall::ExtendDocuments(_)
            | PortCall::SharedRecord(_)
            | PortCall::SharedRecords(_)
            | PortCall::Workflow(_)
            | PortCall::Published(_)
            | PortCall::Triggered(_)
            | PortCall::Awaiting(_)
    )
}

impl CountedCalls {
    /// Counts a call of the store. `before` is the task before it was saved. Reading the indices is not counted: it is a
    /// cost of the deployment, not of a task.
    fn count(
        &self,
        call: PortCall<'_>,
        reply: PortReply<'_>,
        before: Option<&Task>,
    ) -> Result<(), PortError> {
        let items = &self.simulation.items;
        match (call, reply) {
            (_, PortReply::Loaded(task)) => {
                let item = task.map(|task| items.task(task)).transpose()?;
                self.reads(Resource::TasksReads, meter::read_units(item.as_ref()));
            }
            (PortCall::Create(task, separate), PortReply::Created(created)) => {
                let labels = items.labels(task);
                if !labels.is_empty() {
                    self.reads(Resource::TasksReads, meter::read_units(None));
                    let units = labels.iter().map(meter::write_units).sum();
                    self.writes(Resource::DocumentsWrites, units);
                }
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
            (PortCall::Save(task), PortReply::Saved(SaveOutcome::Saved)) => {
                let replaced = meter::replaced(items, before, task)?;
                self.writes(Resource::TasksWrites, replaced.table);
                self.writes_indices(task, &replaced);
                self.writes_inline_documents(before, task);
                self.simulation.record_task(task);
            }
            // A refused write costs as much as the item that it would have replaced.
            (_, PortReply::Saved(SaveOutcome::Conflict(now))) => {
                let item = now.as_ref().map(|now| items.task(now)).transpose()?;
                self.writes(Resource::TasksWrites, item.as_ref().map_or(1.0, meter::write_units));
            }
            (PortCall::PutDocument(owner, retention, document), _) => {
                let item = items.document(owner, retention, document);
                self.writes(Resource::DocumentsWrites, meter::write_units(&item));
                self.writes_document(document);
            }
            (PortCall::Documents(owner, keys), PortReply::Documents(found)) => {
                // The expiry does not change the size.
                let retention =
                    DocumentRetention { from: self.simulation.time(), retention_s: None };
                let found_items =
                    found.iter().map(|document| items.document(owner, retention, document));
                let units: f64 = found_items.map(|item| meter::read_units(Some(&item))).sum();
                let missing = keys.len().saturating_sub(found.len());
                self.reads(Resource::DocumentsReads, units + missing as f64);
            }
            (PortCall::SaveSharedRecord(shared), _) => {
                let bytes = shared.body.to_string().len();
                let units = bytes.div_ceil(items::WRITE_UNIT_BYTES).max(1);
                self.writes(Resource::DocumentsWrites, units as f64);
            }
            _ => {}
        }
        Ok(())
    }
}
