//! The peak memory of a batch, without the text of its event. Lambda limits an event to 6 MB, so a thousand messages have at
//! most 6 KB each. The requests and the responses of services that they cause have the maximum size of a document.

use std::{
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use allocation_counter::measure;
use aws_lambda_events::sqs::{SqsBatchResponse, SqsEvent};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use steward_agent::Agent;
use steward_agent::attempt::{CallFault, RemoteService};
use steward_agent::response::CallResponse;
use steward_core::{
    breaker::BreakerSettings,
    definition::plan::Plan,
    limits,
    model::{inline_documents::InlineDocuments, messages::StepRequest, task::Task, time::Timing},
    submission::{self as core_submission, ReplyQueues},
};

use crate::{
    fixtures::{self, decision},
    ports::{ConstantPorts, Results, ports as constant},
    table::BaselineTable,
};

/// Messages in a batch.
const MESSAGES: usize = 1_000;

/// Lambda's limit for an event, in bytes.
const EVENT_BYTES_MAX: usize = 6_000_000;

/// The payload of a message in a full event, in bytes: the rest is its envelope.
const PAYLOAD_BYTES: usize = EVENT_BYTES_MAX / MESSAGES - 1_000;

/// The limit of a function, in bytes. A function has 256 MB, which also contain the SDK's clients, TLS and the binary.
const PEAK_BYTES_MAX: u64 = 96 * 1024 * 1024;

/// Two steps; the request of the second step has nearly the maximum size.
fn definition() -> Value {
    let body = json!({ "once": "${ input.note }", "twice": "${ input.note }" });
    json!({ "name": "large", "version": 1, "steps": {
        "first": { "agent": "a", "request": { "path": "/x" } },
        "second": { "agent": "a", "after": ["first"], "request": { "path": "/x", "body": body } },
    } })
}

fn ports() -> ConstantPorts {
    let definition = definition();
    let plan = Arc::new(serde_json::from_value(definition.clone()).unwrap());
    let task = without_documents(decision(&fixtures::workflow(&definition), 1).task);
    let note = "x".repeat(limits::DOCUMENT_BYTES_MAX / 2 - 1_000);
    constant(Results {
        plan,
        task,
        document: json!({ "input": { "note": note } }),
        due: ids().take(MESSAGES / 8).map(|id| id.parse().unwrap()).collect(),
        sent: AtomicU64::new(0),
    })
}

/// The task without the documents in its item, so that it reads separate ones.
fn without_documents(task: Task) -> Task {
    Task { documents: InlineDocuments::default(), ..task }
}

fn ids() -> impl Iterator<Item = String> {
    (0..MESSAGES).map(|n| format!("t-{n:04}"))
}

/// The text of an event as Lambda passes it to a function.
fn event(bodies: impl Iterator<Item = Value>) -> String {
    let record = |(n, body): (usize, Value)| {
        json!({
            "messageId": format!("m-{n}"), "body": body.to_string(),
            "attributes": { "ApproximateReceiveCount": "1" },
        })
    };
    let text = json!({ "Records": bodies.enumerate().map(record).collect::<Vec<_>>() }).to_string();
    let full = (EVENT_BYTES_MAX * 8 / 10)..=EVENT_BYTES_MAX;
    assert!(full.contains(&text.len()), "an event of {} bytes", text.len());
    text
}

/// The peak memory of handling an event, in bytes. Asserts that all messages are handled, and that each sends one message.
fn peak_bytes(
    ports: &ConstantPorts,
    text: &str,
    handle: impl AsyncFnOnce(&ConstantPorts, SqsEvent) -> SqsBatchResponse,
) -> u64 {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let info = measure(|| {
        let event = serde_json::from_str(text).unwrap();
        let response = runtime.block_on(handle(ports, event));
        assert_eq!(response, SqsBatchResponse::default());
    });
    assert_eq!(ports.store.sent.load(std::sync::atomic::Ordering::Relaxed), MESSAGES as u64);
    info.bytes_max
}

fn scheduler() -> u64 {
    let (ports, output) = (ports(), "x".repeat(PAYLOAD_BYTES));
    let incarnation = ports.store.task.incarnation;
    let text = event(ids().map(|id| {
        json!({
            "type": "reply", "task_id": id, "step": "first", "attempt": 1, "incarnation": incarnation,
            "outcome": { "status": "completed", "output": output },
        })
    }));
    peak_bytes(&ports, &text, async |ports, event| steward_scheduler::handle(ports, event).await)
}

fn submission() -> u64 {
    let note = "x".repeat(PAYLOAD_BYTES);
    let text = event(
        ids().map(|id| json!({ "task_id": id, "workflow": "large", "input": { "note": note } })),
    );
    peak_bytes(&ports(), &text, async |ports, event| {
        steward_submission::handle(ports, &ReplyQueues::default(), event).await
    })
}

/// A service whose responses have this many bytes.
struct LargeResponseService(usize);

impl RemoteService for LargeResponseService {
    async fn call(&self, _: &StepRequest, _: Option<&str>) -> Result<CallResponse, CallFault> {
        tokio::task::yield_now().await;
        Ok(Value::from("x".repeat(self.0 - 2)).into())
    }
}

/// The responses have the maximum size of an output, or the maximum size from which the request may select one.
fn agent(output: Option<&str>) -> u64 {
    let size = match output {
        None => limits::DOCUMENT_BYTES_MAX,
        Some(_) => limits::RESPONSE_BYTES_MAX,
    };
    let ports = ports();
    let complete_by = ports.store.task.submitted_at + SignedDuration::from_secs(30);
    let body = "x".repeat(PAYLOAD_BYTES);
    let text = event(ids().map(|id| {
        json!({
            "task_id": id, "step": "first", "action": "do", "attempt": 1,
            "complete_by": complete_by, "idempotency_key": format!("{id}/first/do"),
            "idempotent": true, "incarnation": ports.store.task.incarnation, "call_within_ms": 30_000, "agent": "a", "method": "POST", "path": "/x", "body": body, "output": output,
        })
    }));
    let service = LargeResponseService(size);
    let agent = Agent::new("a".parse().unwrap(), service, BreakerSettings::default());
    peak_bytes(&ports, &text, async |ports, event| {
        steward_agent::handle(ports, &agent, event, Timestamp::MAX).await
    })
}

/// Ten tasks of one batch begin a step with a hundred items each. Each request contains the whole input: 120 KB of small
/// numbers, which take thirty times as much memory as their text.
fn fan_out_of_numbers() -> u64 {
    let definition = json!({ "name": "large", "version": 1, "steps": { "each": {
        "agent": "a", "for_each": { "items": "${ input.items }", "at_once": 100 },
        "request": { "path": "/x", "body": "${ input }" },
    } } });
    let numbers: Vec<_> = (0..60_000).map(|n| n % 10).collect();
    let plan: Arc<Plan> = Arc::new(serde_json::from_value(definition).unwrap());
    let submission = core_submission::parse(r#"{ "task_id": "t", "workflow": "large" }"#).unwrap();
    let timing = Timing {
        pickup_within: Duration::from_secs(60),
        clock_skew: Duration::ZERO,
        retention: Timing::RETENTION,
    };
    let (pending, _) =
        core_submission::accept(&submission, &plan, None, Timestamp::UNIX_EPOCH, timing).unwrap();
    let ports = constant(Results {
        plan,
        task: without_documents(pending),
        document: json!({ "input": { "items": (0..100).collect::<Vec<_>>(), "numbers": numbers } }),
        due: Vec::new(),
        sent: AtomicU64::new(0),
    });
    let wakes: Vec<_> = ids()
        .take(10)
        .map(|id| json!({ "type": "wake", "task_id": id, "cause": "submitted" }))
        .enumerate()
        .map(|(n, body)| {
            json!({
                "messageId": format!("m-{n}"), "body": body.to_string(),
                "attributes": { "ApproximateReceiveCount": "1" },
            })
        })
        .collect();
    let event = json!({ "Records": wakes }).to_string();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let info = measure(|| {
        let event: SqsEvent = serde_json::from_str(&event).unwrap();
        let response = runtime.block_on(steward_scheduler::handle(&ports, event));
        assert_eq!(response, SqsBatchResponse::default());
    });
    // Each task sends the maximum of one decision, and a wake for the rest.
    let sent = ports.store.sent.load(std::sync::atomic::Ordering::Relaxed);
    assert!((50..=200).contains(&sent), "{sent} messages");
    info.bytes_max
}

/// The supervisor has no event; the tasks of all shards are due.
fn supervisor() -> u64 {
    let ports = ports();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let info = measure(|| {
        let swept = runtime.block_on(steward_supervisor::sweep(&ports, 0, Timestamp::MAX)).unwrap();
        assert_eq!((swept.due, swept.failed), (MESSAGES as u64, 0));
    });
    info.bytes_max
}

#[test]
fn a_batch_of_a_thousand_messages_stays_within_the_memory_limit() {
    let peaks = [
        ("agent", agent(None)),
        ("agent_that_selects", agent(Some("${ response.status }"))),
        ("scheduler", scheduler()),
        ("submission", submission()),
        ("supervisor", supervisor()),
    ];
    let fan_out = fan_out_of_numbers();
    assert!(
        fan_out <= PEAK_BYTES_MAX,
        "{fan_out} bytes at the peak; the limit is {PEAK_BYTES_MAX}"
    );
    for (role, peak) in peaks {
        assert!(
            peak <= PEAK_BYTES_MAX,
            "{role}: {peak} bytes at the peak; the limit is {PEAK_BYTES_MAX}"
        );
    }
    let figures =
        peaks.map(|(role, peak)| (format!("memory/{role}_batch_of_{MESSAGES}"), vec![peak]));
    let fan_out = ("memory/scheduler_fan_out_of_numbers".to_owned(), vec![fan_out]);
    let figures = figures.into_iter().chain([fan_out]).collect();
    BaselineTable::new("memory.txt", &["peak bytes"]).check(figures);
}
