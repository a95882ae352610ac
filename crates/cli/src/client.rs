//! A client of a deployment: on AWS, or wherever `AWS_ENDPOINT_URL` points.

use std::{num::NonZeroU32, time::Duration};

use anyhow::{Context, Result};
use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_sdk_sqs::{Client, types::SendMessageBatchRequestEntry};
use clap::Args;
use steward_aws::{
    AwsPorts, Config,
    bus::EventBridgeBus,
    channel,
    config::{HumanDuration, QueueNames},
    definitions::DynamoDefinitions,
    publisher::Publisher,
    rules::TriggerRules,
    store::DynamoStore,
};
use steward_core::{model::names::AgentName, submission::ReplyQueues};
use steward_emulator::resources;
use steward_runtime::ports::PortError;

/// Messages in one request, by SQS's limit.
pub(crate) const BATCH: usize = 10;

/// Which deployment to talk to. The defaults are the names that `steward local` uses. Region,
/// credentials and endpoint come from the AWS environment variables and profile.
#[derive(Debug, Args)]
pub(crate) struct Deployment {
    /// The state store's table.
    #[arg(long, env = "STEWARD_TASKS_TABLE", default_value = resources::TASKS_TABLE)]
    tasks_table: String,
    /// The table of documents.
    #[arg(long, env = "STEWARD_DOCUMENTS_TABLE", default_value = resources::DOCUMENTS_TABLE)]
    documents_table: String,
    /// The table of definitions.
    #[arg(long, env = "STEWARD_WORKFLOWS_TABLE", default_value = resources::WORKFLOWS_TABLE)]
    workflows_table: String,
    /// The submissions queue, by name or URL.
    #[arg(long, env = "STEWARD_SUBMISSIONS_QUEUE_URL", default_value = resources::SUBMISSIONS_QUEUE)]
    submissions_queue: String,
    /// The scheduler's queue, by name or URL: operators' commands go there.
    #[arg(long, env = "STEWARD_SCHEDULER_QUEUE_URL", default_value = resources::SCHEDULER_QUEUE)]
    scheduler_queue: String,
    /// The event bus: the rules of workflows' triggers are made there.
    #[arg(long, env = "STEWARD_EVENT_BUS", default_value = resources::EVENT_BUS)]
    event_bus: String,
    /// Where refused submissions are kept, by name or URL.
    #[arg(long, env = "STEWARD_REJECTED_QUEUE_URL", default_value = resources::REJECTED_QUEUE)]
    rejected_queue: String,
    /// The agents' queues, by name or URL, with {agent} for an agent's name.
    #[arg(long, env = "STEWARD_AGENT_QUEUE_URL", default_value = resources::AGENT_QUEUE)]
    agent_queue: String,
    /// Shards of the due index: as many as the deployment has, or more.
    #[arg(long, env = "STEWARD_SHARDS", default_value_t = resources::SHARDS)]
    shards: NonZeroU32,
    /// The queues of dead letters, by name or URL, separated by commas; those of the deployment's queues if absent.
    #[arg(long, env = "STEWARD_DEAD_LETTER_QUEUES")]
    dead_letter_queues: Option<QueueNames>,
}

impl Deployment {
    /// The state store, to read.
    pub(crate) async fn store(&self) -> DynamoStore {
        let client = aws_sdk_dynamodb_client(&sdk_config().await);
        // A reader makes no index entries and sets no expiry.
        let (shards, retention) = (std::num::NonZeroU32::MIN, std::time::Duration::ZERO);
        let (tasks, documents) = (self.tasks_table.clone(), self.documents_table.clone());
        DynamoStore::new(client, tasks, documents, shards, retention)
    }

    /// All ports, as a function has them.
    pub(crate) async fn ports(&self, role: &str) -> Result<AwsPorts> {
        let (sdk, sqs) = (sdk_config().await, sqs().await);
        let scheduler_queue_url = queue_url(&sqs, &self.scheduler_queue).await?;
        let base = scheduler_queue_url.rsplit_once('/').map_or("", |(base, _)| base);
        let agent_queue_url = match self.agent_queue.contains("://") {
            true => self.agent_queue.parse()?,
            false => format!("{base}/{}", self.agent_queue).parse()?,
        };
        let config = Config {
            tasks_table: self.tasks_table.clone(),
            documents_table: self.documents_table.clone(),
            workflows_table: self.workflows_table.clone(),
            submissions_queue_url: queue_url(&sqs, &self.submissions_queue).await?,
            rejected_queue_url: queue_url(&sqs, &self.rejected_queue).await?,
            scheduler_queue_url,
            agent_queue_url,
            dead_letter_queues: match &self.dead_letter_queues {
                Some(urls) => urls.clone(),
                None => dead_letter_queues(&sqs).await?,
            },
            reply_queues: ReplyQueues::default(),
            event_bus: self.event_bus.clone(),
            shards: self.shards,
            // These are those of functions that write tasks.
            retention: HumanDuration(Duration::ZERO),
            clock_skew: HumanDuration(Duration::ZERO),
            pickup_within: HumanDuration(Duration::ZERO),
        };
        Ok(AwsPorts::new(&sdk, &config, role))
    }

