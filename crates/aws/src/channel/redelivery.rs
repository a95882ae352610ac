//! What all functions do with a batch from a queue: they count messages that waited for too long, and let SQS redeliver failed
//! messages with exponential backoff and jitter. Without it SQS redelivers a failed message after its
//! queue's visibility timeout, which is six times the function's time limit: minutes, while a step may have seconds.

use std::time::Duration;

use aws_lambda_events::sqs::{SqsBatchResponse, SqsEvent, SqsMessage};
use aws_sdk_sqs::{
    config::{Config, timeout::TimeoutConfig},
    types::ChangeMessageVisibilityBatchRequestEntry,
};
use futures_util::future::join_all;
use jiff::Timestamp;
use steward_core::model::time::earlier;
use steward_runtime::{
    metrics,
    ports::{Queue, error_chain},
};
use tokio::time::Instant;

use super::sqs_channel::SqsChannel;
use crate::{
    batch::{Batch, progress::handle_until, receives},
    errors::failed,
    queues::late_after,
    sqs::BATCH_MESSAGES_MAX,
};

/// The longest delay before a redelivery.
const LONGEST: Duration = Duration::from_secs(180);

/// The time limit of the request to SQS. The response to Lambda is more important: without it, SQS redelivers the whole
/// batch.
const WITHIN: Duration = Duration::from_secs(1);

/// The time limit of one attempt. If a connection died while the function was frozen, a second attempt is possible.
const ATTEMPT_WITHIN: Duration = Duration::from_millis(450);

/// The delay before a message that has failed `receives` times is redelivered. It doubles with each receive; half of it is
/// random, so that messages that failed together are not redelivered together. `random` is in 0..1.
///
/// This is "equal jitter" of <https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/>.
#[must_use]
pub fn delay(receives: u32, random: f64) -> Duration {
    let longest = Duration::from_secs(2_u64.saturating_pow(receives)).min(LONGEST);
    longest.mul_f64(0.5 + random / 2.0)
}

impl SqsChannel {
    /// Counts the messages of a batch from `queue` that waited for too long, and passes the batch to `handle` until `stop`. Sets the
    /// visibility of the messages that are not done by then to a [`delay`]. If that request fails, SQS redelivers them after the
    /// queue's visibility timeout.
    pub async fn process_batch<F>(
        &self,
        queue: &Queue,
        event: SqsEvent,
        stop: Instant,
        handle: impl FnOnce(Batch) -> F,
    ) -> SqsBatchResponse
    where
        F: Future<Output = SqsBatchResponse>,
    {
        count_late(queue, &event, Timestamp::now());
        let receipts: Vec<_> = event.records.iter().map(MessageReceipt::of).collect();
        let response = handle_until(event, stop, handle).await;
        let is_failed = |receipt: &MessageReceipt| {
            let mut failures = response.batch_item_failures.iter();
            failures.any(|failure| failure.item_identifier == receipt.message_id)
        };
        let failures: Vec<_> = receipts.into_iter().filter(is_failed).collect();
        if failures.is_empty() {
            return response;
        }
        metrics::messages_failed(failures.len());
        let url = self.url(queue);
        let batches = failures.chunks(BATCH_MESSAGES_MAX);
        join_all(batches.map(|batch| self.shorten_visibility(&url, batch))).await;
        response
    }

    async fn shorten_visibility(&self, url: &str, batch: &[MessageReceipt]) {
        let entries = batch.iter().enumerate().map(|(position, receipt)| receipt.entry(position));
        let entries = match entries.collect::<Result<Vec<_>, _>>() {
            Ok(entries) => entries,
            Err(error) => return tracing::warn!(%error, "{NOT_CHANGED}"),
        };
        let request = self.client.change_message_visibility_batch().queue_url(url);
        let timeouts = TimeoutConfig::builder().operation_attempt_timeout(ATTEMPT_WITHIN).build();
        let request = request.set_entries(Some(entries)).customize();
        let request = request.config_override(Config::builder().timeout_config(timeouts));
        match tokio::time::timeout(WITHIN, request.send()).await {
            Ok(Ok(output)) => {
                for failed in output.failed() {
                    tracing::warn!(code = failed.code(), "{NOT_CHANGED}");
                }
            }
            Ok(Err(error)) => {
                let error = failed(format!("change visibility in {url}"))(error);
                tracing::warn!(error = error_chain(&error), "{NOT_CHANGED}");
            }
            Err(_) => tracing::warn!("{NOT_CHANGED}: no response"),
        }
    }
}

