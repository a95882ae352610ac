//! Dead letters: messages that were received too often without being done. They are looked at without
//! being used up, and sent back to where they came from.
//!
//! ```text
//! steward-scheduler ──► received five times in vain ──► steward-scheduler-dead-letters
//!        ▲                                                  │                ▲
//!        └───────────────────── redrive ────────────────────┘      look ─────┘ and give back
//! ```

use std::collections::BTreeSet;

use aws_sdk_sqs::{
    Client,
    types::{
        ChangeMessageVisibilityBatchRequestEntry, Message, MessageAttributeValue,
        MessageSystemAttributeName, QueueAttributeName,
    },
};
use futures_util::{StreamExt, TryStreamExt, stream};
use jiff::Timestamp;
use steward_runtime::ports::{PortError, chain};

use crate::{
    channel::{BATCH_MESSAGES_MAX, name_of, queue_url},
    errors::{corrupt, failed},
};

mod redrive;

pub use redrive::{Redrive, Redriven};

/// What the names of dead-letter queues end in; what is before it is the source's name.
pub(crate) const SUFFIX: &str = "-dead-letters";

/// Queues asked about at once.
const QUEUES_AT_ONCE: usize = 8;

/// How long a message that is looked at stays hidden from everybody else, in seconds, if it cannot be
/// given back.
const LOOK_SECONDS: i32 = 15;

/// How long a message that is sent back stays hidden, in seconds: nobody else is to send it as well.
const REDRIVE_SECONDS: i32 = 60;

/// How long to wait for a message, in seconds: long enough for SQS to ask all of its servers.
const POLL_SECONDS: i32 = 1;

/// Why nothing can be said of dead letters, or done with them.
#[derive(Debug, thiserror::Error)]
pub enum DeadLettersError {
    /// There is no such queue.
    #[error("there is no queue `{0}`")]
    NoQueue(String),
    /// To receive from another queue is to take part in its work.
    #[error("`{0}` is no dead-letter queue")]
    NotOne(String),
    /// The queue has a redrive policy of its own, which counts every look.
    #[error(
        "`{queue}` gives a message up after {receives_max} receives: looking would use them up"
    )]
    UsedUp {
        /// Its name.
        queue: String,
        /// How many it allows.
        receives_max: u64,
    },
    /// The message does not say where it comes from.
    #[error("several queues send their dead letters here: say to which it goes")]
    NoSource,
    /// SQS or the event bus failed.
    #[error(transparent)]
    Port(#[from] PortError),
}

/// A dead-letter queue.
#[derive(Debug, Clone)]
pub struct DeadLetterQueue {
    client: Client,
    url: String,
    /// The queues that send their dead letters here, by URL.
    sources: Vec<String>,
}

/// What SQS says of a queue. The counts are approximate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holds {
    /// Messages that wait.
    pub waiting: u64,
    /// Messages in someone's hand.
    pub in_hand: u64,
    /// After how many receives it gives a message up itself, if it does.
    pub receives_max: Option<u64>,
}

impl DeadLetterQueue {
    /// The queue of this name or URL.
    ///
    /// # Errors
    /// There is none, or it is no dead-letter queue; SQS failed.
    pub async fn find(client: &Client, name_or_url: &str) -> Result<Self, DeadLettersError> {
        let url = queue_url(client, name_or_url).await?;
        let url = url.ok_or_else(|| DeadLettersError::NoQueue(name_or_url.to_owned()))?;
        let queue = Self::of(client, url).await?;
        queue.ok_or_else(|| DeadLettersError::NotOne(name_or_url.to_owned()))
    }

    /// The dead-letter queues whose names begin so.
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

    /// The queue, if it is one: some queue sends its dead letters here, or the name says so.
    async fn of(client: &Client, url: String) -> Result<Option<Self>, DeadLettersError> {
        let sources = client.list_dead_letter_source_queues().queue_url(&url).max_results(1_000);
        let sources: Result<Vec<_>, _> =
            sources.into_paginator().items().send().try_collect().await;
        let sources = match sources {
            Ok(sources) => sources,
            Err(error) if error.as_service_error().is_some_and(|e| e.is_queue_does_not_exist()) => {
                return Err(DeadLettersError::NoQueue(url));
            }
            Err(error) => return Err(failed(format!("list the sources of {url}"))(error).into()),
        };
        let queue = Self { client: client.clone(), url, sources };
        let is_one = !queue.sources.is_empty() || queue.name().ends_with(SUFFIX);
        Ok(is_one.then_some(queue))
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        name_of(&self.url)
    }

    /// Its URL.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Where dead letters come from: by the queues' settings, or else by this queue's name.
    #[must_use]
    pub fn source_names(&self) -> Vec<&str> {
        if self.sources.is_empty() {
            return self.name().strip_suffix(SUFFIX).into_iter().collect();
        }
        self.sources.iter().map(|url| name_of(url)).collect()
    }

    /// What it holds.
    ///
    /// # Errors
    /// SQS failed.
    pub async fn holds(&self) -> Result<Holds, DeadLettersError> {
        let operation = || format!("count the messages of {}", self.name());
        let names = [
            QueueAttributeName::ApproximateNumberOfMessages,
            QueueAttributeName::ApproximateNumberOfMessagesNotVisible,
            QueueAttributeName::RedrivePolicy,
        ];
        let [waiting, in_hand, policy] = &names;
        let request = self.client.get_queue_attributes().queue_url(&self.url);
        let answer = request.set_attribute_names(Some(names.to_vec())).send().await;
        let said = answer.map_err(failed(operation()))?.attributes.unwrap_or_default();
        let count = |name| {
            let count = said.get(name).map_or("0", String::as_str).parse();
            count.map_err(|error: std::num::ParseIntError| corrupt(operation())(error.into()))
        };
        let receives_max = said.get(policy).and_then(|policy| receives_max(policy));
        Ok(Holds { waiting: count(waiting)?, in_hand: count(in_hand)?, receives_max })
    }

