//! Runs all functions in one process: the real handlers call the embedded AWS through the real SDK clients, and
//! event-source loops take the place of Lambda between queues and functions.
//!
//! ```text
//! submissions ──► submission ─┐             ┌─► agent inventory ──► http://…
//!                             ├─► scheduler ┼─► agent payment   ──► http://…
//! every few seconds ► supervisor ┘          └─► agent shipping  ──► http://…
//! ```

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use aws_lambda_events::sqs::{SqsBatchResponse, SqsEvent};
use aws_smithy_runtime_api::client::interceptors::SharedInterceptor;
use axum::{
    extract::Request,
    middleware::{Next, from_fn},
};
use futures_util::FutureExt;
use jiff::Timestamp;
use steward_agent::{Agent, attempts_deadline, kind::AnyService};
use steward_aws::{
    AwsPorts, Config, definitions::DynamoDefinitions, ports::SharedCallbackUrls,
    publisher::Publisher, rules::EventRules, store::DynamoStore, telemetry::flush_after,
};
use steward_console::{Console, caller::ConsoleCaller};
use steward_core::{
    breaker::BreakerSettings,
    limits,
    model::{names::AgentName, time::later},
    rate::RateLimit,
    webhook::{WebhookSecrets, Webhooks},
};
use steward_runtime::ports::{Clock, PortError, Ports, Queue, error_chain};
use steward_scheduler::{AgentSightings, CommandAuthority, SchedulerInstance, handle_with};
use steward_submission::{IntakeView, events, handle_with_intake};
use steward_supervisor::{SweepResult, SweepSchedule};
use tokio::{net::TcpListener, task::JoinSet};

use crate::{
    callback_keys::callback_urls,
    contract_check::ContractCheck,
    cpu::{CpuAccount, with_cpu_account},
    embedded::{AwsService, EmbeddedAws, EmbeddedAwsBuilder, EmbeddedError, ExternalEndpoints},
    event_source::EventSource,
    registrations::{LocalAgent, OTHER_PROCESS, register_agents},
    resources,
};

pub use options::HostOptions;

mod options;

/// Concurrent batches of the submission function, and of the scheduler.
const CONCURRENCY: usize = 8;

/// Concurrent batches of operators' commands.
const COMMANDS_CONCURRENCY: usize = 2;

/// Concurrent batches of events that steps wait for.
const EVENTS_CONCURRENCY: usize = 4;

/// Concurrent batches of one agent. A batch ends with its slowest call, so the number is larger than
/// [`CONCURRENCY`]: calls that take a minute must not delay calls that take a moment.
const AGENT_CONCURRENCY: usize = 256;

/// How long an invocation may take.
const INVOCATION: Duration = Duration::from_secs(120);

/// How often expired items are deleted; DynamoDB does this in the background.
const EXPIRY_EVERY: Duration = Duration::from_secs(60);

/// The longest duration of a call to a remote service: the agent's default.
const CALL_TIMEOUT: Duration = limits::CALL_WITHIN_MAX;

/// How long an agent's circuit breaker stays open at first. It is short because a person waits for the result.
const BREAKER_OPEN_FOR: Duration = Duration::from_secs(1);

/// How long [`Host::start`] waits for a data directory that is in use. A stopped process may need a moment to
/// end, and so may the tasks of a dropped host.
const IN_USE_TIMEOUT: Duration = Duration::from_secs(2);

/// The pause between two attempts to open the data directory.
const IN_USE_RETRY_PAUSE: Duration = Duration::from_millis(10);

/// All functions, running. Dropping it stops everything at once, as a crash would. With a data directory, no
/// recorded state is lost.
pub struct Host {
    /// The embedded AWS that the functions use.
    pub aws: EmbeddedAws,
    /// The configuration: names of tables, URLs of queues.
    pub config: Config,
    /// Ports for a client or a console.
    pub ports: Arc<AwsPorts>,
    /// The keys of callback URLs, if the host listens.
    callback_urls: Option<SharedCallbackUrls>,
    /// The address on which the host listens, if it does.
    pub address: Option<SocketAddr>,
    instances: Vec<FunctionInstance>,
    interceptors: Vec<SharedInterceptor>,
    tasks: JoinSet<()>,
}

