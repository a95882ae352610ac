//! The parts that all pages share: the frame, the formats of times and counts, the badge of a state, and the error page.

use std::fmt;

use askama::Template;
use axum::{
    http::{StatusCode, Uri},
    response::{Html, IntoResponse, Response},
};
use jiff::{SignedDuration, Timestamp};
use steward_aws::store::TaskCount;
use steward_core::{
    limits::{COMMAND_TEXT_CHARS_MAX, short_line},
    model::task::ProcessState,
};
use steward_operator::state::{task_css_class, task_symbol};
use steward_runtime::ports::{PortError, error_chain};

use crate::caller::ConsoleCaller;

/// The error of a form without a reason.
pub(crate) const REASON_MISSING: &str = "enter a reason; it is recorded with the command";

/// How often a page refreshes itself, in seconds.
pub(crate) const REFRESH_S: u32 = 5;

/// The frame around a page.
#[derive(Debug)]
pub(crate) struct Frame {
    /// The title and heading.
    pub(crate) title: String,
    /// The highlighted section of the navigation, from [`SECTIONS`]; empty for none.
    pub(crate) section: &'static str,
    /// The caller.
    pub(crate) caller: Option<ConsoleCaller>,
    /// When the page was made.
    pub(crate) now: Timestamp,
    /// The URL from which the page refreshes itself; `None` if it does not.
    pub(crate) refresh: Option<String>,
}

impl Frame {
    /// The frame of a page that does not refresh itself.
    pub(crate) fn new(
        title: impl Into<String>,
        section: &'static str,
        caller: &ConsoleCaller,
    ) -> Self {
        let (title, caller, now) = (title.into(), Some(caller.clone()), Timestamp::now());
        Self { title, section, caller, now, refresh: None }
    }

    /// The frame of a page that refreshes itself from its own URL.
    pub(crate) fn refreshed(self, uri: &Uri) -> Self {
        let url = uri.path_and_query().map(ToString::to_string);
        Self { refresh: url, ..self }
    }

    /// Whether the caller may send commands.
    pub(crate) fn may_act(&self) -> bool {
        self.caller.as_ref().is_some_and(|caller| caller.may_act)
    }

    /// Seconds between two refreshes.
    pub(crate) fn refresh_s(&self) -> u32 {
        REFRESH_S
    }
}

/// Renders a template.
pub(crate) fn render(template: &impl Template) -> Response {
    match template.render() {
        Ok(html) => Html(html).into_response(),
        Err(error) => {
            tracing::error!(%error, "page not rendered");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

/// Why a request has no page.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error("the request does not identify its caller")]
    Unauthorized,
    #[error("you have read-only access")]
    Forbidden,
    #[error("the request came from another site")]
    CrossOrigin,
    #[error("not found: {0}")]
    NotFound(String),
    #[error("{0}")]
    BadRequest(String),
    #[error(
        "DynamoDB or SQS refused or did not answer; try again. The reason is in the console’s log"
    )]
    Unavailable(#[from] PortError),
    #[error(
        "DynamoDB or SQS did not answer in time; try again. A command may have been sent: look at its task first"
    )]
    OutOfTime,
}

