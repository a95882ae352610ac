//! Agents whose clock is wrong. An agent that is behind does not call, and says so; one that is ahead is noticed by its replies. Both
//! are alerted once, and what they deny does not count. The handlers run in memory, on virtual time.

use std::{
    num::NonZeroU32,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use aws_lambda_events::sqs::{SqsBatchResponse, SqsEvent};
use jiff::Timestamp;
use serde_json::{Value, json};
use steward_agent::Agent;
use steward_core::{
    breaker::BreakerSettings,
    model::{
        events::EventData,
        messages::StepRequest,
        task::{ProcessState, Task},
        time::earlier,
    },
    submission::ReplyQueues,
};
use steward_runtime::ports::{Clock, Ports, Queue, StateStore};
use steward_test_world::{
    MemoryPorts, WorldClock,
    ledger::EffectLedger,
    service::{CallPlan, FakeService, PlannedServices, Reply},
};
use tokio::time::advance;

use crate::support::sqs_event;

const MINUTE: Duration = Duration::from_secs(60);

/// How the agent's clock differs from all others.
#[derive(Clone, Copy)]
enum AgentClock {
    Ahead(Duration),
    Behind(Duration),
}

/// A deployment in memory. Its tasks have one step, with 30 seconds and an undo, at an agent with a clock of its own.
struct Shop {
    ports: MemoryPorts,
    agent_ports: MemoryPorts,
    agent: Agent<FakeService<PlannedServices>>,
    calls: Arc<AtomicU32>,
}

impl Shop {
    /// With these tasks. The service refuses every call.
    async fn new(clock: AgentClock, tasks: u32) -> Self {
        let base = WorldClock::running(Timestamp::from_second(1_780_000_000).unwrap());
        let (all, agent) = match clock {
            AgentClock::Ahead(by) => (base.clone(), base.ahead_by(by)),
            AgentClock::Behind(by) => (base.ahead_by(by), base),
        };
        let timing = MemoryPorts::default().timing;
        let ports = MemoryPorts::with_clock(timing, NonZeroU32::MIN, all);
        let agent_ports = MemoryPorts { clock: agent, ..ports.clone() };
        let request = |path: &str| json!({ "path": path });
        let charge = json!({
            "agent": "a", "complete_within": "30s", "recovery": { "then": "undo" },
            "request": request("/charge"), "undo": { "request": request("/refund") },
        });
        let workflow = json!({
            "name": "shop", "version": 1, "complete_within": "1h", "steps": { "charge": charge },
        });
        ports.definitions().publish(&serde_json::from_value(workflow).unwrap()).unwrap();
        let calls = Arc::new(AtomicU32::new(0));
        let count = calls.clone();
        let service = FakeService::planned(move |request: &StepRequest, _: &EffectLedger| {
            count.fetch_add(1, Ordering::Relaxed);
            match request.path.as_str() {
                "/charge" => CallPlan::without_effect(0, Reply::status(402)),
                _ => CallPlan::success(0, Value::Null),
            }
        });
        let agent = Agent::new("a".parse().unwrap(), service, BreakerSettings::default());
        let shop = Self { ports, agent_ports, agent, calls };
        shop.submit(0..tasks).await;
        shop
    }

    async fn submit(&self, tasks: Range<u32>) {
        let submission = |n| json!({ "task_id": id(n), "workflow": "shop", "input": null });
        let event = sqs_event(tasks.map(|n| submission(n).to_string()), 1);
        let queues = ReplyQueues::default();
        let response = steward_submission::handle(&self.ports, &queues, event).await;
        assert_eq!(response, SqsBatchResponse::default());
        self.schedule().await;
    }

    /// Delivers the scheduler's messages, as SQS does: with the time of sending.
    async fn schedule(&self) {
        let messages = self.ports.channel().take(&Queue::Scheduler);
        if !messages.is_empty() {
            let event =
                self.event(messages.into_iter().map(|message| message.body), Duration::ZERO);
            let response = steward_scheduler::handle(&self.ports, event).await;
            assert_eq!(response, SqsBatchResponse::default());
        }
    }

    /// Delivers all requests to the agent, after they waited in its queue, and then its replies. Returns the number of requests.
    async fn call_after(&self, waited: Duration) -> usize {
        let requests = self.ports.channel().take(&Queue::Agent("a".parse().unwrap()));
        let count = requests.len();
        advance(waited).await;
        let event = self.event(requests.into_iter().map(|request| request.body), waited);
        let deadline = self.agent_ports.clock().now() + 2 * MINUTE;
        let handled = steward_agent::handle(&self.agent_ports, &self.agent, event, deadline);
        assert_eq!(handled.await, SqsBatchResponse::default());
        self.schedule().await;
        count
    }

    /// Messages that are received now, and were sent a while ago.
    fn event(&self, bodies: impl IntoIterator<Item = String>, waited: Duration) -> SqsEvent {
        let now = self.ports.clock().now();
        let mut event = sqs_event(bodies, 1);
        for record in &mut event.records {
            for (name, time) in
                [("SentTimestamp", earlier(now, waited)), ("ApproximateFirstReceiveTimestamp", now)]
            {
                record.attributes.insert(name.to_owned(), time.as_millisecond().to_string());
            }
        }
        event
    }

    fn calls(&self) -> u32 {
        self.calls.load(Ordering::Relaxed)
    }

    async fn task(&self) -> Task {
        self.ports.store().load(&id(0).parse().unwrap()).await.unwrap().unwrap()
    }

    /// The alerts about clocks: the id of each, and its reason.
    fn alerts(&self) -> Vec<(String, String)> {
        let events = self.ports.bus().take();
        let alerts = events.iter().filter_map(|event| {
            let event = event.operator_event()?;
            let EventData::AgentClockWrong { reason, .. } = &event.data else { return None };
            Some((event.metadata.event_id.clone(), reason.clone()))
        });
        alerts.collect()
    }

    #[track_caller]
    fn assert_alerted_once(&self, day: &str, reason: &str) {
        let id = format!("a/agent_clock_wrong/{day}");
        assert_eq!(self.alerts(), [(id, format!("the agent's clock is at least {reason}"))]);
    }
}

fn id(n: u32) -> String {
    format!("t-{n}")
}

/// The request waited for longer than it had time, which the agent's clock does not show.
#[tokio::test(start_paused = true)]
async fn an_agent_that_is_behind_does_not_call_and_is_alerted_once() {
    for waited in [Duration::ZERO, Duration::from_secs(70)] {
        let shop = Shop::new(AgentClock::Behind(MINUTE), 3).await;
        shop.call_after(waited).await;
        assert_eq!(shop.calls(), 0);
        let task = shop.task().await;
        assert_eq!((task.process_state, task.failure_count), (ProcessState::Processing, 0));
        shop.assert_alerted_once("2026-05-28", "60.0 s behind that of its queue");
    }
}

/// Such an agent defers requests that came in time. No attempt is used up, so only the alert shows that the task waits for ever.
#[tokio::test(start_paused = true)]
async fn an_agent_that_is_ahead_is_alerted_once() {
    let shop = Shop::new(AgentClock::Ahead(MINUTE), 3).await;
    for _ in 0..3 {
        assert!(shop.call_after(Duration::ZERO).await > 0);
        advance(2 * MINUTE).await;
        let deadline = shop.ports.clock().now() + MINUTE;
        steward_supervisor::run_once(&shop.ports, 0, deadline).await.unwrap();
        shop.schedule().await;
    }
    assert_eq!(shop.calls(), 0);
    shop.assert_alerted_once("2026-05-28", "60.0 s ahead of that of its queue");
}

#[tokio::test(start_paused = true)]
async fn an_agent_is_alerted_again_the_next_day() {
    let shop = Shop::new(AgentClock::Ahead(MINUTE), 1).await;
    shop.call_after(Duration::ZERO).await;
    assert_eq!(shop.alerts().len(), 1);
    advance(24 * 60 * MINUTE).await;
    shop.submit(1..2).await;
    shop.call_after(Duration::ZERO).await;
    shop.assert_alerted_once("2026-05-29", "60.0 s ahead of that of its queue");
}

/// A refusal is judged as that of a call that may have run, so the step is undone.
#[tokio::test(start_paused = true)]
async fn a_refusal_of_an_agent_whose_clock_is_wrong_proves_nothing() {
    for (ahead_s, undone) in [(1, false), (5, true)] {
        let shop = Shop::new(AgentClock::Ahead(Duration::from_secs(ahead_s)), 1).await;
        shop.call_after(Duration::ZERO).await;
        let expected = if undone { ProcessState::Undoing } else { ProcessState::Undone };
        assert_eq!(shop.task().await.process_state, expected);
        assert_eq!(shop.alerts().len(), usize::from(undone));
    }
}
