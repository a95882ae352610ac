//! The operators' console: web pages that show problems, tasks, workflows and dead letters, and that send commands to
//! tasks.
//!
//! ```text
//! browser ──► access.rs: authentication, permissions ──► a page's module ──► its template
//!                                                           │ reads            (templates/*.html)
//!                                                           ├──► state store, message counts of queues
//!                                                           └──► scheduler's queue: an operator's command
//! ```
//!
//! The console makes no decisions: `crates/operator` previews the effects of a command, and the scheduler carries it out.
//! Each page is a module and a template. Every page works without JavaScript, which only refreshes the page.

use axum::{
    Extension, Router,
    middleware::from_fn,
    response::Redirect,
    routing::{get, post},
};

mod access;
mod agents;
mod assets;
mod bulk;
mod callbacks;
pub mod caller;
mod command;
pub mod config;
mod console;
mod console_command;
mod dead_letters;
mod filter;
mod history;
mod loaded_task;
mod overview;
mod page;
mod task;
mod tasks;
mod workflows;

pub use access::refuse_other_sites;
use caller::ConsoleCaller;
pub use console::Console;
pub use page::out_of_time;

/// The path of the console's first page.
pub const ROOT: &str = "/console";

/// The router of the console's function: the console's routes, and a redirect from `/`.
pub fn service(console: Console) -> Router {
    routes(console).route("/", get(|| async { Redirect::to(ROOT) }))
}

/// The console's routes, all below [`ROOT`], for a host that adds them to its own. Every request must carry a
/// [`ConsoleCaller`] as an extension.
pub fn routes(console: Console) -> Router {
    let read_routes = Router::new()
        .route(ROOT, get(overview::show))
        .route("/console/tasks", get(tasks::list))
        .route("/console/tasks/{id}", get(task::show))
        .route("/console/callbacks", get(callbacks::list))
        .route("/console/workflows", get(workflows::list))
        .route("/console/workflows/{name}", get(workflows::show))
        .route("/console/agents", get(agents::list))
        .route("/console/dead-letters", get(dead_letters::list))
        .route("/console/dead-letters/{queue}", get(dead_letters::show))
        .route("/console/bulk/{id}", get(bulk::show_run))
        .route("/console/{*rest}", get(page::no_such_page));
    let command_routes = Router::new()
        .route("/console/tasks/{id}/{action}", get(command::show_form).post(command::submit))
        .route("/console/bulk", get(bulk::show_form).post(bulk::create_run))
        .route("/console/bulk/{id}/send", post(bulk::resend))
        .route("/console/dead-letters/{queue}/redrive", post(dead_letters::redrive))
        .layer(from_fn(access::require_operator));
    let pages = read_routes
        .merge(command_routes)
        .layer(from_fn(access::require_caller))
        .with_state(console);
    pages.merge(assets::routes())
}

/// The console's routes for a server on the local machine. Every request is from `caller`.
pub fn routes_for(caller: ConsoleCaller, console: Console) -> Router {
    reject_foreign_hosts(routes(console).layer(Extension(caller)))
}

/// Rejects requests whose `Host` is a name other than `localhost`: they come from the page of another site (DNS rebinding).
pub fn reject_foreign_hosts(routes: Router) -> Router {
    routes.layer(from_fn(access::require_local_address))
}
