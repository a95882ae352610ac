//! Not written yet.

use axum::{Extension, response::Response};

use crate::{
    access::Caller,
    page::{Blank, Failure, Frame, page},
};

pub(crate) async fn confirm(Extension(caller): Extension<Caller>) -> Result<Response, Failure> {
    Ok(page(&Blank { frame: Frame::new("act", "act", &caller) }))
}

pub(crate) async fn act(Extension(caller): Extension<Caller>) -> Result<Response, Failure> {
    Ok(page(&Blank { frame: Frame::new("act", "act", &caller) }))
}
