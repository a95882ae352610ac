//! Upgrade drill: the binaries of two releases run side by side on one deployment, as they do while CloudFormation replaces
//! one function after the other.
//!
//! | phase | submission, agents | scheduler, supervisor |
//! | --- | --- | --- |
//! | 1 | previous | previous |
//! | 2 | new | previous |
//! | 3 | new | new |
//! | 4, rolled back | previous | previous |
//! | 5, halves the other way round | previous | new |
//! | 6 | new | new |
//!
//! In each phase tasks are submitted, and the next phase begins while they are in flight. The services misbehave as in
//! `steward demo --chaos`. In the end the demo's audit decides. `.ci/upgrade-drill` builds the previous release and runs this.

#![expect(clippy::print_stdout, reason = "it takes minutes and prints what it counted")]

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use aws_lambda_events::sqs::{SqsBatchResponse, SqsEvent};
use serde_json::{Value, json};
use steward_aws::{AwsPorts, Config};
use steward_core::{definition::workflow::Workflow, model::names::AgentName};
use steward_demo::{
    audit::Audit,
    example_workflow::ExampleWorkflow,
    scenario::Scenario,
    services::{FaultPlan, MockServices},
};
use steward_emulator::{
    embedded::EmbeddedAws, event_source::EventSource, host::publisher, resources,
};
use steward_runtime::ports::{Ports, StateStore};
use tokio::{net::TcpListener, task::JoinSet};

use super::function_process::FunctionProcess;

/// Tasks that are submitted in each phase.
const TASKS_PER_PHASE: usize = 12;

/// How many tasks of a phase have ended when the next one begins. The others are in flight.
const ENDED_PER_PHASE: usize = 4;

/// How long the drill waits for the ends of all tasks.
const TIMEOUT: Duration = Duration::from_secs(400);

