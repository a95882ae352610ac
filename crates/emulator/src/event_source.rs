//! What Lambda does between a queue and a function: long polls, batches, concurrency, partial
//! failures. What a handler reports failed, or loses in a panic, is left alone: it becomes visible
//! again after the queue's visibility timeout, and a dead letter after too many receives.

use std::{future::Future, sync::Arc, time::Duration};

use aws_lambda_events::sqs::{SqsBatchResponse, SqsEvent, SqsMessage};
use tokio::{sync::Semaphore, task::JoinSet};

use crate::{
    cpu::{Account, charged},
    embedded::EmbeddedAws,
};

/// How long a poller that was refused leaves the queue alone.
const PAUSE: Duration = Duration::from_secs(1);

/// A queue and how many batches of it may be in hand at once.
#[derive(Debug, Clone)]
pub struct EventSource {
    /// The queue.
    pub queue_url: String,
    /// Batches in hand at once (Lambda's maximum concurrency).
    pub concurrency: usize,
}

impl EventSource {
    /// Polls the queue for `handler` until the `JoinSet` is dropped. There is one poller, so that what
    /// comes while it is busy is one batch; an idle queue's message is handed on at once.
    pub fn spawn<H, F>(self, aws: &EmbeddedAws, handler: H, tasks: &mut JoinSet<()>)
    where
        H: Fn(SqsEvent) -> F + Send + Sync + 'static,
        F: Future<Output = SqsBatchResponse> + Send + 'static,
    {
        tasks.spawn(charged(Account::EventSource, self.poll(aws.clone(), Arc::new(handler))));
    }

    async fn poll<H, F>(self, aws: EmbeddedAws, handler: Arc<H>)
    where
        H: Fn(SqsEvent) -> F + Send + Sync + 'static,
        F: Future<Output = SqsBatchResponse> + Send + 'static,
    {
        let (room, queue) = (Arc::new(Semaphore::new(self.concurrency)), Arc::new(self.queue_url));
        // Tasks of their own, as invocations are: a panic loses its batch's answer and nothing else. In a
        // set, so that they do not outlive the poller: a crash takes them along.
        let mut invocations = JoinSet::new();
        while let Ok(permit) = room.clone().acquire_owned().await {
            while invocations.try_join_next().is_some() {}
            match aws.receive(&queue).await {
                Ok(messages) if messages.is_empty() => {}
                Ok(messages) => {
                    let invocation = invoke(aws.clone(), queue.clone(), messages, handler.clone());
                    invocations.spawn(charged(Account::EventSource, async move {
                        invocation.await;
                        drop(permit);
                    }));
                }
                Err(error) => {
                    tracing::warn!(%queue, error, "poll failed");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }
}

/// Invokes the handler with a batch, and deletes what it did.
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
    let response = handler(event).await;
    let failed = |id: &Option<String>| {
        let failures = &response.batch_item_failures;
        failures.iter().any(|failure| Some(&failure.item_identifier) == id.as_ref())
    };
    let done =
        receipts.into_iter().filter(|(id, _)| !failed(id)).filter_map(|(_, receipt)| receipt);
    if let Err(error) = aws.delete(&queue, done.collect()).await {
        tracing::warn!(%queue, error, "messages done, but not deleted; they will come again");
    }
}
