//! One run of a scenario, turned by hand: the real handlers and the real SDK clients on embedded AWS,
//! one batch at a time, and a clock that moves only when nothing else is left to do.
//!
//! ```text
//! ┌► submissions ─► scheduler ─► agent ─┐ until the queues are empty
//! └─────────────────────────────────────┘
//!    then: the operator's command, or the clock moves to the next due time and the supervisor sweeps
//!    until nothing is due
//! ```
//!
//! What a handler did not do, or did not live to acknowledge, comes back at once, as SQS would bring
//! it after the visibility timeout.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use agent::Agent;
use aws_lambda_events::sqs::{SqsBatchResponse, SqsEvent};
use aws_sdk_sqs::{
    Client,
    types::{DeleteMessageBatchRequestEntry, Message, MessageSystemAttributeName},
};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use steward_core::{
    command::Command,
    messages::SchedulerMessage,
    names::TaskId,
    ports::{Clock, DuePage, Ports, StateStore, shard_of},
    task::Task,
};
use steward_local::resources;

use super::{
    remote::{Entry, Remote},
    scenarios::Scenario,
    wire::{Call, CutAt, Journal, Process, Role, Wire},
};
use crate::support::{Deployment, TestPorts};

/// The client's own queue.
const CLIENT_QUEUE: &str = "client-shop";

/// More than any scenario needs; a run that goes on for longer goes round in circles.
const ROUNDS_MAX: usize = 100;

/// Longer than any run: whatever comes back is given back by the test.
const VISIBILITY_SECONDS: i32 = 12 * 3600;

/// What became of a run.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) calls: Vec<Call>,
    /// The tasks as they ended, without what differs from run to run.
    pub(super) tasks: BTreeMap<TaskId, Task>,
    /// How long it took until the last task ended.
    pub(super) ended_after: Duration,
    /// What clients and operators were told, and when first.
    pub(super) told: BTreeMap<String, Duration>,
    /// How long it took until nothing was left to look after.
    pub(super) settled_after: Duration,
    pub(super) ledgers: BTreeMap<TaskId, Vec<Entry>>,
    /// Everything that must not be.
    pub(super) wrong: Vec<String>,
}

/// A function's process, with clients of its own.
struct Instance {
    ports: TestPorts,
    /// Acknowledges, for the process.
    sqs: Client,
    process: Arc<Process>,
}

struct World<'s> {
    scenario: &'s Scenario,
    deployment: Deployment,
    started_at: Timestamp,
    journal: Arc<Journal>,
    instances: BTreeMap<Role, Arc<Instance>>,
    remote: Remote,
    /// The test's own clients, which nothing cuts.
    sqs: Client,
    ports: TestPorts,
    told: BTreeMap<String, Duration>,
    has_commanded: bool,
}

/// Runs a scenario to its end, with these cuts.
pub(super) async fn run(scenario: &Scenario, cuts: &[CutAt]) -> Run {
    let mut world = World::new(scenario, cuts).await;
    world.submit().await;
    let mut wrong = Vec::new();
    let mut rounds = 0;
    loop {
        while world.deliver_all().await {}
        world.hear().await;
        if world.command().await {
            continue;
        }
        let Some(due) = world.next_due().await else { break };
        world.sweep(due).await;
        rounds += 1;
        if rounds > ROUNDS_MAX {
            wrong.push("it does not end".to_owned());
            break;
        }
    }
    wrong.extend(world.left_over().await);
    world.close(wrong).await
}

impl<'s> World<'s> {
    async fn new(scenario: &'s Scenario, cuts: &[CutAt]) -> Self {
        let deployment = Deployment::new(&scenario.workflow).await;
        let sdk = deployment.aws.sdk_config();
        resources::create_queue(&sdk, CLIENT_QUEUE, false).await.unwrap();
        Self {
            scenario,
            started_at: deployment.clock.now(),
            journal: Arc::new(Journal::new(cuts)),
            instances: BTreeMap::new(),
            remote: Remote::new(&scenario.manners),
            sqs: Client::new(&sdk),
            ports: deployment.ports("test"),
            told: BTreeMap::new(),
            has_commanded: false,
            deployment,
        }
    }

    fn elapsed(&self) -> Duration {
        since(self.started_at, self.deployment.clock.now())
    }

    fn queue(&self, name: &str) -> String {
        self.deployment.config.scheduler_queue_url.replace(resources::SCHEDULER_QUEUE, name)
    }

    async fn send(&self, queue: &str, body: String) {
        let request = self.sqs.send_message().queue_url(self.queue(queue)).message_body(body);
        request.send().await.unwrap();
    }

