//! Steps that wait for events: what the oracle checks. It computes the key of each step from the plan,
//! and shares no code with the correlation of the core.
//!
//! - A step completes only with an event that was published, that has its type and its key, and whose age is within the
//!   documented 24 hours. The output is the event, unchanged.
//! - An event completes one step of one task, and no step of a task that is being undone.
//! - Once both an event and the subscription of the only step that waits for it were handled, the step has its reply,
//!   whichever came first, and whatever crashed meanwhile.
//! - A step waits as long as its `within` says. It is refused only because another step waits for the same key.

use std::{collections::BTreeSet, time::Duration};

use jiff::Timestamp;
use serde_json::Value;
use steward_core::model::{
    attempt::Action, document::Document, names::Part, step::StepState, task::Task,
};
use steward_test_world::ledger::EffectLedger;

use super::{
    awaited_events::{AwaitedKey, ObservedSubscription, PublishedEvent, WaitingPart},
    blueprint::WorkPlan,
    event_wait::{EventKeyPlan, EventWaitPlan, SHARED_KEY},
    expectations::{Expected, TaskExpectations},
    oracle::Oracle,
    plan::operator_output,
    task_record::{describe, executes_command},
    virtual_time::{HOUR, Millis, since_start},
};

/// How long an event is kept that no step waits for yet.
const KEPT: Millis = 24 * HOUR;

/// How long messages may take in runs without late messages.
const TRANSIT_MAX: Millis = 2 * HOUR;

/// How many events that completed steps a key remembers.
const PAIRS_MAX: usize = 8;

/// The reason why a key has no reply although it must: its only step and an event for it were handled.
fn missing_reply(key: &AwaitedKey, oracle: &Oracle, now: Timestamp) -> Option<String> {
    let waiters = oracle.awaited.waiters(key);
    let mut parts = waiters.into_iter();
    let (Some(waiting), None) = (parts.next(), parts.next()) else { return None };
    let own = oracle.awaited.subscriptions.iter().filter(|((part, _), _)| part == waiting);
    let handled = own.filter(|(_, subscription)| subscription.is_handled);
    let ((_, attempt), subscription) = handled.max_by_key(|((_, attempt), _)| *attempt)?;
    if subscription.until <= now + oracle.clock_skew {
        return None;
    }
    let mut events = oracle.awaited.published.values();
    let events: Vec<_> =
        events.by_ref().filter(|event| event.belongs_to(subscription.wait, key)).collect();
    let is_recent = |event: &&PublishedEvent| event.at + KEPT > since_start(now) + HOUR;
    // An event whose delivery crashed after it was paired with the step is delivered again, and then sends the reply.
    let is_handled = !events.is_empty() && events.iter().all(|event| event.is_handled);
    if !is_handled || !events.iter().all(is_recent) {
        return None;
    }
    let (id, incarnation, part) = waiting;
    // The replies to a task are forgotten once another one has its id.
    oracle.tasks.get(id).filter(|task| task.incarnation == *incarnation)?;
    let has_reply = oracle.agent_replies.iter().any(|(of, step, action, number)| {
        (of, step, *action) == (id, part, Action::Do) && number >= attempt
    });
    (!has_reply).then(|| {
        let of = describe(id, part, Action::Do);
        format!("{of}: attempt {attempt} has no reply, although its event was handled")
    })
}

/// What the oracle reads from a subscription.
struct Subscription {
    part: WaitingPart,
    attempt: u32,
    until: Timestamp,
}

impl Subscription {
    fn read(body: &str) -> Option<Self> {
        let body: Value = serde_json::from_str(body).ok()?;
        let waiter = body.get("waiter")?;
        let field = |name: &str| waiter.get(name).cloned().unwrap_or_default();
        let task_id = serde_json::from_value(field("task_id")).ok()?;
        let incarnation = serde_json::from_value(field("incarnation")).ok()?;
        let step = serde_json::from_value(field("step")).ok()?;
        Some(Self {
            part: (task_id, incarnation, step),
            attempt: serde_json::from_value(field("attempt")).ok()?,
            until: serde_json::from_value(field("until")).ok()?,
        })
    }
}

