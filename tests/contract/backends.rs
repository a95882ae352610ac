//! The backends that the contract runs on, and access to what they send and publish.
//!
//! The AWS adapters run over the embedded AWS, or over an emulator: `STEWARD_CONTRACT_ENDPOINT` is `http://HOST:PORT`
//! for all services, or `env` for the endpoints in `AWS_ENDPOINT_URL` and the variables of the services, with the
//! syntax of `--aws-endpoint`. Each backend uses its own account there.

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
use steward_aws::{AwsPorts, Config, definitions::PublishError, meter::AwsMeter};
use steward_core::{definition::workflow::Workflow, model::time::Timing};
use steward_emulator::{
    embedded::{EmbeddedAws, ExternalEndpoints},
    resources,
};
use steward_runtime::ports::{Ports, Queue};
use steward_test_world::MemoryPorts;

/// The environment variable with the endpoint of the emulator.
const ENDPOINT: &str = "STEWARD_CONTRACT_ENDPOINT";

/// The longest time that an event may take to arrive in a queue.
const EVENTS_WITHIN: Duration = Duration::from_secs(20);

/// A message as its receiver reads it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct QueuedMessage {
    pub(super) body: String,
    /// Name and value, sorted by name.
    pub(super) attributes: Vec<(String, String)>,
}

/// An implementation of the ports. It starts empty, with the queues `scheduler` and `rejected`, the queue of agent `a`,
/// and a client's queue.
pub(super) trait Backend: Sized {
    type Ports: Ports + Clone + 'static;

    async fn open() -> Self;

    fn ports(&self) -> &Self::Ports;

    /// The ports of another instance, with empty caches.
    fn another_instance(&self) -> Self::Ports;

    async fn publish_definition(&self, workflow: &Workflow) -> Result<(), PublishError>;

    async fn unpublish_definition(&self, name: &str, version: u32) -> bool;

    /// The client's queue.
    fn client_queue(&self) -> Queue;

    /// A client's queue that does not exist.
    fn missing_queue(&self) -> Queue;

    /// Receives and deletes all messages of a queue.
    async fn take_messages(&self, queue: &Queue) -> Vec<QueuedMessage>;

    /// Takes the published events, as pairs of detail type and detail. Waits for at least `count` events.
    async fn take_events(&self, count: usize) -> Vec<(String, Value)>;
}

/// The in-memory ports.
pub(super) struct InMemoryBackend {
    ports: MemoryPorts,
}

impl Backend for InMemoryBackend {
    type Ports = MemoryPorts;

    async fn open() -> Self {
        let timing = Timing {
            pickup_within: Duration::from_secs(60),
            clock_skew: Duration::ZERO,
            retention: Timing::RETENTION,
        };
        let ports = MemoryPorts::new(timing, NonZeroU32::new(4).unwrap());
        ports.channel().delete_queue(&Queue::Client("gone".to_owned()));
        // The other backends use the current time.
        ports.clock().set(Timestamp::now());
        Self { ports }
    }

    fn ports(&self) -> &MemoryPorts {
        &self.ports
    }

    fn another_instance(&self) -> Self::Ports {
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

    async fn take_messages(&self, queue: &Queue) -> Vec<QueuedMessage> {
        let messages = self.ports.channel().take(queue).into_iter().map(|message| {
            let attributes = message.attributes.into_iter();
            let mut attributes: Vec<_> =
                attributes.map(|(name, text)| (name.to_owned(), text)).collect();
            attributes.sort();
            QueuedMessage { body: message.body, attributes }
        });
        messages.collect()
    }

    async fn take_events(&self, _count: usize) -> Vec<(String, Value)> {
        let events = self.ports.bus().take().into_iter();
        events
            .map(|event| (event.detail_type().to_owned(), serde_json::to_value(&event).unwrap()))
            .collect()
    }
}

/// The AWS adapters with the SDK's clients, over the embedded AWS or an emulator.
pub(super) struct AwsBackend {
    ports: AwsPorts,
    /// Counts the requests of the adapters.
    pub(super) meter: AwsMeter,
    pub(super) aws: EmbeddedAws,
    pub(super) config: Config,
    client_queue_url: String,
}

impl AwsBackend {
    /// Over the embedded AWS, even if the environment names an emulator.
    pub(super) async fn open_in_process() -> Self {
        Self::open_over(EmbeddedAws::in_memory().unwrap()).await
    }

