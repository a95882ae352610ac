//! Applies the decisions of `steward-core`. Contains all asynchronous code, written against the traits in [`ports`].
//!
//! ```text
//!                            ┌─ read the requested documents, decide again ───────┐
//!                            ▼                                                    │
//! message ──► drive: load ─► transition ──────────────────────────────────────────┴─► save (conditional) ─► effects
//!                     ▲                                                               │
//!                     └──────────────── lost race: decide again ◄─────────────────────┘
//! ```
//!
//! | module | what it does |
//! | --- | --- |
//! | [`ports`] | the traits through which Steward reaches the state store, queues, the event bus and the clock |
//! | [`drive`] | the drive loop: load, decide, save, send, for a batch of events |
//! | [`dispatch`] | sends effects in batches |
//! | [`agents`] | the registry of agents |
//! | [`agent_clock`] | the alert about an agent whose clock is wrong |
//! | [`breaker`] | the circuit breaker record that all instances of an agent share |
//! | [`claims`] | claims of attempts that only one delivery of a request may carry out |
//! | [`bulk`] | bulk commands: one action for many tasks |
//! | [`history`] | the number of tasks that ended in each minute |
//! | [`intake`] | the record that limits how many new tasks start |
//! | [`rate`] | the rate limit record that all instances of an agent share |
//! | [`payloads`] | the port of payloads in a bucket |
//! | [`metrics`], [`trace`] | counters and trace spans |

pub mod agent_clock;
pub mod agents;
pub mod breaker;
pub mod bulk;
pub mod claims;
pub mod dispatch;
pub mod drive;
pub mod history;
pub mod intake;
pub mod metrics;
pub mod payloads;
mod port_error;
pub mod ports;
pub mod rate;
pub mod trace;
pub mod waiting;
