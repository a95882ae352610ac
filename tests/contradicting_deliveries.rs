//! Deliveries of one request that contradict each other: one is refused, and another takes effect without an answer. A refusal
//! is certain only for the delivery that got it, so the task must not end as if the step had not run. The handlers run in
//! memory, on virtual time; the test decides how often each request is delivered, and what the service does with each call.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
    time::Duration,
};

use aws_lambda_events::sqs::{SqsBatchResponse, SqsEvent};
use jiff::Timestamp;
use serde_json::{Value, json};
use steward_agent::Agent;
use steward_core::{
    breaker::BreakerSettings,
    model::{
        command::{Command, CommandAction},
        events::EventData,
        messages::{SchedulerMessage, StepRequest},
        task::{ProcessState, Task},
        time::Timing,
    },
    submission::ReplyQueues,
};
use steward_runtime::ports::{Clock, OutgoingMessage, Ports, Queue, StateStore};
use steward_test_world::{
    MemoryPorts, WorldClock,
    ledger::EffectLedger,
    service::{CallPlan, FakeService, PlannedServices, Reply},
};
use tokio::time::{advance, timeout};

use crate::support::{commands_event, scheduler_instance, sqs_event};

const SECOND: Duration = Duration::from_secs(1);

/// A workflow whose step `charge` has 30 seconds; a call of it may take as long. `more` are further keys of the step.
fn workflow(then: &str, more: Value) -> Value {
    let mut charge = json!({
        "agent": "a", "after": ["reserve"], "complete_within": "30s", "recovery": { "then": then },
        "request": { "path": "/charge", "body": "${ input }" },
    });
    charge.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let reserve = json!({
        "agent": "a", "request": { "path": "/reserve" }, "undo": { "request": { "path": "/release" } },
    });
    let ship = json!({ "agent": "a", "after": ["charge"], "request": { "path": "/ship" } });
    json!({
        "name": "shop", "version": 1, "complete_within": "1h",
        "steps": { "reserve": reserve, "charge": charge, "ship": ship },
    })
}

fn undone_if_refused() -> Value {
    workflow("undo", json!({ "undo": { "request": { "path": "/refund" } } }))
}

/// A deployment in memory with one task, whose requests the test delivers.
struct Shop {
    ports: MemoryPorts,
    agent: Agent<FakeService<PlannedServices>>,
    /// What the service does with the next calls. All others succeed.
    calls: Arc<Mutex<VecDeque<CallPlan>>>,
}

fn refused() -> CallPlan {
    CallPlan::without_effect(0, Reply::status(402))
}

/// The call takes effect, and its caller gets no answer.
fn unanswered() -> CallPlan {
    CallPlan::success(0, json!("charged")).silent()
}

impl Shop {
    /// A task that ended in this state because the step `charge` was refused, and the request of this step.
    async fn ended(workflow: Value, state: ProcessState) -> (Self, String) {
        let (shop, charge) = Self::with_refused_charge(workflow).await;
        shop.deliver_all().await;
        assert_eq!(shop.task().await.process_state, state);
        shop.alerts();
        (shop, charge)
    }

    /// A task whose step `charge` was refused, and the request of this step.
    async fn with_refused_charge(workflow: Value) -> (Self, String) {
        let timing = MemoryPorts::default().timing;
        let timing = Timing { clock_skew: SECOND, ..timing };
        let clock = WorldClock::running(Timestamp::from_second(1_780_000_000).unwrap());
        let ports = MemoryPorts::with_clock(timing, std::num::NonZeroU32::MIN, clock);
        ports.definitions().publish(&serde_json::from_value(workflow).unwrap()).unwrap();
        let calls = Arc::new(Mutex::new(VecDeque::<CallPlan>::new()));
        let planned = calls.clone();
        let next = move |_: &StepRequest, _: &EffectLedger| {
            let plan = planned.lock().unwrap().pop_front();
            plan.unwrap_or_else(|| CallPlan::success(0, json!("done")))
        };
        let service = FakeService::planned(next);
        let agent = Agent::new("a".parse().unwrap(), service, BreakerSettings::default());
        let shop = Self { ports, agent, calls };
        let submission = json!({ "task_id": "t", "workflow": "shop", "input": { "amount": 5 } });
        let event = sqs_event([submission.to_string()], 1);
        let queues = ReplyQueues::default();
        let response = steward_submission::handle(&shop.ports, &queues, event).await;
        assert_eq!(response, SqsBatchResponse::default());
        shop.schedule().await;
        shop.deliver(&shop.request(), 1, []).await;
        let charge = shop.request();
        shop.deliver(&charge, 1, [refused()]).await;
        (shop, charge)
    }

