//! Dead letters go back to the queues they came from: told on the bus first, then sent one by one. A
//! message is deleted only once it is sent: it may be done twice, and never not at all.

use std::collections::{BTreeMap, HashMap};

use aws_sdk_sqs::types::MessageAttributeValue;
use futures_util::{StreamExt, stream};
use jiff::Timestamp;
use steward_core::{
    limits::{COMMAND_TEXT_CHARS_MAX, shorten},
    model::events::{BusEvent, Happened},
};
use steward_runtime::ports::{EventBus, PortError, chain};

use super::{DeadLetter, DeadLetterQueue, DeadLettersError, REDRIVE_SECONDS};
use crate::{
    batch::REDRIVEN,
    channel::{BATCH_MESSAGES_MAX, name_of, queue_url},
    errors::{corrupt, failed},
};

/// Attributes of a message, by SQS's limit.
const ATTRIBUTES_MAX: usize = 10;

/// What an operator asks.
#[derive(Debug, Clone)]
pub struct Redrive {
    /// How many messages at most.
    pub max: usize,
    /// The URL of the queue to send them to; without it, where each came from.
    pub to: Option<String>,
    /// Who asks.
    pub by: String,
    /// Why.
    pub why: String,
}

/// What became of the messages.
#[derive(Debug, Default)]
pub struct Redriven {
    /// How many were sent, by the name of the queue.
    pub sent: BTreeMap<String, usize>,
    /// Of these, how many could not be deleted: they are in both queues.
    pub doubled: usize,
    /// Why others were kept, and how many.
    pub reasons: BTreeMap<String, usize>,
    kept: Vec<DeadLetter>,
}

impl DeadLetterQueue {
    /// Tells on the bus that messages are sent back, by whom and why, and sends them, as long as
    /// `goes_on` says so: it hears after each batch how many were taken up until then.
    ///
    /// # Errors
    /// It could not be told, and nothing was done; or SQS failed on the way, after some were sent.
    pub async fn redrive<B: EventBus>(
        &self,
        bus: &B,
        at: Timestamp,
        asked: &Redrive,
        mut goes_on: impl FnMut(usize) -> bool,
    ) -> Result<Redriven, DeadLettersError> {
        let told = bus.publish(vec![self.told(at, asked)]).await;
        told.into_iter().collect::<Result<(), PortError>>()?;
        let (mut redriven, mut seen) = (Redriven::default(), 0);
        while seen < asked.max {
            let mut letters = self.receive(asked.max - seen, REDRIVE_SECONDS).await?;
            // In a long run, what is kept comes round again.
            letters.retain(|letter| !redriven.keeps(letter));
            if letters.is_empty() {
                break;
            }
            seen += letters.len();
            let sent: Vec<_> = stream::iter(letters)
                .map(async |letter| {
                    let sent = self.send_back(asked.to.as_deref(), &letter).await;
                    (letter, sent)
                })
                .buffer_unordered(BATCH_MESSAGES_MAX)
                .collect()
                .await;
            sent.into_iter().for_each(|(letter, sent)| redriven.add(letter, sent));
            if !goes_on(seen) {
                break;
            }
        }
        self.give_back(&redriven.kept).await;
        let (queue, by, sent, kept) =
            (self.name(), &asked.by, redriven.count(), redriven.kept.len());
        tracing::info!(queue, by, sent, kept, "dead letters sent back");
        Ok(redriven)
    }

    fn told(&self, at: Timestamp, asked: &Redrive) -> BusEvent {
        let short = |text: &str| shorten(text, COMMAND_TEXT_CHARS_MAX);
        let data = Happened::OperatorRedrive {
            queue: self.name().to_owned(),
            to: asked.to.as_deref().map(|url| name_of(url).to_owned()),
            messages_max: asked.max as u64,
            by: short(&asked.by),
            why: short(&asked.why),
        };
        BusEvent::new(self.name(), at, data)
    }

    /// Sends a message where it came from, and then deletes it here.
    async fn send_back(
        &self,
        to: Option<&str>,
        letter: &DeadLetter,
    ) -> Result<Sent, DeadLettersError> {
        let target = match (to, letter.source()) {
            (Some(to), _) => to.to_owned(),
            (None, Some(source)) => self.source_url(source).await?,
            (None, None) => return Err(DeadLettersError::NoSource),
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
            .set_message_attributes(Some(attributes(letter)?));
        request.send().await.map_err(failed(operation))?;
        let request = self.client.delete_message().queue_url(&self.url);
        let deleted = request.receipt_handle(letter.receipt()).send().await.is_ok();
        Ok(Sent { target: name_of(&target).to_owned(), deleted })
    }

    /// The URL of a source.
    async fn source_url(&self, name: &str) -> Result<String, DeadLettersError> {
        if let Some(url) = self.sources.iter().find(|url| name_of(url) == name) {
            return Ok(url.clone());
        }
        let url = queue_url(&self.client, name).await?;
        url.ok_or_else(|| DeadLettersError::NoQueue(name.to_owned()))
    }
}

/// The attributes of a message, and that it was sent back: its receiver then sends effects again that its
/// earlier deliveries may have lost. A message that has as many as SQS takes is not ours and has no effects
/// of that kind: it keeps them.
fn attributes(
    letter: &DeadLetter,
) -> Result<HashMap<String, MessageAttributeValue>, DeadLettersError> {
    let mut attributes = letter.message.message_attributes.clone().unwrap_or_default();
    if attributes.len() < ATTRIBUTES_MAX {
        let value = MessageAttributeValue::builder().data_type("String").string_value("true");
        let value = value.build().map_err(|error| {
            corrupt(format!("mark message {} as sent back", letter.message_id()))(error.into())
        })?;
        attributes.insert(REDRIVEN.to_owned(), value);
    }
    Ok(attributes)
}

/// A message that is in its source again.
struct Sent {
    target: String,
    deleted: bool,
}

impl Redriven {
    /// How many were sent.
    #[must_use]
    pub fn count(&self) -> usize {
        self.sent.values().sum()
    }

    /// What did not go as it should, for people.
    #[must_use]
    pub fn wrong(&self) -> Vec<String> {
        let kept = self.reasons.iter().map(|(reason, count)| format!("{count} kept: {reason}"));
        let doubled = format!("{} sent but not deleted: they are in both queues", self.doubled);
        kept.chain((self.doubled > 0).then_some(doubled)).collect()
    }

    fn keeps(&self, letter: &DeadLetter) -> bool {
        self.kept.iter().any(|kept| kept.message_id() == letter.message_id())
    }

    fn add(&mut self, letter: DeadLetter, sent: Result<Sent, DeadLettersError>) {
        match sent {
            Ok(Sent { target, deleted }) => {
                *self.sent.entry(target).or_default() += 1;
                self.doubled += usize::from(!deleted);
            }
            Err(error) => {
                *self.reasons.entry(chain(&error)).or_default() += 1;
                self.kept.push(letter);
            }
        }
    }
}
