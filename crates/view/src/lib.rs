//! What people see of definitions and tasks, wherever they look: the `steward` command and the
//! operator's console draw and compare with this. Pure: no clock, no I/O, no terminal and no page.
//!
//! - [`graph`]: a workflow as a picture; with the steps' states, a task.
//! - [`changes`]: what is different between two definitions, and what of it needs a look.
//! - [`figures`](mod@figures): how steps fare, by the documents of tasks.
//! - [`state`]: the shape beside the word of a state.

pub mod changes;
pub mod figures;
pub mod graph;
pub mod state;
