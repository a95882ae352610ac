//! What people see of definitions and tasks, wherever they look: the `steward` command and the
//! operator's console draw and compare with this. Pure: no clock, no I/O, no terminal and no page.
//!
//! - [`graph`]: a workflow as a picture; with the steps' states, a task.
//! - [`changes`]: what is different between two definitions, and what of it needs a look.
//! - [`figures`](mod@figures): how steps fare, by the documents of tasks.
//! - [`state`]: the shape beside the word of a state.
//! - [`timeline`]: what happened to a task; [`chart`]: the same as a picture.
//! - [`next`]: what happens to it next.

pub mod changes;
pub mod chart;
pub mod dead_letter;
pub mod figures;
pub mod graph;
pub mod next;
pub mod preview;
pub mod state;
pub mod timeline;
pub mod view;

/// A text as XML has it; what XML cannot have is replaced.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}
