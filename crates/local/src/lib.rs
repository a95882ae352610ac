//! The workshop: the whole function set in one process, offline, with only a Rust toolchain.
//!
//! The real handlers run through the real AWS SDK clients against [`embedded`] AWS services; the
//! [`event_source`] loops do what Lambda does between a queue and a function; [`host`] starts it all.
//! [`services`] are the remote services that the demo orders from, and misbehave on purpose.
//! [`memory`] is the world without AWS, for stories and simulations; [`simulation`] is that world in a
//! storm, from a seed; [`forecast`] is it in the weather that a user expects, and [`scale`] what a rate of
//! its tasks makes of a deployment. [`scenario`] is what the workflows that ship are shown with, and
//! [`audit`] what must be true in the end.

pub mod audit;
pub mod cpu;
pub mod definitions;
pub mod embedded;
pub mod event_source;
pub mod forecast;
pub mod host;
pub mod memory;
pub mod resources;
pub mod scale;
pub mod scenario;
pub mod services;
pub mod simulation;
