//! What a step with `wait` waits for: a time, or an event on the event bus.
//!
//! ```text
//! wait: 15m                                         for a duration, or until a time
//! wait: { event: { source: …, … }, within: 2d }     for an event that belongs to the task, or the first of several
//! ```

use std::{collections::BTreeSet, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, de::Error};
use serde_json::{Value, json};

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

/// An event that belongs to a task: it has this source and this detail-type, and its `key` equals the value of the task. With
/// `or`, the first of several events.
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
    /// Other events that complete the step as well. The first event wins.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub or: Vec<OtherEvent>,
}

/// Another event that may complete the step: its `key` must equal the same value of the task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OtherEvent {
    /// The exact `source` of the event.
    pub source: String,
    /// The exact `detail-type` of the event.
    pub detail_type: String,
    /// The correlation key in the event.
    #[schemars(with = "String")]
    pub key: Template,
}

/// What one of the events that may complete a step looks like.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EventPattern<'a> {
    /// The exact `source` of the event.
    pub source: &'a str,
    /// The exact `detail-type` of the event.
    pub detail_type: &'a str,
    /// The correlation key in the event.
    pub key: &'a Template,
}

impl EventPattern<'_> {
    /// Whether the events have this source and this detail-type.
    #[must_use]
    pub fn is_of(&self, source: &str, detail_type: &str) -> bool {
        (self.source, self.detail_type) == (source, detail_type)
    }
}

/// The pattern of a rule of EventBridge for these events: each source with each detail-type. `None` if there are none.
pub fn rule_pattern<'a>(events: impl Iterator<Item = EventPattern<'a>>) -> Option<Value> {
    let (sources, detail_types): (BTreeSet<_>, BTreeSet<_>) =
        events.map(|event| (event.source, event.detail_type)).unzip();
    (!sources.is_empty()).then(|| json!({ "source": sources, "detail-type": detail_types }))
}

impl AwaitedEvent {
    /// The events that may complete the step. There is at least one.
    pub fn patterns(&self) -> impl Iterator<Item = EventPattern<'_>> {
        let Self { source, detail_type, key, equals: _, or } = self;
        let others = or.iter().map(|OtherEvent { source, detail_type, key }| EventPattern {
            source,
            detail_type,
            key,
        });
        std::iter::once(EventPattern { source, detail_type, key }).chain(others)
    }

    /// The key of an event with this source and detail-type, if it may complete the step.
    #[must_use]
    pub fn key_of(&self, source: &str, detail_type: &str) -> Option<&Template> {
        self.patterns().find(|of| of.is_of(source, detail_type)).map(|of| of.key)
    }

    /// The events, for people: their detail-types, with the sources if these differ.
    #[must_use]
    pub fn names(&self) -> String {
        let is_own = self.patterns().all(|of| of.source == self.source);
        let name = |of: EventPattern<'_>| match is_own {
            true => of.detail_type.to_owned(),
            false => format!("{} of {}", of.detail_type, of.source),
        };
        self.patterns().map(name).collect::<Vec<_>>().join(" or ")
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
