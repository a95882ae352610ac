//! Standard output of the command. A reader may close the pipe early, as `steward show order-7 | head`
//! does: the command then ends with success.

use std::{
    fmt,
    io::{self, Write},
    process::exit,
};

use steward_operator::printable::printable;

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
