//! The two worlds that the contract holds in, and what their outsides look like.
//!
//! The AWS adapters run over the embedded AWS, or over an emulator: `STEWARD_CONTRACT_ENDPOINT` is `http://HOST:PORT`
//! for all services, or `env` for those that `AWS_ENDPOINT_URL` and the variables of the services name, as
//! `--aws-endpoint` takes them. Each world has an account of its own there.

use std::{
    env,
    num::NonZeroU32,
    time::{Duration, Instant},
};

use aws_sdk_sqs::{
    config::{
        ConfigBag, Intercept, RuntimeComponents, SharedInterceptor,
        interceptors::BeforeSerializationInterceptorContextRef,
    },
    operation::send_message_batch::SendMessageBatchInput,
    types::SendMessageBatchRequestEntry,
};
use jiff::Timestamp;
use serde_json::Value;
use steward_aws::{AwsPorts, Config, definitions::PublishError, meter::Meter};
use steward_core::{definition::workflow::Workflow, model::time::Timing};
use steward_emulator::{
    embedded::{EmbeddedAws, Endpoints},
    resources,
};
use steward_runtime::ports::{Ports, Queue};
use steward_testkit::memory::MemoryPorts;

/// Names the emulator that the adapters run over.
const ENDPOINT: &str = "STEWARD_CONTRACT_ENDPOINT";

/// How long an event may be on its way to a queue.
const EVENTS_WITHIN: Duration = Duration::from_secs(20);

/// What an agent or a client finds in a queue.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Sent {
    pub(super) body: String,
    /// By name.
    pub(super) attributes: Vec<(String, String)>,
}

/// A new and empty world behind the ports, with the queues `scheduler`, `rejected`, agent `a`'s and
/// a client's.
pub(super) trait World: Sized {
    type Ports: Ports + Clone + 'static;

    async fn open() -> Self;

    fn ports(&self) -> &Self::Ports;

    /// The ports of another instance, which knows nothing of what the first one has seen.
    fn another(&self) -> Self::Ports;

    async fn publish_definition(&self, workflow: &Workflow) -> Result<(), PublishError>;

    async fn unpublish_definition(&self, name: &str, version: u32) -> bool;

    /// The client's queue.
    fn client_queue(&self) -> Queue;

    /// A client's queue that is not there.
    fn missing_queue(&self) -> Queue;

    /// Takes what is in a queue.
    async fn sent(&self, queue: &Queue) -> Vec<Sent>;

    /// Takes what was published, kind and content: waits until so many events have come, and takes what has come
    /// beyond that.
    async fn published(&self, count: usize) -> Vec<(String, Value)>;
}

/// Everything in memory.
pub(super) struct Memory {
    ports: MemoryPorts,
}

impl World for Memory {
    type Ports = MemoryPorts;

    async fn open() -> Self {
        let timing = Timing {
            pickup_within: Duration::from_secs(60),
            clock_skew: Duration::ZERO,
            retention: Timing::RETENTION,
        };
        let ports = MemoryPorts::new(timing, NonZeroU32::new(4).unwrap());
        ports.channel().delete_queue(&Queue::Client("gone".to_owned()));
        // As the other worlds have it.
        ports.clock().set(Timestamp::now());
        Self { ports }
    }

    fn ports(&self) -> &MemoryPorts {
        &self.ports
    }

    fn another(&self) -> MemoryPorts {
        self.ports.with_instance("another")
    }

    async fn publish_definition(&self, workflow: &Workflow) -> Result<(), PublishError> {
        self.ports.definitions().publish(workflow)
    }

    async fn unpublish_definition(&self, name: &str, version: u32) -> bool {
        self.ports.definitions().unpublish(&name.parse().unwrap(), version)
    }

    fn client_queue(&self) -> Queue {
        Queue::Client("client-x".to_owned())
    }

    fn missing_queue(&self) -> Queue {
        Queue::Client("gone".to_owned())
    }

    async fn sent(&self, queue: &Queue) -> Vec<Sent> {
        let sent = self.ports.channel().take(queue).into_iter().map(|message| {
            let attributes = message.attributes.into_iter();
            let mut attributes: Vec<_> =
                attributes.map(|(name, text)| (name.to_owned(), text)).collect();
            attributes.sort();
            Sent { body: message.body, attributes }
        });
        sent.collect()
    }

    async fn published(&self, _count: usize) -> Vec<(String, Value)> {
        let events = self.ports.bus().take().into_iter();
        events
            .map(|event| {
                (event.data.detail_type().to_owned(), serde_json::to_value(&event).unwrap())
            })
            .collect()
    }
}

/// The AWS adapters and the SDK's clients, over the embedded AWS or an emulator.
pub(super) struct Embedded {
    ports: AwsPorts,
    /// What the adapters used.
    pub(super) meter: Meter,
    pub(super) aws: EmbeddedAws,
    pub(super) config: Config,
    client_queue_url: String,
}

impl Embedded {
    /// Over the embedded AWS, whatever the environment says.
    pub(super) async fn open_in_process() -> Self {
        Self::open_over(EmbeddedAws::in_memory().unwrap()).await
    }

