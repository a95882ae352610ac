//! Runs whose agents have a rate limit, and the meter with which the oracle checks that the limit holds.

use std::{collections::BTreeMap, time::Duration};

use anyhow::Result;
use jiff::Timestamp;
use steward_core::{
    model::{names::AgentName, registration::CallRate},
    rate::RateLimit,
};

use super::random::SeededRandom;

/// The share of runs in which agents have limits.
const LIMITED_SHARE: f64 = 0.3;

/// Draws the limits of a run from a separate generator.
pub(super) fn draw(seed: u64, agents: &[AgentName]) -> Result<BTreeMap<AgentName, RateLimit>> {
    let random = &mut SeededRandom::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x7a7e);
    if !random.chance(LIMITED_SHARE) {
        return Ok(BTreeMap::new());
    }
    let mut limits = BTreeMap::new();
    for agent in agents {
        if random.chance(0.6) {
            let tenths = u32::try_from(random.pick(2, &[5, 20, 100]))?;
            let burst = u32::try_from(random.pick(1, &[2, 20]))?.try_into()?;
            let burst = random.chance(0.5).then_some(burst);
            let per_second = CallRate::try_from(f64::from(tenths) / 10.0)?;
            limits.insert(agent.clone(), RateLimit::new(per_second, burst));
        }
    }
    Ok(limits)
}

/// Counts the calls of an agent that exceed its rate, as a leaky bucket: its level is the largest excess of any window that
/// ends now.
#[derive(Debug)]
pub(super) struct RateMeter {
    limit: RateLimit,
    level: f64,
    at: Timestamp,
}

impl RateMeter {
    pub(super) fn new(limit: RateLimit) -> Self {
        Self { limit, level: 0.0, at: Timestamp::MIN }
    }

    /// Counts a call. Returns whether the limit holds.
    pub(super) fn count(&mut self, now: Timestamp, clock_skew: Duration) -> bool {
        let passed_s = now.duration_since(self.at).as_secs_f64();
        let leaked = passed_s * f64::from(self.limit.per_second);
        self.level = (self.level - leaked).max(0.0) + 1.0;
        self.at = now;
        self.level <= self.limit.calls_max(Duration::ZERO, clock_skew) + 1e-6
    }
}
