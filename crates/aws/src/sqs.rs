//! What every use of SQS shares: the names and URLs of queues, and the limit of a batch.

use std::str::FromStr;

use aws_sdk_sqs::Client;
use steward_core::model::names::AgentName;
use steward_runtime::ports::PortError;

use crate::errors::failed;

/// Messages in a batch, by SQS's limit.
pub(crate) const BATCH_MESSAGES_MAX: usize = 10;

/// The URLs of a deployment's queues.
#[derive(Debug, Clone)]
pub struct QueueUrls {
    /// The submissions queue.
    pub submissions: String,
    /// The scheduler's queue.
    pub scheduler: String,
    /// The queue of operators' commands; empty for functions that do not use it.
    pub commands: String,
    /// The queue of events that steps wait for; empty for functions that do not use it.
    pub events: String,
    /// The queue of rejected submissions.
    pub rejected: String,
    /// The queues of the agents.
    pub agents: AgentQueueUrl,
    /// The queue of the supervisor's ticks.
    pub sweeps: String,
}

/// The URL of the agents' queues, with the placeholder `{agent}` for the name of the agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentQueueUrl(String);

impl AgentQueueUrl {
    /// The URL of the queue of one agent.
    #[must_use]
    pub fn of(&self, agent: &AgentName) -> String {
        self.0.replace("{agent}", agent.as_str())
    }

    /// The prefix of the names of the agents' queues.
    pub(crate) fn name_prefix(&self) -> &str {
        queue_name(&self.0).split('{').next().unwrap_or_default()
    }

    /// The agent whose queue has this name, if it is the name of an agent's queue.
    #[must_use]
    pub fn agent(&self, name: &str) -> Option<AgentName> {
        let (before, after) = queue_name(&self.0).split_once("{agent}")?;
        name.strip_prefix(before)?.strip_suffix(after)?.parse().ok()
    }
}

/// The URL of the agents' queues has no placeholder `{agent}`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` does not contain the placeholder {{agent}}")]
pub struct NoAgentInUrl(String);

impl FromStr for AgentQueueUrl {
    type Err = NoAgentInUrl;

    fn from_str(text: &str) -> Result<Self, NoAgentInUrl> {
        if text.contains("{agent}") {
            Ok(Self(text.to_owned()))
        } else {
            Err(NoAgentInUrl(text.to_owned()))
        }
    }
}

/// The URL of a queue that is given by name or URL. Returns nothing if there is no queue with this name.
///
/// # Errors
/// SQS failed.
pub async fn queue_url(client: &Client, name_or_url: &str) -> Result<Option<String>, PortError> {
    if name_or_url.contains("://") {
        return Ok(Some(name_or_url.to_owned()));
    }
    match client.get_queue_url().queue_name(name_or_url).send().await {
        Ok(found) => Ok(found.queue_url),
        Err(error) if error.as_service_error().is_some_and(|e| e.is_queue_does_not_exist()) => {
            Ok(None)
        }
        Err(error) => Err(failed(format!("find the URL of queue {name_or_url}"))(error)),
    }
}

/// The URL of a queue that is given by name or URL. A queue that is given by name is in the same account and region as
/// the queue with the URL `other`.
pub(crate) fn beside(other: &str, name_or_url: &str) -> String {
    if name_or_url.contains("://") {
        return name_or_url.to_owned();
    }
    let base = other.rsplit_once('/').map_or("", |(base, _)| base);
    format!("{base}/{name_or_url}")
}

/// The name of a queue: the last segment of its URL.
#[must_use]
pub fn queue_name(url: &str) -> &str {
    url.rsplit('/').next().unwrap_or(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_agent_is_derived_from_the_name_of_its_queue() {
        let url: AgentQueueUrl = "https://q/shop-agent-{agent}-requests".parse().unwrap();
        let payment = "payment".parse().unwrap();
        assert_eq!(url.agent("shop-agent-payment-requests"), Some(payment));
        for other in ["shop-agent--requests", "shop-scheduler", "agent-payment-requests"] {
            assert_eq!(url.agent(other), None, "{other}");
        }
    }
}
