//! Messages as a fluid, in portions that remember when they were submitted.

use std::collections::VecDeque;

/// Of messages, what a float leaves over of sums.
const NOTHING: f64 = 1e-6;

/// Some messages of one hop.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Portion {
    pub(super) messages: f64,
    /// When their tasks were submitted, on average, in seconds.
    pub(super) submitted_s: f64,
    /// When the agents were asked, on average, in seconds.
    pub(super) asked_s: f64,
}

impl Portion {
    fn add(&mut self, other: Self) {
        let messages = self.messages + other.messages;
        if messages > 0.0 {
            let share = other.messages / messages;
            self.submitted_s += (other.submitted_s - self.submitted_s) * share;
            self.asked_s += (other.asked_s - self.asked_s) * share;
            self.messages = messages;
        }
    }

    fn split(&mut self, share: f64) -> Self {
        let messages = self.messages * share;
        self.messages -= messages;
        Self { messages, ..*self }
    }
}

/// Portions by hop.
#[derive(Debug, Clone, Default)]
pub(super) struct Pool {
    portions: Vec<Portion>,
    pub(super) messages: f64,
}

impl Pool {
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

    /// Takes a share of each portion.
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

/// First come, first served.
#[derive(Debug, Clone)]
pub(super) struct Fifo {
    /// What comes within so many seconds is taken as one.
    grain_s: f64,
    pools: VecDeque<(f64, Pool)>,
    pub(super) messages: f64,
}

impl Fifo {
    pub(super) const fn new(grain_s: f64) -> Self {
        Self { grain_s, pools: VecDeque::new(), messages: 0.0 }
    }

    /// Puts messages at its end. `at_s` never goes back.
    pub(super) fn put(&mut self, at_s: f64, hop: usize, portion: Portion) {
        self.messages += portion.messages;
        match self.pools.back_mut() {
            Some((since, pool)) if at_s - *since < self.grain_s => pool.add(hop, portion),
            Some(_) | None => {
                let mut pool = Pool::default();
                pool.add(hop, portion);
                self.pools.push_back((at_s, pool));
            }
        }
    }

    /// Moves so many messages from its front into `into`.
    pub(super) fn take(&mut self, messages: f64, into: &mut Pool) {
        let mut wanted = messages;
        while let Some((_, first)) = self.pools.front_mut() {
            if first.messages > wanted + NOTHING {
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

    /// Takes what has been in it since then or longer.
    pub(super) fn take_since(&mut self, since_s: f64) -> Option<Pool> {
        let ripe = self.pools.front().is_some_and(|(since, _)| *since <= since_s);
        let pool = ripe.then(|| self.pools.pop_front()).flatten().map(|(_, pool)| pool);
        if let Some(pool) = &pool {
            self.messages -= pool.messages;
        }
        pool
    }

    /// How long its first message has been in it, in seconds; nothing if there is less than one.
    pub(super) fn oldest_s(&self, now_s: f64) -> f64 {
        let first = self.pools.front().filter(|_| self.messages >= 1.0);
        first.map_or(0.0, |(since, _)| now_s - since)
    }

    pub(super) fn pools(&self) -> impl Iterator<Item = &Pool> {
        self.pools.iter().map(|(_, pool)| pool)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn portion(messages: f64, submitted_s: f64) -> Portion {
        Portion { messages, submitted_s, asked_s: 0.0 }
    }

    #[test]
    fn first_come_is_first_served() {
        let mut queue = Fifo::new(0.1);
        queue.put(0.0, 0, portion(10.0, 1.0));
        queue.put(1.0, 2, portion(30.0, 2.0));
        let mut taken = Pool::default();
        queue.take(20.0, &mut taken);
        let taken: Vec<_> = taken.portions().map(|(hop, part)| (hop, part.messages)).collect();
        assert_eq!(taken, [(0, 10.0), (2, 10.0)]);
        assert!((queue.messages - 20.0).abs() < 1e-9);
        assert!((queue.oldest_s(5.0) - 4.0).abs() < 1e-9);
    }

    #[test]
    fn portions_remember_when_they_were_submitted_on_average() {
        let mut pool = Pool::default();
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
    fn what_a_float_leaves_over_does_not_grow_old() {
        let mut queue = Fifo::new(0.1);
        queue.put(0.0, 0, portion(0.1, 0.0));
        queue.put(0.0, 0, portion(0.2, 0.0));
        queue.take(0.3, &mut Pool::default());
        queue.put(60.0, 0, portion(10.0, 60.0));
        assert!((queue.oldest_s(61.0) - 1.0).abs() < 1e-9, "{}", queue.oldest_s(61.0));
    }

    #[test]
    fn what_is_not_ripe_stays() {
        let mut queue = Fifo::new(0.1);
        queue.put(0.0, 0, portion(1.0, 0.0));
        queue.put(5.0, 0, portion(2.0, 0.0));
        assert!((queue.take_since(3.0).unwrap().messages - 1.0).abs() < 1e-9);
        assert!(queue.take_since(3.0).is_none());
        assert!((queue.messages - 2.0).abs() < 1e-9);
    }
}
