//! How SQS delivers the messages of tenants: the documented rules of fair queues, as pure functions. The embedded queues
//! and the simulation of tenants follow them.
//!
//! A standard queue whose messages have message group ids is fair. A group with more than its share of the messages in
//! flight is *noisy*: its messages are delivered after those of quiet groups. Nothing is dropped or throttled, and a
//! message group id neither orders nor deduplicates messages. A message without a group is a quiet tenant of its own.
//!
//! Source: <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-fair-queues-detailed.html>.
//! It calls the thresholds approximate. Its second measure, a recent share of the processing time of more than a tenth, has
//! no documented period and is left out, so groups become noisy later here than in SQS.

use std::time::Duration;

/// A noisy group has more than this share of the messages in flight.
const NOISY_SHARE: f64 = 0.1;

/// A noisy group has at least this many messages in flight.
const NOISY_IN_FLIGHT_MIN: usize = 30;

/// A noisy group that sends no message for this long becomes quiet.
const QUIET_AFTER: Duration = Duration::from_secs(5 * 60);

/// The load of a message group in a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupLoad {
    /// Its messages in flight.
    pub in_flight: usize,
    /// The messages in flight of the whole queue.
    pub queue_in_flight: usize,
    /// Whether messages of the group wait.
    pub has_backlog: bool,
    /// The time since the group's last message was sent.
    pub since_last_sent: Duration,
}

impl GroupLoad {
    /// Whether the group is noisy. Once it is, it stays so until its backlog is empty, or until it sends nothing for five
    /// minutes.
    #[must_use]
    pub fn is_noisy(&self, was_noisy: bool) -> bool {
        let Self { in_flight, queue_in_flight, has_backlog, since_last_sent } = *self;
        let exceeds = in_flight >= NOISY_IN_FLIGHT_MIN
            && in_flight as f64 > queue_in_flight as f64 * NOISY_SHARE;
        (exceeds || was_noisy) && has_backlog && since_last_sent < QUIET_AFTER
    }
}

/// The order in which a queue delivers the messages of its groups: the least first. Messages of the same rank are delivered
/// in the order in which they became visible.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DeliveryRank {
    /// The group is quiet, or the message has none.
    Quiet,
    /// The group is noisy. Of several noisy groups, the one with the fewest messages in flight comes first.
    Noisy {
        /// Its messages in flight.
        in_flight: usize,
    },
}

impl DeliveryRank {
    /// The rank of a group.
    #[must_use]
    pub fn of(is_noisy: bool, in_flight: usize) -> Self {
        if is_noisy { Self::Noisy { in_flight } } else { Self::Quiet }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(in_flight: usize, queue_in_flight: usize) -> GroupLoad {
        let since_last_sent = Duration::ZERO;
        GroupLoad { in_flight, queue_in_flight, has_backlog: true, since_last_sent }
    }

    #[test]
    fn a_group_is_noisy_with_thirty_messages_and_more_than_a_tenth_of_all_in_flight() {
        for (in_flight, all, noisy) in
            [(29, 29, false), (30, 30, true), (30, 299, true), (30, 300, false), (31, 300, true)]
        {
            assert_eq!(load(in_flight, all).is_noisy(false), noisy, "{in_flight} of {all}");
        }
    }

    #[test]
    fn a_noisy_group_becomes_quiet_without_a_backlog_or_after_five_minutes_without_messages() {
        let few = load(0, 100);
        assert!(few.is_noisy(true), "its share has fallen, but its backlog has not");
        assert!(!GroupLoad { has_backlog: false, ..load(90, 100) }.is_noisy(true));
        let silent = |seconds| GroupLoad { since_last_sent: Duration::from_secs(seconds), ..few };
        assert!(silent(299).is_noisy(true) && !silent(300).is_noisy(true));
    }

    #[test]
    fn quiet_groups_come_first_and_then_the_noisy_one_with_the_fewest_messages_in_flight() {
        let mut ranks =
            [(true, 40), (false, 90), (true, 31)].map(|(noisy, n)| DeliveryRank::of(noisy, n));
        ranks.sort();
        let noisy = |in_flight| DeliveryRank::Noisy { in_flight };
        assert_eq!(ranks, [DeliveryRank::Quiet, noisy(31), noisy(40)]);
    }
}
