//! Ticks: delayed messages to the supervisor itself. The schedule triggers a run of the supervisor every minute, which is
//! the least that EventBridge allows. Each run sends the ticks for the time until the next run, and each tick starts one
//! sweep of the due index.
//!
//! ```text
//! schedule ──► run ─┬─► sweep, alerts, history
//!                   └─► ticks, delayed by 10 s, 20 s … 50 s ──► queue ──► sweep
//! ```
//!
//! A sweep ends when the next tick is due, so no two sweeps of a minute overlap. A tick that arrives later than that does
//! nothing: the next one sweeps the same tasks. A lost tick delays recovery until the next one, or until the next run.

use std::{str::FromStr, time::Duration};

use envconfig::Envconfig;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use steward_core::model::time::later;
use steward_runtime::ports::{Channel, OutgoingMessage, Ports, Queue, error_chain};

/// The interval of the schedule that triggers the supervisor on AWS.
pub const RUN_EVERY: Duration = Duration::from_secs(60);

/// The shortest time between two sweeps, in seconds.
const SWEEP_EVERY_MIN: u64 = 5;

/// The configuration of the supervisor, beside the configuration that all functions share.
#[derive(Debug, Clone, Copy, Envconfig)]
pub struct SupervisorConfig {
    /// The time between two sweeps of the due index, for example `10s`.
    #[envconfig(from = "STEWARD_SWEEP_EVERY")]
    pub sweep_every: SweepInterval,
}

/// The time between two sweeps on AWS: whole seconds, from 5 to the interval of the schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SweepInterval(Duration);

/// The text is not a time between two sweeps.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a number of seconds from 5s to 60s")]
pub struct InvalidSweepInterval(String);

impl FromStr for SweepInterval {
    type Err = InvalidSweepInterval;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let seconds = text.strip_suffix('s').and_then(|number| number.parse().ok());
        seconds
            .filter(|seconds| (SWEEP_EVERY_MIN..=RUN_EVERY.as_secs()).contains(seconds))
            .map(|seconds| Self(Duration::from_secs(seconds)))
            .ok_or_else(|| InvalidSweepInterval(text.to_owned()))
    }
}

/// When the supervisor sweeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SweepSchedule {
    /// The time between two runs.
    pub run_every: Duration,
    /// The time between two sweeps. If it is not shorter than `run_every`, only the runs sweep.
    pub sweep_every: Duration,
}

impl From<SupervisorConfig> for SweepSchedule {
    /// The schedule on AWS.
    fn from(config: SupervisorConfig) -> Self {
        Self { run_every: RUN_EVERY, sweep_every: config.sweep_every.0 }
    }
}

impl SweepSchedule {
    /// The ticks of a run that started at `started`: one every `sweep_every`, before the next run.
    fn ticks(&self, started: Timestamp) -> Vec<Tick> {
        let mut ticks = Vec::new();
        let mut after = self.sweep_every;
        while after < self.run_every && !self.sweep_every.is_zero() {
            ticks.push(Tick { at: later(started, after), after });
            after += self.sweep_every;
        }
        ticks
    }

    /// The end of a sweep that started as planned at `at`: the time of the next sweep, or the deadline of the function.
    pub(crate) fn sweep_end(&self, at: Timestamp, deadline: Timestamp) -> Timestamp {
        if self.sweep_every < self.run_every {
            later(at, self.sweep_every).min(deadline)
        } else {
            deadline
        }
    }
}

/// A tick.
struct Tick {
    /// When it is due.
    at: Timestamp,
    /// The time between the start of its run and `at`.
    after: Duration,
}

/// The body of a tick's message.
#[derive(Debug, Serialize, Deserialize)]
struct TickMessage {
    /// When the tick is due.
    sweep_at: Timestamp,
}

/// Sends the ticks of a run that started at `started`. A failure is logged: the next run sends others.
pub(crate) async fn send<P: Ports>(ports: &P, schedule: &SweepSchedule, started: Timestamp) {
    let messages = schedule.ticks(started).into_iter().filter_map(|Tick { at, after }| {
        let body = serde_json::to_string(&TickMessage { sweep_at: at }).ok()?;
        Some(OutgoingMessage {
            queue: Queue::Sweeps,
            body,
            attributes: Vec::new(),
            tenant: None,
            delay: after,
        })
    });
    let messages: Vec<_> = messages.collect();
    if messages.is_empty() {
        return;
    }
    for error in ports.channel().send(messages).await.into_iter().filter_map(Result::err) {
        tracing::warn!(error = error_chain(&error), "tick not sent; the next run sends others");
    }
}

/// The end of the sweep that a tick starts. `None` if the tick is stale or is not a tick.
pub(crate) fn sweep_end(
    schedule: &SweepSchedule,
    body: &str,
    now: Timestamp,
    deadline: Timestamp,
) -> Option<Timestamp> {
    match serde_json::from_str::<TickMessage>(body) {
        Ok(TickMessage { sweep_at }) if now < later(sweep_at, schedule.sweep_every) => {
            Some(schedule.sweep_end(sweep_at, deadline))
        }
        Ok(TickMessage { sweep_at }) => {
            tracing::info!(%sweep_at, "stale tick ignored");
            None
        }
        Err(error) => {
            tracing::warn!(%error, "a message in the queue of ticks is not a tick; it is deleted");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sweep_interval_is_from_5_to_60_seconds() {
        for (text, seconds) in [("5s", 5), ("10s", 10), ("60s", 60)] {
            assert_eq!(text.parse(), Ok(SweepInterval(Duration::from_secs(seconds))));
        }
        for text in ["4s", "61s", "0s", "10", "1m", "-5s", "5.5s", "", "s"] {
            let invalid = Err(InvalidSweepInterval(text.to_owned()));
            assert_eq!(text.parse::<SweepInterval>(), invalid);
        }
    }

    /// So at most one sweep of a shard is in progress.
    #[test]
    fn a_sweep_ends_before_the_next_tick() {
        let sweep_every = Duration::from_secs(10);
        let schedule = SweepSchedule { run_every: RUN_EVERY, sweep_every };
        let (start, end) = (Timestamp::UNIX_EPOCH, Timestamp::MAX);
        assert_eq!(schedule.sweep_end(start, end), later(start, sweep_every));
        let deadline = later(start, Duration::from_secs(3));
        assert_eq!(schedule.sweep_end(start, deadline), deadline);
    }

    #[test]
    fn the_ticks_of_a_run_end_before_the_next_run() {
        for (sweep_every, expected) in [
            (10, vec![10, 20, 30, 40, 50]),
            (25, vec![25, 50]),
            (59, vec![59]),
            (60, vec![]),
            (90, vec![]),
            (0, vec![]),
        ] {
            let sweep_every = Duration::from_secs(sweep_every);
            let ticks =
                SweepSchedule { run_every: RUN_EVERY, sweep_every }.ticks(Timestamp::UNIX_EPOCH);
            let seconds: Vec<_> = ticks.iter().map(|tick| tick.at.as_second()).collect();
            assert_eq!(seconds, expected);
            let delays: Vec<_> = ticks.iter().map(|tick| tick.after.as_secs() as i64).collect();
            assert_eq!(delays, expected);
        }
    }
}
