//! The agent: concurrent calls, whose replies are sent while other calls are in progress.

use jiff::Timestamp;
use steward_agent::Agent;
use steward_core::breaker::BreakerSettings;

use super::{
    BATCH_SIZES, assert_calls, ids, rounds, send_rounds,
    slow_aws::{SlowAws, slow_service},
    submit,
};
use crate::support::{TestDeployment, sequential_workflow, sqs_event, wake_message};

/// The agent's limit of concurrent calls.
const MAX_CONCURRENT_CALLS: usize = 100;

#[tokio::test(start_paused = true)]
async fn calls_run_concurrently_and_replies_are_sent_meanwhile() {
    for size in BATCH_SIZES {
        let deployment = TestDeployment::new(&sequential_workflow(1)).await;
        submit(&deployment, &ids(size)).await;
        let wakes = sqs_event(ids(size).iter().map(|id| wake_message(id)), 1);
        steward_scheduler::handle(&deployment.ports("scheduler"), wakes).await;
        let requests = deployment.take_agent_requests().await;
        let batch =
            sqs_event(requests.iter().map(|request| serde_json::to_string(request).unwrap()), 1);
        let aws = SlowAws::new(&deployment, "agent");
        let agent = Agent::new("a".parse().unwrap(), slow_service(), BreakerSettings::default());

        let (response, calls) = aws
            .observe(async |ports| {
                steward_agent::handle(ports, &agent, batch, Timestamp::MAX).await
            })
            .await;

        // The circuit breaker is read once.
        let requests = [("DynamoDB.GetItem", 1), ("SQS.SendMessageBatch", size.div_ceil(10))];
        let sequential =
            1 + rounds(size, MAX_CONCURRENT_CALLS) + send_rounds(size.min(MAX_CONCURRENT_CALLS));
        assert_calls(&response, &calls, &requests, sequential);
        assert_eq!(deployment.take_scheduler_messages().await.len(), size);
    }
}
