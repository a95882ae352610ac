//! The decision engine: what becomes of a task when something happens to it.
//!
//! ```text
//! event ──► transition ──► replies, operate … ──► advance ──► forward or compensate      the task changes
//!                     │
//!                     ├──► render                                                        requests of what starts
//!                     └──► settle                                                        end, due time, notifications, wakes
//! ```
//!
//! | module | |
//! | --- | --- |
//! | [`event`], [`decision`], [`documents`], [`effect`] | what goes in, and what comes out |
//! | [`transition`] | the table of all transitions, and the decision |
//! | `case`, `replies` | what is decided on; replies, callbacks, ends of child tasks |
//! | `operate`, `operator`, `settle_steps`, `edit_input` | operators' commands |
//! | `change`, `outcome` | a change in the making; the outcome of an attempt in it |
//! | `advance`, `forward`, `compensate` | which steps begin, and which undos |
//! | [`order`] | the order of steps and of their undos |
//! | `render`, [`request`], `values` | the requests of what starts, and what their expressions read |
//! | `settle`, [`notify`], `redelivery` | the end of a change, notifications, what is sent again |

mod advance;
mod case;
mod change;
mod compensate;
pub mod decision;
pub mod documents;
mod edit_input;
pub mod effect;
pub mod event;
mod forward;
pub mod notify;
mod operate;
mod operator;
pub mod order;
mod outcome;
mod redelivery;
mod render;
mod replies;
pub mod request;
mod settle;
mod settle_steps;
pub mod transition;
mod values;
