//! Redrives dead letters to the queues that they came from. An event on the bus announces the redrive first; then the
//! messages are sent individually, up to ten at a time. A message is deleted after it is sent, so it may be handled twice, but is never lost.

use std::collections::{BTreeMap, HashMap};

use aws_sdk_sqs::types::MessageAttributeValue;
use futures_util::{StreamExt, stream};
use jiff::Timestamp;
use steward_core::{
    limits::{COMMAND_TEXT_CHARS_MAX, short_line},
    model::events::{BusEvent, EventData},
};
use steward_runtime::{
    dispatch::{AUTHENTICATED_ATTRIBUTE, REFUSAL_ATTRIBUTE},
    ports::{EventBus, PortError, error_chain},
};

use super::{dead_letter::DeadLetter, error::DeadLettersError, queue::DeadLetterQueue};
use crate::{
    batch::REDRIVEN_ATTRIBUTE,
    errors::{corrupt, failed},
    sqs::{BATCH_MESSAGES_MAX, queue_name, queue_url},
};

/// The visibility timeout, in seconds, of a message that is being redriven. It prevents a second operator from sending
/// the message too.
const REDRIVE_SECONDS: i32 = 60;

/// Attributes of a message, by SQS's limit.
const ATTRIBUTES_MAX: usize = 10;

/// An operator's request to redrive messages.
#[derive(Debug, Clone)]
pub struct RedriveRequest {
    /// The maximum number of messages.
    pub max: usize,
    /// The URL of the target queue. Without it, each message returns to its source queue.
    pub to: Option<String>,
    /// The operator.
    pub by: String,
    /// The operator's reason.
    pub why: String,
}

/// The outcome of a redrive.
#[derive(Debug, Default)]
pub struct RedriveOutcome {
    /// The number of messages that were sent, by the name of the target queue.
    pub sent: BTreeMap<String, usize>,
    /// The number of messages that were sent but not deleted, so that they are in both queues.
    pub duplicated: usize,
    /// The number of messages that were not sent, by reason.
    pub reasons: BTreeMap<String, usize>,
    kept: Vec<DeadLetter>,
}

impl DeadLetterQueue {
    /// Publishes an event that announces the redrive, and sends the messages that arrived before `at`, the present time: a
    /// submission that is refused again must not be sent back again. After each batch, `should_continue` gets the number
    /// of messages received so far and returns whether to continue.
    ///
    /// # Errors
    /// The event could not be published, and no message was sent; or SQS failed, possibly after some messages were sent.
    pub async fn redrive<B: EventBus>(
        &self,
        bus: &B,
        at: Timestamp,
        request: &RedriveRequest,
        mut should_continue: impl FnMut(usize) -> bool,
    ) -> Result<RedriveOutcome, DeadLettersError> {
        let published = bus.publish(vec![self.announcement(at, request)]).await;
        published.into_iter().collect::<Result<(), PortError>>()?;
        let (mut redriven, mut received) = (RedriveOutcome::default(), 0);
        while received < request.max {
            let mut letters = self.receive(request.max - received, REDRIVE_SECONDS).await?;
            // If this takes long, messages that were not sent become visible again.
            letters.retain(|letter| !redriven.keeps(letter));
            if letters.is_empty() {
                break;
            }
            received += letters.len();
            let sent: Vec<_> = stream::iter(letters)
                .map(async |letter| {
                    let sent = match letter.sent_at().is_some_and(|sent_at| sent_at > at) {
                        true => Err(DeadLettersError::ArrivedLater),
                        false => self.send_back(request.to.as_deref(), &letter).await,
                    };
                    (letter, sent)
                })
                .buffer_unordered(BATCH_MESSAGES_MAX)
                .collect()
                .await;
            sent.into_iter().for_each(|(letter, sent)| redriven.add(letter, sent));
            if !should_continue(received) {
                break;
            }
        }
        self.release(&redriven.kept).await;
        let (queue, by, sent, kept) =
            (self.name(), &request.by, redriven.count(), redriven.kept.len());
        tracing::info!(queue, by, sent, kept, "dead letters redriven");
        Ok(redriven)
    }

