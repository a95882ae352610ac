//! How long the items of a task are kept.
//!
//! A task is kept for its retention time after its end; its documents and its child tasks a day longer. Their expiry is
//! computed when they are written, from the latest possible end of the task, [`retention_start`]. If that end moves, the
//! expiry is extended: [`Task::document_retention`](super::task::Task::document_retention) says until when, and the
//! adapter of the state store computes the time of expiry of each item.

use std::time::Duration;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::time::later;
use crate::limits::{self, RETENTION_MARGIN};

/// The start of the retention of a task's documents, in whole seconds: the latest possible end of a task with this
/// complete-by, if it is undone.
#[must_use]
pub fn retention_start(complete_by: Timestamp, complete_within: Duration) -> Timestamp {
    let latest_end = later(later(complete_by, complete_within), limits::LATE_UNDO_MARGIN);
    Timestamp::from_second(latest_end.as_second()).unwrap_or(latest_end)
}

/// How much earlier a document may expire: see [`DocumentRetention::almost_covers`].
const ALMOST: Duration = Duration::from_secs(3_600);

/// How long a document is kept: until `from`, plus the retention time, plus a
/// [margin](crate::limits::RETENTION_MARGIN).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DocumentRetention {
    /// When the retention time begins. Not earlier than the end of the task.
    #[serde(with = "jiff::fmt::serde::timestamp::millisecond::required")]
    #[schemars(with = "i64")]
    pub from: Timestamp,
    /// The retention time in seconds. The deployment's retention time if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention_s: Option<u64>,
}

impl DocumentRetention {
    /// The one that takes the most characters in a message.
    pub(crate) const LONGEST: Self = Self { from: Timestamp::MAX, retention_s: Some(u64::MAX) };

    /// When the document expires. `default_retention` is the deployment's retention time.
    #[must_use]
    pub fn expires_at(self, default_retention: Duration) -> Timestamp {
        let retention = self.retention_s.map_or(default_retention, Duration::from_secs);
        later(later(self.from, retention), RETENTION_MARGIN)
    }

    /// Whether a document with this retention expires at most an hour too early for `other`. The margin makes up for that.
    #[must_use]
    pub fn almost_covers(self, other: Self) -> bool {
        self.retention_s == other.retention_s && later(self.from, ALMOST) >= other.from
    }

    /// Returns a retention that is at least as long as `self` and as `other`. The deployment's retention time is not
    /// known here. So if only one of the two has its own retention time, the result adds both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let from = self.from.max(other.from);
        match (self.retention_s, other.retention_s) {
            (None, None) => Self { from, retention_s: None },
            (Some(one), Some(another)) => Self { from, retention_s: Some(one.max(another)) },
            (Some(seconds), None) | (None, Some(seconds)) => {
                Self { from: later(from, Duration::from_secs(seconds)), retention_s: None }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn combined_retention_is_as_long_as_both_for_any_default_retention() {
        let kept = |from, retention_s| DocumentRetention {
            from: Timestamp::from_second(from).unwrap(),
            retention_s,
        };
        let all = [kept(10, None), kept(20, None), kept(10, Some(5)), kept(7, Some(50))];
        for (one, another) in all.iter().flat_map(|one| all.iter().map(move |other| (*one, *other)))
        {
            for default in [1, 100] {
                let until = |DocumentRetention { from, retention_s }: DocumentRetention| {
                    from.as_second() + i64::try_from(retention_s.unwrap_or(default)).unwrap()
                };
                assert!(until(one.and(another)) >= until(one).max(until(another)));
            }
        }
    }
}
