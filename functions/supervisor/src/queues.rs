//! Checks all queues of the deployment: new dead letters, and queues whose messages no function receives.
//!
//! A function that receives messages reports by itself [that they waited for too long](steward_runtime::metrics::MESSAGES_LATE).
//! One that receives none, because its event source is disabled or its permission is missing, reports nothing.

use futures_util::future::join;
use steward_runtime::{
    agents::{self, RegisteredAgent},
    metrics,
    ports::{Channel, Ports, Queue, error_chain},
};

use crate::dead_letters::{self, QueueCheck};

/// Checks the queues of the deployment and of all registered agents. If the registry cannot be read, the check covers only those
/// of the configuration, and is not complete.
pub(crate) async fn check<P: Ports>(ports: &P) -> QueueCheck {
    let registered = agents::registered(ports.store()).await.inspect_err(|error| {
        let error = error_chain(error);
        tracing::error!(error, "queues of agents not checked: no registrations");
    });
    let agents = registered.as_deref().unwrap_or_default();
    let (dead_letters, read) =
        join(dead_letters::check(ports, agents), count_unread(ports, agents)).await;
    let complete = dead_letters.complete && read && registered.is_ok();
    QueueCheck { complete, ..dead_letters }
}

/// Counts the queues with messages that no function receives. Returns whether all queues could be read.
async fn count_unread<P: Ports>(ports: &P, agents: &[RegisteredAgent]) -> bool {
    let agents = agents.iter().filter(|agent| !agent.is_deleted());
    let agents = agents.map(|agent| Queue::Agent(agent.name.clone()));
    let own = [Queue::Submissions, Queue::Scheduler, Queue::Commands, Queue::Events];
    let queues: Vec<_> = own.into_iter().chain(agents).collect();
    let mut complete = true;
    for (queue, unread) in queues.iter().zip(ports.channel().unread(&queues).await) {
        match unread {
            Ok(false) => {}
            Ok(true) => {
                tracing::warn!(?queue, "messages wait, and no function receives them");
                metrics::queue_unread();
            }
            Err(error) => {
                tracing::warn!(?queue, error = error_chain(&error), "queue not checked");
                complete = false;
            }
        }
    }
    complete
}
