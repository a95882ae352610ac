//! The whole function set in one process: the real handlers, through the real SDK clients, against
//! the embedded AWS, with what Lambda would run between queues and functions.
//!
//! ```text
//! submissions ──► submission ─┐             ┌─► agent inventory ──► http://…
//!                             ├─► scheduler ┼─► agent payment   ──► http://…
//! every few seconds ► supervisor ┘          └─► agent shipping  ──► http://…
//! ```

use std::{
    net::SocketAddr,
    num::NonZeroU32,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use aws_smithy_runtime_api::client::interceptors::SharedInterceptor;
use axum::{
    extract::Request,
    middleware::{Next, from_fn},
};
use jiff::Timestamp;
use steward_agent::{
    Agent,
    http::{BaseUrl, Headers, HttpService},
};
use steward_aws::{AwsPorts, Config, publisher::Publisher, rules::TriggerRules};
use steward_console::{Console, access::Caller};
use steward_core::{
    breaker::Settings,
    definition::workflow::Workflow,
    limits,
    model::{names::AgentName, time::later},
};
use steward_runtime::ports::{Clock, Ports, Queue};
use tokio::{net::TcpListener, task::JoinSet};

use crate::{
    cpu::{Account, charged},
    embedded::{EmbeddedAws, EmbeddedAwsBuilder, EmbeddedError, Endpoints, Service},
    event_source::EventSource,
    resources,
};

/// Batches of submissions in hand at once, and of wakes and replies.
const CONCURRENCY: usize = 8;

/// Batches of one agent in hand at once. A batch is in hand until its slowest call is done, so
/// there are more: calls that take a minute must not hold up those that take a moment.
const AGENT_CONCURRENCY: usize = 256;

/// How long an invocation may take.
const INVOCATION: Duration = Duration::from_secs(120);

/// How often expired items are swept, as DynamoDB does by itself.
const EXPIRY_EVERY: Duration = Duration::from_secs(60);

/// How long one call to a remote service may take, as the agent's default is.
const CALL_TIMEOUT: Duration = limits::CALL_WITHIN_MAX;

/// How long an agent's circuit breaker stays open at first: short, for whoever watches is waiting.
const BREAKER_OPEN_FOR: Duration = Duration::from_secs(1);

/// How long a data directory that is in use is waited for: a process that was stopped may need a moment to
/// end, and so do the tasks of a host that was dropped.
const IN_USE_PATIENCE: Duration = Duration::from_secs(2);

/// How often it is tried.
const IN_USE_PAUSE: Duration = Duration::from_millis(10);

/// What to host.
#[derive(Debug)]
pub struct HostOptions {
    /// Where state is kept; in memory without it.
    pub data: Option<PathBuf>,
    /// Where to serve the AWS-compatible endpoint, `POST /tasks` and the console; nowhere without it.
    pub listen: Option<SocketAddr>,
    /// Services that are served elsewhere instead of in this process.
    pub external: Option<Endpoints>,
    /// Definitions to publish at the start.
    pub workflows: Vec<Workflow>,
    /// An HTTP agent for each logical agent, with its remote service's base URL.
    pub agents: Vec<(AgentName, BaseUrl)>,
    /// How often the supervisor runs; never without it.
    pub supervise_every: Option<Duration>,
    /// Instances of each function, and of each agent; one unless said.
    pub instances: NonZeroU32,
    /// Watch every AWS call of the functions, and of no one else.
    pub interceptors: Vec<SharedInterceptor>,
}

impl Default for HostOptions {
    fn default() -> Self {
        Self {
            data: None,
            listen: None,
            external: None,
            workflows: Vec::new(),
            agents: Vec::new(),
            supervise_every: None,
            instances: NonZeroU32::MIN,
            interceptors: Vec::new(),
        }
    }
}

/// A running function set. Dropping it stops everything at once, as a crash would: nothing that was
/// recorded is lost.
pub struct Host {
    /// The services behind it.
    pub aws: EmbeddedAws,
    /// The names of its tables and queues.
    pub config: Config,
    /// Its ports, as a client or a console sees them.
    pub ports: Arc<AwsPorts>,
    /// Where it listens, if it does.
    pub address: Option<SocketAddr>,
    instances: Vec<Instance>,
    interceptors: Vec<SharedInterceptor>,
    tasks: JoinSet<()>,
}

/// One running instance of a function, and how to start another like it.
struct Instance {
    role: String,
    start: Box<dyn Fn() -> JoinSet<()> + Send + Sync>,
    /// Dropping them ends it where it stands.
    running: Mutex<JoinSet<()>>,
}

impl Host {
    /// Starts everything.
    ///
    /// # Errors
    /// The data directory or the address cannot be used; a definition cannot be published.
    pub async fn start(options: HostOptions) -> Result<Self> {
        let listener = match options.listen {
            Some(address) => Some(
                TcpListener::bind(address).await.with_context(|| format!("listen on {address}"))?,
            ),
            None => None,
        };
        let address = listener.as_ref().map(TcpListener::local_addr).transpose()?;
        let mut builder = EmbeddedAws::builder();
        if let Some(dir) = &options.data {
            builder = builder.data_dir(dir);
        }
        if let Some(address) = address {
            builder = builder.public_address(address.ip().to_string(), address.port());
        }
        if let Some(endpoints) = &options.external {
            builder = builder.external(endpoints.clone());
        }
        let aws = open(builder).await?;
        let names: Vec<_> = options.agents.iter().map(|(name, _)| name.clone()).collect();
        let config = resources::create(&aws, &names).await.with_context(|| {
            let elsewhere = options.external.as_ref().map(Endpoints::to_string);
            let place = elsewhere.as_deref().unwrap_or("in this process");
            format!("make the tables and queues ({place})")
        })?;
        // The functions of the process that had the data directory before have ended with it.
        if options.data.is_some() && aws.external_url(Service::Sqs).is_none() {
            for queue in resources::handled_queues(&config, &names) {
                aws.give_back(&queue).map_err(anyhow::Error::msg)?;
            }
        }
        let ports = Arc::new(AwsPorts::new(&aws.sdk_config(), &config, "client"));
        let publisher = publisher(&aws, &config, &ports);
        for workflow in &options.workflows {
            publisher.publish(workflow).await?;
        }
        // Rules live as long as the process; definitions may have been kept.
        publisher.follow_all().await?;
        let interceptors = options.interceptors.clone();
        let (instances, tasks) = (Vec::new(), JoinSet::new());
        let mut host = Self { aws, config, ports, address, instances, interceptors, tasks };
        for _ in 0..options.instances.get() {
            host.start_instances(&options)?;
        }
        host.spawn_expiry();
        if let Some(listener) = listener {
            host.serve(listener);
        }
        Ok(host)
    }

    /// One instance of each function.
    fn start_instances(&mut self, options: &HostOptions) -> Result<()> {
        self.start_submission();
        self.start_scheduler();
        for (name, base_url) in &options.agents {
            let service = HttpService::new(base_url.clone(), Headers::default(), CALL_TIMEOUT)?;
            self.start_agent(name.clone(), service);
        }
        if let Some(every) = options.supervise_every {
            self.start_supervisor(every);
        }
        Ok(())
    }

    /// The roles of the running instances.
    pub fn instances(&self) -> impl Iterator<Item = &str> {
        self.instances.iter().map(|instance| instance.role.as_str())
    }

    /// Kills the `n`th instance where it stands, as a crash would, and starts another in its place.
    /// What it had in hand becomes visible again in its queue, in time. Returns its role.
    pub fn kill(&self, n: usize) -> Option<&str> {
        let instance = self.instances.get(n)?;
        let mut running = instance.running.lock().unwrap_or_else(PoisonError::into_inner);
        // The old ones go first: two of the same would not be a crash.
        running.abort_all();
        *running = (instance.start)();
        Some(&instance.role)
    }

    fn start_instance(
        &mut self,
        role: &str,
        start: impl Fn(Arc<AwsPorts>, &mut JoinSet<()>) + Send + Sync + 'static,
    ) {
        let (sdk, config) = (self.aws.sdk_config(), self.config.clone());
        let (name, interceptors) = (role.to_owned(), self.interceptors.clone());
        let start = move || {
            let ports = AwsPorts::observed(&sdk, &config, &name, interceptors.clone());
            let mut running = JoinSet::new();
            start(Arc::new(ports), &mut running);
            running
        };
        let running = Mutex::new(start());
        self.instances.push(Instance { role: role.to_owned(), start: Box::new(start), running });
    }

    /// The URL of one of the host's own queues.
    #[must_use]
    pub fn queue_url(&self, name: &str) -> String {
        self.config.scheduler_queue_url.replace(resources::SCHEDULER_QUEUE, name)
    }

    /// A client for the host's queues.
    #[must_use]
    pub fn sqs(&self) -> aws_sdk_sqs::Client {
        aws_sdk_sqs::Client::new(&self.aws.sdk_config())
    }

    fn start_submission(&mut self) {
        let (aws, queue_url) = (self.aws.clone(), self.queue_url(resources::SUBMISSIONS_QUEUE));
        let reply_queues = Arc::new(self.config.reply_queues.clone());
        self.start_instance("submission", move |ports, running| {
            let reply_queues = reply_queues.clone();
            let handler = move |event| {
                let (ports, reply_queues) = (ports.clone(), reply_queues.clone());
                charged(Account::Submission, async move {
                    let handle = |event| steward_submission::handle(&*ports, &reply_queues, event);
                    ports.channel().handled(&Queue::Submissions, event, handle).await
                })
            };
            let queue_url = queue_url.clone();
            EventSource { queue_url, concurrency: CONCURRENCY }.spawn(&aws, handler, running);
        });
    }

    fn start_scheduler(&mut self) {
        let (aws, queue_url) = (self.aws.clone(), self.config.scheduler_queue_url.clone());
        self.start_instance("scheduler", move |ports, running| {
            let handler = move |event| {
                let ports = ports.clone();
                charged(Account::Scheduler, async move {
                    let handle = |event| steward_scheduler::handle(&*ports, event);
                    ports.channel().handled(&Queue::Scheduler, event, handle).await
                })
            };
            let queue_url = queue_url.clone();
            EventSource { queue_url, concurrency: CONCURRENCY }.spawn(&aws, handler, running);
        });
    }

    fn start_agent(&mut self, name: AgentName, service: HttpService) {
        let (aws, queue_url) = (self.aws.clone(), self.config.agent_queue_url.of(&name));
        self.start_instance("agent", move |ports, running| {
            let agent = Arc::new(Agent::new(name.clone(), service.clone(), breaker()));
            let handler = move |event| {
                let (ports, agent) = (ports.clone(), agent.clone());
                let deadline = later(now(&ports), INVOCATION);
                charged(Account::Agent, async move {
                    let queue = Queue::Agent(agent.name.clone());
                    let handle = |event| steward_agent::handle(&*ports, &agent, event, deadline);
                    ports.channel().handled(&queue, event, handle).await
                })
            };
            let queue_url = queue_url.clone();
            EventSource { queue_url, concurrency: AGENT_CONCURRENCY }.spawn(&aws, handler, running);
        });
    }

    fn start_supervisor(&mut self, every: Duration) {
        self.start_instance("supervisor", move |ports, running| {
            running.spawn(async move {
                let mut ticks = tokio::time::interval(every);
                loop {
                    ticks.tick().await;
                    let deadline = later(now(&ports), INVOCATION);
                    let swept = charged(
                        Account::Supervisor,
                        steward_supervisor::supervise(&*ports, fastrand::u32(..), deadline),
                    )
                    .await;
                    if let Err(error) = swept {
                        tracing::warn!(%error, "sweep failed; the next one takes over");
                    }
                }
            });
        });
    }

    fn spawn_expiry(&mut self) {
        let aws = self.aws.clone();
        self.tasks.spawn(async move {
            let mut ticks = tokio::time::interval(EXPIRY_EVERY);
            loop {
                ticks.tick().await;
                let aws = aws.clone();
                let swept = tokio::task::spawn_blocking(move || aws.sweep_ttl()).await;
                if let Ok(Err(error)) = swept {
                    tracing::warn!(%error, "expired items not swept");
                }
            }
        });
    }

    /// `POST /tasks`, `GET /tasks/{id}` and the console; everything else is the AWS-compatible endpoint.
    fn serve(&mut self, listener: TcpListener) {
        let reply_queues = Arc::new(self.config.reply_queues.clone());
        let charging =
            from_fn(|request: Request, next: Next| charged(Account::Submission, next.run(request)));
        let tasks =
            steward_submission::http::routes(self.ports.clone(), reply_queues).layer(charging);
        let console = Console { ports: self.ports.clone(), links: Arc::default() };
        let name = std::env::var("USER").unwrap_or_else(|_| "local".to_owned());
        let console = steward_console::routes_for(Caller { name, may_act: true }, console);
        let routes = tasks.merge(console).merge(self.aws.router());
        self.tasks.spawn(async move {
            if let Err(error) = axum::serve(listener, routes).await {
                tracing::error!(%error, "no longer listening");
            }
        });
    }
}

/// Opens the embedded AWS, if need be when another process has ended that is about to.
async fn open(builder: EmbeddedAwsBuilder) -> Result<EmbeddedAws, EmbeddedError> {
    let begun = Instant::now();
    loop {
        match builder.clone().build() {
            Err(EmbeddedError::InUse { .. }) if begun.elapsed() < IN_USE_PATIENCE => {
                tokio::time::sleep(IN_USE_PAUSE).await;
            }
            opened => return opened,
        }
    }
}

/// Publishes definitions on the embedded AWS.
#[must_use]
pub fn publisher(aws: &EmbeddedAws, config: &Config, ports: &AwsPorts) -> Publisher {
    let sdk = aws.sdk_config();
    let (events, sqs) = (aws_sdk_eventbridge::Client::new(&sdk), aws_sdk_sqs::Client::new(&sdk));
    let submissions = config
        .scheduler_queue_url
        .replace(resources::SCHEDULER_QUEUE, resources::SUBMISSIONS_QUEUE);
    let rules = TriggerRules::new(events, sqs, config.event_bus.clone(), submissions);
    Publisher { definitions: ports.definitions().clone(), store: ports.store().clone(), rules }
}

fn breaker() -> Settings {
    Settings { open_for: BREAKER_OPEN_FOR, probe_within: CALL_TIMEOUT, ..Settings::default() }
}

fn now(ports: &AwsPorts) -> Timestamp {
    ports.clock().now()
}
