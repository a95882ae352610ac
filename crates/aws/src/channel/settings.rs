//! The settings of an agent's queue, for the registrar.

use aws_sdk_sqs::types::QueueAttributeName;
use steward_core::model::names::AgentName;
use steward_runtime::ports::{PortError, Queue};

use super::sqs_channel::SqsChannel;
use crate::{
    errors::{corrupt, failed},
    sqs::queue_name,
};

/// The settings of an agent's queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentQueueSettings {
    /// The visibility timeout, in seconds.
    pub visibility_seconds: u32,
    /// The name of the dead-letter queue, if there is one.
    pub dead_letter_queue: Option<String>,
}

impl SqsChannel {
    /// The name of an agent's queue.
    #[must_use]
    pub fn agent_queue_name(&self, agent: &AgentName) -> String {
        queue_name(&self.queues.agents.of(agent)).to_owned()
    }

    /// The prefix of the names of all agents' queues.
    #[must_use]
    pub fn agent_queue_prefix(&self) -> &str {
        self.queues.agents.name_prefix()
    }

    /// The settings of an agent's queue; `None` if there is no queue.
    ///
    /// # Errors
    /// SQS failed.
    pub async fn agent_queue_settings(
        &self,
        agent: &AgentName,
    ) -> Result<Option<AgentQueueSettings>, PortError> {
        let operation = || format!("read the settings of the queue of agent {agent}");
        let [visibility, policy] =
            [QueueAttributeName::VisibilityTimeout, QueueAttributeName::RedrivePolicy];
        let url = self.url(&Queue::Agent(agent.clone()));
        let request = self.client.get_queue_attributes().queue_url(url);
        let request = request.attribute_names(visibility.clone()).attribute_names(policy.clone());
        let output = match request.send().await.map_err(failed(operation())) {
            Err(error) if error.is_no_such_queue() => return Ok(None),
            output => output?,
        };
        let attributes = output.attributes.unwrap_or_default();
        let seconds = attributes.get(&visibility).map_or("0", String::as_str).parse();
        Ok(Some(AgentQueueSettings {
            visibility_seconds: seconds
                .map_err(|error: std::num::ParseIntError| corrupt(operation())(error.into()))?,
            dead_letter_queue: attributes.get(&policy).and_then(|policy| dead_letter_queue(policy)),
        }))
    }
}

/// The name of the dead-letter queue in a redrive policy.
fn dead_letter_queue(policy: &str) -> Option<String> {
    let policy: serde_json::Value = serde_json::from_str(policy).ok()?;
    let arn = policy.get("deadLetterTargetArn")?.as_str()?;
    Some(arn.rsplit(':').next()?.to_owned())
}
