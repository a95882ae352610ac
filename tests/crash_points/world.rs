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
//! What a handler did not do, or did not live to acknowledge, comes back as SQS would bring it after
//! the visibility timeout: at once, or when everything else that was under way has arrived.

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
use steward_core::{
    breaker::Settings,
    model::{
        command::Command,
        messages::SchedulerMessage,
        names::{AgentName, TaskId},
        step::StepRecord,
        task::Task,
    },
};
use steward_emulator::resources;
use steward_runtime::ports::{Clock, Ports, Queue};

use super::{
    remote::Remote,
    site::{AGENT_QUEUE, CLIENT_QUEUE, Site, acknowledge, event, receives},
    wire::{Call, Cut, CutAt, Journal, Process, Role, Wire},
};
use crate::support::AdapterPorts;

mod outage;

/// More than any scenario needs; a run that goes on for longer goes round in circles.
const ROUNDS_MAX: usize = 100;

/// What became of a run. Its tasks have the names that the scenario gives them.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) calls: Vec<Call>,
    /// The tasks as they were seen last, without what differs from run to run.
    pub(super) tasks: BTreeMap<String, Value>,
    /// How long it took until the last task ended.
    pub(super) ended_after: Duration,
    /// What clients and operators were told, and when first.
    pub(super) told: BTreeMap<String, Duration>,
    /// How long it took until nothing was left to look after.
    pub(super) settled_after: Duration,
    /// What took effect for each task, in order: the key and the content.
    pub(super) ledgers: BTreeMap<String, Vec<(String, String)>>,
    /// Everything that must not be.
    pub(super) wrong: Vec<String>,
}

/// When a message comes back that was not acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ComesBack {
    /// Before anything that follows from its first delivery.
    AtOnce,
    /// After everything that follows from its first delivery.
    Last,
}

/// A function's process, with clients of its own.
struct Instance {
    ports: AdapterPorts,
    /// Acknowledges, for the process.
    sqs: Client,
    process: Arc<Process>,
}

struct World<'s> {
    site: &'s mut Site,
    /// Whether the functions die alone, or everything dies with them.
    is_killed_whole: bool,
    /// What the names of this run's tasks end in.
    suffix: String,
    started_at: Timestamp,
    journal: Arc<Journal>,
    instances: BTreeMap<Role, Arc<Instance>>,
    remote: Remote,
    told: BTreeMap<String, Duration>,
    has_commanded: bool,
    receives_max: usize,
    /// Batches that come back last, with their queues.
    held_back: Vec<(String, Vec<Message>)>,
    /// The tasks as they were seen last: a task that has ended may be deleted.
    seen: BTreeMap<TaskId, Task>,
    /// Every message that was delivered, with its queue.
    delivered: BTreeSet<(String, String)>,
    /// Everything that must not be.
    wrong: Vec<String>,
}

/// Runs the site's scenario to its end, with these cuts.
pub(super) async fn run(site: &mut Site, cuts: &[CutAt]) -> Run {
    let suffix = site.next_run().await;
    let mut world = World {
        started_at: site.deployment.clock.now(),
        journal: Arc::new(Journal::new(cuts)),
        instances: BTreeMap::new(),
        remote: Remote::new(&site.scenario.manners),
        told: BTreeMap::new(),
        has_commanded: false,
        receives_max: match site.scenario.outage {
            None => cuts.len() + 1,
            // What is about a task that has expired comes back until it is a dead letter.
            Some(_) => usize::MAX,
        },
        held_back: Vec::new(),
        seen: BTreeMap::new(),
        delivered: BTreeSet::new(),
        wrong: Vec::new(),
        is_killed_whole: cuts.iter().any(|at| at.cut == Cut::KillAll),
        site,
        suffix,
    };
    let mut turned = world.turn().await;
    world.observe().await;
    let calls = world.journal.calls();
    if turned.is_ok() && world.site.scenario.outage.is_some() {
        turned = world.pass_months().await;
    }
    world.wrong.extend(turned.err());
    world.close(calls).await
}

