//! The services' books: what took effect, for whom, how often, and what was done to the callers.
//!
//! Counted on the services' side, so that the audit of a demo need not believe Steward.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{FaultKind, Service};

/// A snapshot of all services' books.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ledger {
    services: BTreeMap<Service, ServiceLedger>,
}

/// One service's book.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub(super) struct ServiceLedger {
    orders: BTreeMap<String, OrderLedger>,
}

/// What one service did for one order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct OrderLedger {
    /// Everything that took effect, undone or not. More than one: a mistake of the caller's.
    pub effects: Vec<Effect>,
    /// Calls that arrived well formed, undos and those that met a fault included.
    pub calls: u64,
    /// Calls that repeated an idempotency key and were given the first answer again.
    pub deduplicated: u64,
    /// Calls that used an idempotency key again for something else: a mistake of the caller's.
    pub keys_reused: u64,
    /// Calls that met a fault, by its kind.
    pub faults: BTreeMap<FaultKind, u64>,
}

/// A reservation, a charge or a shipment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Effect {
    /// The service's own name for it, as in its answer.
    pub id: String,
    /// The idempotency key of the call that brought it about.
    pub idempotency_key: String,
    /// The idempotency key of the call that undid it.
    pub undone_by: Option<String>,
}

impl Ledger {
    pub(super) fn new(books: impl Iterator<Item = (Service, ServiceLedger)>) -> Self {
        Self { services: books.collect() }
    }

    /// How many distinct effects the service had for the order, those since undone included.
    #[must_use]
    pub fn effects(&self, service: Service, order: &str) -> usize {
        self.order(service, order).map_or(0, |order| order.effects.len())
    }

    /// How many of the effects stand, not having been undone.
    #[must_use]
    pub fn standing(&self, service: Service, order: &str) -> usize {
        self.order(service, order).map_or(0, OrderLedger::standing)
    }

    /// All that the service knows of the order; `None` if it was never called for it.
    #[must_use]
    pub fn order(&self, service: Service, order: &str) -> Option<&OrderLedger> {
        self.services.get(&service)?.orders.get(order)
    }

    /// The orders that the service was called for, with or without effect, sorted.
    pub fn orders(&self, service: Service) -> impl Iterator<Item = &str> {
        self.services
            .get(&service)
            .into_iter()
            .flat_map(|book| book.orders.keys())
            .map(String::as_str)
    }

    /// Well-formed calls to all services.
    #[must_use]
    pub fn calls_total(&self) -> u64 {
        self.all().map(|order| order.calls).sum()
    }

    /// Calls to all services that were given an earlier call's answer.
    #[must_use]
    pub fn deduplicated_total(&self) -> u64 {
        self.all().map(|order| order.deduplicated).sum()
    }

    /// Calls to all services that were hit by this kind of fault.
    #[must_use]
    pub fn faults_total(&self, kind: FaultKind) -> u64 {
        self.all().filter_map(|order| order.faults.get(&kind)).sum()
    }

    fn all(&self) -> impl Iterator<Item = &OrderLedger> {
        self.services.values().flat_map(|book| book.orders.values())
    }
}

impl ServiceLedger {
    pub(super) fn order_mut(&mut self, order: &str) -> &mut OrderLedger {
        self.orders.entry(order.to_owned()).or_default()
    }
}

impl OrderLedger {
    /// How many effects have not been undone.
    #[must_use]
    pub fn standing(&self) -> usize {
        self.effects.iter().filter(|effect| effect.undone_by.is_none()).count()
    }

    /// Undoes what stands and returns the ids of what that was.
    pub(super) fn undo(&mut self, idempotency_key: &str) -> Vec<String> {
        let standing = self.effects.iter_mut().filter(|effect| effect.undone_by.is_none());
        standing
            .map(|effect| {
                effect.undone_by = Some(idempotency_key.to_owned());
                effect.id.clone()
            })
            .collect()
    }
}
