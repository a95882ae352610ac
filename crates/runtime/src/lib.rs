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
//! | [`breaker`] | the circuit breaker record that all instances of an agent share |
//! | [`bulk`] | bulk commands: one order for many tasks |
//! | [`history`] | the number of tasks that ended in each minute |
//! | [`metrics`], [`trace`] | counters and trace spans |

pub mod breaker;
pub mod bulk;
pub mod dispatch;
pub mod drive;
pub mod history;
pub mod metrics;
pub mod ports;
pub mod trace;