/// One running instance of a function, with a closure that starts a replacement.
struct FunctionInstance {
    role: String,
    start: Box<dyn Fn() -> JoinSet<()> + Send + Sync>,
    /// The tasks of the instance. Dropping them ends it at once.
    running: Mutex<JoinSet<()>>,
}

impl Host {
    /// Creates the resources, publishes the definitions and starts all functions.
    ///
    /// # Errors
    /// The data directory or the address cannot be used, or a definition cannot be published.
    pub async fn start(options: HostOptions) -> Result<Self> {
        let listener = match options.listen {
            Some(address) => Some(
                TcpListener::bind(address).await.with_context(|| format!("listen on {address}"))?,
            ),
            None => None,
        };
        let address = listener.as_ref().map(TcpListener::local_addr).transpose()?;
        let mut builder = EmbeddedAws::builder().fast_path(options.fast_path);
        if let Some(dir) = &options.data {
            builder = builder.data_dir(dir);
        }
        if let Some(address) = address {
            builder = builder.public_address(address.ip().to_string(), address.port());
        }
        if let Some(endpoints) = &options.external {
            builder = builder.external_endpoints(endpoints.clone());
        }
        let aws = open(builder).await?;
        let names: Vec<_> = options.agents.iter().map(|(name, _)| name.clone()).collect();
        let with_queue: Vec<_> = names.iter().chain(&options.queue_agents).cloned().collect();
        let mut config = resources::create(&aws, &with_queue).await.with_context(|| {
            let elsewhere = options.external.as_ref().map(ExternalEndpoints::to_string);
            let location = elsewhere.as_deref().unwrap_or("in this process");
            format!("create the tables and queues ({location})")
        })?;
        config.payloads_url = address.map(|at| format!("http://{at}")).unwrap_or_default();
        if let Some(timing) = options.timing {
            config.set_timing(timing);
        }
        for (name, target) in &options.agents {
            target.create_queues(&aws).await.with_context(|| format!("agent {name}"))?;
        }
        // The process that used this data directory before has ended, and its functions with it: release the
        // messages that they had received.
        if options.data.is_some() && aws.external_url(AwsService::Sqs).is_none() {
            for queue in resources::handled_queues(&config, &names) {
                aws.release_messages(&queue).map_err(anyhow::Error::msg)?;
            }
        }
        let ports = Arc::new(AwsPorts::new(&aws.sdk_config(), &config, "client"));
        let own = options.agents.iter().map(|(name, target)| (name, target.kind()));
        let others = options.queue_agents.iter().map(|name| (name, OTHER_PROCESS));
        let agents = own.chain(others).map(|(name, kind)| {
            let rate_limit = options.rate_limits.get(name).copied();
            (name.clone(), LocalAgent { kind, rate_limit })
        });
        register_agents(&ports, &agents.collect()).await.context("register the agents")?;
        let publisher = publisher(&aws, &config, &*ports);
        for workflow in &options.workflows {
            publisher.publish(workflow).await?;
        }
        // Rules are not stored, but the data directory may contain definitions with triggers.
        publisher.sync_all_rules().await?;
        let mut interceptors = options.interceptors.clone();
        if cfg!(debug_assertions) {
            interceptors.push(ContractCheck::interceptor());
        }
        let (instances, tasks) = (Vec::new(), JoinSet::new());
        let data = options.data.as_deref();
        let callback_urls = address.map(|address| callback_urls(data, address)).transpose()?;
        let mut host =
            Self { aws, config, ports, callback_urls, address, instances, interceptors, tasks };
        for _ in 0..options.instances.get() {
            host.start_instances(&options)?;
        }
        host.spawn_expiry();
        if let Some(listener) = listener {
            host.serve(listener, options.webhooks);
        }
        Ok(host)
    }

