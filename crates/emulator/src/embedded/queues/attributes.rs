//! A queue's attributes: what is set, checked as SQS checks it, and what that means.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::refusal::Refusal;
use super::time::{Micros, SECOND};
use crate::embedded::{ACCOUNT, REGION};

/// The largest message, and the largest batch, in bytes.
pub(super) const MESSAGE_BYTES_MAX: usize = 1024 * 1024;

/// How long a message may be hidden, in seconds.
pub(super) const VISIBILITY_SECONDS_MAX: u32 = 43_200;

/// How long a message may be delayed, in seconds.
pub(super) const DELAY_SECONDS_MAX: u32 = 900;

/// How long a receive may wait, in seconds.
pub(super) const WAIT_SECONDS_MAX: u32 = 20;

const VISIBILITY: Number =
    Number { name: "VisibilityTimeout", default: 30, min: 0, max: VISIBILITY_SECONDS_MAX };
const DELAY: Number = Number { name: "DelaySeconds", default: 0, min: 0, max: DELAY_SECONDS_MAX };
const SIZE: Number = Number {
    name: "MaximumMessageSize",
    default: MESSAGE_BYTES_MAX as u32,
    min: 1_024,
    max: MESSAGE_BYTES_MAX as u32,
};
const RETENTION: Number =
    Number { name: "MessageRetentionPeriod", default: 345_600, min: 60, max: 1_209_600 };
const WAIT: Number =
    Number { name: "ReceiveMessageWaitTimeSeconds", default: 0, min: 0, max: WAIT_SECONDS_MAX };

const NUMBERS: [Number; 5] = [VISIBILITY, DELAY, SIZE, RETENTION, WAIT];

const REDRIVE_POLICY: &str = "RedrivePolicy";

/// Attributes that are kept and have no effect here.
const TEXTS: [&str; 5] = [
    "Policy",
    "RedriveAllowPolicy",
    "KmsMasterKeyId",
    "KmsDataKeyReusePeriodSeconds",
    "SqsManagedSseEnabled",
];

/// The most receives that a redrive policy may allow.
const RECEIVES_MAX: u64 = 1_000;

/// An attribute that is a number.
struct Number {
    name: &'static str,
    default: u32,
    min: u32,
    max: u32,
}

/// The attributes of a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Attributes {
    /// As they were set.
    set: BTreeMap<String, String>,
    pub(super) visibility: Micros,
    pub(super) delay: Micros,
    pub(super) bytes_max: usize,
    pub(super) retention: Micros,
    pub(super) wait: Micros,
    pub(super) redrive: Option<Redrive>,
}

/// When a message is a dead letter, and where it goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Redrive {
    /// The name of the dead-letter queue.
    pub(super) to: String,
    pub(super) receives_max: u32,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RedrivePolicy {
    dead_letter_target_arn: String,
    max_receive_count: Value,
}

/// The ARN of a queue.
pub(super) fn arn(name: &str) -> String {
    format!("arn:aws:sqs:{REGION}:{ACCOUNT}:{name}")
}

impl Attributes {
    /// Checks what is set.
    pub(super) fn parse(set: BTreeMap<String, String>) -> Result<Self, Refusal> {
        if let Some(name) = set.keys().find(|name| !Self::is_known(name)) {
            return Err(Refusal::attribute_name(name));
        }
        let redrive = set.get(REDRIVE_POLICY).map(|policy| Redrive::parse(policy)).transpose()?;
        let seconds = |number: &Number| Ok::<_, Refusal>(Micros::from(number.of(&set)?) * SECOND);
        Ok(Self {
            visibility: seconds(&VISIBILITY)?,
            delay: seconds(&DELAY)?,
            bytes_max: SIZE.of(&set)? as usize,
            retention: seconds(&RETENTION)?,
            wait: seconds(&WAIT)?,
            redrive,
            set,
        })
    }

    /// Whether there is an attribute of this name that can be set.
    pub(super) fn is_known(name: &str) -> bool {
        let is_number = NUMBERS.iter().any(|number| number.name == name);
        is_number || TEXTS.contains(&name) || name == REDRIVE_POLICY
    }

    /// The same with others set; an empty policy is removed.
    pub(super) fn with(&self, others: BTreeMap<String, String>) -> Result<Self, Refusal> {
        let mut set = self.set.clone();
        set.extend(others);
        set.retain(|name, value| {
            !(value.is_empty() && (name == REDRIVE_POLICY || TEXTS.contains(&name.as_str())))
        });
        Self::parse(set)
    }

    /// An attribute of `wanted` that is not as it is here.
    pub(super) fn differs<'a>(&self, wanted: &'a BTreeMap<String, String>) -> Option<&'a str> {
        let values = self.values();
        wanted
            .iter()
            .find(|(name, value)| values.get(*name) != Some(value))
            .map(|(name, _)| &**name)
    }

    /// What was set.
    pub(super) fn set(&self) -> &BTreeMap<String, String> {
        &self.set
    }

    /// What is set, and the defaults of what is not.
    pub(super) fn values(&self) -> BTreeMap<String, String> {
        let defaults =
            NUMBERS.iter().map(|number| (number.name.to_owned(), number.default.to_string()));
        defaults.chain(self.set.clone()).collect()
    }
}

impl Number {
    fn of(&self, set: &BTreeMap<String, String>) -> Result<u32, Refusal> {
        let Some(value) = set.get(self.name) else { return Ok(self.default) };
        let number = value.parse().ok().filter(|number| (self.min..=self.max).contains(number));
        number.ok_or_else(|| Refusal::attribute_value(self.name, value))
    }
}

impl Redrive {
    fn parse(text: &str) -> Result<Self, Refusal> {
        let refused = |reason: &str| Refusal::parameter(REDRIVE_POLICY, text, reason);
        let policy: RedrivePolicy = serde_json::from_str(text)
            .map_err(|_| refused("It needs deadLetterTargetArn and maxReceiveCount, as JSON"))?;
        // SQS takes the number in quotes, too.
        let count = policy.max_receive_count;
        let count = count.as_u64().or_else(|| count.as_str()?.parse().ok());
        let count = count.filter(|count| (1..=RECEIVES_MAX).contains(count));
        let receives_max = count.and_then(|count| u32::try_from(count).ok());
        let receives_max =
            receives_max.ok_or_else(|| refused("maxReceiveCount must be between 1 and 1000"))?;
        let to = policy.dead_letter_target_arn.strip_prefix(&arn(""));
        let to = to.filter(|name| !name.is_empty());
        let to = to.ok_or_else(|| refused("Dead letter target is not a queue of this account"))?;
        Ok(Self { to: to.to_owned(), receives_max })
    }
}
