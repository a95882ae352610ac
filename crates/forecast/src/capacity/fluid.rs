//! Messages as a fluid, in portions that keep the average time of their submission.

use std::collections::{BTreeMap, VecDeque};

/// Rounding errors of sums of messages are below this.
const ROUNDING_ERROR: f64 = 1e-6;

/// Messages that return later do so in this many parts, because each has its own pause.
const RETURN_PARTS: u32 = 8;

/// A number of messages of one hop.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Portion {
    pub(super) messages: f64,
    /// When their tasks were submitted, on average, in seconds.
    pub(super) submitted_s: f64,
    /// When the requests to agents were sent, on average, in seconds.
    pub(super) requested_s: f64,
    /// How often they were held back as submissions, on average.
    pub(super) turns: f64,
}

impl Portion {
    fn add(&mut self, other: Self) {
        let messages = self.messages + other.messages;
        if messages > 0.0 {
            let share = other.messages / messages;
            self.submitted_s += (other.submitted_s - self.submitted_s) * share;
            self.requested_s += (other.requested_s - self.requested_s) * share;
            self.turns += (other.turns - self.turns) * share;
            self.messages = messages;
        }
    }

    pub(super) fn split(&mut self, share: f64) -> Self {
        let messages = self.messages * share;
        self.messages -= messages;
        Self { messages, ..*self }
    }
}

/// Portions by hop.
#[derive(Debug, Clone, Default)]
pub(super) struct PortionPool {
    portions: Vec<Portion>,
    pub(super) messages: f64,
}

impl PortionPool {
    pub(super) fn add(&mut self, hop: usize, portion: Portion) {
        if self.portions.len() <= hop {
            self.portions.resize_with(hop + 1, Portion::default);
        }
        if let Some(slot) = self.portions.get_mut(hop) {
            slot.add(portion);
            self.messages += portion.messages;
        }
    }

    fn add_all(&mut self, other: &Self) {
        for (hop, portion) in other.portions.iter().enumerate() {
            if portion.messages > 0.0 {
                self.add(hop, *portion);
            }
        }
    }

    /// Removes and returns a share of each portion.
    pub(super) fn split(&mut self, share: f64) -> Self {
        let share = share.clamp(0.0, 1.0);
        let portions: Vec<_> =
            self.portions.iter_mut().map(|portion| portion.split(share)).collect();
        let messages = self.messages * share;
        self.messages -= messages;
        Self { portions, messages }
    }

    pub(super) fn portions(&self) -> impl Iterator<Item = (usize, Portion)> {
        let portions = self.portions.iter().copied().enumerate();
        portions.filter(|(_, portion)| portion.messages > 0.0)
    }
}

/// A queue of portions: first in, first out.
#[derive(Debug, Clone)]
pub(super) struct PortionQueue {
    /// Messages that arrive within this many seconds are merged.
    merge_s: f64,
    pools: VecDeque<(f64, PortionPool)>,
    pub(super) messages: f64,
}

impl PortionQueue {
    pub(super) const fn new(merge_s: f64) -> Self {
        Self { merge_s, pools: VecDeque::new(), messages: 0.0 }
    }

    /// Adds messages at the end. `at_s` must not decrease.
    pub(super) fn put(&mut self, at_s: f64, hop: usize, portion: Portion) {
        self.messages += portion.messages;
        match self.pools.back_mut() {
            Some((since, pool)) if at_s - *since < self.merge_s => pool.add(hop, portion),
            Some(_) | None => {
                let mut pool = PortionPool::default();
                pool.add(hop, portion);
                self.pools.push_back((at_s, pool));
            }
        }
    }

    /// Moves this many messages from the front into `into`.
    pub(super) fn take(&mut self, messages: f64, into: &mut PortionPool) {
        let mut wanted = messages;
        while let Some((_, first)) = self.pools.front_mut() {
            if first.messages > wanted + ROUNDING_ERROR {
                let part = first.split(wanted / first.messages);
                self.messages -= part.messages;
                into.add_all(&part);
                return;
            }
            wanted -= first.messages;
            self.messages -= first.messages;
            into.add_all(first);
            self.pools.pop_front();
            if wanted <= 0.0 {
                return;
            }
        }
        self.messages = 0.0;
    }

    /// Removes the first messages, if they arrived at `since_s` or before.
    pub(super) fn take_since(&mut self, since_s: f64) -> Option<PortionPool> {
        let is_due = self.pools.front().is_some_and(|(since, _)| *since <= since_s);
        let pool = is_due.then(|| self.pools.pop_front()).flatten().map(|(_, pool)| pool);
        if let Some(pool) = &pool {
            self.messages -= pool.messages;
        }
        pool
    }

