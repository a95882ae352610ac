//! Lifetimes: ids that are used again, tasks that live longer than they were meant to, and what their
//! expiry leaves behind. On the ports in memory, whose clock moves by months and whose items are deleted
//! one by one.

#![cfg(test)]

use std::{collections::BTreeMap, time::Duration};

use aws_lambda_events::sqs::SqsEvent;
use serde_json::{Value, json};
use steward_core::{
    definition::workflow::Workflow,
    engine::{
        decision::{Context, Transition},
        documents::Documents,
        event::Event,
        transition::transition,
    },
    model::{
        command::Command,
        events::{BusEvent, Happened},
        messages::{Outcome, SchedulerMessage, StepReply, StepRequest},
        names::TaskId,
        task::{ProcessState, Task},
        time::Timing,
    },
    submission::{Refusal, ReplyQueues},
};
use steward_runtime::{
    dispatch::carry_out,
    drive::{Delivery, drive},
    ports::{Clock, Outgoing, Ports, Queue, StateStore},
    trace::{Span, SpanKind},
};
use steward_testkit::memory::{ExpiredItem, MemoryPorts};

mod late;

const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(24 * 3_600);

/// A deployment whose agents answer when the test says so.
struct World {
    ports: MemoryPorts,
    /// The latest request of each step of each task.
    requests: BTreeMap<(String, String), StepRequest>,
    /// What was sent to the scheduler, in the order sent.
    sent: Vec<Outgoing>,
    events: Vec<BusEvent>,
    /// Submissions of the tasks of steps that are on their way for long, if they are to be.
    held: Option<Vec<Outgoing>>,
}

impl World {
    fn new(workflows: &[Value]) -> Self {
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
        let (requests, sent, events) = (BTreeMap::new(), Vec::new(), Vec::new());
        Self { ports, requests, sent, events, held: None }
    }

    /// Hands a submission in, and lets the deployment come to rest.
    async fn submit(&mut self, submission: Value) -> Result<TaskId, Refusal> {
        let text = submission.to_string();
        let result = self.receive(&text).await;
        self.rest().await;
        result
    }

    async fn receive(&self, text: &str) -> Result<TaskId, Refusal> {
        let span = Span::begin("submit", SpanKind::Consumer, None);
        let queues = ReplyQueues::default();
        let receipt =
            steward_submission::receive(&self.ports, &queues, text, None, span).await.unwrap();
        let sent = carry_out(&self.ports, receipt.sends).await;
        assert!(sent.iter().all(Result::is_ok), "{sent:?}");
        receipt.result
    }

    /// Delivers what is in the queues until nothing is left but what the agents are to answer. What is
    /// held back in a queue comes early; the supervisor finds what that misses.
    async fn rest(&mut self) {
        loop {
            let all = self.ports.channel().take_all();
            self.events.extend(self.ports.bus().take());
            if all.is_empty() {
                return;
            }
            for message in all {
                match &message.queue {
                    Queue::Scheduler => {
                        self.sent.push(message.clone());
                        self.schedule(&message.body).await;
                    }
                    Queue::Submissions if self.held.is_some() => {
                        self.held.get_or_insert_default().push(message);
                    }
                    Queue::Submissions => drop(self.receive(&message.body).await),
                    Queue::Agent(_) => {
                        let request: StepRequest = serde_json::from_str(&message.body).unwrap();
                        let of = (request.task_id.to_string(), request.step.to_string());
                        self.requests.insert(of, request);
                    }
                    Queue::Client(_) | Queue::Rejected => {}
                }
            }
        }
    }

    /// Hands a message to the scheduler.
    async fn schedule(&self, body: &str) {
        let event: SqsEvent = serde_json::from_value(json!({ "Records": [
            { "messageId": "m", "body": body, "attributes": { "ApproximateReceiveCount": "1" } },
        ] }))
        .unwrap();
        let response = steward_scheduler::handle(&self.ports, event).await;
        assert_eq!(response.batch_item_failures.len(), 0, "{body}");
    }

    /// An agent answers the latest request of a step.
    async fn reply(&mut self, task: &str, step: &str, outcome: Outcome) {
        let reply = self.reply_to(task, step, outcome);
        self.schedule(&json!(SchedulerMessage::Reply(reply)).to_string()).await;
        self.rest().await;
    }

