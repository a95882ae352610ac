//! A service that redirects each call: the base URL of its agent is probably wrong.

use std::num::NonZeroU32;

use aws_lambda_events::sqs::SqsEvent;
use jiff::{SignedDuration, Timestamp};
use steward_agent::{Agent, handle};
use steward_core::{
    breaker::BreakerSettings,
    model::{
        messages::{ReplyOutcome, SchedulerMessage, StepRequest},
        time::Timing,
    },
};
use steward_runtime::ports::{Ports, Queue};
use steward_test_world::{MemoryPorts, WorldClock, sqs_event};

use crate::test_server::{TestServer, get, redirect};

fn event(request: &StepRequest) -> SqsEvent {
    sqs_event([serde_json::to_string(request).unwrap()], 1)
}

/// A failure would undo the task, and its undo would fail too.
#[tokio::test]
async fn the_step_of_a_single_task_waits_and_one_alert_is_published() {
    let remote = TestServer::start(|| redirect(308, "https://b.example/")).await;
    let timing = Timing {
        pickup_within: std::time::Duration::from_secs(60),
        clock_skew: std::time::Duration::from_secs(2),
        retention: Timing::RETENTION,
    };
    let clock = WorldClock::running(Timestamp::UNIX_EPOCH);
    let ports = MemoryPorts::with_clock(timing, NonZeroU32::MIN, clock);
    let failures = NonZeroU32::MIN.saturating_add(2);
    let breaker = BreakerSettings { failures, ..BreakerSettings::default() };
    let agent = Agent::new("payment".parse().unwrap(), remote.service(), breaker);
    let in_a_minute = Timestamp::UNIX_EPOCH + SignedDuration::from_mins(1);
    for attempt in [1, 2] {
        let request = StepRequest { attempt, complete_by: in_a_minute, ..get("/") };
        handle(&ports, &agent, event(&request), Timestamp::MAX).await;
        let sent = ports.channel().take(&Queue::Scheduler).remove(0);
        let SchedulerMessage::Reply(reply) = serde_json::from_str(&sent.body).unwrap() else {
            panic!("no reply: {}", sent.body);
        };
        let ReplyOutcome::Deferred { reason, may_have_run, .. } = reply.outcome else {
            panic!("{:?}", reply.outcome);
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
