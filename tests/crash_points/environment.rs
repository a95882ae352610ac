//! The environment of a scenario's runs: a deployment on the embedded AWS, and the test's own clients. Several runs use
//! the same environment; the task ids of each run have a different suffix.

use std::{num::NonZeroU32, time::Duration};

use aws_lambda_events::sqs::{SqsBatchResponse, SqsEvent};
use aws_sdk_sqs::{
    Client,
    types::{
        DeleteMessageBatchRequestEntry, Message, MessageSystemAttributeName, QueueAttributeName,
    },
};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use steward_aws::polling;
use steward_core::model::{names::TaskId, task::Task};
use steward_emulator::{embedded::EmbeddedAws, resources};
use steward_runtime::ports::{Clock, Ports, StateStore};
use steward_test_world::event_of;
use tempfile::TempDir;
use tokio::time::Instant;

use super::scenarios::Scenario;
use crate::support::{AdapterPorts, TestDeployment};

/// The client's reply queue.
pub(super) const CLIENT_QUEUE: &str = "client-shop";

/// The queue of agent `a`.
pub(super) const AGENT_QUEUE: &str = "steward-agent-a";

/// Longer than any run. The test itself makes messages visible again.
const VISIBILITY_SECONDS: i32 = 12 * 3600;

/// 14 days: SQS's longest retention.
const MESSAGES_KEPT_SECONDS: &str = "1209600";

/// The number of messages in a batch.
const BATCH_SIZE: i32 = 10;

/// A deployment with the test's own clients.
pub(super) struct Environment {
    pub(super) scenario: Scenario,
    pub(super) deployment: TestDeployment,
    /// The test's own clients, without fault injection.
    sqs: Client,
    ports: AdapterPorts,
    runs: u32,
    /// The data directory, if tables and queues are in files.
    data_dir: Option<TempDir>,
    /// When the embedded AWS was opened, by the test's clock and by the system's clock, on which its own clock is based.
    opened: (Instant, Timestamp),
}

impl Environment {
    pub(super) async fn new(scenario: &Scenario) -> Self {
        let data_dir = scenario.on_disk.then(|| TempDir::new().unwrap());
        let aws = data_dir
            .as_ref()
            .map_or_else(EmbeddedAws::in_memory, |dir| EmbeddedAws::on_disk(dir.path()));
        let mut deployment = TestDeployment::with_aws(aws.unwrap(), &scenario.workflow).await;
        if let Some(child) = &scenario.child {
            deployment.ports("publisher").definitions().publish(&child.workflow).await.unwrap();
        }
        // With more shards, the calls of a sweep would depend on the task ids.
        deployment.config.shards = NonZeroU32::MIN;
        let sdk = deployment.aws.sdk_config();
        resources::create_queue(&sdk, CLIENT_QUEUE, None).await.unwrap();
        // The state store stores whole milliseconds.
        let fraction = deployment.clock.now().subsec_nanosecond() % 1_000_000;
        deployment.clock.advance_by(SignedDuration::from_nanos(-i64::from(fraction)));
        let (sqs, ports) = (Client::new(&sdk), deployment.ports("test"));
        let opened = (Instant::now(), Timestamp::now());
        let scenario = scenario.clone();
        let environment = Self { scenario, deployment, sqs, ports, runs: 0, data_dir, opened };
        environment.extend_message_retention().await;
        environment
    }

    /// Sets the longest retention for all messages, as for dead letters.
    async fn extend_message_retention(&self) {
        let own =
            [resources::SUBMISSIONS_QUEUE, resources::SCHEDULER_QUEUE, resources::COMMANDS_QUEUE];
        let queues = own.into_iter().chain([AGENT_QUEUE]);
        for queue in queues {
            let request = self.sqs.set_queue_attributes().queue_url(self.queue(queue));
            let name = QueueAttributeName::MessageRetentionPeriod;
            request.attributes(name, MESSAGES_KEPT_SECONDS).send().await.unwrap();
        }
    }

    /// Kills everything, and restarts it from the files as they are at this moment, without what is only in memory.
    pub(super) async fn kill(&mut self) {
        let Some(data_dir) = &self.data_dir else { return };
        let copy = TempDir::new().unwrap();
        for entry in std::fs::read_dir(data_dir.path()).unwrap() {
            let entry = entry.unwrap();
            // SQLite's shared-memory file is not part of the database.
            let name = entry.file_name();
            if !name.to_string_lossy().ends_with("-shm") {
                // The folder of the payloads, which these tasks have not.
                if entry.path().is_file() {
                    std::fs::copy(entry.path(), copy.path().join(name)).unwrap();
                }
            }
        }
        // The clock of the queues continues at the same time.
        let time = self.queue_time();
        let aws = EmbeddedAws::on_disk(copy.path()).unwrap();
        self.opened = (Instant::now(), Timestamp::now());
        let ahead = Duration::try_from(time.duration_since(self.opened.1)).unwrap_or_default();
        tokio::time::advance(ahead).await;
        let agent = "a".parse().unwrap();
        let config = resources::create(&aws, &[agent]).await.unwrap();
        let sdk = aws.sdk_config();
        resources::create_queue(&sdk, CLIENT_QUEUE, None).await.unwrap();
        self.deployment.aws = aws;
        self.deployment.config = config;
        self.deployment.config.shards = NonZeroU32::MIN;
        self.sqs = Client::new(&sdk);
        self.ports = self.deployment.ports("test");
        self.data_dir = Some(copy);
    }

