//! Limits of agents: of their registration, their replies and their circuit breakers.

use std::time::Duration;

/// Characters in the version that an agent registers.
pub const AGENT_VERSION_CHARS_MAX: usize = 64;

/// Characters in the id of the stack that registered an agent. CloudFormation's ids have at most some 230.
pub const STACK_ID_CHARS_MAX: usize = 256;

/// The smallest and the largest rate of calls that an agent may register, in calls per second.
pub const CALL_RATE_MIN: f64 = 0.1;
/// See [`CALL_RATE_MIN`].
pub const CALL_RATE_MAX: f64 = 10_000.0;

/// How long the registration of a deleted agent is kept.
pub const DELETED_REGISTRATION_RETENTION: Duration = Duration::from_secs(30 * 24 * 3600);

/// Bytes of a service's response from which the `output` of a step selects. The agent holds the response in memory,
/// which takes up to sixty times as much.
pub const RESPONSE_BYTES_MAX: usize = 1024 * 1024;

/// Characters of the reason that an agent reports for a failure.
pub const REASON_CHARS_MAX: usize = 2_000;

/// Bytes of a service's error body that are kept for operators.
pub const ERROR_DETAIL_BYTES_MAX: usize = 4 * 1024;

/// The same in a deferral, in bytes: a step may be deferred any number of times.
pub const DEFERRAL_DETAIL_BYTES_MAX: usize = 512;

/// The maximum time for which a circuit breaker stays open before the next probe.
pub const BREAKER_OPEN_MAX: Duration = Duration::from_secs(300);

/// State changes of one circuit breaker that wait to be published. More than one waits only while the event bus is
/// down.
pub const BREAKER_UNPUBLISHED_MAX: usize = 20;

/// The addresses that the record of a circuit breaker keeps: those of two deployments that change it, and more.
pub const BREAKER_ADDRESSES_MAX: usize = 4;

/// Failed requests that a circuit breaker remembers, so that they do not count again.
pub const BREAKER_FAILED_REQUESTS_MAX: usize = 64;
