//! What tests, the simulation and the forecast run tasks in: ports in memory, or the AWS adapters, with a clock that the caller
//! sets and an [interceptor](Interceptor) that sees and may fail each call. One contract suite (`tests/contract.rs`) runs on the
//! ports in memory and on the AWS adapters.
//!
//! Stored values pass through the same serialisation as on AWS and so lose the same precision: a time keeps its
//! milliseconds and nothing finer. These ports enforce the size limits of AWS. Items also expire as on AWS:
//! [`MemoryStore::expired`] lists the expired items, and a test deletes them one by one, at any time. Two things
//! are simpler than on AWS: a definition is visible as soon as it is published, and the indices never lag behind the
//! table of tasks.
//!
//! ```text
//! ports.with_instance("scheduler-1") ──┐
//! ports.with_instance("scheduler-2") ──┼──► the same tables, queues, events and clock
//! ports.with_instance("supervisor") ───┘
//! ```

mod call_plan;
mod channel;
mod clock;
mod definitions;
mod interceptor;
pub mod ledger;
mod payloads;
mod ports;
pub mod service;
mod sqs;
mod step_request;
mod storage;
mod store;
#[cfg(test)]
mod tests;

pub use channel::{MemoryBus, MemoryChannel};
pub use clock::WorldClock;
pub use definitions::MemoryDefinitions;
pub use interceptor::{Intercepted, Interceptor, PortCall, PortReply};
pub use payloads::MemoryPayloads;
pub use ports::{InterceptedPorts, MemoryPorts, PortsOf, WorldPorts};
pub use sqs::{event_of, sent_record, sqs_event};
pub use step_request::step_request;
pub use store::{ExpiredItem, MemoryStore};
