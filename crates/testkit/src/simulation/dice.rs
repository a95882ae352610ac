//! Seeded chance: the only source of it in a simulated world.

use std::ops::RangeInclusive;

/// Dice that fall the same way whenever they start from the same seed.
#[derive(Debug)]
pub(super) struct Dice(fastrand::Rng);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Self(fastrand::Rng::with_seed(seed))
    }

    /// True this often, from 0 to 1.
    pub(super) fn chance(&mut self, share: f64) -> bool {
        share > 0.0 && self.0.f64() < share
    }

    /// A number from the range.
    pub(super) fn within(&mut self, range: RangeInclusive<u64>) -> u64 {
        self.0.u64(range)
    }

    /// A number up to `max`; small ones are as likely as large ones.
    pub(super) fn skewed(&mut self, max: u64) -> u64 {
        let bits = u64::BITS - max.leading_zeros();
        let bits = self.0.u32(0..=bits);
        self.within(0..=max.min((1_u64 << bits.min(62)) - 1))
    }

    /// One of the choices.
    pub(super) fn pick<T: Clone>(&mut self, first: T, others: &[T]) -> T {
        let n = self.0.usize(0..=others.len());
        others.get(n).cloned().unwrap_or(first)
    }

    /// One place of a list, if it has any.
    pub(super) fn place(&mut self, length: usize) -> Option<usize> {
        (length > 0).then(|| self.0.usize(0..length))
    }
}