/// Which of the two releases runs the front (submission and agents) and the back (scheduler and supervisor), by phase.
const PHASES: [(Release, Release); 6] = [
    (Release::Previous, Release::Previous),
    (Release::New, Release::Previous),
    (Release::New, Release::New),
    (Release::Previous, Release::Previous),
    (Release::Previous, Release::New),
    (Release::New, Release::New),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Release {
    Previous,
    New,
}

/// A function in both releases.
struct Function {
    releases: BTreeMap<Release, FunctionProcess>,
    is_front: bool,
    phase: Arc<AtomicUsize>,
    /// Invocations by release, and errors of invocations.
    counts: Mutex<BTreeMap<Release, (u64, u64)>>,
}

impl Function {
    async fn invoke(&self, event: Value) -> Result<Value, String> {
        let (front, back) = PHASES[self.phase.load(Ordering::SeqCst)];
        let release = if self.is_front { front } else { back };
        let result = self.releases[&release].invoke(event).await;
        let mut counts = self.counts.lock().unwrap();
        let (invoked, failed) = counts.entry(release).or_default();
        *invoked += 1;
        *failed += u64::from(result.is_err());
        result
    }

    /// Handles a batch as Lambda does: after an error, all of its messages return to the queue.
    async fn handle(&self, batch: SqsEvent) -> SqsBatchResponse {
        let all = || {
            let failures =
                batch.records.iter().map(|message| json!({ "itemIdentifier": message.message_id }));
            json!({ "batchItemFailures": failures.collect::<Vec<_>>() })
        };
        let event = serde_json::to_value(&batch).unwrap();
        let response = self.invoke(event).await.unwrap_or_else(|_| all());
        serde_json::from_value(response).unwrap()
    }
}

/// The deployment with all functions in both releases.
struct Drill {
    scenario: &'static dyn Scenario,
    aws: EmbeddedAws,
    config: Config,
    ports: AwsPorts,
    services: MockServices,
    phase: Arc<AtomicUsize>,
    functions: BTreeMap<String, Arc<Function>>,
    alerted: Arc<Mutex<BTreeSet<String>>>,
    tasks: JoinSet<()>,
}

/// The folders of the binaries of both releases.
fn binaries() -> [(Release, PathBuf); 2] {
    let own = std::env::current_exe().unwrap();
    // target/debug/deps/steward-HASH
    let built = own.parent().and_then(Path::parent).unwrap().to_owned();
    let previous = std::env::var_os("STEWARD_PREVIOUS_FUNCTIONS").map(PathBuf::from);
    [(Release::Previous, previous.unwrap_or_else(|| built.clone())), (Release::New, built)]
}

/// The definition that the previous release shipped: definitions are upgraded last, because an old function cannot read a
/// new key.
fn workflow(scenario: &dyn Scenario) -> Workflow {
    match std::env::var_os("STEWARD_PREVIOUS_WORKFLOWS").map(PathBuf::from) {
        Some(folder) => {
            let file = folder.join(format!("{}.yaml", scenario.name()));
            steward_definition_file::read_file(&file).unwrap()
        }
        None => scenario.workflow().unwrap(),
    }
}

impl Drill {
    async fn start(scenario: &'static dyn Scenario) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let aws = EmbeddedAws::builder().fast_path(true).public_address("127.0.0.1", port);
        let aws = aws.build().unwrap();
        let mut tasks = JoinSet::new();
        let router = aws.router();
        tasks.spawn(async move { axum::serve(listener, router).await.unwrap() });
        let services =
            MockServices::start(scenario.services(), FaultPlan::chaos(11)).await.unwrap();
        let agents: Vec<AgentName> =
            scenario.services().iter().map(|service| service.name().parse().unwrap()).collect();
        let config = resources::create(&aws, &agents).await.unwrap();
        let ports = AwsPorts::new(&aws.sdk_config(), &config, "client");
        publisher(&aws, &config, &ports).publish(&workflow(scenario)).await.unwrap();
        let mut drill = Self {
            scenario,
            aws,
            config,
            ports,
            services,
            phase: Arc::default(),
            functions: BTreeMap::new(),
            alerted: Arc::default(),
            tasks,
        };
        drill.start_functions(&format!("http://127.0.0.1:{port}")).await;
        drill.collect_alerts();
        drill
    }

    async fn start_functions(&mut self, endpoint: &str) {
        let Config {
            submissions_queue_url,
            events_queue_url,
            scheduler_queue_url,
            commands_queue_url,
            ..
        } = self.config.clone();
        let variables = variables(&self.config, endpoint);
        let submission = self.function("submission", "submission", true, &variables).await;
        let scheduler = self.function("scheduler", "scheduler", false, &variables).await;
        for (url, function) in [
            (submissions_queue_url, &submission),
            (events_queue_url, &submission),
            (scheduler_queue_url, &scheduler),
            (commands_queue_url, &scheduler),
        ] {
            self.poll(url, function);
        }
        for service in self.scenario.services() {
            let name: AgentName = service.name().parse().unwrap();
            let mut of_agent = variables.clone();
            of_agent.push(("STEWARD_AGENT_NAME".to_owned(), name.to_string()));
            of_agent.push(("STEWARD_AGENT_BASE_URL".to_owned(), self.services.base_url(*service)));
            let agent = self.function(&format!("agent {name}"), "agent", true, &of_agent).await;
            let url = self.config.agent_queue_url.of(&name);
            self.poll(url, &agent);
        }
        let supervisor = self.function("supervisor", "supervisor", false, &variables).await;
        self.tasks.spawn(async move {
            let mut triggers = tokio::time::interval(Duration::from_secs(1));
            loop {
                triggers.tick().await;
                // Errors are counted; the next run makes up for them.
                drop(supervisor.invoke(json!({ "source": "aws.scheduler" })).await);
            }
        });
    }

    async fn function(
        &mut self,
        name: &str,
        binary: &str,
        is_front: bool,
        variables: &[(String, String)],
    ) -> Arc<Function> {
        let mut releases = BTreeMap::new();
        for (release, folder) in binaries() {
            releases.insert(release, FunctionProcess::start(&folder.join(binary), variables).await);
        }
        let (phase, counts) = (self.phase.clone(), Mutex::default());
        let function = Arc::new(Function { releases, is_front, phase, counts });
        self.functions.insert(name.to_owned(), function.clone());
        function
    }

    fn poll(&mut self, queue_url: String, function: &Arc<Function>) {
        let function = function.clone();
        let handler = move |batch| {
            let function = function.clone();
            async move { function.handle(batch).await }
        };
        EventSource { queue_url, concurrency: 2 }.spawn(&self.aws, handler, &mut self.tasks);
    }

    fn collect_alerts(&mut self) {
        let alerted = self.alerted.clone();
        let url = &self.config.scheduler_queue_url;
        let queue_url = url.replace(resources::SCHEDULER_QUEUE, resources::ALERTS_QUEUE);
        let handler = move |batch: SqsEvent| {
            for message in &batch.records {
                let event: Value = serde_json::from_str(message.body.as_deref().unwrap()).unwrap();
                let detail = &event["detail"];
                let name = detail["metadata"]["event"].as_str().unwrap_or_default();
                if matches!(name, "task_in_error" | "undo_failed") {
                    let id = detail["data"]["task_id"].as_str().unwrap_or_default();
                    alerted.lock().unwrap().insert(id.to_owned());
                }
            }
            std::future::ready(SqsBatchResponse::default())
        };
        EventSource { queue_url, concurrency: 1 }.spawn(&self.aws, handler, &mut self.tasks);
    }

    async fn submit(&self, numbers: std::ops::Range<usize>) {
        let sqs = aws_sdk_sqs::Client::new(&self.aws.sdk_config());
        for number in numbers {
            let submission = json!({
                "task_id": self.scenario.task_id(number), "workflow": self.scenario.name(),
                "input": self.scenario.input(number),
            });
            let send = sqs.send_message().queue_url(&self.config.submissions_queue_url);
            send.message_body(submission.to_string()).send().await.unwrap();
        }
    }

    /// The tasks below this number that have ended.
    async fn ended(&self, count: usize) -> usize {
        let mut ended = 0;
        for number in 0..count {
            let id = self.scenario.task_id(number).parse().unwrap();
            let task = self.ports.store().load(&id).await.unwrap();
            ended += usize::from(
                task.is_some_and(|task| task.ended_at.is_some() || task.error.is_some()),
            );
        }
        ended
    }

    async fn wait_for_ends(&self, wanted: usize, submitted: usize) {
        let started = Instant::now();
        while self.ended(submitted).await < wanted {
            assert!(
                started.elapsed() < TIMEOUT,
                "{} of {submitted} tasks ended",
                self.ended(submitted).await
            );
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Waits until the alert about a task has come from the bus. The audit finds it if it does not.
    async fn wait_for_alert(&self, task: &str) {
        let started = Instant::now();
        while !self.alerted.lock().unwrap().contains(task) && started.elapsed() < TIMEOUT {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    async fn audit(&self, submitted: usize) -> Audit {
        let mut audit = Audit::of(self.scenario);
        let ledgers = self.services.ledgers();
        for number in 0..submitted {
            let name = self.scenario.task_id(number);
            let task = self.ports.store().load(&name.parse().unwrap()).await.unwrap();
            if task.as_ref().is_some_and(|task| task.error.is_some()) {
                self.wait_for_alert(&name).await;
            }
            let alerted = self.alerted.lock().unwrap().clone();
            audit.check(number, task.as_ref(), &ledgers, &alerted);
        }
        audit.check_unknown_subjects(submitted, &ledgers);
        audit
    }
}

/// The environment of every function.
fn variables(config: &Config, endpoint: &str) -> Vec<(String, String)> {
    let agent_queues = config.agent_queue_url.of(&"agent-name".parse().unwrap());
    let agent_queues = agent_queues.replace("agent-name", "{agent}");
    let shards = config.shards.to_string();
    let variables = [
        ("AWS_REGION", "us-east-1"),
        ("AWS_ACCESS_KEY_ID", "test"),
        ("AWS_SECRET_ACCESS_KEY", "test"),
        ("AWS_LAMBDA_FUNCTION_NAME", "drill"),
        ("AWS_LAMBDA_FUNCTION_VERSION", "1"),
        ("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "256"),
        ("AWS_ENDPOINT_URL", endpoint),
        ("STEWARD_TASKS_TABLE", &config.tasks_table),
        ("STEWARD_DOCUMENTS_TABLE", &config.documents_table),
        ("STEWARD_WORKFLOWS_TABLE", &config.workflows_table),
        ("STEWARD_SUBMISSIONS_QUEUE_URL", &config.submissions_queue_url),
        ("STEWARD_SCHEDULER_QUEUE_URL", &config.scheduler_queue_url),
        ("STEWARD_COMMANDS_QUEUE_URL", &config.commands_queue_url),
        ("STEWARD_EVENTS_QUEUE_URL", &config.events_queue_url),
        ("STEWARD_REJECTED_QUEUE_URL", &config.rejected_queue_url),
        ("STEWARD_SWEEPS_QUEUE_URL", &config.sweeps_queue_url),
        ("STEWARD_AGENT_QUEUE_URL", &agent_queues),
        ("STEWARD_EVENT_BUS", &config.event_bus),
        ("STEWARD_SHARDS", &shards),
        ("STEWARD_CLOCK_SKEW", "0s"),
        ("STEWARD_PICKUP_WITHIN", "10s"),
        ("STEWARD_SWEEP_EVERY", "10s"),
        ("STEWARD_AGENT_BREAKER_OPEN_FOR", "1s"),
    ];
    variables.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec()
}

async fn drill(workflow: ExampleWorkflow) {
    let drill = Drill::start(workflow.scenario()).await;
    let mut submitted = 0;
    for phase in 0..PHASES.len() {
        drill.phase.store(phase, Ordering::SeqCst);
        drill.submit(submitted..submitted + TASKS_PER_PHASE).await;
        let before = drill.ended(submitted).await;
        submitted += TASKS_PER_PHASE;
        drill.wait_for_ends(before + ENDED_PER_PHASE, submitted).await;
    }
    drill.wait_for_ends(submitted, submitted).await;
    let audit = drill.audit(submitted).await;
    for (name, function) in &drill.functions {
        let counts = function.counts.lock().unwrap().clone();
        println!("{name}: invocations and errors by release {counts:?}");
        for release in [Release::Previous, Release::New] {
            let (invoked, failed) = counts.get(&release).copied().unwrap_or_default();
            assert!(invoked > 0, "{name} of the {release:?} release was never invoked");
            assert_eq!(failed, 0, "{name} of the {release:?} release failed");
        }
    }
    println!("{:?}", audit.by_state);
    assert_eq!(audit.findings, [""; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the binaries of two releases: .ci/upgrade-drill"]
async fn orders_survive_an_upgrade_by_halves_and_a_rollback() {
    Box::pin(drill(ExampleWorkflow::from_name("order").unwrap())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the binaries of two releases: .ci/upgrade-drill"]
async fn drone_deliveries_survive_an_upgrade_by_halves_and_a_rollback() {
    Box::pin(drill(ExampleWorkflow::from_name("drone-delivery").unwrap())).await;
}
