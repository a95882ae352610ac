//! Correlation: finds the step that waits for an event on the event bus.
//!
//! A step with `wait.event` and the events that may complete it meet in a shared record, whose key both can compute: the
//! workflow, the step, and the value of the correlation key.
//!
//! ```text
//!                       step begins to wait                                      event on the bus
//!                               │                                                       │
//!  workflow, step, `equals` of the task ──► CorrelationKey ◄── workflow, step, `key` of the event
//!                               │                 │                                     │
//!                          subscribe ──► CorrelationRecord { waiter, event } ◄────── record
//! ```
//!
//! The second of the two finds what the first has left, because each save of the record is conditional on the revision
//! before it. So an event that comes before its step begins to wait is not lost: it is kept for [`EVENT_KEPT`].
//!
//! **One event completes one step.** A record has one waiter at a time. A second task that begins to wait for the same value
//! fails until the first has its event, or its wait is over. The event that completed a step is never given to another,
//! and neither is its duplicate, for 24 hours or until eight later events have completed steps. While no step waits, the
//! first event is kept, and others are dropped.
//!
//! Subscriptions and events are delivered at least once. Both operations are idempotent, and a repetition gives the same
//! result.
//!
//! The pattern is *Correlation Identifier* with a rendezvous of both sides:
//! <https://www.enterpriseintegrationpatterns.com/patterns/messaging/CorrelationIdentifier.html>.

use std::{fmt, time::Duration};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::{
    definition::wait::{AwaitedEvent, EventPattern},
    limits,
    model::{
        messages::ReplyOutcome,
        names::{Incarnation, Part, StepName, TaskId, Tenant, WorkflowName},
        time::later,
    },
};

/// How long an event is kept that no step waits for yet.
pub const EVENT_KEPT: Duration = Duration::from_secs(24 * 3600);

/// How many waiters that had their event a record remembers.
const PAIRS_MAX: usize = 8;

/// The key of a correlation record: `<workflow>/<step>/<hash>`. The hash covers the source, the detail-type and the `key` of
/// each event that may complete the step, and the value. So the first of them completes it, and two versions of a workflow that
/// find the value differently have different records.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CorrelationKey(String);

/// A value cannot be a correlation key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidCorrelationKey {
    /// It is neither a text nor an integer.
    #[error("the correlation key is neither a text nor an integer")]
    WrongType,
    /// It has this number of characters.
    #[error("the correlation key has {0} characters; it must have 1 to {max}", max = limits::CORRELATION_KEY_CHARS_MAX)]
    Length(usize),
}

impl CorrelationKey {
    /// The key for a value of an event, or of a task: a text or an integer. The integer `7` equals the text `7`.
    ///
    /// # Errors
    /// The value is of another type, empty or too long. The error does not contain the value.
    pub fn new(
        workflow: &WorkflowName,
        step: &StepName,
        event: &AwaitedEvent,
        value: &Value,
    ) -> Result<Self, InvalidCorrelationKey> {
        let value = match value {
            Value::String(text) => text.clone(),
            Value::Number(number) if !number.is_f64() => number.to_string(),
            Value::Number(_)
            | Value::Null
            | Value::Bool(_)
            | Value::Array(_)
            | Value::Object(_) => return Err(InvalidCorrelationKey::WrongType),
        };
        let chars = value.chars().count();
        if !(1..=limits::CORRELATION_KEY_CHARS_MAX).contains(&chars) {
            return Err(InvalidCorrelationKey::Length(chars));
        }
        let mut hash = Sha256::new();
        let mut add = |text: &str| {
            hash.update(u64::try_from(text.len()).unwrap_or(u64::MAX).to_be_bytes());
            hash.update(text);
        };
        for EventPattern { source, detail_type, key } in event.patterns() {
            let key = key.source().to_string();
            [source, detail_type, &key].into_iter().for_each(&mut add);
        }
        add(&value);
        let hash: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Self(format!("{workflow}/{step}/{hash}")))
    }
}

impl fmt::Display for CorrelationKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The message with which a step begins to wait for an event. It is sent to the events queue, and may be sent again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EventSubscription {
    /// The key that the event must have.
    pub key: CorrelationKey,
    /// The step that waits.
    pub waiter: Waiter,
}

/// A step that waits for an event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Waiter {
    /// The task.
    pub task_id: TaskId,
    /// The incarnation of the task.
    pub incarnation: Incarnation,
    /// The step, or the item of a step with `for_each`.
    pub step: Part,
    /// The number of the attempt. It fences the reply.
    pub attempt: u32,
    /// Until when the step waits.
    pub until: Timestamp,
    /// The tenant of the task, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<Tenant>,
}

impl Waiter {
    /// Whether both are the same part of the same task. A later attempt of it takes the place of an earlier one.
    fn is_same_part(&self, other: &Self) -> bool {
        (&self.task_id, self.incarnation, &self.step)
            == (&other.task_id, other.incarnation, &other.step)
    }

