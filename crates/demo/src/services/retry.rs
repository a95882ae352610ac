//! When a service or a person sends a request again that has no final result.

use std::time::Duration;

use backon::ExponentialBuilder;

/// The request has no final result. It may have one later.
#[derive(Debug, Clone, Copy)]
pub(super) struct NotYet;

/// Pauses of 50 ms to one second, for about five minutes.
pub(super) fn backoff() -> ExponentialBuilder {
    ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(50))
        .with_max_delay(Duration::from_secs(1))
        .with_factor(2.0)
        .with_max_times(300)
}
