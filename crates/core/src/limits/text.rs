//! Shortens texts to a limit.

/// The beginning of a text as one line of at most `chars_max` characters, with U+FFFD in place of what a terminal would execute.
/// A shortened text ends in an ellipsis.
#[must_use]
pub fn short_line(text: &str, chars_max: usize) -> String {
    let shown = |c: char| match c {
        c if c.is_whitespace() => ' ',
        c if is_terminal_control(c) => '\u{fffd}',
        c => c,
    };
    let mut line: String = text.chars().map(shown).collect();
    if line.chars().count() > chars_max {
        line = line.chars().take(chars_max.saturating_sub(1)).collect();
        line.push('…');
    }
    line
}

/// Whether a terminal would execute the character, or reorder the text by it.
#[must_use]
pub fn is_terminal_control(c: char) -> bool {
    c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Shortens `text` to at most `bytes_max` bytes. A shortened text ends in an ellipsis.
#[must_use]
pub fn truncate_bytes(mut text: String, bytes_max: usize) -> String {
    if text.len() > bytes_max {
        let end = text.floor_char_boundary(bytes_max.saturating_sub('…'.len_utf8()));
        text.truncate(end);
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_text_is_cut_with_an_ellipsis() {
        assert_eq!(short_line("abc", 3), "abc");
        assert_eq!(short_line("abcd", 3), "ab…");
        assert_eq!(
            short_line("no\r\n\u{1b}[2Jmoney\u{202e}\u{9b}\t!", 20),
            "no  \u{fffd}[2Jmoney\u{fffd}\u{fffd} !"
        );
    }
}
