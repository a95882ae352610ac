//! The messages of a queue by message group, and the order in which the queue delivers them. Queues are fair, as SQS's are:
//! the rules are in [`steward_aws::channel::fairness`].

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use steward_aws::channel::fairness::{DeliveryRank, GroupLoad};

use super::{message::QueueMessage, time::Micros};

/// The messages of a queue, by number.
pub(super) type Messages = HashMap<u64, QueueMessage>;

/// The numbers of the messages of a queue, by group. The key `None` has the messages without a group.
#[derive(Default)]
pub(super) struct MessageGroups(BTreeMap<Option<String>, MessageGroup>);

/// The messages of a group.
#[derive(Default)]
struct MessageGroup {
    /// Their numbers, sorted by the time at which they become visible.
    by_visibility: BTreeSet<(Micros, u64)>,
    last_sent_at: Micros,
    is_noisy: bool,
}

impl MessageGroups {
    pub(super) fn insert(&mut self, message: &QueueMessage) {
        let group = match self.0.get_mut(&message.group) {
            Some(group) => group,
            None => self.0.entry(message.group.clone()).or_default(),
        };
        group.by_visibility.insert((message.visible_at, message.number));
        group.last_sent_at = group.last_sent_at.max(message.sent_at);
    }

    pub(super) fn remove(&mut self, message: &QueueMessage) {
        let Some(group) = self.0.get_mut(&message.group) else { return };
        group.by_visibility.remove(&(message.visible_at, message.number));
        if group.by_visibility.is_empty() {
            self.0.remove(&message.group);
        }
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// The numbers of all messages.
    pub(super) fn numbers(&self) -> impl Iterator<Item = u64> {
        self.0.values().flat_map(|group| group.by_visibility.iter().map(|(_, number)| *number))
    }

    /// The numbers of the visible messages in the order of delivery.
    pub(super) fn visible(
        &self,
        now: Micros,
        messages: &Messages,
    ) -> impl Iterator<Item = u64> + use<'_> {
        let mut lanes = Vec::with_capacity(self.0.len());
        for group in self.0.values() {
            let in_flight = if group.is_noisy { group.in_flight(now, messages) } else { 0 };
            let visible = group.by_visibility.range(..=(now, u64::MAX)).copied().peekable();
            lanes.push((DeliveryRank::of(group.is_noisy, in_flight), visible));
        }
        std::iter::from_fn(move || {
            let heads = lanes.iter_mut().filter_map(|(rank, lane)| {
                let head = *lane.peek()?;
                Some(((*rank, head), rank, lane))
            });
            let (_, rank, lane) = heads.min_by_key(|(key, ..)| *key)?;
            if let DeliveryRank::Noisy { in_flight } = rank {
                *in_flight += 1;
            }
            lane.next().map(|(_, number)| number)
        })
    }

    /// The numbers of the hidden messages.
    pub(super) fn hidden(&self, now: Micros) -> impl Iterator<Item = u64> {
        self.0.values().flat_map(move |group| group.hidden(now)).map(|(_, number)| number)
    }

    /// When the next hidden message becomes visible.
    pub(super) fn next_visible_at(&self, now: Micros) -> Option<Micros> {
        self.0.values().filter_map(|group| Some(group.hidden(now).next()?.0)).min()
    }

    /// Decides again which groups are noisy.
    pub(super) fn update_noisy(&mut self, now: Micros, messages: &Messages) {
        if self.0.keys().all(Option::is_none) {
            return;
        }
        let queue_in_flight = self.0.values().map(|group| group.in_flight(now, messages)).sum();
        for group in self.0.iter_mut().filter_map(|(name, group)| name.is_some().then_some(group)) {
            let since = now.saturating_sub(group.last_sent_at).max(0).unsigned_abs();
            let load = GroupLoad {
                in_flight: group.in_flight(now, messages),
                queue_in_flight,
                has_backlog: group.by_visibility.first().is_some_and(|(at, _)| *at <= now),
                since_last_sent: Duration::from_micros(since),
            };
            group.is_noisy = load.is_noisy(group.is_noisy);
        }
    }
}

impl MessageGroup {
    fn hidden(&self, now: Micros) -> impl Iterator<Item = (Micros, u64)> {
        self.by_visibility.range((now.saturating_add(1), 0)..).copied()
    }

    /// The number of messages that consumers hold. Other hidden messages are delayed.
    fn in_flight(&self, now: Micros, messages: &Messages) -> usize {
        let is_held = |number: u64| messages.get(&number).is_some_and(|held| held.receives > 0);
        self.hidden(now).filter(|(_, number)| is_held(*number)).count()
    }
}
