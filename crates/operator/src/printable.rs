//! Texts of others, without what a terminal would execute or what reorders a page.

use std::borrow::Cow;

use steward_core::limits::is_terminal_control;

/// The text with `\u009b` in place of a character that a terminal would execute. In JSON, which has such characters only within
/// strings, it means the same.
#[must_use]
pub fn printable(text: &str) -> Cow<'_, str> {
    let is_executed = |c: char| is_terminal_control(c) && !matches!(c, '\n' | '\t');
    if !text.contains(is_executed) {
        return text.into();
    }
    let mut printable = String::with_capacity(text.len());
    for c in text.chars() {
        match is_executed(c) {
            true => printable.push_str(&format!("\\u{:04x}", u32::from(c))),
            false => printable.push(c),
        }
    }
    printable.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_character_reaches_a_terminal_that_it_would_execute() {
        assert_eq!(printable("a\n\tb é"), "a\n\tb é");
        let text = "\u{1b}[2J\u{9b}\u{7f}\u{202e}\r";
        assert_eq!(printable(text), r"\u001b[2J\u009b\u007f\u202e\u000d");
        let json = serde_json::Value::from(text);
        let printed = json.to_string();
        assert_eq!(serde_json::from_str::<serde_json::Value>(&printable(&printed)).unwrap(), json);
    }
}
