//! Pauses before the same is asked of DynamoDB again that it could not do: it throttles, or another transaction has one of
//! the items. They grow, and each is of random length ("full jitter",
//! <https://aws.amazon.com/builders-library/timeouts-retries-and-backoff-with-jitter/>), so that those who were refused
//! together do not come again together.

use std::time::Duration;

/// The longest that the first pause may take. Each may take twice as long as the one before.
const FIRST: Duration = Duration::from_millis(50);

/// How many pauses there are in a row: with the longest possible ones six seconds. After that the message that the request
/// is about goes back to its queue.
const PAUSES_MAX: u32 = 7;

/// The pauses of one request.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    paused: u32,
}

impl Backoff {
    /// Pauses; whether it is worth asking again.
    pub(super) async fn pause(&mut self) -> bool {
        if self.paused >= PAUSES_MAX {
            return false;
        }
        let longest = FIRST * 2_u32.pow(self.paused);
        self.paused += 1;
        tokio::time::sleep(longest.mul_f64(fastrand::f64())).await;
        true
    }

    /// Something was done: the pauses begin anew.
    pub(super) fn reset(&mut self) {
        self.paused = 0;
    }
}
