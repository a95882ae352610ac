//! The stylesheet and the script, served by the function itself.

use axum::{Router, http::header, response::IntoResponse, routing::get};

/// What a browser may keep for a day; a new version of the console asks for other addresses.
const KEEP: &str = "public, max-age=86400, immutable";

/// The stylesheet's address ends in it, and the script's: what a browser kept of another version is not used.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

pub(crate) fn routes() -> Router {
    let style = asset("text/css; charset=utf-8", include_str!("../assets/console.css"));
    let script = asset("text/javascript; charset=utf-8", include_str!("../assets/htmx.min.js"));
    Router::new()
        .route("/console/assets/console.css", get(|| async move { style }))
        .route("/console/assets/htmx.min.js", get(|| async move { script }))
}

fn asset(kind: &'static str, body: &'static str) -> impl IntoResponse + Clone {
    ([(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, KEEP)], body)
}
