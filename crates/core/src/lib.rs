//! Steward's decision engine: pure and synchronous.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`model`] | the nouns: tasks, steps, documents, and the messages that the roles exchange |
//! | [`definition`] | workflow definitions: the file format, and what is wrong with one |
//! | [`expression`] | templates, and the expressions in them |
//! | [`submission`] | what becomes of a submission |
//! | [`engine`] | the one decision: [`transition`](engine::transition::transition) |
//! | [`breaker`] | the circuit breaker of an agent |
//! | [`limits`] | every limit, with its reason |
//!
//! It has no clock, no I/O and no randomness: whatever a decision needs is an argument, so that the same inputs
//! always give the same decision. `clippy.toml` beside this crate enforces that. The crate `steward-runtime` loads
//! tasks, applies decisions and sends their effects.
//!
//! The pattern is *Scheduler Agent Supervisor*:
//! <https://learn.microsoft.com/azure/architecture/patterns/scheduler-agent-supervisor>.

pub mod breaker;
pub mod definition;
pub mod engine;
pub mod expression;
pub mod hint;
pub mod limits;
pub mod model;
pub mod submission;