    /// The only request that waits for the agent.
    fn request(&self) -> String {
        let mut requests = self.ports.channel().take(&Queue::Agent("a".parse().unwrap()));
        assert_eq!(requests.len(), 1, "{requests:?}");
        requests.remove(0).body
    }

    /// Delivers a request to the agent, for the n-th time, and what the agent sends to the scheduler.
    async fn deliver(
        &self,
        request: &str,
        receives: u32,
        calls: impl IntoIterator<Item = CallPlan>,
    ) {
        let response = self.handle(request, receives, calls).await;
        assert_eq!(response, SqsBatchResponse::default());
        self.schedule().await;
    }

    async fn handle(
        &self,
        request: &str,
        receives: u32,
        calls: impl IntoIterator<Item = CallPlan>,
    ) -> SqsBatchResponse {
        self.calls.lock().unwrap().extend(calls);
        let event = sqs_event([request.to_owned()], receives);
        let deadline = self.ports.clock().now() + 120 * SECOND;
        steward_agent::handle(&self.ports, &self.agent, event, deadline).await
    }

    /// Delivers a request to an agent that is killed during its call.
    async fn deliver_and_kill(&self, request: &str, receives: u32, call: CallPlan) {
        let handling = self.handle(request, receives, [call]);
        assert!(timeout(SECOND, handling).await.is_err(), "the agent ended before it was killed");
        assert_eq!(self.ports.channel().take_all(), []);
    }

    /// Delivers the messages to the scheduler. A long delay is cut; the supervisor finds what the early delivery misses.
    async fn schedule(&self) {
        loop {
            let messages = self.ports.channel().take(&Queue::Scheduler);
            if messages.is_empty() {
                return;
            }
            for OutgoingMessage { body, delay, .. } in messages {
                advance(delay.min(5 * SECOND)).await;
                self.handle_as_scheduler(sqs_event([body], 1)).await;
            }
        }
    }

    async fn handle_as_scheduler(&self, event: SqsEvent) {
        let instance = scheduler_instance("");
        let response = steward_scheduler::handle_with(&self.ports, &instance, event).await;
        assert_eq!(response, SqsBatchResponse::default());
    }

    /// An operator resubmits the step with another amount.
    async fn resubmit(&self, amount: u32) {
        let input = Some(json!({ "amount": amount }));
        let action = CommandAction::Resubmit { step: None, input, did_not_run: false };
        let (command_id, task_id) = ("c".parse().unwrap(), "t".parse().unwrap());
        let (by, why, issued_at) = ("ann".into(), "a test".into(), self.ports.clock().now());
        let command = Command { command_id, task_id, by, why, action, issued_at };
        let command = json!(SchedulerMessage::Command(command)).to_string();
        self.handle_as_scheduler(commands_event([command], Some("AIDAANN"))).await;
        self.schedule().await;
    }

    /// Delivers all requests, each once.
    async fn deliver_all(&self) {
        for request in self.ports.channel().take(&Queue::Agent("a".parse().unwrap())) {
            self.deliver(&request.body, 1, []).await;
        }
    }

    /// Delivers all requests and sweeps, every minute for an hour.
    async fn run_to_the_end(&self) {
        for _ in 0..60 {
            self.deliver_all().await;
            advance(60 * SECOND).await;
            let deadline = self.ports.clock().now() + 60 * SECOND;
            steward_supervisor::run_once(&self.ports, 0, deadline).await.unwrap();
            self.schedule().await;
        }
    }

    async fn task(&self) -> Task {
        self.ports.store().load(&"t".parse().unwrap()).await.unwrap().unwrap()
    }

    /// How many effects of `charge` are not undone.
    fn charges(&self) -> usize {
        let ledger = self.agent.service.ledger();
        let account = ledger.account(&"t".parse().unwrap(), &"charge".parse().unwrap());
        account.map_or(0, |account| account.effects.iter().filter(|e| !e.undone).count())
    }