    async fn submit(&self) {
        let reply_to = self.queue(CLIENT_QUEUE);
        for task_id in self.scenario.tasks {
            let submission = json!({
                "task_id": task_id, "workflow": self.scenario.workflow.name,
                "input": { "of": task_id }, "reply_to": reply_to,
            });
            self.send(resources::SUBMISSIONS_QUEUE, submission.to_string()).await;
        }
    }

    /// The instance of a role; a fresh one if the last has died.
    fn instance(&mut self, role: Role) -> Arc<Instance> {
        let (deployment, journal) = (&self.deployment, &self.journal);
        let start = || {
            let process = Arc::new(Process::default());
            let sdk = deployment.aws.sdk_config();
            let sdk = Wire::lay(sdk, role, journal.clone(), process.clone());
            let ports = deployment.ports_over(&format!("{role:?}").to_lowercase(), &sdk);
            Arc::new(Instance { ports, sqs: Client::new(&sdk), process })
        };
        self.journal.begin_invocation();
        self.instances.entry(role).or_insert_with(start).clone()
    }

    /// One batch from each queue; whether there was any.
    async fn deliver_all(&mut self) -> bool {
        let mut any = self.deliver(Role::Submission, resources::SUBMISSIONS_QUEUE).await;
        any |= self.deliver(Role::Scheduler, resources::SCHEDULER_QUEUE).await;
        any | self.deliver(Role::Agent, "steward-agent-a").await
    }

    async fn deliver(&mut self, role: Role, queue: &str) -> bool {
        let queue = self.queue(queue);
        let messages = self.receive(&queue).await;
        if messages.is_empty() {
            return false;
        }
        let instance = self.instance(role);
        let work = async {
            let answer = self.handle(role, &instance.ports, event(&messages)).await;
            acknowledge(&instance.sqs, &queue, &messages, &answer).await;
        };
        let died = tokio::select! {
            biased;
            () = instance.process.died() => true,
            () = work => false,
        };
        if died {
            self.instances.remove(&role);
        }
        self.give_back(&queue, &messages).await;
        true
    }

    async fn handle(&self, role: Role, ports: &TestPorts, event: SqsEvent) -> SqsBatchResponse {
        match role {
            Role::Submission => {
                submission::handle(ports, &self.deployment.config.reply_queues, event).await
            }
            Role::Scheduler => scheduler::handle(ports, event).await,
            Role::Agent => {
                let agent = Agent { name: "a".parse().unwrap(), service: self.remote.clone() };
                agent::handle(ports, &agent, event, Timestamp::MAX).await
            }
            Role::Supervisor => unreachable!("no queue is the supervisor's"),
        }
    }

    async fn receive(&self, queue: &str) -> Vec<Message> {
        let request = self
            .sqs
            .receive_message()
            .queue_url(queue)
            .max_number_of_messages(10)
            .visibility_timeout(VISIBILITY_SECONDS)
            .message_system_attribute_names(MessageSystemAttributeName::All)
            .message_attribute_names("All");
        request.send().await.unwrap().messages.unwrap_or_default()
    }

    /// What was not acknowledged becomes visible again.
    async fn give_back(&self, queue: &str, messages: &[Message]) {
        for message in messages {
            let request = self.sqs.change_message_visibility().queue_url(queue);
            let request = request.set_receipt_handle(message.receipt_handle.clone());
            // What was acknowledged is not there any more, and SQS says so.
            drop(request.visibility_timeout(0).send().await);
        }
    }

    /// Hears what clients and operators are told.
    async fn hear(&mut self) {
        for queue in [CLIENT_QUEUE, resources::ALERTS_QUEUE] {
            for message in self.deployment.take(&self.queue(queue)).await {
                let text: Value = serde_json::from_str(message.body().unwrap()).unwrap();
                let told = match text.get("detail") {
                    Some(event) => (&event["data"]["task_id"], &event["metadata"]["event"]),
                    None => (&text["task_id"], &text["status"]),
                };
                let (task_id, what) = (told.0.as_str().unwrap(), told.1.as_str().unwrap());
                let now = self.elapsed();
                self.told.entry(format!("{task_id}: {what}")).or_insert(now);
            }
        }
    }

    /// Acts for the operator, once every task has ended in an alert; whether there was something to
    /// do.
    async fn command(&mut self) -> bool {
        let Some(order) = &self.scenario.operator else { return false };
        let tasks = self.scenario.tasks.iter();
        let alerted = |task: &&str| self.told.contains_key(&format!("{task}: task_in_error"));
        if self.has_commanded || !tasks.clone().all(|task| alerted(&task)) {
            return false;
        }
        self.remote.mend();
        for task_id in tasks {
            let command = SchedulerMessage::Command(Command {
                command_id: "c-1".parse().unwrap(),
                task_id: task_id.parse().unwrap(),
                by: "operator".to_owned(),
                why: "mended".to_owned(),
                order: order.clone(),
            });
            let body = serde_json::to_string(&command).unwrap();
            self.send(resources::SCHEDULER_QUEUE, body).await;
        }
        self.has_commanded = true;
        true
    }

