//! The channel coalesces concurrent sends into shared batches; each caller gets the results of its own messages.

use std::time::Duration;

use futures_util::future::join_all;
use steward_aws::{
    meter::{AwsMeter, total},
    ports::SharedInterceptor,
};
use steward_runtime::ports::{Channel, OutgoingMessage, PortError, Ports, Queue};
use tokio::time::timeout;

use crate::support::{AdapterPorts, TestDeployment, sequential_workflow};

/// A deployment, and ports whose requests are counted.
struct MeteredSender {
    _deployment: TestDeployment,
    ports: AdapterPorts,
    meter: AwsMeter,
}

impl MeteredSender {
    async fn new() -> Self {
        let deployment = TestDeployment::new(&sequential_workflow(1)).await;
        let meter = AwsMeter::default();
        let ports = deployment
            .ports_with_interceptors("sender", vec![SharedInterceptor::new(meter.clone())]);
        Self { _deployment: deployment, ports, meter }
    }

    fn requests(&self) -> u64 {
        total(&self.meter.read(), "SQS.SendMessageBatch").requests
    }

    /// Sends these lists of messages concurrently.
    async fn send(&self, sends: Vec<Vec<OutgoingMessage>>) -> Vec<Vec<Result<(), PortError>>> {
        join_all(sends.into_iter().map(|messages| self.ports.channel().send(messages))).await
    }

    /// The number of messages in the queue of rejected submissions.
    async fn rejected(&self) -> u64 {
        let counted = self.ports.channel().dead_letters(&["steward-rejected".to_owned()]).await;
        counted.into_iter().map(|(_, count)| count.unwrap()).sum()
    }
}

fn message(queue: Queue, body: &str) -> OutgoingMessage {
    let (body, attributes) = (body.to_owned(), Vec::new());
    OutgoingMessage { queue, body, attributes, tenant: None, delay: Duration::ZERO }
}

#[tokio::test]
async fn concurrent_sends_share_one_request_for_ten_messages_of_a_queue() {
    let sender = MeteredSender::new().await;
    let mut sends = vec![vec![message(Queue::Rejected, "{}"); 3]; 8];
    sends.push(vec![message(Queue::Events, "{}")]);
    sends.push(Vec::new());
    let results = sender.send(sends).await;
    assert!(results.iter().flatten().all(Result::is_ok));
    assert_eq!(results.iter().map(Vec::len).collect::<Vec<_>>(), [3, 3, 3, 3, 3, 3, 3, 3, 1, 0]);
    assert_eq!(sender.requests(), 3 + 1);
    assert_eq!(sender.rejected().await, 24);
}

#[tokio::test]
async fn a_refused_message_fails_in_its_own_send_alone() {
    let sender = MeteredSender::new().await;
    let too_large = "x".repeat(1024 * 1024 + 1);
    let sends = ["{}", &too_large, "{}"]
        .map(|body| vec![message(Queue::Rejected, "{}"), message(Queue::Rejected, body)]);
    let results = sender.send(sends.to_vec()).await;
    let is_sent = |results: &Vec<Result<(), PortError>>| {
        results.iter().map(Result::is_ok).collect::<Vec<_>>()
    };
    let sent: Vec<_> = results.iter().map(is_sent).collect();
    assert_eq!(sent, [[true, true], [true, false], [true, true]]);
    assert_eq!(sender.rejected().await, 5);
}

/// The caller that began shared batches is cancelled before they are sent. The other callers get a retryable error.
#[tokio::test(start_paused = true)]
async fn a_send_gets_a_retryable_error_if_its_shared_batch_was_never_sent() {
    let sender = MeteredSender::new().await;
    let channel = sender.ports.channel();
    let mut first = Box::pin(channel.send(vec![message(Queue::Rejected, "{}")]));
    let mut second = Box::pin(channel.send(vec![message(Queue::Rejected, "{}"); 2]));
    assert!(futures_util::poll!(&mut first).is_pending());
    assert!(futures_util::poll!(&mut second).is_pending());
    drop(first);
    // The paused clock advances while all tasks wait.
    let results = timeout(Duration::from_secs(60), second).await.unwrap();
    assert_eq!(results.len(), 2);
    assert!(results.iter().all(|sent| sent.as_ref().is_err_and(|error| error.retryable)));
    // The next send succeeds.
    let sent = sender.send(vec![vec![message(Queue::Rejected, "{}")]]).await;
    assert!(sent[0][0].is_ok());
    assert_eq!((sender.requests(), sender.rejected().await), (1, 1));
}
