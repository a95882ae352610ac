//! AWS in the process: DynamoDB, SQS and EventBridge's `PutEvents` behind the real SDK clients. A service whose
//! [endpoint](Endpoints) is given is served there instead.
//!
//! The same handlers run here and on Lambda, through the same clients; only what answers them
//! differs. There are no sockets unless the host asks for them:
//!
//! ```text
//! SDK client ── connector.rs ─┐                   ┌─ tables.rs   dynoxide (SQLite)
//!                             ├─ EmbeddedAws ─────┼─ queues.rs   memory, with a journal
//! aws cli, SDK ─ endpoint.rs ─┘      answer()     └─ events.rs   a small loop of our own
//! ```
//!
//! Both doors speak AWS's JSON protocol: `x-amz-target` names the operation, the body is JSON.

mod answer;
mod connector;
mod endpoint;
mod events;
mod external;
mod folder;
mod layout;
mod queues;
mod rules;
mod shortcuts;
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

use answer::Answer;
pub use events::EventRule;
use events::Events;
use external::Routed;
pub use external::{Endpoints, InvalidEndpoints, Service};
use folder::Folder;
pub use queues::JournalError;
use queues::Queues;
use tables::Tables;

use crate::cpu::{Account, charged};

/// The account every embedded resource belongs to.
pub const ACCOUNT: &str = "000000000000";

/// The region every embedded resource lives in.
pub const REGION: &str = "us-east-1";

/// The largest request body either door accepts, in bytes. AWS allows 16 MiB on DynamoDB; nothing
/// this project sends comes near that, and a small limit finds runaway payloads early.
pub const REQUEST_BYTES_MAX: usize = 2 * 1024 * 1024;

/// AWS in the process. A clone is another handle to the same tables, queues and rules.
#[derive(Clone)]
pub struct EmbeddedAws {
    services: Arc<Services>,
}

struct Services {
    tables: Tables,
    queues: Queues,
    events: Events,
    requests: Requests,
    external: Option<External>,
    /// Last, so that the directory is free when everything in it is closed.
    _folder: Option<Folder>,
}

/// Services that are elsewhere.
struct External {
    endpoints: Endpoints,
    /// Polls queues there.
    sqs: aws_sdk_sqs::Client,
}

/// How many requests each service was asked, since the start.
#[derive(Debug, Default)]
struct Requests {
    dynamodb: AtomicU64,
    sqs: AtomicU64,
    eventbridge: AtomicU64,
}

/// Which door a request came through.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Door {
    /// The SDK's connector, in this process: an answer is never lost on the way.
    Connector,
    /// HTTP: an answer can be lost and the request repeated.
    Endpoint,
}

