//! A deployment in which the test does everything that happens between the functions: it delivers messages, sweeps, answers
//! callbacks, publishes awaited events, and sends operators' commands.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use steward_agent::Agent;
use steward_aws::ports::SharedInterceptor;
use steward_core::{
    breaker::BreakerSettings,
    intake::BatchWait,
    model::{names::TaskId, task::ProcessState},
    rate::RateLimit,
};
use steward_emulator::{embedded::EmbeddedAws, resources};
use steward_operator::{
    shown_documents::ShownDocuments,
    timeline::{TimelineEntry, timeline},
    view::TaskView,
};
use steward_runtime::{
    agents,
    bulk::BulkCommand,
    intake::report_wait,
    ports::{Clock, Ports, StateStore},
};
use steward_scheduler::SchedulerInstance;
use steward_test_world::service::{FakeService, PlannedServices};

use super::{
    network::{Network, PendingMessage},
    scenario::{self, TASKS},
    service::{DrillService, ServiceMemory},
    tables::{self, Tables},
};
use crate::support::{
    AdapterPorts, TestDeployment, agent_registration, commands_event, scheduler_instance, sqs_event,
};

/// 2100-01-01 in Unix seconds: nothing with such times is expired by the machine's clock.
const START: i64 = 4_102_444_800;

/// The time between two sweeps, in seconds.
const SWEEP_EVERY: i64 = 10;

/// The longest time between two sweeps while nothing happens, in seconds. It saves sweeps during long waits.
const SWEEP_EVERY_MAX: i64 = 320;

/// The queue of the client.
const CLIENT: &str = "client-drill";

/// More steps than a drill takes. A longer one is an endless loop.
const STEPS_MAX: usize = 20_000;

/// A moment of a world.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Moment {
    /// The time in milliseconds since the epoch.
    pub(super) at: i64,
    pub(super) tables: Tables,
    pub(super) messages: Vec<PendingMessage>,
    pub(super) service: ServiceMemory,
}

/// A running deployment.
pub(super) struct World {
    pub(super) deployment: TestDeployment,
    pub(super) network: Network,
    pub(super) service: DrillService,
    ports: AdapterPorts,
    scheduler: SchedulerInstance,
    agent: Agent<FakeService<PlannedServices>>,
    pub(super) dynamodb: aws_sdk_dynamodb::Client,
    /// The time until the next sweep, in seconds.
    idle: i64,
    /// The commands and events that were sent since the last restore.
    sent: BTreeSet<String>,
    /// What must not happen.
    pub(super) problems: Vec<String>,
}

impl World {
    /// A deployment with the workflows of the scenario and without tasks.
    pub(super) async fn new() -> Self {
        Box::pin(Self::start()).await
    }

    async fn start() -> Self {
        let [parent, child] = scenario::workflows();
        assert_eq!((parent.problems(), child.problems()), (vec![], vec![]));
        let aws = EmbeddedAws::in_memory().unwrap();
        let deployment = TestDeployment::with_aws(aws, &parent).await;
        deployment.clock.set(Timestamp::from_second(START).unwrap());
        let sdk = deployment.aws.sdk_config();
        resources::create_queue(&sdk, CLIENT, None).await.unwrap();
        let network = Network::new(deployment.clock.clone());
        let interceptors = vec![SharedInterceptor::new(network.clone())];
        let ports = deployment.ports_with_interceptors("drill", interceptors);
        ports.definitions().publish(&child).await.unwrap();
        let service = DrillService::new();
        let settings =
            BreakerSettings { failures: std::num::NonZeroU32::MIN, ..BreakerSettings::default() };
        let rate = RateLimit::new(1_000.0.try_into().unwrap(), None);
        let agent = Agent::new("a".parse().unwrap(), service.fake.clone(), settings);
        let dynamodb = aws_sdk_dynamodb::Client::new(&sdk);
        let mut world = Self {
            deployment,
            network,
            service,
            ports,
            scheduler: scheduler_instance(""),
            agent: agent.with_rate_limit(Some(rate)),
            dynamodb,
            idle: SWEEP_EVERY,
            sent: BTreeSet::new(),
            problems: Vec::new(),
        };
        world.write_shared_records().await;
        world
    }

    /// A deployment at a moment of another one.
    pub(super) async fn at(moment: &Moment) -> Self {
        let world = Self::new().await;
        world.deployment.clock.set(Timestamp::from_millisecond(moment.at).unwrap());
        for (table, items) in &moment.tables {
            tables::restore_table(&world.dynamodb, table, items).await;
        }
        world.network.set_pending(moment.messages.clone());
        world.service.remember(moment.service.clone());
        world
    }

