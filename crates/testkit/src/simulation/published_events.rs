//! The events that steps wait for, and the environment that publishes them: in time, shortly before the step begins, late,
//! twice, never, for another key, or with another detail-type. The rule of each workflow that waits for events of the
//! type copies an event to the events queue.

use serde_json::{Value, json};
use steward_core::model::{names::StepName, task::Task};
use steward_runtime::ports::OutgoingMessage;

use super::{
    awaited_events::{AwaitedKey, ObservedSubscription},
    blueprint::{Blueprint, StepPlan, WorkPlan},
    deployment::{ScheduledEvent, SimulatedDeployment},
    event_wait::{DETAIL_TYPES, EventDraft, EventKeyPlan, EventWaitPlan, SOURCE},
    expectations::{Expected, TaskExpectations},
    random::SeededRandom,
    virtual_time::{HOUR, MINUTE, Millis},
};

/// The share of tasks for which an event comes early.
const EARLY_SHARE: f64 = 0.4;

impl SimulatedDeployment {
    /// Schedules events that may come before their step begins to wait: for some of the steps of a new task.
    pub(super) fn schedule_early_events(&self, task: &Task) {
        let now = self.now();
        let state = &mut *self.state();
        let Some(expected) = TaskExpectations::of(&state.oracle, &state.ledger, &task.task_id)
        else {
            return;
        };
        let steps = expected.model.steps().filter_map(|(name, step)| match &step.work {
            WorkPlan::Event(wait) => Some((name, step, *wait)),
            WorkPlan::Call { .. } | WorkPlan::Wait(_) | WorkPlan::Child(_) => None,
        });
        let drafts: Vec<_> =
            steps.flat_map(|(name, step, wait)| early_drafts(name, step, wait, expected)).collect();
        for draft in drafts {
            if state.random.chance(EARLY_SHARE) {
                let spans = [5 * MINUTE, 2 * HOUR, 30 * HOUR].map(|span| state.random.skewed(span));
                let delay = state.random.pick(0, &spans);
                state.insert_event(now + delay, ScheduledEvent::PublishEvent(draft));
            }
        }
    }

    /// Passes a subscription to the oracle. If it is new, schedules the events that its step gets, or does not get.
    pub(super) fn expect_events(&self, message: &OutgoingMessage) {
        let now = self.now();
        let drafts = {
            let state = &mut *self.state();
            let Some(new) = state.oracle.observe_subscription(&message.body, &state.ledger, now)
            else {
                return;
            };
            drafts(&new, &mut state.random)
        };
        for (at, draft) in drafts {
            self.schedule(now + at, ScheduledEvent::PublishEvent(draft));
        }
    }

    /// Publishes an event: the rule of each workflow that waits for such events sends it to the events queue.
    pub(super) fn publish(&self, draft: &EventDraft) {
        let now = self.now();
        let body = {
            let oracle = &mut self.state().oracle;
            let number = oracle.awaited.published_count() + 1;
            let mut detail = draft.keys.clone();
            detail.insert("number".to_owned(), json!(number));
            let envelope = json!({
                "version": "0", "id": format!("event-{number}"), "source": SOURCE,
                "detail-type": draft.detail_type, "detail": detail,
            });
            let body = envelope.to_string();
            oracle.awaited.observe_publication(envelope, now);
            body
        };
        self.note("event bus", || format!("has the event {body}"));
        let rules = self.plan.blueprints.iter().filter(|of| waits_for(of, draft.detail_type));
        for _ in rules.flat_map(|_| 0..draft.deliveries) {
            self.send_event(body.clone());
        }
    }
}

/// Whether a step of the workflow waits for events of this type, so that its rule matches them.
fn waits_for(blueprint: &Blueprint, detail_type: &str) -> bool {
    let mut steps = blueprint.steps.values();
    steps.any(|step| matches!(step.work, WorkPlan::Event(wait) if wait.detail_types().any(|of| of == detail_type)))
}

/// The events for the parts of a step, as far as they are known when the task begins.
fn early_drafts(
    name: &StepName,
    step: &StepPlan,
    wait: EventWaitPlan,
    expected: TaskExpectations<'_>,
) -> Vec<EventDraft> {
    let is_known = matches!(expected.items(step), Expected::Value(_));
    if wait.key != EventKeyPlan::Task || !is_known {
        return Vec::new();
    }
    let parts = expected.parts(name, step);
    let keys = parts.iter().filter_map(|part| expected.event_key(part, wait).value());
    keys.map(|key| EventDraft::new(wait.detail_type, name, json!(key))).collect()
}

/// The events that follow a new subscription, each with its delay.
fn drafts(new: &ObservedSubscription, random: &mut SeededRandom) -> Vec<(Millis, EventDraft)> {
    let ObservedSubscription { key: AwaitedKey { step, value, .. }, wait, .. } = new;
    let (within, own) = (wait.within, EventDraft::new(wait.detail_type, step, json!(value)));
    let in_time = random.skewed(within);
    let later = in_time + random.skewed(within);
    match random.within(0..=11) {
        0 => vec![(0, own)],
        1 => Vec::new(),
        // Late.
        2 => vec![(within + random.skewed(within), own)],
        // Two events.
        3 => vec![(in_time, own.clone()), (later, own)],
        // The event bus delivers it twice.
        4 => vec![(in_time, EventDraft { deliveries: 2, ..own })],
        // For another task, or without a valid key.
        5 => {
            let other = [json!(format!("{value}-2")), json!(1.5), json!({ "id": value })];
            let key = random.pick(Value::Null, &other);
            vec![(in_time, EventDraft::new(wait.detail_type, step, key))]
        }
        // Another type, or the key of another step.
        6 => {
            let other = DETAIL_TYPES.into_iter().find(|other| *other != wait.detail_type);
            let mut foreign = own.clone();
            foreign.detail_type = other.unwrap_or(wait.detail_type);
            vec![(in_time, foreign), (later, own)]
        }
        // The key of every step: it completes all that wait for it.
        7 => {
            let mut wide = own;
            let names = ["a", "b", "c", "d", "e", "f"].into_iter();
            wide.keys.extend(names.map(|name| (name.to_owned(), json!(value))));
            vec![(in_time, wide)]
        }
        _ => vec![(in_time, own)],
    }
}