    /// The event that announces a redrive.
    fn announcement(&self, at: Timestamp, request: &RedriveRequest) -> BusEvent {
        let short = |text: &str| short_line(text, COMMAND_TEXT_CHARS_MAX);
        let data = EventData::OperatorRedrive {
            queue: self.name().to_owned(),
            to: request.to.as_deref().map(|url| queue_name(url).to_owned()),
            messages_max: request.max as u64,
            by: short(&request.by),
            why: short(&request.why),
        };
        BusEvent::new(self.name(), at, data)
    }

    /// Sends a message to the target queue or to its source queue, and then deletes it from this queue.
    async fn send_back(
        &self,
        to: Option<&str>,
        letter: &DeadLetter,
    ) -> Result<SentBack, DeadLettersError> {
        let target = match (to, letter.source()) {
            (Some(to), _) => to.to_owned(),
            (None, Some(source)) => self.source_url(source).await?,
            (None, None) => return Err(DeadLettersError::UnknownSource),
        };
        let operation = format!("send to {target}");
        let Some(body) = letter.message.body() else {
            return Err(corrupt(operation)("the message has no body".into()).into());
        };
        let request = self
            .client
            .send_message()
            .queue_url(&target)
            .message_body(body)
            .set_message_group_id(letter.group())
            .set_message_attributes(Some(attributes(letter)?));
        request.send().await.map_err(failed(operation))?;
        let request = self.client.delete_message().queue_url(&self.url);
        let deleted = request.receipt_handle(letter.receipt()).send().await.is_ok();
        Ok(SentBack { target: queue_name(&target).to_owned(), deleted })
    }

    /// The URL of a source queue.
    async fn source_url(&self, name: &str) -> Result<String, DeadLettersError> {
        if let Some(url) = self.sources.iter().find(|url| queue_name(url) == name) {
            return Ok(url.clone());
        }
        let url = queue_url(&self.client, name).await?;
        url.ok_or_else(|| DeadLettersError::NoQueue(name.to_owned()))
    }
}

/// The attributes of a message, with [`REDRIVEN_ATTRIBUTE`], so that the receiver sends effects again that the earlier deliveries
/// may have lost. A message with the maximum number of attributes stays unmarked: it is not a message of Steward, so no
/// effects were lost.
fn attributes(
    letter: &DeadLetter,
) -> Result<HashMap<String, MessageAttributeValue>, DeadLettersError> {
    let mut attributes = letter.message.message_attributes.clone().unwrap_or_default();
    // Why a submission was refused. It says nothing about the message that is sent now.
    attributes.remove(REFUSAL_ATTRIBUTE);
    // The console or the CLI sends the message now. Neither has authenticated the operator whom the message names.
    attributes.remove(AUTHENTICATED_ATTRIBUTE);
    if attributes.len() < ATTRIBUTES_MAX {
        let value = MessageAttributeValue::builder().data_type("String").string_value("true");
        let value = value.build().map_err(|error| {
            corrupt(format!("mark message {} as redriven", letter.message_id()))(error.into())
        })?;
        attributes.insert(REDRIVEN_ATTRIBUTE.to_owned(), value);
    }
    Ok(attributes)
}

/// A message that was sent to its target queue.
struct SentBack {
    target: String,
    deleted: bool,
}

impl RedriveOutcome {
    /// The number of messages that were sent.
    #[must_use]
    pub fn count(&self) -> usize {
        self.sent.values().sum()
    }

    /// The problems of the redrive, as text for people.
    #[must_use]
    pub fn problems(&self) -> Vec<String> {
        let kept = self.reasons.iter().map(|(reason, count)| format!("{count} kept: {reason}"));
        let doubled = format!("{} sent but not deleted: they are in both queues", self.duplicated);
        kept.chain((self.duplicated > 0).then_some(doubled)).collect()
    }

    fn keeps(&self, letter: &DeadLetter) -> bool {
        self.kept.iter().any(|kept| kept.message_id() == letter.message_id())
    }

    fn add(&mut self, letter: DeadLetter, sent: Result<SentBack, DeadLettersError>) {
        match sent {
            Ok(SentBack { target, deleted }) => {
                *self.sent.entry(target).or_default() += 1;
                self.duplicated += usize::from(!deleted);
            }
            Err(error) => {
                *self.reasons.entry(error_chain(&error)).or_default() += 1;
                self.kept.push(letter);
            }
        }
    }
}
