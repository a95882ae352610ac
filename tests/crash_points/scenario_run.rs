//! One run of a scenario: the test delivers messages to the real handlers, which use the real SDK clients on the embedded
//! AWS, one batch at a time. The clock advances only when no messages are left.
//!
//! ```text
//! ┌► submissions ─► scheduler ─► agent ─┐ until the queues are empty
//! └─────────────────────────────────────┘
//!    then: the operator's command, or the clock moves to the next due time and the supervisor sweeps
//!    until nothing is due
//! ```
//!
//! Messages that a handler did not process or acknowledge are redelivered, as SQS does after the visibility timeout: either
//! at once, or after all other messages have been delivered.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use aws_lambda_events::sqs::{SqsBatchResponse, SqsEvent};
use aws_sdk_sqs::{Client, types::Message};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use steward_agent::Agent;
use steward_aws::batch::queue_of;
use steward_core::{
    breaker::BreakerSettings,
    limits,
    model::{
        command::Command,
        inline_documents::InlineDocuments,
        items::ItemRecords,
        messages::SchedulerMessage,
        names::{AgentName, Incarnation, TaskId},
        task::Task,
    },
};
use steward_emulator::resources;
use steward_runtime::ports::{Clock, Ports, Queue};
use steward_scheduler::{CommandAuthority, SchedulerInstance};
use tokio::time::{Instant, timeout};

use super::{
    environment::{AGENT_QUEUE, CLIENT_QUEUE, Environment, acknowledge, receives},
    fault_injection::{
        AwsCall, CallLog, FaultAt, FunctionRole, InjectedFault, SimulatedProcess, with_faults,
    },
    scripted_service::ScriptedService,
};
use crate::support::AdapterPorts;

mod outage;

/// How long an invocation may take, by tokio's clock, which is paused: as an agent's. Only calls that hang, and services that do
/// not respond, take time.
const INVOCATION: Duration = Duration::from_secs(118);

/// More rounds than any scenario needs. A longer run is an endless loop.
const ROUNDS_MAX: usize = 100;

/// The result of a run. Task ids are without the run's suffix.
#[derive(Debug)]
pub(super) struct RunResult {
    pub(super) calls: Vec<AwsCall>,
    /// The last known state of the tasks, without values that differ from run to run.
    pub(super) tasks: BTreeMap<String, Value>,
    /// The time until the last task ended.
    pub(super) ended_after: Duration,
    /// The notifications and alerts, with the time of the first of each kind.
    pub(super) published: BTreeMap<String, Duration>,
    /// The time until no task was due any more.
    pub(super) settled_after: Duration,
    /// The effects of each task in order, with idempotency key and body.
    pub(super) ledgers: BTreeMap<String, Vec<(String, String)>>,
    /// The problems that the run detected itself.
    pub(super) problems: Vec<String>,
}

/// When a message is redelivered that was not acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Redelivery {
    /// Before all messages that its first delivery caused.
    Immediate,
    /// After all messages that its first delivery caused.
    Last,
}

/// A function's process with its own clients.
struct RunningFunction {
    ports: AdapterPorts,
    /// The client that acknowledges messages.
    sqs: Client,
    process: Arc<SimulatedProcess>,
}

/// A run in progress.
struct ScenarioRun<'s> {
    environment: &'s mut Environment,
    /// Whether the tables and queues are killed together with a function.
    kills_everything: bool,
    /// The suffix of this run's task ids.
    suffix: String,
    started_at: Timestamp,
    call_log: Arc<CallLog>,
    processes: BTreeMap<FunctionRole, Arc<RunningFunction>>,
    remote: ScriptedService,
    published: BTreeMap<String, Duration>,
    has_commanded: bool,
    receives_max: usize,
    /// Batches to redeliver last, with their queues.
    held_back: Vec<(String, Vec<Message>)>,
    /// The last known state of the tasks. A task that has ended may be deleted.
    last_tasks: BTreeMap<TaskId, Task>,
    /// Every message that was delivered, with its queue.
    delivered: BTreeSet<(String, String)>,
    /// The problems that the run detected itself.
    problems: Vec<String>,
}

