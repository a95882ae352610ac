//! Not written yet.

use axum::{Extension, response::Response};

use crate::{
    access::Caller,
    page::{Blank, Failure, Frame, page},
};

pub(crate) async fn list(Extension(caller): Extension<Caller>) -> Result<Response, Failure> {
    Ok(page(&Blank { frame: Frame::new("dead_letters", "dead_letters", &caller) }))
}

pub(crate) async fn look(Extension(caller): Extension<Caller>) -> Result<Response, Failure> {
    Ok(page(&Blank { frame: Frame::new("dead_letters", "dead_letters", &caller) }))
}

pub(crate) async fn redrive(Extension(caller): Extension<Caller>) -> Result<Response, Failure> {
    Ok(page(&Blank { frame: Frame::new("dead_letters", "dead_letters", &caller) }))
}
