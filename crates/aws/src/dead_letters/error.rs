//! The errors of operations on dead letters.

use steward_runtime::ports::PortError;

/// An operation on dead letters failed.
#[derive(Debug, thiserror::Error)]
pub enum DeadLettersError {
    /// The queue does not exist.
    #[error("there is no queue `{0}`")]
    NoQueue(String),
    /// The queue is not a dead-letter queue. Receiving from it would interfere with its consumers.
    #[error("`{0}` is not a dead-letter queue")]
    NotADeadLetterQueue(String),
    /// The queue has its own redrive policy, so reading its messages would count as receives.
    #[error(
        "`{queue}` has a redrive policy and removes a message after {receives_max} receives: \
         reading its messages here would count as receives"
    )]
    HasRedrivePolicy {
        /// The name of the queue.
        queue: String,
        /// The maximum number of receives.
        receives_max: u64,
    },
    /// The source queue of the message is unknown.
    #[error(
        "several queues send their dead letters here, and the message does not name its source: \
         choose the target queue"
    )]
    UnknownSource,
    /// The message arrived after the redrive began: it may have been sent back a moment ago, and refused again.
    #[error("it arrived after the redrive began, so it may have been refused again")]
    ArrivedLater,
    /// SQS or the event bus failed.
    #[error(transparent)]
    Port(#[from] PortError),
}
