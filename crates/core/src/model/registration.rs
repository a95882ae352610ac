//! What is known about the agents of a deployment: what each registered, and when it last replied.
//!
//! The scheduler does not read a registration: the name of an agent determines its queue. A registration describes the
//! agent to the supervisor, which watches its dead-letter queue, and to people.

use std::{fmt, num::NonZeroU32};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    limits::{CALL_RATE_MAX, CALL_RATE_MIN},
    model::names::{AgentKind, AgentVersion, QueueName, StackId},
};

/// The version of the messages between scheduler and agents that this release sends.
///
/// | version | new in it |
/// | --- | --- |
/// | 1 | |
/// | 2 | `output` of requests |
pub const AGENT_CONTRACT: u32 = 2;

/// What an agent registered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AgentRegistration {
    /// How the agent calls its service, such as `http`.
    pub kind: AgentKind,
    /// The queue from which it reads requests.
    pub queue: QueueName,
    /// The queue to which SQS moves requests that it received too often.
    pub dead_letter_queue: QueueName,
    /// The newest version of the messages that it understands.
    pub contract: u32,
    /// The version of its code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<AgentVersion>,
    /// What registered it. No other stack may change the registration.
    #[serde(flatten)]
    pub owner: RegistrationOwner,
    /// How many calls it makes concurrently at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calls_at_once: Option<NonZeroU32>,
    /// How many calls it makes in a second at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_per_second: Option<CallRate>,
    /// How many calls it may make at once after a pause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst: Option<NonZeroU32>,
    /// When it was registered last.
    #[serde(with = "jiff::fmt::serde::timestamp::millisecond::required")]
    pub at: Timestamp,
    /// When its stack was deleted, if it was.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "jiff::fmt::serde::timestamp::millisecond::optional"
    )]
    pub deleted_at: Option<Timestamp>,
}

/// What made a registration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegistrationOwner {
    /// The stack, or `local`.
    pub stack: StackId,
    /// The logical id of the resource in the stack. If the resource is renamed, CloudFormation creates the new one before
    /// it deletes the old one: only this id tells the two apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
}

/// A rate of calls, in calls per second.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct CallRate(f64);

/// A number is no [`CallRate`].
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[error("a rate of {0} calls per second is not between {CALL_RATE_MIN} and {CALL_RATE_MAX}")]
pub struct InvalidCallRate(f64);

impl TryFrom<f64> for CallRate {
    type Error = InvalidCallRate;

    fn try_from(per_second: f64) -> Result<Self, InvalidCallRate> {
        if (CALL_RATE_MIN..=CALL_RATE_MAX).contains(&per_second) {
            Ok(Self(per_second))
        } else {
            Err(InvalidCallRate(per_second))
        }
    }
}

impl From<CallRate> for f64 {
    fn from(CallRate(per_second): CallRate) -> f64 {
        per_second
    }
}

impl fmt::Display for CallRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// When an agent replied last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentSighting {
    /// When the scheduler received the reply.
    #[serde(with = "jiff::fmt::serde::timestamp::millisecond::required")]
    pub at: Timestamp,
    /// How long the request had waited in the agent's queue, in milliseconds, if the agent recorded it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waited_ms: Option<u64>,
}

/// What a change of a registration leads to.
#[derive(Debug, Clone, PartialEq)]
pub enum RegistrationChange {
    /// The registration to store.
    Store(AgentRegistration),
    /// Nothing is to be stored: the agent is not registered, or another stack registered it.
    Keep,
    /// This other stack has registered the agent.
    OwnedBy(StackId),
}

/// Decides what a new registration leads to if `stored` is the present one. A stack may replace its own registration, and
/// any stack that of a deleted agent.
#[must_use]
pub fn register(stored: Option<&AgentRegistration>, new: AgentRegistration) -> RegistrationChange {
    match stored {
        Some(stored) if stored.deleted_at.is_none() && stored.owner.stack != new.owner.stack => {
            RegistrationChange::OwnedBy(stored.owner.stack.clone())
        }
        Some(_) | None => RegistrationChange::Store(new),
    }
}

