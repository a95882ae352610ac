//! AWS in the process, and all functions on it: offline, with only a Rust toolchain.
//!
//! The real handlers run through the real AWS SDK clients against [`embedded`] services. The [`event_source`] loops
//! do what Lambda does between a queue and a function. [`resources`] creates the tables and queues of the template,
//! and [`host`] starts everything. [`cpu`] measures the processor time of each part.

pub mod cpu;
pub mod embedded;
pub mod event_source;
pub mod host;
pub mod resources;
