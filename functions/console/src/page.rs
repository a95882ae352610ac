//! What all pages have in common: the frame, times, the badge of a state, and the page that says what
//! went wrong.

use std::fmt;

use askama::Template;
use axum::{
    http::{StatusCode, Uri},
    response::{Html, IntoResponse, Response},
};
use jiff::{SignedDuration, Timestamp};
use steward_core::{
    limits::{COMMAND_TEXT_CHARS_MAX, shorten},
    model::task::ProcessState,
};
use steward_runtime::ports::{PortError, chain};

pub(crate) use steward_operator::state::{class, glyph};

use crate::access::Caller;

/// How often a page refreshes itself, in seconds.
pub(crate) const REFRESH_S: u32 = 5;

/// The frame around a page.
#[derive(Debug)]
pub(crate) struct Frame {
    /// What the page is about.
    pub(crate) title: String,
    /// Which part of the console is lit: `overview`, `tasks`, `workflows`, `bulk`, `dead-letters`.
    pub(crate) section: &'static str,
    /// Who is looking.
    pub(crate) caller: Option<Caller>,
    /// When it was made.
    pub(crate) now: Timestamp,
    /// Where it refreshes itself from, if it does.
    pub(crate) refresh: Option<String>,
}

impl Frame {
    /// A page that stays as it is.
    pub(crate) fn new(title: impl Into<String>, section: &'static str, caller: &Caller) -> Self {
        let (title, caller, now) = (title.into(), Some(caller.clone()), Timestamp::now());
        Self { title, section, caller, now, refresh: None }
    }

    /// One that refreshes itself from its own address.
    pub(crate) fn refreshed(self, uri: &Uri) -> Self {
        let address = uri.path_and_query().map(ToString::to_string);
        Self { refresh: address, ..self }
    }

    /// Whether whoever looks may act.
    pub(crate) fn may_act(&self) -> bool {
        self.caller.as_ref().is_some_and(|caller| caller.may_act)
    }

    /// Seconds between two refreshes.
    pub(crate) fn refresh_s(&self) -> u32 {
        REFRESH_S
    }
}

/// A page of a template.
pub(crate) fn page(template: &impl Template) -> Response {
    match template.render() {
        Ok(html) => Html(html).into_response(),
        Err(error) => {
            tracing::error!(%error, "page not rendered");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

/// Why there is no page.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error("nobody says who you are")]
    Unauthorized,
    #[error("you may read, not act")]
    Forbidden,
    #[error("another site sent this")]
    CrossSite,
    #[error("there is no {0}")]
    NotFound(String),
    #[error("{0}")]
    BadRequest(String),
    #[error("the state store or a queue did not answer; what you read is not lost, try again")]
    Unavailable(#[from] PortError),
}

impl Failure {
    fn status(&self) -> StatusCode {
        match self {
            Self::Unauthorized => StatusCode::UNAUTHORIZED,
            Self::Forbidden | Self::CrossSite => StatusCode::FORBIDDEN,
            Self::NotFound(_) => StatusCode::NOT_FOUND,
            Self::BadRequest(_) => StatusCode::BAD_REQUEST,
            Self::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// The page that says so.
    pub(crate) fn page(&self, caller: Option<&Caller>) -> Response {
        if let Self::Unavailable(error) = self {
            tracing::warn!(error = chain(error), "page not served");
        }
        let status = self.status();
        let title = status.canonical_reason().unwrap_or_default().to_owned();
        let (caller, now) = (caller.cloned(), Timestamp::now());
        let frame = Frame { title, section: "", caller, now, refresh: None };
        (status, page(&FailurePage { frame, said: self.to_string() })).into_response()
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        self.page(None)
    }
}

#[derive(Template)]
#[template(path = "failure.html")]
struct FailurePage {
    frame: Frame,
    said: String,
}

/// Why something is done, from a form.
pub(crate) fn reason(said: &str) -> Result<String, Failure> {
    let said = said.trim();
    if said.is_empty() {
        return Err(Failure::BadRequest("say why, for the record".to_owned()));
    }
    Ok(shorten(said, COMMAND_TEXT_CHARS_MAX))
}

pub(crate) async fn no_such_page(uri: Uri) -> Failure {
    Failure::NotFound(format!("page {}", uri.path()))
}

/// A time as a page says it: near ones by how far they are, with the time itself beside them.
pub(crate) struct When {
    at: Timestamp,
    now: Timestamp,
}

impl When {
    pub(crate) fn new(at: &Timestamp, now: &Timestamp) -> Self {
        Self { at: *at, now: *now }
    }
}

impl fmt::Display for When {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ahead = self.at.duration_since(self.now);
        if ahead.is_positive() {
            write!(f, "in {}", Span(ahead))
        } else {
            write!(f, "{} ago", Span(-ahead))
        }
    }
}

/// A length of time as people say it: its largest unit, to the nearest below.
pub(crate) struct Span(pub(crate) SignedDuration);

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        match seconds {
            ..1 => write!(f, "{} ms", self.0.as_millis()),
            1..=99 => write!(f, "{seconds} s"),
            100..=5_999 => write!(f, "{} min", seconds / 60),
            6_000..=172_799 => write!(f, "{} h", seconds / 3_600),
            _ => write!(f, "{} days", seconds / 86_400),
        }
    }
}

/// The time of day, or with the day if it is another one than `now`.
pub(crate) fn clock(at: &Timestamp, now: &Timestamp) -> String {
    let same_day = at.strftime("%F").to_string() == now.strftime("%F").to_string();
    at.strftime(if same_day { "%T UTC" } else { "%F %T UTC" }).to_string()
}

/// The parts of the console: name, address, what people call it.
pub(crate) const SECTIONS: [(&str, &str, &str); 4] = [
    ("overview", "/console", "Overview"),
    ("tasks", "/console/tasks", "Tasks"),
    ("workflows", "/console/workflows", "Workflows"),
    ("dead-letters", "/console/dead-letters", "Dead letters"),
];

/// All states that a task can be in.
pub(crate) const STATES: [ProcessState; 6] = [
    ProcessState::Pending,
    ProcessState::Processing,
    ProcessState::Processed,
    ProcessState::Error,
    ProcessState::Undoing,
    ProcessState::Undone,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_said_as_people_say_them() {
        let now: Timestamp = "2026-11-20T21:16:20Z".parse().unwrap();
        for (at, said) in [
            ("2026-11-20T21:16:20Z", "0 ms ago"),
            ("2026-11-20T21:16:20.25Z", "in 250 ms"),
            ("2026-11-20T21:17:00Z", "in 40 s"),
            ("2026-11-20T21:13:20Z", "3 min ago"),
            ("2026-11-20T09:16:20Z", "12 h ago"),
            ("2026-11-17T21:16:20Z", "3 days ago"),
        ] {
            assert_eq!(When::new(&at.parse().unwrap(), &now).to_string(), said);
        }
        assert_eq!(clock(&now, &now), "21:16:20 UTC");
        assert_eq!(
            clock(&"2026-11-19T21:16:20Z".parse().unwrap(), &now),
            "2026-11-19 21:16:20 UTC"
        );
    }
}
