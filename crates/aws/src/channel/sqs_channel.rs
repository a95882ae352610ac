//! Sends messages to the queues of a deployment, in batches, and finds its dead-letter queues. Concurrent sends
//! [share](crate::coalescer) their batches.

use std::{collections::BTreeMap, sync::Arc};

use aws_sdk_sqs::{
    Client,
    types::{MessageAttributeValue, QueueAttributeName, SendMessageBatchRequestEntry},
};
use futures_util::{StreamExt, TryStreamExt, stream};
use steward_core::limits;
use steward_runtime::ports::{Channel, OutgoingMessage, PortError, Queue, error_chain};

use crate::{
    coalescer::{PendingRequest, RequestCoalescer, leader_cancelled},
    dead_letters::{DeadLetterQueue, DeadLettersError, SUFFIX},
    errors::{corrupt, failed, for_each},
    sqs::{BATCH_MESSAGES_MAX, QueueUrls, beside, queue_name},
};

/// Bytes in a batch. SQS allows 1 MiB since August 2025, and so do its emulators and the embedded queues. More than
/// 256 KiB would save nothing, because SQS bills every 64 KiB as a request.
const BATCH_BYTES_MAX: usize = 256 * 1024;

/// The number of concurrent requests to SQS.
pub(super) const BATCHES_AT_ONCE: usize = 16;

/// Messages of concurrent sends that share their batches: as many as the concurrent requests can carry.
const SHARED_MESSAGES_MAX: usize = BATCHES_AT_ONCE * BATCH_MESSAGES_MAX;

/// The operation in errors of sends whose batches were not sent.
const OPERATION: &str = "send messages";

/// A result for each message of a send.
type SendResults = Vec<Result<(), PortError>>;

/// The queues of a deployment.
#[derive(Debug, Clone)]
pub struct SqsChannel {
    pub(super) client: Client,
    pub(super) queues: QueueUrls,
    /// The URLs of the dead-letter queues that the configuration lists.
    pub(super) dead_letters: Vec<String>,
    sends: Arc<RequestCoalescer<Vec<OutgoingMessage>, SendResults>>,
}

impl SqsChannel {
    /// A channel over these queues. `dead_letters` are the URLs of further dead-letter queues, beside those of the
    /// queues of submissions, of the scheduler, of commands and of events.
    #[must_use]
    pub fn new(client: Client, queues: QueueUrls, dead_letters: Vec<String>) -> Self {
        Self { client, queues, dead_letters, sends: Arc::default() }
    }

    /// The URL of a queue.
    pub(super) fn url(&self, queue: &Queue) -> String {
        match queue {
            Queue::Submissions => self.queues.submissions.clone(),
            Queue::Scheduler => self.queues.scheduler.clone(),
            Queue::Commands => self.queues.commands.clone(),
            Queue::Events => self.queues.events.clone(),
            Queue::Rejected => self.queues.rejected.clone(),
            Queue::Agent(agent) => self.queues.agents.of(agent),
            Queue::Client(url) => url.clone(),
            Queue::Sweeps => self.queues.sweeps.clone(),
        }
    }

    /// The URL of a queue of the deployment that is given by name or URL.
    pub(super) fn url_of(&self, name_or_url: &str) -> String {
        beside(&self.queues.scheduler, name_or_url)
    }

    /// Those of these dead-letter queues, given by name or URL, that exist. Logs the others.
    ///
    /// # Errors
    /// SQS failed.
    pub async fn dead_letter_queues(
        &self,
        queues: &[String],
    ) -> Result<Vec<DeadLetterQueue>, DeadLettersError> {
        let found = queues.iter().map(|queue| async move {
            match DeadLetterQueue::find(&self.client, &self.url_of(queue)).await {
                Ok(found) => Ok(Some(found)),
                Err(
                    error @ (DeadLettersError::NoQueue(_)
                    | DeadLettersError::NotADeadLetterQueue(_)),
                ) => {
                    tracing::warn!(error = error_chain(&error), "dead-letter queue skipped");
                    Ok(None)
                }
                Err(error) => Err(error),
            }
        });
        let found: Vec<_> = found.collect();
        let found: Vec<_> = stream::iter(found).buffered(BATCHES_AT_ONCE).try_collect().await?;
        Ok(found.into_iter().flatten().collect())
    }

    /// The dead-letter queue with this name, if it is one of `queues`, which are given by name or URL.
    ///
    /// # Errors
    /// The name is that of another queue, the queue does not exist, or SQS failed.
    pub async fn dead_letter_queue(
        &self,
        queues: &[String],
        name: &str,
    ) -> Result<DeadLetterQueue, DeadLettersError> {
        let queue = queues.iter().find(|queue| queue_name(queue) == name);
        let queue = queue.ok_or_else(|| DeadLettersError::NoQueue(name.to_owned()))?;
        DeadLetterQueue::find(&self.client, &self.url_of(queue)).await
    }