/// Settings of an [`EmbeddedAws`]; see [`EmbeddedAws::builder`].
#[derive(Debug, Clone)]
pub struct EmbeddedAwsBuilder {
    data_dir: Option<PathBuf>,
    host: String,
    port: u16,
    external: Option<Endpoints>,
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
        /// What the operating system said.
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
        /// The id of the process, if the lock's file says it.
        process: Option<String>,
    },
    /// The queues could not be opened.
    #[error("cannot open the embedded queues")]
    OpenQueues(#[source] JournalError),
    /// The database's path cannot be handed to SQLite.
    #[error("the data directory's path is not UTF-8: {}", path.display())]
    PathNotUtf8 {
        /// The database file.
        path: PathBuf,
    },
    /// The tables could not be opened: a damaged file, or one locked by another process.
    #[error("cannot open the embedded tables")]
    OpenTables(#[source] DynoxideError),
    /// The tables could not be opened once more.
    #[error("cannot open the embedded tables")]
    OpenShortcuts(#[source] rusqlite::Error),
    /// Items past their time to live could not be removed.
    #[error("cannot remove expired items from the embedded tables")]
    SweepTtl(#[source] DynoxideError),
}

impl EmbeddedAws {
    /// Everything in memory, gone with the last clone.
    ///
    /// # Errors
    /// [`EmbeddedError::OpenTables`] if SQLite cannot start.
    pub fn in_memory() -> Result<Self, EmbeddedError> {
        Self::builder().build()
    }

    /// Tables and queues kept in files in `dir`, which is created if need be.
    ///
    /// A killed process loses nothing that was acknowledged: no write and no message, delayed ones and dead
    /// letters included. A power cut may lose the last few of both, never the files. Rules are not kept.
    ///
    /// # Errors
    /// See [`EmbeddedError`].
    pub fn on_disk(dir: &Path) -> Result<Self, EmbeddedError> {
        Self::builder().data_dir(dir).build()
    }

    /// Start from in-memory tables and queue URLs under `http://127.0.0.1:4566`.
    #[must_use]
    pub fn builder() -> EmbeddedAwsBuilder {
        let host = "127.0.0.1".to_owned();
        EmbeddedAwsBuilder { data_dir: None, host, port: 4566, external: None }
    }

    /// A configuration for the AWS SDK whose clients are answered by this instance.
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
            // There is no stream that could stall; a long poll would be taken for one.
            .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
            // There is one endpoint, so there are no rules to follow to it; no connection that could time
            // out; and credentials that are always the same. Each is a part of every request.
            .endpoint_url(format!("http://{REGION}.embedded.invalid"))
            .timeout_config(TimeoutConfig::disabled())
            .identity_cache(IdentityCache::no_cache())
            .build()
    }

    /// Where a service is, if it is not in this process.
    #[must_use]
    pub fn external_url(&self, service: Service) -> Option<&str> {
        self.services.external.as_ref()?.endpoints.url(service)
    }

    /// Every event accepted by `PutEvents` from now on, whatever its bus, in EventBridge's envelope.
    ///
    /// A receiver more than 1,024 events behind gets `RecvError::Lagged` and misses the oldest.
    #[must_use]
    pub fn subscribe_events(&self) -> broadcast::Receiver<Value> {
        self.services.events.subscribe()
    }

    /// Deliver events that match `rule` to its queue, from now on.
    pub fn add_rule(&self, rule: EventRule) {
        self.services.events.add_rule(rule);
    }

    /// Enqueue each message twice with probability `rate` (0 to 1), to act out SQS's at-least-once
    /// delivery; both copies have the same message id. The same `seed` and order of sends doubles the same
    /// messages. 0 turns it off.
    pub fn duplicate_messages(&self, rate: f64, seed: u64) {
        self.services.queues.duplicate_messages(rate, seed);
    }

    /// Remove items past their time to live, as DynamoDB does in the background; returns how many.
    ///
    /// Blocks while it works, a page at a time, and lets waiting requests go first between pages.
    ///
    /// # Errors
    /// [`EmbeddedError::SweepTtl`] if a table could not be read or written.
    pub fn sweep_ttl(&self) -> Result<usize, EmbeddedError> {
        self.services.tables.sweep_ttl().map_err(EmbeddedError::SweepTtl)
    }

    /// How many requests each service answered in this process since the start, by its name; those that Lambda's
    /// poller makes among them.
    #[must_use]
    pub fn requests(&self) -> BTreeMap<&'static str, u64> {
        let Requests { dynamodb, sqs, eventbridge } = &self.services.requests;
        let counts = [("DynamoDB", dynamodb), ("SQS", sqs), ("EventBridge", eventbridge)];
        counts.map(|(name, count)| (name, count.load(Ordering::Relaxed))).into()
    }

    /// Up to ten messages of a queue, waiting twenty seconds for the first: what Lambda's own poller does.
    pub(crate) async fn receive(&self, queue_url: &str) -> Result<Vec<SqsMessage>, String> {
        tokio::task::yield_now().await;
        if let Some(sqs) = self.external_queues() {
            return external::receive(sqs, queue_url).await;
        }
        count(&self.services.requests.sqs);
        charged(Account::Sqs, self.services.queues.poll(queue_url)).await
    }

    /// Makes visible what was received from a queue and not deleted: those who received it have ended.
    pub(crate) fn give_back(&self, queue_url: &str) -> Result<(), String> {
        self.services.queues.give_back(queue_url)
    }

    /// Deletes messages that were received, by their receipts.
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
        charged(Account::Sqs, async { queues.delete(queue_url, &receipts) }).await
    }

    /// A client of the queues, if they are elsewhere.
    fn external_queues(&self) -> Option<&aws_sdk_sqs::Client> {
        let external = self.services.external.as_ref()?;
        external.endpoints.url(Service::Sqs).map(|_| &external.sqs)
    }

    /// Answer one request: `target` is the `x-amz-target` header.
    async fn answer(&self, target: &str, body: Bytes, door: Door) -> Answer {
        // There is no I/O to wait for, so without this a task would hold its thread for about a
        // hundred calls in a row, and timers would come late.
        tokio::task::yield_now().await;
        if body.len() > REQUEST_BYTES_MAX {
            return Answer::too_large();
        }
        if let Some(url) = Service::of(target).and_then(|service| self.external_url(service)) {
            return Answer::elsewhere(target, url);
        }
        let Services { tables, queues, events, requests, .. } = self.services.as_ref();
        match target.split_once('.') {
            Some(("DynamoDB_20120810", operation)) => {
                count(&requests.dynamodb);
                charged(Account::DynamoDb, tables.answer(operation, &body, door)).await
            }
            Some(("AmazonSQS", operation)) => {
                count(&requests.sqs);
                charged(Account::Sqs, queues.answer(operation, &body)).await
            }
            Some(("AWSEvents", operation)) => {
                count(&requests.eventbridge);
                charged(Account::EventBridge, async { events.answer(operation, &body, queues) })
                    .await
            }
            Some(_) | None => Answer::unknown_operation(target),
        }
    }
}