    /// The alerts about the task: the steps that each names, and its reason.
    fn alerts(&self) -> Vec<String> {
        let events = self.ports.bus().take();
        let alerts = events.iter().filter_map(|event| {
            let data = &event.operator_event()?.data;
            let (EventData::TaskInError(alert) | EventData::UndoFailed(alert)) = data else {
                return None;
            };
            Some(json!([alert.steps, alert.reason]).to_string())
        });
        alerts.collect()
    }

    /// The task ends as Undone, and nothing is left.
    async fn assert_undone(&self) {
        self.run_to_the_end().await;
        assert_eq!(self.task().await.process_state, ProcessState::Undone);
        let ledger = self.agent.service.ledger();
        assert_eq!(ledger.remaining_effects().next(), None);
    }

    /// The task ends in Error, with a new alert that names the step.
    async fn assert_alerted(&self) {
        self.run_to_the_end().await;
        assert_eq!(self.task().await.process_state, ProcessState::Error);
        let alerts = self.alerts();
        assert!(alerts.iter().any(|alert| alert.contains("charge")), "{alerts:?}");
    }
}

/// Five seconds are left until complete-by, and the call takes longer.
async fn deliver_with_overdue_call(shop: &Shop, charge: &str) {
    let request: StepRequest = serde_json::from_str(charge).unwrap();
    let left = request.complete_by.duration_since(shop.ports.clock().now());
    advance(Duration::try_from(left).unwrap() - 5 * SECOND).await;
    let charges = shop.charges();
    shop.deliver(charge, 2, [unanswered()]).await;
    assert_eq!(shop.charges(), charges + 1);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_overdue_after_a_refusal_is_undone() {
    let (shop, charge) = Shop::with_refused_charge(undone_if_refused()).await;
    deliver_with_overdue_call(&shop, &charge).await;
    shop.assert_undone().await;
}

#[tokio::test(start_paused = true)]
async fn an_overdue_call_of_an_undone_task_is_undone() {
    let (shop, charge) = Shop::ended(undone_if_refused(), ProcessState::Undone).await;
    deliver_with_overdue_call(&shop, &charge).await;
    shop.assert_undone().await;
}

#[tokio::test(start_paused = true)]
async fn an_overdue_call_of_a_refused_point_of_no_return_is_alerted() {
    let point = workflow("undo", json!({ "point_of_no_return": true }));
    let (shop, charge) = Shop::ended(point, ProcessState::Undone).await;
    deliver_with_overdue_call(&shop, &charge).await;
    shop.assert_alerted().await;
}

/// The third delivery does not call: it comes after complete-by.
#[tokio::test(start_paused = true)]
async fn a_call_whose_agent_was_killed_after_a_refusal_is_reported_by_a_late_delivery() {
    let (shop, charge) = Shop::ended(undone_if_refused(), ProcessState::Undone).await;
    shop.deliver_and_kill(&charge, 2, unanswered()).await;
    advance(60 * SECOND).await;
    shop.deliver(&charge, 3, []).await;
    assert_eq!(shop.charges(), 1);
    shop.assert_undone().await;
}

#[tokio::test(start_paused = true)]
async fn a_second_refusal_says_nothing_about_a_call_between_the_two() {
    let (shop, charge) = Shop::ended(undone_if_refused(), ProcessState::Undone).await;
    shop.deliver_and_kill(&charge, 2, unanswered()).await;
    shop.deliver(&charge, 3, [refused()]).await;
    assert_eq!(shop.charges(), 1);
    shop.assert_undone().await;
}

/// The resubmitted step has another idempotency key, so the service executes both calls.
#[tokio::test(start_paused = true)]
async fn an_overdue_call_before_an_edit_of_the_input_is_alerted() {
    for is_repeated_first in [true, false] {
        let workflow = workflow("alert", json!({}));
        let (shop, charge) = Shop::ended(workflow, ProcessState::Error).await;
        shop.resubmit(6).await;
        if is_repeated_first {
            shop.deliver_all().await;
        }
        deliver_with_overdue_call(&shop, &charge).await;
        shop.assert_alerted().await;
    }
}