impl Oracle {
    /// Records a subscription that the scheduler sends, and checks it. Returns it if it is new.
    pub(super) fn observe_subscription(
        &mut self,
        body: &str,
        ledger: &EffectLedger,
        now: Millis,
    ) -> Option<ObservedSubscription> {
        let Some(Subscription { part, attempt, until }) = Subscription::read(body) else {
            self.add_finding(format!("a subscription cannot be parsed: {body}"));
            return None;
        };
        let (id, incarnation, step) = &part;
        let of = describe(id, step, Action::Do);
        let expected = TaskExpectations::of(self, ledger, id)
            .filter(|expected| expected.task.incarnation == *incarnation)?;
        let stored = expected.task.progress(step, Action::Do);
        let is_saved = stored.is_some_and(|run| run.state.attempt_count() >= attempt);
        let wait = expected.awaited_event(step);
        let key = wait.and_then(|wait| Some((wait, expected.awaited_key(step, wait)?)));
        if !is_saved {
            self.add_finding(format!("{of}: attempt {attempt} was sent before it was saved"));
        }
        if wait.is_none() {
            self.add_finding(format!("{of}: waits for an event, but its definition does not"));
        }
        let (wait, key) = key?;
        let known = self.awaited.subscriptions.get(&(part.clone(), attempt));
        if let Some(known) = known.map(|known| known.until) {
            // Stored times have milliseconds.
            if known.as_millisecond() != until.as_millisecond() {
                self.add_finding(format!("{of}: waits until {until}, but waited until {known}"));
            }
            return None;
        }
        let new = ObservedSubscription { key, wait, until, sent_at: now, is_handled: false };
        self.awaited.subscriptions.insert((part, attempt), new.clone());
        Some(new)
    }

    /// Records that a message of the events queue was handled, and checks that it had its effect.
    pub(super) fn observe_handled_event(&mut self, body: &str, now: Timestamp) {
        let awaited = &mut self.awaited;
        let mut keys = BTreeSet::new();
        if let Some(Subscription { part, attempt, .. }) = Subscription::read(body) {
            if let Some(subscription) = awaited.subscriptions.get_mut(&(part, attempt)) {
                subscription.is_handled = true;
                keys.insert(subscription.key.clone());
            }
        } else {
            let envelope: Value = serde_json::from_str(body).unwrap_or_default();
            let id = envelope.get("id").and_then(Value::as_str).unwrap_or_default();
            if let Some(event) = awaited.published.get_mut(id) {
                event.is_handled = true;
                let own = awaited.subscriptions.values();
                let own = own.filter(|of| event.belongs_to(of.wait, &of.key));
                keys.extend(own.map(|of| of.key.clone()));
            }
        }
        let found: Vec<_> = keys.iter().filter_map(|key| missing_reply(key, self, now)).collect();
        self.violations.extend(found);
    }

    /// Records which steps a save completed with an event, and checks these events.
    pub(super) fn observe_event_completions(
        &mut self,
        before: &Task,
        after: &Task,
        documents: &[Document],
        ledger: &EffectLedger,
        now: Timestamp,
    ) {
        let mut found = Vec::new();
        for (part, action, progress) in after.started_actions() {
            let StepState::Completed { attempt: Some(attempt) } = progress.state else { continue };
            let old = before.progress(&part, action);
            if action == Action::Undo || old.is_some_and(|old| old.state == progress.state) {
                continue;
            }
            let key = progress.output(&part, action);
            let document = documents.iter().find(|document| Some(&document.key) == key.as_ref());
            let output = document.map(|document| &document.body);
            let Some(output) = output.filter(|output| **output != operator_output()) else {
                continue;
            };
            let completion = EventCompletion { before, after, part: &part, attempt, output };
            let problem = self.check_event_completion(&completion, ledger, since_start(now));
            let of = describe(&after.task_id, &part, action);
            found.extend(problem.map(|problem| format!("{of}: {problem}")));
        }
        self.violations.extend(found);
    }

    fn check_event_completion(
        &mut self,
        completion: &EventCompletion<'_>,
        ledger: &EffectLedger,
        now: Millis,
    ) -> Option<String> {
        let EventCompletion { before, after, part, attempt, output } = *completion;
        let expected = TaskExpectations::of(self, ledger, &after.task_id)?;
        let wait = expected.awaited_event(part)?;
        let has_late_messages = self.has_late_messages;
        let key = expected.awaited_key(part, wait)?;
        // An output of another kind is found by the check of all outputs.
        let id = output.get("id").and_then(Value::as_str)?;
        let waiting = (after.task_id.clone(), after.incarnation, part.clone());
        let sent_at =
            self.awaited.subscriptions.get(&(waiting.clone(), attempt)).map(|of| of.sent_at);
        let published_at = self.awaited.published.get(id)?.at;
        let used: BTreeSet<_> =
            self.awaited.completions.keys().filter(|(of, _)| *of == key).cloned().collect();
        let steps = self.awaited.completions.entry((key, id.to_owned())).or_default();
        steps.insert(waiting);
        let is_forgotten = now >= published_at + KEPT || used.len() > PAIRS_MAX;
        if steps.len() > 1 && !is_forgotten {
            return Some(format!("completed with {id}, which completed a step of another task"));
        }
        let undone = before.undo_reason.is_some() && !executes_command(before, after);
        if undone {
            return Some(format!("completed with {id} after the undo of its task began"));
        }
        let age = sent_at.map_or(0, |sent_at| sent_at.saturating_sub(published_at));
        (age > KEPT + TRANSIT_MAX && !has_late_messages).then(|| {
            format!("completed with {id}, which was published {age} ms before the step waited")
        })
    }