    /// The age of the first message in seconds; 0 if there is less than one message.
    pub(super) fn oldest_s(&self, now_s: f64) -> f64 {
        let first = self.pools.front().filter(|_| self.messages >= 1.0);
        first.map_or(0.0, |(since, _)| now_s - since)
    }

    pub(super) fn pools(&self) -> impl Iterator<Item = &PortionPool> {
        self.pools.iter().map(|(_, pool)| pool)
    }
}

/// Messages that return to a queue later.
#[derive(Debug, Default)]
pub(super) struct ReturningMessages {
    /// By the time of the return, in tenths of a second: the stage, the hop and the messages.
    by_time: BTreeMap<u64, Vec<(usize, usize, Portion)>>,
    pub(super) messages: f64,
}

impl ReturningMessages {
    /// Adds messages of `hop` that return to `stage` after half of `pause_s` to all of it, evenly.
    pub(super) fn put(
        &mut self,
        (stage, hop): (usize, usize),
        mut portion: Portion,
        from_s: f64,
        pause_s: f64,
    ) {
        self.messages += portion.messages;
        for part in 0..RETURN_PARTS {
            let left = RETURN_PARTS - part;
            let returning = portion.split(1.0 / f64::from(left));
            let after_s = pause_s * (0.5 + (f64::from(part) + 0.5) / f64::from(RETURN_PARTS) / 2.0);
            let at = ((from_s + after_s) * 10.0).ceil() as u64;
            self.by_time.entry(at).or_default().push((stage, hop, returning));
        }
    }

    /// Removes the messages that return by now.
    pub(super) fn take_until(&mut self, now_s: f64) -> Vec<(usize, usize, Portion)> {
        let later = self.by_time.split_off(&((now_s * 10.0).floor() as u64 + 1));
        let due: Vec<_> =
            std::mem::replace(&mut self.by_time, later).into_values().flatten().collect();
        self.messages -= due.iter().map(|(.., portion)| portion.messages).sum::<f64>();
        due
    }

    pub(super) fn portions(&self) -> impl Iterator<Item = (usize, Portion)> {
        self.by_time.values().flatten().map(|(_, hop, portion)| (*hop, *portion))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn portion(messages: f64, submitted_s: f64) -> Portion {
        Portion { messages, submitted_s, requested_s: 0.0, turns: 0.0 }
    }

    #[test]
    fn messages_leave_in_the_order_of_arrival() {
        let mut queue = PortionQueue::new(0.1);
        queue.put(0.0, 0, portion(10.0, 1.0));
        queue.put(1.0, 2, portion(30.0, 2.0));
        let mut taken = PortionPool::default();
        queue.take(20.0, &mut taken);
        let taken: Vec<_> = taken.portions().map(|(hop, part)| (hop, part.messages)).collect();
        assert_eq!(taken, [(0, 10.0), (2, 10.0)]);
        assert!((queue.messages - 20.0).abs() < 1e-9);
        assert!((queue.oldest_s(5.0) - 4.0).abs() < 1e-9);
    }

    #[test]
    fn portions_keep_the_average_time_of_submission() {
        let mut pool = PortionPool::default();
        pool.add(1, portion(1.0, 10.0));
        pool.add(1, portion(3.0, 20.0));
        let half = pool.split(0.5);
        for pool in [pool, half] {
            let (hop, part) = pool.portions().next().unwrap();
            assert_eq!((hop, part.messages, part.submitted_s), (1, 2.0, 17.5));
        }
    }

    /// 0.1 + 0.2 is more than 0.3.
    #[test]
    fn a_rounding_error_does_not_count_as_an_old_message() {
        let mut queue = PortionQueue::new(0.1);
        queue.put(0.0, 0, portion(0.1, 0.0));
        queue.put(0.0, 0, portion(0.2, 0.0));
        queue.take(0.3, &mut PortionPool::default());
        queue.put(60.0, 0, portion(10.0, 60.0));
        assert!((queue.oldest_s(61.0) - 1.0).abs() < 1e-9, "{}", queue.oldest_s(61.0));
    }

    #[test]
    fn messages_stay_until_their_delivery_time() {
        let mut queue = PortionQueue::new(0.1);
        queue.put(0.0, 0, portion(1.0, 0.0));
        queue.put(5.0, 0, portion(2.0, 0.0));
        assert!((queue.take_since(3.0).unwrap().messages - 1.0).abs() < 1e-9);
        assert!(queue.take_since(3.0).is_none());
        assert!((queue.messages - 2.0).abs() < 1e-9);
    }
}
