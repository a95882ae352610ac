//! A dead-letter queue: its contents, and looking at its messages without removing them.

use std::collections::BTreeSet;

use aws_sdk_sqs::{
    Client,
    types::{
        ChangeMessageVisibilityBatchRequestEntry, Message, MessageSystemAttributeName,
        QueueAttributeName,
    },
};
use futures_util::{StreamExt, TryStreamExt, stream};
use steward_runtime::ports::error_chain;

use super::{dead_letter::DeadLetter, error::DeadLettersError};
use crate::{
    errors::{corrupt, failed},
    sqs::{BATCH_MESSAGES_MAX, queue_name, queue_url},
};

/// The suffix of the names of dead-letter queues. The rest of the name is that of the source queue.
pub const SUFFIX: &str = "-dead-letters";

/// The suffixes of the names of the queue of rejected submissions, and of the queue that they came from. The submission
/// function moves the submissions itself, so SQS does not know the source.
const REJECTED: &str = "-rejected";
const SUBMISSIONS: &str = "-submissions";

/// The number of queues whose attributes are read concurrently.
const QUEUES_AT_ONCE: usize = 8;

/// The visibility timeout, in seconds, of a message that is only looked at. It applies if the message cannot be released
/// earlier.
const PEEK_SECONDS: i32 = 15;

/// The wait time for messages, in seconds. A long poll makes SQS query all of its servers.
const POLL_SECONDS: i32 = 1;

/// A dead-letter queue.
#[derive(Debug, Clone)]
pub struct DeadLetterQueue {
    pub(super) client: Client,
    pub(super) url: String,
    /// The queues that send their dead letters here, by URL.
    pub(super) sources: Vec<String>,
}

/// The approximate numbers of messages in a dead-letter queue, and its redrive policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueContents {
    /// Messages that can be received.
    pub waiting: u64,
    /// Messages that were received and not deleted yet.
    pub in_flight: u64,
    /// The maximum number of receives of the queue's own redrive policy, if it has one.
    pub receives_max: Option<u64>,
}

impl DeadLetterQueue {
    /// The dead-letter queue with this name or URL.
    ///
    /// # Errors
    /// The queue does not exist or is not a dead-letter queue, or SQS failed.
    pub async fn find(client: &Client, name_or_url: &str) -> Result<Self, DeadLettersError> {
        let url = queue_url(client, name_or_url).await?;
        let url = url.ok_or_else(|| DeadLettersError::NoQueue(name_or_url.to_owned()))?;
        let queue = Self::of(client, url).await?;
        queue.ok_or_else(|| DeadLettersError::NotADeadLetterQueue(name_or_url.to_owned()))
    }

    /// The dead-letter queues whose names start with `prefix`.
    ///
    /// # Errors
    /// SQS failed.
    pub async fn list(client: &Client, prefix: &str) -> Result<Vec<Self>, DeadLettersError> {
        let found = client.list_queues().queue_name_prefix(prefix).max_results(1_000);
        let urls: Result<Vec<_>, _> = found.into_paginator().items().send().try_collect().await;
        let urls = urls.map_err(failed("list queues"))?;
        let found: Vec<_> = stream::iter(urls)
            .map(|url| Self::of(client, url))
            .buffered(QUEUES_AT_ONCE)
            .try_collect()
            .await?;
        Ok(found.into_iter().flatten().collect())
    }

