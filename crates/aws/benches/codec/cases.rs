//! The benchmarks of the codec: tasks to items and back, messages to JSON and back.

use std::{num::NonZeroU32, rc::Rc, time::Duration};

use aws_lambda_events::sqs::SqsEvent;
use serde_json::{Value, json};
use steward_aws::{
    batch::received_messages,
    items::{Items, read_task},
};
use steward_core::{
    engine::decision::Transition,
    model::messages::{SchedulerMessage, StepRequest},
    submission,
};

use crate::{
    case::Case,
    fixtures::{decision, order, reply, requested, saga, task, workflow},
};

const ITEMS: Items = Items { shards: NonZeroU32::MIN, retention: Duration::from_secs(86_400) };

pub(crate) fn cases() -> Vec<Case> {
    [items(), messages()].into_iter().flatten().collect()
}

fn items() -> Vec<Case> {
    let both = |steps: usize| {
        let task = Rc::new(task(steps));
        let stored = task.clone();
        [
            Case::new(
                format!("item/write_{steps}_steps"),
                move || task.clone(),
                |task| ITEMS.task(&task).unwrap(),
            ),
            Case::new(
                format!("item/read_{steps}_steps"),
                // Built again for each run, because the order of a map is random and affects the cost slightly.
                move || ITEMS.task(&stored).unwrap(),
                |item| read_task(item).unwrap(),
            ),
        ]
    };
    [1, 5, 20, 100].into_iter().flat_map(both).collect()
}

fn messages() -> Vec<Case> {
    let request = request();
    let reply = SchedulerMessage::Reply(reply(&request));
    let submitted = json!({ "task_id": "order-4711", "workflow": "saga", "input": order(20) });
    let event = event(&serde_json::to_string(&reply).unwrap());
    let (request_text, submission_text) =
        (serde_json::to_string(&request).unwrap(), submitted.to_string());
    let (request, reply) = (Rc::new(request), Rc::new(reply));
    vec![
        Case::new(
            "message/write_request",
            move || request.clone(),
            |request| serde_json::to_string(&*request).unwrap(),
        ),
        Case::new(
            "message/write_reply",
            move || reply.clone(),
            |reply| serde_json::to_string(&*reply).unwrap(),
        ),
        Case::new(
            "message/read_request",
            move || request_text.clone(),
            |text| serde_json::from_str::<StepRequest>(&text).unwrap(),
        ),
        Case::new(
            "message/read_submission",
            move || submission_text.clone(),
            |text| submission::parse(&text).unwrap(),
        ),
        Case::new(
            "message/read_batch_of_10_replies",
            move || event.clone(),
            |event| {
                let read = |message: steward_aws::batch::ReceivedMessage| {
                    message.parse::<SchedulerMessage>().unwrap()
                };
                received_messages(event).map(read).collect::<Vec<_>>()
            },
        ),
    ]
}

/// A request that the scheduler sends.
fn request() -> StepRequest {
    let Transition::Apply { effects, .. } = decision(&workflow(&saga(5)), 3).decide() else {
        panic!("a completed step is followed by the next")
    };
    effects.into_iter().find_map(requested).unwrap()
}

/// A Lambda event with ten copies of a message.
fn event(body: &str) -> SqsEvent {
    let record = |n: usize| -> Value {
        json!({
            "messageId": format!("m-{n}"), "body": body,
            "attributes": { "ApproximateReceiveCount": "1" },
        })
    };
    serde_json::from_value(json!({ "Records": (0..10).map(record).collect::<Vec<_>>() })).unwrap()
}
