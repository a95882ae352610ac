//! Virtual time, in milliseconds since the start of a run.

use jiff::Timestamp;
pub(super) use steward_test_world::service::Millis;

pub(super) const SECOND: Millis = 1_000;
pub(super) const MINUTE: Millis = 60 * SECOND;
pub(super) const HOUR: Millis = 60 * MINUTE;
pub(super) const DAY: Millis = 24 * HOUR;

/// Every run starts on 1 January 2026.
pub(super) const EPOCH_S: i64 = 1_767_225_600;

/// Converts a time since the start of the run to milliseconds since 1970.
pub(super) fn epoch_millis(time: Millis) -> u64 {
    EPOCH_S.unsigned_abs() * 1_000 + time
}

/// Converts a timestamp to the time since the start of the run.
pub(super) fn since_start(time: Timestamp) -> Millis {
    Millis::try_from(time.as_millisecond() - EPOCH_S * 1_000).unwrap_or_default()
}

/// A duration as text for definitions and inputs.
pub(super) fn millis(time: Millis) -> String {
    format!("{time}ms")
}
