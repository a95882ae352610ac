//! Fixtures of the contract: tasks, documents and definitions.

use std::{num::NonZeroU32, time::Duration};

use jiff::Timestamp;
use serde_json::{Value, json};
use steward_core::{
    definition::workflow::Workflow,
    model::{
        attempt::{Action, AttemptId, AttemptTimes},
        command::{Caller, CommandRecord, CommandSource},
        document::{Document, DocumentKey, DocumentOwner},
        inline_documents::InlineDocuments,
        items::{ItemRecords, ListSlices},
        messages::ParentStep,
        names::{Incarnation, StepName, TaskId},
        retention::DocumentRetention,
        step::{Progress, StepRecord, StepState},
        task::{ProcessState, StopCause, Task},
    },
};
use steward_runtime::ports::shard_of;

/// A time in 2096, so that nothing with such times expires during a test.
pub(super) fn at(seconds: u64) -> Timestamp {
    "2096-06-01T12:00:00Z".parse::<Timestamp>().unwrap() + Duration::from_secs(seconds)
}

pub(super) fn id(text: &str) -> TaskId {
    text.parse().unwrap()
}

pub(super) fn step(name: &str) -> StepName {
    name.parse().unwrap()
}

/// A newly submitted task, due after ten seconds.
pub(super) fn new_task(task_id: &str) -> Task {
    Task {
        task_id: id(task_id),
        workflow: "order".parse().unwrap(),
        version: 1,
        process_state: ProcessState::Pending,
        revision: 1,
        locked_by: None,
        saved_by: None,
        complete_by: at(3_600),
        failure_count: 0,
        submitted_at: at(0),
        incarnation: Incarnation::recorded_at(at(0)),
        ended_at: None,
        due: Some(at(10)),
        reply_to: None,
        tenant: None,
        labels: [].into(),
        parent: None,
        retention_for_parent: None,
        rerun: None,
        retention_start: at(7_200),
        retention_s: None,
        traceparent: None,
        error: None,
        resolved_at: None,
        undo_reason: None,
        undo_is_final: false,
        late_at: None,
        is_alert_due: false,
        stop_cause: StopCause::default(),
        paused_at: None,
        input_edit_id: None,
        commands: Vec::new(),
        documents: InlineDocuments::default(),
        steps: [].into(),
    }
}

/// A newly submitted task that is due at this time, or never.
pub(super) fn task_due(task_id: &str, due: Option<Timestamp>) -> Task {
    Task { due, ..new_task(task_id) }
}

/// A step with three items, two of which have begun.
fn with_items(until: Timestamp) -> StepRecord {
    let awaiting_callback =
        StepState::AwaitingCallback { attempt: 2, complete_by: until, answer_by: at(3_600) };
    let undone = Progress::new(StepState::Completed { attempt: Some(1) });
    let first = StepRecord {
        undo: Some(undone),
        ..StepRecord::new(StepState::Completed { attempt: Some(1) })
    };
    let started = vec![first, StepRecord::new(awaiting_callback)];
    let slices = ListSlices { len: NonZeroU32::MIN, fingerprint: u32::MAX };
    let mut items = ItemRecords::with_started(3, started).with_slices(Some(slices));
    items.add_output(4_711);
    StepRecord { items: Some(items), ..StepRecord::new(StepState::RunningItems) }
}

/// Two documents in the item of a task.
pub(super) fn small_documents() -> InlineDocuments {
    let body =
        json!({ "z": 1, "a": [true, null, -1.5e-7, 0.1, u64::MAX, i64::MIN], "ü": "\"\u{0}" });
    let times = AttemptTimes {
        queued_at: Some(at(20)),
        called_at: Some(at(22) + Duration::from_millis(5)),
        answered_at: None,
    };
    let submitted = Document::new(DocumentKey::Submission, at(0), json!({ "input": null }));
    [submitted, Document { times, ..output("book", 1, body) }].into_iter().collect()
}