/// Decides what the deletion of an agent by `owner` leads to if `stored` is the present registration. The registration
/// of another owner stays, because CloudFormation also deletes what it could not create.
#[must_use]
pub fn deregister(
    stored: Option<&AgentRegistration>,
    owner: &RegistrationOwner,
    now: Timestamp,
) -> RegistrationChange {
    match stored {
        Some(stored) if stored.deleted_at.is_none() && stored.owner == *owner => {
            RegistrationChange::Store(AgentRegistration { deleted_at: Some(now), ..stored.clone() })
        }
        Some(_) | None => RegistrationChange::Keep,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn owner(stack: &str, resource: &str) -> RegistrationOwner {
        RegistrationOwner { stack: stack.parse().unwrap(), resource: Some(resource.to_owned()) }
    }

    fn registration(owner: RegistrationOwner) -> AgentRegistration {
        AgentRegistration {
            kind: "http".parse().unwrap(),
            queue: "s-agent-payment-requests".parse().unwrap(),
            dead_letter_queue: "s-agent-payment-dead-letters".parse().unwrap(),
            contract: AGENT_CONTRACT,
            version: None,
            owner,
            calls_at_once: None,
            rate_per_second: None,
            burst: None,
            at: Timestamp::UNIX_EPOCH,
            deleted_at: None,
        }
    }

    #[test]
    fn a_registration_reads_back_as_written() {
        let first = registration(owner("arn:stack/a", "Registration"));
        let limited = AgentRegistration {
            version: Some("1.4.0+7".parse().unwrap()),
            calls_at_once: NonZeroU32::new(20),
            rate_per_second: Some(CallRate::try_from(0.5).unwrap()),
            burst: NonZeroU32::new(3),
            deleted_at: Some(Timestamp::from_second(60).unwrap()),
            ..first.clone()
        };
        for registration in [first, limited] {
            let text = serde_json::to_string(&registration).unwrap();
            assert!(text.len() < 600, "{text}");
            assert_eq!(serde_json::from_str::<AgentRegistration>(&text).unwrap(), registration);
        }
    }

    #[test]
    fn a_registration_of_a_later_release_is_readable() {
        let mut body = serde_json::to_value(registration(owner("local", "A"))).unwrap();
        body["contract"] = json!(7);
        body["new"] = json!({ "field": 1 });
        assert_eq!(serde_json::from_value::<AgentRegistration>(body).unwrap().contract, 7);
    }

    #[test]
    fn invalid_texts_and_numbers_are_refused() {
        for (field, value) in [
            ("kind", json!("Http")),
            ("queue", json!("a/b")),
            ("dead_letter_queue", json!("q".repeat(81))),
            ("version", json!("1 0")),
            ("version", json!("1".repeat(65))),
            ("stack", json!("a".repeat(257))),
            ("stack", json!("")),
            ("calls_at_once", json!(0)),
            ("rate_per_second", json!(0.05)),
            ("rate_per_second", json!(10_001)),
            ("burst", json!(-1)),
        ] {
            let mut body = serde_json::to_value(registration(owner("local", "A"))).unwrap();
            body[field] = value.clone();
            let read = serde_json::from_value::<AgentRegistration>(body);
            assert!(read.is_err(), "{field} {value} was accepted");
        }
    }

    #[test]
    fn a_stack_replaces_only_its_own_registration_or_that_of_a_deleted_agent() {
        let (a, b) = (registration(owner("a", "R")), registration(owner("b", "R")));
        let stored = RegistrationChange::Store;
        assert_eq!(register(None, a.clone()), stored(a.clone()));
        let renamed = registration(owner("a", "Renamed"));
        assert_eq!(register(Some(&a), renamed.clone()), stored(renamed));
        let refused = RegistrationChange::OwnedBy("a".parse().unwrap());
        assert_eq!(register(Some(&a), b.clone()), refused);
        let deleted = AgentRegistration { deleted_at: Some(Timestamp::UNIX_EPOCH), ..a };
        assert_eq!(register(Some(&deleted), b.clone()), stored(b));
    }

    #[test]
    fn only_the_resource_that_registered_an_agent_deletes_its_registration() {
        let (now, a) = (Timestamp::from_second(9).unwrap(), registration(owner("a", "R")));
        let deleted = AgentRegistration { deleted_at: Some(now), ..a.clone() };
        assert_eq!(
            deregister(Some(&a), &owner("a", "R"), now),
            RegistrationChange::Store(deleted.clone())
        );
        for (stored, by) in [
            (None, owner("a", "R")),
            (Some(&a), owner("b", "R")),
            (Some(&a), owner("a", "Old")),
            (Some(&deleted), owner("a", "R")),
        ] {
            assert_eq!(deregister(stored, &by, now), RegistrationChange::Keep);
        }
    }
}
