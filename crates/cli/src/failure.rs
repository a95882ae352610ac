//! How a failed command ends: one line that says what to do, and an exit code for scripts.

use std::{env::var, error::Error, process::ExitCode};

use aws_credential_types::provider::error::CredentialsError;
use aws_sdk_sqs::error::ConnectorError;
use steward_runtime::ports::PortError;

use crate::{
    agent_check::{EXIT_UNCHECKED, UncheckedRules},
    workflows::import::Unfinished,
};

/// The deployment did not answer: no connection, no credentials, or a temporary failure of AWS. `EX_UNAVAILABLE` of
/// sysexits.h. A usage error has 2, everything else 1.
const UNAVAILABLE: u8 = 69;

/// The command succeeded, but its outcome needs attention.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct UnexpectedOutcome(pub(crate) String);

/// Error codes of AWS for credentials that it does not accept. A retry with the same credentials fails, too.
const REFUSED_CREDENTIALS: [&str; 5] = [
    "ExpiredToken",
    "IncompleteSignature",
    "InvalidClientTokenId",
    "InvalidSignature",
    "UnrecognizedClient",
];

/// Error codes of AWS for a table, queue or function that does not exist.
const MISSING: [&str; 3] =
    ["ResourceNotFoundException", "QueueDoesNotExist", "AWS.SimpleQueueService.NonExistentQueue"];

/// Prints the error, and returns the exit code.
#[expect(clippy::print_stderr, reason = "a command's output")]
pub(crate) fn report(error: &anyhow::Error) -> ExitCode {
    eprintln!("error: {}", message(error, var("AWS_ENDPOINT_URL").ok().as_deref()));
    if error.is::<UncheckedRules>() {
        return ExitCode::from(EXIT_UNCHECKED);
    }
    if let Some(unfinished) = error.downcast_ref::<Unfinished>() {
        return ExitCode::from(unfinished.exit_code());
    }
    match is_unavailable(error) {
        true => ExitCode::from(UNAVAILABLE),
        false => ExitCode::FAILURE,
    }
}

fn message(error: &anyhow::Error, endpoint: Option<&str>) -> String {
    let innermost = error.root_cause().to_string();
    let innermost = innermost.lines().next().unwrap_or_default().trim_end_matches(" Attempted:");
    match (has::<CredentialsError>(error), has::<ConnectorError>(error), endpoint) {
        (true, ..) => format!(
            "no AWS credentials (set AWS_PROFILE, or AWS_ENDPOINT_URL for `steward local`): {innermost}"
        ),
        (false, true, Some(endpoint)) => {
            format!("no connection to AWS_ENDPOINT_URL={endpoint}: {innermost}")
        }
        (false, true, None) => format!("no connection to AWS: {innermost}"),
        (false, false, _) => {
            let text = format!("{error:#}");
            match MISSING.iter().any(|code| text.contains(code)) {
                true => format!(
                    "{text}: check the names of the deployment's tables and queues (the variables of `infra/outputs`), the account and the Region"
                ),
                false => text,
            }
        }
    }
}

fn is_unavailable(error: &anyhow::Error) -> bool {
    let text = format!("{error:#}");
    if REFUSED_CREDENTIALS.iter().any(|code| text.contains(code)) {
        return false;
    }
    let is_temporary = |cause: &(dyn Error + 'static)| {
        cause.downcast_ref::<PortError>().is_some_and(|error| error.retryable)
    };
    has::<CredentialsError>(error)
        || has::<ConnectorError>(error)
        || error.chain().any(is_temporary)
}

fn has<E: Error + 'static>(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| cause.is::<E>())
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::message;

    #[test]
    fn a_missing_table_says_which_names_to_check() {
        let missing = anyhow!("ResourceNotFoundException: no such table").context("scan orders");
        let text = message(&missing, None);
        assert!(text.starts_with("scan orders: ResourceNotFoundException"), "{text}");
        assert!(text.contains("check the names"), "{text}");
        assert_eq!(message(&anyhow!("refused"), None), "refused");
    }
}
