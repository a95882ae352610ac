//! A deployment on the in-memory ports for tests of lifetimes, and its workflows.

use std::{collections::BTreeMap, future::pending, time::Duration};

use aws_lambda_events::sqs::SqsEvent;
use jiff::Timestamp;
use serde_json::{Value, json};
use steward_core::{
    engine::event::Event,
    limits,
    model::{
        events::{BusEvent, EventData},
        messages::{ReplyOutcome, SchedulerMessage, StepReply, StepRequest},
        names::TaskId,
        task::{ProcessState, Task},
        time::Timing,
    },
    submission::{ReplyQueues, SubmissionRefusal},
};
use steward_runtime::{
    dispatch::send_effects,
    drive::{Delivery, drive},
    ports::{Clock, OutgoingMessage, Ports, Queue, StateStore},
    trace::{SpanKind, TraceSpan},
};
use steward_test_world::MemoryPorts;

use crate::support::{commands_event, scheduler_instance, sqs_event};

pub(super) const HOUR: Duration = Duration::from_secs(3_600);

pub(super) const DAY: Duration = Duration::from_secs(24 * 3_600);

/// A deployment on the in-memory ports. The test replies in place of the agents.
pub(super) struct MemoryDeployment {
    pub(super) ports: MemoryPorts,
    /// The latest request by task and step.
    pub(super) requests: BTreeMap<(String, String), StepRequest>,
    /// All messages sent to the scheduler, in order.
    pub(super) scheduler_messages: Vec<OutgoingMessage>,
    events: Vec<BusEvent>,
    /// Submissions of child tasks that are delayed in their queue. `None`: submissions are delivered.
    pub(super) held_submissions: Option<Vec<OutgoingMessage>>,
}

impl MemoryDeployment {
    pub(super) fn new(workflows: &[Value]) -> Self {
        let timing = Timing {
            pickup_within: Duration::from_secs(60),
            clock_skew: Duration::ZERO,
            retention: Timing::RETENTION,
        };
        let ports = MemoryPorts::new(timing, std::num::NonZeroU32::MIN);
        ports.clock().advance(365 * DAY);
        for workflow in workflows {
            ports
                .definitions()
                .publish(&serde_json::from_value(workflow.clone()).unwrap())
                .unwrap();
        }
        Self {
            ports,
            requests: BTreeMap::new(),
            scheduler_messages: Vec::new(),
            events: Vec::new(),
            held_submissions: None,
        }
    }

    /// Submits a task, and delivers all messages.
    pub(super) async fn submit(&mut self, submission: Value) -> Result<TaskId, SubmissionRefusal> {
        let text = submission.to_string();
        let result = self.receive_submission(&text).await;
        self.deliver_all().await;
        result
    }

    pub(super) async fn receive_submission(&self, text: &str) -> Result<TaskId, SubmissionRefusal> {
        let span = TraceSpan::begin("submit", SpanKind::Consumer, None);
        let queues = ReplyQueues::default();
        let receipt =
            steward_submission::process_submission(&self.ports, &queues, text, None, span)
                .await
                .unwrap();
        let sent = send_effects(&self.ports, receipt.effects).await;
        assert!(sent.iter().all(Result::is_ok), "{sent:?}");
        receipt.result
    }

    /// Delivers all messages until only requests to agents are left. Delayed messages are delivered early; the
    /// supervisor finds what their early delivery misses.
    pub(super) async fn deliver_all(&mut self) {
        loop {
            let all = self.ports.channel().take_all();
            self.events.extend(self.ports.bus().take());
            if all.is_empty() {
                return;
            }
            for message in all {
                match &message.queue {
                    Queue::Scheduler | Queue::Commands => {
                        self.scheduler_messages.push(message.clone());
                        self.schedule(&message.body).await;
                    }
                    Queue::Submissions if self.held_submissions.is_some() => {
                        self.held_submissions.get_or_insert_default().push(message);
                    }
                    Queue::Submissions => drop(self.receive_submission(&message.body).await),
                    Queue::Agent(_) => {
                        let request: StepRequest = serde_json::from_str(&message.body).unwrap();
                        let key = (request.task_id.to_string(), request.step.to_string());
                        self.requests.insert(key, request);
                    }
                    Queue::Client(_) | Queue::Rejected | Queue::Sweeps | Queue::Events => {}
                }
            }
        }
    }

    /// Delivers a message to the scheduler, from the queue that the message belongs to.
    pub(super) async fn schedule(&self, body: &str) {
        let is_command = serde_json::from_str::<Value>(body).unwrap()["type"] == "command";
        let event = match is_command {
            true => commands_event([body.to_owned()], Some("AIDAANN")),
            false => sqs_event([body.to_owned()], 1),
        };
        self.schedule_batch(event).await;
    }

    /// Delivers a batch to the scheduler.
    pub(super) async fn schedule_batch(&self, event: SqsEvent) {
        let response =
            steward_scheduler::handle_with(&self.ports, &scheduler_instance(""), event).await;
        assert_eq!(response.batch_item_failures, []);
    }

    /// Delivers a reply to the latest request of a step.
    pub(super) async fn reply(&mut self, task: &str, step: &str, outcome: ReplyOutcome) {
        let reply = self.reply_to(task, step, outcome);
        self.schedule(&json!(SchedulerMessage::Reply(reply)).to_string()).await;
        self.deliver_all().await;
    }

    pub(super) fn reply_to(&self, task: &str, step: &str, outcome: ReplyOutcome) -> StepReply {
        let request = self.requests[&(task.to_owned(), step.to_owned())].clone();
        let StepRequest { task_id, step, action, attempt, incarnation, .. } = request;
        StepReply {
            task_id,
            step,
            action,
            attempt,
            outcome,
            incarnation,
            times: Default::default(),
            agent: None,
        }
    }

