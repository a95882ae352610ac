//! Twice the load that a deployment bears, for ten minutes, and then none. The agent calls its service ten times a second, and
//! everything else is fast. Time is virtual and advances by a second.

use std::collections::{BTreeMap, VecDeque};

use aws_lambda_events::sqs::SqsEvent;
use jiff::{SignedDuration, Timestamp};
use steward_core::{model::task::ProcessState, submission::ReplyQueues};
use steward_runtime::ports::{Clock, OutgoingMessage, Ports, Queue};
use steward_submission::handle_with_intake;
use steward_test_world::{event_of, sent_record};

use super::Deployment;
use crate::support::submission_message;

/// How many calls the agent can make in a second. Each task needs one.
const CAPACITY: usize = 10;

/// How long twice this many tasks arrive.
const LOADED_S: usize = 600;

/// The backlog that is left needs ten minutes at least. What was held back last returns five minutes later.
const DRAINED_WITHIN_S: usize = 2_400;

/// How often the supervisor looks for overdue tasks.
const SWEEP_EVERY_S: usize = 10;

/// The messages of a batch.
const BATCH: usize = 10;

/// A message in a queue.
struct Queued {
    message: OutgoingMessage,
    sent_at: Timestamp,
}

impl Queued {
    fn visible_at(&self) -> Timestamp {
        self.sent_at + SignedDuration::try_from(self.message.delay).unwrap()
    }
}

/// Queues with delays, in the order in which messages become visible.
#[derive(Default)]
struct Queues(BTreeMap<Queue, BTreeMap<(Timestamp, u64), Queued>>, u64);

impl Queues {
    /// Adds what the functions have sent.
    fn add(&mut self, sent: Vec<OutgoingMessage>, sent_at: Timestamp) {
        for message in sent {
            let queued = Queued { message, sent_at };
            self.1 += 1;
            let queue = self.0.entry(queued.message.queue.clone()).or_default();
            queue.insert((queued.visible_at(), self.1), queued);
        }
    }

    /// Removes batches of up to `most` visible messages in all.
    fn receive(&mut self, queue: &Queue, most: usize, now: Timestamp) -> Vec<SqsEvent> {
        let Some(queue) = self.0.get_mut(queue) else { return Vec::new() };
        let mut received = VecDeque::new();
        while received.len() < most
            && let Some(first) = queue.first_entry()
            && first.key().0 <= now
        {
            received.push_back(first.remove());
        }
        let mut batches = Vec::new();
        while !received.is_empty() {
            let batch = received.drain(..received.len().min(BATCH));
            batches.push(event(batch.collect()));
        }
        batches
    }

    fn is_empty(&self) -> bool {
        self.0.values().all(BTreeMap::is_empty)
    }
}

fn event(batch: Vec<Queued>) -> SqsEvent {
    event_of(batch.iter().enumerate().map(|(n, Queued { message, sent_at })| {
        let mut record = sent_record(format!("m-{n}"), message, 1);
        let sent_at = sent_at.as_millisecond().to_string();
        record.attributes.insert("SentTimestamp".to_owned(), sent_at);
        record
    }))
}

/// The deployment and its queues.
struct Overload {
    deployment: Deployment,
    queues: Queues,
    submitted: usize,
}

impl Overload {
    /// Everything that happens in a second: clients submit, and the functions handle what their queues hold.
    async fn second(&mut self, submissions: usize) {
        let now = self.deployment.ports.clock().now();
        let new = (self.submitted..self.submitted + submissions).map(|n| OutgoingMessage {
            queue: Queue::Submissions,
            body: submission_message(&format!("t-{n}")),
            attributes: Vec::new(),
            tenant: None,
            delay: std::time::Duration::ZERO,
        });
        self.queues.add(new.collect(), now);
        self.submitted += submissions;
        let Deployment { ports, agent, intake } = &self.deployment;
        for batch in self.queues.receive(&Queue::Submissions, usize::MAX, now) {
            let handled = handle_with_intake(ports, intake, &ReplyQueues::default(), batch).await;
            assert!(handled.batch_item_failures.is_empty());
        }
        for batch in self.queues.receive(&Queue::Scheduler, usize::MAX, now) {
            let handled = steward_scheduler::handle(ports, batch).await;
            assert!(handled.batch_item_failures.is_empty());
        }
        let requests = Queue::Agent(agent.name.clone());
        for batch in self.queues.receive(&requests, CAPACITY, now) {
            let deadline = now + SignedDuration::from_secs(120);
            let handled = steward_agent::handle(ports, agent, batch, deadline).await;
            assert!(handled.batch_item_failures.is_empty());
        }
        self.queues.add(ports.channel().take_all(), now);
        self.deployment.pass(1);
    }
}

#[tokio::test]
async fn twice_the_load_for_ten_minutes_costs_no_attempt_and_drains() {
    let deployment = Deployment::new();
    let mut overload = Overload { deployment, queues: Queues::default(), submitted: 0 };
    let mut calls_by_minute = Vec::new();
    for second in 0..LOADED_S {
        overload.second(2 * CAPACITY).await;
        if second % SWEEP_EVERY_S == 0 {
            overload.deployment.sweep().await;
        }
        if second % 60 == 59 {
            calls_by_minute.push(overload.deployment.calls() as usize);
        }
    }
    let goodput = overload.deployment.calls() as usize;
    assert!(goodput * 10 >= CAPACITY * LOADED_S * 8, "{goodput} calls: {calls_by_minute:?}");
    let mut drained_s = 0;
    while !overload.queues.is_empty() {
        overload.second(0).await;
        if drained_s % SWEEP_EVERY_S == 0 {
            overload.deployment.sweep().await;
        }
        drained_s += 1;
        assert!(drained_s <= DRAINED_WITHIN_S, "the backlog does not drain");
    }
    for n in 0..overload.submitted {
        let task = overload.deployment.task(&format!("t-{n}")).await.unwrap();
        let end = (task.process_state, task.failure_count);
        assert_eq!(end, (ProcessState::Processed, 0), "{}", task.task_id);
    }
    // No call was repeated.
    assert_eq!(overload.deployment.calls() as usize, overload.submitted);
}