/// Runs the scenario of an environment to its end, with these faults.
pub(super) async fn run(environment: &mut Environment, faults: &[FaultAt]) -> RunResult {
    let suffix = environment.next_run().await;
    let mut run = ScenarioRun {
        started_at: environment.deployment.clock.now(),
        call_log: Arc::new(CallLog::new(faults)),
        processes: BTreeMap::new(),
        remote: ScriptedService::new(&environment.scenario.behaviors),
        published: BTreeMap::new(),
        has_commanded: false,
        receives_max: match environment.scenario.outage {
            None => faults.len() + 1,
            // A message for an expired task is redelivered until it is a dead letter.
            Some(_) => usize::MAX,
        },
        held_back: Vec::new(),
        last_tasks: BTreeMap::new(),
        delivered: BTreeSet::new(),
        problems: Vec::new(),
        kills_everything: faults.iter().any(|at| at.fault == InjectedFault::KillAll),
        environment,
        suffix,
    };
    let mut result = run.run_to_end().await;
    run.record_tasks().await;
    let calls = run.call_log.calls();
    if result.is_ok() && run.environment.scenario.outage.is_some() {
        result = run.pass_months().await;
    }
    run.problems.extend(result.err());
    run.close(calls).await
}

impl ScenarioRun<'_> {
    /// Delivers messages, sends the operator's command and sweeps until nothing is left to do.
    async fn run_to_end(&mut self) -> Result<(), String> {
        self.submit().await;
        for _ in 0..ROUNDS_MAX {
            while self.deliver_all().await? {}
            self.collect_published().await;
            if self.command().await {
                continue;
            }
            let due = self.tasks().await.values().filter_map(|task| task.due).min();
            let Some(due) = due else { return Ok(()) };
            self.sweep(due).await;
        }
        Err("the run does not end".to_owned())
    }

    fn elapsed(&self) -> Duration {
        since(self.started_at, self.environment.deployment.clock.now())
    }

    fn ids(&self) -> impl Iterator<Item = TaskId> {
        let tasks = self.environment.scenario.tasks.iter();
        tasks.map(|task| format!("{task}{}", self.suffix).parse().unwrap())
    }

    /// Removes the run's suffix from the task ids in a text.
    fn without_suffix(&self, text: &str) -> String {
        text.replace(&self.suffix, "")
    }

    async fn submit(&self) {
        let scenario = &self.environment.scenario;
        let note_bytes =
            if scenario.large_documents { limits::INLINE_DOCUMENTS_BYTES_MAX } else { 0 };
        let note = "x".repeat(note_bytes);
        for task_id in self.ids() {
            let submission = json!({
                "task_id": task_id, "workflow": scenario.workflow.name,
                "input": { "of": task_id, "note": note },
                "reply_to": self.environment.queue(CLIENT_QUEUE),
            });
            self.environment.send(resources::SUBMISSIONS_QUEUE, submission.to_string()).await;
        }
    }

    /// The process of a role, or a new one if the last has died.
    fn process_of(&mut self, role: FunctionRole) -> Arc<RunningFunction> {
        let (deployment, call_log) = (&self.environment.deployment, &self.call_log);
        let start = || {
            let process = Arc::new(SimulatedProcess::default());
            let sdk = deployment.aws.sdk_config();
            let sdk = with_faults(&sdk, role, call_log.clone(), process.clone());
            let ports = deployment.ports_with_sdk(&format!("{role:?}").to_lowercase(), &sdk);
            Arc::new(RunningFunction { ports, sqs: Client::new(&sdk), process })
        };
        call_log.begin_invocation();
        self.processes.entry(role).or_insert_with(start).clone()
    }

    /// Delivers one batch from each queue, or else the held-back batches. Returns whether there was any.
    async fn deliver_all(&mut self) -> Result<bool, String> {
        let mut found =
            self.deliver(FunctionRole::Submission, resources::SUBMISSIONS_QUEUE).await?;
        found |= self.deliver(FunctionRole::Scheduler, resources::SCHEDULER_QUEUE).await?;
        found |= self.deliver(FunctionRole::Scheduler, resources::COMMANDS_QUEUE).await?;
        found |= self.deliver(FunctionRole::Agent, AGENT_QUEUE).await?;
        if found || self.held_back.is_empty() {
            return Ok(found);
        }
        for (queue, messages) in std::mem::take(&mut self.held_back) {
            self.environment.make_visible(&queue, &messages).await;
        }
        Ok(true)
    }

    async fn deliver(&mut self, role: FunctionRole, queue: &str) -> Result<bool, String> {
        let queue = self.environment.queue(queue);
        let messages = self.environment.receive(&queue).await;
        if messages.is_empty() {
            return Ok(false);
        }
        self.check_redelivery(&queue, &messages)?;
        let bodies = messages.iter().filter_map(|message| message.body.clone());
        self.delivered.extend(bodies.map(|body| (queue.clone(), body)));
        let process_of = self.process_of(role);
        let work = async {
            let answer = self
                .handle(role, &process_of.ports, self.environment.event(&queue, &messages))
                .await;
            let acknowledging = acknowledge(&process_of.sqs, &queue, &messages, &answer);
            timeout(INVOCATION, acknowledging).await.unwrap_or_default()
        };
        let done = tokio::select! {
            biased;
            () = process_of.process.died() => None,
            done = work => Some(done),
        };
        if done.is_none() {
            self.remove_dead(role).await;
        }
        if done != Some(true) {
            match self.environment.scenario.redelivery {
                Redelivery::Immediate => self.environment.make_visible(&queue, &messages).await,
                Redelivery::Last => self.held_back.push((queue, messages)),
            }
        }
        Ok(true)
    }

    /// Removes a dead function's process. Kills everything, or starts the outage, if the scenario requires it.
    async fn remove_dead(&mut self, role: FunctionRole) {
        self.processes.remove(&role);
        if self.kills_everything {
            self.processes.clear();
            self.environment.kill().await;
        }
        if let Some(outage) = self.environment.scenario.outage {
            self.pass_outage(outage).await;
        }
    }

    /// Each fault may cause one redelivery of a message. Checks that there are no other redeliveries, so that no message can
    /// become a dead letter.
    fn check_redelivery(&self, queue: &str, messages: &[Message]) -> Result<(), String> {
        match messages.iter().find(|message| receives(message) > self.receives_max) {
            Some(message) => {
                Err(format!("redelivered on {queue} without a fault: {:?}", message.body()))
            }
            None => Ok(()),
        }
    }

    async fn handle(
        &self,
        role: FunctionRole,
        ports: &AdapterPorts,
        event: SqsEvent,
    ) -> SqsBatchResponse {
        let (channel, stop) = (ports.channel(), Instant::now() + INVOCATION);
        match role {
            FunctionRole::Submission => {
                let reply_queues = &self.environment.deployment.config.reply_queues;
                let handle = |batch| steward_submission::handle(ports, reply_queues, batch);
                channel.process_batch(&Queue::Submissions, event, stop, handle).await
            }
            FunctionRole::Scheduler => {
                let commands = CommandAuthority::of(&self.environment.deployment.config);
                let is_command =
                    commands.is_commands_queue(event.records.first().and_then(queue_of));
                let queue = if is_command { Queue::Commands } else { Queue::Scheduler };
                let instance = SchedulerInstance { commands, ..SchedulerInstance::default() };
                let handle = |batch| steward_scheduler::handle_with(ports, &instance, batch);
                channel.process_batch(&queue, event, stop, handle).await
            }
            FunctionRole::Agent => {
                let name: AgentName = "a".parse().unwrap();
                let service = self.remote.service.clone();
                let agent = Agent::new(name.clone(), service, BreakerSettings::default());
                let handle = |batch| steward_agent::handle(ports, &agent, batch, Timestamp::MAX);
                channel.process_batch(&Queue::Agent(name), event, stop, handle).await
            }
            FunctionRole::Supervisor => unreachable!("the supervisor consumes no queue"),
        }
    }

    /// Reads the notifications to clients and the alerts.
    async fn collect_published(&mut self) {
        let now = self.elapsed();
        for queue in [CLIENT_QUEUE, resources::ALERTS_QUEUE] {
            for text in self.environment.read(queue).await {
                let (task_id, what) = match text.get("detail") {
                    Some(event) => (&event["data"]["task_id"], &event["metadata"]["event"]),
                    None => (&text["task_id"], &text["status"]),
                };
                let task_id = self.without_suffix(task_id.as_str().unwrap_or("-"));
                // Messages of an earlier run in the same environment may arrive late.
                if task_id.contains("-run") {
                    continue;
                }
                let event = format!("{task_id}: {}", what.as_str().unwrap());
                self.published.entry(event).or_insert(now);
            }
        }
    }

    /// Repairs the service and sends the operator's command when every task has an alert. Returns whether there was a command
    /// to send.
    async fn command(&mut self) -> bool {
        let Some(action) = &self.environment.scenario.operator else { return false };
        let mut tasks = self.environment.scenario.tasks.iter();
        let alerted =
            tasks.all(|task| self.published.contains_key(&format!("{task}: task_in_error")));
        if self.has_commanded || !alerted {
            return false;
        }
        self.remote.repair();
        for task_id in self.ids() {
            let command = SchedulerMessage::Command(Command {
                command_id: "c-1".parse().unwrap(),
                task_id,
                by: "operator".to_owned(),
                why: "repaired".to_owned(),
                action: action.clone(),
                issued_at: self.environment.deployment.clock.now(),
            });
            let body = serde_json::to_string(&command).unwrap();
            self.environment.send(resources::COMMANDS_QUEUE, body).await;
        }
        self.has_commanded = true;
        true
    }

    async fn tasks(&self) -> BTreeMap<TaskId, Task> {
        let mut tasks = BTreeMap::new();
        let child = self.environment.scenario.child.as_ref();
        let children = self.ids().filter_map(|id| format!("{id}{}", child?.id).parse().ok());
        for id in self.ids().chain(children) {
            if let Some(task) = self.environment.task(&id).await {
                tasks.insert(id, task);
            }
        }
        tasks
    }

    /// Records the state of the tasks.
    async fn record_tasks(&mut self) {
        let tasks = self.tasks().await;
        self.last_tasks.extend(tasks);
    }

    /// Advances the clock to `due`, unless that is in the past, and runs the supervisor.
    async fn sweep(&mut self, due: Timestamp) {
        let clock = &self.environment.deployment.clock;
        clock.advance_by(due.duration_since(clock.now()).max(SignedDuration::ZERO));
        let process_of = self.process_of(FunctionRole::Supervisor);
        let work = steward_supervisor::sweep(&process_of.ports, 0, Timestamp::MAX);
        let work = timeout(INVOCATION, work);
        let died = tokio::select! {
            biased;
            () = process_of.process.died() => true,
            _ = work => false,
        };
        if died {
            self.remove_dead(FunctionRole::Supervisor).await;
        }
    }

    async fn close(self, calls: Vec<AwsCall>) -> RunResult {
        let mut problems = self.problems.clone();
        let due = self.environment.due().await;
        problems.extend(due.iter().map(|id| format!("task {id} is still due")));
        let conflicting = self.remote.service.ledger().conflicting_keys.clone();
        problems.extend(
            conflicting.iter().map(|key| format!("{key} was sent with two different bodies")),
        );
        let with_null = self.remote.with_null();
        problems.extend(with_null.iter().map(|key| format!("{key} was sent with a null")));
        let tasks = self.last_tasks.clone();
        let ended_at = tasks.values().filter_map(|task| task.ended_at).max();
        let ended_after = ended_at.map_or(Duration::MAX, |at| since(self.started_at, at));
        let tasks = tasks.into_iter().map(|(id, task)| {
            let task = serde_json::to_string(&without_times(task)).unwrap();
            (
                self.without_suffix(id.as_str()),
                serde_json::from_str(&self.without_suffix(&task)).unwrap(),
            )
        });
        let ledgers = self.remote.ledgers().into_iter().map(|(id, entries)| {
            let entry = |(key, body): &(String, String)| {
                (self.without_suffix(key), self.without_suffix(body))
            };
            (self.without_suffix(id.as_str()), entries.iter().map(entry).collect())
        });
        RunResult {
            calls,
            tasks: tasks.collect(),
            ended_after,
            settled_after: self.elapsed(),
            ledgers: ledgers.collect(),
            published: self.published.clone(),
            problems,
        }
    }
}

fn since(start: Timestamp, end: Timestamp) -> Duration {
    Duration::try_from(end.duration_since(start)).unwrap_or_default()
}

/// A task without values that differ from run to run: times, revisions, names of instances.
fn without_times(mut task: Task) -> Task {
    let epoch = Timestamp::UNIX_EPOCH;
    task.commands.iter_mut().for_each(|command| command.at = epoch);
    for record in task.steps.values_mut() {
        let items = record.items.iter_mut().flat_map(ItemRecords::spans_mut);
        let items = items.flat_map(|item| std::iter::once(&mut item.forward).chain(&mut item.undo));
        let own = std::iter::once(&mut record.forward).chain(&mut record.undo);
        for progress in own.chain(items) {
            progress.call_may_run_until = progress.call_may_run_until.map(|_| epoch);
        }
    }
    Task {
        // Which documents fit into the item depends on their order.
        documents: InlineDocuments::default(),
        revision: 0,
        saved_by: None,
        ended_at: None,
        submitted_at: epoch,
        incarnation: Incarnation::recorded_at(epoch),
        complete_by: epoch,
        retention_start: epoch,
        retention_for_parent: None,
        rerun: None,
        ..task
    }
}
