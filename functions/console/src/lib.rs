//! The operator's console: is anything wrong, what exactly, what happened to this task, what can be
//! done about it, did it help.
//!
//! ```text
//! browser ──► access.rs: who is it, may they act? ──► a page's module ──► its template
//!                                                        │ reads            (templates/*.html)
//!                                                        ├──► state store, queues' counts
//!                                                        └──► scheduler's queue: an operator's command
//! ```
//!
//! It decides nothing: what a command would do is told by `crates/core`, and done by the scheduler.
//! Each page is a module and a template; every page works without JavaScript, which only refreshes it.

use std::sync::Arc;

use access::Caller;
use axum::{
    Extension, Router,
    middleware::from_fn,
    response::Redirect,
    routing::{get, post},
};
use steward_aws::AwsPorts;

pub mod access;
mod act;
mod assets;
mod bulk;
pub mod config;
mod dead_letters;
mod filter;
mod history;
mod overview;
mod page;
mod task;
mod tasks;
mod workflows;

use config::Links;

/// Where the console begins.
pub const ROOT: &str = "/console";

/// What the pages are made from.
#[derive(Debug, Clone)]
pub struct Console {
    /// The state store, the definitions and the queues.
    pub ports: Arc<AwsPorts>,
    /// Where a task's logs and trace are found.
    pub links: Arc<Links>,
}

/// A function's whole answer to HTTP.
pub fn service(console: Console) -> Router {
    routes(console).route("/", get(|| async { Redirect::to(ROOT) }))
}

/// The routes, for a host that has others beside them; all are below [`ROOT`]. Every request must carry a
/// [`Caller`] as an extension.
pub fn routes(console: Console) -> Router {
    let reading = Router::new()
        .route(ROOT, get(overview::show))
        .route("/console/tasks", get(tasks::list))
        .route("/console/tasks/{id}", get(task::show))
        .route("/console/workflows", get(workflows::list))
        .route("/console/workflows/{name}", get(workflows::show))
        .route("/console/dead-letters", get(dead_letters::list))
        .route("/console/dead-letters/{queue}", get(dead_letters::look))
        .route("/console/bulk/{id}", get(bulk::progress))
        .route("/console/{*rest}", get(page::no_such_page));
    let acting = Router::new()
        .route("/console/tasks/{id}/{action}", get(act::confirm).post(act::act))
        .route("/console/bulk", get(bulk::confirm).post(bulk::act))
        .route("/console/bulk/{id}/send", post(bulk::send_again))
        .route("/console/dead-letters/{queue}/redrive", post(dead_letters::redrive))
        .layer(from_fn(access::may_act));
    let pages = reading.merge(acting).layer(from_fn(access::guarded)).with_state(console);
    pages.merge(assets::routes())
}

/// The routes on this machine, where whoever reaches them is `caller`.
pub fn routes_for(caller: Caller, console: Console) -> Router {
    by_address_only(routes(console).layer(Extension(caller)))
}

/// What reaches these routes by a name, and not by this machine's address, is another site's page, and is
/// refused.
pub fn by_address_only(routes: Router) -> Router {
    routes.layer(from_fn(access::by_address))
}