    /// The records that the tasks alone do not cause.
    async fn write_shared_records(&mut self) {
        let store = self.ports.store();
        agents::register(store, &"a".parse().unwrap(), &agent_registration("a", "drill"))
            .await
            .unwrap();
        let wait = BatchWait { tenant: None, used: 0.5 };
        report_wait(&self.ports, Some(&"slow".parse().unwrap()), &wait).await;
        let bulk = json!({
            "id": "bulk-1", "order": { "command": "undo" }, "by": "ann", "why": "a drill",
            "at": "2100-01-01T00:00:00Z", "found_by": "state=Error", "tasks": ["none"],
        });
        let bulk: BulkCommand = serde_json::from_value(bulk).unwrap();
        assert!(bulk.record(&self.ports).await.unwrap());
        let sqs = aws_sdk_sqs::Client::new(&self.deployment.aws.sdk_config());
        let queue = &self.deployment.config.scheduler_queue_url;
        let letters = format!("{queue}{}", resources::DEAD_LETTERS);
        sqs.send_message().queue_url(letters).message_body("{}").send().await.unwrap();
    }

    /// The whole state.
    pub(super) async fn moment(&self) -> Moment {
        let tables = serde_json::to_value(tables::dump(&self.dynamodb).await).unwrap();
        Moment {
            at: self.now().as_millisecond(),
            tables: serde_json::from_value(self.with_a_stable_instance(&tables)).unwrap(),
            messages: self.network.pending(),
            service: self.service.memory(),
        }
    }

    /// The value with the same name of the instance in every run.
    fn with_a_stable_instance(&self, value: &Value) -> Value {
        let text = value.to_string().replace(self.ports.instance(), "drill-1");
        serde_json::from_str(&text).unwrap()
    }

    pub(super) fn now(&self) -> Timestamp {
        self.deployment.clock.now()
    }

    /// The clients submit all tasks that are not stored: those that were lost, too.
    pub(super) async fn submit_missing(&self) {
        for (id, course) in TASKS {
            if self.task(id).await.is_none() {
                let submission = scenario::submission(id, course).to_string();
                self.network.send(resources::SUBMISSIONS_QUEUE, submission);
            }
        }
    }

    /// A task as stored, if it is.
    pub(super) async fn task(&self, id: &str) -> Option<Value> {
        let id: TaskId = id.parse().unwrap();
        let task = self.ports.store().load(&id).await.unwrap()?;
        Some(serde_json::to_value(task).unwrap())
    }

    /// The states of the scenario's tasks that are stored.
    pub(super) async fn states(&self) -> BTreeMap<String, ProcessState> {
        let mut states = BTreeMap::new();
        for (id, _) in TASKS {
            if let Some(task) = self.task(id).await {
                states.insert(
                    id.to_owned(),
                    serde_json::from_value(task["process_state"].clone()).unwrap(),
                );
            }
        }
        states
    }

    /// What `steward show --json` prints of each task, but its timeline, and `GET /tasks/{id}` returns; and the timelines.
    pub(super) async fn shown(&self) -> Vec<(Value, Vec<TimelineEntry>)> {
        let mut shown = Vec::new();
        for (id, _) in TASKS {
            let id: TaskId = id.parse().unwrap();
            let Some(task) = self.ports.store().load(&id).await.unwrap() else { continue };
            let ranges = ShownDocuments::of(&task, None).ranges;
            let documents = self.ports.store().documents_in(&task, &ranges).await.unwrap();
            let view = TaskView::of(&task).with_reasons(&task, &documents);
            let view = self.with_a_stable_instance(&serde_json::to_value(view).unwrap());
            shown.push((view, timeline(&task, &documents)));
        }
        shown
    }

    /// Why a task is in Error.
    pub(super) async fn error(&self, id: &str) -> String {
        self.task(id).await.map_or(Value::Null, |task| task["error"].clone()).to_string()
    }

    /// Whether the task waits for an operator because the outcome of its step that is not idempotent is unknown.
    pub(super) async fn may_be_unknown(&self, id: &str) -> bool {
        let Some(task) = self.task(id).await else { return false };
        task["process_state"] == "Error" && task["steps"]["once"]["s"] == "f"
    }

