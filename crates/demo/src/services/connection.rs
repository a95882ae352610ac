//! What the services need of Steward to act on their own: queues that they read, the event bus, the console and the tasks.

use std::time::Duration;

use anyhow::{Context, Result};
use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_sdk_sqs::config::{Credentials, SharedCredentialsProvider};
use aws_sdk_sqs::types::QueueAttributeName;

use super::demo_service::DemoService;

/// The longest time of a request over HTTP.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// The connection of the services to one installation of Steward.
#[derive(Debug, Clone)]
pub struct StewardConnection {
    pub(super) sqs: aws_sdk_sqs::Client,
    pub(super) events: aws_sdk_eventbridge::Client,
    pub(super) event_bus: String,
    /// The URL of the console and of `GET /tasks/{id}`, without a trailing slash.
    pub(super) base_url: String,
    /// Whether a simulated manager decides on purchases in the console. Otherwise, a person does.
    pub(super) has_manager: bool,
}

impl StewardConnection {
    /// A connection to the queues and the bus that `sdk` reaches, and to the console at `base_url`.
    #[must_use]
    pub fn new(sdk: &SdkConfig, event_bus: &str, base_url: &str, has_manager: bool) -> Self {
        Self {
            sqs: aws_sdk_sqs::Client::new(sdk),
            events: aws_sdk_eventbridge::Client::new(sdk),
            event_bus: event_bus.to_owned(),
            base_url: base_url.to_owned(),
            has_manager,
        }
    }

    /// A connection to a running `steward local`, which serves the AWS APIs and the console at one address.
    #[must_use]
    pub fn local(base_url: &str, event_bus: &str, has_manager: bool) -> Self {
        let credentials = Credentials::new("demo-services", "local", None, None, "steward-demo");
        let sdk = SdkConfig::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::from_static("us-east-1"))
            .credentials_provider(SharedCredentialsProvider::new(credentials))
            .endpoint_url(base_url)
            .build();
        Self::new(&sdk, event_bus, base_url, has_manager)
    }

    /// The URL of the queue that the service reads.
    pub(super) async fn queue_url(&self, queue: &str) -> Result<String> {
        let found = self.sqs.get_queue_url().queue_name(queue).send().await;
        let found = found.with_context(|| format!("look up the queue {queue}"))?;
        found.queue_url.with_context(|| format!("the queue {queue} has no URL"))
    }

    /// The number of messages in the queue of the service, also of those that were received and not deleted.
    pub(super) async fn messages(&self, service: DemoService) -> Result<u64> {
        let Some(queue) = service.queue() else { return Ok(0) };
        let url = self.queue_url(queue).await?;
        let counts = [
            QueueAttributeName::ApproximateNumberOfMessages,
            QueueAttributeName::ApproximateNumberOfMessagesNotVisible,
        ];
        let request = self.sqs.get_queue_attributes().queue_url(url);
        let response = request.set_attribute_names(Some(counts.to_vec())).send().await;
        let attributes = response.with_context(|| format!("count the messages of {queue}"))?;
        let attributes = attributes.attributes.unwrap_or_default();
        let count = |name| attributes.get(name).and_then(|count| count.parse::<u64>().ok());
        let counts = counts.iter().map(count).collect::<Option<Vec<_>>>();
        Ok(counts.with_context(|| format!("{queue} has no message counts"))?.iter().sum())
    }
}

/// A client for requests to Steward.
///
/// # Errors
/// The TLS back end could not be initialised.
pub(super) fn http_client() -> reqwest::Result<reqwest::Client> {
    reqwest::Client::builder()
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .timeout(REQUEST_TIMEOUT)
        .build()
}