    async fn open_over(aws: EmbeddedAws) -> Self {
        let config = resources::create(&aws, &["a".parse().unwrap()]).await.unwrap();
        let sdk = aws.sdk_config();
        let client_queue_url = resources::create_queue(&sdk, "client-x", None).await.unwrap();
        let meter = Meter::default();
        let interceptors =
            vec![SharedInterceptor::new(meter.clone()), SharedInterceptor::new(BatchLimits)];
        let ports = AwsPorts::observed(&sdk, &config, "contract", interceptors);
        Self { ports, meter, aws, config, client_queue_url }
    }

    /// Takes messages, bodies and attributes, from the queue at this URL until `wanted` have come and there are no
    /// more.
    async fn take(&self, url: &str, wanted: usize) -> Vec<Sent> {
        let (sqs, deadline) =
            (aws_sdk_sqs::Client::new(&self.aws.sdk_config()), Instant::now() + EVENTS_WITHIN);
        let mut sent = Vec::new();
        loop {
            let seconds = i32::from(sent.len() < wanted);
            let receive = sqs.receive_message().queue_url(url).max_number_of_messages(10);
            let receive = receive.wait_time_seconds(seconds).message_attribute_names("All");
            let received = receive.send().await.unwrap().messages.unwrap_or_default();
            let is_late = Instant::now() > deadline;
            if received.is_empty() && (sent.len() >= wanted || is_late) {
                return sent;
            }
            for message in received {
                let receipt = message.receipt_handle.unwrap();
                sqs.delete_message().queue_url(url).receipt_handle(receipt).send().await.unwrap();
                let attributes = message.message_attributes.unwrap_or_default().into_iter();
                let mut attributes: Vec<_> =
                    attributes.map(|(name, value)| (name, value.string_value.unwrap())).collect();
                attributes.sort();
                sent.push(Sent { body: message.body.unwrap(), attributes });
            }
        }
    }

    fn queue_url(&self, queue: &Queue) -> String {
        match queue {
            Queue::Submissions => self.config.submissions_queue_url.clone(),
            Queue::Scheduler => self.config.scheduler_queue_url.clone(),
            Queue::Rejected => self.config.rejected_queue_url.clone(),
            Queue::Agent(agent) => self.config.agent_queue_url.of(agent),
            Queue::Client(url) => url.clone(),
        }
    }
}

impl World for Embedded {
    type Ports = AwsPorts;

    async fn open() -> Self {
        let mut builder = EmbeddedAws::builder();
        if let Ok(endpoint) = env::var(ENDPOINT) {
            let endpoints = Endpoints::from_option(&endpoint, |name| env::var(name).ok()).unwrap();
            builder = builder.external(endpoints.in_new_account());
        }
        Self::open_over(builder.build().unwrap()).await
    }

    fn ports(&self) -> &AwsPorts {
        &self.ports
    }

    fn another(&self) -> AwsPorts {
        AwsPorts::new(&self.aws.sdk_config(), &self.config, "another")
    }

    async fn publish_definition(&self, workflow: &Workflow) -> Result<(), PublishError> {
        self.ports.definitions().publish(workflow).await
    }

    async fn unpublish_definition(&self, name: &str, version: u32) -> bool {
        self.ports.definitions().unpublish(&name.parse().unwrap(), version).await.unwrap()
    }

    fn client_queue(&self) -> Queue {
        Queue::Client(self.client_queue_url.clone())
    }

    fn missing_queue(&self) -> Queue {
        Queue::Client(self.client_queue_url.replace("client-x", "gone"))
    }

    async fn sent(&self, queue: &Queue) -> Vec<Sent> {
        self.take(&self.queue_url(queue), 0).await
    }

    /// What the rule of the bus has put in the queue of alerts.
    async fn published(&self, count: usize) -> Vec<(String, Value)> {
        let queue = resources::ALERTS_QUEUE;
        let url = self.config.scheduler_queue_url.replace(resources::SCHEDULER_QUEUE, queue);
        let taken = self.take(&url, count).await.into_iter().map(|Sent { body, .. }| {
            let event: Value = serde_json::from_str(&body).unwrap();
            assert_eq!(event["source"], steward_aws::bus::SOURCE);
            (event["detail-type"].as_str().unwrap().to_owned(), event["detail"].clone())
        });
        taken.collect()
    }
}

/// Refuses more than ten messages in one batch, as SQS does, and more than 256 KiB together, which was SQS's limit
/// until August 2025 and is the adapter's own.
#[derive(Debug)]
struct BatchLimits;

impl Intercept for BatchLimits {
    fn name(&self) -> &'static str {
        "batch limits"
    }

    fn read_before_serialization(
        &self,
        context: &BeforeSerializationInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let Some(batch) = context.input().downcast_ref::<SendMessageBatchInput>() else {
            return Ok(());
        };
        let bytes: usize = batch.entries().iter().map(size).sum();
        if batch.entries().len() > 10 || bytes > 256 * 1024 {
            return Err(format!("{} messages, {bytes} bytes", batch.entries().len()).into());
        }
        Ok(())
    }
}

/// As SQS counts it: the body, and names, types and values of attributes.
fn size(entry: &SendMessageBatchRequestEntry) -> usize {
    let attributes = entry.message_attributes().into_iter().flatten();
    let attributes = attributes.map(|(name, value)| {
        name.len() + value.data_type().len() + value.string_value().map_or(0, str::len)
    });
    entry.message_body().len() + attributes.sum::<usize>()
}
