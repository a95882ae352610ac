//! The agent: calls side by side, and their answers on the way while others are made.

use jiff::Timestamp;
use steward_agent::Agent;
use steward_core::breaker::Settings;

use super::{
    SIZES, assert_seen, ids, rounds, sends,
    slow::{Slow, SlowService},
    submitted,
};
use crate::support::{Deployment, event, line, wake};

/// Calls under way at once.
const CALLS_AT_ONCE: usize = 100;

#[tokio::test(start_paused = true)]
async fn calls_run_concurrently_and_replies_are_sent_meanwhile() {
    for size in SIZES {
        let deployment = Deployment::new(&line(1)).await;
        submitted(&deployment, &ids(size)).await;
        let wakes = event(ids(size).iter().map(|id| wake(id)), 1);
        steward_scheduler::handle(&deployment.ports("scheduler"), wakes).await;
        let requests = deployment.requests().await;
        let batch =
            event(requests.iter().map(|request| serde_json::to_string(request).unwrap()), 1);
        let slow = Slow::new(&deployment, "agent");
        let agent = Agent::new("a".parse().unwrap(), SlowService, Settings::default());

        let (answer, seen) = slow
            .watch(async |ports| steward_agent::handle(ports, &agent, batch, Timestamp::MAX).await)
            .await;

        // The breaker is read once.
        let requests = [("DynamoDB.GetItem", 1), ("SQS.SendMessageBatch", size.div_ceil(10))];
        let chain = 1 + rounds(size, CALLS_AT_ONCE) + sends(size.min(CALLS_AT_ONCE));
        assert_seen(&answer, &seen, &requests, chain);
        assert_eq!(deployment.to_scheduler().await.len(), size);
    }
}
