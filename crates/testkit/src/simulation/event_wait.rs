//! What a step waits for, if it waits for an event, and the events themselves. Plans, the deployment and the oracle share these
//! types.

use serde_json::{Map, Value, json};
use steward_core::model::names::StepName;

use super::virtual_time::{Millis, millis};

/// The source of all events for which steps wait.
pub(super) const SOURCE: &str = "shop";

/// Their detail-types.
pub(super) const DETAIL_TYPES: [&str; 2] = ["Paid", "Shipped"];

/// The key of all steps that compete with other tasks for their events.
pub(super) const SHARED_KEY: &str = "all orders";

/// What a step waits for.
#[derive(Debug, Clone, Copy)]
pub(super) struct EventWaitPlan {
    pub(super) detail_type: &'static str,
    /// Whether the first event of any type completes it.
    pub(super) or_other: bool,
    pub(super) key: EventKeyPlan,
    pub(super) within: Millis,
}

/// The value of the task that the key of the event must equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EventKeyPlan {
    /// The id of the task, and the item of a step with `for_each`.
    Task,
    /// A text that all tasks share, so that they compete.
    Shared,
    /// A value that is no key.
    Broken,
}

impl EventWaitPlan {
    /// The types of the events that complete the step.
    pub(super) fn detail_types(self) -> impl Iterator<Item = &'static str> {
        let others =
            DETAIL_TYPES.into_iter().filter(move |of| self.or_other && *of != self.detail_type);
        std::iter::once(self.detail_type).chain(others)
    }

    /// The key `wait` of the step `name`. An event has its key for this step in a field with the step's name.
    pub(super) fn definition(self, name: &StepName, has_item: bool) -> Value {
        let equals = match (self.key, has_item) {
            (EventKeyPlan::Task, false) => "${ task.id }",
            (EventKeyPlan::Task, true) => "${ task.id }/${ item }",
            (EventKeyPlan::Shared, _) => SHARED_KEY,
            (EventKeyPlan::Broken, _) => "${ input.amount > 0 }",
        };
        let pattern = |detail_type: &str| {
            let key = format!("${{ event.detail.{name} }}");
            json!({ "source": SOURCE, "detail_type": detail_type, "key": key })
        };
        let mut event = pattern(self.detail_type);
        let others: Vec<_> = self.detail_types().skip(1).map(pattern).collect();
        if let Some(event) = event.as_object_mut() {
            event.insert("equals".to_owned(), json!(equals));
            event.insert("or".to_owned(), json!(others));
        }
        json!({ "event": event, "within": millis(self.within) })
    }
}

/// An event that is going to be published. The keys are by the name of the step that reads them.
#[derive(Debug, Clone)]
pub(super) struct EventDraft {
    pub(super) detail_type: &'static str,
    pub(super) keys: Map<String, Value>,
    /// How often the event bus delivers it.
    pub(super) deliveries: u32,
}

impl EventDraft {
    pub(super) fn new(detail_type: &'static str, step: &StepName, key: Value) -> Self {
        let keys = [(step.to_string(), key)].into_iter().collect();
        Self { detail_type, keys, deliveries: 1 }
    }
}
