//! Not written yet.

use axum::{Extension, http::Uri, response::Response};

use crate::{
    access::Caller,
    page::{Failure, Frame, page},
};

pub(crate) async fn list(
    Extension(caller): Extension<Caller>,
    uri: Uri,
) -> Result<Response, Failure> {
    Ok(page(&crate::page::Blank { frame: Frame::new("tasks", "tasks", &caller).refreshed(&uri) }))
}
