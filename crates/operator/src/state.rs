//! States as pages and pictures show them: a shape beside the word, so that nobody needs colours to tell
//! them apart.

/// The shape of a task's state, or of a step's.
#[must_use]
pub fn glyph(state: &str) -> &'static str {
    match state {
        "Pending" | "waiting" | "undo waiting" | "not started" => "○",
        "Processing" | "running" => "◐",
        "handed out" => "◇",
        "Processed" | "completed" => "✓",
        "Error" | "failed" | "undo failed" => "✕",
        "Undoing" | "undoing" => "↶",
        "Undone" | "undone" => "↺",
        "skipped" | "undo skipped" => "–",
        _ => "•",
    }
}

/// Its name among the classes of a stylesheet.
#[must_use]
pub fn class(state: &str) -> String {
    format!("state-{}", state.to_lowercase().replace(' ', "-"))
}