/// A task with a value in every field, and a step in every state.
pub(super) fn full_task(task_id: &str) -> Task {
    Task {
        version: u32::MAX,
        process_state: ProcessState::Error,
        // Not representable as a double.
        revision: 9_007_199_254_740_993,
        locked_by: Some("scheduler-0badcafe".to_owned()),
        saved_by: Some("supervisor-0ddba115".to_owned()),
        failure_count: 7,
        ended_at: Some(at(100) + Duration::from_millis(1)),
        due: Some(at(110) + Duration::from_millis(999)),
        reply_to: Some("https://sqs.eu-west-1.amazonaws.com/000000000000/client-x".to_owned()),
        tenant: Some("acme".parse().unwrap()),
        labels: [("customer", "42"), ("name", "Zoë, \"ß\"")]
            .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()))
            .into(),
        traceparent: Some("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".to_owned()),
        undo_reason: Some("requested by ann".to_owned()),
        undo_is_final: true,
        is_alert_due: true,
        stop_cause: StopCause::default(),
        paused_at: Some(at(101)),
        input_edit_id: Some("c-1".parse().unwrap()),
        commands: [None, Some("the task is Processed".to_owned())]
            .map(|refused| CommandRecord {
                id: "c-1".parse().unwrap(),
                command: "resubmit charge".to_owned(),
                by: "ann".to_owned(),
                caller: Caller {
                    sender: "AROAEXAMPLE:ann@example.com".parse().unwrap(),
                    via: CommandSource::Direct,
                },
                why: "card renewed".to_owned(),
                at: at(99),
                refused,
                submitted: Some(id("order-2")),
            })
            .to_vec(),
        documents: small_documents(),
        error: Some("step `charge`: Zahlung \"abgelehnt\" \u{1f4b3}\n…".to_owned()),
        steps: steps_in_many_states().into(),
        parent: Some(ParentStep {
            task_id: id("parent"),
            step: "pack[3]".parse().unwrap(),
            depth: 2,
            incarnation: Incarnation::recorded_at(at(0)),
            payload_place: Some(
                "tasks/order-1@000000001/parent@000000000/".to_owned().try_into().unwrap(),
            ),
        }),
        retention_for_parent: Some(DocumentRetention { from: at(9_000), retention_s: Some(7_200) }),
        retention_s: Some(86_400),
        ..new_task(task_id)
    }
}

fn steps_in_many_states() -> [(StepName, StepRecord); 7] {
    let record = |state, failure_count| StepRecord {
        forward: Progress { failure_count, ..Progress::new(state) },
        undo: None,
        earlier: Vec::new(),
        items: None,
    };
    let (complete_by, until) = (at(90), at(95));
    [
        (step("book"), record(StepState::Running { attempt: 1, complete_by }, 0)),
        (step("charge"), record(StepState::Failed { attempt: Some(3) }, 3)),
        (step("notify"), record(StepState::waiting(Some(2), until), 2)),
        (step("pack"), record(StepState::Running { attempt: 100, complete_by }, 99)),
        (
            step("reserve"),
            StepRecord {
                undo: Some(Progress {
                    failure_count: 4,
                    input_edit_id: Some("c-1".parse().unwrap()),
                    ..Progress::new(StepState::Running { attempt: 5, complete_by })
                }),
                ..record(StepState::Completed { attempt: Some(2) }, 1)
            },
        ),
        (
            step("ship"),
            StepRecord {
                forward: Progress {
                    may_have_run: true,
                    ..Progress::new(StepState::Skipped { attempt: None })
                },
                undo: Some(Progress::new(StepState::Waiting {
                    attempt: Some(1),
                    until,
                    complete_by: Some(complete_by),
                })),
                earlier: Vec::new(),
                items: None,
            },
        ),
        (step("pick"), with_items(until)),
    ]
}

/// The task with the next revision.
pub(super) fn next(task: &Task) -> Task {
    Task { revision: task.revision + 1, ..task.clone() }
}

/// The submission document of a task.
pub(super) fn submission(task: &Task) -> Document {
    let body = json!({ "task_id": task.task_id, "workflow": "order", "input": { "sku": "s-1" } });
    Document::new(DocumentKey::Submission, at(0), body)
}

/// The owner of the documents of the task with this id.
pub(super) fn owner(task_id: &str) -> DocumentOwner {
    new_task(task_id).document_owner()
}

/// The output document of an attempt.
pub(super) fn output(name: &str, attempt: u32, body: Value) -> Document {
    let of = AttemptId { step: step(name).into(), action: Action::Do, number: attempt };
    Document::new(DocumentKey::Output(of), at(1), body)
}

/// `count` task ids of one shard.
pub(super) fn ids_in(shard: u32, shards: u32, count: usize) -> Vec<String> {
    let shards = NonZeroU32::new(shards).unwrap();
    let ids = (0..).map(|n| format!("t-{n}")).filter(|text| shard_of(&id(text), shards) == shard);
    ids.take(count).collect()
}

/// A valid definition with a value in every field.
pub(super) fn workflow(name: &str, version: u32) -> Workflow {
    serde_json::from_value(json!({
        "name": name, "version": version, "description": "Reserves, then charges — twice “quoted”.",
        "complete_within": "1d 12h", "overdue": "undo", "lifecycle_events": ["step_failed", "undone"],
        "steps": {
            "reserve": { "agent": "inventory", "request": { "path": "/reservations" } },
            "charge": {
                "agent": "payment", "after": ["reserve"], "complete_within": "1m 30s 5ms",
                "recovery": {
                    "attempts": 5, "backoff": { "first": "2s", "rate": 1.5, "max": "3m", "jitter": false },
                    "extended_wait": { "wait": "15m", "times": 4 }, "then": "undo",
                },
                "idempotent": true, "point_of_no_return": true,
                "undo": { "complete_within": "20s", "request": { "path": "/refunds" } },
                "request": {
                    "method": "PUT", "path": "/charges/${ input.id }",
                    "body": { "z": "${ steps.reserve.output.id }", "a": [1, 2.5, null, true] },
                },
            },
        },
    }))
    .unwrap()
}
