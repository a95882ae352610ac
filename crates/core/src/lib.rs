//! Steward's decision engine: pure and synchronous, with the ports and the loop that apply its decisions.
//!
//! This crate holds the nouns (a [`task`] is one run of a [`workflow`]), the [`messages`] that the
//! roles exchange, the pure [`transition`](transition::transition) that decides what happens next,
//! the [`ports`] through which a decision reaches the world, and [`drive`](drive::drive), the one
//! loop that joins them. It has no clock, no I/O and no randomness: whatever a decision needs is an
//! argument, so that the same inputs always give the same answer. `clippy.toml` beside this crate
//! enforces that.
//!
//! ```text
//!                            ┌─ reads the documents that it wants, asks again ─┐
//!                            ▼                                                 │
//! message ──► drive: load ─► transition ───────────────────────────────────────┴─► save (conditional) ─► effects
//!                     ▲                                                            │
//!                     └──────────────── lost the race: decide again ◄──────────────┘
//! ```
//!
//! The pattern is *Scheduler Agent Supervisor*:
//! <https://learn.microsoft.com/azure/architecture/patterns/scheduler-agent-supervisor>.

pub mod breaker;
pub mod bulk;
mod change;
pub mod command;
pub mod dead_letter;
pub mod drive;
pub mod effects;
pub mod events;
mod expression;
mod forward;
pub mod hint;
pub mod history;
pub mod integers;
pub mod json_text;
pub mod limits;
pub mod mask;
pub mod messages;
pub mod metrics;
pub mod names;
mod operate;
pub mod ports;
pub mod preview;
pub mod recovery;
mod request;
pub mod responses;
pub mod schema;
pub mod submission;
pub mod task;
mod tell;
pub mod template;
pub mod trace;
pub mod transition;
pub mod undo;
pub mod uses;
mod values;
pub mod view;
pub mod workflow;
