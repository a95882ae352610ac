//! Receipt handles: which message of which queue, and which of its receives.

use std::fmt::{self, Display, Formatter};

use super::message::Message;
use super::refusal::Refusal;

/// What a consumer shows to delete a message, or to change its visibility.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Receipt {
    /// The message's number.
    pub(super) number: u64,
    /// Which receive of it: an older receipt has no effect.
    pub(super) receive: u32,
}

impl Receipt {
    /// The handle of a message just received from `queue`.
    pub(super) fn handle(queue: &str, message: &Message) -> String {
        let receipt = Self { number: message.number, receive: message.receives };
        format!("{queue}/{receipt}")
    }

    /// Reads a handle that was given out by `queue`.
    pub(super) fn read(queue: &str, handle: &str) -> Result<Self, Refusal> {
        let read = || {
            let receipt = handle.strip_prefix(queue)?.strip_prefix('/')?;
            let (number, receive) = receipt.split_once('/')?;
            let number = u64::from_str_radix(number, 16).ok()?;
            Some(Self { number, receive: receive.parse().ok()? })
        };
        read().ok_or_else(Refusal::receipt_handle)
    }
}

impl Display for Receipt {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        let Self { number, receive } = self;
        write!(formatter, "{number:x}/{receive}")
    }
}