    /// The published definitions.
    pub(crate) async fn definitions(&self) -> DynamoDefinitions {
        let client = aws_sdk_dynamodb_client(&sdk_config().await);
        DynamoDefinitions::new(client, self.workflows_table.clone())
    }

    /// What publishes definitions, and ends their publication.
    pub(crate) async fn publisher(&self) -> Publisher {
        let sdk = sdk_config().await;
        let (events, sqs) = (aws_sdk_eventbridge::Client::new(&sdk), Client::new(&sdk));
        let (bus, submissions) = (self.event_bus.clone(), self.submissions_queue.clone());
        let rules = TriggerRules::new(events, sqs, bus, submissions);
        Publisher { definitions: self.definitions().await, store: self.store().await, rules }
    }

    /// The name of an agent's queue.
    pub(crate) fn agent_queue_name(&self, agent: &AgentName) -> String {
        channel::name_of(&self.agent_queue).replace("{agent}", agent.as_str())
    }

    /// Whether an agent has a queue.
    pub(crate) async fn has_agent_queue(&self, agent: &AgentName) -> Result<bool, PortError> {
        let url = channel::queue_url(&sqs().await, &self.agent_queue_name(agent)).await?;
        Ok(url.is_some())
    }

    /// The submissions queue, to send to.
    pub(crate) async fn submissions(&self) -> Result<QueueSender> {
        QueueSender::find(&self.submissions_queue).await
    }

    /// The scheduler's queue, to send to.
    pub(crate) async fn scheduler(&self) -> Result<QueueSender> {
        QueueSender::find(&self.scheduler_queue).await
    }
}

/// A client for queues.
pub(crate) async fn sqs() -> Client {
    Client::new(&sdk_config().await)
}

/// The event bus of this name.
pub(crate) async fn event_bus(name: &str) -> EventBridgeBus {
    EventBridgeBus::new(aws_sdk_eventbridge::Client::new(&sdk_config().await), name.to_owned())
}

/// The queues of dead letters that are called as `steward local` calls them.
async fn dead_letter_queues(client: &Client) -> Result<QueueNames> {
    let found = client.list_queues().queue_name_prefix("steward-").max_results(1_000);
    let urls = found.into_paginator().items().send().try_collect().await;
    let urls: Vec<String> = urls.context("list queues")?;
    let are_dead_letters = |url: &String| url.ends_with(resources::DEAD_LETTERS);
    Ok(QueueNames(urls.into_iter().filter(are_dead_letters).collect()))
}

/// The URL of a queue, given by name or URL.
pub(crate) async fn queue_url(client: &Client, name_or_url: &str) -> Result<String> {
    let url = channel::queue_url(client, name_or_url).await?;
    url.with_context(|| format!("there is no queue `{name_or_url}`"))
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

    /// Sends up to [`BATCH`] messages in one request; says of each why the queue refused it, if it
    /// did.
    pub(crate) async fn send(&self, messages: &[String]) -> Result<Vec<Option<String>>> {
        let entries = messages.iter().enumerate().map(|(n, text)| {
            SendMessageBatchRequestEntry::builder().id(n.to_string()).message_body(text).build()
        });
        let entries = entries.collect::<Result<_, _>>()?;
        let request =
            self.client.send_message_batch().queue_url(&self.url).set_entries(Some(entries));
        let answer = request.send().await.with_context(|| format!("send to {}", self.url))?;
        let refused = |n: usize| {
            let failed = answer.failed().iter().find(|failed| failed.id() == n.to_string())?;
            Some(failed.message().unwrap_or(failed.code()).to_owned())
        };
        Ok((0..messages.len()).map(refused).collect())
    }
}

fn aws_sdk_dynamodb_client(sdk: &SdkConfig) -> steward_aws::store::Client {
    steward_aws::store::Client::new(sdk)
}

/// The AWS environment. At another endpoint than AWS, region and credentials are formalities.
pub(crate) async fn sdk_config() -> SdkConfig {
    let set = |name| std::env::var_os(name).is_some();
    let mut loader = aws_config::defaults(BehaviorVersion::latest());
    if set("AWS_ENDPOINT_URL") {
        if !set("AWS_REGION") && !set("AWS_DEFAULT_REGION") {
            loader = loader.region(Region::from_static("us-east-1"));
        }
        if !set("AWS_ACCESS_KEY_ID") && !set("AWS_PROFILE") {
            loader = loader.test_credentials();
        }
    }
    loader.load().await
}
