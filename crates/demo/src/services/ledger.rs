//! The services' books: what took effect, for whom, how often, and what was done to the callers.
//!
//! Counted on the services' side, so that the audit of a demo need not believe Steward.

use std::collections::BTreeMap;

use jiff::Timestamp;
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
    pages: BTreeMap<String, Page>,
}

/// What one service did for one order, or one package, or one account: whatever it goes by.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Page {
    /// Everything that took effect, undone or not. More than one: a mistake of the caller's.
    pub effects: Vec<Effect>,
    /// Calls that arrived well formed, undos and those that met a fault included.
    pub calls: u64,
    /// Calls that repeated an idempotency key, or asked again for what there is or was under their id,
    /// and had no effect of their own.
    pub deduplicated: u64,
    /// Calls that used an idempotency key or an id again for something else: a mistake of the caller's.
    pub keys_reused: u64,
    /// Calls that met a fault, by its kind.
    pub faults: BTreeMap<FaultKind, u64>,
    /// Calls that were carried out, or are in progress: one for each key. A call that has no effect
    /// because it was refused, failed, or came again is not among them.
    #[serde(skip)]
    pub carried_out: Vec<Call>,
}

/// A call that a service carries out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// Its idempotency key, or its method and path.
    pub key: String,
    /// When it came in, by the service's clock, to the millisecond.
    pub began_at: Timestamp,
    /// When it had taken effect; `None`: it is in progress.
    pub ended_at: Option<Timestamp>,
}

/// A reservation, a charge or a shipment; a package, a booking, a drone or a delivery.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Effect {
    /// The service's own name for it, as in its answer, or the one that its caller chose.
    pub id: String,
    /// The call that brought it about: its idempotency key, or its method and path.
    pub done_by: String,
    /// The call that undid it.
    pub undone_by: Option<String>,
}

impl Ledger {
    pub(super) fn new(books: impl Iterator<Item = (Service, ServiceLedger)>) -> Self {
        Self { services: books.collect() }
    }

    /// How many distinct effects the service had on this page, those since undone included.
    #[must_use]
    pub fn effects(&self, service: Service, page: &str) -> usize {
        self.page(service, page).map_or(0, |page| page.effects.len())
    }

    /// How many of the effects stand, not having been undone.
    #[must_use]
    pub fn standing(&self, service: Service, page: &str) -> usize {
        self.page(service, page).map_or(0, Page::standing)
    }

    /// Whether the service has refused anything on this page for good.
    #[must_use]
    pub fn has_refused(&self, service: Service, page: &str) -> bool {
        self.page(service, page).is_some_and(|page| page.faults.contains_key(&FaultKind::Refuse))
    }

    /// All that the service knows of an order, a package, an account; `None` if it was never called
    /// for it.
    #[must_use]
    pub fn page(&self, service: Service, name: &str) -> Option<&Page> {
        self.services.get(&service)?.pages.get(name)
    }

    /// What the service was called for, with or without effect, sorted.
    pub fn pages(&self, service: Service) -> impl Iterator<Item = &str> {
        self.services
            .get(&service)
            .into_iter()
            .flat_map(|book| book.pages.keys())
            .map(String::as_str)
    }

    /// Well-formed calls to all services.
    #[must_use]
    pub fn calls_total(&self) -> u64 {
        self.all().map(|page| page.calls).sum()
    }

    /// Calls to all services that were recognised as repeats.
    #[must_use]
    pub fn deduplicated_total(&self) -> u64 {
        self.all().map(|page| page.deduplicated).sum()
    }

    /// Calls to all services that were hit by this kind of fault.
    #[must_use]
    pub fn faults_total(&self, kind: FaultKind) -> u64 {
        self.all().filter_map(|page| page.faults.get(&kind)).sum()
    }

    /// The same books of a run that took place at another time.
    #[cfg(test)]
    pub(super) fn without_times(mut self) -> Self {
        let pages = self.services.values_mut().flat_map(|book| book.pages.values_mut());
        pages.for_each(|page| page.carried_out.clear());
        self
    }

    fn all(&self) -> impl Iterator<Item = &Page> {
        self.services.values().flat_map(|book| book.pages.values())
    }
}

impl ServiceLedger {
    pub(super) fn page_mut(&mut self, name: &str) -> &mut Page {
        self.pages.entry(name.to_owned()).or_default()
    }
}

/// The time to the millisecond, as a task's times are stored: what is compared is equally exact.
fn now() -> Timestamp {
    let now = Timestamp::now();
    Timestamp::from_millisecond(now.as_millisecond()).unwrap_or(now)
}

impl Page {
    /// How many effects have not been undone.
    #[must_use]
    pub fn standing(&self) -> usize {
        self.effects.iter().filter(|effect| effect.undone_by.is_none()).count()
    }

    /// The calls that were in progress after `time`, or began after it.
    pub fn calls_after(&self, time: Timestamp) -> impl Iterator<Item = &Call> {
        let is_after = move |call: &&Call| call.ended_at.is_none_or(|ended| ended > time);
        self.carried_out.iter().filter(is_after)
    }

    /// Notes that a call begins, and returns its number on this page.
    pub(super) fn begin_call(&mut self, key: &str) -> usize {
        let call = Call { key: key.to_owned(), began_at: now(), ended_at: None };
        self.carried_out.push(call);
        self.carried_out.len() - 1
    }

    /// Notes that the call of this number has taken effect.
    pub(super) fn end_call(&mut self, call: usize) {
        if let Some(call) = self.carried_out.get_mut(call) {
            call.ended_at = Some(now());
        }
    }

    /// Counts a call that met a fault.
    pub(super) fn meets(&mut self, kind: FaultKind) {
        *self.faults.entry(kind).or_default() += 1;
    }

    /// Undoes what stands and is meant, and returns the ids of what that was.
    pub(super) fn undo(&mut self, call: &str, is_meant: impl Fn(&Effect) -> bool) -> Vec<String> {
        let standing = self.effects.iter_mut().filter(|effect| effect.undone_by.is_none());
        standing
            .filter(|effect| is_meant(effect))
            .map(|effect| {
                effect.undone_by = Some(call.to_owned());
                effect.id.clone()
            })
            .collect()
    }
}
