//! What is asked for at the same moment goes out together: the first to ask waits until whoever is about
//! to ask has asked, then sends one request for all. The idea is that of DataLoader
//! (<https://github.com/graphql/dataloader>).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use steward_runtime::ports::PortError;
use tokio::{
    sync::oneshot::{Sender, channel},
    task::yield_now,
};

/// What is asked, and who wants to know.
pub(super) type Asked<Q, A> = (Q, Sender<A>);

type Shared<Q, A> = Arc<Mutex<Vec<Asked<Q, A>>>>;

/// Questions of one kind, and what the next request will ask, if somebody is about to send one.
#[derive(Debug)]
pub(super) struct Together<Q, A>(Mutex<Option<Shared<Q, A>>>);

impl<Q, A> Default for Together<Q, A> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<Q, A> Together<Q, A> {
    /// Asks `question` with whatever else is being asked and leaves it room; `send` answers all of them.
    /// `None` if whoever was to send them was [cut off](cut_off).
    pub(super) async fn ask<F: Future<Output = ()>>(
        &self,
        question: Q,
        has_room: impl Fn(&[Asked<Q, A>], &Q) -> bool,
        send: impl FnOnce(Vec<Asked<Q, A>>) -> F,
    ) -> Option<A> {
        let (sender, answer) = channel();
        if let Some(mine) = self.join((question, sender), has_room) {
            let close = Close { together: self, asked: &mine };
            // Whoever is about to ask does so before this goes on.
            let mut before = 0;
            while before < lock(&mine).len() {
                before = lock(&mine).len();
                yield_now().await;
            }
            send(close.close()).await;
        }
        answer.await.ok()
    }

    /// Adds to the next request; whoever is the first to do so sends it.
    fn join(
        &self,
        one: Asked<Q, A>,
        has_room: impl Fn(&[Asked<Q, A>], &Q) -> bool,
    ) -> Option<Shared<Q, A>> {
        let mut next = lock(&self.0);
        if let Some(asked) = next.as_ref() {
            let mut asked = lock(asked);
            if has_room(&asked, &one.0) {
                asked.push(one);
                return None;
            }
        }
        let mine = Arc::new(Mutex::new(vec![one]));
        *next = Some(mine.clone());
        Some(mine)
    }
}

/// A request that more is added to, until this goes: also if the one who was to send it is given up.
struct Close<'a, Q, A> {
    together: &'a Together<Q, A>,
    asked: &'a Shared<Q, A>,
}

impl<Q, A> Close<'_, Q, A> {
    fn close(&self) -> Vec<Asked<Q, A>> {
        lock(&self.together.0).take_if(|next| Arc::ptr_eq(next, self.asked));
        std::mem::take(&mut *lock(self.asked))
    }
}

impl<Q, A> Drop for Close<'_, Q, A> {
    fn drop(&mut self) {
        self.close();
    }
}

/// Why there is no answer.
pub(super) fn cut_off(operation: &str) -> PortError {
    let source = "the one who was to send the request was cut off".into();
    PortError { operation: operation.to_owned(), retryable: true, source }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
