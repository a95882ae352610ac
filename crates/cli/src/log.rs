//! The log of a command, on standard error. The output of a command is on standard output.

use std::{
    env,
    ffi::OsString,
    io::{IsTerminal, stderr},
};

use clap::ValueEnum;
use steward_aws::telemetry::{self, LogStream, contains_no_payload};
use tracing_subscriber::{
    EnvFilter, filter::filter_fn, fmt, layer::SubscriberExt, util::SubscriberInitExt,
};

/// The format of the log of `steward local`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// Lines for people: warnings and errors.
    Text,
    /// The lines of JSON that the functions write on AWS: their logs, and their metrics.
    Json,
}

/// Starts a log for people. `level` applies unless `RUST_LOG` is set.
pub(crate) fn start_text(level: &str) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level));
    let is_coloured = has_colours(stderr().is_terminal(), env::var_os("NO_COLOR"));
    let lines = fmt::layer().with_writer(stderr).with_ansi(is_coloured);
    let without_payloads = filter_fn(contains_no_payload);
    tracing_subscriber::registry().with(lines).with(filter).with(without_payloads).init();
}

/// Starts the log, the metrics and the traces of a process that runs all functions.
pub(crate) fn start_for_functions(format: LogFormat, level: &str) {
    match format {
        LogFormat::Text => {
            start_text(level);
            telemetry::start_traces();
        }
        LogFormat::Json => telemetry::init_on(LogStream::Stderr),
    }
}

/// Whether lines are coloured: on a terminal, unless `NO_COLOR` (<https://no-color.org>) has a value.
fn has_colours(is_terminal: bool, no_color: Option<OsString>) -> bool {
    is_terminal && no_color.is_none_or(|value| value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_terminal_without_no_color_gets_colours() {
        assert!(has_colours(true, None));
        assert!(has_colours(true, Some(OsString::new())));
        assert!(!has_colours(true, Some("1".into())));
        assert!(!has_colours(false, None));
    }
}