    /// Starts one instance of each function.
    fn start_instances(&mut self, options: &HostOptions) -> Result<()> {
        self.start_submission();
        self.start_scheduler();
        let own_url = self.address.map(|address| format!("http://{address}"));
        for (name, target) in &options.agents {
            let service =
                target.service(&self.aws, own_url.as_deref(), self.ports.bucket().cloned());
            let service = service.with_context(|| format!("agent {name}"))?;
            if let Some(credentials) = options.agent_credentials.get(name) {
                let http =
                    service.http().with_context(|| format!("agent {name}: not an HTTP service"))?;
                http.set_credentials(credentials.clone())?;
            }
            self.start_agent(name.clone(), service, options.rate_limits.get(name).copied());
        }
        if let Some(run_every) = options.supervise_every {
            let sweep_every = options.sweep_every.unwrap_or(run_every);
            self.start_supervisor(SweepSchedule { run_every, sweep_every });
        }
        Ok(())
    }

    /// The role of each running instance, such as `scheduler`.
    pub fn instance_roles(&self) -> impl Iterator<Item = &str> {
        self.instances.iter().map(|instance| instance.role.as_str())
    }

    /// Kills the `n`th instance at once, as a crash would, and starts a replacement. Messages that the instance had
    /// received become visible again after the visibility timeout. Returns the role, or `None` if there is no `n`th
    /// instance.
    pub fn restart_instance(&self, n: usize) -> Option<&str> {
        let instance = self.instances.get(n)?;
        let mut running = instance.running.lock().unwrap_or_else(PoisonError::into_inner);
        // Abort the old tasks first: two instances at the same time would not be a crash.
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
        let urls = self.callback_urls.clone();
        let start = move || {
            let ports = AwsPorts::with_interceptors(&sdk, &config, &name, interceptors.clone())
                .with_callback_urls(urls.clone());
            let mut running = JoinSet::new();
            start(Arc::new(ports), &mut running);
            running
        };
        let running = Mutex::new(start());
        self.instances.push(FunctionInstance {
            role: role.to_owned(),
            start: Box::new(start),
            running,
        });
    }

    /// The URL of one of the host's queues, by the queue's name.
    #[must_use]
    pub fn queue_url(&self, name: &str) -> String {
        self.config.scheduler_queue_url.replace(resources::SCHEDULER_QUEUE, name)
    }

    /// An SQS client for the host's queues.
    #[must_use]
    pub fn sqs(&self) -> aws_sdk_sqs::Client {
        aws_sdk_sqs::Client::new(&self.aws.sdk_config())
    }

    fn start_submission(&mut self) {
        let (aws, config) = (self.aws.clone(), self.config.clone());
        self.start_instance("submission", move |ports, running| {
            let (reply_queues, intake) =
                (Arc::new(config.reply_queues.clone()), Arc::new(IntakeView::default()));
            let own_ports = ports.clone();
            let handler = move |event| {
                let (ports, reply_queues) = (own_ports.clone(), reply_queues.clone());
                let intake = intake.clone();
                with_cpu_account(CpuAccount::Submission, async move {
                    let handle = |batch| handle_with_intake(&*ports, &intake, &reply_queues, batch);
                    ports.channel().process_batch(&Queue::Submissions, event, stop(), handle).await
                })
            };
            let queue_url = config.submissions_queue_url.clone();
            EventSource { queue_url, concurrency: CONCURRENCY }.spawn(&aws, handler, running);
            let handler = move |event| {
                let ports = ports.clone();
                with_cpu_account(CpuAccount::Submission, async move {
                    let handle = |batch| events::handle(&*ports, batch);
                    ports.channel().process_batch(&Queue::Events, event, stop(), handle).await
                })
            };
            let queue_url = config.events_queue_url.clone();
            let concurrency = EVENTS_CONCURRENCY;
            EventSource { queue_url, concurrency }.spawn(&aws, handler, running);
        });
    }