impl Failure {
    fn status(&self) -> StatusCode {
        match self {
            Self::Unauthorized => StatusCode::UNAUTHORIZED,
            Self::Forbidden | Self::CrossOrigin => StatusCode::FORBIDDEN,
            Self::NotFound(_) => StatusCode::NOT_FOUND,
            Self::BadRequest(_) => StatusCode::BAD_REQUEST,
            Self::Unavailable(_) | Self::OutOfTime => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// The error page.
    pub(crate) fn page(&self, caller: Option<&ConsoleCaller>) -> Response {
        if let Self::Unavailable(error) = self {
            tracing::warn!(error = error_chain(error), "page not served");
        }
        let status = self.status();
        let title = status.canonical_reason().unwrap_or_default().to_owned();
        let (caller, now) = (caller.cloned(), Timestamp::now());
        let frame = Frame { title, section: "", caller, now, refresh: None };
        (status, render(&FailurePage { frame, message: self.to_string() })).into_response()
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        self.page(None)
    }
}

/// The error page of a request that was not answered before the function had to stop.
#[must_use]
pub fn out_of_time() -> Response {
    tracing::warn!("page not served: the function's time was up");
    Failure::OutOfTime.into_response()
}

#[derive(Template)]
#[template(path = "failure.html")]
struct FailurePage {
    frame: Frame,
    message: String,
}

/// The reason that a form must have, shortened.
pub(crate) fn required_reason(text: &str) -> Result<String, Failure> {
    let text = text.trim();
    if text.is_empty() {
        return Err(Failure::BadRequest(REASON_MISSING.to_owned()));
    }
    Ok(short_line(text, COMMAND_TEXT_CHARS_MAX))
}

pub(crate) async fn no_such_page(uri: Uri) -> Failure {
    Failure::NotFound(format!("page {}", uri.path()))
}

/// A time relative to now, as `in 40 s` or `3 min ago`.
pub(crate) struct RelativeTime {
    at: Timestamp,
    now: Timestamp,
}

impl RelativeTime {
    pub(crate) fn new(at: &Timestamp, now: &Timestamp) -> Self {
        Self { at: *at, now: *now }
    }
}

impl fmt::Display for RelativeTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ahead = self.at.duration_since(self.now);
        if ahead.is_positive() {
            write!(f, "in {}", DurationText(ahead))
        } else {
            write!(f, "{} ago", DurationText(-ahead))
        }
    }
}

/// A duration in its largest unit, rounded down.
pub(crate) struct DurationText(pub(crate) SignedDuration);

impl fmt::Display for DurationText {
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

/// A count, with a `+` if counting stopped early.
pub(crate) fn count_text(count: &TaskCount) -> String {
    format!("{}{}", count.counted, if count.more { "+" } else { "" })
}

/// The time of day; with the date unless it is the date of `now`.
pub(crate) fn time_text(at: &Timestamp, now: &Timestamp) -> String {
    let same_day = at.strftime("%F").to_string() == now.strftime("%F").to_string();
    at.strftime(if same_day { "%T UTC" } else { "%F %T UTC" }).to_string()
}

/// The sections of the navigation: name, URL, label.
pub(crate) const SECTIONS: [(&str, &str, &str); 6] = [
    ("overview", "/console", "Overview"),
    ("tasks", "/console/tasks", "Tasks"),
    ("callbacks", "/console/callbacks", "Callbacks"),
    ("workflows", "/console/workflows", "Workflows"),
    ("agents", "/console/agents", "Agents"),
    ("dead-letters", "/console/dead-letters", "Dead letters"),
];

/// The symbol of a task's state.
pub(crate) fn state_symbol(state: &ProcessState) -> &'static str {
    task_symbol(*state)
}

/// The CSS class of a task's state.
pub(crate) fn state_class(state: &ProcessState) -> String {
    task_css_class(*state)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_shown_in_their_largest_unit() {
        let now: Timestamp = "2026-11-20T21:16:20Z".parse().unwrap();
        for (at, expected) in [
            ("2026-11-20T21:16:20Z", "0 ms ago"),
            ("2026-11-20T21:16:20.25Z", "in 250 ms"),
            ("2026-11-20T21:17:00Z", "in 40 s"),
            ("2026-11-20T21:13:20Z", "3 min ago"),
            ("2026-11-20T09:16:20Z", "12 h ago"),
            ("2026-11-17T21:16:20Z", "3 days ago"),
        ] {
            assert_eq!(RelativeTime::new(&at.parse().unwrap(), &now).to_string(), expected);
        }
        assert_eq!(time_text(&now, &now), "21:16:20 UTC");
        assert_eq!(
            time_text(&"2026-11-19T21:16:20Z".parse().unwrap(), &now),
            "2026-11-19 21:16:20 UTC"
        );
    }
}
