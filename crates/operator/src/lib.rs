//! Operator-facing views of definitions and tasks, shared by the `steward` command and the console. Pure: no clock, no
//! I/O, no terminal, no HTML pages.
//!
//! - [`view`]: a task with readable names, as the HTTP API and `steward show --json` return it.
//! - [`state`]: names, symbols and CSS classes of states.
//! - [`next`]: what happens to a task next.
//! - [`timeline`]: the history of a task as a table; [`chart`]: the same as a picture.
//! - [`preview`]: what a command would do to a task.
//! - [`shown_documents`]: which documents of a task people read.
//! - [`mask`]: values with their masked parts hidden, and edits of them.
//! - [`masked_documents`]: documents with their masked values hidden.
//! - [`agents`]: what is wrong with an agent.
//! - [`causes`]: tasks that failed for the same reason.
//! - [`aws_policy`]: the permissions that the AWS actions of definitions need.
//! - [`dead_letter`]: a summary of a dead letter.
//! - [`graph`]: a workflow as a picture, optionally with the states of a task's steps.
//! - [`changes`]: the differences between two definitions, and which of them are risky.
//! - [`figures`](mod@figures): attempts, failures and durations of each step.

pub mod agents;
pub mod aws_policy;
mod caller_text;
pub mod causes;
pub mod changes;
pub mod chart;
pub mod dead_letter;
mod failure_reason;
pub mod figures;
pub mod graph;
pub mod mask;
pub mod masked_documents;
pub mod next;
pub mod payloads;
pub mod preview;
pub mod printable;
pub mod shown_documents;
pub mod state;
pub mod timeline;
pub mod view;

pub use caller_text::name_and_caller;

use steward_core::model::{attempt::Action, names::Part};

/// Escapes `text` for XML. Characters that XML does not allow become U+FFFD.
fn escape_xml(text: &str) -> String {
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

/// Converts the first character to upper case.
fn capitalize(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
}

/// A part in the middle of a sentence: `step charge`, or `the undo of step charge`.
fn part_label(part: &Part, action: Action) -> String {
    match action {
        Action::Do => format!("step {part}"),
        Action::Undo => format!("the undo of step {part}"),
    }
}
