//! The functions of two releases side by side on one deployment, as they run while CloudFormation replaces one function after
//! the other.
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
//! `.ci/upgrade-drill` builds the previous release and runs the drills.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use aws_lambda_events::sqs::{SqsBatchResponse, SqsEvent};
use serde_json::{Value, json};
use steward_aws::{AwsPorts, Config};
use steward_core::{definition::workflow::Workflow, model::names::AgentName};
use steward_emulator::{
    embedded::EmbeddedAws, event_source::EventSource, host::publisher, resources,
};
use tokio::{net::TcpListener, task::JoinSet};

use super::function_process::FunctionProcess;

/// Which of the two releases runs the front (submission and agents) and the back (scheduler and supervisor), by phase.
const PHASES: [(Release, Release); 6] = [
    (Release::Previous, Release::Previous),
    (Release::New, Release::Previous),
    (Release::New, Release::New),
    (Release::Previous, Release::Previous),
    (Release::Previous, Release::New),
    (Release::New, Release::New),
];

/// The number of phases.
pub(super) const PHASE_COUNT: usize = PHASES.len();

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
pub(super) struct TwoReleases {
    pub(super) aws: EmbeddedAws,
    pub(super) config: Config,
    pub(super) ports: AwsPorts,
    phase: Arc<AtomicUsize>,
    functions: BTreeMap<String, Arc<Function>>,
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

impl TwoReleases {
    /// Starts the functions, with an agent for each service, and publishes the workflows. The circuit breaker of an agent
    /// opens after so many failures in a row.
    pub(super) async fn start(
        services: BTreeMap<AgentName, String>,
        breaker_failures: u32,
        workflows: &[Workflow],
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let aws = EmbeddedAws::builder().fast_path(true).public_address("127.0.0.1", port);
        let aws = aws.build().unwrap();
        let mut tasks = JoinSet::new();
        let router = aws.router();
        tasks.spawn(async move { axum::serve(listener, router).await.unwrap() });
        let agents: Vec<_> = services.keys().cloned().collect();
        let config = resources::create(&aws, &agents).await.unwrap();
        let ports = AwsPorts::new(&aws.sdk_config(), &config, "client");
        for workflow in workflows {
            publisher(&aws, &config, &ports).publish(workflow).await.unwrap();
        }
        let (phase, functions) = (Arc::default(), BTreeMap::new());
        let mut started = Self { aws, config, ports, phase, functions, tasks };
        let endpoint = format!("http://127.0.0.1:{port}");
        let variables = variables(&started.config, &endpoint, breaker_failures);
        started.start_functions(&variables, services).await;
        started
    }

    /// The releases of this phase handle all invocations from now on.
    pub(super) fn enter(&self, phase: usize) {
        self.phase.store(phase, Ordering::SeqCst);
    }

    /// Each function of each release was invoked, and none failed.
    pub(super) fn check_invocations(&self) {
        for (name, function) in &self.functions {
            let counts = function.counts.lock().unwrap().clone();
            println!("{name}: invocations and errors by release {counts:?}");
            for release in [Release::Previous, Release::New] {
                let (invoked, failed) = counts.get(&release).copied().unwrap_or_default();
                assert!(invoked > 0, "{name} of the {release:?} release was never invoked");
                assert_eq!(failed, 0, "{name} of the {release:?} release failed");
            }
        }
    }

    /// Handles the messages of a queue in the test.
    pub(super) fn receive(
        &mut self,
        queue_url: String,
        handle: impl Fn(&str) + Send + Sync + 'static,
    ) {
        let handler = move |batch: SqsEvent| {
            let bodies = batch.records.iter().map(|message| message.body.as_deref().unwrap());
            bodies.for_each(&handle);
            std::future::ready(SqsBatchResponse::default())
        };
        EventSource { queue_url, concurrency: 1 }.spawn(&self.aws, handler, &mut self.tasks);
    }

    async fn start_functions(
        &mut self,
        variables: &[(String, String)],
        services: BTreeMap<AgentName, String>,
    ) {
        let Config {
            submissions_queue_url,
            events_queue_url,
            scheduler_queue_url,
            commands_queue_url,
            ..
        } = self.config.clone();
        let submission = self.function("submission", "submission", true, variables).await;
        let scheduler = self.function("scheduler", "scheduler", false, variables).await;
        for (url, function) in [
            (submissions_queue_url, &submission),
            (events_queue_url, &submission),
            (scheduler_queue_url, &scheduler),
            (commands_queue_url, &scheduler),
        ] {
            self.poll(url, function);
        }
        for (name, url) in services {
            let mut of_agent = variables.to_vec();
            of_agent.push(("STEWARD_AGENT_NAME".to_owned(), name.to_string()));
            of_agent.push(("STEWARD_AGENT_BASE_URL".to_owned(), url));
            let agent = self.function(&format!("agent {name}"), "agent", true, &of_agent).await;
            let url = self.config.agent_queue_url.of(&name);
            self.poll(url, &agent);
        }
        let supervisor = self.function("supervisor", "supervisor", false, variables).await;
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
}

/// The environment of every function.
fn variables(config: &Config, endpoint: &str, breaker_failures: u32) -> Vec<(String, String)> {
    let agent_queues = config.agent_queue_url.of(&"agent-name".parse().unwrap());
    let agent_queues = agent_queues.replace("agent-name", "{agent}");
    let (shards, breaker_failures) = (config.shards.to_string(), breaker_failures.to_string());
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
        ("STEWARD_AGENT_BREAKER_FAILURES", &breaker_failures),
        ("STEWARD_AGENT_BREAKER_OPEN_FOR", "1s"),
    ];
    variables.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec()
}
