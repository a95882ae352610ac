//! The embedded AWS: passes each request to its service, and counts it.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use aws_lambda_events::sqs::SqsMessage;
use bytes::Bytes;
use serde_json::Value;
use steward_aws::polling;
use steward_core::{limits, model::payload::UPLOADS};
use steward_runtime::ports::error_chain;
use tokio::sync::broadcast;

use super::{
    data_dir_lock::LockedDataDir,
    dynamodb::DynamoTables,
    error::EmbeddedError,
    eventbridge::{EventBuses, EventRule},
    external::{AwsService, ExternalEndpoints},
    request::{EntryPoint, REQUEST_BYTES_MAX},
    response::ServiceResponse,
    s3::EmbeddedS3,
    sqs::SqsQueues,
};
use crate::cpu::{CpuAccount, with_cpu_account};

/// AWS in the process. A clone is a handle to the same tables, queues and rules.
#[derive(Clone)]
pub struct EmbeddedAws {
    pub(super) services: Arc<EmbeddedServices>,
}

/// The state behind all handles.
pub(super) struct EmbeddedServices {
    pub(super) tables: DynamoTables,
    pub(super) queues: SqsQueues,
    pub(super) events: EventBuses,
    pub(super) objects: EmbeddedS3,
    pub(super) requests: RequestCounters,
    pub(super) external: Option<ExternalServices>,
    /// The last field, so that it is dropped last: the lock ends when all files are closed.
    pub(super) _data_dir: Option<LockedDataDir>,
}

/// Services at external endpoints.
pub(super) struct ExternalServices {
    pub(super) endpoints: ExternalEndpoints,
    /// The client that polls queues there.
    pub(super) sqs: aws_sdk_sqs::Client,
}

/// The number of requests that each service received since the start.
#[derive(Debug, Default)]
pub(super) struct RequestCounters {
    dynamodb: AtomicU64,
    sqs: AtomicU64,
    eventbridge: AtomicU64,
    s3: AtomicU64,
}

impl EmbeddedAws {
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

    /// Deletes uploaded objects past their lifetime, as the lifecycle of the bucket does; returns their number.
    ///
    /// # Errors
    /// A file could not be deleted.
    pub fn delete_expired_objects(&self) -> std::io::Result<usize> {
        self.services.objects.objects.expire(UPLOADS, limits::UPLOAD_LIFETIME)
    }

    /// Makes all objects older by this time, for tests of what expires.
    ///
    /// # Errors
    /// A file could not be written.
    pub fn age_objects(&self, by: Duration) -> std::io::Result<()> {
        self.services.objects.objects.age(by)
    }

    /// Whether a request with this path is one to S3.
    pub(super) fn is_s3(&self, path: &str) -> bool {
        self.services.objects.has_bucket(path)
    }

    /// Responds to a request to S3.
    pub(super) async fn respond_s3(
        &self,
        request: http::Request<s3s::Body>,
    ) -> Result<s3s::HttpResponse, s3s::HttpError> {
        tokio::task::yield_now().await;
        count(&self.services.requests.s3);
        self.services.objects.respond(request).await
    }

    /// The number of requests that each service answered in this process since the start, by the service's name.
    /// Requests of the event-source loops are included.
    #[must_use]
    pub fn request_counts(&self) -> BTreeMap<&'static str, u64> {
        let RequestCounters { dynamodb, sqs, eventbridge, s3 } = &self.services.requests;
        let counts =
            [("DynamoDB", dynamodb), ("SQS", sqs), ("EventBridge", eventbridge), ("S3", s3)];
        counts.map(|(name, count)| (name, count.load(Ordering::Relaxed))).into()
    }

    /// Receives up to ten messages of a queue and waits twenty seconds for the first, as Lambda's poller does.
    pub(crate) async fn receive(&self, queue_url: &str) -> Result<Vec<SqsMessage>, String> {
        tokio::task::yield_now().await;
        if let Some(sqs) = self.external_queues() {
            let received = polling::receive(sqs, queue_url).await;
            return received.map_err(|error| error_chain(&error));
        }
        count(&self.services.requests.sqs);
        with_cpu_account(CpuAccount::Sqs, self.services.queues.poll(queue_url)).await
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
            let deleted = polling::delete(sqs, queue_url, receipts).await;
            return deleted.map_err(|error| error_chain(&error));
        }
        count(&self.services.requests.sqs);
        let queues = &self.services.queues;
        with_cpu_account(CpuAccount::Sqs, async { queues.delete(queue_url, &receipts) }).await
    }

    /// The client of the queues, if they are at an external endpoint.
    fn external_queues(&self) -> Option<&aws_sdk_sqs::Client> {
        let external = self.services.external.as_ref()?;
        external.endpoints.url(AwsService::Sqs).map(|_| &external.sqs)
    }

    /// Responds to one request. `target` is the `x-amz-target` header, `signer` the identity that signed the request.
    pub(super) async fn respond(
        &self,
        target: &str,
        body: Bytes,
        signer: &str,
        entry_point: EntryPoint,
    ) -> ServiceResponse {
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
                with_cpu_account(
                    CpuAccount::DynamoDb,
                    tables.respond(operation, &body, entry_point),
                )
                .await
            }
            Some(("AmazonSQS", operation)) => {
                count(&requests.sqs);
                with_cpu_account(CpuAccount::Sqs, queues.respond(operation, &body, signer)).await
            }
            Some(("AWSEvents", operation)) => {
                count(&requests.eventbridge);
                with_cpu_account(CpuAccount::EventBridge, async {
                    events.respond(operation, &body, queues)
                })
                .await
            }
            Some(_) | None => ServiceResponse::unknown_operation(target),
        }
    }
}

fn count(requests: &AtomicU64) {
    requests.fetch_add(1, Ordering::Relaxed);
}

impl fmt::Debug for EmbeddedAws {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("EmbeddedAws").finish_non_exhaustive()
    }
}