    /// Whether this is a step of an earlier task with the same id.
    fn is_of_earlier_task(&self, other: &Self) -> bool {
        self.task_id == other.task_id && self.incarnation < other.incarnation
    }
}

/// What a correlation record contains.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CorrelationRecord {
    /// The step that waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    waiter: Option<Waiter>,
    /// The first event that no step has had.
    #[serde(skip_serializing_if = "Option::is_none")]
    event: Option<KeptEvent>,
    /// The last waiters that had their event, newest last. They are kept for repetitions of both.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pairs: Vec<Pair>,
}

/// An event in a correlation record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct KeptEvent {
    /// The id that its source gave it.
    id: String,
    /// The outcome that it gives to a step.
    outcome: ReplyOutcome,
    /// Until when it is kept.
    until: Timestamp,
}

/// A step, and the event that completed it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Pair {
    waiter: Waiter,
    event_id: String,
    /// The outcome that the event gave to the step. Only the newest pair has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<ReplyOutcome>,
    /// Until when the pair is kept.
    until: Timestamp,
}

impl CorrelationRecord {
    /// Records that a step waits. Returns the outcome of the step if the event came before, or if the step cannot wait
    /// because another task waits for the same event.
    pub fn subscribe(&mut self, waiter: Waiter, now: Timestamp) -> Option<ReplyOutcome> {
        self.drop_expired(now);
        let own = self.pairs.iter().rev().find(|pair| pair.waiter.is_same_part(&waiter));
        if let Some(pair) = own.filter(|pair| !pair.is_followed_by(&waiter)) {
            return pair.outcome.clone();
        }
        if waiter.until <= now {
            return None;
        }
        match &self.waiter {
            Some(current) if current.is_same_part(&waiter) => {
                if current.attempt > waiter.attempt {
                    return None;
                }
            }
            Some(other) if !other.is_of_earlier_task(&waiter) => {
                return Some(failed(format!(
                    "step {} of task {} waits for an event with the same key, until {}",
                    other.step,
                    other.task_id,
                    other.until.strftime("%FT%TZ")
                )));
            }
            Some(_) | None => {}
        }
        self.waiter = Some(waiter);
        self.form_pair(now).and_then(|pair| pair.outcome.clone())
    }

    /// Records an event. Returns the step that it completes, if there is one, and the outcome of that step.
    pub fn record(
        &mut self,
        id: &str,
        outcome: ReplyOutcome,
        now: Timestamp,
    ) -> Option<(Waiter, ReplyOutcome)> {
        self.drop_expired(now);
        if let Some(pair) = self.pairs.iter().find(|pair| pair.event_id == id) {
            return Some((pair.waiter.clone(), outcome));
        }
        let until = later(now, EVENT_KEPT);
        let kept =
            self.event.get_or_insert_with(|| KeptEvent { id: id.to_owned(), outcome, until });
        let outcome = kept.outcome.clone();
        self.form_pair(now).map(|pair| (pair.waiter.clone(), outcome))
    }

    fn drop_expired(&mut self, now: Timestamp) {
        self.waiter.take_if(|waiter| waiter.until <= now);
        self.event.take_if(|event| event.until <= now);
        self.pairs.retain(|pair| pair.until > now);
    }

    /// Gives the event to the waiter, if there are both.
    fn form_pair(&mut self, now: Timestamp) -> Option<&Pair> {
        if self.waiter.is_none() || self.event.is_none() {
            return None;
        }
        let (waiter, event) = (self.waiter.take()?, self.event.take()?);
        self.pairs.iter_mut().for_each(|pair| pair.outcome = None);
        if self.pairs.len() >= PAIRS_MAX {
            self.pairs.remove(0);
        }
        let (event_id, outcome, until) = (event.id, Some(event.outcome), later(now, EVENT_KEPT));
        self.pairs.push(Pair { waiter, event_id, outcome, until });
        self.pairs.last()
    }

    /// The time from which the record is no longer needed.
    #[must_use]
    pub fn expires_at(&self) -> Timestamp {
        let times = self.waiter.iter().map(|waiter| waiter.until);
        let times = times.chain(self.event.iter().map(|event| event.until));
        times.chain(self.pairs.iter().map(|pair| pair.until)).max().unwrap_or(Timestamp::MIN)
    }
}

impl Pair {
    /// Whether `waiter` is a later attempt that needs another event: the event of this pair failed the step, for example
    /// because it was too large, or is no longer stored.
    fn is_followed_by(&self, waiter: &Waiter) -> bool {
        let has_output = matches!(self.outcome, Some(ReplyOutcome::Completed { .. }));
        !has_output && self.waiter.attempt < waiter.attempt
    }
}

fn failed(reason: String) -> ReplyOutcome {
    ReplyOutcome::Failed { reason, may_have_run: false, call_in_doubt: false, detail: None }
}

#[cfg(test)]
mod tests;
