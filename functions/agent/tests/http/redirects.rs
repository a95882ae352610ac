//! A service that redirects each call: the base URL of its agent is probably wrong.

use std::{
    num::NonZeroU32,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use aws_lambda_events::sqs::SqsEvent;
use jiff::{SignedDuration, Timestamp};
use steward_agent::{Agent, handle, http::HttpService};
use steward_core::{
    breaker::BreakerSettings,
    model::{
        messages::{ReplyOutcome, SchedulerMessage, StepRequest},
        time::Timing,
    },
};
use steward_runtime::ports::{Ports, Queue};
use steward_test_world::{MemoryPorts, WorldClock, sqs_event};

use crate::test_server::{TestServer, get, redirect, respond};

fn event(request: &StepRequest) -> SqsEvent {
    sqs_event([serde_json::to_string(request).unwrap()], 1)
}

fn ports() -> MemoryPorts {
    let timing = Timing {
        pickup_within: std::time::Duration::from_secs(60),
        clock_skew: std::time::Duration::from_secs(2),
        retention: Timing::RETENTION,
    };
    MemoryPorts::with_clock(timing, NonZeroU32::MIN, WorldClock::running(Timestamp::UNIX_EPOCH))
}

/// An instance of the agent `payment`.
fn instance(remote: &TestServer) -> Agent<HttpService> {
    let failures = NonZeroU32::MIN.saturating_add(2);
    let breaker = BreakerSettings { failures, ..BreakerSettings::default() };
    Agent::new("payment".parse().unwrap(), remote.service(), breaker)
}

async fn outcome(ports: &MemoryPorts, agent: &Agent<HttpService>, attempt: u32) -> ReplyOutcome {
    let complete_by = Timestamp::UNIX_EPOCH + SignedDuration::from_mins(1);
    let request = StepRequest { attempt, complete_by, ..get("/") };
    handle(ports, agent, event(&request), Timestamp::MAX).await;
    let sent = ports.channel().take(&Queue::Scheduler).remove(0);
    let SchedulerMessage::Reply(reply) = serde_json::from_str(&sent.body).unwrap() else {
        panic!("no reply: {}", sent.body);
    };
    reply.outcome
}

/// A failure would undo the task, and its undo would fail too.
#[tokio::test]
async fn the_step_of_a_single_task_waits_and_one_alert_is_published() {
    let remote = TestServer::start(|| redirect(308, "https://b.example/")).await;
    let (ports, agent) = (ports(), instance(&remote));
    for attempt in [1, 2] {
        let outcome = outcome(&ports, &agent, attempt).await;
        let ReplyOutcome::Deferred { reason, may_have_run, .. } = outcome else {
            panic!("{outcome:?}");
        };
        let expected = "circuit breaker open: HTTP 308 Permanent Redirect to https://b.example; \
                        is the base URL right?";
        assert_eq!(reason, expected);
        // The first attempt opens the breaker. A service may carry a call out before it redirects.
        assert_eq!(may_have_run, attempt == 1);
        assert_eq!(remote.request_count(), 3);
    }
    let events = ports.bus().take();
    let events: Vec<_> = events.iter().filter_map(|event| event.operator_event()).collect();
    assert_eq!(events.len(), 1, "{events:?}");
    assert_eq!(events[0].metadata.event, "breaker_opened");
}

/// The base URL was right for another instance. A new one may be wrong again.
#[tokio::test]
async fn a_redirect_is_a_refusal_if_a_call_of_any_instance_has_completed_at_the_same_address() {
    let calls = Arc::new(AtomicUsize::new(0));
    let remote = TestServer::start(move || match calls.fetch_add(1, Ordering::Relaxed) {
        0 => respond(200, "{}"),
        _ => redirect(308, "https://b.example/"),
    });
    let (remote, ports) = (remote.await, ports());
    let completed = outcome(&ports, &instance(&remote), 1).await;
    assert!(matches!(completed, ReplyOutcome::Completed { .. }), "{completed:?}");
    let failed = outcome(&ports, &instance(&remote), 2).await;
    assert!(matches!(failed, ReplyOutcome::Failed { .. }), "{failed:?}");
    assert_eq!((remote.request_count(), ports.bus().take()), (2, Vec::new()));
    let moved = TestServer::start(|| redirect(308, "https://b.example/")).await;
    let waits = outcome(&ports, &instance(&moved), 3).await;
    assert!(matches!(waits, ReplyOutcome::Deferred { .. }), "{waits:?}");
}