/// Counts the messages that waited for too long until this delivery, their first.
fn count_late(queue: &Queue, event: &SqsEvent, now: Timestamp) {
    let sent_before = earlier(now, late_after(queue)).as_millisecond();
    let is_late = |message: &&SqsMessage| {
        let sent = message.attributes.get("SentTimestamp").and_then(|millis| millis.parse().ok());
        receives(message) == 1 && sent.is_some_and(|sent: i64| sent < sent_before)
    };
    let late = event.records.iter().filter(is_late).count();
    if late > 0 {
        tracing::warn!(?queue, messages = late, "messages waited for too long");
        metrics::messages_late(late);
    }
}

const NOT_CHANGED: &str = "cannot shorten the visibility of a failed message; SQS redelivers it after the queue's timeout";

/// The receipt of one delivery of a message.
struct MessageReceipt {
    message_id: String,
    handle: String,
    receives: u32,
}

impl MessageReceipt {
    fn of(message: &SqsMessage) -> Self {
        Self {
            message_id: message.message_id.clone().unwrap_or_default(),
            handle: message.receipt_handle.clone().unwrap_or_default(),
            receives: receives(message),
        }
    }

    fn entry(
        &self,
        position: usize,
    ) -> Result<ChangeMessageVisibilityBatchRequestEntry, aws_sdk_sqs::error::BuildError> {
        let seconds = delay(self.receives, fastrand::f64()).as_secs_f64().round();
        ChangeMessageVisibilityBatchRequestEntry::builder()
            .id(position.to_string())
            .receipt_handle(&self.handle)
            .visibility_timeout(seconds as i32)
            .build()
    }
}

#[cfg(test)]
mod tests {
    use metrics_util::debugging::{DebugValue, DebuggingRecorder};
    use serde_json::json;

    use super::*;

    /// How many of these messages count as late in a queue. Each has its wait in seconds and its number of receives.
    fn late(queue: &Queue, messages: &[(i64, u32)]) -> u64 {
        let now = Timestamp::constant(1_780_000_000, 0);
        let records: Vec<_> = messages
            .iter()
            .map(|(waited_s, receives)| {
                let sent = now.as_millisecond() - waited_s * 1_000;
                json!({ "attributes": {
                    "SentTimestamp": sent.to_string(), "ApproximateReceiveCount": receives.to_string(),
                } })
            })
            .collect();
        let event = serde_json::from_value(json!({ "Records": records })).unwrap();
        let recorder = DebuggingRecorder::new();
        ::metrics::with_local_recorder(&recorder, || count_late(queue, &event, now));
        let counted = recorder.snapshotter().snapshot().into_vec();
        let counted = counted.into_iter().map(|(key, _, _, value)| {
            assert_eq!(key.key().name(), steward_runtime::metrics::MESSAGES_LATE);
            let DebugValue::Counter(count) = value else { panic!("{value:?}") };
            count
        });
        counted.sum()
    }

    #[test]
    fn only_messages_that_waited_beyond_the_delays_of_their_queue_are_late() {
        let agent = Queue::Agent("a".parse().unwrap());
        for (queue, late_after_s) in [
            (&Queue::Submissions, 600),
            (&Queue::Scheduler, 1_200),
            (&Queue::Commands, 300),
            (&Queue::Events, 300),
            (&agent, 300),
        ] {
            assert_eq!(late(queue, &[(late_after_s - 1, 1), (0, 1)]), 0, "{queue:?}");
            assert_eq!(late(queue, &[(late_after_s + 1, 1), (0, 1)]), 1, "{queue:?}");
        }
    }

    /// A redelivered message was late, if at all, at its first delivery.
    #[test]
    fn a_message_counts_as_late_at_its_first_delivery_only() {
        assert_eq!(late(&Queue::Commands, &[(3_600, 1), (3_600, 2), (3_600, 16)]), 1);
    }

    /// The time until a message that always fails becomes a dead letter, not counting the time of its handling.
    fn time_to_dead_letter(receives_max: u32, random: f64) -> Duration {
        (1..=receives_max).map(|receives| delay(receives, random)).sum()
    }

    #[test]
    fn the_delay_doubles_up_to_three_minutes() {
        let seconds = |receives| delay(receives, 1.0).as_secs();
        let all: Vec<_> = [1, 2, 3, 7, 8, 9, 1_000].into_iter().map(seconds).collect();
        assert_eq!(all, [2, 4, 8, 128, 180, 180, 180]);
    }

    #[test]
    fn half_of_the_delay_is_random() {
        assert_eq!(delay(3, 0.0), Duration::from_secs(4));
        assert_eq!(delay(3, 0.5), Duration::from_secs(6));
    }

    /// `maxReceiveCount` in `template.yaml` is 16 for the queues of the scheduler and the agents, and 30 for submissions.
    #[test]
    fn an_outage_of_a_quarter_of_an_hour_makes_no_dead_letters() {
        for (receives_max, minutes) in [(16, 15), (30, 30)] {
            let time = time_to_dead_letter(receives_max, 0.0);
            assert!(time > Duration::from_secs(minutes * 60), "{time:?}");
        }
    }
}
