//! AWS in the process: DynamoDB, SQS and EventBridge behind the real SDK clients. A service with an external
//! [endpoint](Endpoints) is served there instead.
//!
//! The same handlers run here and on Lambda, through the same clients. No sockets are open unless the host
//! serves the HTTP endpoint:
//!
//! ```text
//! SDK client ── connector.rs ─┐                   ┌─ tables.rs   dynoxide (SQLite)
//!                             ├─ EmbeddedAws ─────┼─ queues.rs   memory, with a journal
//! aws cli, SDK ─ endpoint.rs ─┘     respond()     └─ events.rs   rules and subscribers in memory
//! ```
//!
//! Both entry points use AWS's JSON protocol: `x-amz-target` names the operation, the body is JSON.

mod connector;
mod data_dir;
mod endpoint;
mod events;
mod external;
mod queues;
mod response;
mod rules;
mod shortcuts;
mod table_layout;
mod tables;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use aws_config::{
    BehaviorVersion, Region, SdkConfig, identity::IdentityCache,
    stalled_stream_protection::StalledStreamProtectionConfig, timeout::TimeoutConfig,
};
use aws_lambda_events::sqs::SqsMessage;
use aws_sdk_dynamodb::config::{Credentials, SharedCredentialsProvider};
use bytes::Bytes;
use dynoxide::DynoxideError;
use serde_json::Value;
use tokio::sync::broadcast;

use data_dir::LockedDataDir;
use events::EventBuses;
pub use events::EventRule;
use external::RoutingClient;
pub use external::{AwsService, ExternalEndpoints, InvalidExternalEndpoints};
pub use queues::JournalError;
use queues::SqsQueues;
use response::ServiceResponse;
use tables::DynamoTables;

use crate::cpu::{CpuAccount, charged};

/// The AWS account of every embedded resource.
pub const ACCOUNT: &str = "000000000000";

/// The AWS region of every embedded resource.
pub const REGION: &str = "us-east-1";

/// The largest request body, in bytes. AWS allows 16 MiB on DynamoDB. Requests of this project are much smaller,
/// so a small limit detects runaway payloads early.
pub const REQUEST_BYTES_MAX: usize = 2 * 1024 * 1024;

/// AWS in the process. A clone is a handle to the same tables, queues and rules.
#[derive(Clone)]
pub struct EmbeddedAws {
    services: Arc<EmbeddedServices>,
}

struct EmbeddedServices {
    tables: DynamoTables,
    queues: SqsQueues,
    events: EventBuses,
    requests: RequestCounters,
    external: Option<ExternalServices>,
    /// The last field, so that it is dropped last: the lock ends when all files are closed.
    _data_dir: Option<LockedDataDir>,
}

/// Services at external endpoints.
struct ExternalServices {
    endpoints: ExternalEndpoints,
    /// The client that polls queues there.
    sqs: aws_sdk_sqs::Client,
}

/// The number of requests that each service received since the start.
#[derive(Debug, Default)]
struct RequestCounters {
    dynamodb: AtomicU64,
    sqs: AtomicU64,
    eventbridge: AtomicU64,
}

/// How a request reached the embedded AWS.
#[derive(Clone, Copy, PartialEq, Eq)]
enum EntryPoint {
    /// The SDK's connector in this process. A response is never lost.
    InProcess,
    /// HTTP. A response can be lost, and the request repeated.
    Http,
}

/// Settings of an [`EmbeddedAws`]; see [`EmbeddedAws::builder`].
#[derive(Debug, Clone)]
pub struct EmbeddedAwsBuilder {
    data_dir: Option<PathBuf>,
    host: String,
    port: u16,
    external: Option<ExternalEndpoints>,
}