    /// Starts the next run; returns the suffix of its task ids, which is equally long in each run. Deletes delayed wakes of
    /// earlier runs.
    pub(super) async fn next_run(&mut self) -> String {
        let queue = self.queue(resources::SCHEDULER_QUEUE);
        self.sqs.purge_queue().queue_url(queue).send().await.unwrap();
        self.runs += 1;
        format!("-run{:05}", self.runs)
    }

    pub(super) fn queue(&self, name: &str) -> String {
        self.deployment.config.scheduler_queue_url.replace(resources::SCHEDULER_QUEUE, name)
    }

    pub(super) async fn send(&self, queue: &str, body: String) {
        self.send_to(&self.queue(queue), body).await;
    }

    pub(super) async fn send_to(&self, queue_url: &str, body: String) {
        let request = self.sqs.send_message().queue_url(queue_url).message_body(body);
        request.send().await.unwrap();
    }

    /// Receives a batch. It stays hidden until [`Self::make_visible`].
    pub(super) async fn receive(&self, queue: &str) -> Vec<Message> {
        let request = self
            .sqs
            .receive_message()
            .queue_url(queue)
            .max_number_of_messages(BATCH_SIZE)
            .visibility_timeout(VISIBILITY_SECONDS)
            .message_system_attribute_names(MessageSystemAttributeName::All)
            .message_attribute_names("All");
        request.send().await.unwrap().messages.unwrap_or_default()
    }

    /// Makes messages visible again that were not acknowledged.
    pub(super) async fn make_visible(&self, queue: &str, messages: &[Message]) {
        for message in messages {
            let request = self.sqs.change_message_visibility().queue_url(queue);
            let request = request.set_receipt_handle(message.receipt_handle.clone());
            // For acknowledged messages SQS returns an error.
            drop(request.visibility_timeout(0).send().await);
        }
    }

    /// Reads all messages of a queue that only the test consumes.
    pub(super) async fn read(&self, queue: &str) -> Vec<Value> {
        let mut texts = Vec::new();
        loop {
            let messages = self.receive(&self.queue(queue)).await;
            let text = |message: &Message| serde_json::from_str(message.body().unwrap()).unwrap();
            texts.extend(messages.iter().map(text));
            if messages.len() < BATCH_SIZE.unsigned_abs() as usize {
                return texts;
            }
        }
    }

    pub(super) async fn task(&self, id: &TaskId) -> Option<Task> {
        self.ports.store().load(id).await.unwrap()
    }

    /// The tasks in the due index.
    pub(super) async fn due(&self) -> Vec<TaskId> {
        self.ports.store().due_tasks(0, Timestamp::MAX, None).await.unwrap().task_ids
    }

    /// Converts messages to Lambda's event. By the test's clock, a message has waited for as long as by the clock of the queues.
    pub(super) fn event(&self, queue: &str, messages: &[Message]) -> SqsEvent {
        let ahead = self.deployment.clock.now().duration_since(self.queue_time()).as_millis();
        event_of(messages.iter().map(|message| {
            let mut record = polling::record(message.clone(), queue);
            for name in ["SentTimestamp", "ApproximateFirstReceiveTimestamp"] {
                if let Some(time) = record.attributes.get_mut(name) {
                    let shifted = time.parse::<i128>().unwrap() + ahead;
                    *time = shifted.max(answered_at(message).into()).to_string();
                }
            }
            record
        }))
    }

    /// The time by the clock of the queues.
    fn queue_time(&self) -> Timestamp {
        self.opened.1 + SignedDuration::try_from(self.opened.0.elapsed()).unwrap()
    }
}

/// The time of the answer in a reply, in milliseconds. The reply was not sent before: a call that hung after it took time on the
/// clock of the queues alone.
fn answered_at(message: &Message) -> i64 {
    let body: Value = serde_json::from_str(message.body().unwrap()).unwrap_or_default();
    let at = body.pointer("/times/answered_at").and_then(Value::as_str);
    at.map_or(0, |at| at.parse::<Timestamp>().unwrap().as_millisecond())
}

/// The number of deliveries of a message.
pub(super) fn receives(message: &Message) -> usize {
    let name = MessageSystemAttributeName::ApproximateReceiveCount;
    let count = message.attributes.as_ref().and_then(|attributes| attributes.get(&name));
    count.unwrap().parse().unwrap()
}

/// Deletes the messages that the handler did not report as failed. Returns whether all messages were handled and deleted;
/// otherwise the batch is redelivered.
pub(super) async fn acknowledge(
    sqs: &Client,
    queue: &str,
    messages: &[Message],
    answer: &SqsBatchResponse,
) -> bool {
    let failures = &answer.batch_item_failures;
    let is_done = |message: &&Message| {
        !failures.iter().any(|f| Some(&f.item_identifier) == message.message_id.as_ref())
    };
    let entries: Vec<_> = messages
        .iter()
        .filter(is_done)
        .enumerate()
        .map(|(n, message)| {
            let entry = DeleteMessageBatchRequestEntry::builder().id(n.to_string());
            entry.set_receipt_handle(message.receipt_handle.clone()).build().unwrap()
        })
        .collect();
    if entries.is_empty() {
        return false;
    }
    let deleted = sqs.delete_message_batch().queue_url(queue).set_entries(Some(entries));
    deleted.send().await.is_ok_and(|deleted| deleted.failed.is_empty()) && failures.is_empty()
}
