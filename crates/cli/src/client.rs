//! Access to a deployment: on AWS, or at the endpoint in `AWS_ENDPOINT_URL`.

use std::{num::NonZeroU32, time::Duration};

use anyhow::{Context, Result, bail};
use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_sdk_sqs::{Client, types::SendMessageBatchRequestEntry};
use clap::Args;
use steward_aws::{
    AwsPorts, Config,
    bus::EventBridgeBus,
    channel,
    config::{HumanDuration, QueueNames},
    dead_letters::{DeadLetterQueue, DeadLettersError},
    definitions::DynamoDefinitions,
    payloads::S3Payloads,
    publisher::Publisher,
    rules::EventRules,
    store::DynamoStore,
};
use steward_core::{
    model::names::{AgentName, Tenant},
    submission::ReplyQueues,
    webhook::Webhooks,
};
use steward_emulator::resources;
use steward_runtime::ports::PortError;

/// The number of messages in one SQS request, which is SQS's limit.
pub(crate) const BATCH: usize = 10;

/// The names of a deployment's resources. The defaults are the names that `steward local` uses. Region,
/// credentials and endpoint come from the AWS environment variables and profile.
#[derive(Debug, Args)]
pub(crate) struct DeploymentArgs {
    /// The tasks table.
    #[arg(long, env = "STEWARD_TASKS_TABLE", default_value = resources::TASKS_TABLE)]
    tasks_table: String,
    /// The documents table.
    #[arg(long, env = "STEWARD_DOCUMENTS_TABLE", default_value = resources::DOCUMENTS_TABLE)]
    documents_table: String,
    /// The workflow definitions table.
    #[arg(long, env = "STEWARD_WORKFLOWS_TABLE", default_value = resources::WORKFLOWS_TABLE)]
    workflows_table: String,
    /// The submissions queue, by name or URL.
    #[arg(long, env = "STEWARD_SUBMISSIONS_QUEUE_URL", default_value = resources::SUBMISSIONS_QUEUE)]
    submissions_queue: String,
    /// The scheduler queue, by name or URL. It receives callbacks.
    #[arg(long, env = "STEWARD_SCHEDULER_QUEUE_URL", default_value = resources::SCHEDULER_QUEUE)]
    scheduler_queue: String,
    /// The queue of operator commands, by name or URL.
    #[arg(long, env = "STEWARD_COMMANDS_QUEUE_URL", default_value = resources::COMMANDS_QUEUE)]
    commands_queue: String,
    /// The queue of events that steps wait for, by name or URL.
    #[arg(long, env = "STEWARD_EVENTS_QUEUE_URL", default_value = resources::EVENTS_QUEUE)]
    events_queue: String,
    /// The bucket of payloads.
    #[arg(long, env = "STEWARD_PAYLOADS_BUCKET", default_value = resources::PAYLOADS_BUCKET)]
    payloads_bucket: String,
    /// The event bus on which publication creates the rules of workflows.
    #[arg(long, env = "STEWARD_EVENT_BUS", default_value = resources::EVENT_BUS)]
    event_bus: String,
    /// The queue of rejected submissions, by name or URL.
    #[arg(long, env = "STEWARD_REJECTED_QUEUE_URL", default_value = resources::REJECTED_QUEUE)]
    rejected_queue: String,
    /// The name or URL of agent queues, with {agent} in place of the agent's name.
    #[arg(long, env = "STEWARD_AGENT_QUEUE_URL", default_value = resources::AGENT_QUEUE)]
    agent_queue: String,
    /// The number of shards of the due index: at least as many as the deployment has. With fewer, lists and the console miss tasks.
    #[arg(long, env = "STEWARD_SHARDS", default_value_t = SHARDS)]
    shards: NonZeroU32,
    /// Dead-letter queues of agents that are not registered, by name or URL, separated by commas.
    #[arg(long, env = "STEWARD_DEAD_LETTER_QUEUES")]
    dead_letter_queues: Option<QueueNames>,
}

/// As many as in a deployment with the default parameters; `steward local` has fewer.
const SHARDS: NonZeroU32 = NonZeroU32::MIN.saturating_add(7);