/// Why the embedded AWS could not start or do its housekeeping.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EmbeddedError {
    /// The data directory cannot be created, locked or written to.
    #[error("cannot use the data directory {}", path.display())]
    DataDir {
        /// The directory.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// Another process uses the data directory, or this one does already.
    #[error(
        "the data directory {} is in use by process {}: stop it, or use another directory",
        path.display(),
        process.as_deref().unwrap_or("(unknown)")
    )]
    InUse {
        /// The directory.
        path: PathBuf,
        /// The id of that process, if the lock file contains it.
        process: Option<String>,
    },
    /// The queues could not be opened.
    #[error("cannot open the embedded queues")]
    OpenQueues(#[source] JournalError),
    /// SQLite cannot open the database's path.
    #[error("the data directory's path is not UTF-8: {}", path.display())]
    PathNotUtf8 {
        /// The database file.
        path: PathBuf,
    },
    /// The tables could not be opened: a damaged file, or one locked by another process.
    #[error("cannot open the embedded tables")]
    OpenTables(#[source] DynoxideError),
    /// The second connection to the tables could not be opened.
    #[error("cannot open the second connection to the embedded tables")]
    OpenShortcuts(#[source] rusqlite::Error),
    /// Items past their time to live could not be removed.
    #[error("cannot remove expired items from the embedded tables")]
    SweepTtl(#[source] DynoxideError),
}

impl EmbeddedAws {
    /// Creates an instance in memory. Its state is lost with the last clone.
    ///
    /// # Errors
    /// [`EmbeddedError::OpenTables`] if SQLite cannot start.
    pub fn in_memory() -> Result<Self, EmbeddedError> {
        Self::builder().build()
    }

    /// Creates an instance whose tables and queues are files in `dir`, which is created if it does not exist.
    ///
    /// A killed process loses no acknowledged write and no acknowledged message, delayed messages and dead letters
    /// included. A power cut may lose the last writes and messages, but does not damage the files. Rules are not
    /// stored.
    ///
    /// # Errors
    /// See [`EmbeddedError`].
    pub fn on_disk(dir: &Path) -> Result<Self, EmbeddedError> {
        Self::builder().data_dir(dir).build()
    }

    /// A builder with in-memory tables and queue URLs under `http://127.0.0.1:4566`.
    #[must_use]
    pub fn builder() -> EmbeddedAwsBuilder {
        let host = "127.0.0.1".to_owned();
        EmbeddedAwsBuilder { data_dir: None, host, port: 4566, external: None }
    }

    /// A configuration for SDK clients that use this instance.
    #[must_use]
    pub fn sdk_config(&self) -> SdkConfig {
        if let Some(external) = &self.services.external {
            let embedded = connector::InProcess::new(self.clone());
            return external_config(&external.endpoints, Some(embedded));
        }
        let credentials = Credentials::builder()
            .access_key_id("embedded")
            .secret_access_key("embedded")
            .account_id(ACCOUNT)
            .provider_name("steward-embedded")
            .build();
        SdkConfig::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::from_static(REGION))
            .credentials_provider(SharedCredentialsProvider::new(credentials))
            .http_client(connector::InProcess::new(self.clone()))
            // A long poll would count as a stalled stream.
            .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
            // These settings save work in every request: there is one endpoint, so its rules need no
            // evaluation; no connection can time out; and the credentials never change.
            .endpoint_url(format!("http://{REGION}.embedded.invalid"))
            .timeout_config(TimeoutConfig::disabled())
            .identity_cache(IdentityCache::no_cache())
            .build()
    }

    /// The URL of a service at an external endpoint; `None` if this process serves it.
    #[must_use]
    pub fn external_url(&self, service: AwsService) -> Option<&str> {
        self.services.external.as_ref()?.endpoints.url(service)
    }

    /// Subscribes to all events that `PutEvents` accepts from now on, of any bus, in EventBridge's envelope.
    ///
    /// A receiver more than 1,024 events behind gets `RecvError::Lagged` and misses the oldest.
    #[must_use]
    pub fn subscribe_events(&self) -> broadcast::Receiver<Value> {
        self.services.events.subscribe()
    }

    /// Delivers events that match `rule` to its queue from now on.
    pub fn add_rule(&self, rule: EventRule) {
        self.services.events.add_rule(rule);
    }

    /// Enqueues each message twice with probability `rate` (0 to 1), to simulate SQS's at-least-once delivery. Both
    /// copies have the same message id. The same `seed` and order of sends duplicate the same messages. A rate of 0
    /// turns duplication off.
    pub fn duplicate_messages(&self, rate: f64, seed: u64) {
        self.services.queues.duplicate_messages(rate, seed);
    }

    /// Deletes items past their time to live, as DynamoDB does in the background; returns their number.
    ///
    /// Blocks the thread. It deletes a page at a time, so that waiting requests run between two pages.
    ///
    /// # Errors
    /// [`EmbeddedError::SweepTtl`] if a table could not be read or written.
    pub fn delete_expired_items(&self) -> Result<usize, EmbeddedError> {
        self.services.tables.sweep_ttl().map_err(EmbeddedError::SweepTtl)
    }

    /// The number of requests that each service answered in this process since the start, by the service's name.
    /// Requests of the event-source loops are included.
    #[must_use]
    pub fn request_counts(&self) -> BTreeMap<&'static str, u64> {
        let RequestCounters { dynamodb, sqs, eventbridge } = &self.services.requests;
        let counts = [("DynamoDB", dynamodb), ("SQS", sqs), ("EventBridge", eventbridge)];
        counts.map(|(name, count)| (name, count.load(Ordering::Relaxed))).into()
    }

    /// Receives up to ten messages of a queue and waits twenty seconds for the first, as Lambda's poller does.
    pub(crate) async fn receive(&self, queue_url: &str) -> Result<Vec<SqsMessage>, String> {
        tokio::task::yield_now().await;
        if let Some(sqs) = self.external_queues() {
            return external::receive(sqs, queue_url).await;
        }
        count(&self.services.requests.sqs);
        charged(CpuAccount::Sqs, self.services.queues.poll(queue_url)).await
    }

    /// Makes the messages of a queue visible that were received and not deleted, because their receivers have
    /// ended.
    pub(crate) fn release_messages(&self, queue_url: &str) -> Result<(), String> {
        self.services.queues.release_messages(queue_url)
    }

    /// Deletes received messages by their receipt handles.
    pub(crate) async fn delete(
        &self,
        queue_url: &str,
        receipts: Vec<String>,
    ) -> Result<(), String> {
        if let Some(sqs) = self.external_queues() {
            return external::delete(sqs, queue_url, receipts).await;
        }
        count(&self.services.requests.sqs);
        let queues = &self.services.queues;
        charged(CpuAccount::Sqs, async { queues.delete(queue_url, &receipts) }).await
    }

    /// The client of the queues, if they are at an external endpoint.
    fn external_queues(&self) -> Option<&aws_sdk_sqs::Client> {
        let external = self.services.external.as_ref()?;
        external.endpoints.url(AwsService::Sqs).map(|_| &external.sqs)
    }

    /// Responds to one request. `target` is the `x-amz-target` header.
    async fn respond(&self, target: &str, body: Bytes, entry_point: EntryPoint) -> ServiceResponse {
        // Nothing below waits for I/O. Without this yield, a task would occupy its thread for about a
        // hundred calls in a row, and timers would fire late.
        tokio::task::yield_now().await;
        if body.len() > REQUEST_BYTES_MAX {
            return ServiceResponse::too_large();
        }
        if let Some(url) = AwsService::of(target).and_then(|service| self.external_url(service)) {
            return ServiceResponse::external(target, url);
        }
        let EmbeddedServices { tables, queues, events, requests, .. } = self.services.as_ref();
        match target.split_once('.') {
            Some(("DynamoDB_20120810", operation)) => {
                count(&requests.dynamodb);
                charged(CpuAccount::DynamoDb, tables.respond(operation, &body, entry_point)).await
            }
            Some(("AmazonSQS", operation)) => {
                count(&requests.sqs);
                charged(CpuAccount::Sqs, queues.respond(operation, &body)).await
            }
            Some(("AWSEvents", operation)) => {
                count(&requests.eventbridge);
                charged(CpuAccount::EventBridge, async { events.respond(operation, &body, queues) })
                    .await
            }
            Some(_) | None => ServiceResponse::unknown_operation(target),
        }
    }
}

/// A configuration for SDK clients that use the endpoints; services without an endpoint use `embedded`.
fn external_config(
    endpoints: &ExternalEndpoints,
    embedded: Option<connector::InProcess>,
) -> SdkConfig {
    let credentials = Credentials::builder()
        .access_key_id(endpoints.access_key())
        .secret_access_key("test")
        .provider_name("steward-external")
        .build();
    SdkConfig::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::from_static(REGION))
        .credentials_provider(SharedCredentialsProvider::new(credentials))
        .http_client(RoutingClient::new(endpoints.clone(), embedded))
        .endpoint_url(format!("http://{REGION}.external.invalid"))
        .build()
}

