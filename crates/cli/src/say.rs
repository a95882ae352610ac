//! What a command says on its standard output. Whoever reads it may have heard enough before the end, as
//! `steward show order-7 | head` has: that ends the command, and is no failure.

use std::{
    fmt,
    io::{self, Write},
    process::exit,
};

/// Says a line; like `println!`, but does not panic if nobody listens any more.
macro_rules! say {
    ($($said:tt)*) => { $crate::say::line(format_args!($($said)*)) };
}

/// Says a line, or ends the command.
#[expect(clippy::print_stderr, reason = "a command's output")]
pub(crate) fn line(line: fmt::Arguments<'_>) {
    match writeln!(io::stdout().lock(), "{line}") {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => exit(0),
        Err(error) => {
            eprintln!("error: standard output: {error}");
            exit(1)
        }
    }
}