    fn reply_to(&self, task: &str, step: &str, outcome: Outcome) -> StepReply {
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
        }
    }

    async fn completes(&mut self, task: &str, step: &str, output: Value) {
        self.reply(task, step, Outcome::Completed { output, may_continue: false }).await;
    }

    async fn command(&mut self, task: &str, id: &str, order: Value) {
        let command = json!({
            "type": "command", "command_id": id, "task_id": task, "by": "ann", "why": "a test",
            "order": order,
        });
        self.schedule(&command.to_string()).await;
        self.rest().await;
    }

    /// Lets time pass hour by hour, as the supervisor looks every minute, and DynamoDB delete whatever
    /// has expired at once.
    async fn pass(&mut self, time: Duration) {
        let end = self.ports.clock().now() + time;
        while self.ports.clock().now() < end {
            self.ports.clock().advance(HOUR.min(time));
            self.sweep().await;
            for item in self.ports.store().expired(self.ports.clock().now()) {
                self.ports.store().delete_expired(&item);
            }
        }
    }

    async fn sweep(&mut self) {
        let now = self.ports.clock().now();
        let due = self.ports.store().due(0, now, None).await.unwrap();
        let swept = due.task_ids.into_iter().map(|task_id| Delivery {
            task_id,
            incarnation: None,
            event: Event::Swept,
            redelivered: false,
            traceparent: None,
        });
        for result in drive(&self.ports, swept.collect()).await {
            result.unwrap();
        }
        self.rest().await;
    }

    async fn load(&self, task: &str) -> Option<Task> {
        self.ports.store().load(&task.parse().unwrap()).await.unwrap()
    }

    async fn task(&self, task: &str) -> Task {
        self.load(task).await.unwrap()
    }

    async fn state(&self, task: &str) -> ProcessState {
        self.task(task).await.process_state
    }

    /// The alerts about a task, by their reasons.
    fn alerts(&self, task: &str) -> Vec<String> {
        let reasons = self.events.iter().filter_map(|event| match &event.data {
            Happened::TaskInError(trouble) | Happened::UndoFailed(trouble) => {
                (trouble.task_id.as_str() == task).then(|| trouble.reason.clone())
            }
            Happened::BreakerOpened(_)
            | Happened::BreakerClosed(_)
            | Happened::SubmissionRefused { .. }
            | Happened::MessageCorrupt { .. }
            | Happened::DeadLetterSeen { .. }
            | Happened::AgentMissing { .. }
            | Happened::OperatorCommand { .. }
            | Happened::OperatorRedrive { .. }
            | Happened::TaskEnded { .. } => None,
        });
        reasons.collect()
    }
}

fn call(path: &str) -> Value {
    json!({ "agent": "a", "request": { "method": "POST", "path": path } })
}

/// One call, kept for an hour.
fn one_call() -> Value {
    json!({ "name": "one", "version": 1, "complete_within": "1d", "retention": "1h",
        "steps": { "charge": call("/charge") } })
}

fn submission(task: &str, workflow: &str) -> Value {
    json!({ "task_id": task, "workflow": workflow, "input": { "n": 1 } })
}

#[tokio::test]
async fn an_id_can_be_reused_when_only_documents_of_its_earlier_task_remain() {
    let mut world = World::new(&[one_call()]);
    world.submit(submission("t", "one")).await.unwrap();
    world.completes("t", "charge", json!("first")).await;
    assert_eq!(world.state("t").await, ProcessState::Processed);
    world.ports.clock().advance(10 * DAY);
    // The same again is accepted only if there is a task after it.
    for keeps_task in [true, false] {
        if !keeps_task {
            world.ports.store().delete_expired(&ExpiredItem::Task("t".parse().unwrap()));
        }
        let before = world.ports.store().expired(world.ports.clock().now());
        assert!(!before.is_empty());
        world.submit(submission("t", "one")).await.unwrap();
        let second = world.task("t").await;
        assert_eq!(second.process_state, ProcessState::Processing);
        world.completes("t", "charge", json!("second")).await;
        let owner = second.owner();
        let key = "step/charge/1/output".parse().unwrap();
        let output = world.ports.store().documents(&owner, &[key]).await.unwrap();
        assert_eq!(output[0].body, json!("second"));
        world.ports.clock().advance(10 * DAY);
    }
    // Other content is another task's, and no refusal once the first has expired.
    let mut other = submission("t", "one");
    other["input"] = json!("other");
    world.submit(other).await.unwrap();
    assert_eq!(world.state("t").await, ProcessState::Processing);
}