    async fn open_over(aws: EmbeddedAws) -> Self {
        let config = resources::create(&aws, &["a".parse().unwrap()]).await.unwrap();
        let sdk = aws.sdk_config();
        let client_queue_url = resources::create_queue(&sdk, "client-x", None).await.unwrap();
        let meter = AwsMeter::default();
        let interceptors =
            vec![SharedInterceptor::new(meter.clone()), SharedInterceptor::new(BatchLimits)];
        let ports = AwsPorts::with_interceptors(&sdk, &config, "contract", interceptors);
        Self { ports, meter, aws, config, client_queue_url }
    }

    /// Takes messages from the queue at this URL until it is empty and at least `count` arrived, or time is up.
    async fn take_from(&self, url: &str, count: usize) -> Vec<QueuedMessage> {
        let (sqs, deadline) =
            (aws_sdk_sqs::Client::new(&self.aws.sdk_config()), Instant::now() + EVENTS_WITHIN);
        let mut taken = Vec::new();
        loop {
            let seconds = i32::from(taken.len() < count);
            let receive = sqs.receive_message().queue_url(url).max_number_of_messages(10);
            let receive = receive.wait_time_seconds(seconds).message_attribute_names("All");
            let received = receive.send().await.unwrap().messages.unwrap_or_default();
            let is_late = Instant::now() > deadline;
            if received.is_empty() && (taken.len() >= count || is_late) {
                return taken;
            }
            for message in received {
                let receipt = message.receipt_handle.unwrap();
                sqs.delete_message().queue_url(url).receipt_handle(receipt).send().await.unwrap();
                let attributes = message.message_attributes.unwrap_or_default().into_iter();
                let mut attributes: Vec<_> =
                    attributes.map(|(name, value)| (name, value.string_value.unwrap())).collect();
                attributes.sort();
                taken.push(QueuedMessage { body: message.body.unwrap(), attributes });
            }
        }
    }

    fn queue_url(&self, queue: &Queue) -> String {
        match queue {
            Queue::Submissions => self.config.submissions_queue_url.clone(),
            Queue::Scheduler => self.config.scheduler_queue_url.clone(),
            Queue::Commands => self.config.commands_queue_url.clone(),
            Queue::Events => self.config.events_queue_url.clone(),
            Queue::Rejected => self.config.rejected_queue_url.clone(),
            Queue::Agent(agent) => self.config.agent_queue_url.of(agent),
            Queue::Client(url) => url.clone(),
            Queue::Sweeps => self.config.sweeps_queue_url.clone(),
        }
    }
}

impl Backend for AwsBackend {
    type Ports = AwsPorts;

    async fn open() -> Self {
        let mut builder = EmbeddedAws::builder();
        if let Ok(endpoint) = env::var(ENDPOINT) {
            let endpoints =
                ExternalEndpoints::from_option(&endpoint, |name| env::var(name).ok()).unwrap();
            builder = builder.external_endpoints(endpoints.in_new_account());
        }
        Self::open_over(builder.build().unwrap()).await
    }

    fn ports(&self) -> &AwsPorts {
        &self.ports
    }

    fn another_instance(&self) -> Self::Ports {
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

    async fn take_messages(&self, queue: &Queue) -> Vec<QueuedMessage> {
        self.take_from(&self.queue_url(queue), 0).await
    }

    /// Takes the events that the bus's rule delivered to the queue of alerts.
    async fn take_events(&self, count: usize) -> Vec<(String, Value)> {
        let queue = resources::ALERTS_QUEUE;
        let url = self.config.scheduler_queue_url.replace(resources::SCHEDULER_QUEUE, queue);
        let taken =
            self.take_from(&url, count).await.into_iter().map(|QueuedMessage { body, .. }| {
                let event: Value = serde_json::from_str(&body).unwrap();
                assert_eq!(event["source"], steward_aws::bus::EVENT_SOURCE);
                (event["detail-type"].as_str().unwrap().to_owned(), event["detail"].clone())
            });
        taken.collect()
    }
}

/// Rejects batches of more than ten messages, as SQS does, and batches of more than 256 KiB: SQS's limit until August
/// 2025, and the adapter's own limit.
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
        let bytes: usize = batch.entries().iter().map(message_size).sum();
        if batch.entries().len() > 10 || bytes > 256 * 1024 {
            return Err(format!("{} messages, {bytes} bytes", batch.entries().len()).into());
        }
        Ok(())
    }
}

/// The size of a message as SQS counts it: the body, and the names, types and values of its attributes.
fn message_size(entry: &SendMessageBatchRequestEntry) -> usize {
    let attributes = entry.message_attributes().into_iter().flatten();
    let attributes = attributes.map(|(name, value)| {
        name.len() + value.data_type().len() + value.string_value().map_or(0, str::len)
    });
    entry.message_body().len() + attributes.sum::<usize>()
}