    /// The dead-letter queue with this URL. A queue is a dead-letter queue if another queue sends its dead letters to it,
    /// or if its name has the [`SUFFIX`]. The queue of rejected submissions is one, too.
    async fn of(client: &Client, url: String) -> Result<Option<Self>, DeadLettersError> {
        let sources = client.list_dead_letter_source_queues().queue_url(&url).max_results(1_000);
        let sources: Result<Vec<String>, _> =
            sources.into_paginator().items().send().try_collect().await;
        // Derived from the name, because the console's role lacks `sqs:GetQueueUrl`.
        let rejected_from = url.strip_suffix(REJECTED).map(|base| format!("{base}{SUBMISSIONS}"));
        let sources = match sources {
            Ok(sources) => sources.into_iter().chain(rejected_from).collect(),
            Err(error) if error.as_service_error().is_some_and(|e| e.is_queue_does_not_exist()) => {
                return Err(DeadLettersError::NoQueue(url));
            }
            Err(error) => return Err(failed(format!("list the sources of {url}"))(error).into()),
        };
        let queue = Self { client: client.clone(), url, sources };
        let is_dead_letter_queue = !queue.sources.is_empty() || queue.name().ends_with(SUFFIX);
        Ok(is_dead_letter_queue.then_some(queue))
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> &str {
        queue_name(&self.url)
    }

    /// The URL.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The names of the source queues: by the redrive policies of the queues, or else by the name of this queue.
    #[must_use]
    pub fn source_names(&self) -> Vec<&str> {
        if self.sources.is_empty() {
            return self.name().strip_suffix(SUFFIX).into_iter().collect();
        }
        self.sources.iter().map(|url| queue_name(url)).collect()
    }

    /// Reads the numbers of messages and the redrive policy.
    ///
    /// # Errors
    /// SQS failed.
    pub async fn contents(&self) -> Result<QueueContents, DeadLettersError> {
        let operation = || format!("count the messages of {}", self.name());
        let names = [
            QueueAttributeName::ApproximateNumberOfMessages,
            QueueAttributeName::ApproximateNumberOfMessagesNotVisible,
            QueueAttributeName::RedrivePolicy,
        ];
        let [waiting, in_flight, policy] = &names;
        let request = self.client.get_queue_attributes().queue_url(&self.url);
        let output = request.set_attribute_names(Some(names.to_vec())).send().await;
        let attributes = output.map_err(failed(operation()))?.attributes.unwrap_or_default();
        let count = |name| {
            let count = attributes.get(name).map_or("0", String::as_str).parse();
            count.map_err(|error: std::num::ParseIntError| corrupt(operation())(error.into()))
        };
        let receives_max = attributes.get(policy).and_then(|policy| receives_max(policy));
        Ok(QueueContents { waiting: count(waiting)?, in_flight: count(in_flight)?, receives_max })
    }

    /// Reads up to `limit` messages, oldest first, without removing them. Other consumers cannot receive them for a
    /// moment, and their receive count grows by one.
    ///
    /// # Errors
    /// The queue has its own redrive policy, or SQS failed.
    pub async fn peek(&self, limit: usize) -> Result<Vec<DeadLetter>, DeadLettersError> {
        if let Some(receives_max) = self.contents().await?.receives_max {
            return Err(DeadLettersError::HasRedrivePolicy {
                queue: self.name().to_owned(),
                receives_max,
            });
        }
        let (mut read, mut ids) = (Vec::new(), BTreeSet::new());
        while read.len() < limit {
            let mut letters = self.receive(limit - read.len(), PEEK_SECONDS).await?;
            // If this takes long, the first messages become visible again.
            letters.retain(|letter| ids.insert(letter.message_id().to_owned()));
            if letters.is_empty() {
                break;
            }
            read.extend(letters);
        }
        self.release(&read).await;
        read.sort_by_key(DeadLetter::sent_at);
        Ok(read)
    }

    /// Receives up to `limit` messages, at most a batch, with a visibility timeout of `hidden_seconds`.
    pub(super) async fn receive(
        &self,
        limit: usize,
        hidden_seconds: i32,
    ) -> Result<Vec<DeadLetter>, DeadLettersError> {
        let limit = i32::try_from(limit.min(BATCH_MESSAGES_MAX)).unwrap_or(i32::MAX);
        let request = self
            .client
            .receive_message()
            .queue_url(&self.url)
            .max_number_of_messages(limit)
            .visibility_timeout(hidden_seconds)
            .wait_time_seconds(POLL_SECONDS)
            .message_system_attribute_names(MessageSystemAttributeName::All)
            .message_attribute_names("All");
        let output = request.send().await;
        let output = output.map_err(failed(format!("receive from {}", self.name())))?;
        let letters = output.messages.unwrap_or_default().into_iter().map(|message| {
            let source = self.source_of(&message);
            DeadLetter { message, source }
        });
        Ok(letters.collect())
    }

    /// The source queue of a message, if it is known.
    fn source_of(&self, message: &Message) -> Option<String> {
        let arn = MessageSystemAttributeName::DeadLetterQueueSourceArn;
        let arn = message.attributes.as_ref().and_then(|attributes| attributes.get(&arn));
        let of_message = arn.and_then(|arn| arn.rsplit(':').next());
        match self.source_names().as_slice() {
            _ if of_message.is_some() => of_message.map(str::to_owned),
            [only] => Some((*only).to_owned()),
            _ => None,
        }
    }

    /// Makes these messages visible again. If this fails, they become visible after their visibility timeout.
    pub(super) async fn release(&self, letters: &[DeadLetter]) {
        for batch in letters.chunks(BATCH_MESSAGES_MAX) {
            let entries = batch.iter().enumerate().map(|(n, letter)| {
                ChangeMessageVisibilityBatchRequestEntry::builder()
                    .id(n.to_string())
                    .receipt_handle(letter.receipt())
                    .visibility_timeout(0)
                    .build()
            });
            let operation = format!("release messages of {}", self.name());
            let released = match entries.collect::<Result<_, _>>() {
                Ok(entries) => {
                    let request =
                        self.client.change_message_visibility_batch().queue_url(&self.url);
                    let released = request.set_entries(Some(entries)).send().await;
                    released.map(|_| ()).map_err(failed(operation))
                }
                Err(error) => Err(corrupt(operation)(error.into())),
            };
            if let Err(error) = released {
                tracing::warn!(
                    error = error_chain(&error),
                    "dead letters stay hidden until their visibility timeout"
                );
            }
        }
    }
}

/// The maximum number of receives in a redrive policy.
fn receives_max(policy: &str) -> Option<u64> {
    let policy: serde_json::Value = serde_json::from_str(policy).ok()?;
    let max = policy.get("maxReceiveCount")?;
    // SQS accepts a number or a string, and returns what it was given.
    max.as_u64().or_else(|| max.as_str()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redrive_policy_may_have_a_number_or_a_string() {
        assert_eq!(receives_max(r#"{"deadLetterTargetArn":"a","maxReceiveCount":3}"#), Some(3));
        assert_eq!(receives_max(r#"{"deadLetterTargetArn":"a","maxReceiveCount":"3"}"#), Some(3));
        assert_eq!(receives_max("{}"), None);
    }
}