impl DeploymentArgs {
    /// Prints the names, as options.
    pub(crate) fn print(&self) -> Result<()> {
        let names = [
            ("tasks-table", &self.tasks_table),
            ("documents-table", &self.documents_table),
            ("workflows-table", &self.workflows_table),
            ("submissions-queue", &self.submissions_queue),
            ("scheduler-queue", &self.scheduler_queue),
            ("commands-queue", &self.commands_queue),
            ("events-queue", &self.events_queue),
            ("payloads-bucket", &self.payloads_bucket),
            ("event-bus", &self.event_bus),
            ("rejected-queue", &self.rejected_queue),
            ("agent-queue", &self.agent_queue),
            ("shards", &self.shards.to_string()),
        ];
        for (name, value) in names {
            outln!("--{name} {value}");
        }
        Ok(())
    }

    /// The state store, for reading only.
    pub(crate) async fn store(&self) -> DynamoStore {
        let client = aws_sdk_dynamodb_client(&sdk_config().await);
        // Retention only matters for writes.
        let (shards, retention) = (self.shards, std::time::Duration::ZERO);
        let (tasks, documents) = (self.tasks_table.clone(), self.documents_table.clone());
        DynamoStore::new(client, tasks, documents, shards, retention)
    }

    /// The DynamoDB client, for what no function may do.
    pub(crate) async fn dynamodb(&self) -> steward_aws::store::Client {
        aws_sdk_dynamodb_client(&sdk_config().await)
    }

    /// The names of the tables of tasks and of documents.
    pub(crate) fn task_tables(&self) -> (&str, &str) {
        (&self.tasks_table, &self.documents_table)
    }

    /// The deployment's event bus.
    pub(crate) async fn bus(&self) -> EventBridgeBus {
        event_bus(&self.event_bus).await
    }

    /// All ports, as a deployed function has them.
    pub(crate) async fn ports(&self, role: &str) -> Result<AwsPorts> {
        let (sdk, sqs) = (sdk_config().await, sqs().await);
        let scheduler_queue_url = queue_url(&sqs, &self.scheduler_queue).await?;
        let base = scheduler_queue_url.rsplit_once('/').map_or("", |(base, _)| base);
        let agent_queue_url = match self.agent_queue.contains("://") {
            true => self.agent_queue.parse()?,
            false => format!("{base}/{}", self.agent_queue).parse()?,
        };
        let config = Config {
            // Only the supervisor uses it.
            sweeps_queue_url: String::new(),
            // Only the scheduler uses it.
            console_role_id: String::new(),
            commands_queue_url: queue_url(&sqs, &self.commands_queue).await?,
            events_queue_url: queue_url(&sqs, &self.events_queue).await?,
            tasks_table: self.tasks_table.clone(),
            documents_table: self.documents_table.clone(),
            workflows_table: self.workflows_table.clone(),
            submissions_queue_url: queue_url(&sqs, &self.submissions_queue).await?,
            rejected_queue_url: queue_url(&sqs, &self.rejected_queue).await?,
            scheduler_queue_url,
            agent_queue_url,
            dead_letter_queues: self.dead_letter_queues.clone().unwrap_or_default(),
            reply_queues: ReplyQueues::default(),
            callback_url: String::new(),
            callback_secret: String::new(),
            webhooks: Webhooks::default(),
            webhook_secret: String::new(),
            // The console does not read payloads.
            payloads_bucket: String::new(),
            payloads_url: String::new(),
            event_bus: self.event_bus.clone(),
            shards: self.shards,
            // Only functions that write tasks use these.
            retention: HumanDuration(Duration::ZERO),
            clock_skew: HumanDuration(Duration::ZERO),
            pickup_within: HumanDuration(Duration::ZERO),
        };
        Ok(AwsPorts::new(&sdk, &config, role))
    }

    /// The bucket of payloads.
    pub(crate) async fn payloads(&self) -> S3Payloads {
        S3Payloads::new(&sdk_config().await, self.payloads_bucket.clone())
    }

    /// The definitions table.
    pub(crate) async fn definitions(&self) -> DynamoDefinitions {
        let client = aws_sdk_dynamodb_client(&sdk_config().await);
        DynamoDefinitions::new(client, self.workflows_table.clone())
    }

    /// Publishes and unpublishes definitions.
    pub(crate) async fn publisher(&self) -> Publisher {
        let sdk = sdk_config().await;
        let (events, sqs) = (aws_sdk_eventbridge::Client::new(&sdk), Client::new(&sdk));
        let (bus, submissions) = (self.event_bus.clone(), self.submissions_queue.clone());
        let awaited = self.events_queue.clone();
        let rules = EventRules { events, sqs, bus, submissions, awaited };
        Publisher { definitions: self.definitions().await, store: self.store().await, rules }
    }