    /// The URL of the queue of rejected submissions.
    #[must_use]
    pub fn rejected_queue(&self) -> &str {
        &self.queues.rejected
    }

    /// The deployment's queue with this name.
    #[must_use]
    pub fn queue(&self, name: &str) -> Option<Queue> {
        let QueueUrls { submissions, scheduler, commands, events, rejected, agents, sweeps: _ } =
            &self.queues;
        let known = [
            (submissions, Queue::Submissions),
            (scheduler, Queue::Scheduler),
            (commands, Queue::Commands),
            (events, Queue::Events),
            (rejected, Queue::Rejected),
        ];
        let known = known.into_iter().find(|(url, _)| queue_name(url) == name);
        known.map(|(_, queue)| queue).or_else(|| Some(Queue::Agent(agents.agent(name)?)))
    }

    /// The approximate number of messages in a queue.
    async fn count_messages(&self, url: &str) -> Result<u64, PortError> {
        let operation = || format!("count the messages of {url}");
        let request = DEAD_LETTER_COUNTS
            .iter()
            .fold(self.client.get_queue_attributes().queue_url(url), |request, name| {
                request.attribute_names(name.clone())
            });
        let output = request.send().await.map_err(failed(operation()))?;
        let counts = output.attributes().into_iter().flatten();
        let counts = counts.map(|(_, count)| count.parse::<u64>()).sum::<Result<_, _>>();
        counts.map_err(|error| corrupt(operation())(error.into()))
    }

    /// Sends the messages of concurrent sends, and answers each of them.
    async fn send_shared(&self, sends: Vec<PendingRequest<Vec<OutgoingMessage>, SendResults>>) {
        let (sends, callers): (Vec<_>, Vec<_>) = sends.into_iter().unzip();
        let counts: Vec<_> = sends.iter().map(Vec::len).collect();
        let mut results = self.send_all(sends.into_iter().flatten().collect()).await.into_iter();
        for (caller, count) in callers.into_iter().zip(counts) {
            // It fails if the caller was cancelled.
            drop(caller.send(results.by_ref().take(count).collect()));
        }
    }

    /// Sends messages, each queue's in batches. Returns a result for each, by position.
    async fn send_all(&self, messages: Vec<OutgoingMessage>) -> SendResults {
        let mut results: SendResults = messages.iter().map(|_| Ok(())).collect();
        let mut queues: BTreeMap<String, Vec<MessageBatch>> = BTreeMap::new();
        for (position, message) in messages.into_iter().enumerate() {
            let batches = queues.entry(self.url(&message.queue)).or_default();
            let bytes = size(&message);
            match batches.last_mut() {
                Some(batch) if batch.has_room_for(bytes) => batch.add(position, message, bytes),
                Some(_) | None => {
                    let mut batch = MessageBatch::default();
                    batch.add(position, message, bytes);
                    batches.push(batch);
                }
            }
        }
        let batches = queues
            .into_iter()
            .flat_map(|(url, batches)| batches.into_iter().map(move |batch| (url.clone(), batch)));
        let mut sending = stream::iter(batches)
            .map(|(url, batch)| async move { self.send_batch(&url, batch).await })
            .buffer_unordered(BATCHES_AT_ONCE);
        while let Some(sent) = sending.next().await {
            for (position, result) in sent {
                if let Some(slot) = results.get_mut(position) {
                    *slot = result;
                }
            }
        }
        results
    }

    /// Sends one batch. Returns a result for each of its messages, by position.
    async fn send_batch(
        &self,
        queue: &str,
        batch: MessageBatch,
    ) -> Vec<(usize, Result<(), PortError>)> {
        let operation = || format!("send to {queue}");
        let positions: Vec<_> = batch.messages.iter().map(|(position, _)| *position).collect();
        let entries: Result<Vec<_>, _> = batch.messages.into_iter().map(entry).collect();
        let request = match entries {
            Ok(entries) => {
                self.client.send_message_batch().queue_url(queue).set_entries(Some(entries))
            }
            Err(error) => {
                let errors = for_each(corrupt(operation())(error.into()), positions.len());
                return positions.into_iter().zip(errors.map(Err)).collect();
            }
        };
        match request.send().await {
            Ok(output) => {
                let refused: BTreeMap<_, _> =
                    output.failed().iter().map(|failed| (failed.id(), failed)).collect();
                let result = |position: usize| match refused.get(position.to_string().as_str()) {
                    None => (position, Ok(())),
                    Some(failed) => {
                        let source =
                            format!("{}: {}", failed.code(), failed.message().unwrap_or("-"));
                        let retryable = !failed.sender_fault();
                        let operation = operation();
                        (position, Err(PortError { operation, retryable, source: source.into() }))
                    }
                };
                positions.into_iter().map(result).collect()
            }
            Err(error) => {
                let errors = for_each(failed(operation())(error), positions.len());
                positions.into_iter().zip(errors.map(Err)).collect()
            }
        }
    }
}