impl World<'_> {
    /// Turns the wheels until nothing is left to do.
    async fn turn(&mut self) -> Result<(), String> {
        self.submit().await;
        for _ in 0..ROUNDS_MAX {
            while self.deliver_all().await? {}
            self.hear().await;
            if self.command().await {
                continue;
            }
            let due = self.tasks().await.values().filter_map(|task| task.due).min();
            let Some(due) = due else { return Ok(()) };
            self.sweep(due).await;
        }
        Err("it does not end".to_owned())
    }

    fn elapsed(&self) -> Duration {
        since(self.started_at, self.site.deployment.clock.now())
    }

    fn ids(&self) -> impl Iterator<Item = TaskId> {
        let tasks = self.site.scenario.tasks.iter();
        tasks.map(|task| format!("{task}{}", self.suffix).parse().unwrap())
    }

    /// A text that names tasks, with the names that the scenario gives them.
    fn plain(&self, text: &str) -> String {
        text.replace(&self.suffix, "")
    }

    async fn submit(&self) {
        for task_id in self.ids() {
            let submission = json!({
                "task_id": task_id, "workflow": self.site.scenario.workflow.name,
                "input": { "of": task_id }, "reply_to": self.site.queue(CLIENT_QUEUE),
            });
            self.site.send(resources::SUBMISSIONS_QUEUE, submission.to_string()).await;
        }
    }

    /// The instance of a role; a fresh one if the last has died.
    fn instance(&mut self, role: Role) -> Arc<Instance> {
        let (deployment, journal) = (&self.site.deployment, &self.journal);
        let start = || {
            let process = Arc::new(Process::default());
            let sdk = deployment.aws.sdk_config();
            let sdk = Wire::lay(sdk, role, journal.clone(), process.clone());
            let ports = deployment.ports_with_sdk(&format!("{role:?}").to_lowercase(), &sdk);
            Arc::new(Instance { ports, sqs: Client::new(&sdk), process })
        };
        journal.begin_invocation();
        self.instances.entry(role).or_insert_with(start).clone()
    }

    /// One batch from each queue, or else what was held back; whether there was any.
    async fn deliver_all(&mut self) -> Result<bool, String> {
        let mut any = self.deliver(Role::Submission, resources::SUBMISSIONS_QUEUE).await?;
        any |= self.deliver(Role::Scheduler, resources::SCHEDULER_QUEUE).await?;
        any |= self.deliver(Role::Agent, AGENT_QUEUE).await?;
        if any || self.held_back.is_empty() {
            return Ok(any);
        }
        for (queue, messages) in std::mem::take(&mut self.held_back) {
            self.site.give_back(&queue, &messages).await;
        }
        Ok(true)
    }

    async fn deliver(&mut self, role: Role, queue: &str) -> Result<bool, String> {
        let queue = self.site.queue(queue);
        let messages = self.site.receive(&queue).await;
        if messages.is_empty() {
            return Ok(false);
        }
        self.is_due_back(&queue, &messages)?;
        let bodies = messages.iter().filter_map(|message| message.body.clone());
        self.delivered.extend(bodies.map(|body| (queue.clone(), body)));
        let instance = self.instance(role);
        let work = async {
            let answer = self.handle(role, &instance.ports, event(&messages)).await;
            acknowledge(&instance.sqs, &queue, &messages, &answer).await
        };
        let done = tokio::select! {
            biased;
            () = instance.process.died() => None,
            done = work => Some(done),
        };
        if done.is_none() {
            self.bury(role).await;
        }
        if done != Some(true) {
            match self.site.scenario.comes_back {
                ComesBack::AtOnce => self.site.give_back(&queue, &messages).await,
                ComesBack::Last => self.held_back.push((queue, messages)),
            }
        }
        Ok(true)
    }

    /// A function has died, and everything with it if the whole process was killed.
    async fn bury(&mut self, role: Role) {
        self.instances.remove(&role);
        if self.is_killed_whole {
            self.instances.clear();
            self.site.kill().await;
        }
        if let Some(outage) = self.site.scenario.outage {
            self.pass_outage(outage).await;
        }
    }

    /// A cut may bring a message back once, and nothing else may: so none comes near its queue's
    /// dead letters.
    fn is_due_back(&self, queue: &str, messages: &[Message]) -> Result<(), String> {
        match messages.iter().find(|message| receives(message) > self.receives_max) {
            Some(message) => Err(format!("came back to {queue} uncut: {:?}", message.body())),
            None => Ok(()),
        }
    }

    async fn handle(&self, role: Role, ports: &AdapterPorts, event: SqsEvent) -> SqsBatchResponse {
        let channel = ports.channel();
        match role {
            Role::Submission => {
                let reply_queues = &self.site.deployment.config.reply_queues;
                let handle = |event| steward_submission::handle(ports, reply_queues, event);
                channel.handled(&Queue::Submissions, event, handle).await
            }
            Role::Scheduler => {
                let handle = |event| steward_scheduler::handle(ports, event);
                channel.handled(&Queue::Scheduler, event, handle).await
            }
            Role::Agent => {
                let name: AgentName = "a".parse().unwrap();
                let agent = Agent::new(name.clone(), self.remote.clone(), Settings::default());
                let handle = |event| steward_agent::handle(ports, &agent, event, Timestamp::MAX);
                channel.handled(&Queue::Agent(name), event, handle).await
            }
            Role::Supervisor => unreachable!("no queue is the supervisor's"),
        }
    }

    /// Hears what clients and operators are told.
    async fn hear(&mut self) {
        let now = self.elapsed();
        for queue in [CLIENT_QUEUE, resources::ALERTS_QUEUE] {
            for text in self.site.read(queue).await {
                let (task_id, what) = match text.get("detail") {
                    Some(event) => (&event["data"]["task_id"], &event["metadata"]["event"]),
                    None => (&text["task_id"], &text["status"]),
                };
                let task_id = self.plain(task_id.as_str().unwrap_or("-"));
                // A run before this one shares the deployment, and may have been told late.
                if task_id.contains("-run") {
                    continue;
                }
                let told = format!("{task_id}: {}", what.as_str().unwrap());
                self.told.entry(told).or_insert(now);
            }
        }
    }

    /// Acts for the operator, once every task has ended in an alert; whether there was something to
    /// do.
    async fn command(&mut self) -> bool {
        let Some(order) = &self.site.scenario.operator else { return false };
        let mut tasks = self.site.scenario.tasks.iter();
        let alerted = tasks.all(|task| self.told.contains_key(&format!("{task}: task_in_error")));
        if self.has_commanded || !alerted {
            return false;
        }
        self.remote.mend();
        for task_id in self.ids() {
            let command = SchedulerMessage::Command(Command {
                command_id: "c-1".parse().unwrap(),
                task_id,
                by: "operator".to_owned(),
                why: "mended".to_owned(),
                order: order.clone(),
                issued_at: None,
            });
            let body = serde_json::to_string(&command).unwrap();
            self.site.send(resources::SCHEDULER_QUEUE, body).await;
        }
        self.has_commanded = true;
        true
    }

    async fn tasks(&self) -> BTreeMap<TaskId, Task> {
        let mut tasks = BTreeMap::new();
        let child = self.site.scenario.child.as_ref();
        let children = self.ids().filter_map(|id| format!("{id}{}", child?.id).parse().ok());
        for id in self.ids().chain(children) {
            if let Some(task) = self.site.task(&id).await {
                tasks.insert(id, task);
            }
        }
        tasks
    }

    /// Notes the tasks as they are.
    async fn observe(&mut self) {
        let tasks = self.tasks().await;
        self.seen.extend(tasks);
    }

    /// Moves the clock to `due`, unless it is past it, and lets the supervisor run.
    async fn sweep(&mut self, due: Timestamp) {
        let clock = &self.site.deployment.clock;
        clock.advance_by(due.duration_since(clock.now()).max(SignedDuration::ZERO));
        let instance = self.instance(Role::Supervisor);
        let work = steward_supervisor::sweep(&instance.ports, 0, Timestamp::MAX);
        let died = tokio::select! {
            biased;
            () = instance.process.died() => true,
            _ = work => false,
        };
        if died {
            self.bury(Role::Supervisor).await;
        }
    }

    async fn close(self, calls: Vec<Call>) -> Run {
        let mut wrong = self.wrong.clone();
        let due = self.site.due().await;
        wrong.extend(due.iter().map(|id| format!("task {id} is due still")));
        let mixed_up = self.remote.mixed_up();
        wrong.extend(mixed_up.iter().map(|key| format!("{key} came with two contents")));
        let with_null = self.remote.with_null();
        wrong.extend(with_null.iter().map(|key| format!("{key} came with a null")));
        let tasks = self.seen.clone();
        let ended_at = tasks.values().filter_map(|task| task.ended_at).max();
        let ended_after = ended_at.map_or(Duration::MAX, |at| since(self.started_at, at));
        let tasks = tasks.into_iter().map(|(id, task)| {
            let task = serde_json::to_string(&without_times(task)).unwrap();
            (self.plain(id.as_str()), serde_json::from_str(&self.plain(&task)).unwrap())
        });
        let ledgers = self.remote.ledgers().into_iter().map(|(id, entries)| {
            let plain = |(key, body): &(String, String)| (self.plain(key), self.plain(body));
            (self.plain(id.as_str()), entries.iter().map(plain).collect())
        });
        Run {
            calls,
            tasks: tasks.collect(),
            ended_after,
            settled_after: self.elapsed(),
            ledgers: ledgers.collect(),
            told: self.told.clone(),
            wrong,
        }
    }
}

fn since(start: Timestamp, end: Timestamp) -> Duration {
    Duration::try_from(end.duration_since(start)).unwrap_or_default()
}

/// A task without what no two runs have in common: times, revisions and names of instances.
fn without_times(mut task: Task) -> Task {
    let epoch = Timestamp::UNIX_EPOCH;
    task.commands.iter_mut().for_each(|command| command.at = epoch);
    let records = task.steps.values_mut().flat_map(StepRecord::parts_mut);
    for record in records {
        for progress in std::iter::once(&mut record.run).chain(&mut record.undo) {
            progress.in_progress_until = progress.in_progress_until.map(|_| epoch);
        }
    }
    Task {
        revision: 0,
        saved_by: None,
        ended_at: None,
        submitted_at: epoch,
        incarnation: None,
        complete_by: epoch,
        kept_from: None,
        kept_for_parent: None,
        ..task
    }
}
