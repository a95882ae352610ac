//! The pages for people who open a callback's URL. They are self-contained, contain no script, and no browser may store them,
//! frame them, or tell their address to another site.

use std::sync::LazyLock;

use askama::Template;
use axum::{
    http::{HeaderName, StatusCode, header},
    response::{Html, IntoResponse, Response},
};
use base64::{Engine, engine::general_purpose::STANDARD};
use jiff::Timestamp;
use sha2::{Digest, Sha256};
use steward_core::{
    limits::COMMAND_TEXT_CHARS_MAX,
    model::names::{CallbackToken, WorkflowName},
};
use steward_http::answer_form::AnswerForm;

use crate::{api::Refused, openapi::AcceptedCallback, problem::heading};

/// The stylesheet in each page.
const STYLE: &str = include_str!("../templates/page.css");

/// Allows this stylesheet, and a form that is sent to where it came from. Nothing else.
static CONTENT_POLICY: LazyLock<String> = LazyLock::new(|| {
    let style = STANDARD.encode(Sha256::digest(STYLE));
    format!(
        "default-src 'none'; style-src 'sha256-{style}'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    )
});

/// The page with the question and its forms.
#[derive(Template)]
#[template(path = "question.html")]
pub(crate) struct QuestionPage<'a> {
    /// The heading.
    pub(crate) title: String,
    /// What the definition says about the question; may be empty.
    pub(crate) text: String,
    pub(crate) workflow: &'a WorkflowName,
    pub(crate) token: &'a CallbackToken,
    /// Who is to answer, if the definition says it.
    pub(crate) from: Option<String>,
    /// The deadline of the answer, if the call of the step has ended.
    pub(crate) until: Option<Timestamp>,
    pub(crate) answer: AnswerFields<'a>,
    /// The token of both forms.
    pub(crate) form_token: String,
    /// Why the form was refused.
    pub(crate) problem: Option<String>,
    /// Whether the step was to fail.
    pub(crate) declined: bool,
    /// The entered reason.
    pub(crate) reason: &'a str,
}

/// What a person fills in.
pub(crate) enum AnswerFields<'a> {
    /// A field for each property of the answer.
    Form(AnswerForm),
    /// JSON, because the schema has no simple form.
    Json(&'a str),
    /// JSON or nothing, because the definition has no schema.
    Anything(&'a str),
}

/// A page that only says something.
#[derive(Template)]
#[template(path = "note.html")]
struct NotePage {
    title: &'static str,
    text: String,
}

/// A response with a page.
pub(crate) fn respond(status: StatusCode, page: &impl Template) -> Response {
    let html = match page.render() {
        Ok(html) => html,
        Err(error) => {
            tracing::error!(%error, "page not rendered");
            return StatusCode::INTERNAL_SERVER_ERROR.into_response();
        }
    };
    let headers = [
        (header::CONTENT_SECURITY_POLICY, CONTENT_POLICY.as_str()),
        (header::CACHE_CONTROL, "no-store"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (HeaderName::from_static("x-robots-tag"), "noindex, nofollow"),
    ];
    (status, headers, Html(html)).into_response()
}

/// The page of an answer that was sent.
pub(crate) fn accepted(accepted: &AcceptedCallback) -> Response {
    let what = if accepted.answer == "failed" { "You declined" } else { "You answered" };
    let text = format!(
        "{what} step {} of task {}. If somebody else answered a moment before you, the first answer counts. You can close this page.",
        accepted.step, accepted.task_id
    );
    respond(StatusCode::ACCEPTED, &NotePage { title: "Your answer was sent", text })
}

/// The page of a request that was refused.
pub(crate) fn refusal(refused: &Refused) -> Response {
    let (title, text) = match refused {
        Refused::Problem(problem, detail) => (heading(problem), format!("Details: {detail}.")),
        Refused::KeyNotRead | Refused::Unavailable(_) => {
            ("This page is not available right now", "Try again in a minute.".to_owned())
        }
    };
    let problem = refused.problem();
    let mut response = respond(problem.status(), &NotePage { title, text });
    if let Some(after) = problem.headers().get(header::RETRY_AFTER) {
        response.headers_mut().insert(header::RETRY_AFTER, after.clone());
    }
    response
}

/// A time for people.
fn time_text(at: &Timestamp) -> String {
    at.strftime("%-d %B %Y, %H:%M UTC").to_string()
}
