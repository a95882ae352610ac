//! The services' ledgers: side effects, calls and injected faults, by subject.
//!
//! The services write them, so that the audit of a demo does not depend on Steward's own records.

use std::collections::{BTreeMap, HashSet};

use jiff::Timestamp;
use serde::Serialize;

use super::{demo_service::DemoService, fault::FaultKind};

/// A snapshot of the ledgers of all services.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServiceLedgers {
    services: BTreeMap<DemoService, ServiceLedger>,
}

/// The ledger of one service.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub(super) struct ServiceLedger {
    records: BTreeMap<String, SubjectRecord>,
}

/// What one service did for one subject: an order, a package or an account.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct SubjectRecord {
    /// All side effects, undone or not. More than one is an error of the caller.
    pub effects: Vec<SideEffect>,
    /// Well-formed calls, including undos and calls with an injected fault.
    pub calls: u64,
    /// Calls without a side effect because they repeated an idempotency key, or the `PUT` of an id.
    pub deduplicated: u64,
    /// Calls that used an idempotency key or an id again with other content: an error of the caller.
    pub keys_reused: u64,
    /// Calls with an injected fault, by kind.
    pub faults: BTreeMap<FaultKind, u64>,
    /// The message that undid the subject for good: a message that does something has no effect any more. Only services
    /// that read queues need it, because queues do not keep the order of messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub void: Option<String>,
    /// Calls that were carried out or are in progress: one per key. Calls without a side effect, because they were
    /// refused, failed or repeated, are not included.
    #[serde(skip)]
    pub carried_out: Vec<CallRecord>,
}

/// A call that a service carried out, or is carrying out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallRecord {
    /// Its idempotency key, or its method and path.
    pub key: String,
    /// When it arrived, by the service's clock, to the millisecond.
    pub began_at: Timestamp,
    /// When it took effect; `None` while it is in progress.
    pub ended_at: Option<Timestamp>,
}

/// A side effect: a reservation, a charge, a shipment, a package, a booking, a drone or a delivery.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SideEffect {
    /// The id that the service generated and returned, or the id that the caller chose.
    pub id: String,
    /// The call that caused it: its idempotency key, or its method and path.
    pub done_by: String,
    /// The call that undid it.
    pub undone_by: Option<String>,
}

impl ServiceLedgers {
    pub(super) fn new(ledgers: impl Iterator<Item = (DemoService, ServiceLedger)>) -> Self {
        Self { services: ledgers.collect() }
    }

    /// The number of side effects that the service has had for the subject, undone or not.
    #[must_use]
    pub fn effects(&self, service: DemoService, subject: &str) -> usize {
        self.record(service, subject).map_or(0, |record| record.effects.len())
    }

    /// The number of side effects for the subject that have not been undone.
    #[must_use]
    pub fn active_effects(&self, service: DemoService, subject: &str) -> usize {
        self.record(service, subject).map_or(0, SubjectRecord::active_effects)
    }

    /// Whether the service has permanently refused a call for the subject.
    #[must_use]
    pub fn has_refused(&self, service: DemoService, subject: &str) -> bool {
        let record = self.record(service, subject);
        record.is_some_and(|record| record.faults.contains_key(&FaultKind::Refuse))
    }

    /// The service's record of an order, a package or an account; `None` if it was never called for it.
    #[must_use]
    pub fn record(&self, service: DemoService, subject: &str) -> Option<&SubjectRecord> {
        self.services.get(&service)?.records.get(subject)
    }

    /// The subjects for which the service was called, with or without side effect, sorted.
    pub fn subjects(&self, service: DemoService) -> impl Iterator<Item = &str> {
        self.services
            .get(&service)
            .into_iter()
            .flat_map(|ledger| ledger.records.keys())
            .map(String::as_str)
    }

    /// The number of well-formed calls to all services.
    #[must_use]
    pub fn calls_total(&self) -> u64 {
        self.all().map(|record| record.calls).sum()
    }

    /// The number of calls to all services that were recognised as repeated.
    #[must_use]
    pub fn deduplicated_total(&self) -> u64 {
        self.all().map(|record| record.deduplicated).sum()
    }

    /// The number of calls to all services with an injected fault of this kind.
    #[must_use]
    pub fn faults_total(&self, kind: FaultKind) -> u64 {
        self.all().filter_map(|record| record.faults.get(&kind)).sum()
    }

    /// These ledgers without call times, so that two runs can be compared.
    #[cfg(test)]
    pub(super) fn without_times(mut self) -> Self {
        let records = self.services.values_mut().flat_map(|ledger| ledger.records.values_mut());
        records.for_each(|record| record.carried_out.clear());
        self
    }

    fn all(&self) -> impl Iterator<Item = &SubjectRecord> {
        self.services.values().flat_map(|ledger| ledger.records.values())
    }
}

impl ServiceLedger {
    /// Removes the records of these subjects.
    pub(super) fn forget(&mut self, subjects: &HashSet<String>) {
        self.records.retain(|subject, _| !subjects.contains(subject));
    }

    pub(super) fn record_mut(&mut self, subject: &str) -> &mut SubjectRecord {
        self.records.entry(subject.to_owned()).or_default()
    }
}

/// The time to the millisecond: the same precision as the stored times of tasks, so that both can be compared.
fn now() -> Timestamp {
    let now = Timestamp::now();
    Timestamp::from_millisecond(now.as_millisecond()).unwrap_or(now)
}

impl SubjectRecord {
    /// The number of side effects that have not been undone.
    #[must_use]
    pub fn active_effects(&self) -> usize {
        self.effects.iter().filter(|effect| effect.undone_by.is_none()).count()
    }

    /// The calls that were in progress after `time`, or began after it.
    pub fn calls_after(&self, time: Timestamp) -> impl Iterator<Item = &CallRecord> {
        let is_after = move |call: &&CallRecord| call.ended_at.is_none_or(|ended| ended > time);
        self.carried_out.iter().filter(is_after)
    }

    /// Records the beginning of a call, and returns its index in `carried_out`.
    pub(super) fn begin_call(&mut self, key: &str) -> usize {
        let call = CallRecord { key: key.to_owned(), began_at: now(), ended_at: None };
        self.carried_out.push(call);
        self.carried_out.len() - 1
    }

    /// Records that the call with this index has taken effect.
    pub(super) fn end_call(&mut self, index: usize) {
        if let Some(call) = self.carried_out.get_mut(index) {
            call.ended_at = Some(now());
        }
    }

    /// Counts a call with an injected fault.
    pub(super) fn count_fault(&mut self, kind: FaultKind) {
        *self.faults.entry(kind).or_default() += 1;
    }

    /// Undoes the active side effects that `matches` selects, and returns their ids. `call` is the key of the undo.
    pub(super) fn undo(
        &mut self,
        call: &str,
        matches: impl Fn(&SideEffect) -> bool,
    ) -> Vec<String> {
        let active = self.effects.iter_mut().filter(|effect| effect.undone_by.is_none());
        active
            .filter(|effect| matches(effect))
            .map(|effect| {
                effect.undone_by = Some(call.to_owned());
                effect.id.clone()
            })
            .collect()
    }
}
