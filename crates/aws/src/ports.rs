//! All ports of one function instance. The AWS clients are built once.

use std::{
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use aws_config::{SdkConfig, retry::RetryConfig};
pub use aws_smithy_runtime_api::client::interceptors::SharedInterceptor;
use jiff::Timestamp;
use steward_core::{callback_url::CallbackUrls, model::time::Timing};
use steward_runtime::{
    payloads::PayloadStore,
    ports::{Clock, Ports},
};

use crate::{
    bus::EventBridgeBus,
    channel::{QueueUrls, SqsChannel},
    config::Config,
    definitions::DynamoDefinitions,
    payloads::S3Payloads,
    store::{DynamoStore, ThrottleCounter},
};

/// The maximum number of attempts at a request to DynamoDB. Throttling may last only milliseconds, until a partition is
/// split or the current second ends.
const ATTEMPTS_MAX: u32 = 6;

/// The upper bound of the first pause before a retry. It doubles with each further pause. The default of the SDK is one
/// second, which is as long as all writes of a step take together.
const FIRST_PAUSE: Duration = Duration::from_millis(50);

/// The ports on AWS, or on an emulator if the SDK configuration names its endpoint.
#[derive(Debug, Clone)]
pub struct AwsPorts {
    store: DynamoStore,
    definitions: DynamoDefinitions,
    channel: SqsChannel,
    bus: EventBridgeBus,
    timing: Timing,
    instance: String,
    callback_urls: Option<SharedCallbackUrls>,
    payloads: Option<S3Payloads>,
}

/// The current keys of callback URLs, shared by those who use and replace them.
pub type SharedCallbackUrls = Shared<CallbackUrls>;

/// A value that is replaced while others use it.
#[derive(Debug, Clone)]
pub struct Shared<T>(Arc<RwLock<Arc<T>>>);

impl<T> Shared<T> {
    /// Shares this value.
    #[must_use]
    pub fn new(value: T) -> Self {
        Self(Arc::new(RwLock::new(Arc::new(value))))
    }

    /// The current value.
    #[must_use]
    pub fn current(&self) -> Arc<T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the value.
    pub fn replace(&self, value: T) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(value);
    }
}

impl AwsPorts {
    /// Builds the clients. The name of the instance, for `locked_by` and logs, consists of `role` and a random suffix.
    #[must_use]
    pub fn new(sdk: &SdkConfig, config: &Config, role: &str) -> Self {
        Self::with_interceptors(sdk, config, role, Vec::new())
    }

    /// Like [`new`](Self::new), with interceptors for every request to AWS, for example a [`meter`](crate::meter).
    #[must_use]
    pub fn with_interceptors(
        sdk: &SdkConfig,
        config: &Config,
        role: &str,
        interceptors: Vec<SharedInterceptor>,
    ) -> Self {
        let payloads = S3Payloads::configured(sdk, config, interceptors.clone());
        Self { payloads, ..Self::without_s3(sdk, config, role, interceptors) }
    }

    /// Like [`new`](Self::new), for a function that reads and writes no payloads: its binary contains no client of S3.
    #[must_use]
    pub fn without_payloads(sdk: &SdkConfig, config: &Config, role: &str) -> Self {
        Self::without_s3(sdk, config, role, Vec::new())
    }