    /// Up to `limit` messages, oldest first; the queue keeps them. For a moment nobody else can receive
    /// them, and their count of receives grows by one.
    ///
    /// # Errors
    /// A look would use them up; SQS failed.
    pub async fn look(&self, limit: usize) -> Result<Vec<DeadLetter>, DeadLettersError> {
        if let Some(receives_max) = self.holds().await?.receives_max {
            return Err(DeadLettersError::UsedUp { queue: self.name().to_owned(), receives_max });
        }
        let (mut seen, mut ids) = (Vec::new(), BTreeSet::new());
        while seen.len() < limit {
            let mut letters = self.receive(limit - seen.len(), LOOK_SECONDS).await?;
            // In a long look, the first ones come round again.
            letters.retain(|letter| ids.insert(letter.message_id().to_owned()));
            if letters.is_empty() {
                break;
            }
            seen.extend(letters);
        }
        self.give_back(&seen).await;
        seen.sort_by_key(DeadLetter::sent_at);
        Ok(seen)
    }

    /// Receives up to `limit` messages, at most a batch, and hides them for so long.
    async fn receive(
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
        let answer = request.send().await;
        let answer = answer.map_err(failed(format!("receive from {}", self.name())))?;
        let letters = answer.messages.unwrap_or_default().into_iter().map(|message| {
            let source = self.source_of(&message);
            DeadLetter { message, source }
        });
        Ok(letters.collect())
    }

    /// Where a message comes from, if there is no doubt.
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

    /// Lets others receive these messages again. What fails comes by itself in a while.
    async fn give_back(&self, letters: &[DeadLetter]) {
        for batch in letters.chunks(BATCH_MESSAGES_MAX) {
            let entries = batch.iter().enumerate().map(|(n, letter)| {
                ChangeMessageVisibilityBatchRequestEntry::builder()
                    .id(n.to_string())
                    .receipt_handle(letter.receipt())
                    .visibility_timeout(0)
                    .build()
            });
            let operation = format!("give messages back to {}", self.name());
            let given = match entries.collect::<Result<_, _>>() {
                Ok(entries) => {
                    let request =
                        self.client.change_message_visibility_batch().queue_url(&self.url);
                    let given = request.set_entries(Some(entries)).send().await;
                    given.map(|_| ()).map_err(failed(operation))
                }
                Err(error) => Err(corrupt(operation)(error.into())),
            };
            if let Err(error) = given {
                tracing::warn!(error = chain(&error), "dead letters stay hidden for a while");
            }
        }
    }
}

/// What a redrive policy allows.
fn receives_max(policy: &str) -> Option<u64> {
    let policy: serde_json::Value = serde_json::from_str(policy).ok()?;
    let max = policy.get("maxReceiveCount")?;
    // SQS takes both, and says back what it was given.
    max.as_u64().or_else(|| max.as_str()?.parse().ok())
}

/// A message in a dead-letter queue.
#[derive(Debug, Clone)]
pub struct DeadLetter {
    message: Message,
    source: Option<String>,
}

impl DeadLetter {
    /// The queue's id of it.
    #[must_use]
    pub fn message_id(&self) -> &str {
        self.message.message_id().unwrap_or("-")
    }

    /// The name of the queue it comes from, if there is no doubt.
    #[must_use]
    pub fn source(&self) -> Option<&str> {
        self.source.as_deref()
    }

    /// When it was sent.
    #[must_use]
    pub fn sent_at(&self) -> Option<Timestamp> {
        self.time(&MessageSystemAttributeName::SentTimestamp)
    }

    /// When it was first received.
    #[must_use]
    pub fn first_received_at(&self) -> Option<Timestamp> {
        self.time(&MessageSystemAttributeName::ApproximateFirstReceiveTimestamp)
    }

    /// How often it was received, each look included.
    #[must_use]
    pub fn receives(&self) -> Option<u64> {
        self.system(&MessageSystemAttributeName::ApproximateReceiveCount)?.parse().ok()
    }

    /// Texts beside the body.
    pub fn attributes(&self) -> impl Iterator<Item = (&str, &str)> {
        let attributes = self.message.message_attributes.iter().flatten();
        attributes.map(|(name, value)| (name.as_str(), text(value)))
    }

    /// What it says. It may hold what customers sent.
    #[must_use]
    pub fn body(&self) -> &str {
        self.message.body().unwrap_or_default()
    }

    fn receipt(&self) -> &str {
        self.message.receipt_handle().unwrap_or_default()
    }

    fn system(&self, name: &MessageSystemAttributeName) -> Option<&str> {
        self.message.attributes.as_ref()?.get(name).map(String::as_str)
    }

    fn time(&self, name: &MessageSystemAttributeName) -> Option<Timestamp> {
        Timestamp::from_millisecond(self.system(name)?.parse().ok()?).ok()
    }
}

fn text(value: &MessageAttributeValue) -> &str {
    value.string_value().unwrap_or("(binary)")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_of_its_own_is_read_in_either_spelling() {
        assert_eq!(receives_max(r#"{"deadLetterTargetArn":"a","maxReceiveCount":3}"#), Some(3));
        assert_eq!(receives_max(r#"{"deadLetterTargetArn":"a","maxReceiveCount":"3"}"#), Some(3));
        assert_eq!(receives_max("{}"), None);
    }
}
