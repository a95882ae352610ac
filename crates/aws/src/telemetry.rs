//! Structured JSON logs on standard output, as CloudWatch takes them; `RUST_LOG` sets the level.

use tracing_subscriber::{EnvFilter, fmt};

/// Starts logging, and logs panics as one line. Call once, first in `main`.
pub fn init() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    fmt()
        .json()
        .flatten_event(true)
        .with_current_span(false)
        .with_span_list(false)
        .with_env_filter(filter)
        .init();
    std::panic::set_hook(Box::new(|info| {
        let place = info.location().map(ToString::to_string).unwrap_or_default();
        tracing::error!(place, "panicked");
    }));
}