    fn without_s3(
        sdk: &SdkConfig,
        config: &Config,
        role: &str,
        interceptors: Vec<SharedInterceptor>,
    ) -> Self {
        let mut dynamodb = aws_sdk_dynamodb::config::Builder::from(sdk);
        if sdk.retry_config().is_none() {
            let retries = RetryConfig::standard().with_max_attempts(ATTEMPTS_MAX);
            dynamodb.set_retry_config(Some(retries.with_initial_backoff(FIRST_PAUSE)));
        }
        dynamodb.push_interceptor(SharedInterceptor::new(ThrottleCounter));
        let mut sqs = aws_sdk_sqs::config::Builder::from(sdk);
        let mut eventbridge = aws_sdk_eventbridge::config::Builder::from(sdk);
        for interceptor in interceptors {
            dynamodb.push_interceptor(interceptor.clone());
            sqs.push_interceptor(interceptor.clone());
            eventbridge.push_interceptor(interceptor);
        }
        let dynamodb = aws_sdk_dynamodb::Client::from_conf(dynamodb.build());
        let store = DynamoStore::new(
            dynamodb.clone(),
            config.tasks_table.clone(),
            config.documents_table.clone(),
            config.shards,
            config.retention.0,
        );
        let queues = QueueUrls {
            submissions: config.submissions_queue_url.clone(),
            scheduler: config.scheduler_queue_url.clone(),
            commands: config.commands_queue_url.clone(),
            events: config.events_queue_url.clone(),
            rejected: config.rejected_queue_url.clone(),
            agents: config.agent_queue_url.clone(),
            sweeps: config.sweeps_queue_url.clone(),
        };
        let dead_letters = config.dead_letter_queues.urls(&config.scheduler_queue_url);
        let sqs = aws_sdk_sqs::Client::from_conf(sqs.build());
        let channel = SqsChannel::new(sqs, queues, dead_letters);
        let eventbridge = aws_sdk_eventbridge::Client::from_conf(eventbridge.build());
        Self {
            store,
            definitions: DynamoDefinitions::new(dynamodb, config.workflows_table.clone()),
            channel,
            bus: EventBridgeBus::new(eventbridge, config.event_bus.clone()),
            timing: config.timing(),
            instance: instance_name(role),
            callback_urls: None,
            payloads: None,
        }
    }

    /// The same ports, with keys for the URLs of callbacks. Only the scheduler creates such URLs.
    #[must_use]
    pub fn with_callback_urls(self, urls: Option<SharedCallbackUrls>) -> Self {
        Self { callback_urls: urls, ..self }
    }
}

impl AwsPorts {
    /// The same ports for an invocation that runs beside others in this process. As on Lambda, each is an instance: one must not take
    /// what another has saved for its own.
    #[must_use]
    pub fn for_invocation(&self) -> Self {
        let role = self.instance.rsplit_once('-').map_or("", |(role, _)| role);
        Self { instance: instance_name(role), ..self.clone() }
    }

    /// The bucket of payloads, to stream them.
    #[must_use]
    pub fn bucket(&self) -> Option<&S3Payloads> {
        self.payloads.as_ref()
    }
}

/// The role and a random suffix.
fn instance_name(role: &str) -> String {
    format!("{role}-{:08x}", fastrand::u32(..))
}

impl Ports for AwsPorts {
    type Store = DynamoStore;
    type Definitions = DynamoDefinitions;
    type Channel = SqsChannel;
    type Bus = EventBridgeBus;
    type Clock = SystemClock;

    fn store(&self) -> &DynamoStore {
        &self.store
    }

    fn definitions(&self) -> &DynamoDefinitions {
        &self.definitions
    }

    fn channel(&self) -> &SqsChannel {
        &self.channel
    }

    fn bus(&self) -> &EventBridgeBus {
        &self.bus
    }

    fn clock(&self) -> &SystemClock {
        &SystemClock
    }

    fn timing(&self) -> Timing {
        self.timing
    }

    fn instance(&self) -> &str {
        &self.instance
    }

    fn payloads(&self) -> Option<&dyn PayloadStore> {
        self.payloads.as_ref().map(|payloads| payloads as &dyn PayloadStore)
    }

    fn callback_urls(&self) -> Option<Arc<CallbackUrls>> {
        self.callback_urls.as_ref().map(SharedCallbackUrls::current)
    }
}

/// The system clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    async fn sleep(&self, duration: std::time::Duration) {
        tokio::time::sleep(duration).await;
    }
}