    fn start_scheduler(&mut self) {
        let (aws, config) = (self.aws.clone(), self.config.clone());
        self.start_instance("scheduler", move |ports, running| {
            let commands = CommandAuthority::of(&config);
            let instance = SchedulerInstance { sightings: AgentSightings::default(), commands };
            let instance = Arc::new(instance);
            for (queue, url, concurrency) in [
                (Queue::Scheduler, &config.scheduler_queue_url, CONCURRENCY),
                (Queue::Commands, &config.commands_queue_url, COMMANDS_CONCURRENCY),
            ] {
                let (ports, instance) = (ports.clone(), instance.clone());
                let handler = move |event| {
                    let ports = ports.for_invocation();
                    let (instance, queue) = (instance.clone(), queue.clone());
                    with_cpu_account(CpuAccount::Scheduler, async move {
                        let handle = |batch| handle_with(&ports, &instance, batch);
                        ports.channel().process_batch(&queue, event, stop(), handle).await
                    })
                };
                let source = EventSource { queue_url: url.clone(), concurrency };
                source.spawn(&aws, handler, running);
            }
        });
    }

    fn start_agent(&mut self, name: AgentName, service: AnyService, rate: Option<RateLimit>) {
        let (aws, queue_url) = (self.aws.clone(), self.config.agent_queue_url.of(&name));
        self.start_instance("agent", move |ports, running| {
            let agent = Agent::new(name.clone(), service.clone(), breaker());
            let agent = Arc::new(agent.with_rate_limit(rate));
            let handler = move |event| {
                let (ports, agent) = (ports.clone(), agent.clone());
                let deadline = attempts_deadline(later(now(&ports), INVOCATION));
                with_cpu_account(CpuAccount::Agent, async move {
                    let queue = Queue::Agent(agent.name.clone());
                    // Boxed: the types of the futures below are too deep for the compiler.
                    let handle =
                        |batch| steward_agent::handle(&*ports, &agent, batch, deadline).boxed();
                    ports.channel().process_batch(&queue, event, stop(), handle).await
                })
            };
            let queue_url = queue_url.clone();
            EventSource { queue_url, concurrency: AGENT_CONCURRENCY }.spawn(&aws, handler, running);
        });
    }

    fn start_supervisor(&mut self, schedule: SweepSchedule) {
        let (aws, queue_url) = (self.aws.clone(), self.config.sweeps_queue_url.clone());
        self.start_instance("supervisor", move |ports, running| {
            let handler_ports = ports.clone();
            running.spawn(async move {
                let mut triggers = tokio::time::interval(schedule.run_every);
                loop {
                    triggers.tick().await;
                    let deadline = later(now(&ports), INVOCATION);
                    let run =
                        steward_supervisor::run(&*ports, &schedule, fastrand::u32(..), deadline);
                    let run = flush_after(with_cpu_account(CpuAccount::Supervisor, run));
                    log_failure(run.await);
                }
            });
            let handler = move |event: SqsEvent| {
                let ports = handler_ports.clone();
                with_cpu_account(CpuAccount::Supervisor, async move {
                    let deadline = later(now(&ports), INVOCATION);
                    let ticks = event.records.into_iter().filter_map(|tick| tick.body).collect();
                    let first_shard = fastrand::u32(..);
                    let swept = steward_supervisor::handle_ticks(
                        &*ports,
                        &schedule,
                        ticks,
                        first_shard,
                        deadline,
                    );
                    log_failure(swept.await);
                    SqsBatchResponse::default()
                })
            };
            let queue_url = queue_url.clone();
            EventSource { queue_url, concurrency: 1 }.spawn(&aws, handler, running);
        });
    }

    fn spawn_expiry(&mut self) {
        let aws = self.aws.clone();
        self.tasks.spawn(async move {
            let mut ticks = tokio::time::interval(EXPIRY_EVERY);
            loop {
                ticks.tick().await;
                let (aws, own_aws) = (aws.clone(), aws.clone());
                let swept = tokio::task::spawn_blocking(move || aws.delete_expired_items()).await;
                if let Ok(Err(error)) = swept {
                    tracing::warn!(%error, "expired items could not be deleted");
                }
                if let Err(error) = own_aws.delete_expired_objects() {
                    tracing::warn!(%error, "expired uploads could not be deleted");
                }
            }
        });
    }

