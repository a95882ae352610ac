//! Why an agent is not registered, or an answer not delivered.

use reqwest::StatusCode;
use steward_core::model::names::AgentName;
use steward_runtime::ports::PortError;

pub use crate::properties::InvalidProperties;

/// The part of the name of a queue between the name of Steward's stack and that of the agent.
pub(crate) const AGENT_INFIX: &str = "-agent-";

/// Why an agent was not registered. The deployer sees the message.
#[derive(Debug, thiserror::Error)]
pub enum RegistrationError {
    /// The event has an unknown type.
    #[error("unknown request type `{0}`")]
    UnknownRequest(String),
    /// A property is invalid.
    #[error(transparent)]
    Properties(#[from] InvalidProperties),
    /// The name of Steward's stack is ambiguous.
    #[error(
        "the name of Steward's stack contains `{AGENT_INFIX}`: another stack's permissions would match its queues"
    )]
    AmbiguousStack,
    /// The agent has no queue.
    #[error("there is no queue `{0}`: create it before the registration (DependsOn)")]
    NoQueue(String),
    /// The agent's queue has another dead-letter queue, or none.
    #[error(
        "queue `{queue}` must have the dead-letter queue `{expected}` in its RedrivePolicy, and has {}",
        found.as_deref().unwrap_or("none")
    )]
    OtherDeadLetterQueue {
        /// The agent's queue.
        queue: String,
        /// The property.
        expected: String,
        /// The dead-letter queue that the queue has.
        found: Option<String>,
    },
    /// The supervisor's permissions do not cover the dead-letter queue.
    #[error(
        "the name of the dead-letter queue `{name}` must begin with `{prefix}` and end in `{suffix}`: the supervisor \
         may read only such queues"
    )]
    DeadLetterQueueName {
        /// The property.
        name: String,
        /// How it has to begin.
        prefix: String,
        /// How it has to end.
        suffix: &'static str,
    },
    /// SQS would deliver a request again while the function still works on it.
    #[error(
        "the visibility timeout of queue `{queue}` is {visibility_seconds} s, and must be at least {expected} s: six \
         times the timeout of the function"
    )]
    VisibilityTimeout {
        /// The agent's queue.
        queue: String,
        /// Its visibility timeout.
        visibility_seconds: u32,
        /// The least that it has to be.
        expected: u32,
    },
    /// Another stack has registered an agent of this name.
    #[error(
        "agent `{name}` is registered by the stack {stack}. If that stack no longer exists: `steward agents forget {name}`"
    )]
    OtherStack {
        /// The agent.
        name: AgentName,
        /// The other stack.
        stack: String,
    },
    /// The queue or the registry cannot be read, or the registry cannot be written.
    #[error("the registry or the queue is not available: {}", steward_runtime::ports::error_chain(.0))]
    Port(#[from] PortError),
    /// The time limit of the function was reached.
    #[error("the registrar did not finish in time")]
    Timeout,
    /// The registrar has a defect.
    #[error("the registrar failed unexpectedly; its log has the details")]
    Panic,
}

impl RegistrationError {
    /// Whether it may pass, because the queue was changed a moment ago.
    pub(crate) fn may_pass(&self) -> bool {
        matches!(
            self,
            Self::NoQueue(_) | Self::OtherDeadLetterQueue { .. } | Self::VisibilityTimeout { .. }
        )
    }
}

/// Why an answer was not delivered. No message contains the URL.
#[derive(Debug, thiserror::Error)]
pub enum DeliveryError {
    /// The event has no URL for the answer.
    #[error("the event is not one of a custom resource of CloudFormation")]
    NotACustomResource,
    /// The request failed.
    #[error("the answer was not delivered")]
    Failed(#[source] reqwest::Error),
    /// The answer was refused.
    #[error("the answer was refused with HTTP {0}")]
    Refused(StatusCode),
}
