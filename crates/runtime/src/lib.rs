//! Applies the decisions of `steward-core`: everything that is asynchronous, over [`ports`].
//!
//! ```text
//!                            ┌─ reads the documents that it needs, decides again ─┐
//!                            ▼                                                    │
//! message ──► drive: load ─► transition ──────────────────────────────────────────┴─► save (conditional) ─► effects
//!                     ▲                                                               │
//!                     └──────────────── lost the race: decide again ◄─────────────────┘
//! ```
//!
//! | module | what it does |
//! | --- | --- |
//! | [`ports`] | the traits through which Steward reaches the state store, queues, the event bus and the clock |
//! | [`drive`] | load, decide, save, send: for a batch of events |
//! | [`dispatch`] | sends effects in batches |
//! | [`breaker`] | the circuit breaker that an agent's instances share |
//! | [`bulk`] | one command for many tasks |
//! | [`history`] | how many tasks ended in which minute |
//! | [`metrics`], [`trace`] | counters and spans |

pub mod breaker;
pub mod bulk;
pub mod dispatch;
pub mod drive;
pub mod history;
pub mod metrics;
pub mod ports;
pub mod trace;
