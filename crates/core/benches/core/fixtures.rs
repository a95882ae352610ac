//! Sample workflows, and tasks of these workflows after a number of decisions. The decisions are made by the core itself.

#![allow(dead_code, reason = "each benchmark that includes this file uses a part of it")]

use std::{collections::VecDeque, rc::Rc, time::Duration};

use jiff::Timestamp;
use serde_json::{Map, Value, json};
use steward_core::{
    definition::plan::Plan,
    engine::{
        decision::{DecisionContext, Transition},
        documents::{LoadedDocuments, NeededDocuments},
        effect::Effect,
        event::Event,
        transition::transition,
    },
    model::{
        attempt::AttemptTimes,
        items::ItemRecords,
        messages::{ReplyOutcome, StepReply, StepRequest, Submission},
        step::{StepRecord, StepState},
        task::Task,
        time::Timing,
    },
    submission::accept,
};

const TIMING: Timing = Timing {
    pickup_within: Duration::from_secs(60),
    clock_skew: Duration::from_secs(1),
    retention: Timing::RETENTION,
};

/// A workflow of `steps` sequential steps with undos. Each step reads the input and the output of the previous step.
pub(crate) fn saga(steps: usize) -> Value {
    let step = |n: usize| {
        let mut body = json!({ "order": "${ task.id }", "amount": "${ input.amount }" });
        let mut after = json!([]);
        if n > 1 {
            body["before"] = json!(format!("${{ steps.step_{}.output.id }}", n - 1));
            after = json!([format!("step_{}", n - 1)]);
        }
        let step = json!({
            "agent": "payment", "after": after, "complete_within": "30s",
            "recovery": { "attempts": 3, "then": "undo" },
            "request": { "path": "/charges/${ task.id }", "body": body },
            "undo": { "request": {
                "path": format!("/refunds/${{ steps.step_{n}.output.id }}"),
                "body": { "order": "${ task.id }" },
            } },
        });
        (format!("step_{n}"), step)
    };
    let steps: Map<_, _> = (1..=steps).map(step).collect();
    json!({ "name": "saga", "version": 1, "input": schema(), "steps": steps })
}

/// A workflow with one step that runs all items of the input at once, and a second step that reads all their outputs.
pub(crate) fn fan_out() -> Value {
    let each = json!({
        "agent": "shipping", "for_each": { "items": "${ input.items }", "at_once": 100 },
        "request": { "path": "/shipments", "body": { "item": "${ item.sku }", "of": "${ task.id }" } },
    });
    let join = json!({
        "agent": "payment", "after": ["ship"],
        "request": { "path": "/charges", "body": { "shipments": "${ steps.ship.output }" } },
    });
    json!({ "name": "parcels", "version": 1, "steps": { "ship": each, "charge": join } })
}

/// The JSON Schema of an order.
pub(crate) fn schema() -> Value {
    json!({
        "type": "object", "required": ["amount", "customer", "items"],
        "properties": {
            "amount": { "type": "integer", "minimum": 1 },
            "customer": { "type": "object", "required": ["id"], "properties": {
                "id": { "type": "string", "pattern": "^c-[0-9]+$" },
                "email": { "type": "string", "maxLength": 200 },
            } },
            "items": { "type": "array", "maxItems": 100, "items": {
                "type": "object", "required": ["sku"],
                "properties": { "sku": { "type": "string" }, "count": { "type": "integer" } },
            } },
        },
    })
}

/// An order with this many items.
pub(crate) fn order(items: usize) -> Value {
    let items: Vec<_> =
        (0..items).map(|n| json!({ "sku": format!("sku-{n}"), "count": n % 5 + 1 })).collect();
    json!({
        "amount": 1995, "items": items,
        "customer": { "id": "c-1234567", "email": "someone@example.com" },
    })
}

/// Parses a workflow definition.
pub(crate) fn workflow(definition: &Value) -> Rc<Plan> {
    Rc::new(serde_json::from_value(definition.clone()).unwrap())
}

/// The inputs of one decision.
#[derive(Clone)]
pub(crate) struct DecisionFixture {
    workflow: Rc<Plan>,
    pub(crate) task: Task,
    event: Event,
    /// All documents of the task.
    stored: LoadedDocuments,
}

