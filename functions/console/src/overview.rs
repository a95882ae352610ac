//! Not written yet.

use axum::{Extension, http::Uri, response::Response};

use crate::{
    access::Caller,
    page::{Failure, Frame, page},
};

pub(crate) async fn show(
    Extension(caller): Extension<Caller>,
    uri: Uri,
) -> Result<Response, Failure> {
    Ok(page(&crate::page::Blank {
        frame: Frame::new("overview", "overview", &caller).refreshed(&uri),
    }))
}