/// A configuration for the AWS SDK whose clients are answered at the endpoints.
fn external_config(endpoints: &Endpoints, embedded: Option<connector::InProcess>) -> SdkConfig {
    let credentials = Credentials::builder()
        .access_key_id(endpoints.access_key())
        .secret_access_key("test")
        .provider_name("steward-external")
        .build();
    SdkConfig::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::from_static(REGION))
        .credentials_provider(SharedCredentialsProvider::new(credentials))
        .http_client(Routed::new(endpoints.clone(), embedded))
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
    /// Keep the tables and queues in files in `dir` instead of in memory.
    #[must_use]
    pub fn data_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.data_dir = Some(dir.into());
        self
    }

    /// The address that queue URLs carry: where the host serves [`EmbeddedAws::router`], if it does.
    #[must_use]
    pub fn public_address(mut self, host: impl Into<String>, port: u16) -> Self {
        self.host = host.into();
        self.port = port;
        self
    }

    /// Have services served at these endpoints instead of in this process.
    #[must_use]
    pub fn external(mut self, endpoints: Endpoints) -> Self {
        self.external = Some(endpoints);
        self
    }

    /// Open the tables and queues, and start.
    ///
    /// # Errors
    /// See [`EmbeddedError`].
    pub fn build(self) -> Result<EmbeddedAws, EmbeddedError> {
        let folder = self.data_dir.as_deref().map(Folder::lock).transpose()?;
        let (tables, queues) = match &self.data_dir {
            Some(dir) => {
                let queues = Queues::on_disk(dir, &self.host, self.port);
                (Tables::on_disk(dir)?, queues.map_err(EmbeddedError::OpenQueues)?)
            }
            None => (Tables::in_memory()?, Queues::in_memory(&self.host, self.port)),
        };
        let (events, requests) = (Events::new(), Requests::default());
        let external = self.external.map(|endpoints| {
            let sqs = aws_sdk_sqs::Client::new(&external_config(&endpoints, None));
            External { endpoints, sqs }
        });
        let services = Services { tables, queues, events, requests, external, _folder: folder };
        Ok(EmbeddedAws { services: Arc::new(services) })
    }
}
