//! Messages: their content, their size, and the digests that SDKs verify.

use std::borrow::Cow;
use std::collections::BTreeMap;

use base64::{Engine, engine::general_purpose::STANDARD};
use serde::{Deserialize, Serialize};

use super::{attributes::arn, error::SqsError, time::Micros};

/// The most attributes of a message.
const ATTRIBUTES_MAX: usize = 10;

/// The longest name or type of an attribute, in bytes.
const NAME_BYTES_MAX: usize = 256;

/// The most characters of a message group id.
const GROUP_CHARS_MAX: usize = 128;

/// A message in a queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct QueueMessage {
    /// A sequence number over all queues. Each copy of a message has its own number.
    pub(super) number: u64,
    /// SQS's message id. Copies have the same id.
    pub(super) id: String,
    pub(super) body: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) attributes: BTreeMap<String, MessageAttribute>,
    /// The identity of the sender: the access key id of the request's signature.
    pub(super) sender: String,
    pub(super) sent_at: Micros,
    /// Before this time no consumer receives it: it is delayed, or in flight.
    pub(super) visible_at: Micros,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(super) receives: u32,
    /// How many of the receives ended because the queues' process ended. They do not count for the redrive policy.
    #[serde(rename = "given_back", default, skip_serializing_if = "is_zero")]
    pub(super) released: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) first_received_at: Option<Micros>,
    /// The name of the source queue, if the message is a dead letter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) source: Option<String>,
    /// The message group id, by which the queue is fair.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) group: Option<String>,
}

/// A message attribute, in the format of SQS's JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct MessageAttribute {
    pub(super) data_type: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) string_value: Option<String>,
    /// In base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) binary_value: Option<String>,
}

fn is_zero(count: &u32) -> bool {
    *count == 0
}

impl QueueMessage {
    /// The number of receives that count for the redrive policy.
    pub(super) fn counted_receives(&self) -> u32 {
        self.receives.saturating_sub(self.released)
    }

    /// The attributes that SQS itself sets.
    pub(super) fn system_attributes(&self) -> impl Iterator<Item = (String, String)> {
        let millis = |at: Micros| (at / 1_000).to_string();
        let attributes = [
            Some(("SenderId", self.sender.clone())),
            Some(("SentTimestamp", millis(self.sent_at))),
            Some(("ApproximateReceiveCount", self.receives.to_string())),
            self.first_received_at.map(|at| ("ApproximateFirstReceiveTimestamp", millis(at))),
            self.source.as_deref().map(|name| ("DeadLetterQueueSourceArn", arn(name))),
            self.group.clone().map(|group| ("MessageGroupId", group)),
        ];
        attributes.into_iter().flatten().map(|(name, value)| (name.to_owned(), value))
    }
}

/// The size of a message's attributes by SQS's rule, in bytes.
pub(super) fn attributes_size(attributes: &BTreeMap<String, MessageAttribute>) -> usize {
    attributes.iter().map(|(name, attribute)| name.len() + attribute.size()).sum()
}

/// Validates a message.
pub(super) fn check(
    body: &str,
    attributes: &BTreeMap<String, MessageAttribute>,
    bytes_max: usize,
) -> Result<(), SqsError> {
    if body.is_empty() {
        return Err(SqsError::missing_parameter("MessageBody"));
    }
    if attributes.len() > ATTRIBUTES_MAX {
        let message = format!("Number of message attributes [{}]", attributes.len());
        return Err(SqsError::parameter("MessageAttributes", message, "At most 10 are allowed"));
    }
    attributes.iter().try_for_each(|(name, attribute)| attribute.check(name))?;
    if body.len() + attributes_size(attributes) > bytes_max {
        return Err(SqsError::message_too_long(bytes_max));
    }
    if body.chars().any(is_refused) {
        return Err(SqsError::message_contents());
    }
    Ok(())
}

/// Validates a message group id.
pub(super) fn check_group(group: &str) -> Result<(), SqsError> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte.is_ascii_punctuation();
    if (1..=GROUP_CHARS_MAX).contains(&group.len()) && group.bytes().all(is_plain) {
        return Ok(());
    }
    let reason = "Can only include alphanumeric and punctuation characters. 1 to 128 in length";
    Err(SqsError::parameter("MessageGroupId", group, reason))
}

/// Whether SQS refuses a character. It refuses the characters that XML does not allow.
fn is_refused(letter: char) -> bool {
    matches!(letter, '\0'..='\u{8}' | '\u{b}' | '\u{c}' | '\u{e}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}')
}

/// The MD5 digest of a body, in hex.
pub(super) fn md5_of_body(body: &str) -> String {
    format!("{:x}", md5::compute(body))
}

/// The MD5 digest of a message's attributes, in hex; `None` without attributes.
pub(super) fn md5_of_attributes(attributes: &BTreeMap<String, MessageAttribute>) -> Option<String> {
    if attributes.is_empty() {
        return None;
    }
    let mut digested = Vec::new();
    // Sorted by name, as SQS requires.
    for (name, attribute) in attributes {
        add(&mut digested, name.as_bytes());
        add(&mut digested, attribute.data_type.as_bytes());
        if let Some((kind, value)) = attribute.value() {
            digested.push(kind);
            add(&mut digested, &value);
        }
    }
    Some(format!("{:x}", md5::compute(digested)))
}

/// Appends the length of `bytes`, and `bytes`.
fn add(digested: &mut Vec<u8>, bytes: &[u8]) {
    digested.extend(u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_be_bytes());
    digested.extend(bytes);
}

impl MessageAttribute {
    /// The value, and SQS's code for its type: 1 for a string, 2 for bytes.
    fn value(&self) -> Option<(u8, Cow<'_, [u8]>)> {
        match (&self.string_value, &self.binary_value) {
            (Some(text), None) => Some((1, text.as_bytes().into())),
            (None, Some(base64)) => Some((2, STANDARD.decode(base64).ok()?.into())),
            (Some(_), Some(_)) | (None, None) => None,
        }
    }

    /// Its size by SQS's rule, in bytes.
    fn size(&self) -> usize {
        self.data_type.len() + self.value().map_or(0, |(_, value)| value.len())
    }

    fn check(&self, name: &str) -> Result<(), SqsError> {
        let refused = |reason: &str| SqsError::parameter("MessageAttributes", name, reason);
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
        let is_named = (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(is_plain);
        if !is_named || name.starts_with('.') || name.ends_with('.') || name.contains("..") {
            return Err(refused("A name has letters, digits, underscores, hyphens and periods"));
        }
        let kind = match self.data_type.split('.').next() {
            Some("String" | "Number") => 1,
            Some("Binary") => 2,
            Some(_) | None => 0,
        };
        if self.data_type.len() > NAME_BYTES_MAX || kind == 0 {
            return Err(refused("The type must begin with String, Number or Binary"));
        }
        let value = self.value().filter(|(found, value)| *found == kind && !value.is_empty());
        let (_, value) = value.ok_or_else(|| refused("It needs a value of its type"))?;
        if kind == 1 && String::from_utf8_lossy(&value).chars().any(is_refused) {
            return Err(SqsError::message_contents());
        }
        Ok(())
    }
}
