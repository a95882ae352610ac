//! A callback that ends its step while the agent still repeats the call of the step: the agent makes no further call. The
//! handlers run in memory, on virtual time.

use std::{
    num::NonZeroU32,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use aws_lambda_events::sqs::SqsBatchResponse;
use futures_util::future::join;
use jiff::Timestamp;
use serde_json::{Value, json};
use steward_agent::Agent;
use steward_core::{
    breaker::BreakerSettings,
    model::{
        messages::{CallbackMessage, CallbackOutcome, SchedulerMessage, StepRequest},
        names::CallbackToken,
        task::{ProcessState, Task},
    },
    submission::ReplyQueues,
};
use steward_runtime::ports::{Clock, Ports, Queue, StateStore};
use steward_test_world::{
    MemoryPorts, WorldClock,
    ledger::EffectLedger,
    service::{CallPlan, FakeService, PlannedServices, Reply},
};
use tokio::time::sleep;

use crate::support::sqs_event;

/// A deployment in memory with one task, whose only step has a callback. The first calls of the service are answered by 503.
struct Desk {
    ports: MemoryPorts,
    agent: Agent<FakeService<PlannedServices>>,
    calls: Arc<AtomicU32>,
}

impl Desk {
    async fn new(failures: u32) -> Self {
        let clock = WorldClock::running(Timestamp::from_second(1_780_000_000).unwrap());
        let timing = MemoryPorts::default().timing;
        let ports = MemoryPorts::with_clock(timing, NonZeroU32::MIN, clock);
        let ask = json!({
            "agent": "desk", "callback": { "within": "1h" }, "complete_within": "30s",
            "recovery": { "then": "undo" }, "request": { "path": "/ask/${ callback.token }" },
        });
        let workflow = json!({ "name": "w", "version": 1, "steps": { "ask": ask } });
        ports.definitions().publish(&serde_json::from_value(workflow).unwrap()).unwrap();
        let calls = Arc::new(AtomicU32::new(0));
        let count = calls.clone();
        let service = FakeService::planned(move |_: &StepRequest, _: &EffectLedger| {
            if count.fetch_add(1, Ordering::Relaxed) < failures {
                CallPlan::without_effect(0, Reply::status(503))
            } else {
                CallPlan::success(0, Value::Null)
            }
        });
        let agent = Agent::new("desk".parse().unwrap(), service, BreakerSettings::default());
        let desk = Self { ports, agent, calls };
        let submission = json!({ "task_id": "t", "workflow": "w", "input": null }).to_string();
        let queues = ReplyQueues::default();
        let submitted =
            steward_submission::handle(&desk.ports, &queues, sqs_event([submission], 1));
        assert_eq!(submitted.await, SqsBatchResponse::default());
        desk.schedule().await;
        desk
    }

    async fn schedule(&self) {
        for message in self.ports.channel().take(&Queue::Scheduler) {
            let response = steward_scheduler::handle(&self.ports, sqs_event([message.body], 1));
            assert_eq!(response.await, SqsBatchResponse::default());
        }
    }

    async fn call(&self) {
        let requests = self.ports.channel().take(&Queue::Agent("desk".parse().unwrap()));
        let event = sqs_event(requests.into_iter().map(|request| request.body), 1);
        let deadline = self.ports.clock().now() + Duration::from_secs(100);
        let response = steward_agent::handle(&self.ports, &self.agent, event, deadline).await;
        assert_eq!(response, SqsBatchResponse::default());
        self.schedule().await;
    }

    async fn answer(&self, outcome: CallbackOutcome) {
        let Task { task_id, incarnation, .. } = self.task().await;
        let token =
            CallbackToken { task_id, step: "ask".parse().unwrap(), incarnation, edit: None };
        let message = SchedulerMessage::Callback(CallbackMessage { token, outcome });
        let response =
            steward_scheduler::handle(&self.ports, sqs_event([json!(message).to_string()], 1));
        assert_eq!(response.await, SqsBatchResponse::default());
    }

    /// The service answers the callback after its first call, which it answers by 503, and before the second.
    async fn answer_between_two_calls(&self, outcome: CallbackOutcome) {
        let answering = async {
            sleep(Duration::from_millis(50)).await;
            assert_eq!(self.calls(), 1);
            self.answer(outcome).await;
        };
        join(self.call(), answering).await;
    }

    fn calls(&self) -> u32 {
        self.calls.load(Ordering::Relaxed)
    }

    async fn task(&self) -> Task {
        self.ports.store().load(&"t".parse().unwrap()).await.unwrap().unwrap()
    }
}

#[tokio::test(start_paused = true)]
async fn no_further_call_follows_a_callback_that_completed_the_step() {
    let desk = Desk::new(3).await;
    desk.answer_between_two_calls(CallbackOutcome::Completed { output: json!("yes") }).await;
    assert_eq!((desk.calls(), desk.task().await.process_state), (1, ProcessState::Processed));
}

/// A heartbeat answers nothing, and a callback does not come before the service knows of it.
#[tokio::test(start_paused = true)]
async fn a_call_is_repeated_while_its_callback_has_not_come() {
    let desk = Desk::new(3).await;
    desk.answer_between_two_calls(CallbackOutcome::Heartbeat).await;
    assert_eq!(desk.calls(), 4);
    desk.answer(CallbackOutcome::Completed { output: json!("yes") }).await;
    assert_eq!((desk.calls(), desk.task().await.process_state), (4, ProcessState::Processed));
}

/// Two deliveries of one request. The service refuses the call of the first, with a detailed error. The call of the second takes
/// effect, and its response is lost.
async fn effect_beside_a_refusal() -> (ProcessState, bool, u32, Value) {
    let clock = WorldClock::running(Timestamp::from_second(1_780_000_000).unwrap());
    let timing = MemoryPorts::default().timing;
    let ports = MemoryPorts::with_clock(timing, NonZeroU32::MIN, clock);
    let ask = json!({
        "agent": "desk", "complete_within": "60s", "recovery": { "then": "undo" }, "callback": { "within": "1h" },
        "request": { "path": "/ask/${ callback.token }" }, "undo": { "request": { "path": "/undo" } },
    });
    let workflow = json!({ "name": "w", "version": 1, "steps": { "ask": ask } });
    ports.definitions().publish(&serde_json::from_value(workflow).unwrap()).unwrap();
    let calls = Arc::new(AtomicU32::new(0));
    let count = calls.clone();
    let service = FakeService::planned(move |request: &StepRequest, _: &EffectLedger| {
        if request.action == steward_core::model::attempt::Action::Undo {
            return CallPlan::success(0, Value::Null);
        }
        match count.fetch_add(1, Ordering::Relaxed) {
            0 => {
                let refused = Reply::Http {
                    status: 400,
                    headers: Default::default(),
                    body: steward_test_world::service::Body::Bytes(vec![b'x'; 3_000]),
                };
                CallPlan::without_effect(2_000, refused)
            }
            1 => CallPlan::without_effect(1_500, Reply::status(503)).with_effect(Value::Null),
            _ => CallPlan::success(0, Value::Null),
        }
    });
    let agent = Agent::new("desk".parse().unwrap(), service.clone(), BreakerSettings::default());
    let desk = Desk { ports, agent, calls };
    let submission = json!({ "task_id": "t", "workflow": "w", "input": null }).to_string();
    let queues = ReplyQueues::default();
    let _ = steward_submission::handle(&desk.ports, &queues, sqs_event([submission], 1)).await;
    desk.schedule().await;
    let requests = desk.ports.channel().take(&Queue::Agent("desk".parse().unwrap()));
    let bodies: Vec<_> = requests.into_iter().map(|request| request.body).collect();
    let deadline = desk.ports.clock().now() + Duration::from_secs(100);
    let first = async {
        let event = sqs_event(bodies.clone(), 1);
        let _ = steward_agent::handle(&desk.ports, &desk.agent, event, deadline).await;
        desk.schedule().await;
    };
    let second = async {
        sleep(Duration::from_secs(1)).await;
        let event = sqs_event(bodies.clone(), 2);
        let _ = steward_agent::handle(&desk.ports, &desk.agent, event, deadline).await;
        desk.schedule().await;
    };
    join(first, second).await;
    // Everything that is left: wakes, the undo.
    for _ in 0..300 {
        sleep(Duration::from_secs(1)).await;
        desk.schedule().await;
        desk.call().await;
    }
    let remains = service.ledger().remaining_effects().next().is_some();
    let task = desk.task().await;
    (task.process_state, remains, desk.calls(), json!(task.steps))
}

#[tokio::test(start_paused = true)]
async fn the_failure_that_another_delivery_replied_is_not_taken_for_a_callback() {
    let (state, remains, calls, steps) = effect_beside_a_refusal().await;
    assert_ne!((state, remains), (ProcessState::Undone, true), "{calls} {steps}");
}
