//! Which failures open a circuit breaker. A service may store its first response to an idempotency key, also a 5xx, and
//! replay it for ever: then one request always fails, while the service is available for all others. So each request counts
//! once. A failure that cannot be due to its request counts each time.

use serde::{Deserialize, Serialize};

use crate::{limits, model::hash::fnv1a};

/// A hash of an idempotency key, or of the address of a service. Two requests with the same hash count as one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct KeyHash(u32);

impl KeyHash {
    /// Hashes an idempotency key, or an address.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self(fnv1a(text))
    }
}

/// The failures of one instance that count, since its last call that found the service available. Of each, the request that
/// it may be due to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct FailuresInARow(Vec<Option<KeyHash>>);

impl FailuresInARow {
    /// Adds a failure, unless its request has counted before, or there are `max`.
    pub(super) fn add(&mut self, request: Option<KeyHash>, counted: &FailedRequests, max: u32) {
        let has_counted =
            request.is_some_and(|failed| self.0.contains(&request) || counted.contains(failed));
        if !has_counted && !self.are_at_least(max) {
            self.0.push(request);
        }
    }

    pub(super) fn are_at_least(&self, count: u32) -> bool {
        u32::try_from(self.0.len()).is_ok_and(|failures| failures >= count)
    }

    pub(super) fn requests(&self) -> impl Iterator<Item = KeyHash> {
        self.0.iter().copied().flatten()
    }
}

/// The requests whose failures have counted. The oldest are forgotten.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FailedRequests(pub(super) Vec<KeyHash>);

impl FailedRequests {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn contains(&self, request: KeyHash) -> bool {
        self.0.contains(&request)
    }

    pub(super) fn add(&mut self, requests: impl IntoIterator<Item = KeyHash>) {
        for request in requests {
            if !self.contains(request) {
                self.0.push(request);
            }
        }
        self.0.drain(..self.0.len().saturating_sub(limits::BREAKER_FAILED_REQUESTS_MAX));
    }
}
