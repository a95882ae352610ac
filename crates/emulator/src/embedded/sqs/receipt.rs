//! Receipt handles. A handle identifies a queue, a message, and one receive of the message.

use std::fmt::{self, Display, Formatter};

use super::{error::SqsError, message::QueueMessage};

/// The handle that a consumer needs to delete a message or to change its visibility.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ReceiptHandle {
    /// The message's number.
    pub(super) number: u64,
    /// The number of the receive. The handle of an earlier receive has no effect.
    pub(super) receive: u32,
}

impl ReceiptHandle {
    /// The handle, as text, of a message that was just received from `queue`.
    pub(super) fn handle(queue: &str, message: &QueueMessage) -> String {
        let receipt = Self { number: message.number, receive: message.receives };
        format!("{queue}/{receipt}")
    }

    /// Parses a handle of `queue`.
    pub(super) fn read(queue: &str, handle: &str) -> Result<Self, SqsError> {
        let read = || {
            let receipt = handle.strip_prefix(queue)?.strip_prefix('/')?;
            let (number, receive) = receipt.split_once('/')?;
            let number = u64::from_str_radix(number, 16).ok()?;
            Some(Self { number, receive: receive.parse().ok()? })
        };
        read().ok_or_else(SqsError::receipt_handle)
    }
}

impl Display for ReceiptHandle {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        let Self { number, receive } = self;
        write!(formatter, "{number:x}/{receive}")
    }
}
