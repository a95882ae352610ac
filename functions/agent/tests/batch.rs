//! Batches through the handler: which messages are acknowledged, and which replies the scheduler gets.

#![cfg(test)]

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use aws_lambda_events::sqs::SqsEvent;
use envconfig::Envconfig;
use jiff::Timestamp;
use serde_json::{Value, json};
use steward_agent::{Agent, AgentConfig, handle};
use steward_core::{
    breaker::BreakerSettings,
    model::messages::{ReplyOutcome, SchedulerMessage},
};
use steward_runtime::ports::{Ports, Queue};
use steward_test_world::{
    MemoryPorts,
    service::{CallPlan, FakeService, Reply},
    sqs_event,
};

const SECOND: Duration = Duration::from_secs(1);

fn event(messages: u32) -> SqsEvent {
    let request = |n: u32| {
        let body = json!({
            "task_id": format!("t-{n}"), "step": "s", "attempt": 1,
            "complete_by": Timestamp::UNIX_EPOCH + 60 * SECOND, "idempotency_key": "k",
            "incarnation": 7, "call_within_ms": 100_000, "agent": "a", "method": "POST", "path": "/",
        });
        body.to_string()
    };
    sqs_event((0..messages).map(request), 1)
}

fn outcomes(ports: &MemoryPorts) -> Vec<ReplyOutcome> {
    let sent = ports.channel().take(&Queue::Scheduler);
    let read = |text: &str| match serde_json::from_str(text).unwrap() {
        SchedulerMessage::Reply(reply) => reply.outcome,
        other @ (SchedulerMessage::Wake(_)
        | SchedulerMessage::Command(_)
        | SchedulerMessage::Callback(_)
        | SchedulerMessage::ParentRequest(_)
        | SchedulerMessage::ChildEnded(_)
        | SchedulerMessage::ExtendRetention(_)) => panic!("{other:?}"),
    };
    sent.iter().map(|message| read(&message.body)).collect()
}

#[tokio::test(start_paused = true)]
async fn a_request_that_the_breaker_defers_gets_a_reply_and_is_acknowledged() {
    let ports = MemoryPorts::default();
    let calls = Arc::new(AtomicU32::new(0));
    let counted = calls.clone();
    let service = FakeService::planned(move |_, _| {
        counted.fetch_add(1, Ordering::Relaxed);
        CallPlan::without_effect(0, Reply::NoConnection)
    });
    let agent = Agent::new("a".parse().unwrap(), service, BreakerSettings::default());
    let deadline = Timestamp::UNIX_EPOCH + 120 * SECOND;
    for batch in 0..3 {
        let response = handle(&ports, &agent, event(10), deadline).await;
        assert!(response.batch_item_failures.is_empty(), "a redelivery would count as a receive");
        let outcomes = outcomes(&ports);
        assert_eq!(outcomes.len(), 10);
        for outcome in outcomes {
            assert!(
                matches!(
                    outcome,
                    ReplyOutcome::Deferred {
                        retry_after_ms: 10_000..=20_000,
                        may_have_run: false,
                        ..
                    }
                ),
                "{outcome:?}"
            );
        }
        // The concurrent calls of the first batch open the breaker.
        let calls = calls.load(Ordering::Relaxed);
        assert!((5..=10).contains(&calls), "{calls} calls after batch {batch}");
    }
    let events: Vec<_> =
        ports.bus().take().into_iter().map(|event| event.id().to_owned()).collect();
    assert_eq!(events, ["a/breaker_opened/0"]);
}

#[test]
fn environment_variables_configure_the_breaker() {
    let variables = |more: &[(&str, &str)]| -> HashMap<String, String> {
        let required = [("STEWARD_AGENT_NAME", "a"), ("STEWARD_AGENT_BASE_URL", "http://a")];
        required.iter().chain(more).map(|(name, value)| ((*name).into(), (*value).into())).collect()
    };
    let config = AgentConfig::init_from_hashmap(&variables(&[])).unwrap();
    assert_eq!(config.breaker(), BreakerSettings::default());
    let config = AgentConfig::init_from_hashmap(&variables(&[
        ("STEWARD_AGENT_BREAKER_FAILURES", "3"),
        ("STEWARD_AGENT_BREAKER_OPEN_FOR", "2m"),
        ("STEWARD_AGENT_CALL_TIMEOUT", "5s"),
    ]));
    let BreakerSettings { failures, open_for, probe_within } = config.unwrap().breaker();
    assert_eq!((failures.get(), open_for, probe_within), (3, 120 * SECOND, 5 * SECOND));
    let none = variables(&[("STEWARD_AGENT_BREAKER_FAILURES", "0")]);
    assert!(AgentConfig::init_from_hashmap(&none).is_err());
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_ends_at_complete_by_wakes_the_scheduler_and_is_acknowledged() {
    let ports = MemoryPorts::default();
    let service = FakeService::planned(|_, _| CallPlan::success(0, Value::Null).silent());
    let agent = Agent::new("a".parse().unwrap(), service, BreakerSettings::default());
    let deadline = Timestamp::UNIX_EPOCH + 600 * SECOND;
    let response = handle(&ports, &agent, event(2), deadline).await;
    assert_eq!(response.batch_item_failures, []);
    let sent = ports.channel().take(&Queue::Scheduler);
    let mut woken: Vec<_> = sent.iter().map(|message| message.body.as_str()).collect();
    woken.sort_unstable();
    let wake = |n| {
        let call =
            json!({ "step": "s", "action": "do", "attempt": 1, "incarnation": 7, "agent": "a" });
        json!({ "type": "wake", "task_id": format!("t-{n}"), "cause": "overdue", "call": call })
    };
    let woken: Vec<Value> = woken.iter().map(|body| serde_json::from_str(body).unwrap()).collect();
    assert_eq!(woken, [wake(0), wake(1)]);
    assert!(sent.iter().all(|message| message.delay == 4 * SECOND), "{sent:?}");
}
