//! Does the work of Lambda between a queue and a function: long polls, batches, concurrency, partial failures.
//!
//! A message is not deleted if the handler reports it as failed or panics. It becomes visible again after the
//! queue's visibility timeout, and moves to the dead-letter queue after too many receives.

use std::{future::Future, sync::Arc, time::Duration};

use aws_lambda_events::sqs::{SqsBatchResponse, SqsEvent, SqsMessage};
use steward_aws::telemetry::flush_after;
use tokio::{sync::Semaphore, task::JoinSet};

use crate::{
    cpu::{CpuAccount, with_cpu_account},
    embedded::EmbeddedAws,
};

/// How long the poller waits after a failed poll.
const ERROR_PAUSE: Duration = Duration::from_secs(1);

/// A queue, and how many of its batches may be processed concurrently.
#[derive(Debug, Clone)]
pub struct EventSource {
    /// The URL of the queue.
    pub queue_url: String,
    /// The number of concurrent invocations (Lambda's maximum concurrency).
    pub concurrency: usize,
}

impl EventSource {
    /// Polls the queue and invokes `handler` until the `JoinSet` is dropped.
    ///
    /// There is one poller. Messages that arrive while it is busy form one batch; a message that arrives at an
    /// idle queue is passed on at once.
    pub fn spawn<H, F>(self, aws: &EmbeddedAws, handler: H, tasks: &mut JoinSet<()>)
    where
        H: Fn(SqsEvent) -> F + Send + Sync + 'static,
        F: Future<Output = SqsBatchResponse> + Send + 'static,
    {
        tasks.spawn(with_cpu_account(
            CpuAccount::EventSource,
            self.poll(aws.clone(), Arc::new(handler)),
        ));
    }

    async fn poll<H, F>(self, aws: EmbeddedAws, handler: Arc<H>)
    where
        H: Fn(SqsEvent) -> F + Send + Sync + 'static,
        F: Future<Output = SqsBatchResponse> + Send + 'static,
    {
        let permits = Arc::new(Semaphore::new(self.concurrency));
        let queue = Arc::new(self.queue_url);
        // Each invocation is a separate task, so a panic loses only the response for its own batch. The set
        // aborts the invocations when the poller is dropped, as a crash would.
        let mut invocations = JoinSet::new();
        while let Ok(permit) = permits.clone().acquire_owned().await {
            while invocations.try_join_next().is_some() {}
            match aws.receive(&queue).await {
                Ok(messages) if messages.is_empty() => {}
                Ok(messages) => {
                    let invocation = invoke(aws.clone(), queue.clone(), messages, handler.clone());
                    invocations.spawn(with_cpu_account(CpuAccount::EventSource, async move {
                        invocation.await;
                        drop(permit);
                    }));
                }
                Err(error) => {
                    tracing::warn!(%queue, error, "poll failed");
                    tokio::time::sleep(ERROR_PAUSE).await;
                }
            }
        }
    }
}

/// Invokes the handler with a batch, and deletes the messages that it did not report as failed.
async fn invoke<H, F>(
    aws: EmbeddedAws,
    queue: Arc<String>,
    messages: Vec<SqsMessage>,
    handler: Arc<H>,
) where
    H: Fn(SqsEvent) -> F,
    F: Future<Output = SqsBatchResponse>,
{
    let receipts: Vec<_> =
        messages.iter().map(|m| (m.message_id.clone(), m.receipt_handle.clone())).collect();
    let mut event = SqsEvent::default();
    event.records = messages;
    let response = flush_after(handler(event)).await;
    let failed = |id: &Option<String>| {
        let failures = &response.batch_item_failures;
        failures.iter().any(|failure| Some(&failure.item_identifier) == id.as_ref())
    };
    let done =
        receipts.into_iter().filter(|(id, _)| !failed(id)).filter_map(|(_, receipt)| receipt);
    if let Err(error) = aws.delete(&queue, done.collect()).await {
        tracing::warn!(%queue, error, "handled messages could not be deleted; they will be delivered again");
    }
}