    /// Does the next thing: delivers a message, or what people and other systems do, or advances the clock and sweeps.
    /// Returns whether anything happened but a sweep.
    pub(super) async fn step(&mut self) -> bool {
        if let Some(message) = self.network.take() {
            self.idle = SWEEP_EVERY;
            self.deliver(message).await;
            return true;
        }
        if self.act().await {
            return true;
        }
        self.deployment.clock.advance_seconds(self.idle);
        self.idle = (self.idle * 2).min(SWEEP_EVERY_MAX);
        let until = self.now() + jiff::SignedDuration::from_secs(5);
        steward_supervisor::run_once(&self.ports, 0, until).await.unwrap();
        false
    }

    /// Runs until every task has ended or waits for an operator, and no message is left; or for `hours` of its time.
    pub(super) async fn run_to_end(&mut self, hours: i64) {
        let deadline = self.now() + jiff::SignedDuration::from_hours(hours);
        for _ in 0..STEPS_MAX {
            if self.now() > deadline || (!self.step().await && self.is_quiet().await) {
                return;
            }
        }
        panic!("no end after {STEPS_MAX} steps: {:?}", self.states().await);
    }

    /// Whether nothing will happen any more: no task is in progress, and no message waits.
    async fn is_quiet(&self) -> bool {
        let states = self.states().await;
        let is_at_rest =
            |state: &ProcessState| state.has_stopped() || *state == ProcessState::Error;
        states.len() == TASKS.len()
            && states.values().all(is_at_rest)
            && self.network.pending().is_empty()
    }

    /// Whether all tasks have ended, their commands have been carried out, and nothing is left to send.
    pub(super) async fn has_ended(&self) -> bool {
        for (id, course) in TASKS {
            let Some(task) = self.task(id).await else { return false };
            let state: ProcessState =
                serde_json::from_value(task["process_state"].clone()).unwrap();
            if state != course.end() || scenario::command(id, course, &task).is_some() {
                return false;
            }
        }
        true
    }

    /// Side effects that contradict the states of the tasks, or that a key had twice.
    pub(super) async fn wrong_effects(&self) -> Vec<String> {
        self.service.wrong_effects(&self.states().await)
    }

    async fn deliver(&mut self, message: PendingMessage) {
        let queue = message.queue.as_str();
        let event = sqs_event([message.body.clone()], message.failed + 1);
        let response = match queue {
            resources::SUBMISSIONS_QUEUE => {
                let queues = &self.deployment.config.reply_queues;
                steward_submission::handle(&self.ports, queues, event).await
            }
            resources::EVENTS_QUEUE => steward_submission::events::handle(&self.ports, event).await,
            resources::SCHEDULER_QUEUE => {
                steward_scheduler::handle_with(&self.ports, &self.scheduler, event).await
            }
            resources::COMMANDS_QUEUE => {
                let event = commands_event([message.body.clone()], Some("AIDAANN"));
                steward_scheduler::handle_with(&self.ports, &self.scheduler, event).await
            }
            "steward-agent-a" => {
                steward_agent::handle(&self.ports, &self.agent, event, Timestamp::MAX).await
            }
            resources::REJECTED_QUEUE => {
                self.problems.push(format!("a submission was refused: {}", message.body));
                return;
            }
            // Notifications to the client, ticks of the supervisor.
            _ => return,
        };
        if response.batch_item_failures.is_empty() {
            return;
        }
        if message.failed >= 15 {
            self.problems.push(format!("a dead letter in {queue}: {}", message.body));
            return;
        }
        self.network.put_back(message);
    }

    /// What people and other systems do. Returns whether they did anything.
    async fn act(&mut self) -> bool {
        let mut acted = false;
        for token in self.service.take_callbacks() {
            let callback = json!({ "type": "callback", "token": token, "answer": "completed", "output": { "by": "bob" } });
            self.network.send(resources::SCHEDULER_QUEUE, callback.to_string());
            acted = true;
        }
        for (id, course) in TASKS {
            let Some(task) = self.task(id).await else { continue };
            let command = scenario::command(id, course, &task);
            let event = scenario::awaited_event(id, &task);
            let sends = [(resources::COMMANDS_QUEUE, command), (resources::EVENTS_QUEUE, event)];
            for (queue, body) in sends {
                let Some(body) = body.map(|body| body.to_string()) else { continue };
                if self.sent.insert(body.clone()) {
                    self.network.send(queue, body);
                    acted = true;
                }
            }
        }
        acted
    }
}