impl DecisionFixture {
    /// Decides in the same way as `drive`: first without documents, and then again with the documents that the decision
    /// needs.
    pub(crate) fn decide(&self) -> Transition {
        let context = DecisionContext {
            now: self.task.submitted_at,
            actor: "scheduler-1",
            redelivered: false,
            lost_starts: None,
            timing: TIMING,
            callback_urls: None,
        };
        let mut loaded = LoadedDocuments::new();
        loop {
            match transition(&self.workflow, &self.task, &loaded, &self.event, context) {
                Ok(transition) => return transition,
                Err(NeededDocuments(keys)) => loaded.extend(keys.into_iter().map(|key| {
                    let body = self.stored.get(&key).cloned().unwrap_or_default();
                    (key, body)
                })),
            }
        }
    }

    /// Returns the next decision: on the reply to the oldest request without a reply. `None` if all requests have
    /// replies.
    fn next(mut self, requests: &mut VecDeque<StepRequest>) -> Option<Self> {
        if let Transition::Apply { task, documents, effects } = self.decide() {
            self.stored.extend(documents.into_iter().map(|document| (document.key, document.body)));
            self.task = Task { revision: self.task.revision + 1, ..*task };
            requests.extend(effects.into_iter().filter_map(requested));
        }
        self.event = Event::ReplyReceived(reply(&requests.pop_front()?));
        Some(self)
    }
}

/// Returns the decisions on a task of `workflow`: on its first wake, and then on each reply.
pub(crate) fn decisions(
    workflow: &Rc<Plan>,
    items: usize,
) -> impl Iterator<Item = DecisionFixture> + use<> {
    let submission: Submission = serde_json::from_value(json!({
        "task_id": "order-2026-11-0004711", "workflow": workflow.name, "input": order(items),
    }))
    .unwrap();
    let now = Timestamp::from_second(1_800_000_000).unwrap();
    let (task, document) = accept(&submission, workflow, None, now, TIMING).unwrap();
    let stored = LoadedDocuments::from_iter(document);
    let mut requests = VecDeque::new();
    let first = DecisionFixture { workflow: workflow.clone(), task, event: Event::Wake, stored };
    std::iter::successors(Some(first), move |decision| decision.clone().next(&mut requests))
}

/// Returns the decision on the reply to one of the last ten items of a step with `count` items. All items have started,
/// and those before the last ten have completed.
pub(crate) fn reply_to_one_of_the_items(count: u32) -> DecisionFixture {
    let mut decision = decisions(&workflow(&fan_out()), 10).nth(1).unwrap();
    let record = decision.task.steps.values_mut().next().unwrap();
    let running = record.items.as_ref().unwrap().get(0).unwrap().clone();
    let completed = StepRecord::new(StepState::Completed { attempt: Some(1) });
    let started = (0..count).map(|n| if n + 10 < count { &completed } else { &running });
    record.items = Some(ItemRecords::with_started(count, started.cloned()));
    if let Event::ReplyReceived(reply) = &mut decision.event {
        reply.step.item = Some(count - 5);
    }
    decision
}

/// Returns the decision on the reply number `replies`, counted from 1. Zero is the decision on the first wake.
pub(crate) fn decision(workflow: &Rc<Plan>, replies: usize) -> DecisionFixture {
    decisions(workflow, 3).nth(replies).unwrap()
}

/// Returns the request, if the effect is a request.
pub(crate) fn requested(effect: Effect) -> Option<StepRequest> {
    if let Effect::Request(request) = effect { Some(request) } else { None }
}

/// A task of `steps` steps, of which the last is running and all others have completed.
pub(crate) fn task(steps: usize) -> Task {
    let two = decision(&workflow(&saga(2)), 2).task;
    let [completed, running] = two.steps.values().collect::<Vec<_>>()[..] else {
        panic!("two steps have two records")
    };
    let record = |n: usize| {
        let record = if n < steps { completed } else { running };
        (format!("step_{n}").parse().unwrap(), record.clone())
    };
    Task { steps: (1..=steps).map(record).collect(), ..two.clone() }
}

/// The reply of an agent that completes a request.
pub(crate) fn reply(request: &StepRequest) -> StepReply {
    let output = json!({ "id": format!("{}-{}", request.step, request.attempt), "status": "done" });
    StepReply {
        task_id: request.task_id.clone(),
        step: request.step.clone(),
        action: request.action,
        attempt: request.attempt,
        outcome: ReplyOutcome::Completed { output, may_continue: false },
        incarnation: request.incarnation,
        times: AttemptTimes::default(),
        agent: None,
    }
}