    async fn tasks(&self) -> BTreeMap<TaskId, Task> {
        let mut tasks = BTreeMap::new();
        for id in self.scenario.tasks {
            let id: TaskId = id.parse().unwrap();
            if let Some(task) = self.ports.store().load(&id).await.unwrap() {
                tasks.insert(id, task);
            }
        }
        tasks
    }

    async fn next_due(&self) -> Option<Timestamp> {
        self.tasks().await.values().filter_map(|task| task.due).min()
    }

    /// Moves the clock to `due`, unless it is past it, and lets the supervisor run.
    async fn sweep(&mut self, due: Timestamp) {
        let wait = due.duration_since(self.deployment.clock.now());
        self.deployment.clock.advance_by(wait.max(SignedDuration::ZERO));
        let instance = self.instance(Role::Supervisor);
        let work = supervisor::sweep(&instance.ports, 0, Timestamp::MAX);
        let died = tokio::select! {
            biased;
            () = instance.process.died() => true,
            _ = work => false,
        };
        if died {
            self.instances.remove(&Role::Supervisor);
        }
    }

    /// Messages where none may be, and tasks that are in the due index still.
    async fn left_over(&self) -> Vec<String> {
        let mut found = Vec::new();
        let dead_letters = |queue: &str| format!("{queue}-dead-letters");
        let queues = [resources::SUBMISSIONS_QUEUE, resources::SCHEDULER_QUEUE, "steward-agent-a"];
        let empty = queues.into_iter().flat_map(|queue| [queue.to_owned(), dead_letters(queue)]);
        for queue in empty.chain([resources::REJECTED_QUEUE.to_owned()]) {
            let messages = self.receive(&self.queue(&queue)).await;
            found.extend(messages.iter().map(|message| format!("in {queue}: {:?}", message.body)));
        }
        let shards = self.deployment.config.shards;
        let tasks = self.scenario.tasks.iter();
        let shards: BTreeSet<_> = tasks.map(|id| shard_of(&id.parse().unwrap(), shards)).collect();
        for shard in shards {
            let due = self.ports.store().due(shard, Timestamp::MAX, None).await.unwrap();
            let DuePage { task_ids, .. } = due;
            found.extend(task_ids.iter().map(|id| format!("task {id} is due still")));
        }
        let mixed_up = self.remote.mixed_up();
        found.extend(mixed_up.iter().map(|key| format!("{key} came with two contents")));
        found
    }

    async fn close(self, wrong: Vec<String>) -> Run {
        let mut tasks = self.tasks().await;
        let ended_at = tasks.values().filter_map(|task| task.ended_at).max();
        tasks.values_mut().for_each(forget_times);
        Run {
            calls: self.journal.calls(),
            tasks,
            ended_after: ended_at.map_or(Duration::MAX, |at| since(self.started_at, at)),
            settled_after: self.elapsed(),
            told: self.told,
            ledgers: self.remote.ledgers(),
            wrong,
        }
    }
}

fn since(start: Timestamp, end: Timestamp) -> Duration {
    Duration::try_from(end.duration_since(start)).unwrap_or_default()
}

/// Takes from a task what no two runs have in common: times, revisions and names of instances.
fn forget_times(task: &mut Task) {
    task.revision = 0;
    task.saved_by = None;
    task.reply_to = None;
    task.ended_at = None;
    (task.submitted_at, task.complete_by) = (Timestamp::UNIX_EPOCH, Timestamp::UNIX_EPOCH);
    task.commands.iter_mut().for_each(|command| command.at = Timestamp::UNIX_EPOCH);
}

/// The messages as Lambda hands them over.
fn event(messages: &[Message]) -> SqsEvent {
    let records: Vec<_> = messages
        .iter()
        .map(|message| {
            let attributes = message.attributes.iter().flatten();
            let attributes: BTreeMap<_, _> =
                attributes.map(|(name, value)| (name.as_str(), value)).collect();
            json!({ "messageId": message.message_id, "body": message.body, "attributes": attributes })
        })
        .collect();
    serde_json::from_value(json!({ "Records": records })).unwrap()
}

/// Deletes what the handler did. If that fails, it comes again.
async fn acknowledge(sqs: &Client, queue: &str, messages: &[Message], answer: &SqsBatchResponse) {
    let is_done = |message: &&Message| {
        let failures = &answer.batch_item_failures;
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
    if !entries.is_empty() {
        let request = sqs.delete_message_batch().queue_url(queue).set_entries(Some(entries));
        drop(request.send().await);
    }
}
