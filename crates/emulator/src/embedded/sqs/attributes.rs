//! The attributes of a queue: validated as by SQS, and converted to typed values.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::{
    error::SqsError,
    time::{Micros, SECOND},
};
use crate::embedded::account::{ACCOUNT, REGION};

/// The largest message and the largest batch, in bytes.
pub(super) const MESSAGE_BYTES_MAX: usize = 1024 * 1024;

/// The longest visibility timeout, in seconds.
pub(super) const VISIBILITY_SECONDS_MAX: u32 = 43_200;

/// The longest delay of a message, in seconds.
pub(super) const DELAY_SECONDS_MAX: u32 = 900;

/// The longest wait of a receive, in seconds.
pub(super) const WAIT_SECONDS_MAX: u32 = 20;

const VISIBILITY: NumberAttribute =
    NumberAttribute { name: "VisibilityTimeout", default: 30, min: 0, max: VISIBILITY_SECONDS_MAX };
const DELAY: NumberAttribute =
    NumberAttribute { name: "DelaySeconds", default: 0, min: 0, max: DELAY_SECONDS_MAX };
const SIZE: NumberAttribute = NumberAttribute {
    name: "MaximumMessageSize",
    default: MESSAGE_BYTES_MAX as u32,
    min: 1_024,
    max: MESSAGE_BYTES_MAX as u32,
};
const RETENTION: NumberAttribute =
    NumberAttribute { name: "MessageRetentionPeriod", default: 345_600, min: 60, max: 1_209_600 };
const WAIT: NumberAttribute = NumberAttribute {
    name: "ReceiveMessageWaitTimeSeconds",
    default: 0,
    min: 0,
    max: WAIT_SECONDS_MAX,
};

const NUMBERS: [NumberAttribute; 5] = [VISIBILITY, DELAY, SIZE, RETENTION, WAIT];

const REDRIVE_POLICY: &str = "RedrivePolicy";

/// Attributes that are stored but have no effect here.
const TEXTS: [&str; 5] = [
    "Policy",
    "RedriveAllowPolicy",
    "KmsMasterKeyId",
    "KmsDataKeyReusePeriodSeconds",
    "SqsManagedSseEnabled",
];

/// The largest `maxReceiveCount` of a redrive policy.
const RECEIVES_MAX: u64 = 1_000;

/// A numeric attribute with its default and limits.
struct NumberAttribute {
    name: &'static str,
    default: u32,
    min: u32,
    max: u32,
}

/// The attributes of a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct QueueAttributes {
    /// The attributes that were set, as text.
    set: BTreeMap<String, String>,
    pub(super) visibility: Micros,
    pub(super) delay: Micros,
    pub(super) bytes_max: usize,
    pub(super) retention: Micros,
    pub(super) wait: Micros,
    pub(super) redrive: Option<RedrivePolicy>,
}

/// The redrive policy: after how many receives a message moves to which dead-letter queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RedrivePolicy {
    /// The name of the dead-letter queue.
    pub(super) to: String,
    pub(super) receives_max: u32,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RedrivePolicyJson {
    dead_letter_target_arn: String,
    max_receive_count: Value,
}

/// The ARN of a queue.
pub(super) fn arn(name: &str) -> String {
    format!("arn:aws:sqs:{REGION}:{ACCOUNT}:{name}")
}

impl QueueAttributes {
    /// Validates attributes.
    pub(super) fn parse(set: BTreeMap<String, String>) -> Result<Self, SqsError> {
        if let Some(name) = set.keys().find(|name| !Self::is_known(name)) {
            return Err(SqsError::attribute_name(name));
        }
        let redrive =
            set.get(REDRIVE_POLICY).map(|policy| RedrivePolicy::parse(policy)).transpose()?;
        let seconds =
            |number: &NumberAttribute| Ok::<_, SqsError>(Micros::from(number.of(&set)?) * SECOND);
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

    /// Whether an attribute of this name exists and can be set.
    pub(super) fn is_known(name: &str) -> bool {
        let is_number = NUMBERS.iter().any(|number| number.name == name);
        is_number || TEXTS.contains(&name) || name == REDRIVE_POLICY
    }

    /// These attributes with changes. An empty policy removes the policy.
    pub(super) fn with(&self, others: BTreeMap<String, String>) -> Result<Self, SqsError> {
        let mut set = self.set.clone();
        set.extend(others);
        set.retain(|name, value| {
            !(value.is_empty() && (name == REDRIVE_POLICY || TEXTS.contains(&name.as_str())))
        });
        Self::parse(set)
    }

    /// The first attribute of `wanted` with another value than here.
    pub(super) fn differs<'a>(&self, wanted: &'a BTreeMap<String, String>) -> Option<&'a str> {
        let values = self.values();
        wanted
            .iter()
            .find(|(name, value)| values.get(*name) != Some(value))
            .map(|(name, _)| &**name)
    }

    /// The attributes that were set, as text.
    pub(super) fn set(&self) -> &BTreeMap<String, String> {
        &self.set
    }

    /// All attributes as text, with defaults.
    pub(super) fn values(&self) -> BTreeMap<String, String> {
        let defaults =
            NUMBERS.iter().map(|number| (number.name.to_owned(), number.default.to_string()));
        defaults.chain(self.set.clone()).collect()
    }
}

impl NumberAttribute {
    fn of(&self, set: &BTreeMap<String, String>) -> Result<u32, SqsError> {
        let Some(value) = set.get(self.name) else { return Ok(self.default) };
        let number = value.parse().ok().filter(|number| (self.min..=self.max).contains(number));
        number.ok_or_else(|| SqsError::attribute_value(self.name, value))
    }
}

impl RedrivePolicy {
    fn parse(text: &str) -> Result<Self, SqsError> {
        let refused = |reason: &str| SqsError::parameter(REDRIVE_POLICY, text, reason);
        let policy: RedrivePolicyJson = serde_json::from_str(text)
            .map_err(|_| refused("It needs deadLetterTargetArn and maxReceiveCount, as JSON"))?;
        // SQS also accepts the number as a string.
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
