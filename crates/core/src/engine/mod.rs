//! The decision engine: decides how a task reacts to an event.
//!
//! ```text
//! event ──► transition ──► replies, operate … ──► advance ──► forward or undo      change the task
//!                     │
//!                     ├──► render                                                        requests of the started parts
//!                     └──► finish                                                        end, due time, notifications, wakes
//! ```
//!
//! | module | contents |
//! | --- | --- |
//! | [`event`], [`decision`], [`documents`], [`effect`] | the input and the output of a decision |
//! | [`transition`] | the table of all transitions, and the entry point |
//! | `decision_input`, `replies` | the task and the event of a decision; replies, callbacks, ends of child tasks |
//! | [`callback_check`], [`awaited_callback`] | whether a step awaits a callback, for its senders; who is to answer it |
//! | `operate`, `command_executor`, `step_commands`, `edit_input` | operators' commands |
//! | `task_change`, `outcome`, `child_report` | the changed task before it is saved; the outcome of an attempt, of a child task |
//! | `late_effect` | what a message shows about an effect that the task did not know, and what follows |
//! | `agent_choice` | the agent that a part uses, if its step has several |
//! | `advance`, `forward`, `undo` | which steps start, and which undos |
//! | [`graph`] | the order of steps and of their undos |
//! | `render`, [`request`], `values`, `item_list` | the requests of the started parts, and the values that their expressions read |
//! | `finish`, [`notify`], `lifecycle`, `redelivery` | the end of a change, notifications, lifecycle events, effects that are sent again |
//! | `passed_payloads` | which payloads a task may name in what it sends |
//! | [`invariants`] | what holds of each task, of each decision, and of a task that has ended |
//! | `placement` | which documents are stored in the task's item |

mod advance;
mod agent_choice;
pub mod awaited_callback;
pub mod callback_check;
mod child_report;
mod command_executor;
pub mod decision;
mod decision_input;
pub mod documents;
mod edit_input;
pub mod effect;
pub mod event;
mod finish;
mod forward;
pub mod graph;
pub mod invariants;
mod item_list;
mod late_effect;
mod lifecycle;
pub mod notify;
mod operate;
mod outcome;
mod passed_payloads;
pub(crate) mod placement;
mod redelivery;
mod render;
mod replies;
pub mod request;
pub mod rerun;
mod rounds;
mod step_commands;
mod task_change;
pub mod transition;
mod undo;
mod values;

#[cfg(test)]
pub(crate) mod tests;
