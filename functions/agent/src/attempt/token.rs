//! The token of a call: taken after the breaker's permit, and before the claim of a call that must not be repeated.

use std::time::Duration;

use steward_core::{breaker::CallPermit, rate::WAIT_MAX};
use steward_runtime::{
    claims::Refusal,
    metrics,
    ports::{Clock, Ports},
};
use tokio::time::Instant;

use super::{RemoteService, RunningAttempt, attempt_end::AttemptEnd, rate_limit::Token, remaining};

/// A call waits for at most this share of the time that it has left: one half.
const WAIT_SHARE: u32 = 2;

impl<P: Ports, R: RemoteService> RunningAttempt<'_, P, R> {
    /// Takes a token for a call, and claims a call that must not be repeated.
    pub(super) async fn take_token_and_claim(
        &mut self,
        permit: &CallPermit,
    ) -> Result<(), AttemptEnd> {
        let Some(longest_wait) = self.longest_wait(permit) else {
            // There is no time for a call. `call` ends the attempt.
            return self.claim(None).await;
        };
        let (reason, wait) = match self.rate.take(self.ports, longest_wait).await {
            Token::Granted => return self.claim(None).await,
            Token::Denied { limit, wait } => {
                let rate = limit.per_second;
                (Some(format!("rate limit: {rate} calls per second")), wait)
            }
            Token::Unknown { wait } => (None, wait),
        };
        metrics::call_rate_limited("deferred");
        let refusal = match reason {
            // The places in the line are spread out already.
            Some(reason) => Refusal::new(&reason, wait),
            None => self.refusal(
                "the state store cannot be read or written, so the rate limit is not known",
                wait,
            ),
        };
        // The call waits for its place at this agent, also if the step has others. The next attempt makes it, so another
        // delivery of this attempt must not.
        self.claim(None).await?;
        Err(self.defer_to(false, refusal))
    }

    /// How long a call may wait for its token. `None` if there is no time for the call itself.
    fn longest_wait(&self, permit: &CallPermit) -> Option<Duration> {
        let until_end = self.end.saturating_duration_since(Instant::now());
        let left = match permit {
            CallPermit::Call => until_end,
            CallPermit::Probe { until, .. } => {
                until_end.min(remaining(self.ports.clock().now(), *until).unwrap_or_default())
            }
        };
        let mut longest = WAIT_MAX.min(left / WAIT_SHARE);
        if !self.ends_at_complete_by {
            // Lambda would abort a call that takes longer than the function's remaining time. The time limit of a probe is
            // no such limit: it may be shorter than the call's.
            longest = longest.min(until_end.checked_sub(self.call_within())?);
        }
        (!left.is_zero()).then_some(longest)
    }
}