    /// Serves `POST /tasks`, `GET /tasks/{id}`, callbacks, webhooks and the console. All other requests go to the AWS-compatible endpoint.
    fn serve(&mut self, listener: TcpListener, webhooks: Option<(Webhooks, WebhookSecrets)>) {
        let reply_queues = Arc::new(self.config.reply_queues.clone());
        let charging = from_fn(|request: Request, next: Next| {
            with_cpu_account(CpuAccount::Submission, next.run(request))
        });
        let tasks =
            steward_submission::http::routes(self.ports.clone(), reply_queues).layer(charging);
        let console = Console { ports: self.ports.clone(), links: Arc::default() };
        let name = std::env::var("USER").unwrap_or_else(|_| "local".to_owned());
        let console = steward_console::routes_for(ConsoleCaller { name, may_act: true }, console);
        let mut routes = tasks.merge(console).merge(self.aws.router());
        if let Some(urls) = &self.callback_urls {
            let keys = Arc::new(urls.clone());
            routes = routes.merge(steward_callback::routes(self.ports.clone(), keys));
        }
        if let Some((webhooks, secrets)) = webhooks {
            let secrets = Arc::new(Arc::new(secrets));
            let ports = self.ports.clone();
            routes = routes.merge(steward_callback::webhooks::routes(ports, webhooks, secrets));
        }
        let flushing = from_fn(|request: Request, next: Next| flush_after(next.run(request)));
        let routes = routes.layer(flushing).layer(from_fn(steward_console::refuse_other_sites));
        self.tasks.spawn(async move {
            if let Err(error) = axum::serve(listener, routes).await {
                tracing::error!(%error, "the HTTP server has stopped");
            }
        });
    }
}

/// Opens the embedded AWS. If another process still uses the data directory, waits for a moment until it ends.
async fn open(builder: EmbeddedAwsBuilder) -> Result<EmbeddedAws, EmbeddedError> {
    let started = Instant::now();
    loop {
        match builder.clone().build() {
            Err(EmbeddedError::InUse { .. }) if started.elapsed() < IN_USE_TIMEOUT => {
                tokio::time::sleep(IN_USE_RETRY_PAUSE).await;
            }
            opened => return opened,
        }
    }
}

/// A publisher of definitions on the embedded AWS.
#[must_use]
pub fn publisher(
    aws: &EmbeddedAws,
    config: &Config,
    ports: &impl Ports<Store = DynamoStore, Definitions = DynamoDefinitions>,
) -> Publisher {
    let sdk = aws.sdk_config();
    let (events, sqs) = (aws_sdk_eventbridge::Client::new(&sdk), aws_sdk_sqs::Client::new(&sdk));
    let Config { event_bus, submissions_queue_url, events_queue_url, .. } = config.clone();
    let (submissions, awaited) = (submissions_queue_url, events_queue_url);
    let rules = EventRules { events, sqs, bus: event_bus, submissions, awaited };
    Publisher { definitions: ports.definitions().clone(), store: ports.store().clone(), rules }
}

fn breaker() -> BreakerSettings {
    BreakerSettings {
        open_for: BREAKER_OPEN_FOR,
        probe_within: CALL_TIMEOUT,
        ..BreakerSettings::default()
    }
}

/// Logs that the due index could not be read.
fn log_failure(swept: Result<SweepResult, PortError>) {
    if let Err(error) = swept {
        tracing::warn!(error = error_chain(&error), "sweep failed; the next sweep retries");
    }
}

/// When an invocation that begins now has to stop.
fn stop() -> tokio::time::Instant {
    tokio::time::Instant::now() + INVOCATION
}

fn now(ports: &AwsPorts) -> Timestamp {
    ports.clock().now()
}
