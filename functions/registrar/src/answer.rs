//! Answers to CloudFormation, and how they are delivered.

use std::time::Duration;

use backon::{ExponentialBuilder, Retryable};
use reqwest::Client;
use serde::Serialize;
use steward_core::{
    limits::{short_line, truncate_bytes},
    model::{hash::fnv1a, json_text::to_json_value},
};

use crate::{
    error::{DeliveryError, RegistrationError},
    event::{CustomResourceEvent, RequestType},
};

/// Bytes of the reason in an answer. CloudFormation accepts answers of 4 KB.
const REASON_BYTES_MAX: usize = 1_000;

/// The time limit of one attempt at delivering an answer.
const ATTEMPT_WITHIN: Duration = Duration::from_secs(2);

/// An answer to an event.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Answer<'a> {
    status: AnswerStatus,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    physical_resource_id: String,
    stack_id: &'a str,
    request_id: &'a str,
    logical_resource_id: &'a str,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "UPPERCASE")]
enum AnswerStatus {
    Success,
    Failed,
}

impl<'a> Answer<'a> {
    /// The answer to an event that ended with this error, if any. A deletion succeeds in any case.
    pub(crate) fn of(event: &'a CustomResourceEvent, error: Option<RegistrationError>) -> Self {
        let is_deletion = event.request().is_ok_and(|request| request == RequestType::Delete);
        let error = error.filter(|_| !is_deletion);
        Self {
            status: if error.is_some() { AnswerStatus::Failed } else { AnswerStatus::Success },
            physical_resource_id: physical_id(event, error.is_some() || is_deletion),
            reason: error.map(|error| truncate_bytes(error.to_string(), REASON_BYTES_MAX)),
            stack_id: &event.stack_id,
            request_id: &event.request_id,
            logical_resource_id: &event.logical_resource_id,
        }
    }
}

/// The id of the resource. If an update changes it, CloudFormation deletes the resource with the earlier id: it contains
/// the name of the agent, so the agent with the earlier name is deregistered.
fn physical_id(event: &CustomResourceEvent, keep: bool) -> String {
    let earlier = event.physical_resource_id.as_ref();
    let earlier = earlier.filter(|id| keep && !id.is_empty());
    earlier.cloned().unwrap_or_else(|| {
        let name = short_line(event.property("Name").unwrap_or("agent"), 64);
        format!("{name}@{:08x}", fnv1a(&event.stack_id))
    })
}

/// Sends an answer, with retries.
pub(crate) async fn deliver(
    client: &Client,
    event: &CustomResourceEvent,
    answer: &Answer<'_>,
) -> Result<(), DeliveryError> {
    let body = to_json_value(answer).to_string();
    let attempt = || async {
        // The URL is signed for a request without a content type.
        let request = client.put(&event.response_url).timeout(ATTEMPT_WITHIN).body(body.clone());
        let response = request.send().await;
        let response = response.map_err(|error| DeliveryError::Failed(error.without_url()))?;
        match response.status() {
            status if status.is_success() => Ok(()),
            status => Err(DeliveryError::Refused(status)),
        }
    };
    let pauses = ExponentialBuilder::default().with_min_delay(Duration::from_millis(200));
    attempt.retry(pauses.with_max_times(2)).await
}
