//! Standard output of the command. A reader may close the pipe early, as `steward show order-7 | head`
//! does: the command then ends with success.

use std::{
    borrow::Cow,
    fmt,
    io::{self, Write},
    process::exit,
};

use steward_core::limits::is_terminal_control;

/// Prints a line. Unlike `println!`, it does not panic if the reader closed standard output.
macro_rules! outln {
    ($($text:tt)*) => { $crate::stdout::line(format_args!($($text)*)) };
}

/// Prints a line, or ends the process: with 0 if the reader closed the pipe, with 1 on other errors.
#[expect(clippy::print_stderr, reason = "a command's output")]
pub(crate) fn line(line: fmt::Arguments<'_>) {
    match writeln!(io::stdout().lock(), "{}", printable(&line.to_string())) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => exit(0),
        Err(error) => {
            eprintln!("error: standard output: {error}");
            exit(1)
        }
    }
}

/// The text with `\u009b` in place of a character that a terminal would execute. In JSON, which has such characters only within
/// strings, it means the same.
fn printable(text: &str) -> Cow<'_, str> {
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