    pub(super) async fn complete(&mut self, task: &str, step: &str, output: Value) {
        self.reply(task, step, ReplyOutcome::Completed { output, may_continue: false }).await;
    }

    pub(super) async fn command(&mut self, task: &str, id: &str, order: Value) {
        let command = json!({
            "type": "command", "command_id": id, "task_id": task, "by": "ann", "why": "a test", "order": order,
            "issued_at": self.ports.clock().now(),
        });
        self.schedule(&command.to_string()).await;
        self.deliver_all().await;
    }

    /// Advances the clock by one hour at a time. After each hour the supervisor sweeps and keeps the tasks in Error, and expired
    /// items are deleted.
    pub(super) async fn run_for(&mut self, time: Duration) {
        let end = self.ports.clock().now() + time;
        while self.ports.clock().now() < end {
            self.ports.clock().advance(HOUR.min(time));
            self.sweep().await;
            let now = self.ports.clock().now();
            steward_supervisor::errors::keep(&self.ports, now, Timestamp::MAX).await.1.unwrap();
            self.deliver_all().await;
            for item in self.ports.store().expired(self.ports.clock().now()) {
                self.ports.store().delete_expired(&item);
            }
        }
    }

    /// Settles the Error of a task.
    pub(super) async fn resolve(&mut self, task: &str) {
        self.command(task, "resolved", json!({ "command": "resolve" })).await;
        assert!(!self.task(task).await.is_unresolved());
    }

    pub(super) async fn sweep(&mut self) {
        let now = self.ports.clock().now();
        let due = self.ports.store().due_tasks(0, now, None).await.unwrap();
        let swept = due.task_ids.into_iter().map(|task_id| Delivery {
            task_id,
            incarnation: None,
            event: Event::Swept,
            redelivered: false,
            traceparent: None,
        });
        for result in drive(&self.ports, swept.collect(), pending()).await {
            result.unwrap();
        }
        self.deliver_all().await;
    }

    pub(super) async fn find_task(&self, task: &str) -> Option<Task> {
        self.ports.store().load(&task.parse().unwrap()).await.unwrap()
    }

    pub(super) async fn task(&self, task: &str) -> Task {
        self.find_task(task).await.unwrap()
    }

    pub(super) async fn process_state(&self, task: &str) -> ProcessState {
        self.task(task).await.process_state
    }

    /// The reasons of the alerts about a task.
    pub(super) fn alert_reasons(&self, task: &str) -> Vec<String> {
        let reasons = self.events.iter().filter_map(|event| {
            let (EventData::TaskInError(trouble) | EventData::UndoFailed(trouble)) =
                &event.operator_event()?.data
            else {
                return None;
            };
            (trouble.task_id.as_str() == task).then(|| trouble.reason.clone())
        });
        reasons.collect()
    }
}

pub(super) fn call_step(path: &str) -> Value {
    json!({ "agent": "a", "request": { "method": "POST", "path": path } })
}

/// A workflow with one call and a retention of one hour.
pub(super) fn one_call_workflow() -> Value {
    json!({ "name": "one", "version": 1, "complete_within": "1d", "retention": "1h",
        "steps": { "charge": call_step("/charge") } })
}

/// A submission with an input that does not fit into the item of its task.
pub(super) fn submission(task: &str, workflow: &str) -> Value {
    json!({ "task_id": task, "workflow": workflow, "input": large(json!({ "n": 1 })) })
}

/// The object with a text that makes it too large for the item of a task: only separate documents expire before their task.
pub(super) fn large(mut object: Value) -> Value {
    object["note"] = "x".repeat(limits::INLINE_DOCUMENTS_BYTES_MAX).into();
    object
}

/// A workflow that charges, waits, and ships.
pub(super) fn charge_wait_ship(retention: &str, complete_within: &str, wait: &str) -> Value {
    json!({ "name": "slow", "version": 1, "complete_within": complete_within, "retention": retention,
        "steps": {
            "charge": { "agent": "a", "request": { "path": "/charge" }, "undo": {
                "request": { "path": "/refund", "body": { "charge": "${ steps.charge.output.id }" } },
            } },
            "later": { "wait": wait, "after": ["charge"] },
            "ship": { "agent": "a", "after": ["later"], "recovery": { "then": "undo" },
                "request": { "path": "/ship", "body": { "charge": "${ steps.charge.output.id }" } } },
        } })
}

pub(super) fn refused_outcome() -> ReplyOutcome {
    ReplyOutcome::Failed {
        reason: "no".to_owned(),
        may_have_run: false,
        call_in_doubt: false,
        detail: None,
    }
}

/// The body of the latest request of a step.
pub(super) fn request_body(deployment: &MemoryDeployment, task: &str, step: &str) -> Value {
    let request = &deployment.requests[&(task.to_owned(), step.to_owned())];
    request.body.as_ref().unwrap().value()
}

pub(super) fn parent_workflow(complete_within: &str, wait: &str) -> Value {
    json!({ "name": "parent", "version": 1, "complete_within": complete_within, "retention": "1h",
        "steps": {
            "deliver": { "workflow": { "name": "child" } },
            "later": { "wait": wait, "after": ["deliver"] },
            "last": { "agent": "a", "after": ["later"], "recovery": { "then": "undo" },
                "request": { "path": "/last" } },
        } })
}

pub(super) fn child_workflow() -> Value {
    json!({ "name": "child", "version": 1, "complete_within": "1h", "retention": "1h", "steps": {
        "ship": { "agent": "a", "request": { "path": "/ship" }, "undo": {
            "request": { "path": "/unship", "body": { "parcel": "${ steps.ship.output.id }" } } } },
    } })
}
