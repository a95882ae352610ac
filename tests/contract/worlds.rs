//! The two worlds that the contract holds in, and what their outsides look like.

use std::{num::NonZeroU32, sync::Mutex, time::Duration};

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
use steward_core::{
    ports::{Ports, Queue, Timing},
    workflow::Workflow,
};
use steward_local::{embedded::EmbeddedAws, memory::MemoryPorts, resources};
use tokio::sync::broadcast;

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

    /// Takes what was published: kind and content.
    async fn published(&self) -> Vec<(String, Value)>;
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

    async fn published(&self) -> Vec<(String, Value)> {
        let events = self.ports.bus().take().into_iter();
        events
            .map(|event| {
                (event.data.detail_type().to_owned(), serde_json::to_value(&event).unwrap())
            })
            .collect()
    }
}

/// The AWS adapters and the SDK's clients, over the embedded AWS.
pub(super) struct Embedded {
    ports: AwsPorts,
    /// What the adapters used.
    pub(super) meter: Meter,
    pub(super) aws: EmbeddedAws,
    pub(super) config: Config,
    client_queue_url: String,
    events: Mutex<broadcast::Receiver<Value>>,
}

impl Embedded {
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
        let aws = EmbeddedAws::in_memory().unwrap();
        let events = Mutex::new(aws.subscribe_events());
        let config = resources::create(&aws, &["a".parse().unwrap()]).await.unwrap();
        let sdk = aws.sdk_config();
        let client_queue_url = resources::create_queue(&sdk, "client-x", None).await.unwrap();
        let meter = Meter::default();
        let interceptors =
            vec![SharedInterceptor::new(meter.clone()), SharedInterceptor::new(BatchLimits)];
        let ports = AwsPorts::observed(&sdk, &config, "contract", interceptors);
        Self { ports, meter, aws, config, client_queue_url, events }
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
        let (sqs, url) = (aws_sdk_sqs::Client::new(&self.aws.sdk_config()), self.queue_url(queue));
        let mut sent = Vec::new();
        loop {
            let receive = sqs.receive_message().queue_url(&url).max_number_of_messages(10);
            let received = receive.message_attribute_names("All").send().await.unwrap();
            if received.messages().is_empty() {
                return sent;
            }
            for message in received.messages.unwrap() {
                let receipt = message.receipt_handle.unwrap();
                sqs.delete_message().queue_url(&url).receipt_handle(receipt).send().await.unwrap();
                let attributes = message.message_attributes.unwrap_or_default().into_iter();
                let mut attributes: Vec<_> =
                    attributes.map(|(name, value)| (name, value.string_value.unwrap())).collect();
                attributes.sort();
                sent.push(Sent { body: message.body.unwrap(), attributes });
            }
        }
    }

    async fn published(&self) -> Vec<(String, Value)> {
        let mut events = self.events.lock().unwrap();
        let taken = std::iter::from_fn(|| events.try_recv().ok()).map(|event| {
            assert_eq!(event["source"], steward_aws::bus::SOURCE);
            (event["detail-type"].as_str().unwrap().to_owned(), event["detail"].clone())
        });
        taken.collect()
    }
}

/// Refuses what SQS and its stricter emulators refuse of a whole batch, and the embedded one does
/// not: more than ten messages, or more than 256 KiB together.
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
