//! What the oracle records about steps that wait for events. [`awaited_event_checks`](super::awaited_event_checks) checks it.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde_json::Value;
use steward_core::model::names::{Incarnation, Part, StepName, TaskId, WorkflowName};

use super::{
    event_wait::{EventWaitPlan, SOURCE},
    virtual_time::Millis,
};

/// The key under which a step and its event meet.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct AwaitedKey {
    pub(super) workflow: WorkflowName,
    pub(super) step: StepName,
    pub(super) value: String,
}

/// A part of one incarnation of a task.
pub(super) type WaitingPart = (TaskId, Incarnation, Part);

/// A subscription that the scheduler sent.
#[derive(Debug, Clone)]
pub(super) struct ObservedSubscription {
    pub(super) key: AwaitedKey,
    pub(super) wait: EventWaitPlan,
    pub(super) until: Timestamp,
    pub(super) sent_at: Millis,
    pub(super) is_handled: bool,
}

/// An event on the bus.
#[derive(Debug)]
pub(super) struct PublishedEvent {
    pub(super) envelope: Value,
    pub(super) at: Millis,
    pub(super) is_handled: bool,
}

/// The steps that an event completed under a key.
pub(super) type Completions = BTreeMap<(AwaitedKey, String), BTreeSet<WaitingPart>>;

/// Everything about awaited events.
#[derive(Debug, Default)]
pub(super) struct AwaitedEvents {
    pub(super) published: BTreeMap<String, PublishedEvent>,
    /// By part and attempt.
    pub(super) subscriptions: BTreeMap<(WaitingPart, u32), ObservedSubscription>,
    pub(super) completions: Completions,
}

impl PublishedEvent {
    /// Whether the event has this type, and this key for the step.
    pub(super) fn belongs_to(&self, wait: EventWaitPlan, key: &AwaitedKey) -> bool {
        let field = |name: &str| self.envelope.get(name).and_then(Value::as_str);
        let value = self.envelope.get("detail").and_then(|detail| detail.get(key.step.as_str()));
        field("source") == Some(SOURCE)
            && wait.detail_types().any(|of| field("detail-type") == Some(of))
            && value.and_then(Value::as_str) == Some(&key.value)
    }
}

impl AwaitedEvents {
    pub(super) fn published_count(&self) -> usize {
        self.published.len()
    }

    /// Records a published event.
    pub(super) fn observe_publication(&mut self, envelope: Value, at: Millis) {
        let id = envelope.get("id").and_then(Value::as_str).unwrap_or_default().to_owned();
        self.published.insert(id, PublishedEvent { envelope, at, is_handled: false });
    }

    /// The parts that have begun to wait under a key.
    pub(super) fn waiters(&self, key: &AwaitedKey) -> BTreeSet<&WaitingPart> {
        let own = self.subscriptions.iter().filter(|(_, subscription)| subscription.key == *key);
        own.map(|((part, _), _)| part).collect()
    }

    /// Whether an event with this envelope was published and may complete the part.
    pub(super) fn is_event_of(&self, value: &Value, wait: EventWaitPlan, key: &AwaitedKey) -> bool {
        let mut events = self.published.values();
        events.any(|event| event.envelope == *value && event.belongs_to(wait, key))
    }
}
