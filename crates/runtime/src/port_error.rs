//! How an operation on a port fails, and the text of such an error for a log line.

use std::error::Error;

/// An operation on a port failed. It may have taken effect nonetheless.
#[derive(Debug, thiserror::Error)]
#[error("{operation} failed")]
pub struct PortError {
    /// The operation, with the ids that it concerns; never a payload.
    pub operation: String,
    /// Whether a retry of the same operation may succeed.
    pub retryable: bool,
    /// The cause.
    #[source]
    pub source: Box<dyn Error + Send + Sync>,
}

/// A message was not sent because its queue does not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("there is no such queue")]
pub struct NoSuchQueue;

/// The store refused a write because the item is too large.
#[derive(Debug, thiserror::Error)]
#[error("the item is too large: {0}")]
pub struct ItemTooLarge(pub String);

impl PortError {
    /// Whether the cause is that the queue does not exist.
    #[must_use]
    pub fn is_no_such_queue(&self) -> bool {
        self.source.is::<NoSuchQueue>()
    }

    /// Whether the cause is that the item is larger than the store allows.
    #[must_use]
    pub fn is_too_large(&self) -> bool {
        self.source.is::<ItemTooLarge>()
    }
}

/// The messages of an error and of all its causes, for a log line. A cause that says nothing new is left out: the SDK's errors
/// repeat their service's error.
#[must_use]
pub fn error_chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let message = error.to_string();
        if !text.ends_with(&message) {
            text.push_str(": ");
            text.push_str(&message);
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use std::{error::Error, io};

    use super::error_chain;

    /// An error with a message, and a cause that the message may contain already.
    #[derive(Debug, thiserror::Error)]
    #[error("{text}")]
    struct Caused {
        text: &'static str,
        #[source]
        cause: Box<dyn Error>,
    }

    #[test]
    fn an_error_names_each_cause_once() {
        let caused = |text, cause: Box<dyn Error>| Box::new(Caused { text, cause });
        let root = || io::Error::other("table tasks not found");
        let repeated = caused("service error: table tasks not found", Box::new(root()));
        assert_eq!(error_chain(&*repeated), "service error: table tasks not found");
        let chain = caused("cannot save", caused("service error", Box::new(root())));
        assert_eq!(error_chain(&*chain), "cannot save: service error: table tasks not found");
    }
}
