//! How much waits in the deployment's queues, for consoles.

use std::collections::HashMap;

use aws_sdk_sqs::types::QueueAttributeName;
use futures_util::{StreamExt, TryStreamExt, stream};
use steward_core::model::names::AgentName;
use steward_runtime::ports::PortError;

use super::{BATCHES_AT_ONCE, SqsChannel, name_of};
use crate::{dead_letters::SUFFIX, errors::failed};

/// What a queue holds; approximate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Depth {
    /// The queue's name.
    pub name: String,
    /// Messages that wait.
    pub waiting: u64,
    /// Messages in someone's hand.
    pub in_flight: u64,
    /// Messages that are held back on purpose.
    pub delayed: u64,
}

impl SqsChannel {
    /// What the queues hold: of submissions, the scheduler's, those of the agents whose dead letters are
    /// watched, and of refused submissions.
    ///
    /// # Errors
    /// SQS did not answer.
    pub async fn depths(&self) -> Result<Vec<Depth>, PortError> {
        let agents = self.agents().map(|agent| self.queues.agents.of(&agent));
        let urls = [self.queues.submissions.clone(), self.queues.scheduler.clone()];
        let urls = urls.into_iter().chain(agents).chain([self.queues.rejected.clone()]);
        let depths = urls.map(|url| async move { self.depth(&url).await });
        stream::iter(depths).buffered(BATCHES_AT_ONCE).try_collect().await
    }

    fn agents(&self) -> impl Iterator<Item = AgentName> {
        let prefix = self.queues.agents.name_prefix();
        let names = self.dead_letters.iter().map(|url| name_of(url));
        names.filter_map(move |name| name.strip_prefix(prefix)?.strip_suffix(SUFFIX)?.parse().ok())
    }

    async fn depth(&self, url: &str) -> Result<Depth, PortError> {
        let [waiting, in_flight, delayed] = [
            QueueAttributeName::ApproximateNumberOfMessages,
            QueueAttributeName::ApproximateNumberOfMessagesNotVisible,
            QueueAttributeName::ApproximateNumberOfMessagesDelayed,
        ];
        let request = self.client.get_queue_attributes().queue_url(url);
        let request = request.attribute_names(waiting.clone());
        let request = request.attribute_names(in_flight.clone()).attribute_names(delayed.clone());
        let answer = request.send().await.map_err(failed(format!("look at queue {url}")))?;
        let counts: HashMap<_, _> = answer.attributes.unwrap_or_default();
        let count = |of| counts.get(&of).and_then(|count| count.parse().ok()).unwrap_or_default();
        let (waiting, in_flight, delayed) = (count(waiting), count(in_flight), count(delayed));
        Ok(Depth { name: name_of(url).to_owned(), waiting, in_flight, delayed })
    }
}
