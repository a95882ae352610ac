//! Reads the answer in the body of a request.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use steward_core::{
    limits,
    model::{
        integers::check_integers,
        messages::{CallbackOutcome, mistake},
    },
};

/// Reads an outcome from a body. The error says what is wrong, without a value of the body.
pub(crate) type Answer = fn(&[u8]) -> Result<CallbackOutcome, String>;

/// The body of a failure.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FailedStep {
    /// Why the step failed, for people. The first 200 characters are kept.
    #[schemars(length(min = 1))]
    reason: String,
}

/// Reads the output of the step: any JSON, or nothing.
pub(crate) fn read_output(body: &[u8]) -> Result<CallbackOutcome, String> {
    if body.trim_ascii().is_empty() {
        return Ok(CallbackOutcome::Completed { output: Value::Null });
    }
    let text = str::from_utf8(body).map_err(|_| "the answer is not UTF-8".to_owned())?;
    let output: Value = serde_json::from_str(text)
        .map_err(|error| format!("the answer is not JSON: {}", mistake(&error)))?;
    check_integers(text).map_err(|error| format!("the answer has {error}"))?;
    if limits::nests_too_deep(&output) {
        return Err(format!("the answer nests deeper than {} levels", limits::JSON_DEPTH_MAX));
    }
    Ok(CallbackOutcome::Completed { output })
}

/// Reads the reason of a failure.
pub(crate) fn read_failure(body: &[u8]) -> Result<CallbackOutcome, String> {
    let FailedStep { reason } = serde_json::from_slice(body).map_err(|error| {
        format!("the body is not an object with a `reason`: {}", mistake(&error))
    })?;
    failure(&reason)
}

/// The failure with a reason.
pub(crate) fn failure(reason: &str) -> Result<CallbackOutcome, String> {
    match limits::short_line(reason.trim(), limits::COMMAND_TEXT_CHARS_MAX) {
        reason if reason.is_empty() => Err("`reason` is empty".to_owned()),
        reason => Ok(CallbackOutcome::Failed { reason }),
    }
}
