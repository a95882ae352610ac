//! The whole function set in one process: the real handlers, through the real SDK clients, against
//! the embedded AWS, with what Lambda would run between queues and functions.
//!
//! ```text
//! submissions ──► submission ─┐             ┌─► agent inventory ──► http://…
//!                             ├─► scheduler ┼─► agent payment   ──► http://…
//! every few seconds ► supervisor ┘          └─► agent shipping  ──► http://…
//! ```

use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use agent::{
    Agent,
    http::{BaseUrl, Headers, HttpService},
};
use anyhow::{Context, Result};
use aws_smithy_runtime_api::client::interceptors::SharedInterceptor;
use jiff::Timestamp;
use steward_aws::{AwsPorts, Config};
use steward_core::{
    breaker::Settings, names::AgentName, ports::Clock, task::later, workflow::Workflow,
};
use tokio::{net::TcpListener, task::JoinSet};

use crate::{embedded::EmbeddedAws, event_source::EventSource, resources};

/// Batches of submissions in hand at once, and of wakes and replies.
const CONCURRENCY: usize = 8;

/// Batches of one agent in hand at once. A batch is in hand until its slowest call is done, so
/// there are more.
const AGENT_CONCURRENCY: usize = 32;

/// How long an invocation may take.
const INVOCATION: Duration = Duration::from_secs(120);

/// How often expired items are swept, as DynamoDB does by itself.
const EXPIRY_EVERY: Duration = Duration::from_secs(60);

/// How long one call to a remote service may take, as the agent's default is.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// How long an agent's circuit breaker stays open at first: short, for whoever watches is waiting.
const BREAKER_OPEN_FOR: Duration = Duration::from_secs(1);

/// What to host.
#[derive(Debug, Default)]
pub struct HostOptions {
    /// Where state is kept; in memory without it.
    pub data: Option<PathBuf>,
    /// Where to serve the AWS-compatible endpoint and `POST /tasks`; nowhere without it.
    pub listen: Option<SocketAddr>,
    /// Definitions to publish at the start.
    pub workflows: Vec<Workflow>,
    /// An HTTP agent for each logical agent, with its remote service's base URL.
    pub agents: Vec<(AgentName, BaseUrl)>,
    /// How often the supervisor runs; never without it.
    pub supervise_every: Option<Duration>,
    /// Watch every AWS call of the functions, and of no one else.
    pub interceptors: Vec<SharedInterceptor>,
}

/// A running function set. Dropping it stops everything at once, as a crash would: nothing that was
/// recorded is lost.
#[derive(Debug)]
pub struct Host {
    /// The services behind it.
    pub aws: EmbeddedAws,
    /// The names of its tables and queues.
    pub config: Config,
    /// Its ports, as a client or a console sees them.
    pub ports: Arc<AwsPorts>,
    /// Where it listens, if it does.
    pub address: Option<SocketAddr>,
    tasks: JoinSet<()>,
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
        let aws = builder.build()?;
        let names: Vec<_> = options.agents.iter().map(|(name, _)| name.clone()).collect();
        let config = resources::create(&aws, &names).await?;
        let sdk = aws.sdk_config();
        let ports = |role: &str| {
            Arc::new(AwsPorts::observed(&sdk, &config, role, options.interceptors.clone()))
        };
        let client = Arc::new(AwsPorts::new(&sdk, &config, "client"));
        for workflow in &options.workflows {
            use steward_core::ports::Ports;
            client.definitions().publish(workflow).await?;
        }
        let mut host =
            Self { aws, config: config.clone(), ports: client, address, tasks: JoinSet::new() };
        host.spawn_submission(ports("submission"));
        host.spawn_scheduler(ports("scheduler"));
        for (name, base_url) in options.agents {
            let service = HttpService::new(base_url, Headers::default(), CALL_TIMEOUT)?;
            host.spawn_agent(ports("agent"), Agent::new(name, service, breaker()));
        }
        if let Some(every) = options.supervise_every {
            host.spawn_supervisor(ports("supervisor"), every);
        }
        host.spawn_expiry();
        if let Some(listener) = listener {
            host.serve(listener);
        }
        Ok(host)
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

    fn spawn_submission(&mut self, ports: Arc<AwsPorts>) {
        let queue_url = self.queue_url(resources::SUBMISSIONS_QUEUE);
        let reply_queues = Arc::new(self.config.reply_queues.clone());
        let handler = move |event| {
            let (ports, reply_queues) = (ports.clone(), reply_queues.clone());
            async move { submission::handle(&*ports, &reply_queues, event).await }
        };
        let source = EventSource { queue_url, concurrency: CONCURRENCY };
        source.spawn(&self.sqs(), handler, &mut self.tasks);
    }

    fn spawn_scheduler(&mut self, ports: Arc<AwsPorts>) {
        let queue_url = self.config.scheduler_queue_url.clone();
        let handler = move |event| {
            let ports = ports.clone();
            async move { scheduler::handle(&*ports, event).await }
        };
        let source = EventSource { queue_url, concurrency: CONCURRENCY };
        source.spawn(&self.sqs(), handler, &mut self.tasks);
    }

    fn spawn_agent(&mut self, ports: Arc<AwsPorts>, agent: Agent<HttpService>) {
        let queue_url = self.config.agent_queue_url.of(&agent.name);
        let agent = Arc::new(agent);
        let handler = move |event| {
            let (ports, agent) = (ports.clone(), agent.clone());
            let deadline = later(now(&ports), INVOCATION);
            async move { agent::handle(&*ports, &agent, event, deadline).await }
        };
        let source = EventSource { queue_url, concurrency: AGENT_CONCURRENCY };
        source.spawn(&self.sqs(), handler, &mut self.tasks);
    }

    fn spawn_supervisor(&mut self, ports: Arc<AwsPorts>, every: Duration) {
        self.tasks.spawn(async move {
            let mut ticks = tokio::time::interval(every);
            loop {
                ticks.tick().await;
                let deadline = later(now(&ports), INVOCATION);
                if let Err(error) = supervisor::sweep(&*ports, fastrand::u32(..), deadline).await {
                    tracing::warn!(%error, "sweep failed; the next one takes over");
                }
            }
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

    /// `POST /tasks` and `GET /tasks/{id}`; everything else is the AWS-compatible endpoint.
    fn serve(&mut self, listener: TcpListener) {
        let reply_queues = Arc::new(self.config.reply_queues.clone());
        let routes =
            submission::http::routes(self.ports.clone(), reply_queues).merge(self.aws.router());
        self.tasks.spawn(async move {
            if let Err(error) = axum::serve(listener, routes).await {
                tracing::error!(%error, "no longer listening");
            }
        });
    }
}

fn breaker() -> Settings {
    Settings { open_for: BREAKER_OPEN_FOR, probe_within: CALL_TIMEOUT, ..Settings::default() }
}

fn now(ports: &AwsPorts) -> Timestamp {
    use steward_core::ports::Ports;
    ports.clock().now()
}
