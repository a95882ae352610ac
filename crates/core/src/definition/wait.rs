//! What a step with `wait` waits for: a time, or an event on the event bus.
//!
//! ```text
//! wait: 15m                                         for a duration, or until a time
//! wait: { event: { source: …, … }, within: 2d }     for an event that belongs to the task
//! ```

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, de::Error};
use serde_json::Value;

use crate::{definition::duration, expression::template::Template};

/// What a step with `wait` waits for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Wait {
    /// An event on the event bus.
    Event(Box<EventWait>),
    /// The end of a duration such as `15m`, or a time such as `2026-12-24T18:00:00Z`. An expression may give either. The
    /// last form: `check` names it if a value has none of the forms.
    Until(
        #[serde(deserialize_with = "not_an_object")]
        #[schemars(with = "String")]
        Box<Template>,
    ),
}

/// An event that a step waits for, and for how long.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EventWait {
    /// The event that completes the step. The event is the output of the step.
    pub event: AwaitedEvent,
    /// How long the step waits. If no event has come by then, the step fails.
    #[serde(with = "duration")]
    #[schemars(with = "duration::Text")]
    pub within: Duration,
}

/// An event that belongs to a task: it has this source and this detail-type, and its `key` equals the value of the task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AwaitedEvent {
    /// The exact `source` of the event.
    pub source: String,
    /// The exact `detail-type` of the event.
    pub detail_type: String,
    /// The correlation key in the event, such as `${ event.detail.order_id }`.
    #[schemars(with = "String")]
    pub key: Template,
    /// The value of the task that the key must equal, such as `${ task.id }`. Only one task may wait for a value.
    #[schemars(with = "String")]
    pub equals: Template,
}

impl AwaitedEvent {
    /// Whether an event with this source and detail-type may complete the step.
    #[must_use]
    pub fn matches(&self, source: &str, detail_type: &str) -> bool {
        (self.source.as_str(), self.detail_type.as_str()) == (source, detail_type)
    }
}

impl Wait {
    /// The templates that Steward renders for the task.
    pub(super) fn templates_mut(&mut self) -> impl Iterator<Item = &mut Template> {
        std::iter::once(match self {
            Self::Event(wait) => &mut wait.event.equals,
            Self::Until(until) => until,
        })
    }

    /// The event that is awaited, if it is one.
    #[must_use]
    pub fn event(&self) -> Option<&EventWait> {
        match self {
            Self::Event(event) => Some(event),
            Self::Until(_) => None,
        }
    }

    /// The time until which the step waits, if it waits for one.
    #[must_use]
    pub fn until(&self) -> Option<&Template> {
        match self {
            Self::Event(_) => None,
            Self::Until(until) => Some(until),
        }
    }
}

fn not_an_object<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Box<Template>, D::Error> {
    match Value::deserialize(deserializer)? {
        Value::Object(_) => Err(D::Error::custom("neither a time nor an event")),
        written @ (Value::Null
        | Value::Bool(_)
        | Value::Number(_)
        | Value::String(_)
        | Value::Array(_)) => Ok(Box::new(Template::parse(written))),
    }
}
