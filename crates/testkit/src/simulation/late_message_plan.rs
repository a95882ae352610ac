//! The plan of late messages. In some runs, copies of messages arrive again, up to the fourteen days for which SQS keeps
//! messages. Most of them arrive when clients already reuse the ids of expired tasks. In some runs, messages become dead
//! letters after few receives, and an operator redrives them.

use steward_aws::batch::REDRIVEN_ATTRIBUTE;
use steward_runtime::ports::OutgoingMessage;

use super::{
    blueprint::Blueprint,
    random::SeededRandom,
    virtual_time::{DAY, HOUR, MINUTE, Millis},
};

/// How long a queue keeps a message.
const KEPT_WITHIN: Millis = 14 * DAY;

/// The share of runs with late copies, and of runs with dead letters.
const LATE_MESSAGES_SHARE: f64 = 0.08;

/// Which messages arrive late.
#[derive(Debug, Clone, Default)]
pub(super) struct LateMessagePlan {
    pub(super) copies: Option<LateCopyPlan>,
    pub(super) dead_letters: Option<RedrivePlan>,
}

/// Late copies of messages.
#[derive(Debug, Clone)]
pub(super) struct LateCopyPlan {
    /// The share of messages that are copied.
    share: f64,
    /// When clients reuse the ids of expired tasks.
    pub(super) reuse_at: Millis,
}

/// Dead letters that an operator redrives.
#[derive(Debug, Clone)]
pub(super) struct RedrivePlan {
    /// How often a message is received before it becomes a dead letter.
    pub(super) receives_max: u32,
    /// How long it stays a dead letter at most.
    pub(super) redriven_within: Millis,
}

/// Whether a message is late: it is marked as redriven.
pub(super) fn is_late(message: &OutgoingMessage) -> bool {
    message.attributes.iter().any(|(name, _)| *name == REDRIVEN_ATTRIBUTE)
}

impl LateMessagePlan {
    /// Draws the late messages. It uses a separate generator, so that runs without late messages do not depend on it.
    pub(super) fn of(seed: u64, faults_until: Millis, blueprints: &mut [Blueprint]) -> Self {
        let random = &mut SeededRandom::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x1a7e);
        let copies = random.chance(LATE_MESSAGES_SHARE).then(|| LateCopyPlan {
            share: random.pick(0.05, &[0.2, 0.5]),
            reuse_at: faults_until + random.within(6..=13 * 24) * HOUR,
        });
        if copies.is_some() {
            blueprints.iter_mut().for_each(|blueprint| shorten_retention(blueprint, random));
        }
        let dead_letters = random.chance(LATE_MESSAGES_SHARE).then(|| RedrivePlan {
            receives_max: random.within(1..=3) as u32,
            redriven_within: random.pick(MINUTE, &[10 * MINUTE, DAY, KEPT_WITHIN]),
        });
        Self { copies, dead_letters }
    }

    /// Whether there are no late messages.
    pub(super) fn is_empty(&self) -> bool {
        self.copies.is_none() && self.dead_letters.is_none()
    }

    /// The latest time at which a message that was sent before `now` may arrive.
    pub(super) fn latest_arrival(&self, now: Millis) -> Millis {
        let reuse_at = self.copies.as_ref().map_or(0, |copies| copies.reuse_at);
        if self.is_empty() { now } else { now.max(reuse_at) + KEPT_WITHIN }
    }
}

fn shorten_retention(blueprint: &mut Blueprint, random: &mut SeededRandom) {
    if random.chance(0.8) {
        blueprint.retention_h = Some(random.within(1..=12));
    }
}

impl LateCopyPlan {
    /// Draws when the copies of a message that is sent now arrive. Messages sent after ids are reused are not copied, so
    /// that the run ends.
    pub(super) fn arrivals(&self, now: Millis, random: &mut SeededRandom) -> Vec<Millis> {
        if now >= self.reuse_at || !random.chance(self.share) {
            return Vec::new();
        }
        (0..random.pick(1, &[1, 2])).map(|_| self.arrival(now, random)).collect()
    }

    /// When the copy of a message that is sent now arrives.
    fn arrival(&self, now: Millis, random: &mut SeededRandom) -> Millis {
        let within_an_hour = now + random.skewed(HOUR);
        let any_time = now + random.skewed(KEPT_WITHIN);
        let after_reuse = self.reuse_at + random.skewed(10 * MINUTE);
        match random.within(0..=9) {
            0 | 1 => within_an_hour,
            2 | 3 => any_time,
            _ if (now..now + KEPT_WITHIN).contains(&after_reuse) => after_reuse,
            _ => any_time,
        }
    }
}

/// The message, marked as late: as one that may have been handled before.
pub(super) fn late(message: &OutgoingMessage) -> OutgoingMessage {
    let mut message = message.clone();
    if !is_late(&message) {
        message.attributes.push((REDRIVEN_ATTRIBUTE, "true".to_owned()));
    }
    message
}