    /// Whether another step waits, or has waited, for the same key as this one.
    pub(super) fn has_other_waiter(&self, task: &Task, part: &Part) -> bool {
        let waiting = (task.task_id.clone(), task.incarnation, part.clone());
        let own = self.awaited.subscriptions.iter().filter(|((of, _), _)| *of == waiting);
        let mut keys = own.map(|(_, subscription)| &subscription.key);
        keys.any(|key| self.awaited.waiters(key).into_iter().any(|other| *other != waiting))
    }
}

/// A step that a save completed with an event.
#[derive(Clone, Copy)]
struct EventCompletion<'a> {
    before: &'a Task,
    after: &'a Task,
    part: &'a Part,
    attempt: u32,
    output: &'a Value,
}

impl TaskExpectations<'_> {
    /// What a part waits for, if it waits for an event.
    pub(super) fn awaited_event(&self, part: &Part) -> Option<EventWaitPlan> {
        match self.model.step(&part.step)?.work {
            WorkPlan::Event(wait) => Some(wait),
            WorkPlan::Call { .. } | WorkPlan::Wait(_) | WorkPlan::Child(_) => None,
        }
    }

    /// The value that the key of an event must have for a part.
    pub(super) fn event_key(&self, part: &Part, wait: EventWaitPlan) -> Expected<String> {
        let id = self.id();
        let Some(step) = self.model.step(&part.step) else { return Expected::NoValue };
        match (wait.key, part.item) {
            (EventKeyPlan::Broken, _) => Expected::NoValue,
            (EventKeyPlan::Shared, _) => Expected::Value(SHARED_KEY.to_owned()),
            (EventKeyPlan::Task, None) => Expected::Value(id.to_string()),
            (EventKeyPlan::Task, Some(index)) => match self.items(step) {
                Expected::Value(items) => {
                    let items = items.unwrap_or_default();
                    let item = items.get(index as usize).and_then(Value::as_u64);
                    item.map_or(Expected::NoValue, |item| Expected::Value(format!("{id}/{item}")))
                }
                Expected::NoValue => Expected::NoValue,
                Expected::Undetermined => Expected::Undetermined,
            },
        }
    }

    /// Whether a part waits for an event, but its value is no key.
    pub(super) fn has_no_key(&self, part: &Part) -> bool {
        let wait = self.awaited_event(part);
        wait.is_some_and(|wait| self.event_key(part, wait) == Expected::NoValue)
    }

    /// The key under which a part meets its event. `None` if it has none, or if it cannot be determined.
    fn awaited_key(&self, part: &Part, wait: EventWaitPlan) -> Option<AwaitedKey> {
        let value = self.event_key(part, wait).value()?;
        let (workflow, step) = (self.task.workflow.clone(), part.step.clone());
        Some(AwaitedKey { workflow, step, value })
    }

    /// Whether `value` is an event that may complete a part.
    pub(super) fn is_possible_event(
        &self,
        part: &Part,
        wait: EventWaitPlan,
        value: &Value,
    ) -> bool {
        match self.event_key(part, wait) {
            Expected::NoValue => false,
            Expected::Undetermined => value.get("source").is_some(),
            Expected::Value(_) => self
                .awaited_key(part, wait)
                .is_some_and(|key| self.oracle.awaited.is_event_of(value, wait, &key)),
        }
    }

    /// The reason why a wait that begins now until `complete_by` has a wrong length. `last` is the save before.
    pub(super) fn wrong_length_of_wait(
        &self,
        wait: EventWaitPlan,
        complete_by: Timestamp,
        (last, now): (Option<Timestamp>, Timestamp),
    ) -> Option<String> {
        let within = Duration::from_millis(wait.within);
        let latest = now + self.oracle.clock_skew + within;
        let earliest = last.map_or(complete_by, |last| last + within).min(self.task.complete_by);
        // Stored times have milliseconds.
        let earliest = earliest - Duration::from_millis(1);
        (complete_by > latest || complete_by < earliest)
            .then(|| format!("waits for its event until {complete_by}, which is a wrong time"))
    }
}