#[tokio::test]
async fn messages_about_an_earlier_task_with_the_same_id_are_ignored() {
    let child = json!({ "name": "child", "version": 1, "retention": "1h",
        "steps": { "ship": call("/ship") } });
    let parent = json!({ "name": "parent", "version": 1, "complete_within": "1d", "retention": "1h",
        "steps": {
            "charge": call("/charge"),
            "deliver": { "workflow": { "name": "child" } },
            "approve": { "agent": "a", "callback": { "within": "1h" },
                "request": { "path": "/ask/${ callback.token }" } },
        } });
    let mut world = World::new(&[parent, child]);
    world.submit(submission("t", "parent")).await.unwrap();
    let done = Outcome::Completed { output: json!("first"), may_continue: false };
    let reply = world.reply_to("t", "charge", done.clone());
    let path = &world.requests[&("t".to_owned(), "approve".to_owned())].path;
    let token = path.trim_start_matches("/ask/").replace("%2F", "/");
    world.completes("t", "approve", json!(null)).await;
    world.completes("t:deliver", "ship", json!(null)).await;
    let of_child = |message: &&Outgoing| message.body.contains("child_ended");
    let ended = world.sent.iter().find(of_child).unwrap().body.clone();
    let asked = world.sent.iter().find(|message| message.body.contains("\"ask\"")).unwrap();
    let asked = asked.body.replace("\"do\"", "\"undo\"");
    world.command("t", "c-1", json!({ "command": "cancel" })).await;
    world.ports.clock().advance(60 * DAY);
    world.submit(submission("t", "parent")).await.unwrap();
    let before = (world.task("t").await, world.task("t:deliver").await);
    assert_eq!(before.0.process_state, ProcessState::Processing);
    let answer = json!({ "type": "callback", "token": token, "answer": "failed", "reason": "no" });
    for old in [
        json!(SchedulerMessage::Reply(reply.clone())).to_string(),
        answer.to_string(),
        ended.clone(),
        asked,
    ] {
        world.schedule(&old).await;
        assert_eq!((world.task("t").await, world.task("t:deliver").await), before, "{old}");
    }
    // What an older release sends names no incarnation, and is taken as it was.
    let unnamed = StepReply { incarnation: None, ..reply };
    world.schedule(&json!(SchedulerMessage::Reply(unnamed)).to_string()).await;
    assert!(world.task("t").await.has_passed(&"charge".parse().unwrap()));
}

