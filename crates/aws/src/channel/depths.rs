//! The numbers of messages in the queues of a deployment.

use std::collections::{BTreeSet, HashMap};

use aws_sdk_sqs::types::QueueAttributeName;
use futures_util::{StreamExt, TryStreamExt, stream};
use steward_core::model::names::AgentName;
use steward_runtime::ports::{PortError, Queue};

use super::sqs_channel::{BATCHES_AT_ONCE, SqsChannel};
use crate::{dead_letters::SUFFIX, errors::failed, sqs::queue_name};

/// The approximate numbers of messages in a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueDepth {
    /// The name of the queue.
    pub name: String,
    /// Messages that can be received.
    pub waiting: u64,
    /// Messages that were received and not deleted yet.
    pub in_flight: u64,
    /// Messages whose delay has not passed yet.
    pub delayed: u64,
}

impl SqsChannel {
    /// The depths of the submissions queue, the scheduler's queue, the queues of commands and of events, the queues of these agents and of
    /// those whose dead-letter queues the configuration lists, and the queue of rejected submissions. Omits agents' queues that do not exist.
    ///
    /// # Errors
    /// SQS failed.
    pub async fn depths(&self, agents: &[AgentName]) -> Result<Vec<QueueDepth>, PortError> {
        let agents: BTreeSet<_> = agents.iter().cloned().chain(self.listed_agents()).collect();
        let agents = agents.into_iter().map(Queue::Agent);
        let own = [Queue::Submissions, Queue::Scheduler, Queue::Commands, Queue::Events];
        let queues = own.into_iter().chain(agents);
        let queues = queues.chain([Queue::Rejected]);
        let depths = queues.map(|queue| async move {
            if matches!(queue, Queue::Agent(_)) {
                return self.depth(&queue).await;
            }
            self.read_depth(&queue).await.map(Some)
        });
        let depths: Vec<_> = stream::iter(depths).buffered(BATCHES_AT_ONCE).try_collect().await?;
        Ok(depths.into_iter().flatten().collect())
    }

    /// The agents whose dead-letter queues the configuration lists.
    fn listed_agents(&self) -> impl Iterator<Item = AgentName> {
        let prefix = self.queues.agents.name_prefix();
        let names = self.dead_letters.iter().map(|url| queue_name(url));
        names.filter_map(move |name| name.strip_prefix(prefix)?.strip_suffix(SUFFIX)?.parse().ok())
    }

    /// The depth of a queue; `None` if it does not exist.
    ///
    /// # Errors
    /// SQS failed.
    pub async fn depth(&self, queue: &Queue) -> Result<Option<QueueDepth>, PortError> {
        match self.read_depth(queue).await {
            Err(error) if error.is_no_such_queue() => Ok(None),
            depth => depth.map(Some),
        }
    }

    async fn read_depth(&self, queue: &Queue) -> Result<QueueDepth, PortError> {
        let url = self.url(queue);
        let [waiting, in_flight, delayed] = [
            QueueAttributeName::ApproximateNumberOfMessages,
            QueueAttributeName::ApproximateNumberOfMessagesNotVisible,
            QueueAttributeName::ApproximateNumberOfMessagesDelayed,
        ];
        let request = self.client.get_queue_attributes().queue_url(&url);
        let request = request.attribute_names(waiting.clone());
        let request = request.attribute_names(in_flight.clone()).attribute_names(delayed.clone());
        let output = request.send().await.map_err(failed(format!("count messages of {url}")))?;
        let counts: HashMap<_, _> = output.attributes.unwrap_or_default();
        let count =
            |name| counts.get(&name).and_then(|count| count.parse().ok()).unwrap_or_default();
        let (waiting, in_flight, delayed) = (count(waiting), count(in_flight), count(delayed));
        let name = queue_name(&url).to_owned();
        Ok(QueueDepth { name, waiting, in_flight, delayed })
    }
}
