//! Single-flight loading: if several tasks of a batch need the same definition and the cache does not have it, the first
//! one loads it, and the others wait. If it loads nothing (after an error, for example), the others load the definition
//! themselves, concurrently, so that a table that is down delays them by only one timeout.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use steward_core::model::names::WorkflowName;
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

/// A workflow and a version, or the newest version.
type DefinitionKey = (WorkflowName, Option<u32>);

/// The loads in progress. The lock of each is held by its first caller.
#[derive(Debug, Clone, Default)]
pub(super) struct SingleFlight {
    loads: Arc<Mutex<HashMap<DefinitionKey, Arc<AsyncMutex<()>>>>>,
}

/// The permission to load a definition.
pub(super) struct LoadPermit {
    /// Whether another caller has loaded the definition in the meantime. If so, the cache may contain it now.
    pub(super) waited: bool,
    /// Held by the first caller only, so the callers that waited do not block each other.
    _leader: Option<LoadLeader>,
}

/// The first caller of a load. Dropping it removes the load.
struct LoadLeader {
    flights: SingleFlight,
    key: DefinitionKey,
    _guard: OwnedMutexGuard<()>,
}

impl Drop for LoadLeader {
    fn drop(&mut self) {
        self.flights.loads.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.key);
    }
}

impl SingleFlight {
    /// Waits until no other caller loads this definition.
    pub(super) async fn permit(&self, name: &WorkflowName, version: Option<u32>) -> LoadPermit {
        let key = (name.clone(), version);
        let load = {
            let mut loads = self.loads.lock().unwrap_or_else(PoisonError::into_inner);
            loads.entry(key.clone()).or_default().clone()
        };
        match load.clone().try_lock_owned() {
            Ok(guard) => {
                let leader = LoadLeader { flights: self.clone(), key, _guard: guard };
                LoadPermit { waited: false, _leader: Some(leader) }
            }
            Err(_) => {
                drop(load.lock().await);
                LoadPermit { waited: true, _leader: None }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::{FutureExt, future::join};
    use std::pin::pin;

    use super::*;

    #[tokio::test]
    async fn callers_that_waited_for_a_load_without_a_result_do_not_wait_for_each_other() {
        let (flights, name) = (SingleFlight::default(), "order".parse().unwrap());
        let leader = flights.permit(&name, None).await;
        assert!(!leader.waited);
        let mut others = pin!(join(flights.permit(&name, None), flights.permit(&name, None)));
        assert!(others.as_mut().now_or_never().is_none(), "they wait while the leader loads");
        drop(leader);
        // Both hold their permit at the same time.
        let (one, other) = others.await;
        assert!(one.waited && other.waited);
    }
}