/// A saga that waits for long between what it charges and what it ships.
fn slow(retention: &str, complete_within: &str, wait: &str) -> Value {
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

fn refused() -> Outcome {
    Outcome::Failed { reason: "no".to_owned(), may_have_run: false }
}

/// The body of the latest request of a step.
fn body(world: &World, task: &str, step: &str) -> Value {
    let request = &world.requests[&(task.to_owned(), step.to_owned())];
    request.body.as_ref().unwrap().value()
}

#[tokio::test]
async fn a_retention_shorter_than_complete_within_counts_from_the_end() {
    let mut world = World::new(&[slow("1h", "30d", "20d")]);
    world.submit(submission("t", "slow")).await.unwrap();
    world.completes("t", "charge", json!({ "id": "c-1" })).await;
    world.pass(20 * DAY + HOUR).await;
    assert_eq!(body(&world, "t", "ship"), json!({ "charge": "c-1" }));
    world.reply("t", "ship", refused()).await;
    assert_eq!(body(&world, "t", "charge"), json!({ "charge": "c-1" }));
    world.completes("t", "charge", json!(null)).await;
    assert_eq!(world.state("t").await, ProcessState::Undone);
    world.pass(HOUR / 2).await;
    assert_eq!(world.state("t").await, ProcessState::Undone);
    world.pass(HOUR).await;
    assert_eq!(world.load("t").await, None);
    world.pass(90 * DAY).await;
    assert_eq!(world.ports.store().expired(jiff::Timestamp::MAX), []);
}

#[tokio::test]
async fn a_task_that_is_paused_for_months_keeps_its_documents() {
    let mut world = World::new(&[slow("1h", "2d", "1h")]);
    world.submit(submission("t", "slow")).await.unwrap();
    world.completes("t", "charge", json!({ "id": "c-1" })).await;
    world.command("t", "c-1", json!({ "command": "pause" })).await;
    world.pass(90 * DAY).await;
    world.command("t", "c-2", json!({ "command": "resume" })).await;
    assert_eq!(body(&world, "t", "ship"), json!({ "charge": "c-1" }));
    world.reply("t", "ship", refused()).await;
    assert_eq!(body(&world, "t", "charge"), json!({ "charge": "c-1" }));
    world.completes("t", "charge", json!(null)).await;
    assert_eq!((world.state("t").await, world.alerts("t")), (ProcessState::Undone, Vec::new()));
}

#[tokio::test]
async fn a_task_that_is_cancelled_after_a_long_pause_is_kept_for_the_retention_time() {
    let mut world = World::new(&[slow("2h", "2d", "1h")]);
    world.submit(submission("t", "slow")).await.unwrap();
    world.command("t", "c-1", json!({ "command": "pause" })).await;
    world.pass(90 * DAY).await;
    world.command("t", "c-2", json!({ "command": "cancel" })).await;
    world.pass(HOUR).await;
    assert_eq!(world.state("t").await, ProcessState::Error);
    world.pass(2 * HOUR).await;
    assert_eq!(world.load("t").await, None);
}

#[tokio::test]
async fn a_task_that_is_undone_just_before_it_expires_keeps_its_documents() {
    let mut world = World::new(&[slow("20d", "2d", "1h")]);
    world.submit(submission("t", "slow")).await.unwrap();
    world.completes("t", "charge", json!({ "id": "c-1" })).await;
    world.pass(HOUR).await;
    world.completes("t", "ship", json!(null)).await;
    world.pass(19 * DAY).await;
    world.command("t", "c-1", json!({ "command": "undo" })).await;
    world.command("t", "c-2", json!({ "command": "pause" })).await;
    world.pass(60 * DAY).await;
    world.command("t", "c-3", json!({ "command": "resume" })).await;
    assert_eq!(body(&world, "t", "charge"), json!({ "charge": "c-1" }));
    world.completes("t", "charge", json!(null)).await;
    assert_eq!(world.state("t").await, ProcessState::Undone);
}

fn parent(complete_within: &str, wait: &str) -> Value {
    json!({ "name": "parent", "version": 1, "complete_within": complete_within, "retention": "1h",
        "steps": {
            "deliver": { "workflow": { "name": "child" } },
            "later": { "wait": wait, "after": ["deliver"] },
            "last": { "agent": "a", "after": ["later"], "recovery": { "then": "undo" },
                "request": { "path": "/last" } },
        } })
}

fn child() -> Value {
    json!({ "name": "child", "version": 1, "complete_within": "1h", "retention": "1h", "steps": {
        "ship": { "agent": "a", "request": { "path": "/ship" }, "undo": {
            "request": { "path": "/unship", "body": { "parcel": "${ steps.ship.output.id }" } } } },
    } })
}

#[tokio::test]
async fn a_child_task_does_not_expire_before_its_parent() {
    for is_paused in [false, true] {
        let within = if is_paused { "2d" } else { "100d" };
        let wait = if is_paused { "1h" } else { "30d" };
        let mut world = World::new(&[parent(within, wait), child()]);
        world.submit(submission("t", "parent")).await.unwrap();
        world.completes("t:deliver", "ship", json!({ "id": "p-1" })).await;
        assert_eq!(world.state("t:deliver").await, ProcessState::Processed);
        if is_paused {
            world.command("t", "c-1", json!({ "command": "pause" })).await;
            world.pass(60 * DAY).await;
            world.command("t", "c-2", json!({ "command": "resume" })).await;
        } else {
            world.pass(30 * DAY + HOUR).await;
        }
        world.reply("t", "last", refused()).await;
        assert_eq!(body(&world, "t:deliver", "ship"), json!({ "parcel": "p-1" }));
        world.completes("t:deliver", "ship", json!(null)).await;
        assert_eq!(world.state("t:deliver").await, ProcessState::Undone);
        assert_eq!(world.state("t").await, ProcessState::Undone);
        // And then both go, with all that they left.
        world.pass(200 * DAY).await;
        assert_eq!(world.ports.store().expired(jiff::Timestamp::MAX), []);
        assert_eq!((world.load("t").await, world.load("t:deliver").await), (None, None));
    }
}

#[tokio::test]
async fn a_missing_document_is_an_error_and_the_alert_names_it() {
    let mut world = World::new(&[slow("1h", "2d", "1h")]);
    world.submit(submission("t", "slow")).await.unwrap();
    world.completes("t", "charge", json!({ "id": "c-1" })).await;
    let owner = (world.task("t").await).owner();
    let key = "step/charge/1/output".parse().unwrap();
    world.ports.store().delete_expired(&ExpiredItem::Document(owner, key));
    world.requests.clear();
    world.pass(HOUR).await;
    assert_eq!(world.requests.len(), 0, "nothing is asked for with null");
    assert_eq!(world.state("t").await, ProcessState::Error);
    let alerts = world.alerts("t");
    assert!(
        alerts.iter().all(|why| why.contains("`step/charge/1/output` is missing")),
        "{alerts:?}"
    );
    assert!(!alerts.is_empty());
}

#[tokio::test]
async fn a_missing_child_task_does_not_count_as_undone() {
    let mut world = World::new(&[parent("2d", "1h"), child()]);
    world.submit(submission("t", "parent")).await.unwrap();
    world.completes("t:deliver", "ship", json!({ "id": "p-1" })).await;
    world.ports.store().delete_expired(&ExpiredItem::Task("t:deliver".parse().unwrap()));
    world.pass(HOUR).await;
    world.reply("t", "last", refused()).await;
    assert_eq!(world.state("t").await, ProcessState::Error);
    assert!(world.alerts("t")[0].contains("`t:deliver` has expired or was deleted"));
    assert_eq!(world.load("t:deliver").await, None);
}

/// Nothing runs for weeks, and what the task of a step reported is lost: it may have begun, and is gone. So it is if
/// the request to undo it was on its way for as long.
#[tokio::test]
async fn a_child_task_that_may_have_expired_does_not_count_as_never_begun() {
    for is_undo_on_its_way in [false, true] {
        let mut world = World::new(&[parent("2d", "1h"), child()]);
        world.submit(submission("t", "parent")).await.unwrap();
        let done = Outcome::Completed { output: json!({ "id": "p-1" }), may_continue: false };
        let reply = SchedulerMessage::Reply(world.reply_to("t:deliver", "ship", done));
        world.schedule(&json!(reply).to_string()).await;
        drop(world.ports.channel().take_all());
        assert_eq!(world.state("t:deliver").await, ProcessState::Processed);

        if is_undo_on_its_way {
            world.held = Some(Vec::new());
            world.command("t", "c-1", json!({ "command": "undo" })).await;
        }
        world.ports.clock().advance(60 * DAY);
        for item in world.ports.store().expired(world.ports.clock().now()) {
            world.ports.store().delete_expired(&item);
        }
        for message in world.held.take().unwrap_or_default() {
            drop(world.receive(&message.body).await);
        }
        world.rest().await;
        world.sweep().await;
        if !is_undo_on_its_way {
            world.command("t", "c-1", json!({ "command": "undo" })).await;
        }
        assert_eq!(world.state("t").await, ProcessState::Error, "{is_undo_on_its_way}");
        assert_eq!(world.load("t:deliver").await, None);
    }
}

/// The submission of a step's task is on its way for so long that its undo overtakes it, and its workflow
/// is not published, or does not take its input any more, when the undo comes.
#[tokio::test]
async fn a_child_task_undone_before_its_submission_arrived_never_begins() {
    for is_published in [false, true] {
        let mut world = World::new(&[parent("2d", "1h"), child()]);
        world.held = Some(Vec::new());
        world.submit(submission("t", "parent")).await.unwrap();
        let late = world.held.take().unwrap().remove(0);
        if is_published {
            let mut strict = child();
            strict["version"] = json!(2);
            strict["input"] = json!({ "type": "object", "required": ["n"] });
            let strict = serde_json::from_value(strict).unwrap();
            world.ports.definitions().publish(&strict).unwrap();
        } else {
            assert!(world.ports.definitions().unpublish(&"child".parse().unwrap(), 1));
        }
        world.command("t", "c-1", json!({ "command": "undo" })).await;
        assert_eq!(world.state("t").await, ProcessState::Undone);
        world.ports.definitions().publish(&serde_json::from_value(child()).unwrap()).unwrap();
        for _ in 0..2 {
            drop(world.receive(&late.body).await);
            world.rest().await;
        }
        assert_eq!(world.requests.len(), 0, "published: {is_published}");
        assert_eq!(world.state("t:deliver").await, ProcessState::Undone);
    }
}

/// A refusal of the submission says nothing of a task that there may be.
#[tokio::test]
async fn a_rejected_submission_does_not_complete_an_undo() {
    let mut world = World::new(&[parent("2d", "1h"), child()]);
    world.submit(submission("t", "parent")).await.unwrap();
    world.held = Some(Vec::new());
    world.command("t", "c-1", json!({ "command": "undo" })).await;
    let refused = json!({ "type": "child_ended", "task_id": "t", "step": "deliver",
        "outcome": { "status": "refused", "reason": "no such workflow" } });
    world.schedule(&refused.to_string()).await;
    assert_eq!(world.state("t").await, ProcessState::Undoing);
}

/// The command's process dies after it has written the output and before it has saved the task; then the
/// next attempt begins, and the command is refused.
#[tokio::test]
async fn a_command_that_lost_a_race_does_not_replace_the_services_output() {
    let workflow = json!({ "name": "w", "version": 1, "complete_within": "2d",
        "output": "${ steps.charge.output.id }",
        "steps": { "charge": { "agent": "a", "complete_within": "1m", "request": { "path": "/charge" },
            "undo": { "request": { "path": "/refund", "body": "${ steps.charge.output.id }" } } } } });
    let definition: Workflow = serde_json::from_value(workflow.clone()).unwrap();
    let mut world = World::new(&[workflow]);
    world.submit(submission("t", "w")).await.unwrap();
    world.ports.clock().advance(Duration::from_secs(90));
    let task = world.task("t").await;
    let swept = |task: &Task, event: &Event| {
        let context = Context {
            now: world.ports.clock().now(),
            actor: "other",
            redelivered: false,
            timing: world.ports.timing(),
        };
        match transition(&definition, task, &Documents::new(), event, context).unwrap() {
            Transition::Apply { task, documents, .. } => (*task, documents),
            other @ (Transition::Ignore { .. } | Transition::Illegal(_)) => panic!("{other:?}"),
        }
    };
    // It waits for its next attempt when the command is decided on.
    let (waiting, _) = swept(&task, &Event::Swept);
    let command: Command = serde_json::from_value(json!({
        "command_id": "c-1", "task_id": "t", "by": "ann", "why": "a test",
        "order": { "command": "complete", "step": "charge", "output": { "id": "TILL" } },
    }))
    .unwrap();
    let (_, documents) = swept(&waiting, &Event::Commanded(command.clone()));
    assert!(!documents.is_empty());
    for document in documents {
        let (owner, kept) = (task.owner(), task.kept());
        world.ports.store().put_document(&owner, kept, &document).await.unwrap();
    }
    world.sweep().await;
    world.ports.clock().advance(HOUR);
    world.sweep().await;
    assert_eq!(world.requests[&("t".to_owned(), "charge".to_owned())].attempt, 2);
    world
        .command(
            "t",
            "c-1",
            json!({ "command": "complete", "step": "charge",
        "output": { "id": "TILL" } }),
        )
        .await;
    world.completes("t", "charge", json!({ "id": "c-7" })).await;
    let task = world.task("t").await;
    assert_eq!(task.process_state, ProcessState::Processed);
    assert!(task.commands[0].refused.is_some());
    let result = steward_operator::view::result_of(&task).unwrap();
    let result = world.ports.store().documents(&task.owner(), &[result]).await.unwrap();
    assert_eq!(result[0].body, json!("c-7"));
    world.command("t", "c-2", json!({ "command": "undo" })).await;
    assert_eq!(body(&world, "t", "charge"), json!("c-7"));
}

/// What an operator completed is what later steps read.
#[tokio::test]
async fn an_output_set_by_an_operator_is_read_by_the_next_step() {
    let mut world = World::new(&[slow("1h", "2d", "1h")]);
    world.submit(submission("t", "slow")).await.unwrap();
    world.reply("t", "charge", refused()).await;
    world
        .command("t", "c-1", json!({ "command": "complete", "output": { "id": "by-hand" } }))
        .await;
    world.pass(2 * HOUR).await;
    assert_eq!(body(&world, "t", "ship"), json!({ "charge": "by-hand" }));
}