impl Channel for SqsChannel {
    async fn send(&self, messages: Vec<OutgoingMessage>) -> SendResults {
        let count = messages.len();
        let has_room = |sends: &[PendingRequest<Vec<_>, _>], more: &Vec<_>| {
            let shared: usize = sends.iter().map(|(messages, _)| messages.len()).sum();
            shared + more.len() <= SHARED_MESSAGES_MAX
        };
        let results = self.sends.request(messages, has_room, |sends| self.send_shared(sends)).await;
        results.unwrap_or_else(|| for_each(leader_cancelled(OPERATION), count).map(Err).collect())
    }

    fn configured_dead_letter_queues(&self) -> Vec<String> {
        let QueueUrls { submissions, scheduler, commands, events, .. } = &self.queues;
        let own =
            [submissions, scheduler, commands, events].into_iter().filter(|url| !url.is_empty());
        let own: Vec<_> = own.map(|url| format!("{url}{SUFFIX}")).collect();
        let listed = self.dead_letters.iter().filter(|url| !own.contains(url)).cloned();
        own.iter().cloned().chain(listed).collect()
    }

    async fn dead_letters(&self, queues: &[String]) -> Vec<(String, Result<u64, PortError>)> {
        let counts: Vec<_> = queues
            .iter()
            .map(|queue| async move {
                let messages = self.count_messages(&self.url_of(queue)).await;
                (queue_name(queue).to_owned(), messages)
            })
            .collect();
        stream::iter(counts).buffered(BATCHES_AT_ONCE).collect().await
    }

    async fn unread(&self, queues: &[Queue]) -> Vec<Result<bool, PortError>> {
        let depths = queues.iter().map(|queue| async move {
            let depth = self.depth(queue).await?;
            Ok(depth.is_some_and(|depth| depth.waiting > 0 && depth.in_flight == 0))
        });
        let depths: Vec<_> = depths.collect();
        stream::iter(depths).buffered(BATCHES_AT_ONCE).collect().await
    }
}

/// The attributes that count dead letters. They include messages in flight, because an operator may be reading them.
const DEAD_LETTER_COUNTS: [QueueAttributeName; 2] = [
    QueueAttributeName::ApproximateNumberOfMessages,
    QueueAttributeName::ApproximateNumberOfMessagesNotVisible,
];

/// Messages that share a request, each with its position in the caller's list.
#[derive(Default)]
struct MessageBatch {
    messages: Vec<(usize, OutgoingMessage)>,
    bytes: usize,
}

impl MessageBatch {
    fn has_room_for(&self, bytes: usize) -> bool {
        self.messages.len() < BATCH_MESSAGES_MAX && self.bytes + bytes <= BATCH_BYTES_MAX
    }

    fn add(&mut self, position: usize, message: OutgoingMessage, bytes: usize) {
        self.messages.push((position, message));
        self.bytes += bytes;
    }
}

/// The size of a message in bytes, as SQS counts it: the body, and the names, types and values of the attributes.
#[must_use]
pub fn size(message: &OutgoingMessage) -> usize {
    let attributes =
        message.attributes.iter().map(|(name, value)| name.len() + "String".len() + value.len());
    message.body.len() + attributes.sum::<usize>()
}

fn entry(
    (position, message): (usize, OutgoingMessage),
) -> Result<SendMessageBatchRequestEntry, aws_sdk_sqs::error::BuildError> {
    let mut entry =
        SendMessageBatchRequestEntry::builder().id(position.to_string()).message_body(message.body);
    entry = entry.set_message_group_id(message.tenant.map(|tenant| tenant.to_string()));
    for (name, value) in message.attributes {
        let value =
            MessageAttributeValue::builder().data_type("String").string_value(value).build()?;
        entry = entry.message_attributes(name, value);
    }
    // Whole seconds, rounded up: a wake that arrives early has nothing to do.
    let seconds = message.delay.min(limits::QUEUE_DELAY_MAX).as_millis().div_ceil(1_000);
    entry = entry.set_delay_seconds(i32::try_from(seconds).ok().filter(|seconds| *seconds > 0));
    entry.build()
}
