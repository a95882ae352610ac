//! The stylesheet and the script, which the function itself serves.

use axum::{Router, http::header, response::IntoResponse, routing::get};

/// Browsers may cache the assets for a day. A new version of the console uses other URLs.
const CACHE_CONTROL: &str = "public, max-age=86400, immutable";

/// Part of the URLs of the assets, so that a browser does not use cached assets of another version.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

pub(crate) fn routes() -> Router {
    let style = asset("text/css; charset=utf-8", include_str!("../assets/console.css"));
    let script = asset("text/javascript; charset=utf-8", include_str!("../assets/htmx.min.js"));
    Router::new()
        .route("/console/assets/console.css", get(|| async move { style }))
        .route("/console/assets/htmx.min.js", get(|| async move { script }))
}

fn asset(content_type: &'static str, body: &'static str) -> impl IntoResponse + Clone {
    ([(header::CONTENT_TYPE, content_type), (header::CACHE_CONTROL, CACHE_CONTROL)], body)
}