    /// The name of an agent's queue.
    pub(crate) fn agent_queue_name(&self, agent: &AgentName) -> String {
        channel::queue_name(&self.agent_queue).replace("{agent}", agent.as_str())
    }

    /// Whether an agent has a queue.
    pub(crate) async fn has_agent_queue(&self, agent: &AgentName) -> Result<bool, PortError> {
        let url = channel::queue_url(&sqs().await, &self.agent_queue_name(agent)).await?;
        Ok(url.is_some())
    }

    /// A sender to the submissions queue.
    pub(crate) async fn submissions(&self) -> Result<QueueSender> {
        QueueSender::find(&self.submissions_queue).await
    }

    /// A sender to the queue of operator commands.
    pub(crate) async fn commands(&self) -> Result<QueueSender> {
        QueueSender::find(&self.commands_queue).await
    }

    /// A sender to the scheduler queue.
    pub(crate) async fn scheduler(&self) -> Result<QueueSender> {
        QueueSender::find(&self.scheduler_queue).await
    }
}

/// An SQS client.
pub(crate) async fn sqs() -> Client {
    Client::new(&sdk_config().await)
}

/// The event bus with this name.
pub(crate) async fn event_bus(name: &str) -> EventBridgeBus {
    EventBridgeBus::new(aws_sdk_eventbridge::Client::new(&sdk_config().await), name.to_owned())
}

/// The URL of a queue, given by name or URL.
pub(crate) async fn queue_url(client: &Client, name_or_url: &str) -> Result<String> {
    let url = channel::queue_url(client, name_or_url).await?;
    url.with_context(|| format!("there is no queue `{name_or_url}`"))
}

/// The dead-letter queue of this name or URL.
pub(crate) async fn dead_letter_queue(
    client: &Client,
    name_or_url: &str,
) -> Result<DeadLetterQueue> {
    match DeadLetterQueue::find(client, name_or_url).await {
        Ok(queue) => Ok(queue),
        Err(error @ DeadLettersError::NotADeadLetterQueue(_)) => {
            bail!("{error}; `steward dlq list` lists the dead-letter queues")
        }
        Err(error) => Err(error.into()),
    }
}

/// A message to send, with the tenant of its task.
pub(crate) struct QueuedText {
    pub(crate) text: String,
    pub(crate) tenant: Option<Tenant>,
}

/// Sends to one queue.
pub(crate) struct QueueSender {
    client: Client,
    url: String,
}

impl QueueSender {
    async fn find(name_or_url: &str) -> Result<Self> {
        let client = sqs().await;
        let url = queue_url(&client, name_or_url).await?;
        Ok(Self { client, url })
    }

    /// Sends up to [`BATCH`] messages in one request. Returns for each message the reason why SQS refused
    /// it, or `None` if SQS accepted it.
    pub(crate) async fn send(&self, messages: &[QueuedText]) -> Result<Vec<Option<String>>> {
        let entries = messages.iter().enumerate().map(|(n, QueuedText { text, tenant })| {
            let group = tenant.as_ref().map(ToString::to_string);
            let entry = SendMessageBatchRequestEntry::builder().id(n.to_string());
            entry.message_body(text).set_message_group_id(group).build()
        });
        let entries = entries.collect::<Result<_, _>>()?;
        let request =
            self.client.send_message_batch().queue_url(&self.url).set_entries(Some(entries));
        let response = request.send().await.with_context(|| format!("send to {}", self.url))?;
        let refused = |n: usize| {
            let failed = response.failed().iter().find(|failed| failed.id() == n.to_string())?;
            Some(failed.message().unwrap_or(failed.code()).to_owned())
        };
        Ok((0..messages.len()).map(refused).collect())
    }
}

fn aws_sdk_dynamodb_client(sdk: &SdkConfig) -> steward_aws::store::Client {
    steward_aws::store::Client::new(sdk)
}

/// The AWS configuration from the environment. Emulators ignore region and credentials, so they get defaults.
pub(crate) async fn sdk_config() -> SdkConfig {
    let is_set = |name| std::env::var_os(name).is_some();
    let mut loader = aws_config::defaults(BehaviorVersion::latest());
    if is_set("AWS_ENDPOINT_URL") {
        if !is_set("AWS_REGION") && !is_set("AWS_DEFAULT_REGION") {
            loader = loader.region(Region::from_static("us-east-1"));
        }
        if !is_set("AWS_ACCESS_KEY_ID") && !is_set("AWS_PROFILE") {
            loader = loader.test_credentials();
        }
    }
    loader.load().await
}
