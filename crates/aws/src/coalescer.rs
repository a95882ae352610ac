//! Coalesces concurrent requests into one batch. The first caller leads the batch: it waits until all async tasks that
//! are ready to run have added their requests, and then sends one batch for all. The idea is that of DataLoader
//! (<https://github.com/graphql/dataloader>).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use steward_runtime::ports::PortError;
use tokio::{
    sync::oneshot::{Sender, channel},
    task::yield_now,
};

/// A request that waits in a batch, with the channel for its response.
pub(crate) type PendingRequest<Q, A> = (Q, Sender<A>);

/// A batch that accepts more requests.
type OpenBatch<Q, A> = Arc<Mutex<Vec<PendingRequest<Q, A>>>>;

/// Collects requests of one kind into batches. Contains the open batch, if a caller is about to send one.
#[derive(Debug)]
pub(crate) struct RequestCoalescer<Q, A>(Mutex<Option<OpenBatch<Q, A>>>);

impl<Q, A> Default for RequestCoalescer<Q, A> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<Q, A> RequestCoalescer<Q, A> {
    /// Adds `request` to the open batch and waits for its response. `has_room` returns whether the batch has room for the
    /// request; otherwise the request starts a new batch. `send` sends a batch and answers each of its requests.
    /// Returns `None` if the caller that leads the batch was [cancelled](leader_cancelled).
    pub(crate) async fn request<F: Future<Output = ()>>(
        &self,
        request: Q,
        has_room: impl Fn(&[PendingRequest<Q, A>], &Q) -> bool,
        send: impl FnOnce(Vec<PendingRequest<Q, A>>) -> F,
    ) -> Option<A> {
        let (sender, response) = channel();
        if let Some(batch) = self.join((request, sender), has_room) {
            let leader = BatchLeader { coalescer: self, batch: &batch };
            // Lets other async tasks run until none of them adds a request.
            let mut before = 0;
            while before < lock(&batch).len() {
                before = lock(&batch).len();
                yield_now().await;
            }
            send(leader.close()).await;
        }
        response.await.ok()
    }

    /// Adds a request to the open batch, or opens a new batch with it. Returns the new batch: its caller leads it.
    fn join(
        &self,
        pending: PendingRequest<Q, A>,
        has_room: impl Fn(&[PendingRequest<Q, A>], &Q) -> bool,
    ) -> Option<OpenBatch<Q, A>> {
        let mut open = lock(&self.0);
        if let Some(batch) = open.as_ref() {
            let mut batch = lock(batch);
            if has_room(&batch, &pending.0) {
                batch.push(pending);
                return None;
            }
        }
        let batch = Arc::new(Mutex::new(vec![pending]));
        *open = Some(batch.clone());
        Some(batch)
    }
}

/// The caller that sends a batch. Dropping it closes the batch, also if the caller is cancelled.
struct BatchLeader<'a, Q, A> {
    coalescer: &'a RequestCoalescer<Q, A>,
    batch: &'a OpenBatch<Q, A>,
}

impl<Q, A> BatchLeader<'_, Q, A> {
    /// Closes the batch and returns its requests.
    fn close(&self) -> Vec<PendingRequest<Q, A>> {
        lock(&self.coalescer.0).take_if(|open| Arc::ptr_eq(open, self.batch));
        std::mem::take(&mut *lock(self.batch))
    }
}

impl<Q, A> Drop for BatchLeader<'_, Q, A> {
    fn drop(&mut self) {
        self.close();
    }
}

/// The error of a request whose batch was not sent, because the caller that led it was cancelled.
pub(crate) fn leader_cancelled(operation: &str) -> PortError {
    let source = "the caller that was to send the batch was cancelled".into();
    PortError { operation: operation.to_owned(), retryable: true, source }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
