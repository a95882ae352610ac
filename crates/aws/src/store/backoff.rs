//! Exponential backoff with full jitter for requests that DynamoDB could not carry out: it throttles, or another
//! transaction is writing one of the items. The random pauses prevent requests that were refused together from being
//! retried together (<https://aws.amazon.com/builders-library/timeouts-retries-and-backoff-with-jitter/>).

use std::time::Duration;

/// The upper bound of the first pause. It doubles with each further pause.
const FIRST: Duration = Duration::from_millis(50);

/// The maximum number of pauses in a row. Together they take at most six seconds. After that the request fails, and its
/// message returns to its queue.
const PAUSES_MAX: u32 = 7;

/// The pauses of one request.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    paused: u32,
}

impl Backoff {
    /// Pauses. Returns whether to retry; if not, it does not pause.
    pub(super) async fn pause(&mut self) -> bool {
        if self.paused >= PAUSES_MAX {
            return false;
        }
        let longest = FIRST * 2_u32.pow(self.paused);
        self.paused += 1;
        tokio::time::sleep(longest.mul_f64(fastrand::f64())).await;
        true
    }

    /// Starts over with the first pause, because a request made progress.
    pub(super) fn reset(&mut self) {
        self.paused = 0;
    }
}
