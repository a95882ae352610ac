//! AWS in one process, with all functions running on it: offline, with only a Rust toolchain.
//!
//! The real handlers run through the real AWS SDK clients against [`embedded`] services. The [`event_source`] loops
//! do the work of Lambda between a queue and a function. [`resources`] creates the tables and queues of the template,
//! [`registrations`] registers the agents, and [`host`] starts everything. [`agent_target`] is what an agent calls.
//! [`contract_check`] holds messages to the published contract. [`cpu`] measures the CPU time of each part.

pub mod agent_target;
mod callback_keys;
pub mod contract_check;
pub mod cpu;
pub mod embedded;
pub mod event_source;
pub mod host;
pub mod registrations;
pub mod resources;
