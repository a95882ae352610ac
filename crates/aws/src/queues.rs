//! The settings of the queues in `template.yaml`, for the emulator and the forecast, and the waits that are too long. A test
//! compares the settings with the template.

use std::time::Duration;

use steward_core::{intake, limits::QUEUE_DELAY_MAX};
use steward_runtime::ports::Queue;

/// When a queue redelivers a message, and when the message becomes a dead letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueSettings {
    /// The visibility timeout, in seconds.
    pub visibility_seconds: u32,
    /// The number of receives after which a message becomes a dead letter.
    pub receives_max: u32,
}

/// The submissions queue. It allows more receives than the others: there is no task yet that the supervisor could recover.
pub const SUBMISSIONS: QueueSettings = QueueSettings { visibility_seconds: 180, receives_max: 30 };
/// The scheduler's queue.
pub const SCHEDULER: QueueSettings = QueueSettings { visibility_seconds: 180, receives_max: 16 };
/// The queue of operators' commands, which the scheduler handles like its own queue.
pub const COMMANDS: QueueSettings = SCHEDULER;
/// The queue of events that steps wait for. An event has no task that the supervisor could recover either.
pub const EVENTS: QueueSettings = SUBMISSIONS;
/// The visibility timeout of the queue of the supervisor's ticks, in seconds: six times the time limit of the supervisor.
/// It is longer than [`SWEEPS_RETENTION_SECONDS`], so a tick whose sweep failed is not delivered again. The next tick
/// sweeps the same tasks.
pub const SWEEPS_VISIBILITY_SECONDS: u32 = 300;
/// How long the queue of the supervisor's ticks keeps a message, in seconds: the least that SQS allows. By then the next run
/// of the supervisor has sent other ticks. The queue needs no dead-letter queue for the same reason.
pub const SWEEPS_RETENTION_SECONDS: u32 = 60;
/// The queue of an agent. An agent may hold a request for as long as its function runs.
pub const AGENT: QueueSettings = QueueSettings { visibility_seconds: 720, receives_max: 16 };

/// The wait in a queue without delays that is too long. A queue that keeps up delivers within a second.
const LATE_AFTER: Duration = Duration::from_secs(300);

/// How long a message may wait in a queue until a function receives it for the first time: `LATE_AFTER` beyond the longest
/// delay that Steward itself sets. `docs/operations/alarms.md` has the same numbers.
#[must_use]
pub fn late_after(queue: &Queue) -> Duration {
    longest_delay(queue) + LATE_AFTER
}

/// The longest delay with which Steward sends messages to a queue. SQS counts it as part of the wait.
fn longest_delay(queue: &Queue) -> Duration {
    match queue {
        // A wake of a task that waits.
        Queue::Scheduler => QUEUE_DELAY_MAX,
        // A submission that was put back.
        Queue::Submissions => intake::LONGEST_PAUSE,
        // No function of the deployment reads the last three queues late: ticks expire after a minute.
        Queue::Commands
        | Queue::Events
        | Queue::Agent(_)
        | Queue::Client(_)
        | Queue::Rejected
        | Queue::Sweeps => Duration::ZERO,
    }
}

#[cfg(test)]
mod tests {
    use steward_core::intake::pause_after_turns;

    use super::*;

    /// Otherwise messages that Steward delays would raise an alarm.
    #[test]
    fn a_wait_is_too_long_only_beyond_the_delays_that_steward_sets() {
        for (queue, delay) in [
            (Queue::Submissions, pause_after_turns(f64::MAX)),
            (Queue::Scheduler, QUEUE_DELAY_MAX.max(pause_after_turns(f64::MAX))),
            (Queue::Commands, Duration::ZERO),
            (Queue::Events, Duration::ZERO),
            (Queue::Agent("a".parse().unwrap()), Duration::ZERO),
        ] {
            assert!(late_after(&queue) >= delay + LATE_AFTER, "{queue:?}");
        }
    }
}
