//! Steward's decision engine: pure and synchronous.
//!
//! | module | contents |
//! | --- | --- |
//! | [`model`] | data types: tasks, steps, documents, and the messages that the roles exchange |
//! | [`definition`] | workflow definitions: the file format, and validation |
//! | [`expression`] | request templates, and the CEL expressions in them |
//! | [`submission`] | turns a submission into a task, or refuses it |
//! | [`engine`] | decides how a task reacts to an event: [`transition`](engine::transition::transition) |
//! | [`breaker`] | the circuit breaker of an agent |
//! | [`callback_url`] | signed URLs with which services outside the account answer callbacks |
//! | [`contract`] | the published contract for agents: AsyncAPI and JSON Schema |
//! | [`correlation`] | finds the step that waits for an event on the event bus |
//! | [`intake`] | how many new tasks start while a queue is too long |
//! | [`rate`] | how many calls the instances of an agent may make together |
//! | [`webhook`] | signed webhooks of other services, which become events |
//! | [`limits`] | every limit, with its reason |
//! | [`hint`] | suggestions for misspelled names in error messages |
//!
//! The crate has no clock, no I/O and no randomness. Everything that a decision needs is an argument, so the same
//! inputs always give the same decision. The `clippy.toml` of this crate enforces that. The crate `steward-runtime`
//! loads tasks, saves decisions and sends their effects.
//!
//! The pattern is *Scheduler Agent Supervisor*:
//! <https://learn.microsoft.com/azure/architecture/patterns/scheduler-agent-supervisor>.

pub mod breaker;
pub mod callback_url;
pub mod contract;
pub mod correlation;
pub mod definition;
pub mod engine;
pub mod expression;
pub mod hint;
pub mod intake;
pub mod limits;
pub mod model;
pub mod rate;
pub mod submission;
pub mod webhook;
