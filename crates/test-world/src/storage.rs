//! How the ports in memory keep values: behind mutexes, and serialised as on AWS.

use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Serialize, de::DeserializeOwned};
use steward_runtime::ports::PortError;

/// Locks a mutex, also a poisoned one: each change is complete before its guard is dropped, so the data is consistent.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// `value` after it was serialised and deserialised, as if it had been stored and read.
pub(super) fn stored<T: Serialize + DeserializeOwned>(
    value: &T,
    operation: impl Fn() -> String,
) -> Result<T, PortError> {
    from_text(&to_text(value, &operation)?, operation)
}

fn to_text<T: Serialize>(value: &T, operation: impl Fn() -> String) -> Result<String, PortError> {
    serde_json::to_string(value).map_err(|error| corrupt(operation, error))
}

pub(super) fn from_text<T: DeserializeOwned>(
    text: &str,
    operation: impl Fn() -> String,
) -> Result<T, PortError> {
    serde_json::from_str(text).map_err(|error| corrupt(operation, error))
}

pub(super) fn corrupt<E>(operation: impl Fn() -> String, error: E) -> PortError
where
    E: std::error::Error + Send + Sync + 'static,
{
    PortError { operation: operation(), retryable: false, source: Box::new(error) }
}
