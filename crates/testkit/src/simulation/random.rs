//! Seeded random choices: the only source of randomness in a simulation.

use std::ops::RangeInclusive;

/// A random generator that makes the same choices for the same seed.
#[derive(Debug)]
pub(super) struct SeededRandom(fastrand::Rng);

impl SeededRandom {
    pub(super) fn new(seed: u64) -> Self {
        Self(fastrand::Rng::with_seed(seed))
    }

    /// True with a probability of `share`, from 0 to 1.
    pub(super) fn chance(&mut self, share: f64) -> bool {
        share > 0.0 && self.0.f64() < share
    }

    /// A uniformly distributed number from the range.
    pub(super) fn within(&mut self, range: RangeInclusive<u64>) -> u64 {
        self.0.u64(range)
    }

    /// A number up to `max`, distributed over orders of magnitude: small numbers are as likely as large ones.
    pub(super) fn skewed(&mut self, max: u64) -> u64 {
        let bits = u64::BITS - max.leading_zeros();
        let bits = self.0.u32(0..=bits);
        self.within(0..=max.min((1_u64 << bits.min(62)) - 1))
    }

    /// One of the choices, each with the same probability.
    pub(super) fn pick<T: Clone>(&mut self, first: T, others: &[T]) -> T {
        let n = self.0.usize(0..=others.len());
        others.get(n).cloned().unwrap_or(first)
    }

    /// An index into a list of this length; `None` if the list is empty.
    pub(super) fn index(&mut self, length: usize) -> Option<usize> {
        (length > 0).then(|| self.0.usize(0..length))
    }
}

/// A random choice for an idempotency key that is the same for every call with this key.
pub(super) fn is_chosen(key: &str, what: &str, share: f64) -> bool {
    let bytes = key.bytes().chain(what.bytes());
    let seed = bytes.fold(7_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
    SeededRandom::new(seed).chance(share)
}