fn count(requests: &AtomicU64) {
    requests.fetch_add(1, Ordering::Relaxed);
}

impl fmt::Debug for EmbeddedAws {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("EmbeddedAws").finish_non_exhaustive()
    }
}

impl EmbeddedAwsBuilder {
    /// Stores the tables and queues in files in `dir` instead of in memory.
    #[must_use]
    pub fn data_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.data_dir = Some(dir.into());
        self
    }

    /// Sets the address in queue URLs: the address at which the host serves [`EmbeddedAws::router`].
    #[must_use]
    pub fn public_address(mut self, host: impl Into<String>, port: u16) -> Self {
        self.host = host.into();
        self.port = port;
        self
    }

    /// Uses the services at these endpoints instead of those in this process.
    #[must_use]
    pub fn external_endpoints(mut self, endpoints: ExternalEndpoints) -> Self {
        self.external = Some(endpoints);
        self
    }

    /// Opens the tables and queues.
    ///
    /// # Errors
    /// See [`EmbeddedError`].
    pub fn build(self) -> Result<EmbeddedAws, EmbeddedError> {
        let lock = self.data_dir.as_deref().map(LockedDataDir::lock).transpose()?;
        let (tables, queues) = match &self.data_dir {
            Some(dir) => {
                let queues = SqsQueues::on_disk(dir, &self.host, self.port);
                (DynamoTables::on_disk(dir)?, queues.map_err(EmbeddedError::OpenQueues)?)
            }
            None => (DynamoTables::in_memory()?, SqsQueues::in_memory(&self.host, self.port)),
        };
        let (events, requests) = (EventBuses::new(), RequestCounters::default());
        let external = self.external.map(|endpoints| {
            let sqs = aws_sdk_sqs::Client::new(&external_config(&endpoints, None));
            ExternalServices { endpoints, sqs }
        });
        let services =
            EmbeddedServices { tables, queues, events, requests, external, _data_dir: lock };
        Ok(EmbeddedAws { services: Arc::new(services) })
    }
}
