//! The types of problems of the callback API.

use axum::http::StatusCode;
use steward_core::{
    callback_url::CallbackUrlRefusal, engine::callback_check::CallbackRefusal,
    webhook::SignatureRefusal,
};
use steward_http::ProblemType;

const MALFORMED_URL: ProblemType =
    ProblemType::new(StatusCode::BAD_REQUEST, "malformed-callback-url", "Malformed callback URL");
const WRONG_SIGNATURE: ProblemType =
    ProblemType::new(StatusCode::FORBIDDEN, "wrong-callback-signature", "Wrong callback signature");
const UNKNOWN_KEY: ProblemType =
    ProblemType::new(StatusCode::FORBIDDEN, "unknown-callback-key", "Unknown callback key");
const URL_EXPIRED: ProblemType =
    ProblemType::new(StatusCode::GONE, "callback-url-expired", "Callback URL expired");
pub(crate) const INVALID_ANSWER: ProblemType =
    ProblemType::new(StatusCode::BAD_REQUEST, "invalid-answer", "Invalid answer");
pub(crate) const TOO_LARGE: ProblemType =
    ProblemType::new(StatusCode::PAYLOAD_TOO_LARGE, "answer-too-large", "Answer too large");
pub(crate) const NO_SUCH_TASK: ProblemType =
    ProblemType::new(StatusCode::NOT_FOUND, "no-such-task", "No such task");
const OTHER_REQUEST: ProblemType =
    ProblemType::new(StatusCode::CONFLICT, "callback-superseded", "Callback superseded");
const NOT_AWAITED_YET: ProblemType =
    ProblemType::new(StatusCode::CONFLICT, "callback-not-awaited-now", "Callback not awaited now");
const ALREADY_ANSWERED: ProblemType = ProblemType::new(
    StatusCode::CONFLICT,
    "callback-already-answered",
    "Callback already answered",
);
const NOT_AWAITED: ProblemType =
    ProblemType::new(StatusCode::GONE, "callback-not-awaited", "Callback not awaited");
const TOO_LATE: ProblemType =
    ProblemType::new(StatusCode::GONE, "callback-too-late", "Callback too late");

pub(crate) const NO_SUCH_WEBHOOK: ProblemType =
    ProblemType::new(StatusCode::NOT_FOUND, "no-such-webhook", "No such webhook");
const MALFORMED_SIGNATURE: ProblemType = ProblemType::new(
    StatusCode::BAD_REQUEST,
    "malformed-webhook-signature",
    "Malformed webhook signature",
);
const WRONG_WEBHOOK_SIGNATURE: ProblemType =
    ProblemType::new(StatusCode::FORBIDDEN, "wrong-webhook-signature", "Wrong webhook signature");
const WEBHOOK_TOO_OLD: ProblemType =
    ProblemType::new(StatusCode::FORBIDDEN, "webhook-too-old", "Webhook too old");
pub(crate) const INVALID_WEBHOOK: ProblemType =
    ProblemType::new(StatusCode::BAD_REQUEST, "invalid-webhook", "Invalid webhook");
pub(crate) const WEBHOOK_TOO_LARGE: ProblemType =
    ProblemType::new(StatusCode::PAYLOAD_TOO_LARGE, "webhook-too-large", "Webhook too large");

/// A form that does not come from a page that somebody opened a short time ago. Only pages say it, so it is no type of the API.
pub(crate) const UNCONFIRMED_FORM: ProblemType =
    ProblemType::new(StatusCode::FORBIDDEN, "unconfirmed-form", "Unconfirmed form");

/// All types of problem documents.
pub(crate) const PROBLEMS: [ProblemType; 18] = [
    MALFORMED_URL,
    WRONG_SIGNATURE,
    UNKNOWN_KEY,
    URL_EXPIRED,
    INVALID_ANSWER,
    TOO_LARGE,
    NO_SUCH_TASK,
    OTHER_REQUEST,
    NOT_AWAITED_YET,
    ALREADY_ANSWERED,
    NOT_AWAITED,
    TOO_LATE,
    NO_SUCH_WEBHOOK,
    MALFORMED_SIGNATURE,
    WRONG_WEBHOOK_SIGNATURE,
    WEBHOOK_TOO_OLD,
    INVALID_WEBHOOK,
    WEBHOOK_TOO_LARGE,
];

/// The problem of a URL that is not valid.
pub(crate) fn of_refused_url(refusal: &CallbackUrlRefusal) -> ProblemType {
    match refusal {
        CallbackUrlRefusal::Malformed => MALFORMED_URL,
        CallbackUrlRefusal::UnknownKey => UNKNOWN_KEY,
        CallbackUrlRefusal::WrongSignature => WRONG_SIGNATURE,
        CallbackUrlRefusal::Expired(_) => URL_EXPIRED,
    }
}

/// What a page says to a person instead of the title.
pub(crate) fn heading(problem: &ProblemType) -> &'static str {
    match *problem {
        MALFORMED_URL | WRONG_SIGNATURE | UNKNOWN_KEY => "This link is not valid",
        URL_EXPIRED | TOO_LATE => "The time to answer is over",
        NO_SUCH_TASK => "This question does not exist any more",
        OTHER_REQUEST => "A newer link has replaced this one",
        NOT_AWAITED_YET => "No answer can be given right now",
        ALREADY_ANSWERED => "This question has been answered",
        NOT_AWAITED => "No answer is needed any more",
        TOO_LARGE => "The answer is too large",
        _ => problem.title(),
    }
}

/// The problem of a webhook whose signature is not accepted.
pub(crate) fn of_refused_signature(refusal: &SignatureRefusal) -> ProblemType {
    match refusal {
        SignatureRefusal::Missing(_) | SignatureRefusal::Malformed(_) => MALFORMED_SIGNATURE,
        SignatureRefusal::Wrong => WRONG_WEBHOOK_SIGNATURE,
        SignatureRefusal::OutsideTolerance(_) => WEBHOOK_TOO_OLD,
    }
}

/// The problem of an answer that the step does not await.
pub(crate) fn of_refused_callback(refusal: &CallbackRefusal) -> ProblemType {
    match refusal {
        CallbackRefusal::EarlierTask | CallbackRefusal::Edited(_) => OTHER_REQUEST,
        CallbackRefusal::NotStarted(_)
        | CallbackRefusal::BetweenAttempts { .. }
        | CallbackRefusal::CallOverdue { .. } => NOT_AWAITED_YET,
        CallbackRefusal::TooLate { .. } => TOO_LATE,
        CallbackRefusal::Ended { completed: true, .. } => ALREADY_ANSWERED,
        CallbackRefusal::Ended { completed: false, .. } => NOT_AWAITED,
    }
}
