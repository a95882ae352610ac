//! The numbers of messages in the deployment's queues, for the console.

use std::collections::HashMap;

use aws_sdk_sqs::types::QueueAttributeName;
use futures_util::{StreamExt, TryStreamExt, stream};
use steward_core::model::names::AgentName;
use steward_runtime::ports::PortError;

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
    /// The depths of the submissions queue, the scheduler's queue, the queues of all agents whose dead-letter queues the
    /// supervisor watches, and the queue of rejected submissions.
    ///
    /// # Errors
    /// SQS failed.
    pub async fn depths(&self) -> Result<Vec<QueueDepth>, PortError> {
        let agents = self.agents().map(|agent| self.queues.agents.of(&agent));
        let urls = [self.queues.submissions.clone(), self.queues.scheduler.clone()];
        let urls = urls.into_iter().chain(agents).chain([self.queues.rejected.clone()]);
        let depths = urls.map(|url| async move { self.depth(&url).await });
        stream::iter(depths).buffered(BATCHES_AT_ONCE).try_collect().await
    }

    fn agents(&self) -> impl Iterator<Item = AgentName> {
        let prefix = self.queues.agents.name_prefix();
        let names = self.dead_letters.iter().map(|url| queue_name(url));
        names.filter_map(move |name| name.strip_prefix(prefix)?.strip_suffix(SUFFIX)?.parse().ok())
    }

    async fn depth(&self, url: &str) -> Result<QueueDepth, PortError> {
        let [waiting, in_flight, delayed] = [
            QueueAttributeName::ApproximateNumberOfMessages,
            QueueAttributeName::ApproximateNumberOfMessagesNotVisible,
            QueueAttributeName::ApproximateNumberOfMessagesDelayed,
        ];
        let request = self.client.get_queue_attributes().queue_url(url);
        let request = request.attribute_names(waiting.clone());
        let request = request.attribute_names(in_flight.clone()).attribute_names(delayed.clone());
        let output = request.send().await.map_err(failed(format!("count messages of {url}")))?;
        let counts: HashMap<_, _> = output.attributes.unwrap_or_default();
        let count =
            |name| counts.get(&name).and_then(|count| count.parse().ok()).unwrap_or_default();
        let (waiting, in_flight, delayed) = (count(waiting), count(in_flight), count(delayed));
        Ok(QueueDepth { name: queue_name(url).to_owned(), waiting, in_flight, delayed })
    }
}
