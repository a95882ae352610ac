//! Counts the responses in which DynamoDB throttles, for the alarm *tables throttled*. An interceptor sees every attempt; most
//! throttled requests succeed at the next one, so the adapters never learn of them.

use aws_smithy_runtime_api::{
    box_error::BoxError,
    client::{
        interceptors::{Intercept, context::AfterDeserializationInterceptorContextRef},
        runtime_components::RuntimeComponents,
    },
};
use aws_smithy_types::config_bag::ConfigBag;
use steward_runtime::metrics;

/// Errors of a request that is throttled as a whole.
const ERRORS: [&str; 3] = [
    "#ProvisionedThroughputExceededException\"",
    "#ThrottlingException\"",
    "#RequestLimitExceeded\"",
];

/// Codes of the statements of a batch, and of the items of a transaction, that are throttled. The text of a document cannot
/// contain them, because its quotes are escaped.
const CODES: [&str; 4] = [
    "\"Code\":\"ProvisionedThroughputExceeded\"",
    "\"Code\":\"RequestLimitExceeded\"",
    "\"Code\":\"ThrottlingError\"",
    "\"Code\":\"ThrottlingException\"",
];

/// The begin of keys that a batch read did not read.
const UNPROCESSED: &str = "\"UnprocessedKeys\":{\"";

/// A batch read also leaves keys out if its response is full: 16 MB, or 1 MB of one partition. Items of up to 400 KB leave that
/// much room at most.
const FULL_RESPONSE_BYTES: usize = 1024 * 1024 - 400 * 1024;

/// Counts throttled responses.
#[derive(Debug)]
pub(crate) struct ThrottleCounter;

impl Intercept for ThrottleCounter {
    fn name(&self) -> &'static str {
        "steward throttle counter"
    }

    fn read_after_deserialization(
        &self,
        context: &AfterDeserializationInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let response = context.response();
        let body = response.body().bytes().unwrap_or_default();
        if is_throttled(response.status().is_success(), &String::from_utf8_lossy(body)) {
            metrics::request_throttled();
        }
        Ok(())
    }
}

/// Whether DynamoDB throttled a request or a part of it.
fn is_throttled(is_success: bool, body: &str) -> bool {
    let contains = |text: &&str| body.contains(*text);
    let leaves_keys_out = body.len() < FULL_RESPONSE_BYTES && body.contains(UNPROCESSED);
    CODES.iter().any(contains)
        || if is_success { leaves_keys_out } else { ERRORS.iter().any(contains) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn throttled_requests_statements_items_and_keys_count() {
        for (is_success, body) in [
            (
                false,
                r#"{"__type":"com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException"}"#,
            ),
            (
                false,
                r#"{"__type":"com.amazon.coral.availability#ThrottlingException","message":"Rate exceeded"}"#,
            ),
            (false, r#"{"__type":"com.amazonaws.dynamodb.v20120810#RequestLimitExceeded"}"#),
            (
                false,
                r#"{"__type":"…#TransactionCanceledException","CancellationReasons":[{"Code":"None"},{"Code":"ThrottlingError"}]}"#,
            ),
            (
                true,
                r#"{"Responses":[{"Error":{"Code":"ProvisionedThroughputExceeded","Message":"…"}},{}]}"#,
            ),
            (true, r#"{"Responses":{},"UnprocessedKeys":{"tasks":{"Keys":[]}}}"#),
        ] {
            assert!(is_throttled(is_success, body), "{body}");
        }
    }

    #[test]
    fn conflicts_full_responses_and_documents_do_not_count() {
        let full = format!(
            r#"{{"Responses":{{"tasks":["{}"]}},"UnprocessedKeys":{{"tasks":{{}}}}}}"#,
            "x".repeat(1024 * 1024)
        );
        for (is_success, body) in [
            (true, r#"{"Responses":{},"UnprocessedKeys":{}}"#),
            (true, &full),
            (
                true,
                r#"{"Item":{"body":{"S":"{\"Code\":\"ThrottlingError\"}"},"of":{"S":"a#ThrottlingException"}}}"#,
            ),
            (false, r#"{"__type":"…#ConditionalCheckFailedException"}"#),
            (
                false,
                r#"{"__type":"…#TransactionCanceledException","CancellationReasons":[{"Code":"TransactionConflict"}]}"#,
            ),
        ] {
            assert!(!is_throttled(is_success, body), "{body}");
        }
    }
}
