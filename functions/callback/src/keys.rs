//! The keys that verify URLs, where they come from.

use std::future::Future;

use jiff::Timestamp;
use steward_aws::ports::SharedCallbackUrls;

/// The keys that verify URLs.
pub trait CallbackKeySource: Send + Sync {
    /// The current keys.
    fn urls(&self) -> &SharedCallbackUrls;

    /// Reads the keys again, because a URL names an unknown one.
    fn refresh_for_unknown_key(&self, now: Timestamp) -> impl Future<Output = KeyRefresh> + Send;
}

/// The result of reading the keys again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyRefresh {
    /// They were read.
    Done,
    /// They could not be read, or were read a moment ago. A key that was added since may be missing.
    NotNow,
    /// They never change.
    Fixed,
}

/// Keys that do not change.
impl CallbackKeySource for SharedCallbackUrls {
    fn urls(&self) -> &SharedCallbackUrls {
        self
    }

    async fn refresh_for_unknown_key(&self, _: Timestamp) -> KeyRefresh {
        KeyRefresh::Fixed
    }
}

#[cfg(feature = "secrets")]
impl CallbackKeySource for steward_aws::callback_keys::CallbackKeyring {
    fn urls(&self) -> &SharedCallbackUrls {
        self.shared()
    }

    async fn refresh_for_unknown_key(&self, now: Timestamp) -> KeyRefresh {
        match self.refresh_early(now).await {
            true => KeyRefresh::Done,
            false => KeyRefresh::NotNow,
        }
    }
}
