//! Whether this agent's own clock is behind. It then cannot know that complete-by has passed.

use std::time::Duration;

use steward_core::model::clock_error::ClockError;
use steward_runtime::{
    agent_clock,
    ports::{Clock, Ports},
};

use super::{RemoteService, RunningAttempt, attempt_end::AttemptEnd};

/// The pause before the next attempt. Another instance may get it, or the clock may be right by then.
const PAUSE: Duration = Duration::from_secs(30);

impl<P: Ports, R: RemoteService> RunningAttempt<'_, P, R> {
    /// Ends the attempt without a call, and alerts, if the queue delivered the request in the future by this clock.
    pub(super) async fn check_clock(&mut self) -> Result<(), AttemptEnd> {
        let delivered = self.delivered;
        let queue_time = delivered.sent_at.max(delivered.first_received_at);
        let now = self.ports.clock().now();
        let Some(wrong) = ClockError::of_receiver(queue_time, now, self.ports.timing()) else {
            return Ok(());
        };
        agent_clock::alert(self.ports, &delivered.request.agent, wrong).await;
        let refusal = self.refusal(&wrong.to_string(), PAUSE);
        Err(self.refuse(refusal).await)
    }
}
