//! The receipt of a webhook: what prevents that a webhook that was sent twice becomes two events.
//!
//! ```text
//!  none ──claim──► being published ──► published           kept for seven days
//!                    │        ▲
//!                    └ lease over, or published in vain: another delivery may claim it
//! ```

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::model::time::later;

/// How long one delivery may take to publish the event.
const LEASE: Duration = Duration::from_secs(30);

/// How long a receipt is kept. Services repeat a webhook for some days.
const KEPT: Duration = Duration::from_secs(7 * 24 * 3600);

/// What is stored about a webhook.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebhookReceipt {
    /// Whether its event is on the event bus.
    is_published: bool,
    /// The end of the lease: until then, only the request that holds it publishes the event.
    leased_until: Timestamp,
    /// Until when the receipt is kept.
    expires_at: Timestamp,
}

/// What a delivery of a webhook has to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WebhookClaim {
    /// Save this receipt, and then publish the event.
    Publish(WebhookReceipt),
    /// Nothing: its event was published.
    Duplicate,
    /// Another delivery publishes it now.
    Busy,
}

impl WebhookReceipt {
    /// What a delivery at `now` has to do, by the stored receipt.
    #[must_use]
    pub fn claim(stored: Option<Self>, now: Timestamp) -> WebhookClaim {
        match stored.filter(|stored| stored.expires_at > now) {
            Some(Self { is_published: true, .. }) => WebhookClaim::Duplicate,
            Some(Self { leased_until, .. }) if leased_until > now => WebhookClaim::Busy,
            Some(_) | None => WebhookClaim::Publish(Self {
                is_published: false,
                leased_until: later(now, LEASE),
                expires_at: later(now, KEPT),
            }),
        }
    }

    /// The receipt after the event was published, or after that failed.
    #[must_use]
    pub fn after(self, is_published: bool, now: Timestamp) -> Self {
        Self { is_published, leased_until: now, ..self }
    }

    /// Until when the receipt is kept.
    #[must_use]
    pub fn expires_at(&self) -> Timestamp {
        self.expires_at
    }
}
