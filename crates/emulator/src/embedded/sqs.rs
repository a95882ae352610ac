//! SQS in the process: standard queues in memory, with a journal on disk if there is a data directory. A change is
//! written to the journal before the response is sent, so a killed process loses no message (`docs/adr/0022`).
//!
//! ```text
//! operations: parse, check ──► state: decide records ──► journal: write ──► state: apply ──► response
//! ```

mod attributes;
mod error;
mod groups;
mod journal;
mod message;
mod operations;
mod receipt;
mod service;
mod state;
mod store;
#[cfg(test)]
mod tests;
mod time;

pub use journal::JournalError;
pub(super) use service::SqsQueues;
