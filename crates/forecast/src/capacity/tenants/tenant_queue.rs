//! A queue of the simulation: the waiting messages of each tenant, and the order in which they are delivered.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use steward_aws::channel::fairness::{DeliveryRank, GroupLoad};

/// How the queues order messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Delivery {
    /// Quiet tenants first, as SQS does if messages have a message group id.
    Fair,
    /// In the order of arrival, as SQS does without message group ids.
    InOrder,
}

/// The number of a tenant. The noisy one is 0.
pub(super) type TenantNumber = usize;

/// A message of a task.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct SimulatedMessage {
    pub(super) task: usize,
    pub(super) tenant: TenantNumber,
    pub(super) hop: usize,
    /// When it was sent, in microseconds.
    pub(super) sent_at: u64,
    /// How often it was put back into the queue.
    pub(super) turns: u32,
}

/// A queue.
#[derive(Debug)]
pub(super) struct TenantQueue {
    delivery: Delivery,
    tenants: BTreeMap<TenantNumber, TenantMessages>,
    in_flight: usize,
    arrived: u64,
}

/// The messages of a tenant.
#[derive(Debug, Default)]
struct TenantMessages {
    /// With the number of their arrival at the queue.
    waiting: VecDeque<(u64, SimulatedMessage)>,
    in_flight: usize,
    last_sent_at: u64,
    is_noisy: bool,
}

impl TenantQueue {
    pub(super) fn new(delivery: Delivery) -> Self {
        Self { delivery, tenants: BTreeMap::new(), in_flight: 0, arrived: 0 }
    }

    pub(super) fn put(&mut self, message: SimulatedMessage, now: u64) {
        self.arrived += 1;
        let of = self.tenants.entry(message.tenant).or_default();
        of.waiting.push_back((self.arrived, message));
        of.last_sent_at = now;
    }

    /// Takes up to `max` messages. They are in flight until [`finish`](Self::finish).
    pub(super) fn take(&mut self, max: usize, now: u64) -> Vec<SimulatedMessage> {
        let mut taken = Vec::new();
        while taken.len() < max {
            let heads = self.tenants.values_mut().filter_map(|of| {
                let (arrived, _) = of.waiting.front()?;
                Some(((DeliveryRank::of(of.is_noisy, of.in_flight), *arrived), of))
            });
            let Some((_, of)) = heads.min_by_key(|(key, _)| *key) else { break };
            taken.extend(of.waiting.pop_front().map(|(_, message)| message));
            of.in_flight += 1;
            self.in_flight += 1;
        }
        self.update_noisy(now);
        taken
    }

    pub(super) fn finish(&mut self, messages: &[SimulatedMessage]) {
        for message in messages {
            if let Some(of) = self.tenants.get_mut(&message.tenant) {
                of.in_flight = of.in_flight.saturating_sub(1);
                self.in_flight = self.in_flight.saturating_sub(1);
            }
        }
    }

    fn update_noisy(&mut self, now: u64) {
        if self.delivery == Delivery::InOrder {
            return;
        }
        let queue_in_flight = self.in_flight;
        for of in self.tenants.values_mut() {
            let load = GroupLoad {
                in_flight: of.in_flight,
                queue_in_flight,
                has_backlog: !of.waiting.is_empty(),
                since_last_sent: Duration::from_micros(now.saturating_sub(of.last_sent_at)),
            };
            of.is_noisy = load.is_noisy(of.is_noisy);
        }
    }
}
