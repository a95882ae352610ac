//! Which messages of a batch are done, and when their function has to stop.
//!
//! Lambda kills a function at its timeout. The whole batch would then stay hidden for its queue's visibility timeout,
//! although most of its messages may be done. So every function that reads a queue stops before, and returns only the
//! messages that are not done:
//!
//! ```text
//! start ──────────────── last start ────────────── stop ─────────────────── timeout
//!   messages are handled     │ effects are sent, 3 s │ visibility, telemetry, 2 s
//! ```
//!
//! A message that is not done is redelivered, as after a crash at the same point: what it caused is stored first and sent
//! second, and a redelivered message sends it again.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use aws_lambda_events::sqs::{SqsBatchResponse, SqsEvent};
use futures_util::{
    FutureExt,
    future::{BoxFuture, Shared},
};
use tokio::time::{Instant, sleep_until, timeout_at};

/// How long before it stops a function begins nothing any more, and sends the effects of what it has stored: one attempt
/// at a request to SQS.
pub const SENDS_WITHIN: Duration = Duration::from_secs(3);

/// A batch of messages for a handler.
#[derive(Debug)]
pub struct Batch {
    /// The messages.
    pub event: SqsEvent,
    /// Where the handler records which of them are done.
    pub progress: BatchProgress,
}

/// A batch without a time limit.
impl From<SqsEvent> for Batch {
    fn from(event: SqsEvent) -> Self {
        Self::new(event, None)
    }
}

impl Batch {
    fn new(event: SqsEvent, stop: Option<Instant>) -> Self {
        let ids = event.records.iter().map(|message| message.message_id.clone());
        let message_ids = ids.map(Option::unwrap_or_default).collect();
        let state = ProgressState { message_ids, done: Mutex::default(), stop };
        Self { event, progress: BatchProgress(Arc::new(state)) }
    }
}

/// Which messages of a batch are done. Clones share the record.
#[derive(Debug, Clone)]
pub struct BatchProgress(Arc<ProgressState>);

#[derive(Debug)]
struct ProgressState {
    message_ids: Vec<String>,
    done: Mutex<BTreeSet<String>>,
    stop: Option<Instant>,
}

impl BatchProgress {
    /// Records that a message is done: what it caused is stored and sent. All others are redelivered.
    pub fn done(&self, message_id: String) {
        self.0.done.lock().unwrap_or_else(PoisonError::into_inner).insert(message_id);
    }

    /// Ready when the handler must begin nothing any more, so that the time is left for sending the effects of what it has
    /// stored.
    pub fn last_start(&self) -> Shared<BoxFuture<'static, ()>> {
        let last_start = self.0.stop.map(|stop| stop.checked_sub(SENDS_WITHIN).unwrap_or(stop));
        let reached = async move {
            match last_start {
                Some(at) => sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        reached.boxed().shared()
    }

    /// The partial batch response: SQS redelivers the messages that are not done.
    #[must_use]
    pub fn response(&self) -> SqsBatchResponse {
        let done = self.0.done.lock().unwrap_or_else(PoisonError::into_inner);
        let mut response = SqsBatchResponse::default();
        for message_id in self.0.message_ids.iter().filter(|id| !done.contains(*id)) {
            response.add_failure(message_id.clone());
        }
        response
    }
}

/// Passes a batch to `handle` until `stop`. Whatever it has not done by then is abandoned, and its messages are redelivered.
pub async fn handle_until<F>(
    event: SqsEvent,
    stop: Instant,
    handle: impl FnOnce(Batch) -> F,
) -> SqsBatchResponse
where
    F: Future<Output = SqsBatchResponse>,
{
    let batch = Batch::new(event, Some(stop));
    let progress = batch.progress.clone();
    // Boxed: the type of a whole invocation would be too deeply nested for the compiler.
    timeout_at(stop, Box::pin(handle(batch))).await.unwrap_or_else(|_| {
        let response = progress.response();
        let messages = response.batch_item_failures.len();
        tracing::warn!(messages, "the function's time was up; messages return to their queue");
        response
    })
}
